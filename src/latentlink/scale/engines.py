"""Run independent tasks in order of their numbers: here, on processes, or by Ray Data."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

from latentlink import _checks
from latentlink._processes import Runner, run_here
from latentlink._progress import track

ENGINES = ["local", "ray"]


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
        ray.init(address=address, log_to_driver=False, include_dashboard=False if address is None else None)
    try:
        todo = ray.put(list(tasks))  # once into the object store, not once for every task

        def work(row: dict[str, Any]) -> dict[str, Any]:
            return {"number": row["number"], "result": ray.get(todo)[row["number"]]()}

        numbers = data.from_items([{"number": i} for i in range(len(tasks))], override_num_blocks=len(tasks))
        rows = numbers.map(work).iter_rows()
        early: dict[int, bytes] = {}  # results that came before their turn
        turn = 0
        for row in track(rows, total=len(tasks), what="tasks", show=progress):
            early[row["number"]] = row["result"]
            while turn in early:
                yield early.pop(turn)
                turn += 1
    finally:
        if mine:
            ray.shutdown()
