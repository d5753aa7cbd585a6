"""Continuity of the InfoNCE loss in the embeddings, with averages over the negatives.

Two encoders give one tuple (query u, positive v, negatives z_j) two sets of unit vectors, with distances
δu = ‖u − u′‖, δv and d_j. Every form below bounds |loss − loss′|; apart from "logit" and "endpoint", which use
the weights of both encoders, each is (P/τ)(2 δu + δv + N(d)) and differs in the norm N of the d_j:

========= ============================================== =======================================
form      N(d)                                           when it is the good one
========= ============================================== =======================================
tightest  worst weighted mean with weights e^±(1/τ)      always: no smaller function of d exists
max       max d_j                                        τ → 0
average   κ mean d, κ = 1/(e^(−2/τ) + 1/k)               τ ≥ 2, or d nearly constant
tv        mean d + tanh(1/(2τ)) (max d − min d)          τ ≥ 1
chi2      mean d + sinh(1/τ) sd(d)                       τ ≥ 0.5
holder    e^(2/(τβ)) (mean d^β)^(1/β)                    β = 1 average, β = ∞ max, β = 2/τ between
gibbs     (log mean e^(βd) + min(KL(2/τ), log k))/β      β trades mean for max
========= ============================================== =======================================

As τ → 0 a bounded factor forces β ∝ 1/τ, and every mean turns into the max: few negatives decide.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from latentlink import _checks
from latentlink.risk.estimators import FloatArray
from latentlink.risk.temperature import shift_bounds

FORMS = ("logit", "endpoint", "tightest", "max", "average", "tv", "chi2", "holder", "gibbs")


@dataclass(frozen=True)
class ContinuityBound:
    """A bound on |loss − loss′| of each tuple.

    Attributes
    ----------
    value : array (n,)
        Nats.
    vacuous : bool array (n,)
        Where the bound is no smaller than the range of the loss, and so says nothing.
    form : str
    assumptions : tuple of str
    """

    value: FloatArray
    vacuous: np.ndarray[Any, np.dtype[np.bool_]]
    form: str
    assumptions: tuple[str, ...]


def loss_range(n_negatives: int, temperature: float, *, variant: str = "inside") -> float:
    """Compute the largest difference between two values of the loss at k negatives.

    inside: log((1 + k e^(2/τ))/(1 + k e^(−2/τ))); outside: 4/τ.

    Examples
    --------
    >>> round(loss_range(16, 1.0), 6), loss_range(16, 1.0, variant="outside")
    (3.628743, 4.0)
    """
    k = _checks.integer("n_negatives", n_negatives, low=1)
    tau = _checks.number("temperature", temperature, low=0, open_low=True)
    _checks.one_of("variant", variant, ("inside", "outside"))
    if variant == "outside":
        return 4 / tau
    return float(np.logaddexp(0, np.log(k) + 2 / tau) - np.logaddexp(0, np.log(k) - 2 / tau))


def weight_cap(n_negatives: int, temperature: float) -> float:
    """Compute κ = 1/(e^(−2/τ) + 1/k): how many times an even share one negative's weight can be, inside.

    Examples
    --------
    >>> round(weight_cap(16, 0.5), 4)
    12.3738
    """
    k = _checks.integer("n_negatives", n_negatives, low=1)
    tau = _checks.number("temperature", temperature, low=0, open_low=True)
    return float(1 / (np.exp(-2 / tau) + 1 / k))


def continuity_bound(
    first: tuple[Any, Any, Any],
    second: tuple[Any, Any, Any],
    temperature: float,
    *,
    form: str = "tightest",
    beta: float | None = None,
    variant: str = "inside",
) -> ContinuityBound:
    """Bound how much the loss of each tuple changes between two encoders.

    Parameters
    ----------
    first, second : (queries (n, d), positives (n, d), negatives (n, k, d))
        Unit vectors of the same n tuples by either encoder.
    temperature : float
        τ > 0.
    form : str
        One of `FORMS`; see the table above.
    beta : float, optional
        ≥ 1 for "holder" (2/τ, or 1 above τ = 2, when left out), > 0 for "gibbs" (likewise).
    variant : {"inside", "outside"}
        Positive in the denominator or not.

    Returns
    -------
    ContinuityBound

    Notes
    -----
    For vectors of norm at most ϱ put τ/ϱ² in place of τ in the weights, and ϱ/τ outside. Cost: n k d.

    Examples
    --------
    >>> u, z = np.array([[1.0, 0.0]]), np.array([[[0.0, 1.0], [-1.0, 0.0]]])
    >>> turned = np.array([[0.8, 0.6]])
    >>> continuity_bound((u, u, z), (turned, u, z), 1.0, form="max").value.round(3)
    array([1.185])
    """
    _checks.one_of("form", form, FORMS)
    _checks.one_of("variant", variant, ("inside", "outside"))
    tau = _checks.number("temperature", temperature, low=0, open_low=True)
    (u, v, z), (u2, v2, z2) = _tuples("first", first), _tuples("second", second)
    if z.shape != z2.shape or u.shape != u2.shape:
        raise _checks.InvalidInput(f"first and second differ in shape: {z.shape} and {z2.shape} of negatives.")
    k = z.shape[1]
    du, dv = np.linalg.norm(u - u2, axis=1), np.linalg.norm(v - v2, axis=1)  # (n,) each
    d = np.linalg.norm(z - z2, axis=2)  # (n, k)
    inside = variant == "inside"
    if form in ("logit", "endpoint"):
        value = _weighted((u, v, z), (u2, v2, z2), tau, du, dv, d, inside=inside, logit=form == "logit")
        about = "weights of both encoders at hand"
    else:
        if beta is not None:
            beta = _checks.number("beta", beta, low=1 if form == "holder" else 0, open_low=form == "gibbs")
        share = 1 / (1 + np.exp(-2 / tau) / k) if inside else 1.0
        norm = _norm(d, tau, form, max(1.0, 2 / tau) if beta is None else beta, share, inside=inside)
        value = share / tau * (2 * du + dv + norm)
        about = "any weights that cosines at this temperature allow"
    assumptions = ("unit vectors", "similarity is the inner product", about)
    return ContinuityBound(value, value >= loss_range(k, tau, variant=variant), form, assumptions)


def _norm(d: FloatArray, tau: float, form: str, beta: float, share: float, *, inside: bool) -> FloatArray:
    k = d.shape[1]
    least = float(np.exp(-2 / tau))
    mean, largest = d.mean(axis=1), d.max(axis=1)
    if form == "max":
        return np.asarray(largest)
    if form == "average":
        if inside:
            return np.asarray(weight_cap(k, tau) / share * mean)
        return np.asarray(mean / ((k - 1) / k * least + 1 / k))
    if form == "tv":
        return np.asarray(mean + np.tanh(1 / (2 * tau)) * (largest - d.min(axis=1)))
    if form == "chi2":
        with np.errstate(over="ignore"):
            spread = d.std(axis=1)
            return np.asarray(mean + np.where(spread > 0, np.sinh(1 / tau) * spread, 0.0))
    if form == "holder":
        safe = np.where(largest > 0, largest, 1.0)[:, None]
        power = largest * ((d / safe) ** beta).mean(axis=1) ** (1 / beta)
        with np.errstate(over="ignore"):
            return np.asarray(np.where(largest > 0, np.exp(2 / (tau * beta)) * power, 0.0))
    if form == "gibbs":
        shifted = np.log(np.exp(beta * (d - largest[:, None])).mean(axis=1)) + beta * largest
        return np.asarray((shifted + min(float(shift_bounds(2 / tau).kl), np.log(k))) / beta)
    # tightest: the largest weighted mean has large weights on the i largest d, for some i.
    ordered = -np.sort(-d, axis=1)
    top = np.cumsum(ordered, axis=1)  # (n, k)
    i = np.arange(1, k + 1)
    return np.asarray(((top + least * (top[:, -1:] - top)) / (i + least * (k - i))).max(axis=1))


def _weighted(
    first: tuple[FloatArray, FloatArray, FloatArray],
    second: tuple[FloatArray, FloatArray, FloatArray],
    tau: float,
    du: FloatArray,
    dv: FloatArray,
    d: FloatArray,
    *,
    inside: bool,
    logit: bool,
) -> FloatArray:
    """Bound by the weights at the two ends: log-sum-exp is convex, so no path between them is needed."""
    (own, s), (own2, s2) = _similarities(*first), _similarities(*second)
    values = []
    for plus, minus in ((own, s), (own2, s2)):
        top = np.maximum(minus.max(axis=1), plus)[:, None]
        w = np.exp((minus - top) / tau)
        total = w.sum(axis=1) + (np.exp((plus - top[:, 0]) / tau) if inside else 0.0)
        q = w / total[:, None]  # (n, k)
        if logit:
            values.append(np.abs((q * ((s - s2) - (own - own2)[:, None])).sum(axis=1)))
        else:
            values.append(q.sum(axis=1) * (2 * du + dv) + (q * d).sum(axis=1))
    return np.asarray(np.maximum(*values) / tau)


def _similarities(u: FloatArray, v: FloatArray, z: FloatArray) -> tuple[FloatArray, FloatArray]:
    return np.asarray((u * v).sum(axis=1)), np.asarray(np.einsum("nd,nkd->nk", u, z))


def _tuples(name: str, value: tuple[Any, Any, Any]) -> tuple[FloatArray, FloatArray, FloatArray]:
    members = _checks.sequence(name, value)
    if len(members) != 3:
        raise _checks.InvalidInput(
            f"{name} has {len(members)} members; needs queries, positives and negatives."
        )
    u = _checks.numpy_matrix(f"queries of {name}", members[0], dtype=np.float64)
    v = _checks.numpy_matrix(f"positives of {name}", members[1], dtype=np.float64)
    z = _checks.real(f"negatives of {name}", members[2])
    if u.shape != v.shape or z.ndim != 3 or z.shape[0] != u.shape[0] or z.shape[2] != u.shape[1] or not z.size:
        raise _checks.InvalidInput(
            f"{name} has shapes {u.shape}, {v.shape} and {z.shape}; needs (n, d), (n, d) and (n, k, d)."
        )
    norms = [np.linalg.norm(u, axis=1), np.linalg.norm(v, axis=1), np.linalg.norm(z, axis=2).ravel()]
    largest = float(max(norm.max() for norm in norms))
    if not largest <= 1 + 1e-4:
        raise _checks.InvalidInput(
            f"{name} has a vector of norm {largest:g}; needs unit vectors. Normalise the rows."
        )
    return u, v, z
