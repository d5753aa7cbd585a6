"""The one-way sum and its gradient in a single sweep of strips."""

from __future__ import annotations

import torch
from torch import Tensor

from latentlink.losses._walk import LOG2E, Pairs


def one_way_total(
    pairs: Pairs, rate: float, window: float, positive: Tensor, weights: Tensor, *, differentiate: bool
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Compute rows' softmax log-sums and the gradient of Σ weights · loss in one sweep of strips.

    A strip holds all candidates of its rows, so their sums, their losses and their gradients are made while its
    exponentials are at hand. Returns each row's log-sum and the slope of the total in it, (r,) both, and the
    gradients of rows (r, d) and candidates (c, d) without the positives' part.
    """
    du, dv = torch.zeros_like(pairs.u), torch.zeros_like(pairs.v)
    c, size = pairs.v.shape[0], pairs.block
    scaled = pairs.u * (rate * LOG2E)
    log_sum = torch.empty_like(positive)
    spans = [slice(j, min(j + size, c)) for j in range(0, c, size)]
    store = pairs.u.new_empty(min(size, pairs.u.shape[0]) * c)
    slope = torch.zeros_like(positive)
    for i in range(0, pairs.u.shape[0], size):
        rows = slice(i, min(i + size, pairs.u.shape[0]))
        total, tiles, u = torch.zeros_like(positive[rows]), [], scaled[rows]
        a = u.shape[0]
        for span in spans:
            tile = store[a * span.start : a * span.stop].view(a, span.stop - span.start)
            torch.mm(u, pairs.v[span].T, out=tile)
            if window:
                tile.sub_(window * LOG2E)
            pairs.exclude(tile.exp2_(), rows, span, 0.0)
            total += tile.sum(dim=1)
            tiles.append(tile)
        log_sum[rows] = total.log() + window
        if not differentiate:
            continue
        slope[rows] = weights[rows] * torch.sigmoid(log_sum[rows] - positive[rows])
        weight = torch.where(total > 0, rate * slope[rows] / total, 0.0)[:, None]
        weighted = weight * pairs.u[rows]
        for span, tile in zip(spans, tiles, strict=True):
            du[rows].addmm_(tile, pairs.v[span])
            dv[span].addmm_(tile.T, weighted)
        du[rows].mul_(weight)
    return log_sum, slope, du, dv
