"""The one-way sum and its gradient in a single sweep of strips."""

from __future__ import annotations

import torch
from torch import Tensor

from latentlink.losses._powers import LOG2E
from latentlink.losses._walk import Pairs, memory


def one_way_total(
    pairs: Pairs, rate: float, positive: Tensor, weights: Tensor, *, differentiate: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """Compute rows' losses and the gradient of Σ weights · loss in one sweep of strips.

    A strip holds all candidates of its rows, so their sums, their losses and their gradients are made while its
    exponentials are at hand. Takes the positives' logits (r,); returns the losses (r,) and the gradients of rows
    (r, d) and candidates (c, d).
    """
    du, dv = torch.empty_like(pairs.u), torch.empty_like(pairs.v)
    r, c, size = pairs.u.shape[0], pairs.v.shape[0], pairs.block
    scaled = pairs.u * (rate * LOG2E)
    losses = torch.empty_like(positive)
    scale, tiny = weights * rate, torch.finfo(positive.dtype).tiny
    spans = [slice(j, min(j + size, c)) for j in range(0, c, size)]
    store = memory(pairs.u, min(size, r) * c)
    for i in range(0, r, size):
        rows = slice(i, min(i + size, r))
        u, tiles = scaled[rows], []
        for span in spans:
            tile = store[u.shape[0] * span.start : u.shape[0] * span.stop].view(-1, span.stop - span.start)
            torch.mm(u, pairs.v[span].T, out=tile)
            tiles.append(pairs.exclude(tile.exp2_(), rows, span, 0.0))
        sums = tiles[0].sum(dim=1)
        for tile in tiles[1:]:
            sums += tile.sum(dim=1)
        gap = sums.log() - positive[rows]
        losses[rows] = torch.logaddexp(torch.zeros_like(gap), gap)
        if not differentiate:
            continue
        # where there are no negatives the sigmoid of −infinity is 0, and so is the weight
        weight = (scale[rows] * torch.sigmoid(gap) / sums.clamp(min=tiny))[:, None]
        weighted = weight * pairs.u[rows]
        for span, tile in zip(spans, tiles, strict=True):
            place = rows.start - span.start  # the positive's share is all that the negatives have
            if -tile.shape[0] < place < tile.shape[1]:
                tile.diagonal(place).copy_(-sums[max(0, -place) :][: tile.shape[1] - max(0, place)])
            if span.start == 0:
                torch.mm(tile, pairs.v[span], out=du[rows])
            else:
                du[rows].addmm_(tile, pairs.v[span])
            if i == 0:
                torch.mm(tile.T, weighted, out=dv[span])
            else:
                dv[span].addmm_(tile.T, weighted)
        du[rows].mul_(weight)
    return losses, du, dv
