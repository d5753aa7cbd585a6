"""A progress bar on stderr, for a person who watches; nothing in a log or a pipe."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from typing import TypeVar

T = TypeVar("T")


def watched(*, show: bool = True) -> bool:
    """Tell whether a bar is wanted and a person there to see it: stderr is a terminal."""
    return show and sys.stderr.isatty()


def track(items: Iterable[T], *, total: int, what: str, show: bool = True) -> Iterator[T]:
    """Yield the items, drawing a bar when there are several and stderr is a terminal.

    Parameters
    ----------
    items : iterable
    total : int
        How many there are.
    what : str
        What is counted, such as "shards".
    show : bool
        False draws nothing, even on a terminal.

    Examples
    --------
    >>> list(track(range(3), total=3, what="shards"))
    [0, 1, 2]
    """
    if total < 2 or not watched(show=show):
        yield from items
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    columns = [TextColumn("{task.description}"), BarColumn(), TextColumn("{task.completed}/{task.total}")]
    with Progress(*columns, TimeRemainingColumn(), console=Console(stderr=True), transient=True) as bar:
        yield from bar.track(items, total=total, description=what)
