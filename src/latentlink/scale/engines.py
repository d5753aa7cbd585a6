"""Run independent tasks in order of their numbers: here, on processes, or by Ray Data."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from latentlink import _checks
from latentlink._processes import run_here

ENGINES = ["local", "ray"]


def run_tasks(
    tasks: Sequence[Callable[[], bytes]], *, engine: str = "local", workers: int = 1, address: str | None = None
) -> list[bytes]:
    """Run tasks and return their results in the order of the tasks.

    Parameters
    ----------
    tasks : sequence of callables without arguments
        Each returns bytes. They travel to workers, and so must be picklable.
    engine : {"local", "ray"}
    workers : int
        Processes of the local engine; 1 runs here. Ray takes what its cluster has.
    address : str, optional
        Of a Ray cluster, such as "auto" or "ray://head:10001". A running connection is used; otherwise a local
        cluster is started and ended.

    Raises
    ------
    MissingExtra
        Ray is asked for and not installed.
    """
    _checks.one_of("engine", engine, ENGINES)
    if engine == "ray":
        return _by_ray(tasks, address)
    return run_here(tasks, workers=workers)


def _by_ray(tasks: Sequence[Callable[[], bytes]], address: str | None) -> list[bytes]:
    ray = _checks.need("ray", extra="ray", job='engine="ray"')
    data = _checks.need("ray.data", extra="ray", job='engine="ray"')
    mine = not ray.is_initialized()
    if mine:
        ray.init(address=address, log_to_driver=False, include_dashboard=False if address is None else None)
    try:
        todo = ray.put(list(tasks))  # once into the object store, not once for every task

        def work(row: dict[str, Any]) -> dict[str, Any]:
            return {"number": row["number"], "result": ray.get(todo)[row["number"]]()}

        numbers = data.from_items([{"number": i} for i in range(len(tasks))], override_num_blocks=len(tasks))
        rows = sorted(numbers.map(work).take_all(), key=lambda row: row["number"])
    finally:
        if mine:
            ray.shutdown()
    return [row["result"] for row in rows]
