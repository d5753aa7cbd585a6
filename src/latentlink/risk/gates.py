"""May this estimate be trusted? Four checks on the weights, a verdict, and advice in words.

The thresholds were chosen on 24 simulated laws and held fixed since: of 360 fresh ones (four times the 90 of
tests/risk/test_gates.py) 180 passed every gate, 178 of them within 0.042 nat of the truth. The other two were 0.15
and 0.34 nat off: their near-duplicates were so rare that one was expected in all comparisons. No check of the data
alone can see that. Of the 180 refused, 27 were within 0.02 nat.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from latentlink.risk.estimators import RowStatistics, known_rows

_WIDTH, _NOISE, _NOISE_WARN, _TAIL, _FEWEST = 0.1, 0.3, 0.1, 2.0, 32
# A pool this many times wider is still worth drawing; beyond it the temperature is the remedy.
_WORTH_WIDENING = 10.0

TRUST, WIDEN, RAISE = "trust", "widen the pool", "raise the temperature"


class Gate(NamedTuple):
    """One check: `passed` when `value` keeps to `limit`."""

    name: str
    value: float
    limit: float
    passed: bool
    meaning: str


class Judgement(NamedTuple):
    """The gates with the verdict that follows from them."""

    gates: tuple[Gate, ...]
    verdict: str
    advice: str


def judge_rows(rows: RowStatistics) -> Judgement:
    """Check the statistics of all queries.

    Parameters
    ----------
    rows : RowStatistics

    Returns
    -------
    Judgement
        verdict "trust" when all gates pass; "widen the pool" when a pool up to ten times wider would do;
        otherwise "raise the temperature".

    Examples
    --------
    >>> from latentlink.risk import row_statistics
    >>> flat = row_statistics(np.zeros(5), np.zeros((5, 64)))
    >>> judge_rows(flat).verdict
    'trust'
    """
    known_rows(rows)
    k = rows.n_negatives
    width = float(rows.up.mean() - rows.low.mean())
    noise = float(rows.variance.mean()) / k
    # Equal weights have neither width nor noise; the ratio then says nothing.
    tail = width / noise if noise > 1e-12 else 1.0
    gates = (
        Gate(
            "sandwich", width, _WIDTH, width <= _WIDTH, "width of the interval [low, up] that holds the limit"
        ),
        Gate("noise", noise, _NOISE_WARN, noise <= _NOISE_WARN, "variance of the weights over the negatives"),
        Gate("tail", tail, _TAIL, tail < _TAIL, "width over noise; a large value is a tail not yet seen"),
        Gate("negatives", float(k), _FEWEST, k >= _FEWEST, "number of negatives, at least"),
    )
    verdict = _verdict(gates, k, width, noise)
    return Judgement(gates, verdict, _advice(gates, verdict, rows, noise))


def _verdict(gates: tuple[Gate, ...], k: int, width: float, noise: float) -> str:
    if all(gate.passed for gate in gates):
        return TRUST
    wider = max(width / _WIDTH, noise / _NOISE_WARN, _FEWEST / k)
    unseen = not gates[2].passed
    return WIDEN if wider <= _WORTH_WIDENING and not unseen else RAISE


def _advice(gates: tuple[Gate, ...], verdict: str, rows: RowStatistics, noise: float) -> str:
    k, ratio = rows.n_negatives, float(rows.ratio.mean())
    words = []
    if verdict == TRUST:
        words.append(
            "All gates pass: the interval may be used. No data can rule out near-duplicates of the queries "
            f"that are rarer than one in {k * rows.low.size:,} comparisons."
        )
    else:
        failed = ", ".join(f"{g.name} {g.value:.3g} (limit {g.limit:g})" for g in gates if not g.passed)
        words.append(f"Not to be trusted as a point: {failed}.")
        if noise > _NOISE:
            words.append("Report the sandwich [low, up] instead.")
        if verdict == WIDEN:
            wanted = max(math.ceil(rows.variance.mean() / _NOISE_WARN), _FEWEST, 2 * k)
            words.append(f"Widen the pool from {k:,} to about {wanted:,} candidates.")
        else:
            words.append(
                "A few candidates carry the weight, so a wider pool helps slowly: raise the temperature "
                "(temperature_needed says how far)."
            )
    if ratio > k:
        words.append(
            f"The logged loss is saturated: the positive outweighs all {k:,} negatives together "
            f"({ratio:.3g} times the mean weight), so the loss with the positive inside says little."
        )
    return " ".join(words)


def carrying_share(losses: np.ndarray[tuple[int], np.dtype[np.float64]], part: float = 0.8) -> float:
    """Return the smallest share of queries whose losses make up `part` of the sum.

    >>> carrying_share(np.array([8.0, 1.0, 1.0, 0.0]))
    0.25
    """
    total = losses.sum()
    if total <= 0:
        return 1.0
    running = np.cumsum(np.sort(losses)[::-1])
    return float((np.searchsorted(running, part * total * (1 - 1e-12)) + 1) / losses.size)
