"""Fit the generalised extreme-value law to maxima: the second, independent reading of xi.

The largest of K similarities follows, for large K, G(x) = exp(−(1 + xi (x − mu) / sigma)^(−1/xi)); its xi is
that of the exceedances. xi < 0 is the Weibull, 0 the Gumbel, xi > 0 the Fréchet type. SciPy's `genextreme` has
c = −xi.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from latentlink import _checks
from latentlink._arrays import Array, to_numpy
from latentlink._metrics import Interval
from latentlink.tails._source import Source

FloatArray = np.ndarray[Any, np.dtype[np.float64]]

# Negative log-likelihood outside the support: finite, so that the simplex can compare two such points.
_OUTSIDE = 1e100


@dataclass(frozen=True, eq=False)
class MaximaFit:
    """Hold a generalised extreme-value law fitted by maximum likelihood.

    Attributes
    ----------
    mu, sigma, xi : float
    covariance : array (3, 3)
        Inverse of the observed information; NaN where it is not positive definite (xi <= −0.5 or near it).
    log_likelihood : float
    gumbel_log_likelihood : float
        With xi = 0.
    n_maxima, block_size : int
        Maxima fitted, and how many similarities each is the largest of (0: not known).
    edge : bool
        xi = −1 was reached, below which the likelihood is unbounded.
    """

    mu: float
    sigma: float
    xi: float
    covariance: FloatArray
    log_likelihood: float
    gumbel_log_likelihood: float
    n_maxima: int
    block_size: int
    edge: bool

    @property
    def standard_errors(self) -> FloatArray:
        """Of mu, sigma and xi, (3,)."""
        with np.errstate(invalid="ignore"):
            return np.asarray(np.sqrt(np.diag(self.covariance)))

    @property
    def endpoint(self) -> float:
        """Largest value the law allows; infinite where xi >= 0."""
        return self.mu - self.sigma / self.xi if self.xi < 0 else float("inf")

    @property
    def gumbel_p(self) -> float:
        """Likelihood-ratio p-value of xi = 0."""
        from scipy import stats

        return float(stats.chi2.sf(max(0.0, 2 * (self.log_likelihood - self.gumbel_log_likelihood)), 1))

    def to_scipy(self) -> dict[str, float]:
        """Return the arguments of `scipy.stats.genextreme`, whose c has the opposite sign."""
        return {"c": -self.xi, "loc": self.mu, "scale": self.sigma}

    def interval(self, level: float = 0.95) -> Interval:
        """Compute a normal interval of xi."""
        from scipy import stats

        half = float(stats.norm.ppf((1 + _checks.number("level", level, low=0, high=1)) / 2))
        error = float(self.standard_errors[2])
        return Interval(self.xi - half * error, self.xi + half * error)

    def limit(self, level: float = 0.05) -> str:
        """Name the type: "weibull", "frechet", or "gumbel" where xi = 0 is not rejected at `level`."""
        if self.gumbel_p > level:
            return "gumbel"
        return "weibull" if self.xi < 0 else "frechet"


def fit_maxima(maxima: Any, *, block_size: int = 0) -> MaximaFit:
    """Fit a generalised extreme-value law by maximum likelihood.

    Parameters
    ----------
    maxima : array (n,)
        At least 10 finite values.
    block_size : int
        Recorded in the result.

    Returns
    -------
    MaximaFit

    Raises
    ------
    InvalidInput
        Fewer than 10 maxima, or all equal.

    Notes
    -----
    A simplex search in standardised units, from the Gumbel moments with four shapes, then polished. One fit costs
    some 60 milliseconds.

    References
    ----------
    Coles 2001, An Introduction to Statistical Modeling of Extreme Values, chapter 3.

    Examples
    --------
    >>> x = -np.random.default_rng(0).exponential(size=4000) ** 0.4  # ends at 0 with xi = -0.4
    >>> fit = fit_maxima(x)
    >>> round(fit.xi, 1), fit.limit()
    (-0.4, 'weibull')
    """
    from scipy import optimize

    x = _checks.numpy_vector("maxima", maxima, dtype=np.float64)
    if x.size < 10 or x.max() == x.min():
        raise _checks.InvalidInput(
            f"maxima has {x.size} values of which {np.unique(x).size} differ; "
            "needs at least 10 that are not all equal."
        )
    centre, unit = float(x.mean()), float(x.std())
    z = (x - centre) / unit

    def loss(parameters: FloatArray) -> float:
        return _negative_log_likelihood(z, parameters[0], float(np.exp(parameters[1])), parameters[2])

    scale = np.sqrt(6) / np.pi
    best = None
    for xi in (-0.6, -0.3, -0.05, 0.2):
        start = np.asarray([-0.5772 * scale * (1 - xi), np.log(scale), xi])
        if loss(start) >= _OUTSIDE:
            start[1] += 1.0
        options = {"xatol": 1e-6, "fatol": 1e-9, "maxiter": 2000}
        found = optimize.minimize(loss, start, method="Nelder-Mead", options=options)
        if best is None or found.fun < best.fun:
            best = found
    assert best is not None
    options = {"xatol": 1e-11, "fatol": 1e-13, "maxiter": 4000}
    best = optimize.minimize(loss, best.x, method="Nelder-Mead", options=options)
    mu, log_sigma, xi = (float(p) for p in best.x)
    sigma = float(np.exp(log_sigma))
    gumbel = optimize.minimize(
        lambda p: loss(np.asarray([p[0], p[1], 0.0])),
        np.asarray([-0.5772 * scale, np.log(scale)]),
        method="Nelder-Mead",
        options=options,
    )
    shift = x.size * float(np.log(unit))
    covariance = _covariance(z, mu, sigma, xi) * np.outer([unit, unit, 1.0], [unit, unit, 1.0])
    return MaximaFit(
        mu=centre + unit * mu,
        sigma=unit * sigma,
        xi=xi,
        covariance=covariance,
        log_likelihood=-float(best.fun) - shift,
        gumbel_log_likelihood=-float(gumbel.fun) - shift,
        n_maxima=int(x.size),
        block_size=block_size,
        edge=xi < -0.999,
    )


def maxima_by_size(
    embeddings: Array,
    sizes: Any = (64, 256, 1024, 4096),
    *,
    n_queries: int | None = 2000,
    seed: int = 0,
    duplicate_gap: float = 1e-6,
) -> list[MaximaFit]:
    """Fit the largest similarity of each query among K of the other rows, for several K.

    Parameters
    ----------
    embeddings : array or tensor (n, d)
    sizes : ints
        K; those above n − 1 are left out.
    n_queries : int or None
        Drawn by `seed` where there are more; None takes all.
    seed : int
        Also draws the K candidates, the same for all queries of one K.
    duplicate_gap : float
        See `take_tail`.

    Returns
    -------
    list of MaximaFit
        By K. As K grows xi tends to that of the exceedances, if the encoder has one law for all queries; a
        mixture of queries widens the law of the maxima.

    Examples
    --------
    >>> x = np.random.default_rng(0).normal(size=(600, 4))
    >>> [fit.block_size for fit in maxima_by_size(x, (64, 256))]
    [64, 256]
    """
    x = _checks.matrix("embeddings", embeddings)
    source = Source.make(x, None, None, "cosine", None, None, duplicate_gap, 1.0, n_queries, seed)
    asked = [_checks.integer("sizes", k, low=1) for k in _checks.sequence("sizes", sizes)]
    wanted = [_checks.integer("sizes", k, low=8) for k in asked if k < source.width]
    if not wanted:
        raise _checks.InvalidInput(
            f"sizes are all above the {source.width - 1} candidates; needs smaller ones."
        )
    order = np.random.default_rng(seed).permutation(source.width)
    tops: list[list[FloatArray]] = [[] for _ in wanted]
    for _, block, _ in source.blocks():
        shuffled = to_numpy(block)[:, order]
        for place, k in enumerate(wanted):
            # The first K allowed columns of the shuffled ones; the query itself may be among them.
            allowed = np.cumsum(shuffled[:, : min(2 * k + 8, source.width)] > -np.inf, axis=1) <= k
            part = np.where(allowed, shuffled[:, : allowed.shape[1]], -np.inf)
            tops[place].append(part.max(axis=1))
    fits = []
    for k, parts in zip(wanted, tops, strict=True):
        values = np.concatenate(parts)
        fits.append(fit_maxima(values[np.isfinite(values)], block_size=k))
    return fits


def _negative_log_likelihood(z: FloatArray, mu: float, sigma: float, xi: float) -> float:
    y = (z - mu) / sigma
    if xi < -1.0 or not np.isfinite(sigma):
        return _OUTSIDE
    if abs(xi) < 1e-8:
        return float(z.size * np.log(sigma) + y.sum() + np.exp(-y).sum())
    base = 1.0 + xi * y
    if base.min() <= 0:
        return _OUTSIDE
    logs = np.log(base)
    with np.errstate(over="ignore"):
        return float(z.size * np.log(sigma) + (1 + 1 / xi) * logs.sum() + np.exp(-logs / xi).sum())


def _covariance(z: FloatArray, mu: float, sigma: float, xi: float) -> FloatArray:
    """Invert the observed information of (mu, sigma, xi) by central differences of the log-likelihood."""
    steps = np.asarray([1e-4 * sigma, 1e-4 * sigma, 1e-4])
    at = np.asarray([mu, sigma, xi])
    information = np.empty((3, 3))
    for i in range(3):
        for j in range(i, 3):
            total = 0.0
            for a, b in ((1, 1), (1, -1), (-1, 1), (-1, -1)):
                point = at.copy()
                point[i] += a * steps[i]
                point[j] += b * steps[j]
                total += a * b * _negative_log_likelihood(z, *map(float, point))
            information[i, j] = information[j, i] = total / (4 * steps[i] * steps[j])
    if not np.isfinite(information).all() or np.linalg.eigvalsh(information).min() <= 0:
        return np.full((3, 3), np.nan)
    return np.asarray(np.linalg.inv(information))


def xi_from_scipy(law: str, c: Any) -> Any:
    """Turn the shape of one of SciPy's laws into xi, negative where the tail ends.

    Parameters
    ----------
    law : {"genpareto", "genextreme", "weibull_max"}
        SciPy's name. Its genpareto has our sign, its genextreme the opposite one, and its weibull_max, the law
        of maxima under an end, has beta = −1 / xi for a shape.
    c : float or array
        The shape, as SciPy's `fit` returns it first.

    Returns
    -------
    float or array
        In the kind of `c`.

    Examples
    --------
    >>> xi_from_scipy("genextreme", 0.25)
    -0.25
    """
    _checks.one_of("law", law, ["genpareto", "genextreme", "weibull_max"])
    if law == "weibull_max":
        return -1 / c
    return c if law == "genpareto" else -c
