"""Walks over the tiles of a similarity matrix that is never stored.

`Pairs` says who meets whom. A walk makes one tile at a time in buffers that fit a core's cache, takes from it
what is wanted (sums, nearest negatives, gradients) and forgets it. When the matrix is symmetric only its upper
triangle is made, and each tile serves its rows and its columns.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from latentlink.losses import _inputs
from latentlink.losses._powers import LOG2E, bent_tile, inverse, powers, uniform_tile, watched_tile

if TYPE_CHECKING:
    from latentlink.losses._tops import Tops

# A cosine within this of 1 is computed again as half a squared distance: 1 − s would be mostly rounding.
NEAR = 0.01
# Stands for the shortfall of a pair that is no negative: beyond every true one, and still a number whose log,
# inverse and multiples are finite.
FAR = 1e30
_BUFFERS = ("shortfall", "powers", "log", "row", "column", "inverse", "pull", "steep")


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

    def shortfalls(self, similarities: Tensor, rows: slice, columns: slice) -> Tensor:
        """Make a tile's similarities shortfalls, in place: exact near 0, and FAR where there is no negative."""
        shortfalls = torch.sub(self.u.new_full((), self.endpoint), similarities, out=similarities)
        self.exclude(shortfalls, rows, columns, FAR)
        if not shortfalls.numel():
            return shortfalls
        if not (self.unit and self.endpoint == 1.0):
            _inputs.below_endpoint(self.endpoint - shortfalls.amin(), self.endpoint)
            return shortfalls.clamp_(min=0.0)
        if bool(shortfalls.amin() < NEAR):
            u, v = self.u[rows], self.v[columns]
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


def memory(like: Tensor, size: int) -> Tensor:
    """Return `size` values of any content, of the type and on the device of `like`.

    On a CPU in one piece from NumPy, which asks for huge pages: handing out a matrix page by page takes the system
    longer than multiplying it.
    """
    if like.device.type != "cpu":
        return like.new_empty(size)
    return torch.from_numpy(np.empty(size, np.float64 if like.dtype == torch.float64 else np.float32))


