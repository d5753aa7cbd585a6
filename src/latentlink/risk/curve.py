"""The risk over the number of negatives: measured on disjoint blocks of a pool, and predicted from its moments."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from latentlink import _checks
from latentlink.links import Link
from latentlink.risk._measure import Vectors, check_pairs, positive_similarities, similarity_blocks
from latentlink.risk.estimators import FloatArray, RowStatistics, row_statistics
from latentlink.risk.expansion import VARIANTS, bias_curve, ruled_from
from latentlink.risk.gates import judge_rows


@dataclass(frozen=True)
class RiskCurve:
    """The normalised risk at several numbers of negatives.

    Attributes
    ----------
    sizes : int array (s,)
        Numbers of negatives k.
    measured, error : array (s,)
        Risk less log k (or log(k + 1) for "corpus") and its standard error, pool included.
    predicted : array (s,)
        Limit plus predicted bias.
    limit : float
        Jackknife estimate of the k → ∞ value.
    trusted : bool array (s,)
        Where 1/k is the leading law of the bias and the gates of the pool pass.
    variant : str
    """

    sizes: np.ndarray[Any, np.dtype[np.int64]]
    measured: FloatArray
    error: FloatArray
    predicted: FloatArray
    limit: float
    trusted: np.ndarray[Any, np.dtype[np.bool_]]
    variant: str

    def plot(self) -> Any:
        """Draw the curve; needs the extra `report`."""
        from latentlink.report.risk_plots import plot_risk_curve

        return plot_risk_curve(self)


def risk_curve(
    queries: Any,
    positives: Any,
    pool: Any,
    sizes: Sequence[int],
    temperature: float = 0.1,
    *,
    variant: str = "inside",
    link: Link | None = None,
    seed: int = 0,
) -> RiskCurve:
    """Measure and predict the risk at several numbers of negatives.

    Parameters
    ----------
    queries, positives : array or tensor (n, d)
    pool : array, memory map or tensor (N, d)
    sizes : sequence of int
        From 1 to N.
    temperature : float
        > 0; ignored when `link` is given.
    variant : {"inside", "corpus", "outside"}
    link : Link, optional
    seed : int
        Of the order in which the pool is cut into blocks.

    Returns
    -------
    RiskCurve

    Notes
    -----
    At size k the pool gives N // k disjoint blocks of negatives to every query: unbiased at k. Cost: one pass
    over the pool.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> items, pool = rng.normal(size=(300, 16)), rng.normal(size=(2048, 16))
    >>> noisy = items + 0.5 * rng.normal(size=items.shape)
    >>> curve = risk_curve(noisy, items, pool, [16, 256], temperature=0.5, variant="outside")
    >>> bool(np.all(np.abs(curve.measured - curve.predicted) < 3 * curve.error))
    True
    """
    link = Link.of(link, temperature)
    _checks.one_of("variant", variant, VARIANTS)
    q, p = check_pairs(queries, positives)
    candidates = Vectors.of("pool", pool)
    _checks.same_columns(queries=q.rows, pool=candidates.rows)
    wanted = _checks.sequence("sizes", sizes)
    ks = np.array([_checks.integer("sizes", size, low=1, high=candidates.n) for size in wanted])
    positive = np.asarray(link.logits(positive_similarities(q, p)))
    order = _checks.generator(seed).permutation(candidates.n)
    losses: list[list[FloatArray]] = [[] for _ in ks]
    parts = []
    for span, block in similarity_blocks(q, candidates, show=False):
        logits = np.asarray(link.logits(block))[:, order]
        parts.append(row_statistics(positive[span], logits))
        for i, k in enumerate(ks):
            losses[i].append(_block_losses(positive[span], logits, int(k), variant))
    rows = RowStatistics.joined(parts)
    measured, error = np.empty(ks.size), np.empty(ks.size)
    for i, k in enumerate(ks):
        table = np.concatenate(losses[i])  # (n, N // k)
        measured[i] = table.mean() - np.log(k + (variant == "corpus"))
        between = table.mean(axis=0).var(ddof=1) / table.shape[1] if table.shape[1] > 1 else _pool_part(rows)
        error[i] = np.sqrt(table.mean(axis=1).var(ddof=1) / q.n + between)
    limit = float(rows.jackknife.mean())
    third = rows.third if bool(np.isfinite(rows.third).all()) else None
    bias = bias_curve(rows.variance, rows.ratio, ks.astype(float), variant=variant, third=third)
    trusted = (ks >= ruled_from(rows.variance, rows.ratio, variant=variant)) & (
        judge_rows(rows).verdict == "trust"
    )
    return RiskCurve(ks, measured, error, limit + bias, limit, trusted, variant)


def _block_losses(positive: FloatArray, logits: FloatArray, k: int, variant: str) -> FloatArray:
    """Compute the loss of each query against each block of k columns: (b, N) to (b, N // k)."""
    blocks = logits.shape[1] // k
    cut = logits[:, : blocks * k].reshape(logits.shape[0], blocks, k)
    top = cut.max(axis=2, keepdims=True)
    outside = np.log(np.exp(cut - top).sum(axis=2)) + top[:, :, 0] - positive[:, None]
    return np.asarray(outside if variant == "outside" else np.logaddexp(0.0, outside))


def _pool_part(rows: RowStatistics) -> float:
    mass = rows.mass * (rows.mass.size / rows.low.size)
    return float(mass.var(ddof=1)) / mass.size
