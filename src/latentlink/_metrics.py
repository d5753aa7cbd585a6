"""Ranks and retrieval metrics from order alone, with bootstrap intervals over queries.

Only comparisons of similarities enter, so negative similarities are as good as positive ones. A tie counts
against the search: among equal similarities the relevant item is taken as last.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from latentlink import _checks

FloatArray = np.ndarray[Any, np.dtype[np.float64]]
IntArray = np.ndarray[Any, np.dtype[np.int64]]


class Interval(NamedTuple):
    """A closed interval."""

    low: float
    high: float


def ranks(similarities: Any, relevant: Any) -> IntArray:
    """Return the rank (from 1) of each query's relevant item.

    Parameters
    ----------
    similarities : array (n, m)
        Of each query to each item.
    relevant : int array (n,)
        The column of the one relevant item of each query.

    Returns
    -------
    int array (n,)
        1 + the number of other items at least as similar.

    Examples
    --------
    >>> ranks(np.array([[-0.1, -0.5], [0.2, 0.2]]), np.array([0, 0]))
    array([1, 2])
    """
    scores = _checks.matrix("similarities", similarities)
    columns = np.asarray(relevant)
    own = scores[np.arange(scores.shape[0]), columns]  # (n,)
    return np.asarray((scores >= own[:, None]).sum(axis=1), dtype=np.int64)


def paired_ranks(queries: Any, corpus: Any, *, block_rows: int = 1024) -> IntArray:
    """Return the rank of corpus row i for query i by inner product, in blocks of queries.

    Parameters
    ----------
    queries, corpus : array (n, d)
        Row i of one belongs to row i of the other; normalise for cosine.

    Returns
    -------
    int array (n,)
    """
    parts = []
    for start in range(0, queries.shape[0], block_rows):
        block = queries[start : start + block_rows] @ corpus.T  # (b, n)
        parts.append(ranks(block, np.arange(start, start + block.shape[0])))
    return np.concatenate(parts)


def recall_at(rank: Any, k: int) -> FloatArray:
    """Return, per query, 1.0 where the relevant item is among the first k.

    >>> recall_at(np.array([1, 3, 11]), 10)
    array([1., 1., 0.])
    """
    return np.asarray(np.asarray(rank) <= k, dtype=np.float64)


def reciprocal_rank(rank: Any) -> FloatArray:
    """Return, per query, 1 / rank; the mean is MRR.

    >>> reciprocal_rank(np.array([1, 4]))
    array([1.  , 0.25])
    """
    return 1.0 / np.asarray(rank, dtype=np.float64)


def ndcg_at(gains: Any, k: int) -> FloatArray:
    """Return, per query, nDCG at k from gains in the order of the search.

    Parameters
    ----------
    gains : array (n, m)
        Gain of the item at each place of each ranking, all relevant items among the m; a row without any gain
        has no ideal order and is NaN.
    k : int

    Returns
    -------
    array (n,)
        In [0, 1].

    Examples
    --------
    >>> ndcg_at(np.array([[0.0, 1.0, 0.0]]), 10).round(4)
    array([0.6309])
    """
    g = np.asarray(gains, dtype=np.float64)
    discount = 1.0 / np.log2(np.arange(2, min(k, g.shape[1]) + 2))  # (k,)
    found = g[:, : discount.size] @ discount
    ideal = -np.sort(-g, axis=1)[:, : discount.size] @ discount
    with np.errstate(invalid="ignore"):
        return np.asarray(found / np.where(ideal > 0, ideal, np.nan))


def bootstrap_interval(
    values: Any,
    *,
    level: float = 0.95,
    n_resamples: int = 2000,
    seed: int = 0,
    statistic: Callable[[FloatArray], Any] | None = None,
) -> Interval:
    """Return the percentile bootstrap interval of the mean (or another statistic) of values of queries.

    Parameters
    ----------
    values : array (n,) or (n, p)
        One row for each independent query.
    level : float
        In (0, 1).
    statistic : callable, optional
        Maps resampled values (n,) or (n, p) to a number; the mean when left out, which is then computed for
        all resamples by one product.

    Examples
    --------
    >>> bootstrap_interval(np.ones(10))
    Interval(low=1.0, high=1.0)
    """
    x = np.asarray(values, dtype=np.float64)
    rng = np.random.default_rng(seed)
    n = x.shape[0]
    if statistic is None:
        counts = rng.multinomial(n, np.full(n, 1.0 / n), size=n_resamples)  # (r, n)
        draws = counts @ x / n
    else:
        draws = np.asarray([statistic(x[rng.integers(0, n, n)]) for _ in range(n_resamples)])
    low, high = np.quantile(draws, [(1 - level) / 2, (1 + level) / 2])
    return Interval(float(low), float(high))


def proportion_interval(hits: Any, *, level: float = 0.95) -> Interval:
    """Return Wilson's interval of a proportion, right also at 0 and 1.

    Parameters
    ----------
    hits : array (n,) of 0 and 1
    level : float

    References
    ----------
    Wilson 1927, J. Amer. Statist. Assoc. 22.

    Examples
    --------
    >>> low, high = proportion_interval(np.zeros(100))
    >>> round(low, 4), round(high, 4)
    (0.0, 0.037)
    """
    from statistics import NormalDist

    x = np.asarray(hits, dtype=np.float64)
    n, p = x.size, float(x.mean())
    z = NormalDist().inv_cdf((1 + level) / 2)
    centre = (p + z * z / (2 * n)) / (1 + z * z / n)
    half = z * float(np.sqrt(p * (1 - p) / n + z * z / (4 * n * n))) / (1 + z * z / n)
    return Interval(
        max(0.0, min(p, centre - half)), min(1.0, max(p, centre + half))
    )  # p itself, rounding aside
