"""Write vectors and ids: whole files, and working files in Arrow IPC that grow batch by batch."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from latentlink import _checks, _files
from latentlink.io._reader import AnyArray, spans

_ROW_GROUP = 20_000
_WRITABLE = [".npy", ".npz", ".arrow", ".parquet", ".jsonl", ".fvecs", ".fbin", ".safetensors"]


def write_vectors(path: str | os.PathLike[str], vectors: Any, *, ids: Any = None) -> None:
    """Write vectors, and ids where the format has a place for them, atomically.

    Parameters
    ----------
    path : path
        By suffix: npy, npz, arrow, parquet, jsonl, fvecs, fbin, safetensors.
    vectors : array (n, d)
        Finite rows.
    ids : array (n,), optional
        npy, fvecs and fbin have no place for ids and refuse them; safetensors takes whole numbers.

    Raises
    ------
    InvalidInput
        The format cannot hold the ids, or an id repeats.
    """
    target = _checks.path("path", path)
    suffix = _checks.one_of(f"the suffix of {target.name}", target.suffix.lower(), _WRITABLE)
    x = _checks.numpy_matrix("vectors", vectors)
    names = None if ids is None else _checks.unique_ids("ids", ids, rows=len(x))
    whole_numbers = names is None or names.dtype.kind in "iu"
    if names is not None and (
        suffix in (".npy", ".fvecs", ".fbin") or (suffix == ".safetensors" and not whole_numbers)
    ):
        kind = "ids" if suffix != ".safetensors" else "text ids"
        raise _checks.InvalidInput(f"{target.name} cannot hold {kind}; write .arrow, .parquet, .npz or .jsonl.")
    with _files.replacing(target) as temporary:
        if suffix in (".arrow", ".parquet"):
            _write_table(temporary, suffix, x, names)
        else:
            with open(temporary, "wb") as stream:
                _write_plain(stream, suffix, x, names)


@contextmanager
def arrow_writer(stream: BinaryIO, dimension: int) -> Iterator[Callable[[AnyArray, AnyArray], None]]:
    """Yield a function (vectors, ids) that appends one record batch to an Arrow IPC file.

    Columns are `ids` (int64 or string, as in the first batch) and `vectors` (fixed-size list of float32).
    """
    pa = _checks.need("pyarrow", extra="files", job="writing Arrow files")
    writer: list[Any] = []

    def write(vectors: AnyArray, ids: AnyArray) -> None:
        batch = _record_batch(pa, vectors, ids, dimension)
        if not writer:
            writer.append(pa.ipc.new_file(stream, batch.schema))
        writer[0].write_batch(batch)

    yield write
    if not writer:
        writer.append(
            pa.ipc.new_file(
                stream, _record_batch(pa, np.empty((0, dimension)), np.empty(0, int), dimension).schema
            )
        )
    writer[0].close()


class HashingStream:
    """A binary file that hashes what is written to it, so that a checksum costs no second read."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self._digest = hashlib.sha256()
        self.size = 0
        self.closed = False

    def write(self, data: Any) -> int:
        """Write and hash bytes."""
        view = memoryview(data).cast("B")
        self._digest.update(view)
        self.size += len(view)
        return self._stream.write(view)

    def flush(self) -> None:
        """Flush the file below."""
        self._stream.flush()

    def hexdigest(self) -> str:
        """Return the SHA-256 of everything written."""
        return self._digest.hexdigest()


def _record_batch(pa: Any, vectors: AnyArray, ids: AnyArray, dimension: int) -> Any:
    flat = pa.array(np.ascontiguousarray(vectors, dtype=np.float32).reshape(-1))
    names = pa.array(ids.astype(np.int64) if ids.dtype.kind in "iu" else ids.astype(str))
    column = pa.FixedSizeListArray.from_arrays(flat, dimension)
    return pa.record_batch([names, column], names=["ids", "vectors"])


def _write_table(path: Path, suffix: str, x: AnyArray, ids: AnyArray | None) -> None:
    pa = _checks.need("pyarrow", extra="files", job=f"writing {suffix[1:]} files")
    names = np.arange(len(x)) if ids is None else ids
    batch = _record_batch(pa, x, names, x.shape[1])
    table = pa.table(batch) if ids is not None else pa.table(batch).select(["vectors"])
    if suffix == ".arrow":
        with pa.OSFile(str(path), "wb") as stream, pa.ipc.new_file(stream, table.schema) as writer:
            writer.write_table(table, max_chunksize=_ROW_GROUP)
        return
    pq = _checks.need("pyarrow.parquet", extra="files", job="writing Parquet")
    # Vectors neither compress nor repeat: dictionaries and statistics only cost time.
    pq.write_table(
        table, path, row_group_size=_ROW_GROUP, compression="none", use_dictionary=False, write_statistics=False
    )


def _write_plain(stream: BinaryIO, suffix: str, x: AnyArray, ids: AnyArray | None) -> None:
    if suffix == ".npy":
        np.save(stream, x, allow_pickle=False)
    elif suffix == ".npz":
        arrays = {"vectors": x} | ({} if ids is None else {"ids": ids})
        np.savez(stream, allow_pickle=False, **arrays)
    elif suffix == ".safetensors":
        from safetensors.numpy import save

        arrays = {"vectors": np.ascontiguousarray(x)} | (
            {} if ids is None else {"ids": np.ascontiguousarray(ids)}
        )
        stream.write(save(arrays))
    elif suffix == ".jsonl":
        for row, vector in enumerate(x):
            record = {} if ids is None else {"id": ids[row].item()}
            stream.write((json.dumps(record | {"vector": vector.tolist()}) + "\n").encode())
    elif suffix == ".fbin":
        stream.write(np.asarray(x.shape, "<u4").tobytes())
        x.astype("<f4").tofile(stream)
    else:
        length = np.full(1, x.shape[1], "<i4").view("<f4")
        for low, high in spans(0, len(x), _ROW_GROUP):
            np.hstack([np.repeat(length[None], high - low, 0), x[low:high].astype("<f4")]).tofile(stream)
