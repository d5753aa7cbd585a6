"""What the top of a query's similarities says, cheaply enough for every training step.

From the k + 1 smallest shortfalls d_1 <= … <= d_u (endpoint − similarity, of negatives) each query gets a gap,
an exponent beta, the evidence for a bounded tail, and from these the blend of its logit. All is closed form, on
NumPy arrays and tensors alike, and nothing here is differentiated.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from latentlink import _checks
from latentlink._arrays import Array, namespace

# Exponents outside this range are not told apart by a batch's tail, and steeper logits only add noise.
BETA_RANGE = (0.5, 16.0)
# Shortfalls below are rounding of a float32 cosine.
_SMALLEST = 1e-6
# The gate of the likelihood rule looks at this order statistic, not at the first: one duplicated item brings
# two views at shortfall 0 and would open the gate exactly where the label is wrong.
_GATE_RANK = 3
# Fewer points say nothing: see Gate.columns.
_FEWEST = 10
_LEAST_BLEND = 1e-3


@dataclass(frozen=True)
class Gate:
    """Rule that turns a query's top shortfalls into its beta and blend.

    Attributes
    ----------
    evidence : {"likelihood", "regression", "gap"}
        "likelihood": twice the log-likelihood ratio of a power law that ends at the endpoint against an
        exponential excess, both with one parameter. "regression": the difference of "AIC" of two regression
        lines, as released with the WEINCE paper; it is positive on nearly every law, so it does not gate.
        "gap": no evidence, the gap alone.
    beta : {"estimated", "unit"} or float
        Exponent of the shortfall logit: from the tail, clipped to [0.5, 16]; 1; or a number > 0.
    pivot : float or None
        Gap at which the gate is half open. None takes the batch's own `quantile` of the gaps; then that share
        of queries is always above a half, endpoint or not.
    quantile : float
        Used when `pivot` is None.
    gap_sharpness, margin, evidence_sharpness : float
        blend = sigmoid(gap_sharpness log(pivot / gap)) · sigmoid(evidence_sharpness (evidence − margin)).
    tail_size : int or None
        Number of tail points; None is the released rule, a tenth of the negatives and at least 32.
    floor, softening : float
        The shortfall logit is −beta log(max(shortfall, floor) + softening).
    """

    evidence: str = "likelihood"
    beta: str | float = "estimated"
    pivot: float | None = 0.05
    quantile: float = 0.2
    gap_sharpness: float = 10.0
    margin: float = 2.0
    evidence_sharpness: float = 1.0
    tail_size: int | None = 64
    floor: float = 0.0
    softening: float = 1e-3

    def __post_init__(self) -> None:
        _checks.one_of("evidence", self.evidence, ["likelihood", "regression", "gap"])
        if isinstance(self.beta, str):
            _checks.one_of("beta", self.beta, ["estimated", "unit"])
        else:
            _checks.number("beta", self.beta, low=0, open_low=True)
        if self.pivot is not None:
            _checks.number("pivot", self.pivot, low=0, open_low=True)
        _checks.number("quantile", self.quantile, low=0, high=1)
        _checks.number("gap_sharpness", self.gap_sharpness, low=0, open_low=True)
        _checks.number("margin", self.margin)
        _checks.number("evidence_sharpness", self.evidence_sharpness, low=0, open_low=True)
        if self.tail_size is not None:
            _checks.integer("tail_size", self.tail_size, low=_FEWEST)
        _checks.number("floor", self.floor, low=0)
        _checks.number("softening", self.softening, low=0)
        if self.floor + self.softening <= 0:
            raise _checks.InvalidInput(
                "floor and softening are both 0; needs one > 0, or the logit of a duplicate is infinite."
            )

    def columns(self, n_negatives: int) -> int:
        """Count the smallest shortfalls a query must bring; 0 when the batch is too small to say anything.

        "likelihood" takes k + 1 of them, k at most half the negatives and at least 10.
        """
        if self.evidence == "likelihood":
            k = min(self.tail_size or released_tail_size(n_negatives), n_negatives // 2)
            return k + 1 if k >= _FEWEST else 0
        wanted = released_tail_size(n_negatives) if self.tail_size is None else self.tail_size
        return min(wanted, n_negatives)

    @property
    def reach(self) -> float:
        """Gap above which a query's blend is 0 whatever its tail; infinity when only the tail can tell."""
        if self.evidence != "likelihood" or self.pivot is None:
            return math.inf
        return self.pivot * math.exp(math.log(1 / _LEAST_BLEND - 1) / self.gap_sharpness)

    def statistics(self, shortfalls: Array) -> QueryStatistics:
        """Compute gap, beta, evidence and blend of each query.

        Parameters
        ----------
        shortfalls : array or tensor (n, `columns`)
            The smallest shortfalls of each query's negatives, ascending; infinity where a query has fewer. Such
            a query, and one whose tail is a single repeated value, gets evidence 0 and blend 0.

        Returns
        -------
        QueryStatistics
        """
        xp = namespace(shortfalls)
        n, columns = shortfalls.shape
        if n == 0 or columns == 0:
            zero = xp.zeros_like(shortfalls[:, 0]) if columns else xp.sum(shortfalls, axis=1)
            return QueryStatistics(
                gap=zero + math.inf, beta=zero + 1.0, evidence=zero, blend=zero, pivot=zero[:1]
            )
        d = xp.clip(shortfalls, _SMALLEST, None)
        gap = d[:, 0]
        known = xp.isfinite(d[:, -1])
        d = xp.where(known[:, None], d, xp.ones_like(d))
        if self.evidence == "likelihood":
            beta, evidence, known_tail = _likelihood(d, xp)
            known = known & known_tail
            gated = d[:, min(_GATE_RANK, columns) - 1]
        else:
            beta, evidence = _regression(d, xp)
            gated = gap
        if self.pivot is not None:
            pivot = xp.ones_like(gap[:1]) * self.pivot
        else:
            enough = columns - _burn_in(columns) >= 2
            place = round(self.quantile * (n - 1)) if enough else (n - 1) // 2
            pivot = xp.sort(gap)[place : place + 1]
        blend = _sigmoid(self.gap_sharpness * (xp.log(pivot) - xp.log(gated)), xp)
        if self.evidence != "gap":
            blend = blend * _sigmoid(self.evidence_sharpness * (evidence - self.margin), xp)
        zero = xp.zeros_like(gap)
        blend = xp.where(known, blend, zero)
        if self.evidence == "likelihood":  # so small a share changes nothing: such a query is plain InfoNCE
            blend = xp.where(blend < _LEAST_BLEND, zero, blend)
        if self.beta == "estimated":
            beta = xp.where(known, xp.clip(beta, *BETA_RANGE), xp.ones_like(gap))
        else:
            beta = xp.ones_like(gap) * (1.0 if self.beta == "unit" else float(self.beta))
        return QueryStatistics(gap, beta, xp.where(known, evidence, zero), blend, pivot)


