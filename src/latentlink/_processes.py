"""Run independent tasks on this machine, in order, on one process or several."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from latentlink import _checks

T = TypeVar("T")


def run_here(tasks: Sequence[Callable[[], T]], *, workers: int = 1) -> list[T]:
    """Run tasks and return their results in the order of the tasks.

    Parameters
    ----------
    tasks : sequence of callables without arguments
        Picklable when there are several workers.
    workers : int
        Processes, started afresh; 1 runs in this one.

    Examples
    --------
    >>> run_here([list, dict])
    [[], {}]
    """
    if _checks.integer("workers", workers, low=1) == 1:
        return [task() for task in tasks]
    from concurrent.futures import ProcessPoolExecutor
    from multiprocessing import get_context

    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        return list(pool.map(_call, tasks))


def _call(task: Callable[[], T]) -> T:
    return task()
