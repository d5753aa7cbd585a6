"""Bounds over a class of encoders: Rademacher complexity, cover and union, and the combined statement.

They hold for every encoder of the class at once, so for whatever training returns. For a linear probe of a
thousand parameters they can say something; for every trained deep network they are vacuous, and say so.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from latentlink import _checks
from latentlink.risk.bounds import loss_range, weight_cap


def _chaining_constant(ratio: float = 1 / 9) -> float:
    """Σ_j ratio^j √(2 log(1 + 2 ratio^−(j+1))), nets that shrink by `ratio`; 2.8353 at 1/9."""
    total, j, term = 0.0, 0, 1.0
    while term > 1e-18:
        term = ratio**j * math.sqrt(2 * math.log1p(2 * ratio ** -(j + 1)))
        total, j = total + term, j + 1
    return total


CHAINING = _chaining_constant()


@dataclass(frozen=True)
class CombinedBound:
    """Distance of the k → ∞ cross-entropy from the training risk less log k, in three parts.

    Attributes
    ----------
    sample, complexity, finite_k : float
        Nats: from n tuples, from the choice within the class, and from k negatives.
    loss_range : float
        What a deviation cannot exceed anyway.
    assumptions : tuple of str
    """

    sample: float
    complexity: float
    finite_k: float
    loss_range: float
    assumptions: tuple[str, ...]

    @property
    def total(self) -> float:
        """The sum of the three parts."""
        return self.sample + self.complexity + self.finite_k

    @property
    def vacuous(self) -> bool:
        """Whether the bound is no smaller than the range of the loss."""
        return self.total >= self.loss_range


def rademacher_lipschitz(
    n: int, n_parameters: int, radius: float, lipschitz: float, temperature: float
) -> float:
    """Bound the Rademacher complexity of the loss over a ball of parameters, by chaining.

    Parameters
    ----------
    n : int
        Independent tuples.
    n_parameters : int
        p.
    radius : float
        B > 0, of the ball of parameters.
    lipschitz : float
        L ≥ 0: an embedding moves by at most L times the move of the parameters.
    temperature : float
        τ > 0.

    Returns
    -------
    float
        2.8353 · B · (4L/τ) · √(p/n), for every number of negatives; measured complexities were 57 to 125 times
        smaller.

    Examples
    --------
    >>> round(2 * rademacher_lipschitz(100_000, 100, 1.0, 1.0, 0.5), 6)
    1.434552
    """
    n, p = _checks.integer("n", n, low=1), _checks.integer("n_parameters", n_parameters, low=1)
    b = _checks.number("radius", radius, low=0, open_low=True)
    constant = _checks.number("lipschitz", lipschitz, low=0, infinite=True)
    if constant == math.inf:
        return math.inf
    tau = _checks.number("temperature", temperature, low=0, open_low=True)
    return CHAINING * b * (4 * constant / tau) * math.sqrt(p / n)


def rademacher_linear(
    n: int, n_negatives: int, temperature: float, *, gram: float, input_norm: float, least_norm: float
) -> float:
    """Bound the Rademacher complexity of normalised linear maps without their dimension.

    Parameters
    ----------
    n, n_negatives : int
    temperature : float
        τ > 0.
    gram : float
        Bound of ‖WᵀW‖ (Frobenius), at most ‖W‖².
    input_norm : float
        Bound X of ‖x‖.
    least_norm : float
        ν > 0 with ‖Wx‖ ≥ ν over the class and the data.

    Returns
    -------
    float
        (√10/2) gram X²/(τν²) √((9 + 5κ)/n) with κ = 1/(e^(−2/τ) + 1/k).

    Examples
    --------
    >>> rademacher_linear(10_000, 64, 1.0, gram=1.0, input_norm=1.0, least_norm=0.5) > 0.3
    True
    """
    n, k = _checks.integer("n", n, low=1), _checks.integer("n_negatives", n_negatives, low=1)
    tau = _checks.number("temperature", temperature, low=0, open_low=True)
    b = _checks.number("gram", gram, low=0)
    x = _checks.number("input_norm", input_norm, low=0)
    nu = _checks.number("least_norm", least_norm, low=0, open_low=True)
    return math.sqrt(10) / 2 * b * x**2 / (tau * nu**2) * math.sqrt((9 + 5 * weight_cap(k, tau)) / n)


def cover_deviation(
    n: int,
    n_negatives: int,
    temperature: float,
    *,
    n_parameters: int,
    radius: float,
    lipschitz: float,
    delta: float = 0.05,
) -> float:
    """Bound the deviation of the risk from its mean over a ball of parameters, by a cover and a union bound.

    Parameters
    ----------
    n, n_negatives : int
    temperature : float
    n_parameters : int
    radius, lipschitz : float
        B > 0 and L ≥ 0 as in `rademacher_lipschitz`; they enter by their logarithm only.
    delta : float
        Probability of failure, in (0, 1].

    Returns
    -------
    float
        The least over ε of Δ √((p log(1 + 2B/ε) + log(2/δ))/(2n)) + 8Lε/τ, with Δ the range of the loss.

    Examples
    --------
    >>> round(cover_deviation(100_000, 1024, 0.5, n_parameters=100, radius=1.0, lipschitz=1.0), 4)
    0.5003
    """
    from scipy.optimize import minimize_scalar

    n, p = _checks.integer("n", n, low=1), _checks.integer("n_parameters", n_parameters, low=1)
    b = _checks.number("radius", radius, low=0, open_low=True)
    tau = _checks.number("temperature", temperature, low=0, open_low=True)
    delta = _checks.number("delta", delta, low=0, high=1, open_low=True)
    span = loss_range(n_negatives, tau)
    slope = 8 * _checks.number("lipschitz", lipschitz, low=0, infinite=True) / tau
    if slope == math.inf:
        return math.inf

    def value(log_epsilon: float) -> float:
        entropy = p * float(np.logaddexp(0.0, math.log(2 * b) - log_epsilon))
        return span * math.sqrt((entropy + math.log(2 / delta)) / (2 * n)) + slope * math.exp(log_epsilon)

    grid = np.linspace(math.log(b) - 60, math.log(b) + 5, 400)
    best = int(np.argmin([value(point) for point in grid]))
    bracket = (grid[max(best - 1, 0)], grid[min(best + 1, 399)])
    return float(minimize_scalar(value, bounds=bracket, method="bounded", options={"xatol": 1e-12}).fun)


def combined_bound(
    n: int,
    n_negatives: int,
    temperature: float,
    *,
    n_parameters: int,
    radius: float,
    lipschitz: float,
    delta: float = 0.05,
    method: str = "cover",
    corpus: int | None = None,
    reused: bool = False,
) -> CombinedBound:
    """Bound, for every encoder of a class at once, how far its search on unseen data is from its training risk.

    Parameters
    ----------
    n : int
        Independent tuples; with `reused`, independent pairs.
    n_negatives : int
        k of each tuple.
    temperature : float
        τ > 0 of a softmax of cosines.
    n_parameters : int
    radius, lipschitz : float
        B and L of the class, as in `rademacher_lipschitz`; `lipschitz` may be inf.
    delta : float
        Probability of failure.
    method : {"cover", "chaining"}
        How the class is counted; "cover" is nearly always the smaller.
    corpus : int, optional
        Compare with the search of this many unseen points instead of k → ∞; exact at k + 1.
    reused : bool
        Negatives are other pairs of the same sample: only ⌊n/(k + 1)⌋ tuples are independent.

    Returns
    -------
    CombinedBound

    Notes
    -----
    With probability 1 − δ. McDiarmid, symmetrisation, chaining or a cover, and the universal 1/k bound
    e^(2/τ)/k, which alone exceeds the range of the loss at τ ≤ 0.1 for every k in use.

    Examples
    --------
    >>> head = combined_bound(100_000, 1024, 0.5, n_parameters=100, radius=1.0, lipschitz=1.0)
    >>> round(head.total, 4), head.vacuous
    (0.5537, False)
    >>> combined_bound(50_000, 1024, 0.1, n_parameters=10**7, radius=50.0, lipschitz=2.0).vacuous
    True
    """
    _checks.one_of("method", method, ("cover", "chaining"))
    k = _checks.integer("n_negatives", n_negatives, low=1)
    tau = _checks.number("temperature", temperature, low=0, open_low=True)
    delta = _checks.number("delta", delta, low=0, high=1, open_low=True)
    radius = _checks.number("radius", radius, low=0)
    lipschitz = _checks.number("lipschitz", lipschitz, low=0, infinite=True)  # unknown: a vacuous bound
    span = loss_range(k, tau)
    tuples = _checks.integer("n", n, low=1) // (k + 1 if reused else 1)
    assumptions = [
        "independent blocks of pairs" if reused else "independent tuples, each with its own negatives",
        f"embeddings move by at most {lipschitz:g} times the parameters, within a ball of radius {radius:g}",
        "softmax of cosine similarities",
        f"probability {1 - delta:g}, for all encoders of the class at once",
    ]
    if tuples == 0:
        return CombinedBound(math.inf, math.inf, math.inf, span, tuple(assumptions))
    sample = span * math.sqrt(math.log(2 / delta) / (2 * tuples))
    if method == "chaining":
        complexity = 2 * rademacher_lipschitz(tuples, n_parameters, radius, lipschitz, tau)
    else:
        whole = cover_deviation(
            tuples, k, tau, n_parameters=n_parameters, radius=radius, lipschitz=lipschitz, delta=delta
        )
        complexity = whole - sample
    return CombinedBound(sample, complexity, _finite_k(k, tau, corpus), span, tuple(assumptions))


def _finite_k(k: int, tau: float, corpus: int | None) -> float:
    weight = math.exp(2 / tau) if 2 / tau < 700 else math.inf
    if corpus is None:
        return weight / k
    m = _checks.integer("corpus", corpus, low=2)
    return 0.0 if m == k + 1 else weight * (1 / k + 1 / (m - 1))


def empirical_bernstein(values: Any, span: float, delta: float = 0.05) -> float:
    """Compute the half-width of the two-sided empirical Bernstein interval of a mean.

    Parameters
    ----------
    values : array (n,)
        Independent, n ≥ 2, within an interval of length `span`.
    span : float
    delta : float
        Probability of failure.

    Returns
    -------
    float
        √(2 v log(4/δ)/n) + 7 span log(4/δ)/(3(n − 1)).

    References
    ----------
    Maurer and Pontil 2009, Theorem 4.

    Examples
    --------
    >>> round(empirical_bernstein(np.arange(50) % 2, 1.0), 3)
    0.42
    """
    x = _checks.numpy_vector("values", values, dtype=np.float64)
    if x.size < 2:
        raise _checks.InvalidInput("values has 1 value; needs at least 2.")
    span = _checks.number("span", span, low=0)
    log = math.log(4 / _checks.number("delta", delta, low=0, high=1, open_low=True))
    return math.sqrt(2 * float(x.var(ddof=1)) * log / x.size) + 7 * span * log / (3 * (x.size - 1))


def pool_mcdiarmid(n: int, n_pool: int, temperature: float, delta: float = 0.05) -> float:
    """Compute a half-width for a shared pool that needs no central limit theorem; vacuous for τ below about 0.5.

    √(½ log(2/δ) ((4/τ)²/n + N min(log(1 + (e^(2/τ) − 1)/N), 2/τ)²)), n pairs and N candidates.

    Examples
    --------
    >>> round(pool_mcdiarmid(1000, 255, 1.0), 6)
    0.563502
    """
    n, size = _checks.integer("n", n, low=1), _checks.integer("n_pool", n_pool, low=1)
    tau = _checks.number("temperature", temperature, low=0, open_low=True)
    log = math.log(2 / _checks.number("delta", delta, low=0, high=1, open_low=True))
    one = min(float(np.log1p(np.expm1(min(2 / tau, 700.0)) / size)), 2 / tau)
    return math.sqrt(0.5 * log * ((4 / tau) ** 2 / n + size * one**2))
