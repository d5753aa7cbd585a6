"""What every format's reader has: a header that was checked against the file, and rows in blocks."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from latentlink._checks import InvalidInput

AnyArray: TypeAlias = np.ndarray[Any, np.dtype[Any]]


class Block(NamedTuple):
    """Consecutive rows as the file holds them."""

    vectors: AnyArray  # (b, d)
    ids: AnyArray | None  # (b,)


class Reader(ABC):
    """One open format: its size, and blocks of its rows."""

    def __init__(self, path: Path, shape: Sequence[int], has_ids: bool = False) -> None:
        if len(shape) != 2:
            hint = f" Reshape it to (1, {shape[0]})?" if len(shape) == 1 else ""
            raise InvalidInput(f"{path} has shape {tuple(shape)}; needs (n, d).{hint}")
        self.path = path
        self.rows = int(shape[0])
        self.dimension = int(shape[1])
        self.has_ids = has_ids

    @abstractmethod
    def blocks(self, start: int, stop: int, batch_rows: int) -> Iterator[Block]:
        """Yield rows `start` to `stop` in order, at most `batch_rows` at a time."""


def spans(start: int, stop: int, size: int) -> Iterator[tuple[int, int]]:
    """Yield the borders of consecutive spans.

    >>> list(spans(2, 9, 3))
    [(2, 5), (5, 8), (8, 9)]
    """
    for low in range(start, stop, size):
        yield low, min(low + size, stop)


def pick(path: str, present: list[str], asked: str | None, usual: list[str], what: str | None) -> str:
    """Return the column that was asked for, or the first usual one there is.

    With `what` None a missing usual column is no error and gives "".
    """
    if asked is not None:
        if asked not in present:
            raise InvalidInput(f"{path} has no column {asked!r}; it has {', '.join(sorted(present))}.")
        return asked
    for name in usual:
        if name in present:
            return name
    if what is None:
        return ""
    raise InvalidInput(
        f"{path} holds {', '.join(sorted(present))}; needs {what} under {' or '.join(map(repr, usual))}, "
        "or its name in vector_column."
    )
