"""How many negatives, how many pairs, what temperature: the certificate read backwards."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from latentlink import _checks
from latentlink.links import Link
from latentlink.risk._measure import Vectors, against_pool, check_pairs
from latentlink.risk.estimators import RowStatistics
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
    link = Link.softmax(temperature) if link is None else link
    tolerance = _checks.number("tolerance", tolerance, low=0, open_low=True)
    _checks.one_of("variant", variant, VARIANTS)
    q, p = check_pairs(queries, positives)
    candidates = Vectors.of("pool", pool)
    _checks.same_columns(queries=q.rows, pool=candidates.rows)
    return negatives_for(against_pool(q, p, candidates, link).rows, tolerance, variant=variant)


def negatives_for(rows: RowStatistics, tolerance: float, *, variant: str = "inside") -> Needed:
    """Answer `negatives_needed` from statistics at hand."""
    third = rows.third if bool(np.isfinite(rows.third).all()) else None
    count = smallest_size(rows.variance, rows.ratio, tolerance, variant=variant, third=third)
    judged = judge_rows(rows)
    trusted = judged.verdict == TRUST
    words = f"{count:,} negatives bring the risk ({variant}) within {tolerance:g} nat of its limit."
    if not trusted:
        words += f" The pool cannot vouch for that: {judged.advice}"
    return Needed(count, trusted, words)
