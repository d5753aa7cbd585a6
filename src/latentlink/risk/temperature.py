"""Temperature as a regulariser: how far the search law can move from the data law, whatever the encoder.

Let Δ be the range of a query's logits over the candidates; for cosines at temperature τ it is at most 2/τ. All
bounds below depend on Δ alone and are attained by laws on two points. They are true at every temperature and do
not bind at low ones: at τ = 0.1 the bound on KL is 16 nats where a uniform law in 128 dimensions has 0.39.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from latentlink import _checks
from latentlink.links import Link
from latentlink.risk._measure import Vectors, check_pairs, positive_similarities, similarity_blocks
from latentlink.risk.estimators import FloatArray


class ShiftBounds(NamedTuple):
    """Sharp bounds on the distance of the search law Q from the data law, given the range of the logits."""

    density_low: Any
    density_high: Any
    kl: Any
    total_variation: Any
    chi2: Any


@dataclass(frozen=True)
class Shift:
    """Measured distances of each query's search law from the data law, beside their bounds.

    Attributes
    ----------
    kl, total_variation, chi2 : array (n,)
        Plug-in values on the pool; the first two are too large by O(1/N).
    oscillation : array (n,)
        Range of each query's logits over the pool.
    bounds : ShiftBounds
        From that range, (n,) each. A wider pool can widen the range.
    universal : ShiftBounds or None
        From the temperature alone, when the link is a softmax.
    """

    kl: FloatArray
    total_variation: FloatArray
    chi2: FloatArray
    oscillation: FloatArray
    bounds: ShiftBounds
    universal: ShiftBounds | None


def shift_bounds(oscillation: Any) -> ShiftBounds:
    """Bound how far a search law can be from the data law, from the range of its logits.

    Parameters
    ----------
    oscillation : array, any shape, or float
        Δ ≥ 0: largest minus smallest logit. 2/τ covers every encoder at temperature τ.

    Returns
    -------
    ShiftBounds
        Density in [e^−Δ, e^Δ]; KL (both ways) ≤ A − 1 − log A with A = Δ/(1 − e^−Δ); total variation ≤
        tanh(Δ/4); χ² ≤ sinh²(Δ/2). Infinite where a double cannot hold the value.

    Examples
    --------
    >>> bounds = shift_bounds(2 / 0.5)
    >>> round(float(bounds.kl), 4), round(float(bounds.total_variation), 4), round(float(bounds.chi2), 3)
    (1.6698, 0.7616, 13.154)
    """
    x = _checks.real("oscillation", oscillation)
    if not np.isfinite(x).all() or (x < 0).any():
        raise _checks.InvalidInput(f"oscillation is {oscillation!r}; needs numbers >= 0.")
    tiny = np.maximum(x, 1e-8)
    a = tiny / -np.expm1(-tiny)
    with np.errstate(over="ignore"):
        return ShiftBounds(
            density_low=np.exp(-x),
            density_high=np.exp(x),
            # Below 0.01 the difference cancels; the series has no odd terms.
            kl=np.where(x < 0.01, x**2 / 8 - x**4 / 576, a - 1 - np.log(a)),
            total_variation=np.tanh(x / 4),
            chi2=np.sinh(x / 2) ** 2,
        )


def measure_shift(queries: Any, pool: Any, temperature: float = 0.1, *, link: Link | None = None) -> Shift:
    """Measure how far each query's search law is from the data law, on a pool.

    Parameters
    ----------
    queries : array or tensor (n, d)
    pool : array, memory map or tensor (N, d)
    temperature : float
        > 0; ignored when `link` is given.
    link : Link, optional

    Returns
    -------
    Shift

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> shift = measure_shift(rng.normal(size=(20, 8)), rng.normal(size=(500, 8)), temperature=0.5)
    >>> bool((shift.kl <= shift.bounds.kl).all() and shift.bounds.kl.max() <= shift.universal.kl)
    True
    """
    link = Link.of(link, temperature)
    q, candidates = Vectors.of("queries", queries), Vectors.of("pool", pool)
    _checks.same_columns(queries=q.rows, pool=candidates.rows)
    if candidates.n < 2:
        raise _checks.InvalidInput("pool has 1 row; needs at least 2.")
    parts = []
    n = candidates.n
    for _, block in similarity_blocks(q, candidates, show=False):
        logits = np.asarray(link.logits(block))
        centred = logits - logits.max(axis=1, keepdims=True)
        w = np.exp(centred)
        mean = w.mean(axis=1, keepdims=True)
        w /= mean  # (b, N), the density at each candidate
        log_w = centred - np.log(mean)
        kl = (w * log_w).mean(axis=1)
        tv = np.abs(w - 1).mean(axis=1) / 2
        chi2 = ((w * w).mean(axis=1) - 1) * n / (n - 1)
        parts.append(np.stack([kl, tv, chi2, np.ptp(logits, axis=1)]))
    kl, tv, chi2, oscillation = np.concatenate(parts, axis=1)
    universal = shift_bounds(2 / link.temperature) if link.bounded else None
    return Shift(kl, tv, chi2, oscillation, shift_bounds(oscillation), universal)


def calibrate_temperature(
    queries: Any, positives: Any, pool: Any, *, low: float = 1e-3, high: float = 1e3
) -> float:
    """Find the temperature of least cross-entropy: where the search expects the similarity that positives have.

    The cross-entropy is convex in 1/τ with derivative E_Q s − E s⁺, so the root is unique.

    Parameters
    ----------
    queries, positives : array or tensor (n, d)
    pool : array, memory map or tensor (N, d)
    low, high : float
        Range searched, > 0.

    Returns
    -------
    float
        τ, to 1e-9 relative.

    Raises
    ------
    InvalidInput
        No root in the range: positives no more similar than the pool (no temperature helps), or more similar
        than the closest candidates (every lower temperature is better on this pool; widen it).

    Notes
    -----
    One pass over the pool for each of about 15 evaluations.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> items, pool = rng.normal(size=(200, 8)), rng.normal(size=(2000, 8))
    >>> noisy = items + rng.normal(size=items.shape)
    >>> 0.1 < calibrate_temperature(noisy, items, pool) < 0.3
    True
    """
    q, p = check_pairs(queries, positives)
    candidates = Vectors.of("pool", pool)
    _checks.same_columns(queries=q.rows, pool=candidates.rows)
    wanted = float(positive_similarities(q, p).mean())

    def excess(inverse: float) -> float:
        total = 0.0
        for _, block in similarity_blocks(q, candidates, show=False):
            w = np.exp((block - block.max(axis=1, keepdims=True)) * inverse)
            total += float(((w * block).sum(axis=1) / w.sum(axis=1)).sum())
        return total / q.n - wanted

    return _root_temperature(excess, low, high)


def _root_temperature(excess: Any, low: float, high: float) -> float:
    from scipy.optimize import brentq

    low = _checks.number("low", low, low=0, open_low=True)
    high = _checks.number("high", high, low=low)
    if excess(1 / high) >= 0:
        raise _checks.InvalidInput(
            "positives are no more similar to the queries than the pool is; no temperature helps. Check the rows."
        )
    if excess(1 / low) <= 0:
        raise _checks.InvalidInput(
            f"positives are more similar than the closest candidates even at temperature {low:g}; "
            "a wider pool is needed."
        )
    found = brentq(lambda t: excess(math.exp(t)), -math.log(high), -math.log(low), xtol=1e-10, rtol=1e-10)
    return math.exp(-found)
