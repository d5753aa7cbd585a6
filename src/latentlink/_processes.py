"""Run independent tasks on this machine, in order, on one process or several."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeAlias, TypeVar

from latentlink import _checks
from latentlink._progress import track

T = TypeVar("T")

# What runs the tasks of a job on many files: it takes callables that return bytes, which any engine can carry,
# and gives their results in the order of the tasks.
Runner: TypeAlias = Callable[[Sequence[Callable[[], bytes]]], Iterable[bytes]]


def run_here(tasks: Sequence[Callable[[], T]], *, workers: int = 1, progress: bool = True) -> Iterator[T]:
    """Run tasks and yield their results in the order of the tasks, as they come.

    Parameters
    ----------
    tasks : sequence of callables without arguments
        Picklable when there are several workers.
    workers : int
        Processes, started afresh; 1 runs in this one.
    progress : bool
        Draw a bar on stderr, if that is a terminal.

    Examples
    --------
    >>> list(run_here([list, dict]))
    [[], {}]
    """
    if _checks.integer("workers", workers, low=1) == 1:
        yield from track((task() for task in tasks), total=len(tasks), what="tasks", show=progress)
        return
    from concurrent.futures import ProcessPoolExecutor
    from multiprocessing import get_context

    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        yield from track(pool.map(_call, tasks), total=len(tasks), what="tasks", show=progress)


def _call(task: Callable[[], T]) -> T:
    return task()