class Workspace:
    """Buffers of a walk, and the tiles that a memory budget allows to keep for the next ones.

    Tiles of one kind are kept all or not at all; kinds are granted in the order in which they are asked for.
    """

    def __init__(self, pairs: Pairs, kept_bytes: float) -> None:
        size = min(pairs.block, max(1, pairs.u.shape[0])) * min(pairs.block, max(1, pairs.v.shape[0]))
        self._like, self._size = pairs.u, size
        self._buffers: dict[str, Tensor] = {}
        if pairs.u.device.type == "cpu":  # all in one piece; where tiles are large, only those that are used
            self._buffers = dict(
                zip(_BUFFERS, torch.split(memory(pairs.u, size * len(_BUFFERS)), size), strict=True)
            )
        r, c = pairs.u.shape[0], pairs.v.shape[0]
        whole = r * c * pairs.u.element_size() * (0.5 if pairs.triangle else 1.0)
        self._kinds_left = int(kept_bytes // whole) if whole else 0
        self._kept: dict[str, dict[tuple[int, int], Tensor]] = {}
        self._places: dict[tuple[int, int], slice] = {}
        end = 0
        for rows, columns in pairs.tiles() if self._kinds_left else ():
            start, end = end, end + (rows.stop - rows.start) * (columns.stop - columns.start)
            self._places[rows.start, columns.start] = slice(start, end)
        self._area = end
        self._slabs: dict[str, Tensor] = {}

    def take(self, name: str, a: int, b: int) -> Tensor:
        """Return the buffer of that name as an (a, b) matrix of any content."""
        if name not in self._buffers:
            self._buffers[name] = memory(self._like, self._size)
        return self._buffers[name][: a * b].view(a, b)

    def kept(self, kind: str, rows: slice, columns: slice) -> Tensor | None:
        """Return the tile of that kind that an earlier walk kept, if any."""
        return self._kept.get(kind, {}).get((rows.start, columns.start))

    def keep(self, kind: str, rows: slice, columns: slice) -> Tensor:
        """Return an empty tile to fill, which is kept where the budget allows and else is the kind's buffer."""
        a, b = rows.stop - rows.start, columns.stop - columns.start
        if kind not in self._kept:
            self._kept[kind] = {}
            if self._kinds_left > 0:
                self._slabs[kind] = memory(self._like, self._area)
                self._kinds_left -= 1
        if kind not in self._slabs:
            return self.take(kind, a, b)
        place = rows.start, columns.start
        tile = self._kept[kind][place] = self._slabs[kind][self._places[place]].view(a, b)
        return tile

    def rename(self, kind: str, new: str, rows: slice, columns: slice) -> None:
        """Let a kept tile, if it is one, be of another kind after it was changed in place."""
        tile = self._kept.get(kind, {}).pop((rows.start, columns.start), None)
        if tile is not None:
            self._kept.setdefault(new, {})[rows.start, columns.start] = tile

    def reuse(self, kind: str, new: str) -> None:
        """Give up the tiles of a kind, and their memory to another kind."""
        self._kept.pop(kind, None)
        if kind in self._slabs:
            self._kept[new], self._slabs[new] = {}, self._slabs.pop(kind)


def log_sums(pairs: Pairs, logits: Logits, space: Workspace, tops: Tops | None = None) -> Tensor:
    """Compute the log of each query's sum of e^logit over its negatives: (q,), −infinity for none.

    Where logits have one window, `tops` sees each tile on the way.
    """
    r = pairs.u.shape[0]
    total = torch.zeros_like(logits.slope)
    by_column = total if pairs.triangle else total[r:]
    scaled = logits.scaled(pairs)
    for rows, columns in pairs.tiles():
        twin = pairs.both and not (pairs.triangle and rows == columns)
        if logits.uniform(pairs, rows, columns):
            if tops is not None and (logits.window or tops.wants(rows, columns, twin=twin)):
                tile = watched_tile(pairs, logits, rows, columns, space, tops, twin=twin)
            else:
                tile = uniform_tile(pairs, logits, scaled, rows, columns, space)
                if tops is not None:
                    tops.see_powers(tile, logits.rate, rows, columns, twin=twin)
            total[rows] += tile.sum(dim=1)
            if twin:
                by_column[columns] += tile.sum(dim=0)
            continue
        raised, log = bent_tile(pairs, logits, rows, columns, space)
        total[rows] += powers(pairs, logits, raised, log, rows, columns, space, of="row").sum(dim=1)
        if twin:
            each = powers(pairs, logits, raised, log, rows, columns, space, of="column")
            by_column[columns] += each.sum(dim=0)
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
            tile = uniform_tile(pairs, logits, scaled, rows, columns, space)
            if not pairs.both:  # a row's weight goes to the d-wide side
                du[rows].add_(flat[rows, None] * (tile @ v))
                dv[columns].addmm_(tile.T, flat[rows, None] * u)
                continue
            pull = torch.add(flat[rows, None], flat_column[None, columns], out=space.take("pull", a, b))
            pull.mul_(tile)
        else:
            raised, log = bent_tile(pairs, logits, rows, columns, space)
            parts = pairs, logits, raised, log, rows, columns, space
            own = powers(*parts, of="row")
            other = powers(*parts, of="column") if pairs.both and not diagonal else None
            steepness = None if softmax_only else inverse(logits, raised, space)
            pull = torch.mul(own, flat[rows, None], out=space.take("pull", a, b))
            if other is not None:
                pull.addcmul_(other, flat_column[None, columns])
            if steepness is not None:
                steep = torch.mul(own, bend[rows, None], out=space.take("steep", a, b))
                if other is not None:
                    steep.addcmul_(other, bend_column[None, columns])
                pull.addcmul_(steep, steepness)
            if pairs.both and diagonal:  # the column direction of a diagonal tile is its transpose
                pull = torch.add(pull, pull.T, out=space.take("steep", a, b))
        du[rows].addmm_(pull, v)
        if not diagonal:
            dv[columns].addmm_(pull.T, u)
    return du, dv


def nearest(pairs: Pairs) -> Tensor:
    """Find each query's largest negative similarity, (q,); −infinity for none."""
    r = pairs.u.shape[0]
    queries = r if pairs.triangle or not pairs.both else r + pairs.v.shape[0]
    best = pairs.u.new_full((queries,), -torch.inf)
    by_column = best if pairs.triangle else best[r:]
    space = Workspace(pairs, 0)
    for rows, columns in pairs.tiles():
        u, v = pairs.u[rows], pairs.v[columns]
        tile = torch.mm(u, v.T, out=space.take("powers", u.shape[0], v.shape[0]))
        pairs.exclude(tile, rows, columns, -torch.inf)
        best[rows] = torch.maximum(best[rows], tile.amax(dim=1))
        if pairs.both and not (pairs.triangle and rows == columns):
            by_column[columns] = torch.maximum(by_column[columns], tile.amax(dim=0))
    return best
