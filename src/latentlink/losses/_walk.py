"""Walks over the tiles of a similarity matrix that is never stored.

`Pairs` says who meets whom. A walk makes one tile at a time in buffers that fit a core's cache, takes from it
what is wanted (sums, nearest negatives, gradients) and forgets it. When the matrix is symmetric only its upper
triangle is made, and each tile serves its rows and its columns.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from latentlink.losses import _inputs

LOG2E = 1.0 / math.log(2.0)
# A cosine within this of 1 is computed again as half a squared distance: 1 − s would be mostly rounding.
NEAR = 0.01


@dataclass(frozen=True)
class Pairs:
    """Queries (r, d) and candidates (c, d), each a row of norm 1 (or any, when not `unit`).

    Row i's positive is column i of a rectangle, or row i ± r/2 of a `triangle`, whose rows are the candidates,
    too. With `both`, columns are queries as well.
    """

    u: Tensor
    v: Tensor
    triangle: bool
    both: bool
    unit: bool
    endpoint: float
    row_labels: Tensor | None = None
    column_labels: Tensor | None = None
    same: Tensor | None = None

    @property
    def block(self) -> int:
        """Rows of a tile: 1 MB of float32, a core's cache; large on an accelerator, which has many."""
        if self.u.device.type != "cpu":
            return 4096
        return 512 if self.u.shape[0] >= (1024 if self.triangle else 512) else 256

    def tiles(self) -> Iterator[tuple[slice, slice]]:
        """Yield the rows and columns of each tile, of the upper triangle only when it is enough."""
        r, c, size = self.u.shape[0], self.v.shape[0], self.block
        for i in range(0, r, size):
            for j in range(i if self.triangle else 0, c, size):
                yield slice(i, min(i + size, r)), slice(j, min(j + size, c))

    def exclude(self, tile: Tensor, rows: slice, columns: slice, value: float) -> Tensor:
        """Write `value` in place where a tile's pair is no negative: itself, the positive, a duplicate."""
        offset = rows.start - columns.start
        half = self.u.shape[0] // 2
        for place in (offset, offset + half, offset - half) if self.triangle else (offset,):
            if -tile.shape[0] < place < tile.shape[1]:
                tile.diagonal(place).fill_(value)
        if self.row_labels is not None and self.column_labels is not None:
            tile.masked_fill_(self.row_labels[rows, None] == self.column_labels[None, columns], value)
        if self.same is not None:
            tile.masked_fill_(self.same[rows, columns], value)
        return tile

    def shortfalls(self, rows: slice, columns: slice, out: Tensor) -> Tensor:
        """Compute endpoint − similarity of a tile, clipped at 0, without cancellation near 0."""
        u, v = self.u[rows], self.v[columns]
        torch.mm(u, v.T, out=out).neg_().add_(self.endpoint)
        return self.sharpen(self.exclude(out, rows, columns, 2.0), u, v)

    def sharpen(self, shortfalls: Tensor, u: Tensor, v: Tensor) -> Tensor:
        """Replace the smallest shortfalls (a, b) of unit rows by half squared distances, in place."""
        if not shortfalls.numel():
            return shortfalls
        if not (self.unit and self.endpoint == 1.0):
            _inputs.below_endpoint(self.endpoint - shortfalls.amin(), self.endpoint)
            return shortfalls.clamp_(min=0.0)
        if bool(shortfalls.amin() < NEAR):
            i, j = (shortfalls < NEAR).nonzero(as_tuple=True)
            for some in torch.split(torch.arange(i.numel(), device=u.device), 65536):
                a, b = i[some], j[some]
                shortfalls[a, b] = 0.5 * (u[a] - v[b]).square().sum(dim=1)
        return shortfalls

    def positive_columns(self) -> Tensor:
        """Take the positive of each row, (r, d), from the candidates, with their graph."""
        r = self.u.shape[0]
        return torch.roll(self.u, r // 2, dims=0) if self.triangle else self.v[:r]


@dataclass(frozen=True)
class Logits:
    """Each query's logit, slope · s − bend · log(max(shortfall, floor) + softening), less its shift.

    Attributes
    ----------
    slope, bend, shift : (q,)
        One value a query: rows first, then columns when they are queries of their own.
    window : float or None
        The shift, when slopes and shifts are all equal and nothing is bent: one exponential then serves row and
        column. None otherwise.
    bent : bool
        Whether any bend is above 0.
    plain : list of bool, one a block of queries
        Blocks of a bent problem in which no query is bent and slope and shift are those of `rate` and 0.
    floor, softening : float
    rate : float
        1 / temperature.
    """

    slope: Tensor
    bend: Tensor
    shift: Tensor
    window: float | None = None
    bent: bool = False
    plain: tuple[bool, ...] = ()
    floor: float = 0.0
    softening: float = 1.0
    rate: float = 1.0

    def scaled(self, pairs: Pairs) -> Tensor:
        """Scale the rows so that a product is a base-2 softmax logit."""
        return pairs.u * (self.rate * LOG2E)

    def uniform(self, pairs: Pairs, rows: slice, columns: slice) -> bool:
        """Whether one power serves every query of a tile."""
        if self.window is not None:
            return True
        if not self.plain:
            return False
        start = 0 if pairs.triangle else -(-pairs.u.shape[0] // pairs.block)
        row, column = rows.start // pairs.block, start + columns.start // pairs.block
        return self.plain[row] and (not pairs.both or self.plain[column])


class Workspace:
    """Buffers of one walk, and the tiles that a memory budget allows to keep between two walks."""

    def __init__(self, pairs: Pairs, kept_bytes: float) -> None:
        size = min(pairs.block, max(1, pairs.u.shape[0])) * min(pairs.block, max(1, pairs.v.shape[0]))
        self._like, self._size = pairs.u.detach(), size
        self._buffers: dict[str, Tensor] = {}
        r, c = pairs.u.shape[0], pairs.v.shape[0]
        whole = r * c * pairs.u.element_size() * (0.5 if pairs.triangle else 1.0)
        self.keeps = whole <= kept_bytes
        self.kept: dict[tuple[int, int], Tensor] = {}

    def take(self, name: str, a: int, b: int) -> Tensor:
        """Return the buffer of that name as an (a, b) matrix of any content."""
        if name not in self._buffers:
            self._buffers[name] = self._like.new_empty(self._size)
        return self._buffers[name][: a * b].view(a, b)


def log_sums(pairs: Pairs, logits: Logits, space: Workspace, peak: Tensor | None = None) -> Tensor:
    """Compute the log of each query's sum of e^logit over its negatives: (q,), −infinity for none.

    Where logits have one window, `peak` (q,) of zeros takes each query's largest power on the way.
    """
    r = pairs.u.shape[0]
    total = torch.zeros_like(logits.slope)
    by_column = total if pairs.triangle else total[r:]
    scaled = logits.scaled(pairs)
    for rows, columns in pairs.tiles():
        twin = pairs.both and not (pairs.triangle and rows == columns)
        if logits.uniform(pairs, rows, columns):
            tile = _uniform_tile(pairs, logits, scaled, rows, columns, space)
            total[rows] += tile.sum(dim=1)
            if twin:
                by_column[columns] += tile.sum(dim=0)
            if peak is not None:
                peak[rows] = torch.maximum(peak[rows], tile.amax(dim=1))
                if twin:
                    column_peak = peak if pairs.triangle else peak[r:]
                    column_peak[columns] = torch.maximum(column_peak[columns], tile.amax(dim=0))
            continue
        shortfall, log = _bent_tile(pairs, logits, rows, columns, space)
        total[rows] += _row_powers(pairs, logits, shortfall, log, rows, columns, space).sum(dim=1)
        if twin:
            by_column[columns] += _column_powers(pairs, logits, shortfall, log, rows, columns, space).sum(dim=0)
    return total.log() + logits.shift


def gradients(
    pairs: Pairs, logits: Logits, weight: Tensor, space: Workspace, *, softmax_only: bool = False
) -> tuple[Tensor, Tensor]:
    """Compute the gradient of the rows and of the candidates, (r, d) and (c, d); in a triangle they are one.

    It is Σ weight · e^(logit − shift) · slope of the logit · the other row, where `weight` (q,) is each query's
    upstream gradient over its sum of shifted powers. With `softmax_only` the slope leaves out the bend.
    """
    du = torch.zeros_like(pairs.u)
    dv = du if pairs.triangle else torch.zeros_like(pairs.v)
    r = pairs.u.shape[0]
    scaled = logits.scaled(pairs)
    flat = weight * logits.slope
    flat_column = flat if pairs.triangle else flat[r:]
    bend = weight * logits.bend
    bend_column = bend if pairs.triangle else bend[r:]
    for rows, columns in pairs.tiles():
        diagonal = pairs.triangle and rows == columns
        u, v = pairs.u[rows], pairs.v[columns]
        a, b = u.shape[0], v.shape[0]
        if logits.uniform(pairs, rows, columns):
            tile = _uniform_tile(pairs, logits, scaled, rows, columns, space)
            if not pairs.both:  # a row's weight goes to the d-wide side
                du[rows].add_(flat[rows, None] * (tile @ v))
                dv[columns].addmm_(tile.T, flat[rows, None] * u)
                continue
            pull = torch.add(flat[rows, None], flat_column[None, columns], out=space.take("pull", a, b))
            pull.mul_(tile)
        else:
            shortfall, log = _bent_tile(pairs, logits, rows, columns, space)
            pull = _row_powers(pairs, logits, shortfall, log, rows, columns, space)
            twin = pairs.both and not diagonal
            other = _column_powers(pairs, logits, shortfall, log, rows, columns, space) if twin else None
            inverse = None if softmax_only else _inverse(logits, shortfall, space)
            factor = space.take("factor", a, b)
            pull.mul_(_factor(flat[rows, None], inverse, bend[rows, None], factor))
            if other is not None:
                slopes = _factor(flat_column[None, columns], inverse, bend_column[None, columns], factor)
                pull.addcmul_(other, slopes)
            elif diagonal:  # the column direction of a diagonal tile is its transpose
                pull = torch.add(pull, pull.T, out=space.take("column", a, b))
        du[rows].addmm_(pull, v)
        if not diagonal:
            dv[columns].addmm_(pull.T, u)
    return du, dv


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


def nearest(pairs: Pairs) -> Tensor:
    """Find each query's largest negative similarity, (q,); −infinity for none."""
    r = pairs.u.shape[0]
    queries = r if pairs.triangle or not pairs.both else r + pairs.v.shape[0]
    best = pairs.u.new_full((queries,), -torch.inf)
    by_column = best if pairs.triangle else best[r:]
    space = Workspace(pairs, 0)
    for rows, columns in pairs.tiles():
        u, v = pairs.u[rows], pairs.v[columns]
        tile = torch.mm(u, v.T, out=space.take("tile", u.shape[0], v.shape[0]))
        pairs.exclude(tile, rows, columns, -torch.inf)
        best[rows] = torch.maximum(best[rows], tile.amax(dim=1))
        if pairs.both and not (pairs.triangle and rows == columns):
            by_column[columns] = torch.maximum(by_column[columns], tile.amax(dim=0))
    return best


def _uniform_tile(
    pairs: Pairs, logits: Logits, scaled: Tensor, rows: slice, columns: slice, space: Workspace
) -> Tensor:
    """Compute e^(logit − shift) of a tile's negatives, 0 for the others; once when tiles are kept."""
    key = (rows.start, columns.start)
    if key in space.kept:
        return space.kept[key]
    u, v = scaled[rows], pairs.v[columns]
    if space.keeps:
        tile = space.kept[key] = u @ v.T
    else:
        tile = torch.mm(u, v.T, out=space.take("tile", u.shape[0], v.shape[0]))
    if logits.window:
        tile.sub_(logits.window * LOG2E)
    return pairs.exclude(tile.exp2_(), rows, columns, 0.0)


def _bent_tile(
    pairs: Pairs, logits: Logits, rows: slice, columns: slice, space: Workspace
) -> tuple[Tensor, Tensor | None]:
    """Compute the shortfalls of a tile and the base-2 logs in its logits.

    When nothing is bent there is no endpoint: shortfalls are negated similarities, and no logs are made.
    """
    a, b = rows.stop - rows.start, columns.stop - columns.start
    tile = space.take("tile", a, b)
    if not logits.bent:
        return torch.mm(pairs.u[rows], pairs.v[columns].T, out=tile).neg_(), None
    shortfall = pairs.shortfalls(rows, columns, tile)
    log = space.take("log", a, b)
    if logits.floor:
        torch.clamp(shortfall, min=logits.floor, out=log)
        log.add_(logits.softening) if logits.softening else log
    else:
        torch.add(shortfall, logits.softening, out=log)
    return shortfall, log.log2_()


def _row_powers(
    pairs: Pairs,
    logits: Logits,
    shortfall: Tensor,
    log: Tensor | None,
    rows: slice,
    columns: slice,
    space: Workspace,
) -> Tensor:
    """Compute e^(logit − shift) of the rows' logits on a tile's negatives, 0 for the others."""
    slope, bend = logits.slope[rows, None], logits.bend[rows, None]
    constant = (slope * (pairs.endpoint if logits.bent else 0.0) - logits.shift[rows, None]) * LOG2E
    powers = space.take("powers", *shortfall.shape)
    return _powers(pairs, shortfall, log, slope, bend, constant, rows, columns, powers)


def _column_powers(
    pairs: Pairs,
    logits: Logits,
    shortfall: Tensor,
    log: Tensor | None,
    rows: slice,
    columns: slice,
    space: Workspace,
) -> Tensor:
    """Compute e^(logit − shift) of the columns' logits on a tile's negatives, 0 for the others."""
    start = 0 if pairs.triangle else pairs.u.shape[0]
    place = slice(start + columns.start, start + columns.stop)
    slope, bend = logits.slope[None, place], logits.bend[None, place]
    constant = (slope * (pairs.endpoint if logits.bent else 0.0) - logits.shift[None, place]) * LOG2E
    powers = space.take("column", *shortfall.shape)
    return _powers(pairs, shortfall, log, slope, bend, constant, rows, columns, powers)


def _powers(
    pairs: Pairs,
    shortfall: Tensor,
    log: Tensor | None,
    slope: Tensor,
    bend: Tensor,
    constant: Tensor,
    rows: slice,
    columns: slice,
    out: Tensor,
) -> Tensor:
    torch.addcmul(constant, shortfall, slope, value=-LOG2E, out=out)
    if log is not None:
        out.addcmul_(log, bend, value=-1.0)
    return pairs.exclude(out.exp2_(), rows, columns, 0.0)


def _factor(flat: Tensor, inverse: Tensor | None, bend: Tensor, out: Tensor) -> Tensor:
    return flat if inverse is None else torch.addcmul(flat, inverse, bend, out=out)


def _inverse(logits: Logits, shortfall: Tensor, space: Workspace) -> Tensor | None:
    """Compute 1 / (shortfall + softening) of a tile, 0 below the floor; nothing when nothing is bent."""
    if not logits.bent:
        return None
    inverse = space.take("log", *shortfall.shape)  # the logs are spent by then
    torch.add(shortfall, logits.softening, out=inverse)
    if logits.floor:
        below = shortfall < logits.floor
        return inverse.reciprocal_().masked_fill_(below, 0.0)
    return inverse.reciprocal_()
