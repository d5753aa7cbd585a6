"""How many negatives, how many pairs, what temperature: the certificate read backwards."""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

import numpy as np

from latentlink import _checks
from latentlink.links import Link
from latentlink.risk._measure import Vectors, against_pool, check_pairs, similarity_blocks
from latentlink.risk.certificate import certify
from latentlink.risk.estimators import RowStatistics, known_rows
from latentlink.risk.expansion import VARIANTS, smallest_size
from latentlink.risk.gates import TRUST, judge_rows


@dataclass(frozen=True)
class Needed:
    """An answer with what it rests on.

    Attributes
    ----------
    value : int or float
        Number of negatives or of pairs, or the temperature.
    trusted : bool
        Whether the gates of the data behind it passed.
    advice : str
    """

    value: float
    trusted: bool
    advice: str

    def __int__(self) -> int:
        return int(self.value)

    def __float__(self) -> float:
        return float(self.value)

    def __str__(self) -> str:
        return self.advice


def negatives_needed(
    queries: Any,
    positives: Any,
    pool: Any,
    temperature: float = 0.1,
    tolerance: float = 0.01,
    *,
    variant: str = "inside",
    link: Link | None = None,
) -> Needed:
    """Say how many negatives bring the risk within a tolerance of its k → ∞ limit, and keep it there.

    Parameters
    ----------
    queries, positives : array or tensor (n, d)
        Held-out pairs, as in `certify`.
    pool : array or tensor (N, d)
    temperature : float
        > 0; ignored when `link` is given.
    tolerance : float
        Nats, > 0.
    variant : {"inside", "corpus", "outside"}
        Which risk: the positive in the denominator less log k (InfoNCE as logged), less log(k + 1), or the
        positive outside the denominator less log k.
    link : Link, optional

    Returns
    -------
    Needed
        `value` is the number of negatives.

    Notes
    -----
    This is about the bias of the mean loss, not about its fluctuation, which more negatives do not remove. With
    the positive inside, the density of the search at the positive rules: aligned encoders at a low temperature
    need thousands of times more negatives than with the positive outside. Cost as `certify`.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> items, pool = rng.normal(size=(200, 16)), rng.normal(size=(1000, 16))
    >>> noisy = items + 0.5 * rng.normal(size=items.shape)
    >>> inside = negatives_needed(noisy, items, pool, temperature=0.5)
    >>> outside = negatives_needed(noisy, items, pool, temperature=0.5, variant="outside")
    >>> int(inside) > 10 * int(outside), inside.trusted
    (True, True)
    """
    link = Link.of(link, temperature)
    q, p = check_pairs(queries, positives)
    candidates = Vectors.of("pool", pool)
    _checks.same_columns(queries=q.rows, pool=candidates.rows)
    return negatives_for(against_pool(q, p, candidates, link).rows, tolerance, variant=variant)


def negatives_for(rows: RowStatistics, tolerance: float, *, variant: str = "inside") -> Needed:
    """Answer `negatives_needed` from statistics at hand."""
    known_rows(rows)
    tolerance = _checks.number("tolerance", tolerance, low=0, open_low=True)
    _checks.one_of("variant", variant, VARIANTS)
    third = rows.third if bool(np.isfinite(rows.third).all()) else None
    count = smallest_size(rows.variance, rows.ratio, tolerance, variant=variant, third=third)
    judged = judge_rows(rows)
    trusted = judged.verdict == TRUST
    words = f"{count:,} negatives bring the risk ({variant}) within {tolerance:g} nat of its limit."
    if not trusted:
        words += f" The pool cannot vouch for that: {judged.advice}"
    return Needed(count, trusted, words)


