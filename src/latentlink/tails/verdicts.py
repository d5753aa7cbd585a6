"""Exact tests on tails: bounded or heavy, and compared with what a normal law would show.

Greenwood's ratio G = mean y² / (mean y)² of k excesses has under an exponential tail a law that depends on k
alone, so its exact p-values come from one simulated table a k. A bounded tail has small G, a heavy one large G.
Normal similarities look bounded at any finite k too; a verdict therefore carries the share that a normal law of
as many candidates would show.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from latentlink import _checks
from latentlink._arrays import Array, like, namespace, to_numpy
from latentlink._metrics import Interval, proportion_interval
from latentlink.tails._nulls import exponential_null, lower_p, normal_null, upper_p
from latentlink.tails.sample import Tail, known_tail

FloatArray = np.ndarray[Any, np.dtype[np.float64]]


class Shares(NamedTuple):
    """Shares of queries by verdict."""

    bounded: float
    heavy: float
    undecided: float


@dataclass(frozen=True, eq=False)
class Verdict:
    """Say which queries have a bounded, and which a heavy tail.

    Attributes
    ----------
    n_queries : int
        Queries with a test.
    bounded, heavy, undecided : int
        Counts: the exponential tail is rejected towards either side, or not at all.
    untested : int
        Queries with fewer than two exceedances or without spread.
    level : float
        Two-sided level of each query's test.
    statistic : array (n,)
        Greenwood's ratio.
    p_bounded, p_heavy : array (n,)
        Exact one-sided p-values against an exponential tail; NaN where untested.
    p_beyond_normal : array (n,)
        Exact one-sided p-value of being more bounded than the tail of a normal law of as many candidates.
    normal : Shares
        What the same test calls the queries when similarities are normal: the reference to beat.
    bounded_interval : Interval
        Of the share of bounded queries (Wilson, 95 %), taking queries as independent.
    discoveries : int
        Bounded queries that stay so when the false discovery rate over queries is held at `level`.
    n_candidates : int
        Candidates of a tested query (the median), on which the normal reference depends.
    """

    n_queries: int
    bounded: int
    heavy: int
    undecided: int
    untested: int
    level: float
    statistic: FloatArray
    p_bounded: FloatArray
    p_heavy: FloatArray
    p_beyond_normal: FloatArray
    normal: Shares
    bounded_interval: Interval
    discoveries: int
    n_candidates: int

    @property
    def shares(self) -> Shares:
        """Shares of the tested queries."""
        n = max(self.n_queries, 1)
        return Shares(self.bounded / n, self.heavy / n, self.undecided / n)

    @property
    def call(self) -> str:
        """One word for all queries: "bounded", "heavy" or "undecided".

        "bounded" when the whole interval of the bounded share lies above the normal reference; "heavy" when
        more queries are heavy than the level allows and than are bounded.
        """
        if self.bounded_interval.low > max(self.normal.bounded, self.level / 2):
            return "bounded"
        if self.n_queries and self.shares.heavy > max(self.level, self.normal.heavy, self.shares.bounded):
            return "heavy"
        return "undecided"


def judge(tail: Tail, *, level: float = 0.1) -> Verdict:
    """Test each query's tail: bounded, heavy, or neither.

    Parameters
    ----------
    tail : Tail
        With at least two exceedances in some row.
    level : float
        Two-sided level of each query's test, in (0, 1).

    Returns
    -------
    Verdict

    Notes
    -----
    The test is exact for independent similarities with an exponential tail; 64 exceedances cannot tell xi >
    −0.1 from 0 (power 0.16), they can tell −0.39 (0.85). Cost: one pass, and one simulated table for each k and
    number of candidates, of at most 20 million numbers.

    References
    ----------
    Greenwood 1946, J. R. Statist. Soc. 109; Hasofer and Wang 1992, J. Amer. Statist. Assoc. 87.

    Examples
    --------
    >>> from latentlink import take_tail
    >>> rng = np.random.default_rng(0)
    >>> s = 1 - rng.uniform(size=(200, 1000))  # the tail of a uniform law ends at 1 with xi = -1
    >>> judge(take_tail(similarities=s, duplicate_gap=0)).call
    'bounded'
    """
    known_tail(tail)
    level = _checks.number("level", level, low=0, high=1, open_low=True)
    statistic = to_numpy(greenwood(tail.excesses, tail.counts)).astype(np.float64)
    p_bounded, p_heavy, p_normal = (np.full(statistic.shape, np.nan) for _ in range(3))
    reference = np.zeros(3)
    tested = np.isfinite(statistic) & (tail.counts >= 2)
    # Tables differ by k and by candidates; the latter matter little, so they are rounded to a power of two.
    sizes = 2 ** np.round(np.log2(np.maximum(tail.n_candidates, 1))).astype(np.int64)
    for k, m in sorted(set(zip(tail.counts[tested].tolist(), sizes[tested].tolist(), strict=True))):
        rows = tested & (tail.counts == k) & (sizes == m)
        null = exponential_null(k)
        p_bounded[rows] = lower_p(null, statistic[rows])
        p_heavy[rows] = upper_p(null, statistic[rows])
        normal = normal_null(k, max(m, k + 1))
        p_normal[rows] = lower_p(normal, statistic[rows])
        reference += rows.sum() * np.asarray(
            [(lower_p(null, normal) <= level / 2).mean(), (upper_p(null, normal) <= level / 2).mean(), 0.0]
        )
    n = int(tested.sum())
    bounded, heavy = p_bounded <= level / 2, p_heavy <= level / 2
    reference /= max(n, 1)
    return Verdict(
        n_queries=n,
        bounded=int(bounded.sum()),
        heavy=int(heavy.sum()),
        undecided=n - int(bounded.sum()) - int(heavy.sum()),
        untested=int(tail.n_queries - n),
        level=level,
        statistic=statistic,
        p_bounded=p_bounded,
        p_heavy=p_heavy,
        p_beyond_normal=p_normal,
        normal=Shares(float(reference[0]), float(reference[1]), float(1 - reference[0] - reference[1])),
        bounded_interval=proportion_interval(bounded[tested]) if n else Interval(0.0, 1.0),
        discoveries=false_discovery(p_bounded[tested], level),
        n_candidates=int(np.median(tail.n_candidates[tested])) if n else 0,
    )


class EndpointTest(NamedTuple):
    """Exact test of the endpoint, one value a query: small `p_below` says that the tail ends before it."""

    statistic: FloatArray
    p_below: FloatArray
    p_above: FloatArray
    rejected: int
    discoveries: int


def endpoint_test(tail: Tail, *, level: float = 0.05) -> EndpointTest:
    """Test whether each tail ends at its endpoint, whatever its exponent.

    Parameters
    ----------
    tail : Tail
        With an endpoint.
    level : float
        One-sided, of each query's test.

    Returns
    -------
    EndpointTest
        `p_below` is small where the tail ends below the endpoint, `p_above` where it would go beyond it (or
        piles up at it); `rejected` and `discoveries` count small `p_below`, the latter at a false discovery
        rate `level`.

    Notes
    -----
    If the tail ends there, log(reach / shortfall) is exponential for every beta, so Greenwood's ratio of it has
    the same exact null as in `judge`. 64 exceedances cannot see an end at 0.95; 1024 can.

    Examples
    --------
    >>> from latentlink import take_tail
    >>> s = 0.6 - 0.6 * np.random.default_rng(0).uniform(size=(200, 500)) ** 0.4
    >>> endpoint_test(take_tail(similarities=s)).rejected > 80
    True
    """
    known_tail(tail)
    level = _checks.number("level", level, low=0, high=1, open_low=True)
    if tail.endpoint is None:
        raise _checks.InvalidInput("tail has no endpoint; give take_tail the one to test.")
    values = np.asarray(to_numpy(tail.values), dtype=np.float64)
    reach = tail.endpoint - np.asarray(to_numpy(tail.threshold), dtype=np.float64)[:, None]
    floor = float(np.finfo(to_numpy(tail.values).dtype).eps)
    with np.errstate(divide="ignore", invalid="ignore"):
        statistic = greenwood(np.log(reach / np.clip(tail.endpoint - values, floor, None)), tail.counts)
    p_below, p_above = np.full(statistic.shape, np.nan), np.full(statistic.shape, np.nan)
    tested = np.isfinite(statistic) & (tail.counts >= 2)
    for k in np.unique(tail.counts[tested]).tolist():
        rows = tested & (tail.counts == k)
        null = exponential_null(k)
        p_below[rows], p_above[rows] = lower_p(null, statistic[rows]), upper_p(null, statistic[rows])
    return EndpointTest(
        statistic, p_below, p_above, int((p_below <= level).sum()), false_discovery(p_below[tested], level)
    )


def greenwood(excesses: Array, counts: Any) -> Array:
    """Compute Greenwood's ratio mean y² / (mean y)² of excesses (n, k), NaN-padded: (n,).

    1 for equal excesses, 2 on average over many exponential ones; NaN without positive excesses.
    """
    xp = namespace(excesses)
    y = xp.astype(excesses, xp.float64)
    largest = y[:, :1]
    y = xp.where(
        xp.isnan(y) | (largest <= 0), xp.zeros_like(y), y / xp.where(largest > 0, largest, largest * np.nan)
    )
    total = xp.sum(y, axis=1)
    count = np.asarray(counts, dtype=np.float64)
    squares = xp.sum(y * y, axis=1)
    total = xp.where(total > 0, total, total * np.nan)
    return like(count, total) * squares / (total * total)


def false_discovery(p: FloatArray, rate: float) -> int:
    """Count the p-values that stay significant at a false discovery rate (Benjamini and Hochberg 1995).

    >>> false_discovery(np.array([0.001, 0.02, 0.9]), 0.05)
    2
    """
    ordered = np.sort(p)
    passing = np.flatnonzero(ordered <= rate * np.arange(1, ordered.size + 1) / max(ordered.size, 1))
    return int(passing[-1]) + 1 if passing.size else 0
