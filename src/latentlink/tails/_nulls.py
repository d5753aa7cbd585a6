"""Laws of test statistics under their null hypotheses, drawn once, and p-values from them.

Every statistic here has a null law that depends on the number of exceedances alone (and for normal similarities
on the number of candidates), so a simulated table gives exact tests: with b draws a p-value is (1 + draws at
least as extreme) / (1 + b). Seeds are fixed by k: the same data give the same p-value.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np

FloatArray = np.ndarray[Any, np.dtype[np.float64]]

# Draws of a null table: at most this many, and at most this many exceedances in all.
_DRAWS = 200_000
_EXCEEDANCES = 20_000_000


@lru_cache(maxsize=256)
def exponential_null(k: int) -> FloatArray:
    """Draw the sorted law of Greenwood's ratio of k exponential excesses."""
    rng = np.random.default_rng([k, 1])
    return _table(lambda n: rng.standard_exponential((n, k)), k)


@lru_cache(maxsize=256)
def normal_null(k: int, m: int) -> FloatArray:
    """Draw the sorted law of Greenwood's ratio of the k largest of m normal values over the next one.

    The largest values come from Rényi's representation, so that m values are never drawn.
    """
    from scipy import special

    rng = np.random.default_rng([k, m])

    def draw(n: int) -> FloatArray:
        arrivals = np.cumsum(rng.standard_exponential((n, k + 1)), axis=1)
        total = arrivals[:, -1] + rng.standard_gamma(max(m - k, 1), n)
        x = -special.ndtri(arrivals / total[:, None])  # (n, k + 1), the largest first
        return np.asarray(x[:, :k] - x[:, k:])

    return _table(draw, k)


def _table(draw: Callable[[int], FloatArray], k: int) -> FloatArray:
    n = min(_DRAWS, max(1000, _EXCEEDANCES // k))
    step = max(1, 1_000_000 // k)
    parts = []
    for start in range(0, n, step):
        y = draw(min(step, n - start))
        parts.append((y * y).mean(axis=1) / y.mean(axis=1) ** 2)
    table = np.sort(np.concatenate(parts))
    table.flags.writeable = False
    return table


def lower_p(null: FloatArray, statistic: FloatArray) -> FloatArray:
    """Return Monte Carlo p-values of small statistics: (1 + draws not above) / (1 + draws)."""
    return np.asarray((1 + np.searchsorted(null, statistic, side="right")) / (1 + null.size))


def upper_p(null: FloatArray, statistic: FloatArray) -> FloatArray:
    """Return Monte Carlo p-values of large statistics."""
    return np.asarray((1 + null.size - np.searchsorted(null, statistic, side="left")) / (1 + null.size))
