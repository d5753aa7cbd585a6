"""One door to every format: what a file holds, and its rows in bounded batches."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from latentlink import _checks
from latentlink.io._columns import Arrow, Parquet
from latentlink.io._containers import Hdf5, JsonLines, Safetensors
from latentlink.io._numpy import Npy, Npz
from latentlink.io._raw import BINS, VECS, Bin, Vecs
from latentlink.io._reader import AnyArray, Reader

# 4,096 x 768 float32 are 12 MiB: below malloc's 32 MiB limit, so blocks are used again and not mapped anew.
BATCH_ROWS = 4096
SHARD_ROWS = 32 * BATCH_ROWS  # of one task, where a job is cut into tasks
_TABLES: dict[str, type[Npz | Parquet | Arrow | Hdf5 | JsonLines | Safetensors]] = {
    ".npz": Npz,
    ".parquet": Parquet,
    ".arrow": Arrow,
    ".ipc": Arrow,
    ".feather": Arrow,
    ".h5": Hdf5,
    ".hdf5": Hdf5,
    ".jsonl": JsonLines,
    ".ndjson": JsonLines,
    ".safetensors": Safetensors,
}
SUFFIXES = [".npy", *_TABLES, *VECS, *BINS]


class Batch(NamedTuple):
    """Consecutive rows of a file, all finite."""

    rows: AnyArray  # (b,) row numbers in the file
    vectors: AnyArray  # (b, d) float32 or float64
    ids: AnyArray  # (b,); the row numbers where the file has no ids


@dataclass(frozen=True)
class VectorFile:
    """A file of vectors whose header was checked; made by `open_vectors`.

    Attributes
    ----------
    path : Path
    rows, dimension : int
    has_ids : bool
    """

    path: Path
    rows: int
    dimension: int
    has_ids: bool
    _reader: Reader

    def batches(
        self,
        *,
        batch_rows: int = BATCH_ROWS,
        start: int = 0,
        stop: int | None = None,
        quarantine: str | os.PathLike[str] | None = None,
    ) -> Iterator[Batch]:
        """Yield the rows from `start` to `stop` in order.

        Parameters
        ----------
        batch_rows : int
            Rows at a time. Borders are counted from `start`, however the file itself is chunked.
        start, stop : int
        quarantine : path, optional
            Rows that hold NaN or infinity are left out and appended to this file, one JSON object a line with
            row, id and reason. Left out: such a row is an error that names it.

        Yields
        ------
        Batch
        """
        low = _checks.integer("start", start, high=self.rows)
        high = _checks.integer("stop", self.rows if stop is None else stop, low=low, high=self.rows)
        size = _checks.integer("batch_rows", batch_rows, low=1)
        at = low
        for block in self._reader.blocks(low, high, size):
            rows = np.arange(at, at + len(block.vectors))
            at += len(block.vectors)
            ids = rows if block.ids is None else block.ids
            vectors = _checks.matrix(self.path.name, block.vectors, columns=self.dimension, finite=False)
            if not _checks.all_finite(vectors):
                rows, vectors, ids = _finite(self.path, rows, vectors, ids, quarantine)
            yield Batch(rows, vectors, ids)
        if at != high:
            raise _checks.InvalidInput(
                f"{self.path} ended at row {at} but its header claims {high}; it is cut off. Write it again."
            )


def open_vectors(
    path: str | os.PathLike[str], *, vector_column: str | None = None, id_column: str | None = None
) -> VectorFile:
    """Open a file of vectors, reading its header only.

    Parameters
    ----------
    path : path
        By suffix: npy, npz, parquet (lists, fixed-size lists, or float32 in a binary column), arrow, ipc or
        feather (Arrow IPC), h5 or hdf5 (as ann-benchmarks), jsonl, safetensors, fvecs, bvecs, fbin, f16bin,
        u8bin, i8bin.
    vector_column, id_column : str, optional
        Names within a table; the usual ones are found. In HDF5 ``vector_column="test"`` reads the queries.

    Returns
    -------
    VectorFile

    Raises
    ------
    InvalidInput
        The suffix is unknown, or the header and the size of the file disagree.
    MissingExtra
        Parquet, Arrow or HDF5 without the extra `files`.

    Examples
    --------
    >>> import tempfile
    >>> path = tempfile.mkdtemp() + "/x.npy"
    >>> np.save(path, np.eye(5, 3, dtype=np.float32))
    >>> file = open_vectors(path)
    >>> file.rows, file.dimension, [len(batch.vectors) for batch in file.batches(batch_rows=2)]
    (5, 3, [2, 2, 1])
    """
    file = _checks.path("path", path)
    suffix = file.suffix.lower()
    _checks.one_of(f"the suffix of {file.name}", suffix, SUFFIXES)
    file.stat()  # a missing file is an error that names it, whatever the format's library says
    reader: Reader
    if suffix in _TABLES:
        reader = _TABLES[suffix](file, vector_column, id_column)
    else:
        reader = Npy(file) if suffix == ".npy" else Vecs(file) if suffix in VECS else Bin(file)
    return VectorFile(file, reader.rows, reader.dimension, reader.has_ids, reader)


def read_vectors(
    path: str | os.PathLike[str],
    *,
    vector_column: str | None = None,
    id_column: str | None = None,
    quarantine: str | os.PathLike[str] | None = None,
) -> tuple[AnyArray, AnyArray | None]:
    """Read all vectors of a file and their ids.

    Parameters
    ----------
    path, vector_column, id_column
        See `open_vectors`.
    quarantine : path, optional
        See `VectorFile.batches`.

    Returns
    -------
    vectors : array (n, d)
        float32, or float64 when the file holds that.
    ids : array (n,) or None
        None when the file has none and no row was left out.

    Raises
    ------
    InvalidInput
        The file is cut off, claims more than it holds, inflates beyond reason, holds Python objects, has rows
        that are not finite, or repeats an id.

    Examples
    --------
    >>> import tempfile
    >>> folder = tempfile.mkdtemp()
    >>> np.savez(f"{folder}/a.npz", vectors=np.eye(2, dtype=np.float32), ids=["x", "y"])
    >>> read_vectors(f"{folder}/a.npz")
    (array([[1., 0.],
           [0., 1.]], dtype=float32), array(['x', 'y'], dtype='<U1'))
    """
    file = open_vectors(path, vector_column=vector_column, id_column=id_column)
    if not file.rows:
        raise _checks.InvalidInput(f"{path} has no rows; needs at least 1.")
    batches = list(file.batches(quarantine=quarantine))
    vectors = np.concatenate([batch.vectors for batch in batches])
    if not file.has_ids and len(vectors) == file.rows:
        return vectors, None
    ids = np.concatenate([batch.ids for batch in batches])
    return vectors, _checks.unique_ids(f"ids of {file.path.name}", ids, rows=len(vectors))


def _finite(
    path: Path, rows: AnyArray, vectors: AnyArray, ids: AnyArray, quarantine: str | os.PathLike[str] | None
) -> tuple[AnyArray, AnyArray, AnyArray]:
    good = np.isfinite(vectors).all(axis=1)
    bad = np.flatnonzero(~good)
    if bad.size and quarantine is None:
        kind = "NaN" if np.isnan(vectors).any() else "infinity"
        shown = ", ".join(f"row {rows[i]} (id {ids[i]})" for i in bad[:3])
        more = f" and {bad.size - 3} more of this batch" if bad.size > 3 else ""
        raise _checks.InvalidInput(
            f"{shown}{more} of {path} {'holds' if bad.size == 1 else 'hold'} {kind}; "
            "drop or mend, or pass quarantine= a file that will list what was left out."
        )
    if bad.size:
        with open(str(quarantine), "a", encoding="utf-8") as stream:
            for i in bad:
                reason = "NaN" if np.isnan(vectors[i]).any() else "infinity"
                record = {"file": path.name, "row": int(rows[i]), "id": ids[i].item(), "reason": reason}
                stream.write(json.dumps(record) + "\n")
    return rows[good], vectors[good], ids[good]
