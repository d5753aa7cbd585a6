"""Test whether the fitted law fits, and choose how deep a tail may reach."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from latentlink import _checks
from latentlink._arrays import to_numpy
from latentlink.tails._nulls import upper_p
from latentlink.tails.pareto import TailFit, fit_tail
from latentlink.tails.sample import Tail, known_tail

FloatArray = np.ndarray[Any, np.dtype[np.float64]]

# Shapes at which null laws are drawn; between two of them p-values are interpolated.
_SHAPES = np.round(np.arange(-0.95, 0.76, 0.1), 2)
_EXCEEDANCES = 2_000_000


class Goodness(NamedTuple):
    """Statistics of fit and their p-values, (n,) each; small p-values say that the law does not fit."""

    anderson_darling: FloatArray
    cramer_von_mises: FloatArray
    p_anderson_darling: FloatArray
    p_cramer_von_mises: FloatArray


@dataclass(frozen=True, eq=False)
class ThresholdChoice:
    """Hold the deepest tail that the law still fits.

    Attributes
    ----------
    sizes : int array (c,)
        Tail sizes tried, the deepest (lowest threshold) first.
    p : array (c,)
        Of fit at each size.
    forward_stop : array (c,)
        Running mean of −log(1 − p); sizes up to the last one at most `level` are rejected.
    size : int
        Deepest size not rejected; the smallest tried when all are.
    all_rejected : bool
    level : float
    """

    sizes: np.ndarray[Any, np.dtype[np.int64]]
    p: FloatArray
    forward_stop: FloatArray
    size: int
    all_rejected: bool
    level: float


def goodness(fit: TailFit, *, seed: int = 0) -> Goodness:
    """Test each row's fitted law by Anderson and Darling's and by Cramér and von Mises' statistic.

    Parameters
    ----------
    fit : TailFit
    seed : int
        Of the simulated null laws.

    Returns
    -------
    Goodness

    Notes
    -----
    Null laws are drawn with the same estimator refitted to each draw, at a grid of shapes for each k
    (parametric bootstrap); plain tables for known parameters would hardly ever reject. Ties (rounded
    similarities) inflate the statistics.

    Examples
    --------
    >>> y = np.random.default_rng(0).uniform(size=(3, 64)) ** 2
    >>> bool((goodness(fit_tail(Tail.of(y, np.zeros(3)), "zhang_stephens")).p_anderson_darling < 0.05).all())
    True
    """
    _checks.instance("fit", fit, TailFit, "a TailFit, as fit_tail makes it")
    seed = _checks.integer("seed", seed)
    excesses = np.asarray(to_numpy(fit.tail.excesses), dtype=np.float64)
    xi, sigma = (np.asarray(to_numpy(x), dtype=np.float64) for x in (fit.xi, fit.sigma))
    counts = np.where(np.isfinite(xi), fit.tail.counts, 0)
    results = np.full((4, xi.size), np.nan)
    for k in np.unique(counts[counts >= 2]).tolist():
        rows = counts == k
        results[:2, rows] = _distances(excesses[rows, :k], xi[rows], sigma[rows])
        place = np.clip((xi[rows] - _SHAPES[0]) / 0.1, 0, _SHAPES.size - 1)
        left = np.minimum(np.floor(place).astype(int), _SHAPES.size - 2)
        share = place - left
        for at in np.unique(left).tolist():
            here = np.flatnonzero(rows)[left == at]
            tables = [_null(k, float(_SHAPES[at + side]), fit.estimator, seed) for side in (0, 1)]
            for which in (0, 1):
                low, high = (upper_p(table[which], results[which, here]) for table in tables)
                results[2 + which, here] = low + share[left == at] * (high - low)
    return Goodness(*results)


def forward_stop(p: Any) -> FloatArray:
    """Compute ForwardStop's running mean of −log(1 − p), hypotheses in the order given, the lowest threshold first.

    With level alpha the hypotheses up to the last value <= alpha are rejected (G'Sell et al. 2016; Bader, Yan
    and Zhang 2018).

    >>> forward_stop([0.001, 0.01, 0.2]).round(6)
    array([0.001001, 0.005525, 0.078065])
    """
    values = _checks.real("p", p)
    if ((values < 0) | (values > 1)).any():
        raise _checks.InvalidInput("p holds numbers outside [0, 1]; needs p-values.")
    with np.errstate(divide="ignore"):
        return np.asarray(np.cumsum(-np.log1p(-values)) / np.arange(1, values.size + 1))


def choose_threshold(
    tail: Tail, *, sizes: Any = None, estimator: str = "zhang_stephens", level: float = 0.05, seed: int = 0
) -> ThresholdChoice:
    """Choose the deepest tail that a generalised Pareto law fits, by ForwardStop over Anderson–Darling tests.

    Parameters
    ----------
    tail : Tail
        The deepest to consider; smaller ones are its tops.
    sizes : int array, optional
        Tail sizes to try; a geometric grid of eight from `tail.tail_size` − 1 down to 16 by default.
    estimator : {"zhang_stephens", "endpoint", "ml", "pwm"}
    level : float
    seed : int

    Returns
    -------
    ThresholdChoice

    Notes
    -----
    The p-values of several rows are combined by Cauchy's combination, which holds under dependence (Liu and Xie
    2020). On pooled pairs the tests take pairs as independent and reject too often where points share many
    pairs.
    """
    known_tail(tail)
    least = int(tail.counts[tail.counts > 0].min(initial=tail.tail_size))
    if sizes is None:
        high = max(least - 1, 17)
        sizes = np.unique(np.round(np.geomspace(16, high, 8)).astype(int))
    level = _checks.number("level", level, low=0, high=1)
    if not np.size(sizes):
        raise _checks.InvalidInput("sizes is empty; needs at least one tail size.")
    tried = np.unique([_checks.integer("sizes", k, low=1) for k in np.atleast_1d(sizes)])[::-1]
    if tried[-1] < 8 or tried[0] >= least:
        raise _checks.InvalidInput(
            f"sizes go from {tried[-1]} to {tried[0]} but the tail has {least} exceedances; "
            f"needs sizes from 8 to {least - 1}. Take a deeper tail."
        )
    p = np.asarray([_combined(goodness(fit_tail(tail.top(int(k)), estimator), seed=seed)[2]) for k in tried])
    running = forward_stop(p)
    passing = np.flatnonzero(running <= level)
    first = int(passing[-1]) + 1 if passing.size else 0
    return ThresholdChoice(
        sizes=tried,
        p=p,
        forward_stop=running,
        size=int(tried[min(first, tried.size - 1)]),
        all_rejected=first >= tried.size,
        level=level,
    )


def _combined(p: FloatArray) -> float:
    known = np.clip(p[np.isfinite(p)], 1e-12, 1 - 1e-12)
    if known.size == 0:
        return float("nan")
    return float(0.5 - np.arctan(np.tan((0.5 - known) * np.pi).mean()) / np.pi)


def _distances(y: FloatArray, xi: FloatArray, sigma: FloatArray) -> FloatArray:
    """Compute both statistics of excesses (n, k), the largest first: (2, n)."""
    k = y.shape[1]
    small = np.abs(xi) < 1e-9
    safe = np.where(small, 1.0, xi)
    base = np.maximum(1.0 + (xi / sigma)[:, None] * y, 1e-300)
    log_tail = np.where(small[:, None], -y / sigma[:, None], -np.log(base) / safe[:, None])
    log_tail = np.clip(log_tail, -700.0, -1e-15)[:, ::-1]  # (n, k) log of 1 − F, the smallest excess first
    f = -np.expm1(log_tail)
    odd = 2 * np.arange(1, k + 1) - 1
    with np.errstate(divide="ignore"):
        anderson = -k - ((np.log(f) + log_tail[:, ::-1]) * odd).sum(axis=1) / k
    cramer = 1 / (12 * k) + ((f - odd / (2 * k)) ** 2).sum(axis=1)
    return np.stack([anderson, cramer])


@lru_cache(maxsize=512)
def _null(k: int, xi: float, estimator: str, seed: int) -> FloatArray:
    """Draw the sorted null laws of both statistics: (2, draws)."""
    n = int(np.clip(_EXCEEDANCES // k, 200, 4000))
    rng = np.random.default_rng([seed, k, round(100 * xi) + 1000])
    y = -np.sort(-np.expm1(-xi * np.log(rng.random((n, k)))) / xi, axis=1)
    # With the endpoint held, the null has its endpoint where the draws have theirs.
    held = -1.0 / xi if estimator == "endpoint" and xi < 0 else None
    if estimator == "endpoint" and held is None:
        return np.full((2, 1), np.nan)
    fit = fit_tail(Tail.of(y, np.zeros(n), endpoint=held), estimator)
    return np.sort(_distances(y, np.asarray(fit.xi), np.asarray(fit.sigma)), axis=1)
