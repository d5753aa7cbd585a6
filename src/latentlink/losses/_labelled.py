"""Losses whose positives are the rows of equal label, in memory of O(rows · d) for any layout of the labels.

Rows are sorted by label first. Pairs of equal label then lie in a band along the diagonal, so that the sums over
negatives take the engine's walk, in which few tiles need a mask, and the terms of the positives the band alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from latentlink.losses import blockwise
from latentlink.losses._choices import label_pair, labelled_rows
from latentlink.losses._walk import Pairs

_ROWS, _COLUMNS = 256, 512  # of a tile of the band


@dataclass(frozen=True)
class Sorted:
    """Ranks of the labels of rows and columns, ascending, on the device and on the host.

    `alone` says that the columns are the rows, so that a row does not meet itself.
    """

    rows: Tensor
    columns: Tensor
    host: tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]
    alone: bool

    def meet(self, rows: slice, columns: slice) -> bool:
        """Whether a tile holds any pair of equal label."""
        mine, others = self.host[0][rows], self.host[1][columns]
        return bool(mine[0] <= others[-1] and others[0] <= mine[-1])

    def band(self) -> Iterator[tuple[slice, slice]]:
        """Yield the rows and columns of tiles that together hold every pair of equal label."""
        mine, others = self.host
        for i in range(0, len(mine), _ROWS):
            rows = slice(i, min(i + _ROWS, len(mine)))
            first = int(np.searchsorted(others, mine[rows.start], "left"))
            last = int(np.searchsorted(others, mine[rows.stop - 1], "right"))
            for j in range(first, last, _COLUMNS):
                yield rows, slice(j, min(j + _COLUMNS, last))

    def positives(self, rows: slice, columns: slice) -> Tensor:
        """Tell the pairs of equal label of a tile: bool (a, b)."""
        equal = self.rows[rows, None] == self.columns[None, columns]
        return _clear_itself(equal, rows, columns, False) if self.alone else equal

    def counts(self) -> Tensor:
        """Count each row's positives, (n,)."""
        return torch.bincount(self.columns, minlength=int(self.host[0][-1]) + 1)[self.rows] - int(self.alone)


@dataclass(frozen=True)
class _ByLabel(Pairs):
    """Pairs without a positive by place: rows of equal label, or else the row itself, are no candidates."""

    labels: Sorted | None = None
    drop_equal: bool = True

    def exclude(self, tile: Tensor, rows: slice, columns: slice, value: float) -> Tensor:
        """Write `value` in place where a tile's pair does not take part."""
        if self.labels is None or not self.labels.meet(rows, columns):
            return tile
        if self.drop_equal:
            return tile.masked_fill_(self.labels.rows[rows, None] == self.labels.columns[None, columns], value)
        return _clear_itself(tile, rows, columns, value) if self.labels.alone else tile


def labelled_loss(
    embeddings: Any,
    labels: Tensor | None,
    reference: Any,
    reference_labels: Tensor | None,
    temperature: float | Tensor,
    denominator: str,
    *,
    normalize: bool,
) -> Tensor:
    """Compute the mean of the terms that `functional.choice_losses` gives for `labelled_choice`, reduced.

    With denominator "own" the mean is over pairs of a row and a positive of it; with "all" over rows that have a
    positive, of each the mean over its positives. Cost: two walks over all pairs, and one over those of equal
    label forward and back.
    """
    u, v, alone = labelled_rows(embeddings, reference, normalize)
    mine, others = label_pair(labels, reference_labels, u, v, alone)
    if not (u.shape[0] and v.shape[0]):
        return (u.sum() + v.sum()) * 0.0
    ranks = torch.unique(mine if alone else torch.cat([mine, others]), return_inverse=True)[1]
    row_ranks, order = ranks[: u.shape[0]].sort(stable=True)
    u = u[order]
    column_ranks, v = (row_ranks, u) if alone else _sorted(ranks[u.shape[0] :], v)
    found = Sorted(row_ranks, column_ranks, (row_ranks.cpu().numpy(), column_ranks.cpu().numpy()), alone)
    pairs = _ByLabel(u, v, alone, alone, normalize, 1.0, labels=found, drop_equal=denominator == "own")
    rate = blockwise.rate_of(temperature, u)
    sums = blockwise.negatives_log_sum(
        pairs, rate, blockwise.solve_plain(pairs, rate, blockwise.MEMORY)
    )  # (n,)
    count = found.counts()  # (n,)
    if denominator == "own":
        terms: Tensor = _BandTerms.apply(u, v, sums, rate, found)
        return terms.sum() / count.sum().clamp(min=1).to(terms)
    total = torch.zeros(int(ranks.max()) + 1, u.shape[1], dtype=u.dtype, device=u.device)
    total = total.index_add(0, column_ranks, v)[row_ranks]  # (n, d), the sum of each row's positives
    similarity = (u * (total - u if alone else total)).sum(dim=1) / count.clamp(min=1)
    each = torch.where(count > 0, sums - rate * similarity, 0.0)
    return each.sum() / (count > 0).sum().clamp(min=1).to(each)


class _BandTerms(torch.autograd.Function):
    """Σ over a row's positives of softplus(log-sum of its negatives − logit of the positive), (n,)."""

    @staticmethod
    def forward(ctx: Any, u: Tensor, v: Tensor, sums: Tensor, rate: Tensor, labels: Sorted) -> Tensor:
        ctx.save_for_backward(u, v, sums, rate)
        ctx.labels = labels
        terms = torch.zeros_like(sums)
        for rows, columns, gap in _gaps(u, v, sums, rate, labels):
            gap = torch.logaddexp(gap.new_zeros(()), gap)
            terms[rows] += gap.mul_(labels.positives(rows, columns)).sum(dim=1)
        return terms

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        u, v, sums, rate = ctx.saved_tensors
        du, dv, d_sums = torch.zeros_like(u), torch.zeros_like(v), torch.zeros_like(sums)
        for rows, columns, gap in _gaps(u, v, sums, rate, ctx.labels):
            pull = gap.sigmoid_().mul_(ctx.labels.positives(rows, columns)).mul_(upstream[rows, None])
            d_sums[rows] += pull.sum(dim=1)
            with torch.autocast(device_type=u.device.type, enabled=False):
                du[rows].addmm_(pull, v[columns], alpha=-1.0)
                dv[columns].addmm_(pull.T, u[rows], alpha=-1.0)
        return du * rate, dv * rate, d_sums, (du * u).sum(), None


def _gaps(
    u: Tensor, v: Tensor, sums: Tensor, rate: Tensor, labels: Sorted
) -> Iterator[tuple[slice, slice, Tensor]]:
    """Yield the tiles of the band with each pair's log-sum less its logit."""
    for rows, columns in labels.band():
        with torch.autocast(device_type=u.device.type, enabled=False):
            logits = (u[rows] * rate) @ v[columns].T
        yield rows, columns, sums[rows, None] - logits


def _sorted(ranks: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
    ascending, order = ranks.sort(stable=True)
    return ascending, rows[order]


def _clear_itself(tile: Tensor, rows: slice, columns: slice, value: float) -> Tensor:
    """Write `value` in place where a tile's row and column are one."""
    offset = rows.start - columns.start
    if -tile.shape[0] < offset < tile.shape[1]:
        tile.diagonal(offset).fill_(value)
    return tile
