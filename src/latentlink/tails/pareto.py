"""Fit the generalised Pareto law to tails of similarities.

Excesses y over a threshold u follow P(Y > y) = (1 + xi y / sigma)^(−1/xi). The sign of the shape xi is the same
everywhere in this package: xi < 0 is a tail that ends (Weibull domain, endpoint u − sigma / xi), 0 an
exponential one (Gumbel), xi > 0 a heavy one (Fréchet). SciPy's `genpareto` has the same sign, its `genextreme`
the opposite.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from latentlink import _checks
from latentlink._arrays import Array, like, namespace, to_numpy
from latentlink._metrics import Interval
from latentlink.tails import _profile, estimators, intervals
from latentlink.tails.sample import Tail, known_tail

_TWO_PARAMETERS = {
    "zhang_stephens": estimators.zhang_stephens,
    "ml": _profile.maximum_likelihood,
    "pwm": estimators.weighted_moments,
}
ESTIMATORS = ("endpoint", *_TWO_PARAMETERS)
# Fewest exceedances that a fit of each kind is made from; a row with fewer is NaN.
_LEAST = {"zhang_stephens": 8, "ml": 8, "pwm": 2}


class TailSummary(NamedTuple):
    """The tails of all queries in a few numbers."""

    n_queries: int
    xi: float
    xi_interval: Interval
    beta: float
    beta_interval: Interval
    lid: float
    quartiles: tuple[float, float]
    bounded: float


@dataclass(frozen=True, eq=False)
class TailFit:
    """Hold one fitted law for each row of a tail.

    Attributes
    ----------
    tail : Tail
    estimator : str
    xi, sigma : array or tensor (n,)
        NaN where a row cannot be fitted (too few exceedances, or all equal to the threshold).
    standard_error : array or tensor (n,)
        Of xi, under independent exceedances.
    log_likelihood : array or tensor (n,)
    edge : bool array or tensor (n,)
        The solution lies on the boundary of the allowed set (xi = −1), where no interior maximum exists.
    """

    tail: Tail
    estimator: str
    xi: Array
    sigma: Array
    standard_error: Array
    log_likelihood: Array
    edge: Array

    @property
    def beta(self) -> Array:
        """Exponent of the shortfall, −1 / xi, (n,); infinite where xi >= 0.

        With the endpoint held it is the unbiased (k − 1) / sum log(reach / shortfall).
        """
        xp = namespace(self.xi)
        negative = self.xi < 0
        beta = -1.0 / xp.where(negative, self.xi, -xp.ones_like(self.xi))
        if self.estimator == "endpoint":
            count = xp.astype(like(self.tail.counts, self.xi), self.xi.dtype)
            beta = beta * (count - 1) / xp.where(count > 0, count, xp.ones_like(count))
        beta = xp.where(negative, beta, xp.ones_like(beta) * np.inf)
        return xp.where(xp.isnan(self.xi), self.xi, beta)

    @property
    def lid(self) -> Array:
        """Local intrinsic dimension of the chord distance, 2 beta, (n,).

        For unit vectors 1 − s is half the squared distance.
        """
        return 2.0 * self.beta

    @property
    def endpoint(self) -> Array:
        """Largest value the fitted law allows, u − sigma / xi, (n,); infinite where xi >= 0."""
        xp = namespace(self.xi)
        negative = self.xi < 0
        reach = -self.sigma / xp.where(negative, self.xi, -xp.ones_like(self.xi))
        end = self.tail.threshold + xp.where(negative, reach, xp.ones_like(reach) * np.inf)
        return xp.where(xp.isnan(self.xi), self.xi, end)

    def interval(
        self, level: float = 0.95, *, method: str | None = None, n_resamples: int = 200, seed: int = 0
    ) -> tuple[Array, Array]:
        """Compute an interval of xi for each row.

        Parameters
        ----------
        level : float
            In (0, 1).
        method : {"chi2", "total_variance", "profile", "wald", "bootstrap"}, optional
            The default is `interval_method`. "wald" is there for comparison with other packages.
        n_resamples, seed : int
            Of "bootstrap".

        Returns
        -------
        low, high : array or tensor (n,)

        Notes
        -----
        "endpoint" has "chi2", exact: 2 k xî / xi ~ chi² with 2 k degrees of freedom. "zhang_stephens" has
        "total_variance": the spread over its grid plus xi² / k (coverage of 95 % at k = 64: 0.94 to 0.96). "ml"
        has "profile" (0.92 at xi = −0.39, 0.88 at −0.8) and "wald" (0.90 and 0.65: not advised). Any of them, and
        "pwm", has "bootstrap" of the exceedances. For a pooled tail the variance is multiplied by
        `design_effect`.
        """
        return intervals.interval(self, level, method, n_resamples, seed)

    @property
    def interval_method(self) -> str:
        """How `interval` is computed unless told otherwise."""
        return intervals.METHODS[self.estimator]

    @property
    def design_effect(self) -> float:
        """By how much the dependence of pooled pairs multiplies the variance of xi; 1 for tails of queries."""
        return intervals.design_effect(self)

    def quantile(self, probability: float) -> Array:
        """Compute the value that a candidate exceeds with this probability, (n,).

        Parameters
        ----------
        probability : float
            Of one candidate, in (0, rate]; NaN for rows whose rate is smaller, which lie below the threshold.
        """
        p = _checks.number("probability", probability, low=0, high=1, open_low=True)
        xp = namespace(self.xi)
        ratio = p / like(self.tail.rate, self.xi)
        small = xp.abs(self.xi) < 1e-9
        safe = xp.where(small, xp.ones_like(self.xi), self.xi)
        with np.errstate(invalid="ignore", divide="ignore"):
            excess = xp.where(small, -xp.log(ratio), (ratio ** (-safe) - 1.0) / safe) * self.sigma
        above = xp.where(ratio <= 1.0 + 1e-12, excess, excess * np.nan) + self.tail.threshold
        if self.tail.coordinate == "cap":
            return xp.sign(above) * xp.sqrt(xp.abs(above))
        return above

    def return_level(self, n_candidates: float) -> Array:
        """Compute the value exceeded once in `n_candidates` candidates on average, (n,)."""
        return self.quantile(1.0 / _checks.number("n_candidates", n_candidates, low=1))

    def to_scipy(self) -> dict[str, Array]:
        """Return the arguments of `scipy.stats.genpareto` for each row: c, loc and scale, (n,) each."""
        return {"c": self.xi, "loc": self.tail.threshold, "scale": self.sigma}

    def summary(self, level: float = 0.95, *, n_resamples: int = 2000, seed: int = 0) -> TailSummary:
        """Summarise the fits over queries: medians with intervals from resampled queries.

        Queries are taken as independent; those that share near candidates are not quite. Rows of NaN are left
        out. A pooled fit has one row; use `interval` for it.
        """
        if self.tail.pooled:
            raise _checks.InvalidInput(
                "summary needs one fit for each query; a pooled fit is one. Use interval."
            )
        xi = to_numpy(self.xi).astype(np.float64)
        beta = to_numpy(self.beta).astype(np.float64)[np.isfinite(xi)]
        xi = xi[np.isfinite(xi)]
        if xi.size == 0:
            raise _checks.InvalidInput("no query has a fit; needs at least one row with unequal exceedances.")
        rng = np.random.default_rng(seed)
        picked = rng.integers(0, xi.size, (n_resamples, xi.size))
        ends = [(1 - level) / 2, (1 + level) / 2]
        return TailSummary(
            n_queries=int(xi.size),
            xi=float(np.median(xi)),
            xi_interval=Interval(*map(float, _quantiles(np.median(xi[picked], axis=1), ends))),
            beta=float(np.median(beta)),
            beta_interval=Interval(*map(float, _quantiles(np.median(beta[picked], axis=1), ends))),
            lid=2.0 * float(np.median(beta)),
            quartiles=(float(np.quantile(xi, 0.25)), float(np.quantile(xi, 0.75))),
            bounded=float((xi < 0).mean()),
        )


def _quantiles(values: Any, levels: list[float]) -> Any:
    return np.quantile(values, levels, method="inverted_cdf")  # no interpolation: beta may be infinite


def fit_tail(tail: Tail, estimator: str = "endpoint") -> TailFit:
    """Fit a generalised Pareto law to each row of a tail.

    Parameters
    ----------
    tail : Tail
    estimator : {"endpoint", "zhang_stephens", "ml", "pwm"}
        "endpoint" holds the end of the tail at ``tail.endpoint``: −xi is then the mean of
        log(reach / shortfall), unbiased, with an exact interval. "zhang_stephens" leaves the endpoint free and
        is the best general choice for xi in [−1, 0) at 64 exceedances. "ml" is maximum likelihood with xi >= −1
        imposed: the reference, but at 64 exceedances and xi = −0.8 a third of the samples has no interior
        maximum (``edge``). "pwm" solves probability-weighted moments, made feasible. The first of these needs
        one exceedance, "pwm" two, the others eight.

    Returns
    -------
    TailFit
        Of arrays (n,). A row with too few exceedances, or without spread, is NaN.

    Raises
    ------
    InvalidInput
        "endpoint" for a tail without one.

    Notes
    -----
    Cost: n k logarithms for "endpoint"; 28 times that for "zhang_stephens" at k = 64. The law is a limit: with
    the threshold far from the endpoint xi is biased, so read it beside ``tail.threshold``.

    References
    ----------
    Hill 1975, Ann. Statist. 3; Zhang and Stephens 2009, Technometrics 51.

    Examples
    --------
    >>> fit_tail(Tail.of([[0.9, 0.8, 0.6]], threshold=[0.5])).xi.round(4)
    array([-0.9163])
    """
    known_tail(tail)
    _checks.one_of("estimator", estimator, ESTIMATORS)
    if estimator == "endpoint":
        return _fit_endpoint(tail)
    e = estimators.prepare(tail.excesses, like(tail.counts, tail.values))
    fitted = _TWO_PARAMETERS[estimator](e)
    return _in_units(tail, estimator, e, fitted)


def _fit_endpoint(tail: Tail) -> TailFit:
    if tail.endpoint is None:
        raise _checks.InvalidInput(
            'estimator is "endpoint" but the tail has none; give take_tail an endpoint or use "zhang_stephens".'
        )
    xp = namespace(tail.values)
    reach = tail.endpoint - tail.threshold  # (n,)
    alpha = estimators.mean_log_shortfall(tail.values, reach, tail.endpoint, like(tail.counts, tail.values))
    count = xp.astype(like(tail.counts, tail.values), tail.values.dtype)
    with np.errstate(divide="ignore", invalid="ignore"):
        log_likelihood = -count * (xp.log(alpha * reach) + 1.0 - alpha)
        return TailFit(
            tail=tail,
            estimator="endpoint",
            xi=-alpha,
            sigma=alpha * reach,
            standard_error=alpha / xp.sqrt(count),
            log_likelihood=log_likelihood,
            edge=xp.zeros_like(alpha) > 1,
        )


def _in_units(tail: Tail, estimator: str, e: estimators.Excesses, fitted: estimators.Fitted) -> TailFit:
    """Undo the scaling of the excesses and blank the rows that cannot be fitted."""
    xp = namespace(tail.values)
    good = (e.count >= _LEAST[estimator]) & (e.largest > 0)
    nan = e.count * np.nan

    def kept(value: Any) -> Any:
        return xp.astype(xp.where(good, value, nan), tail.values.dtype)

    sigma = fitted.sigma * e.largest
    with np.errstate(invalid="ignore", divide="ignore"):
        log_likelihood = estimators.log_likelihood(fitted.xi, fitted.sigma, e) - e.count * xp.log(e.largest)
        error = xp.sqrt(fitted.variance)
    return TailFit(
        tail, estimator, kept(fitted.xi), kept(sigma), kept(error), kept(log_likelihood), fitted.edge & good
    )
