"""The 1/k law of the InfoNCE risk, from data: how far a risk with k negatives is from its limit.

Three variants of the risk are in use; each has its own normaliser and its own bias.

========= ======================================= ==========
variant   loss of one query                       taken off
========= ======================================= ==========
outside   −log(w⁺ / Σ w_j)                        log k
inside    −log(w⁺ / (w⁺ + Σ w_j)), InfoNCE        log k
corpus    the same as inside                      log(k + 1)
========= ======================================= ==========

"corpus" is exactly the cross-entropy of a search among k + 1 unseen points. All three tend to the same limit.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from latentlink import _checks
from latentlink.risk.estimators import FloatArray

VARIANTS = ("inside", "corpus", "outside")


class Predicted(NamedTuple):
    """A predicted bias and whether the expansion holds there."""

    bias: float
    trusted: bool


def predict_bias(
    variance: Any,
    ratio: Any,
    n_negatives: int,
    *,
    variant: str = "inside",
    third: Any = None,
) -> Predicted:
    """Predict the bias of a risk with k negatives from the moments of each query's weights.

    Parameters
    ----------
    variance : array (n,)
        χ² distance V of each query's search law from the data law.
    ratio : array (n,)
        Density r of the search law at each positive; not used by "outside".
    n_negatives : int
        k ≥ 1.
    variant : {"inside", "corpus", "outside"}
    third : array (n,), optional
        Third central moments of the weights: adds the terms of order 1/k².

    Returns
    -------
    Predicted
        `bias`, nats; `trusted` is False where 1/k is not the leading law: below `ruled_from`.

    Notes
    -----
    outside: E[−V/(2k) + (μ₃/3 − 3V²/4)/k²]. inside: E[log(1 + r/k) − Vk/(2(k+r)²)] with the matching second
    order, which stays right for r ≫ k, where a series in r/k is useless.

    Examples
    --------
    >>> predict_bias(np.array([1.15]), np.array([188.0]), 64)
    Predicted(bias=1.36996..., trusted=False)
    >>> predict_bias(np.array([1.15]), np.array([188.0]), 64, variant="outside")
    Predicted(bias=-0.008984375, trusted=True)
    """
    v = _checks.numpy_vector("variance", variance, dtype=np.float64)
    r = _checks.numpy_vector("ratio", ratio, length=v.size, dtype=np.float64)
    k = _checks.integer("n_negatives", n_negatives, low=1)
    _checks.one_of("variant", variant, VARIANTS)
    mu = None if third is None else _checks.numpy_vector("third", third, length=v.size, dtype=np.float64)
    trusted = k >= ruled_from(v, r, variant=variant)
    return Predicted(float(bias_curve(v, r, np.array([float(k)]), variant=variant, third=mu)[0]), trusted)


def ruled_from(variance: FloatArray, ratio: FloatArray, *, variant: str) -> float:
    """Compute the k from which on 1/k is the leading law of the bias.

    Ten times E V² / E V; with the positive in the denominator also ten times E r² / E r, below which the positive
    itself, and not the noise of the negatives, rules the loss.
    """
    sizes = [variance] if variant == "outside" else [variance, ratio]
    return float(10 * max((x @ x) / max(x.sum(), 1e-300) for x in sizes))


def bias_curve(
    variance: FloatArray, ratio: FloatArray, k: FloatArray, *, variant: str, third: FloatArray | None = None
) -> FloatArray:
    """Compute the predicted bias for each of the sizes `k`, which need not be whole numbers."""
    v, r = variance, ratio if variant != "outside" else np.zeros_like(ratio)
    out = np.empty(k.size)
    for i, size in enumerate(k):
        terms = np.log1p(r / size) - v * size / (2 * (size + r) ** 2)
        if third is not None:
            terms = terms + third * size / (3 * (size + r) ** 3) - 0.75 * v**2 * size**2 / (size + r) ** 4
        out[i] = terms.mean() - (np.log1p(1 / size) if variant == "corpus" else 0.0)
    return out


def smallest_size(
    variance: FloatArray, ratio: FloatArray, tolerance: float, *, variant: str, third: FloatArray | None = None
) -> int:
    """Find the smallest k from which on the predicted bias stays within ±tolerance.

    The bias may cross 0 on its way, so the search comes down from a k that is certainly large enough.
    """

    def excess(sizes: FloatArray) -> FloatArray:
        return np.abs(bias_curve(variance, ratio, sizes, variant=variant, third=third)) - tolerance

    # |bias| ≤ (r̄ + V̄/2 + 1)/k to first order, and 100 times that leaves room for the second order.
    top = max(2.0, 100 * (ratio.mean() + variance.mean() + 1) / tolerance)
    grid = np.geomspace(1.0, top, 400)
    wrong = np.flatnonzero(excess(grid) > 0)
    if wrong.size == 0:
        return 1
    low, high = grid[wrong[-1]], grid[min(wrong[-1] + 1, grid.size - 1)]
    while high - low > 1e-9 * high and np.ceil(low) != np.ceil(high):
        middle = (low + high) / 2
        low, high = (middle, high) if excess(np.array([middle]))[0] > 0 else (low, middle)
    return int(np.ceil(high))
