"""Intervals of the shape: exact, total-variance, profile, bootstrap; pooled pairs count as dependent."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from latentlink import _checks
from latentlink._arrays import Array, like, to_numpy
from latentlink.tails import _profile, estimators
from latentlink.tails.sample import Tail

if TYPE_CHECKING:
    from latentlink.tails.pareto import TailFit

FloatArray = np.ndarray[Any, np.dtype[np.float64]]

# The method each estimator uses when none is named.
METHODS = {"endpoint": "chi2", "zhang_stephens": "total_variance", "ml": "profile", "pwm": "bootstrap"}


def interval(
    fit: TailFit, level: float, method: str | None, n_resamples: int, seed: int
) -> tuple[Array, Array]:
    """Compute an interval of xi for each row of a fit; see `TailFit.interval`."""
    from scipy import stats

    level = _checks.number("level", level, low=0, high=1)
    allowed = sorted({METHODS[fit.estimator], "bootstrap"} | ({"wald"} if fit.estimator == "ml" else set()))
    method = METHODS[fit.estimator] if method is None else _checks.one_of("method", method, allowed)
    outside = (1 - level) / 2
    z = float(stats.norm.ppf(1 - outside))
    effect = design_effect(fit)
    if method == "chi2":
        effective = np.maximum(fit.tail.counts, 1) / effect
        twice = 2.0 * effective * to_numpy(fit.xi)
        low = twice / stats.chi2.ppf(outside, 2.0 * effective)
        high = twice / stats.chi2.ppf(1 - outside, 2.0 * effective)
        return like(low, fit.xi), like(high, fit.xi)
    if method in ("total_variance", "wald"):
        half = fit.standard_error * (z * effect**0.5)
        return fit.xi - half, fit.xi + half
    if method == "profile":
        e = estimators.prepare(fit.tail.excesses, like(fit.tail.counts, fit.xi))
        fitted = estimators.Fitted(fit.xi, fit.sigma / e.largest, fit.xi, fit.edge)
        return _profile.profile_interval(fitted, e, effect * z * z / 2)
    return _bootstrap(fit, outside, n_resamples, seed)


def design_effect(fit: TailFit) -> float:
    """Estimate by how much the dependence of pooled pairs multiplies the variance of the shape; at least 1.

    Pairs that share a point are dependent. With e = log(1 + xi y / sigma) of each pair, centred, the variance
    of their sum is the sum over points of (sum of e at that point)², less the sum of e² that this counts twice.
    It is 1 for the rows of a tail of queries, whose exceedances belong to one query each.

    References
    ----------
    Fafchamps and Gubert 2007; Cameron, Gelbach and Miller 2011 (standard errors of dyads and of two-way
    clusters).
    """
    owners = fit.tail.owners
    if owners is None:
        return 1.0
    theta = -to_numpy(fit.xi)[0] / to_numpy(fit.sigma)[0]
    e = np.log1p(-theta * np.asarray(to_numpy(fit.tail.excesses)[0], dtype=np.float64))
    e -= e.mean()
    points = owners.copy()
    if not fit.tail.shared:
        points[:, 1] += owners[:, 0].max() + 1
    sums = np.bincount(points[:, 0], weights=e, minlength=int(points.max()) + 1)
    sums += np.bincount(points[:, 1], weights=e, minlength=int(points.max()) + 1)
    total = float((e * e).sum())
    return max(1.0, float((sums * sums).sum() - total) / total) if total > 0 else 1.0


def _bootstrap(fit: TailFit, outside: float, n_resamples: int, seed: int) -> tuple[Array, Array]:
    """Take quantiles of refits to exceedances drawn with replacement within each row."""
    from latentlink.tails.pareto import fit_tail

    tail = fit.tail
    if tail.pooled:
        raise _checks.InvalidInput(
            'method is "bootstrap" but the tail is pooled; its pairs are dependent and cannot be drawn singly. '
            'Use the estimator "endpoint", "zhang_stephens" or "ml".'
        )
    values = to_numpy(tail.values)
    rng = np.random.default_rng(seed)
    draws = np.empty((_checks.integer("n_resamples", n_resamples, low=2), tail.n_queries))
    padded = np.arange(values.shape[1])[None, :] >= tail.counts[:, None]
    for place in range(draws.shape[0]):
        picked = (rng.random(values.shape) * np.maximum(tail.counts, 1)[:, None]).astype(np.int64)
        again = -np.sort(-np.take_along_axis(values, picked, axis=1), axis=1)
        again[padded] = np.nan
        resampled = Tail(
            again, to_numpy(tail.threshold), tail.counts, tail.n_candidates, tail.rows, tail.endpoint
        )
        draws[place] = fit_tail(resampled, fit.estimator).xi
    low, high = np.quantile(draws, [outside, 1 - outside], axis=0, method="inverted_cdf")
    return like(low, fit.xi), like(high, fit.xi)
