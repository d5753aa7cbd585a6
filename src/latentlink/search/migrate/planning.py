"""The dry run: what a migration would read, write and cost, before anything is done."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from latentlink import _checks
from latentlink.io import open_vectors

_PROBE_ROWS = 4096


@dataclass(frozen=True)
class Plan:
    """What a corpus-side migration would take.

    Attributes
    ----------
    files, rows, dimension, target_dimension : int
    bytes_read, bytes_written, bytes_free : int
        Free is what the disk of the output folder has.
    product_seconds : float
        CPU seconds of the map on this machine, from a measured product; reading and writing come on top.
    embed_hours : float
        Hours of embedding every item again at the stated rate.
    """

    files: int
    rows: int
    dimension: int
    target_dimension: int
    bytes_read: int
    bytes_written: int
    bytes_free: int
    product_seconds: float
    embed_hours: float

    @property
    def fits(self) -> bool:
        """Whether the output fits on the disk."""
        return self.bytes_written < self.bytes_free

    def __str__(self) -> str:
        room = "fits" if self.fits else "DOES NOT FIT"
        return "\n".join(
            [
                f"corpus      {self.rows:,} vectors of {self.dimension} in {self.files} files",
                f"reads       {_size(self.bytes_read)}",
                f"writes      {_size(self.bytes_written)} of {self.target_dimension} columns; "
                f"{_size(self.bytes_free)} are free: {room}",
                f"map         {_duration(self.product_seconds)} of CPU here, without reading and writing",
                f"re-embed    {_duration(3600 * self.embed_hours)} at the stated rate, for comparison",
            ]
        )


def _size(n: float) -> str:
    """Write a number of bytes.

    >>> _size(3_072_000)
    '2.9 MiB'
    """
    power = min(4, max(0, int(n).bit_length() - 1) // 10)
    return f"{n / 1024**power:.1f} {['B', 'KiB', 'MiB', 'GiB', 'TiB'][power]}"


def _duration(seconds: float) -> str:
    """Write a time.

    >>> _duration(0.04), _duration(400), _duration(1.44e6)
    ('0.04 s', '6.7 min', '400.0 h')
    """
    if seconds < 60:
        return f"{seconds:.2g} s"
    return f"{seconds / 60:.1f} min" if seconds < 3600 else f"{seconds / 3600:.1f} h"


def plan(
    files: Sequence[str | os.PathLike[str]],
    *,
    target_dimension: int,
    out: str | os.PathLike[str] = ".",
    documents_per_second: float = 100.0,
    vector_column: str | None = None,
) -> Plan:
    """Estimate a corpus-side migration without writing anything.

    Parameters
    ----------
    files : sequence of paths
        The old encoder's vectors.
    target_dimension : int
        Columns of the converted vectors: the new encoder's, or the shared space's.
    out : path
        Where they would go.
    documents_per_second : float
        How fast the new encoder embeds, for comparison.
    vector_column : str, optional

    Returns
    -------
    Plan
    """
    columns = _checks.integer("target_dimension", target_dimension, low=1)
    rate = _checks.number("documents_per_second", documents_per_second, low=0, open_low=True)
    opened: list[Any] = [
        open_vectors(file, vector_column=vector_column) for file in _checks.sequence("files", files)
    ]
    if not opened:
        raise _checks.InvalidInput("files is empty; needs at least one file of vectors.")
    dimensions = {file.dimension for file in opened}
    if len(dimensions) > 1:
        raise _checks.InvalidInput(f"files have {sorted(dimensions)} columns; needs files of one encoder.")
    d = dimensions.pop()
    rows = sum(file.rows for file in opened)
    x, w = np.ones((_PROBE_ROWS, d), np.float32), np.ones((d, columns), np.float32)
    _ = x @ w  # the first product also starts the threads
    started = time.process_time()
    _ = x @ w
    seconds = (time.process_time() - started) * rows / _PROBE_ROWS
    place = _checks.path("out", out).resolve()
    while not place.exists():
        place = place.parent
    return Plan(
        files=len(opened),
        rows=rows,
        dimension=d,
        target_dimension=columns,
        bytes_read=sum(file.path.stat().st_size for file in opened),
        bytes_written=rows * (4 * columns + 16),
        bytes_free=shutil.disk_usage(place).free,
        product_seconds=seconds,
        embed_hours=rows / rate / 3600,
    )
