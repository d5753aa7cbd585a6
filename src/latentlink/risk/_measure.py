"""From vectors to the statistics of every query, in blocks: the pool is never compared as a whole.

A block holds all candidates of a few queries, so every statistic of a row is exact in one place. A pool that is
a memory map stays on disk: only its norms, one block of logits and one chunk of rows are in memory.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from latentlink import _checks
from latentlink._arrays import to_numpy
from latentlink._progress import track
from latentlink.links import Link
from latentlink.risk.estimators import FloatArray, RowStatistics, row_statistics

# Logits in one block; the statistics hold about five arrays of this size, in float64.
_BLOCK_VALUES = 16_000_000
_CHUNK_ROWS = 8192


@dataclass(frozen=True)
class Vectors:
    """Rows as given, with their norms: cosine similarity without a normalised copy."""

    name: str
    rows: Any
    norms: FloatArray
    kept: np.ndarray[Any, np.dtype[np.int64]] | None = None

    @classmethod
    def of(cls, name: str, value: Any) -> Vectors:
        """Check the rows chunk by chunk and take their norms."""
        rows = to_numpy(value)
        if rows.dtype != np.float16:  # half precision is cast a chunk at a time, never as a whole
            rows = _checks.matrix(name, rows, finite=False)
        elif rows.ndim != 2:
            _checks.matrix(name, rows[:1], finite=False)
        norms = np.empty(rows.shape[0])
        for start in range(0, rows.shape[0], _CHUNK_ROWS):
            chunk = np.asarray(rows[start : start + _CHUNK_ROWS], dtype=np.float64)
            largest = np.abs(chunk).max(axis=1)
            safe = np.where((largest > 0) & np.isfinite(largest), largest, 1.0)
            with np.errstate(invalid="ignore"):
                norms[start : start + _CHUNK_ROWS] = safe * np.sqrt(((chunk / safe[:, None]) ** 2).sum(axis=1))
        _checks.finite_rows(name, norms[:, None])
        _checks.nonzero_rows(name, norms, skippable=False)
        return cls(name, rows, norms)

    @property
    def n(self) -> int:
        """Number of rows."""
        return int(self.norms.shape[0])

    def without(self, left_out: np.ndarray[Any, np.dtype[np.bool_]]) -> Vectors:
        """Leave rows out, without a copy of the others."""
        kept = np.flatnonzero(~left_out)
        return Vectors(self.name, self.rows, self.norms[kept], kept)

    def chunk(self, rows: slice) -> Any:
        """Return some rows as float32 or float64, not normalised."""
        part = self.rows[rows] if self.kept is None else self.rows[self.kept[rows]]
        return np.asarray(part, dtype=np.float32 if part.dtype == np.float16 else part.dtype)

    def unit(self, rows: slice = slice(None)) -> Any:
        """Return some rows divided by their norms."""
        part = self.chunk(rows)
        return part / self.norms[rows, None].astype(part.dtype)


@dataclass(frozen=True)
class Measured:
    """The statistics of every query and the rank of its positive among its candidates."""

    rows: RowStatistics
    ranks: np.ndarray[Any, np.dtype[np.int64]]


def check_pairs(queries: Any, positives: Any) -> tuple[Vectors, Vectors]:
    """Check the two sides of the pairs against each other."""
    q, p = Vectors.of("queries", queries), Vectors.of("positives", positives)
    _checks.same_rows(queries=q.rows, positives=p.rows)
    _checks.same_columns(queries=q.rows, positives=p.rows)
    return q, p


def positive_similarities(queries: Vectors, positives: Vectors) -> FloatArray:
    """Compute the cosine similarity of each pair (n,)."""
    return np.asarray(np.einsum("nd,nd->n", queries.unit(), positives.unit()), dtype=np.float64)


def similarity_blocks(
    queries: Vectors, pool: Vectors, *, show: bool = True
) -> Iterator[tuple[slice, FloatArray]]:
    """Yield the cosine similarities (b, N) of a few queries at a time to the whole pool, in float64."""
    rows = max(1, _BLOCK_VALUES // pool.n)
    starts = range(0, queries.n, rows)
    for start in track(starts, total=len(starts), what="queries against the pool", show=show):
        span = slice(start, min(start + rows, queries.n))
        unit = queries.unit(span)
        block = np.empty((unit.shape[0], pool.n))
        for first in range(0, pool.n, _CHUNK_ROWS):
            columns = slice(first, first + _CHUNK_ROWS)
            block[:, columns] = unit @ pool.chunk(columns).T
            block[:, columns] /= pool.norms[columns]
        yield span, block


def against_pool(
    queries: Vectors,
    positives: Vectors,
    pool: Vectors,
    link: Link,
    *,
    groups: Any = None,
    show: bool = True,
) -> Measured:
    """Measure pairs against one pool shared by all queries."""
    own = positive_similarities(queries, positives)
    positive_logits = np.asarray(link.logits(own))
    slack = _rounding(queries, positives, pool)
    parts, ranks = [], []
    for span, block in similarity_blocks(queries, pool, show=show):
        ranks.append(1 + (block >= own[span, None] - slack).sum(axis=1))
        logits = np.asarray(link.logits(block))
        parts.append(row_statistics(positive_logits[span], logits, groups=groups))
    return Measured(RowStatistics.joined(parts), np.concatenate(ranks))


def against_own(
    queries: Vectors, positives: Vectors, negatives: Any, link: Link, *, groups: Any = None, show: bool = True
) -> Measured:
    """Measure pairs against negatives (n, k, d) that each query has for itself."""
    shape = np.shape(negatives)
    if len(shape) != 3 or shape[0] != queries.n or shape[2] != queries.rows.shape[1]:
        raise _checks.InvalidInput(
            f"pool has shape {shape}; design 'iid' needs ({queries.n}, k, {queries.rows.shape[1]}), "
            "fresh negatives for each query."
        )
    k = shape[1]
    flat = Vectors.of("pool", to_numpy(negatives).reshape(-1, shape[2]))
    own = positive_similarities(queries, positives)
    positive_logits = np.asarray(link.logits(own))
    slack = _rounding(queries, positives, flat)
    parts, ranks = [], []
    step = max(1, min(_BLOCK_VALUES // k, _BLOCK_VALUES // (k * shape[2]) + 1))
    starts = range(0, queries.n, step)
    for start in track(starts, total=len(starts), what="queries against their negatives", show=show):
        span = slice(start, min(start + step, queries.n))
        unit = queries.unit(span)
        near = flat.unit(slice(span.start * k, span.stop * k)).reshape(-1, k, shape[2])  # (b, k, d)
        block = np.einsum("nd,nkd->nk", unit, near).astype(np.float64)
        ranks.append(1 + (block >= own[span, None] - slack).sum(axis=1))
        parts.append(row_statistics(positive_logits[span], np.asarray(link.logits(block)), groups=groups))
    return Measured(RowStatistics.joined(parts), np.concatenate(ranks))


def within_batch(
    queries: Vectors, positives: Vectors, link: Link, *, negatives: str, show: bool = False
) -> Measured:
    """Measure pairs against each other: the other positives, the other queries, or both views of the others."""
    own = positive_similarities(queries, positives)
    positive_logits = np.asarray(link.logits(own))
    slack = _rounding(queries, positives)
    sides = {"positives": [positives], "queries": [queries], "both": [queries, positives]}[negatives]
    parts, ranks = [], []
    for blocks in zip(*(similarity_blocks(queries, side, show=show) for side in sides), strict=True):
        span = blocks[0][0]
        diagonal = (np.arange(span.stop - span.start), np.arange(span.start, span.stop))
        logits, closer = None, np.ones(span.stop - span.start, dtype=np.int64)
        for _, block in blocks:
            view = np.array(link.logits(block))
            view[diagonal] = -np.inf
            block[diagonal] = -np.inf
            closer += (block >= own[span, None] - slack).sum(axis=1)
            # The two views of an instance share its weight evenly: an instance counts once.
            logits = view if logits is None else np.logaddexp(logits, view) - np.log(2)
        ranks.append(closer)
        parts.append(row_statistics(positive_logits[span], logits, n_negatives=queries.n - 1))
    return Measured(RowStatistics.joined(parts), np.concatenate(ranks))


def _rounding(*vectors: Vectors) -> float:
    """Similarities this close are a tie: the same vector compared by two products."""
    coarse = any(v.rows.dtype != np.float64 for v in vectors)
    return 1e-6 if coarse else 1e-12
