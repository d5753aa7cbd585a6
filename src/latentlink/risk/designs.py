"""Where negatives come from, and the standard error of the mean estimate that follows from it."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from latentlink import _checks
from latentlink.links import Link
from latentlink.risk._measure import Measured, Vectors, within_batch
from latentlink.risk.estimators import FloatArray, RowStatistics

DESIGNS = ("pool", "iid", "in_batch", "batches")


def in_batches(q: Vectors, p: Vectors, link: Link, size: int, negatives: str) -> Measured:
    """Measure the pairs of consecutive batches, each within itself."""
    size = _checks.integer("batch_size", size, low=3)
    if q.n % size or q.n < 2 * size:
        raise _checks.InvalidInput(
            f"batch_size is {size} with {q.n} pairs; needs at least two whole batches. Drop the last rows."
        )
    parts = []
    for start in range(0, q.n, size):
        others = np.ones(q.n, dtype=bool)
        others[start : start + size] = False
        parts.append(within_batch(q.without(others), p.without(others), link, negatives=negatives))
    ranks = np.concatenate([part.ranks for part in parts])
    return Measured(RowStatistics.joined([part.rows for part in parts]), ranks)


class Errors(NamedTuple):
    """The standard error of the mean, its two parts, and what each candidate draws."""

    total: float
    query: float
    pool: float
    mass: FloatArray
    hubness: float
    degrees: int | None


def standard_errors(rows: RowStatistics, design: str, batch_size: int | None) -> Errors:
    """Compute the standard error that the design of the negatives demands."""
    jack, n = rows.jackknife, rows.low.size
    naive = float(jack.std(ddof=1)) / math.sqrt(n)
    if design == "iid":
        return Errors(naive, naive, 0.0, np.empty(0), math.nan, None)
    if batch_size is not None:
        means = jack.reshape(-1, batch_size).mean(axis=1)
        total = float(means.std(ddof=1)) / math.sqrt(means.size)
        return Errors(total, total, 0.0, np.empty(0), math.nan, means.size - 1)
    mass = rows.mass * (rows.mass.size / n)
    pool = float(mass.std(ddof=1)) / math.sqrt(mass.size)
    # Weights of n queries are a noisy picture of a candidate: V/n of the spread is that noise.
    hubness = max(0.0, float(mass.var(ddof=1) - rows.variance.mean() / n))
    if design == "in_batch":
        # The same item is a query and a candidate: its two influences are added before their spread is taken.
        total = float((jack + mass).std(ddof=1)) / math.sqrt(n)
        return Errors(total, naive, pool, mass, hubness, None)
    return Errors(math.hypot(naive, pool), naive, pool, mass, hubness, None)