def pairs_needed(
    queries: Any,
    positives: Any,
    pool: Any,
    temperature: float = 0.1,
    half_width: float = 0.05,
    *,
    level: float = 0.95,
    link: Link | None = None,
) -> Needed:
    """Say how many held-out pairs give an interval of a wanted half-width.

    Parameters
    ----------
    queries, positives : array or tensor (n, d)
        A first sample of held-out pairs.
    pool : array or tensor (N, d)
    temperature : float
        > 0; ignored when `link` is given.
    half_width : float
        Nats, > 0.
    level : float
        In (0, 1).
    link : Link, optional

    Returns
    -------
    Needed
        `value` is the number of pairs when half of the squared width is theirs; `advice` names the size of the
        pool that the other half needs, since more pairs do not make up for a small pool.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> items, pool = rng.normal(size=(200, 16)), rng.normal(size=(1000, 16))
    >>> noisy = items + 0.5 * rng.normal(size=items.shape)
    >>> wide = pairs_needed(noisy, items, pool, temperature=0.5, half_width=0.1)
    >>> narrow = pairs_needed(noisy, items, pool, temperature=0.5, half_width=0.05)
    >>> round(int(narrow) / int(wide))
    4
    """
    width = _checks.number("half_width", half_width, low=0, open_low=True)
    level = _checks.number("level", level, low=0, high=1, open_low=True)
    c = certify(queries, positives, pool, temperature, level, link=link, leaks="allow", progress=False)
    z = NormalDist().inv_cdf((1 + level) / 2)
    count = math.ceil(2 * (z / width * c.query_error) ** 2 * c.n_pairs)
    wide = math.ceil(2 * (z / width * c.pool_error) ** 2 * c.n_negatives)
    words = f"{count:,} pairs and {wide:,} candidates give a half-width of {width:g} nat at level {level:g}."
    trusted = c.verdict == TRUST
    return Needed(count, trusted, words if trusted else f"{words} The pool cannot vouch for that: {c.advice}")


def temperature_needed(
    queries: Any, pool: Any, n_negatives: int | None = None, tolerance: float = 0.01
) -> Needed:
    """Say from which temperature on the noise of k negatives costs no more than a tolerance.

    Parameters
    ----------
    queries : array or tensor (n, d)
    pool : array, memory map or tensor (N, d)
    n_negatives : int, optional
        k ≥ 1; the size of the pool when left out.
    tolerance : float
        Nats, > 0.

    Returns
    -------
    Needed
        `value` is the least τ with V̄(τ)/(2k) ≤ tolerance, V̄ the mean χ² distance of the search law from the
        data law; `trusted` is False where the pool is too small to see V̄ there (V̄/N > 0.1).

    Notes
    -----
    One pass over the pool for each of about 15 temperatures. Without any data, 2/log(k tolerance) would do.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> needed = temperature_needed(rng.normal(size=(50, 16)), rng.normal(size=(2000, 16)))
    >>> 0.05 < float(needed) < 0.2, needed.trusted
    (True, True)
    """
    from scipy.optimize import brentq

    q, candidates = Vectors.of("queries", queries), Vectors.of("pool", pool)
    _checks.same_columns(queries=q.rows, pool=candidates.rows)
    size = candidates.n
    k = size if n_negatives is None else _checks.integer("n_negatives", n_negatives, low=1)
    tolerance = _checks.number("tolerance", tolerance, low=0, open_low=True)
    if size < 2:
        raise _checks.InvalidInput("pool has 1 row; needs at least 2.")

    def variance(inverse: float) -> float:
        total = 0.0
        for _, block in similarity_blocks(q, candidates, show=False):
            w = np.exp((block - block.max(axis=1, keepdims=True)) * inverse)
            total += float((size * (w * w).sum(axis=1) / w.sum(axis=1) ** 2 - 1).sum())
        return total / q.n * size / (size - 1)

    def excess(log_inverse: float) -> float:
        return variance(math.exp(log_inverse)) - 2 * k * tolerance

    hot, cold = -math.log(1e3), -math.log(1e-3)
    if excess(cold) <= 0:
        return Needed(
            1e-3, False, f"On this pool every temperature above 0.001 will do; {size} rows see no more."
        )
    # At an infinite temperature V̄ is 0, so the root is there unless the tolerance is below rounding.
    found = math.exp(-brentq(excess, hot, cold, xtol=1e-6)) if excess(hot) < 0 else math.exp(-hot)
    trusted = variance(1 / found) <= 0.1 * size
    words = f"From temperature {found:.3g} on, {k:,} negatives cost at most {tolerance:g} nat of noise."
    if k * tolerance > 1:
        words += f" For every encoder alike it would be {2 / math.log(k * tolerance):.3g}."
    return Needed(found, trusted, words if trusted else f"{words} The pool is too small to be sure.")
