"""Parquet and Arrow IPC: a column of vectors and a column of ids."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from latentlink import _checks
from latentlink._checks import InvalidInput
from latentlink.io._reader import AnyArray, Block, Reader, pick, spans

VECTOR_COLUMNS = ["vectors", "vector", "embedding", "embeddings", "emb"]
ID_COLUMNS = ["ids", "id", "_id"]
# Values of one row group are decoded at once. A Parquet file of 25 kB can claim 50 million.
_MOST_VALUES = 1 << 28  # 1 GiB of float32


class Parquet(Reader):
    """A Parquet file, decoded row group by row group."""

    def __init__(self, path: Path, column: str | None, id_column: str | None) -> None:
        pq = _checks.need("pyarrow.parquet", extra="files", job="reading Parquet")
        self.file = _opened(
            path, "Parquet", lambda: pq.ParquetFile(path, buffer_size=1 << 20, pre_buffer=False)
        )
        self.column, self.id_column = _chosen(path, self.file.schema_arrow, column, id_column)
        metadata = self.file.metadata
        self.sizes = [metadata.row_group(i).num_rows for i in range(metadata.num_row_groups)]
        self._refuse_bombs(path)
        kind = self.file.schema_arrow.field(self.column).type
        width = _width(kind)
        if width is None and metadata.num_rows:
            first = next(self.file.iter_batches(1, columns=[self.column]))
            width = _values(first.column(0), str(path), 0).shape[1]
        super().__init__(path, (metadata.num_rows, width or 0), bool(self.id_column))

    def _refuse_bombs(self, path: Path) -> None:
        metadata = self.file.metadata
        for group in range(metadata.num_row_groups):
            chunks = (metadata.row_group(group).column(i) for i in range(metadata.num_columns))
            for chunk in chunks:
                wanted = chunk.path_in_schema.split(".")[0] in (self.column, self.id_column)
                if wanted and chunk.num_values > _MOST_VALUES:
                    raise InvalidInput(
                        f"row group {group} of {path} holds {chunk.num_values} values; needs at most "
                        f"{_MOST_VALUES}. Write it again with row groups of about 20,000 rows."
                    )

    def blocks(self, start: int, stop: int, batch_rows: int) -> Iterator[Block]:
        borders = np.concatenate([[0], np.cumsum(self.sizes)]).astype(int)
        groups = [g for g in range(len(self.sizes)) if borders[g + 1] > start and borders[g] < stop]
        if not groups:
            return
        at = int(borders[groups[0]])
        columns = [self.column] + ([self.id_column] if self.id_column else [])
        batches = self.file.iter_batches(batch_rows, row_groups=groups, columns=columns, use_threads=False)
        yield from _cut(batches, at, start, stop, batch_rows, self)


class Arrow(Reader):
    """An Arrow IPC file, record batch by record batch; read, not mapped, so that memory stays bounded."""

    def __init__(self, path: Path, column: str | None, id_column: str | None) -> None:
        pa = _checks.need("pyarrow", extra="files", job="reading Arrow files")
        self.file = _opened(path, "Arrow IPC", lambda: pa.ipc.open_file(pa.OSFile(str(path))))
        self.column, self.id_column = _chosen(path, self.file.schema, column, id_column)
        width = _width(self.file.schema.field(self.column).type)
        self.sizes = []
        mapped = pa.ipc.open_file(pa.memory_map(str(path)))  # lengths alone: no page of vectors is touched
        for i in range(mapped.num_record_batches):
            batch = mapped.get_batch(i)
            self.sizes.append(batch.num_rows)
            if width is None and batch.num_rows:
                width = _values(batch.column(self.column)[:1], str(path), 0).shape[1]
        super().__init__(path, (sum(self.sizes), width or 0), bool(self.id_column))

    def blocks(self, start: int, stop: int, batch_rows: int) -> Iterator[Block]:
        borders = np.concatenate([[0], np.cumsum(self.sizes)]).astype(int)
        wanted = [i for i in range(len(self.sizes)) if borders[i + 1] > start and borders[i] < stop]
        if wanted:
            batches = (self.file.get_batch(i) for i in wanted)
            yield from _cut(batches, int(borders[wanted[0]]), start, stop, batch_rows, self)


def _opened(path: Path, kind: str, opener: Any) -> Any:
    import pyarrow

    try:
        return opener()
    except FileNotFoundError:
        raise
    except (pyarrow.ArrowInvalid, OSError) as error:
        raise InvalidInput(f"{path} is not a {kind} file, or is cut off ({error}); write it again.") from error


def _chosen(path: Path, schema: Any, column: str | None, id_column: str | None) -> tuple[str, str]:
    vectors = pick(str(path), schema.names, column, VECTOR_COLUMNS, "vectors")
    return vectors, pick(str(path), schema.names, id_column, ID_COLUMNS, None)


def _width(kind: Any) -> int | None:
    """Return the number of columns that a type fixes, or None for lists of any length."""
    import pyarrow as pa

    if pa.types.is_fixed_size_list(kind):
        return int(kind.list_size)
    if pa.types.is_fixed_size_binary(kind):
        return int(kind.byte_width) // 4
    return None


def _values(column: Any, path: str, at: int) -> AnyArray:
    """Turn an Arrow column of vectors, starting at row `at` of the file, into an array (b, d)."""
    import pyarrow as pa

    kind = column.type
    if column.null_count:
        row = at + int(np.flatnonzero(np.asarray(column.is_null()))[0])
        raise InvalidInput(f"row {row} of {path} has no vector; drop it or mend it.")
    if pa.types.is_fixed_size_binary(kind):
        raw = np.frombuffer(column.buffers()[1], "<f4")
        width = kind.byte_width // 4
        return raw.reshape(-1, width)[column.offset : column.offset + len(column)]
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        parts = [np.frombuffer(value, "<f4") for value in column.to_pylist()]
        _equal([part.size for part in parts], path, at)
        return np.stack(parts)
    if pa.types.is_fixed_size_list(kind):
        width = kind.list_size
        flat = column.flatten()
    elif pa.types.is_list(kind) or pa.types.is_large_list(kind):
        lengths = np.diff(np.asarray(column.offsets))
        _equal(lengths, path, at)
        width = int(lengths[0])
        flat = column.flatten()
    else:
        raise InvalidInput(f"the vectors of {path} have type {kind}; needs lists of numbers or binary float32.")
    if flat.null_count:
        row = at + int(np.flatnonzero(np.asarray(flat.is_null()))[0]) // width
        raise InvalidInput(f"row {row} of {path} holds a missing value; drop it or mend it.")
    return np.asarray(flat.to_numpy(zero_copy_only=False)).reshape(len(column), width)


def _equal(lengths: Any, path: str, at: int) -> None:
    sizes = np.asarray(lengths)
    wrong = np.flatnonzero(sizes != sizes[0])
    if wrong.size:
        raise InvalidInput(
            f"row {at + wrong[0]} of {path} has {sizes[wrong[0]]} columns but row {at} has {sizes[0]}; "
            "needs rows of equal length."
        )


def _ids(column: Any) -> AnyArray:
    import pyarrow as pa

    values = column.to_numpy(zero_copy_only=False)
    if pa.types.is_integer(column.type) and not column.null_count:
        return np.asarray(values)
    return np.asarray(values).astype(str)


def _cut(batches: Any, at: int, start: int, stop: int, batch_rows: int, reader: Any) -> Iterator[Block]:
    """Cut record batches beginning at row `at` into spans of `batch_rows` counted from `start`.

    Borders depend on `start` alone, never on how the file was chunked: results stay the same bit for bit.
    """
    path, pending, ids = str(reader.path), [], []
    targets = list(spans(start, stop, batch_rows))
    if not targets:
        return
    low, high = targets.pop(0)
    have = 0
    for batch in batches:
        first, last = max(start, at), min(stop, at + batch.num_rows)
        offset = at
        at += batch.num_rows
        while first < last:
            take = min(last - first, (high - low) - have)
            piece = batch.slice(first - offset, take)
            pending.append(_values(piece.column(reader.column), path, first))
            if reader.id_column:
                ids.append(_ids(piece.column(reader.id_column)))
            have += take
            first += take
            if have == high - low:
                _equal([part.shape[1] for part in pending], path, low)
                yield Block(_joined(pending), _joined(ids) if ids else None)
                pending, ids, have = [], [], 0
                if targets:
                    low, high = targets.pop(0)


def _joined(parts: list[AnyArray]) -> AnyArray:
    return parts[0] if len(parts) == 1 else np.concatenate(parts)
