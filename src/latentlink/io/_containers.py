"""HDF5 in the layout of ann-benchmarks, safetensors, and JSON lines."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from latentlink import _checks
from latentlink._checks import InvalidInput
from latentlink.io._columns import ID_COLUMNS, VECTOR_COLUMNS
from latentlink.io._reader import AnyArray, Block, Reader, pick, spans

_LONGEST_LINE = 16 << 20  # bytes; a vector of 4,096 numbers takes about 90 kB


class Hdf5(Reader):
    """HDF5: `train` of ann-benchmarks unless another dataset is named."""

    def __init__(self, path: Path, column: str | None, id_column: str | None) -> None:
        h5py = _checks.need("h5py", extra="files", job="reading HDF5")
        try:
            self.file = h5py.File(path, "r")
        except FileNotFoundError:
            raise
        except OSError as error:
            raise InvalidInput(
                f"{path} is not an HDF5 file, or is cut off ({error}); write it again."
            ) from error
        names = [name for name, item in self.file.items() if isinstance(item, h5py.Dataset)]
        name = pick(str(path), names, column, ["train", *VECTOR_COLUMNS], "vectors")
        ids = pick(str(path), names, id_column, ID_COLUMNS, None)
        self.vectors, self.ids = self.file[name], self.file[ids] if ids else None
        super().__init__(path, self.vectors.shape, self.ids is not None)

    def blocks(self, start: int, stop: int, batch_rows: int) -> Iterator[Block]:
        for low, high in spans(start, stop, batch_rows):
            ids = None if self.ids is None else _decoded(self.ids[low:high])
            yield Block(self.vectors[low:high], ids)


class Safetensors(Reader):
    """safetensors: the tensor `vectors`, or the only one of two dimensions; whole-number `ids`."""

    def __init__(self, path: Path, column: str | None, id_column: str | None) -> None:
        from safetensors import SafetensorError, safe_open

        path.stat()  # a missing file stays a FileNotFoundError
        try:
            file: Any = safe_open(path, framework="numpy")
            shapes = {name: file.get_slice(name).get_shape() for name in list(file.keys())}
        except SafetensorError as error:
            raise InvalidInput(f"{path} is not a safetensors file, or is cut off ({error}).") from error
        self.file = file
        tables = [name for name, shape in shapes.items() if len(shape) == 2]
        if column is None and len(tables) == 1:
            column = tables[0]
        self.column = pick(str(path), list(shapes), column, VECTOR_COLUMNS, "vectors")
        self.id_column = pick(str(path), list(shapes), id_column, ID_COLUMNS, None)
        super().__init__(path, shapes[self.column], bool(self.id_column))

    def blocks(self, start: int, stop: int, batch_rows: int) -> Iterator[Block]:
        vectors = self.file.get_slice(self.column)
        ids = self.file.get_slice(self.id_column) if self.id_column else None
        for low, high in spans(start, stop, batch_rows):
            yield Block(vectors[low:high], None if ids is None else ids[low:high])


class JsonLines(Reader):
    """One JSON object a line, such as ``{"id": "a", "vector": [0.1, 0.2]}``; opening it counts the lines."""

    def __init__(self, path: Path, column: str | None, id_column: str | None) -> None:
        rows, first = 0, ""
        for line in _lines(path):
            first = first or line
            rows += 1
        record = _object(first, path, 0) if first else {}
        self.column = pick(str(path), list(record), column, VECTOR_COLUMNS, "vectors")
        self.id_column = pick(str(path), list(record), id_column, ID_COLUMNS, None)
        super().__init__(path, (rows, _row(record, self.column, path, 0).size), bool(self.id_column))

    def blocks(self, start: int, stop: int, batch_rows: int) -> Iterator[Block]:
        vectors: list[AnyArray] = []
        ids: list[Any] = []
        for row, line in enumerate(_lines(self.path)):
            if not start <= row < stop:
                continue
            record = _object(line, self.path, row)
            vector = _row(record, self.column, self.path, row)
            if vector.size != self.dimension:
                raise InvalidInput(
                    f"row {row} of {self.path} has {vector.size} columns but row 0 has {self.dimension}; "
                    "needs rows of equal length."
                )
            vectors.append(vector)
            if self.id_column:
                if self.id_column not in record:
                    raise InvalidInput(
                        f"row {row} of {self.path} has no {self.id_column!r}; every row needs one."
                    )
                ids.append(record[self.id_column])
            if len(vectors) == batch_rows or row == stop - 1:
                yield Block(np.stack(vectors), np.asarray(ids) if self.id_column else None)
                vectors, ids = [], []


def _decoded(ids: AnyArray) -> AnyArray:
    if ids.dtype.kind in "iu":
        return ids
    return np.asarray([value.decode() if isinstance(value, bytes) else str(value) for value in ids])


def _lines(path: Path) -> Iterator[str]:
    with open(path, "rb") as stream:
        number = 0
        while line := stream.readline(_LONGEST_LINE):
            number += 1
            if len(line) == _LONGEST_LINE and not line.endswith(b"\n"):
                raise InvalidInput(
                    f"line {number} of {path} is longer than {_LONGEST_LINE} bytes; needs one row a line."
                )
            if line.strip():
                yield line.decode("utf-8", "replace")


def _object(line: str, path: Path, row: int) -> dict[str, Any]:
    try:
        record = json.loads(line)
    except json.JSONDecodeError as error:
        raise InvalidInput(f"row {row} of {path} is not JSON ({error}); it may be cut off.") from error
    if not isinstance(record, dict):
        raise InvalidInput(f"row {row} of {path} is no JSON object; needs an id and a vector.")
    return record


def _row(record: dict[str, Any], column: str, path: Path, row: int) -> AnyArray:
    try:
        vector = np.asarray(record[column], dtype=np.float64)
    except (KeyError, TypeError, ValueError) as error:
        raise InvalidInput(f"row {row} of {path} has no list of numbers under {column!r}; mend it.") from error
    if vector.ndim != 1 or not vector.size:
        raise InvalidInput(f"row {row} of {path} has a vector of shape {vector.shape}; needs (d,).")
    return vector.astype(np.float32)
