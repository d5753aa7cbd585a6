"""The powers e^(logit − shift) of one tile: made from what earlier walks kept, or from the product."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from latentlink.losses._tops import Tops
    from latentlink.losses._walk import Logits, Pairs, Workspace

LOG2E = 1.0 / math.log(2.0)


def uniform_tile(
    pairs: Pairs, logits: Logits, scaled: Tensor, rows: slice, columns: slice, space: Workspace
) -> Tensor:
    """Compute e^(logit − shift) of a tile's negatives, 0 for the others; once when tiles are kept."""
    tile = space.kept("powers", rows, columns)
    if tile is not None:
        return tile
    tile = space.keep("powers", rows, columns)
    shortfall = space.kept("shortfall", rows, columns)
    if shortfall is None:
        torch.mm(scaled[rows], pairs.v[columns].T, out=tile)
    else:
        torch.mul(shortfall, -logits.rate * LOG2E, out=tile).add_(pairs.endpoint * logits.rate * LOG2E)
    return _plain_powers(pairs, logits, tile, rows, columns)


def watched_tile(
    pairs: Pairs, logits: Logits, rows: slice, columns: slice, space: Workspace, tops: Tops, *, twin: bool
) -> Tensor:
    """Compute the powers of `_uniform_tile` and show the tile's shortfalls to `tops`."""
    tile = torch.mm(pairs.u[rows], pairs.v[columns].T, out=space.keep("shortfall", rows, columns))
    powers = torch.mul(tile, logits.rate * LOG2E, out=space.keep("powers", rows, columns))
    tops.see(pairs.shortfalls(tile, rows, columns), rows, columns, twin=twin)
    return _plain_powers(pairs, logits, powers, rows, columns)


def _plain_powers(pairs: Pairs, logits: Logits, tile: Tensor, rows: slice, columns: slice) -> Tensor:
    if logits.window:
        tile.sub_(logits.window * LOG2E)
    return pairs.exclude(tile.exp2_(), rows, columns, 0.0)


def bent_tile(
    pairs: Pairs, logits: Logits, rows: slice, columns: slice, space: Workspace
) -> tuple[Tensor, Tensor | None]:
    """Compute shortfall + softening of a tile and the base-2 logs in its logits.

    When nothing is bent there is no endpoint: these are negated similarities, and no logs are made.
    """
    raised = space.kept("raised", rows, columns)
    if raised is None:
        tile = space.kept("shortfall", rows, columns)
        if tile is None:
            tile = space.take("shortfall", rows.stop - rows.start, columns.stop - columns.start)
            torch.mm(pairs.u[rows], pairs.v[columns].T, out=tile)
            if not logits.bent:
                return tile.neg_(), None
            pairs.shortfalls(tile, rows, columns)
        raised = tile if logits.softening == 0 else tile.add_(logits.softening)
        space.rename("shortfall", "raised", rows, columns)
    log = space.kept("log", rows, columns)
    if log is None:
        log = space.keep("log", rows, columns)
        lowest = logits.floor + logits.softening
        torch.log2(torch.clamp(raised, min=lowest, out=log) if logits.floor else raised, out=log)
    return raised, log


def powers(
    pairs: Pairs,
    logits: Logits,
    raised: Tensor,
    log: Tensor | None,
    rows: slice,
    columns: slice,
    space: Workspace,
    *,
    of: str,
) -> Tensor:
    """Compute e^(logit − shift) on a tile's negatives, 0 for the others; logits `of` "row" or "column"."""
    tile = space.kept(of, rows, columns)
    if tile is not None:
        return tile
    start = 0 if pairs.triangle else pairs.u.shape[0]
    queries = slice(start + columns.start, start + columns.stop)
    place = (rows, None) if of == "row" else (None, queries)
    slope, bend = logits.slope[place], logits.bend[place]
    end = pairs.endpoint + logits.softening if logits.bent else 0.0
    constant = (slope * end - logits.shift[place]) * LOG2E
    tile = space.keep(of, rows, columns)
    if of == "row":  # torch does not vectorise an operation with two operands of one value a row
        torch.mul(raised, slope * -LOG2E, out=tile).add_(constant)
    else:
        torch.addcmul(constant, raised, slope, value=-LOG2E, out=tile)
    if log is not None:
        tile.addcmul_(log, bend, value=-1.0)
    return pairs.exclude(tile.exp2_(), rows, columns, 0.0)


def inverse(logits: Logits, raised: Tensor, space: Workspace) -> Tensor | None:
    """Compute 1 / (shortfall + softening) of a tile, 0 below the floor; nothing when nothing is bent."""
    if not logits.bent:
        return None
    result = torch.reciprocal(raised, out=space.take("inverse", *raised.shape))
    return result.masked_fill_(raised < logits.floor + logits.softening, 0.0) if logits.floor else result
