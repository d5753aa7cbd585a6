"""What one row of logits says about the k → ∞ risk: estimates, their weights, and how far to trust them.

Of a query with positive logit l⁺ and negative logits l_j, j = 1 … k, the softmax weights are
p_j = exp(l_j) / Σ exp(l). The quantity sought is h = −l⁺ + log E exp(l), the surprise of the positive relative
to the data law; −l⁺ + log mean exp(l_j) falls short of it by about V / (2k), V the χ² distance of the search
law from the data law. Five estimates differ in how they mend that.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from latentlink import _checks

FloatArray = np.ndarray[Any, np.dtype[np.float64]]

# 1 − p enters a logarithm and a denominator; one weight may round to 1.
_LARGEST_WEIGHT = 1.0 - 1e-15


@dataclass(frozen=True)
class RowStatistics:
    """Estimates of each query, from its positive logit and k negative logits.

    Attributes
    ----------
    low : array (n,)
        −l⁺ + log mean exp(l): too small by V / (2k) on average.
    jackknife : array (n,)
        `low` without its 1/k bias, by leaving out one negative at a time. The default estimate.
    delta : array (n,)
        low + V̂ / (2k).
    up : array (n,)
        Too large on average: with the mean of `low` it encloses the limit, without any constant.
    loss_inside, loss_outside : array (n,)
        The InfoNCE loss with the positive in the denominator, and without it.
    variance : array (n,)
        V̂, the χ² distance of the search law from the data law.
    third : array (n,)
        Third central moment of the weights relative to their mean; NaN below three negatives.
    ess : array (n,)
        Effective number of negatives, 1 / Σ p².
    ratio : array (n,)
        r̂ = k exp(l⁺) / Σ exp(l): density of the search law at the positive.
    largest : array (n,)
        The largest weight.
    mass : array (k,)
        Σ of weights over the queries, for each column: which candidates carry the search.
    n_negatives : int
    """

    low: FloatArray
    jackknife: FloatArray
    delta: FloatArray
    up: FloatArray
    loss_inside: FloatArray
    loss_outside: FloatArray
    variance: FloatArray
    third: FloatArray
    ess: FloatArray
    ratio: FloatArray
    largest: FloatArray
    mass: FloatArray
    n_negatives: int

    @property
    def mid(self) -> FloatArray:
        """The middle of `low` and `up` (n,): bias of order 1/k²."""
        return (self.low + self.up) / 2

    @classmethod
    def joined(cls, parts: list[RowStatistics]) -> RowStatistics:
        """Join blocks of queries over the same candidates."""
        rows = {
            name: np.concatenate([getattr(part, name) for part in parts])
            for name in cls.__dataclass_fields__
            if name not in ("mass", "n_negatives")
        }
        mass = np.sum([part.mass for part in parts], axis=0)
        return cls(**rows, mass=mass, n_negatives=parts[0].n_negatives)


def row_statistics(
    positive_logits: Any,
    negative_logits: Any,
    *,
    n_negatives: int | None = None,
    groups: Any = None,
) -> RowStatistics:
    """Estimate the k → ∞ surprise of each positive from finitely many negatives.

    Parameters
    ----------
    positive_logits : array (n,)
        Similarity / temperature, or any link's logit, of each query to its positive.
    negative_logits : array (n, k)
        Of each query to its negatives; −inf leaves an entry out.
    n_negatives : int, optional
        Number of entries in use in each row, at least 2; k when left out.
    groups : array (k,), optional
        Instance of each column, when several columns are views of one instance. Weights are averaged over the
        views first; k is then the number of instances, and `mass` has one entry an instance in sorted order.

    Returns
    -------
    RowStatistics

    Raises
    ------
    InvalidInput
        Fewer than two negatives, or shapes that do not fit.

    Notes
    -----
    Cost: n k exponentials and logarithms; memory: three arrays (n, k).

    References
    ----------
    Nowozin 2018 (jackknife of a log-mean-exp); the theory page of the documentation derives the others.

    Examples
    --------
    >>> rows = row_statistics(np.array([2.0]), np.array([[0.0, 1.0, -1.0, 0.5]]))
    >>> rows.low.round(3), rows.jackknife.round(3), rows.up.round(3)
    (array([-1.64]), array([-1.573]), array([-1.474]))
    """
    positive = _checks.numpy_vector("positive_logits", positive_logits, dtype=np.float64)
    logits = _checks.real("negative_logits", negative_logits)
    if logits.ndim != 2 or logits.shape[0] != positive.size:
        raise _checks.InvalidInput(
            f"negative_logits has shape {logits.shape}; needs ({positive.size}, k), a row for each query."
        )
    if groups is not None:
        logits = group_logits(logits, groups)
    k = logits.shape[1] if n_negatives is None else _checks.integer("n_negatives", n_negatives)
    if k < 2:
        raise _checks.InvalidInput(
            f"negative_logits has {k} negatives a row; needs at least 2. Widen the pool."
        )
    return _statistics(positive, logits, k)


def upper_with_virtual(positive_logits: Any, negative_logits: Any, largest_logit: float) -> FloatArray:
    """Estimate each surprise from above with one virtual negative of the largest possible logit.

    Parameters
    ----------
    positive_logits : array (n,)
    negative_logits : array (n, k)
        k ≥ 2.
    largest_logit : float
        No logit exceeds it: 1/τ for a softmax of cosines.

    Returns
    -------
    array (n,)
        Too large on average like `RowStatistics.up`, but within a bounded range. Loose where e^(1/τ) exceeds k
        times the mean weight.

    Examples
    --------
    >>> upper_with_virtual(np.array([2.0]), np.array([[0.0, 1.0, -1.0, 0.5]]), 2.0).round(3)
    array([-1.414])
    """
    logits = _checks.numpy_matrix("negative_logits", negative_logits, dtype=np.float64)
    n = logits.shape[0]
    positive = _checks.numpy_vector("positive_logits", positive_logits, length=n, dtype=np.float64)
    top = _checks.number("largest_logit", largest_logit, low=float(logits.max()))
    w = np.exp(logits - top)
    rest = (w.sum(axis=1, keepdims=True) - w + 1) / logits.shape[1]  # (n, k), mean weight without one, plus 1
    return np.asarray(top - positive + (np.log(rest) + w / rest).mean(axis=1) - 1)


def known_rows(rows: Any) -> None:
    """Raise when `rows` are no RowStatistics."""
    _checks.instance("rows", rows, RowStatistics, "RowStatistics, as row_statistics makes them")


def _tops(logits: FloatArray) -> FloatArray:
    """Take the largest logit of each row, (n, 1), which shows NaN and infinity without a look of its own."""
    top = logits.max(axis=1, keepdims=True)
    if not (top < np.inf).all():
        raise _checks.InvalidInput("negative_logits holds NaN or infinity; drop or mend the rows.")
    return np.asarray(top)


def group_logits(logits: FloatArray, groups: Any) -> FloatArray:
    """Average the weights of the views of each instance: (n, k) logits to (n, instances)."""
    _, place, sizes = np.unique(np.asarray(groups), return_inverse=True, return_counts=True)
    if place.shape != (logits.shape[1],):
        raise _checks.InvalidInput(
            f"groups has shape {np.shape(groups)}; needs ({logits.shape[1]},), one instance for each candidate."
        )
    order = np.argsort(place, kind="stable")
    starts = np.concatenate([[0], np.cumsum(sizes)[:-1]])
    top = _tops(logits)
    summed = np.add.reduceat(np.exp(logits - top)[:, order], starts, axis=1)  # (n, instances)
    with np.errstate(divide="ignore"):
        return np.asarray(np.log(summed / sizes) + top)


def _statistics(positive: FloatArray, logits: FloatArray, k: int) -> RowStatistics:
    top = _tops(logits)
    p = np.exp(logits - top)  # (n, k), weights before their sum is known
    total = p.sum(axis=1, keepdims=True)
    p /= total
    np.minimum(p, _LARGEST_WEIGHT, out=p)
    log_sum = (top + np.log(total))[:, 0]  # (n,), log Σ exp(l)
    squares = np.einsum("nk,nk->n", p, p)
    cubes = np.einsum("nk,nk,nk->n", p, p, p)
    mass = p.sum(axis=0)
    largest = p.max(axis=1)
    # Leaving out column j adds log(1 − p_j) to log_sum; both means are taken against the even weight 1/k, so
    # that equal logits give exactly 0 however large k is.
    odds = np.divide(p, 1 - p)
    mean_odds = odds.sum(axis=1) / k
    np.negative(p, out=p)
    np.log1p(p, out=p)
    leave_one_out = p.sum(axis=1) / k  # mean of log(1 − p_j)
    low = -positive + log_sum - np.log(k)
    even = np.log1p(-1 / k)
    variance = k / (k - 1) * (k * squares - 1)
    loss_outside = log_sum - positive
    return RowStatistics(
        low=low,
        jackknife=low - (k - 1) * (leave_one_out - even),
        delta=low + variance / (2 * k),
        up=low - even + leave_one_out + (k - 1) * mean_odds - 1,
        loss_inside=np.logaddexp(0.0, loss_outside),
        loss_outside=loss_outside,
        variance=variance,
        third=k**2 * (k**2 * cubes - 3 * k * squares + 2) / ((k - 1) * (k - 2)) if k > 2 else low * np.nan,
        ess=1 / squares,
        ratio=np.exp(-low),
        largest=largest,
        mass=mass,
        n_negatives=k,
    )
