"""Weigh three laws of a tail on one likelihood: exponential, ending at the known endpoint, and free.

All three are points of the profile curve P(theta) of `estimators`: theta = 0, theta = 1 / (endpoint −
threshold) and its maximum. The first two have one parameter each, so twice the difference of their
log-likelihoods is the difference of their AIC; that number is what WEINCE's gate uses during training
(`online`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from latentlink import _checks
from latentlink._arrays import to_numpy
from latentlink.tails.pareto import fit_tail
from latentlink.tails.sample import Tail, known_tail

FloatArray = np.ndarray[Any, np.dtype[np.float64]]
_PARAMETERS = {"exponential": 1, "endpoint": 1, "free": 2}


class LawShares(NamedTuple):
    """Shares of queries by the law a criterion prefers."""

    exponential: float
    endpoint: float
    free: float


@dataclass(frozen=True, eq=False)
class Evidence:
    """Hold the log-likelihoods of the three laws for each query.

    Attributes
    ----------
    exponential, endpoint, free : array (n,)
        Maximised log-likelihoods; "endpoint" is NaN for a tail without one, and all are NaN for a row without
        spread or with fewer than eight exceedances.
    counts : array (n,)
    vuong : array (n,)
        Standardised difference of endpoint and exponential: above 1.64 the endpoint law is closer at 5 %.
    """

    exponential: FloatArray
    endpoint: FloatArray
    free: FloatArray
    counts: np.ndarray[Any, np.dtype[np.int64]]
    vuong: FloatArray

    @property
    def bounded(self) -> FloatArray:
        """AIC of the exponential law minus that of the endpoint law, (n,): positive where the tail ends."""
        return 2.0 * (self.endpoint - self.exponential)

    def criterion(self, name: str = "aic") -> dict[str, FloatArray]:
        """Compute "aic" or "bic" of each law, (n,) each; the smallest is preferred."""
        _checks.one_of("name", name, ["aic", "bic"])
        price = 2.0 * np.ones(self.counts.shape) if name == "aic" else np.log(np.maximum(self.counts, 1))
        return {law: price * size - 2.0 * getattr(self, law) for law, size in _PARAMETERS.items()}

    def shares(self, name: str = "aic") -> LawShares:
        """Compute the share of queries that each law wins by a criterion."""
        table = np.stack(list(self.criterion(name).values()))  # (3, n)
        known = np.isfinite(self.exponential) & np.isfinite(self.free)
        table = np.where(np.isfinite(table), table, np.inf)[:, known]
        wins = np.bincount(table.argmin(axis=0), minlength=3) / max(1, int(known.sum()))
        return LawShares(*map(float, wins))


def weigh(tail: Tail) -> Evidence:
    """Compute the likelihood of an exponential tail, of one that ends at the endpoint, and of a free one.

    Parameters
    ----------
    tail : Tail

    Returns
    -------
    Evidence

    Notes
    -----
    At 64 exceedances neither AIC nor BIC can tell an end at 0.7 from one at 1; `endpoint_test` is for that.
    Cost: that of the "ml" fit.

    References
    ----------
    Vuong 1989, Econometrica 57.

    Examples
    --------
    >>> from latentlink import take_tail
    >>> s = 1 - np.random.default_rng(0).uniform(size=(500, 400)) ** 0.4  # ends at 1 with xi = -0.4
    >>> bool(np.median(weigh(take_tail(similarities=s, duplicate_gap=0)).bounded) > 2)
    True
    """
    known_tail(tail)
    y = np.asarray(to_numpy(tail.excesses), dtype=np.float64)
    k = tail.counts.astype(np.float64)
    with np.errstate(divide="ignore", invalid="ignore"):
        mean = np.nansum(y, axis=1) / k
        mean[(mean <= 0) | (k < 8)] = np.nan
        exponential = -k * (np.log(mean) + 1.0)
        free = np.asarray(to_numpy(fit_tail(tail, "ml").log_likelihood), dtype=np.float64)
        # The exponential law lies inside the free family; rounding must not say otherwise.
        free = np.fmax(free, exponential) + 0.0 * mean
        endpoint = vuong = np.full(k.shape, np.nan)
        if tail.endpoint is not None:
            fit = fit_tail(tail, "endpoint")
            endpoint = np.asarray(to_numpy(fit.log_likelihood), dtype=np.float64) + 0.0 * mean
            alpha = -to_numpy(fit.xi).astype(np.float64)[:, None]
            reach = (tail.endpoint - to_numpy(tail.threshold).astype(np.float64))[:, None]
            shortfall = np.clip(reach - y, np.finfo(np.float64).eps, None)
            density = -np.log(alpha * reach) + (1.0 / alpha - 1.0) * np.log(shortfall / reach)
            gain = density + np.log(mean)[:, None] + y / mean[:, None]  # (n, k) of each exceedance
            centre = np.nansum(gain, axis=1) / k
            spread = np.sqrt(np.nansum((gain - centre[:, None]) ** 2, axis=1) / k)
            vuong = np.sqrt(k) * centre / spread
    return Evidence(exponential, endpoint, free, tail.counts, vuong)
