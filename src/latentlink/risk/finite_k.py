"""How far a risk with k negatives can be from its k → ∞ limit: bounds that hold, from none to all knowledge.

Write W for the density of the search law relative to the data law at a random candidate, V its variance, m and
M its extremes, r its value at the positive, and U the mean of k independent copies of W. Then the bias of the
three variants (`VARIANTS` of `expansion`) is exactly E log U (outside), E log(U + r/k) (inside), and the latter
less log(1 + 1/k) (corpus). All bounds below are proved from these identities and enclose the bias from two sides.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

import numpy as np

from latentlink import _checks
from latentlink._metrics import Interval
from latentlink.risk.estimators import FloatArray
from latentlink.risk.expansion import VARIANTS


def remainder(u: Any, order: int = 2) -> FloatArray:
    """Compute the remainder of −log at 1: what is left after a polynomial, over the next even power.

    Parameters
    ----------
    u : array, any shape
        > 0.
    order : {2, 4}
        2: ((u−1) − log u)/(u−1)², 1/2 at u = 1. 4: ((u−1) − (u−1)²/2 + (u−1)³/3 − log u)/(u−1)⁴, 1/4 at u = 1.
        Both decrease in u.

    Returns
    -------
    array of the same shape

    Examples
    --------
    >>> remainder([0.5, 1.0, 3.0]).round(6)
    array([0.772589, 0.5     , 0.225347])
    """
    _checks.one_of("order", str(order), ["2", "4"])
    value = _checks.real("u", u)
    if not ((value > 0) & (value < np.inf)).all():
        raise _checks.InvalidInput("u holds numbers that are not in (0, infinity); needs relative weights.")
    x = value - 1
    near = np.abs(x) < 0.2
    # Σ (−x)^j / (j + order), Horner; 26 terms leave 1e-18 at |x| = 0.2.
    inner = np.where(near, x, 0.0)
    series = np.zeros_like(inner)
    for j in range(26, -1, -1):
        series = 1 / (j + order) - inner * series
    far = np.where(near, 1.0, x)
    polynomial = far if order == 2 else far - far**2 / 2 + far**3 / 3
    return np.asarray(np.where(near, series, (polynomial - np.log(np.where(near, 2.0, value))) / far**order))


def universal_constant(temperature: float) -> float:
    """Compute C*(τ): −C*/k bounds the bias of every encoder, data law and positive law from below.

    The maximum over m in [e^(−2/τ), 1] of (m e^(2/τ) − 1)(m − 1 − log m)/(1 − m). At most 1.73 times too large
    (two-point laws, temperatures 0.1 to 2).

    Examples
    --------
    >>> round(universal_constant(1.0), 10)
    1.0508334663
    """
    return _universal_constant(_checks.number("temperature", temperature, low=0, open_low=True))


@lru_cache(maxsize=256)
def _universal_constant(tau: float) -> float:
    from scipy.optimize import minimize_scalar

    spread = 2 / tau
    if spread > 700:
        return math.inf

    def negative(log_m: float) -> float:
        m = math.exp(log_m)
        return -math.expm1(log_m + spread) * (1 - m) * float(remainder(m))

    grid = np.linspace(-spread, 0, 401)
    best = int(np.argmin([negative(point) for point in grid]))
    bracket = (grid[max(best - 1, 0)], grid[min(best + 1, 400)])
    found = minimize_scalar(negative, bounds=bracket, method="bounded", options={"xatol": 1e-12})
    return float(-found.fun)


def universal_bias(temperature: float, n_negatives: int, *, variant: str = "inside") -> Interval:
    """Bound the bias for every encoder, data law and positive law.

    Parameters
    ----------
    temperature : float
        τ > 0 of a softmax of cosine similarities.
    n_negatives : int
        k ≥ 1.
    variant : {"inside", "corpus", "outside"}

    Returns
    -------
    Interval
        outside: [−C*/k, 0]. inside: [−C*/k, log(1 + e^(2/τ)/k)], whose upper end is attained. corpus:
        [−(1 + C*)/k, log((k + e^(2/τ))/(k + 1))]. Never beyond the trivial ±2/τ where that applies.

    Notes
    -----
    It says something only once e^(2/τ) is small against k: at τ = 0.1, e^(2/τ) is 4.9e8.

    Examples
    --------
    >>> universal_bias(1.0, 64)
    Interval(low=-0.0164..., high=0.1092...)
    """
    k = _checks.integer("n_negatives", n_negatives, low=1)
    _checks.one_of("variant", variant, VARIANTS)
    tau = _checks.number("temperature", temperature, low=0, open_low=True)
    lowest = -min(universal_constant(tau) / k, 2 / tau)
    if variant == "outside":
        return Interval(lowest, 0.0)
    highest = float(np.logaddexp(0.0, 2 / tau - math.log(k)))
    if variant == "inside":
        return Interval(lowest, highest)
    taken = math.log1p(1 / k)
    return Interval(max(lowest - taken, -(1 + universal_constant(tau)) / k), highest - taken)


def bias_sandwich(
    variance: Any,
    least: Any,
    greatest: Any,
    n_negatives: int,
    *,
    ratio: Any = None,
    third: Any = None,
    fourth: Any = None,
) -> Interval:
    """Enclose the bias by moments and extremes of the weights, averaged over queries.

    Parameters
    ----------
    variance, least, greatest : array (n,)
        V, m and M of each query.
    n_negatives : int
        k ≥ 1.
    ratio : array (n,), optional
        r of each query: the enclosure is then that of "inside"; without it, of "outside".
    third, fourth : array (n,), optional
        Central moments μ₃ and μ₄; both or none. With them the enclosure is of order 4, far tighter.

    Returns
    -------
    Interval

    Notes
    -----
    A Taylor remainder of −log at the mean, with monotone coefficient: a bound for the true moments. With
    estimated moments it is an estimate of one.

    Examples
    --------
    >>> bias_sandwich([4.0], [0.05], [20.0], 1024)
    Interval(low=-0.0088..., high=-0.0001...)
    """
    low, high = sandwich_of_each(
        variance, least, greatest, n_negatives, ratio=ratio, third=third, fourth=fourth
    )
    return Interval(float(low.mean()), float(high.mean()))


def sandwich_of_each(
    variance: Any,
    least: Any,
    greatest: Any,
    n_negatives: int,
    *,
    ratio: Any = None,
    third: Any = None,
    fourth: Any = None,
) -> tuple[FloatArray, FloatArray]:
    """Enclose the bias of each query (n,); the arguments are those of `bias_sandwich`."""
    k = _checks.integer("n_negatives", n_negatives, low=1)
    v = _checks.numpy_vector("variance", variance, dtype=np.float64)
    m = _checks.numpy_vector("least", least, length=v.size, dtype=np.float64)
    top = _checks.numpy_vector("greatest", greatest, length=v.size, dtype=np.float64)
    r = np.zeros_like(v) if ratio is None else _checks.numpy_vector("ratio", ratio, length=v.size)
    if (third is None) != (fourth is None):
        raise _checks.InvalidInput("third and fourth must come together; give both or none.")
    shift, scale = np.log1p(r / k), k / (k + r)
    ends = [(k * m + r) / (k + r), (k * top + r) / (k + r)]
    if third is None or fourth is None:
        values = [shift - remainder(end) * v / k * scale**2 for end in ends]
    else:
        mu3 = _checks.numpy_vector("third", third, length=v.size, dtype=np.float64)
        mu4 = _checks.numpy_vector("fourth", fourth, length=v.size, dtype=np.float64)
        q = (3 * (k - 1) * v**2 + mu4) / k**3
        centre = shift - v / (2 * k) * scale**2 + mu3 / (3 * k**2) * scale**3
        values = [centre - remainder(end, 4) * q * scale**4 for end in ends]
    return values[0], values[1]


def concentration_bias(variance: Any, least: Any, n_negatives: int) -> float:
    """Bound the size of the "outside" bias with the right constant 1/2 once V is small against k.

    Parameters
    ----------
    variance, least : array (n,)
        V and m > 0 of each query.
    n_negatives : int
        k ≥ 1.

    Returns
    -------
    float
        Mean over queries of the least, over ρ, of c(ρ)V/k + (m − 1 − log m) exp(−k(1−ρ)²/(2(1+V))).

    Examples
    --------
    >>> round(concentration_bias([4.0], [0.00045], 1024), 6)
    0.002598
    """
    return float(concentration_of_each(variance, least, n_negatives).mean())


def concentration_of_each(variance: Any, least: Any, n_negatives: int) -> FloatArray:
    """Bound the bias of each query (n,); the arguments are those of `concentration_bias`."""
    k = _checks.integer("n_negatives", n_negatives, low=1)
    v = _checks.numpy_vector("variance", variance, dtype=np.float64)[:, None]
    m = _checks.numpy_vector("least", least, length=v.shape[0], dtype=np.float64)[:, None]
    if not (m > 0).all():
        raise _checks.InvalidInput("least holds numbers that are not > 0; needs the least weights.")
    rho = np.linspace(np.maximum(m, 0.02), 0.999, 400, axis=1)[..., 0]  # (n, 400)
    tail = (m - 1 - np.log(m)) * np.exp(-k * (1 - rho) ** 2 / (2 * (1 + v)))
    return np.asarray((remainder(rho) * v / k + tail).min(axis=1))
