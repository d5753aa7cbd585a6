"""Raw vector files of the nearest-neighbour benchmarks: fvecs, bvecs, and the bin family.

In fvecs and bvecs each row begins with its length as int32; in fbin, f16bin, u8bin and i8bin the file begins
with rows and columns as uint32. All are little-endian.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from latentlink._checks import InvalidInput
from latentlink.io._reader import Block, Reader, spans

VECS: dict[str, np.dtype[Any]] = {".fvecs": np.dtype("<f4"), ".bvecs": np.dtype("u1")}
BINS: dict[str, np.dtype[Any]] = {
    ".fbin": np.dtype("<f4"),
    ".f16bin": np.dtype("<f2"),
    ".u8bin": np.dtype("u1"),
    ".i8bin": np.dtype("i1"),
}
_MOST_COLUMNS = 1 << 20  # an encoder of more columns does not exist; a header that claims one is wrong


class Vecs(Reader):
    """fvecs or bvecs: every row carries its length, and every one is checked."""

    def __init__(self, path: Path) -> None:
        values = VECS[path.suffix.lower()]
        size = path.stat().st_size
        head = np.fromfile(path, "<i4", 1)
        columns = int(head[0]) if head.size else 0
        if not 0 < columns <= _MOST_COLUMNS:
            raise InvalidInput(f"{path} begins with a row of {columns} columns; needs 1 to {_MOST_COLUMNS}.")
        self.row = np.dtype([("length", "<i4"), ("values", values, (columns,))])
        if size % self.row.itemsize:
            raise InvalidInput(
                f"{path} has {size} bytes, no multiple of {self.row.itemsize}, a row of {columns} columns; "
                "it is cut off or its rows differ in length."
            )
        super().__init__(path, (size // self.row.itemsize, columns))

    def blocks(self, start: int, stop: int, batch_rows: int) -> Iterator[Block]:
        with open(self.path, "rb") as stream:
            stream.seek(start * self.row.itemsize)
            for low, high in spans(start, stop, batch_rows):
                rows = np.fromfile(stream, self.row, high - low)
                wrong = np.flatnonzero(rows["length"] != self.dimension)
                if wrong.size:
                    raise InvalidInput(
                        f"row {low + wrong[0]} of {self.path} says it has {rows['length'][wrong[0]]} columns "
                        f"but row 0 has {self.dimension}; needs rows of equal length."
                    )
                yield Block(np.ascontiguousarray(rows["values"]), None)


class Bin(Reader):
    """fbin, f16bin, u8bin or i8bin."""

    def __init__(self, path: Path) -> None:
        self.dtype: np.dtype[Any] = BINS[path.suffix.lower()]
        head = np.fromfile(path, "<u4", 2)
        rows, columns = (int(head[0]), int(head[1])) if head.size == 2 else (0, 0)
        needed = 8 + rows * columns * self.dtype.itemsize
        if needed != path.stat().st_size:
            raise InvalidInput(
                f"{path} claims {rows} rows of {columns}, {needed} bytes, but has {path.stat().st_size}; "
                "it is cut off or its header is wrong. Write it again."
            )
        super().__init__(path, (rows, columns))

    def blocks(self, start: int, stop: int, batch_rows: int) -> Iterator[Block]:
        with open(self.path, "rb") as stream:
            stream.seek(8 + start * self.dimension * self.dtype.itemsize)
            for low, high in spans(start, stop, batch_rows):
                flat = np.fromfile(stream, self.dtype, (high - low) * self.dimension)
                yield Block(flat.reshape(high - low, self.dimension), None)
