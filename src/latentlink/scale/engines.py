"""Run independent tasks in order of their numbers: here, on processes, or by Ray Data."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

from latentlink import _checks
from latentlink._processes import Runner, run_here
from latentlink._progress import track

ENGINES = ["local", "ray"]
_MISTAKES: dict[str, type[Exception]] = {
    error.__name__: error for error in (_checks.InvalidInput, _checks.InvalidType, _checks.MissingExtra)
}


def engine(
    name: str = "local", *, workers: int = 1, address: str | None = None, progress: bool = True
) -> Runner:
    """Choose what runs the tasks of a job on many files.

    Parameters
    ----------
    name : {"local", "ray"}
    workers : int
        Processes of the local engine; 1 runs in this one. Ray takes what its cluster has.
    address : str, optional
        Of a Ray cluster, such as "auto" or "ray://head:10001". A running connection is used; otherwise a local
        cluster is started and ended.
    progress : bool
        Draw a bar on stderr, if that is a terminal.

    Returns
    -------
    callable
        The `run` of `latentlink.search.convert`, `latentlink.spaces.file_moments` and
        `latentlink.spaces.fit_files`.

    Raises
    ------
    InvalidInput
        The name is unknown, workers are asked of Ray, or an address is given without it.
    MissingExtra
        Ray is asked for and not installed.

    Examples
    --------
    >>> list(engine("local")([lambda: b"one", lambda: b"two"]))
    [b'one', b'two']
    """
    if _checks.one_of("engine", name, ENGINES) == "local":
        if address is not None:
            raise _checks.InvalidInput('address is of a Ray cluster, but engine is "local"; pass engine="ray".')
        return partial(run_here, workers=_checks.integer("workers", workers, low=1), progress=progress)
    if workers != 1:
        raise _checks.InvalidInput('workers are of the local engine; engine="ray" takes what its cluster has.')
    _checks.need("ray.data", extra="ray", job='engine="ray"')
    return partial(_by_ray, address=address, progress=progress)


def _by_ray(tasks: Sequence[Callable[[], bytes]], *, address: str | None, progress: bool) -> Iterator[bytes]:
    import ray
    from ray import data

    mine = not ray.is_initialized()
    if mine:
        try:
            ray.init(
                address=address,
                log_to_driver=False,
                logging_level=logging.WARNING,
                include_dashboard=False if address is None else None,
            )
        except ConnectionError as error:
            raise _checks.InvalidInput(f"no Ray cluster answers at {address!r}: {error}") from error
    try:
        todo = ray.put(list(tasks))  # once into the object store, not once for every task

        def work(row: dict[str, Any]) -> dict[str, Any]:
            number = row["number"]
            try:
                return {"number": number, "result": ray.get(todo)[number](), "mistake": "", "message": ""}
            except tuple(_MISTAKES.values()) as error:  # Ray would wrap it; it is to arrive as it is
                kind = next(name for name, known in _MISTAKES.items() if isinstance(error, known))
                return {"number": number, "result": b"", "mistake": kind, "message": str(error)}

        numbers = data.from_items([{"number": i} for i in range(len(tasks))], override_num_blocks=len(tasks))
        early: dict[int, bytes] = {}  # results that came before their turn
        turn = 0
        with _silent(data):
            rows = numbers.map(work).iter_rows()
            for row in track(rows, total=len(tasks), what="tasks", show=progress):
                if row["mistake"]:
                    raise _MISTAKES[row["mistake"]](row["message"])
                early[row["number"]] = row["result"]
                while turn in early:
                    yield early.pop(turn)
                    turn += 1
    finally:
        if mine:
            ray.shutdown()


@contextmanager
def _silent(data: Any) -> Iterator[None]:
    """Keep Ray Data from writing its own progress to stderr."""
    context, logger = data.DataContext.get_current(), logging.getLogger("ray.data")
    before = context.enable_progress_bars, logger.level
    context.enable_progress_bars = False
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        context.enable_progress_bars = before[0]
        logger.setLevel(before[1])