@dataclass(frozen=True)
class QueryStatistics:
    """What the tails of one batch say, one value a query; detached from any graph.

    Attributes
    ----------
    gap : (n,)
        Endpoint minus the largest negative similarity; infinity when there are no negatives.
    beta : (n,)
        Exponent used in the shortfall logit.
    evidence : (n,)
        Evidence for a bounded tail: above 0 it is likelier than an exponential one.
    blend : (n,)
        Share of the shortfall logit, in [0, 1]; 0 is InfoNCE.
    pivot : (1,)
        Gap at which the gate is half open.
    """

    gap: Array
    beta: Array
    evidence: Array
    blend: Array
    pivot: Array

    @property
    def share_near_endpoint(self) -> float:
        """Share of queries whose gap is below the pivot."""
        return _mean(self.gap < self.pivot)

    @property
    def share_blended(self) -> float:
        """Share of queries with a blend above 0.1: those for which the loss is not InfoNCE."""
        return _mean(self.blend > 0.1)


def released_tail_size(n_negatives: int) -> int:
    """Count the tail points of the released rule: a tenth of the negatives, at least 32.

    >>> released_tail_size(510), released_tail_size(2046), released_tail_size(14)
    (51, 205, 14)
    """
    return min(n_negatives, max(10, max(32, round(0.10 * n_negatives))))


def _likelihood(d: Array, xp: Any) -> tuple[Array, Array, Array]:
    """Fit both one-parameter laws below d_u: (n, k + 1) to beta (n,), twice the log ratio (n,), known (n,)."""
    k = d.shape[1] - 1
    edge = d[:, -1]  # (n,)
    logs = xp.log(edge)[:, None] - xp.log(d[:, :-1])  # (n, k), >= 0
    known = logs[:, 0] > 1e-3
    total = xp.where(known, xp.sum(logs, axis=1), xp.ones_like(edge))
    excess = xp.where(known, xp.mean(edge[:, None] - d[:, :-1], axis=1), edge)
    likeliest = k / total
    evidence = 2 * k * (xp.log(likeliest) + 1 / likeliest + xp.log(excess / edge))
    return (k - 1) / total, evidence, known  # k − 1: unbiased


def _regression(d: Array, xp: Any) -> tuple[Array, Array]:
    """Fit the two released lines: tails (n, k) to beta (n,) and the difference of their "AIC" (n,)."""
    k = d.shape[1]
    first = _burn_in(k)
    n_points = k - first
    if n_points < 2:
        return xp.zeros_like(d[:, 0]), xp.zeros_like(d[:, 0])
    x = xp.log(d[:, first:])
    x = x - xp.mean(x, axis=1, keepdims=True)  # (n, points)
    ranks = [(j + 1) / (k + 1) for j in range(first, k)]
    slope, error_power = _line(x, [math.log(rank) for rank in ranks], xp)
    rival_slope, error_rival = _line(x, [math.log(-math.log(rank)) for rank in ranks], xp)
    penalty = 1e6 * xp.ones_like(slope)
    error_power = error_power + xp.where(slope <= 0, penalty, 0 * penalty)
    error_rival = error_rival + xp.where(rival_slope >= 0, penalty, 0 * penalty)
    return xp.clip(slope, 0.0, None), n_points * xp.log(error_rival / error_power)


def _line(x: Array, y: list[float], xp: Any) -> tuple[Array, Array]:
    """Regress y on the centred x of each row: slope (n,) and residual sum of squares (n,)."""
    mean = math.fsum(y) / len(y)
    response = xp.asarray([value - mean for value in y], dtype=x.dtype, device=x.device)  # (points,)
    slope = xp.sum(x * response, axis=1) / xp.clip(xp.sum(x * x, axis=1), 1e-12, None)
    residual = response[None, :] - slope[:, None] * x
    return slope, xp.clip(xp.sum(residual * residual, axis=1), 1e-12, None)


def _burn_in(k: int) -> int:
    return max(1, k // 20)


def _sigmoid(x: Array, xp: Any) -> Array:
    return xp.exp(-xp.logaddexp(xp.zeros_like(x), -x))


def _mean(flags: Array) -> float:
    return float(flags.sum()) / max(1, int(flags.shape[0]))
