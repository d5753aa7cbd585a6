"""The smallest shortfalls of queries, found exactly: gathered while a walk goes by, or in strips."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor

from latentlink.losses import _inputs
from latentlink.losses._walk import FAR, NEAR, Pairs

_STRIP = 128


class Tops:
    """Each query's nearest negative and, for queries near enough, its smallest shortfalls, as a walk goes by.

    Of each tile a query keeps a few more of the smallest shortfalls than its share of those wanted. When no tile
    could have given more that count the result is exact; else that query's candidates are looked at again.

    Parameters
    ----------
    pairs : Pairs
    columns : int
        Shortfalls wanted of each query; with 0 only the nearest is found.
    reach : float
        Shortfall of the nearest negative beyond which a query's tail is of no use. Whether tails are kept is
        decided for a block of queries on its first tile, and only the cost depends on it.
    """

    def __init__(self, pairs: Pairs, columns: int, reach: float) -> None:
        self._pairs, self._columns, self._reach = pairs, columns, reach
        r, c = pairs.u.shape[0], pairs.v.shape[0]
        self._second = 0 if pairs.triangle else r  # where columns' queries start
        queries = r + c if pairs.both and not pairs.triangle else r
        self._nearest = pairs.u.new_full((queries,), torch.inf)
        self._keeps = pairs.u.device.type == "cpu" and 0 < columns <= max(r, c) // 8
        self._blocks: dict[int, _Block | None] = {}

    def see(self, tile: Tensor, rows: slice, columns: slice, *, twin: bool) -> None:
        """Take a tile of shortfalls, FAR where there is no negative; with `twin` for its columns' queries, too."""
        self._see(tile, rows.start, self._pairs.v.shape[0])
        if twin:
            self._see(tile.T, self._second + columns.start, self._pairs.u.shape[0])

    def wants(self, rows: slice, columns: slice, *, twin: bool) -> bool:
        """Whether the shortfalls of a tile are looked for, or only each query's nearest."""
        starts = [rows.start, self._second + columns.start] if twin else [rows.start]
        return self._keeps and any(self._blocks.get(start, self) is not None for start in starts)

    def see_powers(self, tile: Tensor, rate: float, rows: slice, columns: slice, *, twin: bool) -> None:
        """Take a tile of e^(rate · similarity), 0 where there is no negative, for the nearest alone."""
        self._near(rows.start, self._pairs.endpoint - tile.amax(dim=1).log() / rate)
        if twin:
            self._near(self._second + columns.start, self._pairs.endpoint - tile.amax(dim=0).log() / rate)

    def nearest(self) -> Tensor:
        """Return the smallest shortfall of each query: (q,), infinity where it has no negative."""
        return torch.where(self._nearest >= FAR, torch.inf, self._nearest)

    def smallest(self, queries: Tensor) -> Tensor:
        """Return the smallest shortfalls, ascending, of the (a,) `queries`: (a, columns)."""
        found = self._pairs.u.new_empty((queries.numel(), self._columns))
        known = torch.zeros_like(queries, dtype=torch.bool)
        for start, block in self._blocks.items():
            if block is None:
                continue
            values, exact = block.result()
            here = ((queries >= start) & (queries < start + values.shape[0])).nonzero()[:, 0]
            place = queries[here] - start
            found[here], known[here] = values[place], exact[place]
        rest = (~known).nonzero()[:, 0]
        found[rest] = smallest_shortfalls(self._pairs, queries[rest], self._columns)
        return torch.where(found >= FAR, torch.inf, found)

    def _see(self, tile: Tensor, start: int, total: int) -> None:
        nearest = tile.amin(dim=1)
        self._near(start, nearest)
        if start not in self._blocks:
            wanted = self._keeps and float(nearest.median()) <= 1.5 * self._reach
            self._blocks[start] = _Block(self._columns, total) if wanted else None
        block = self._blocks[start]
        if block is not None:
            block.see(tile)

    def _near(self, start: int, nearest: Tensor) -> None:
        block = self._nearest[start : start + nearest.shape[0]]
        torch.minimum(block, nearest, out=block)


class _Block:
    """The smallest shortfalls of some queries, of those of the tiles seen."""

    def __init__(self, columns: int, total: int) -> None:
        self._columns, self._total = columns, total
        self._parts: list[np.ndarray] = []
        self._bound: np.ndarray | float = np.inf  # of each query, none that was left out is smaller

    def see(self, tile: Tensor) -> None:
        """Keep the smallest of each row of a tile (a, m)."""
        m = tile.shape[1]
        share = self._columns * m / self._total
        count = min(m, math.ceil(share + 3.5 * math.sqrt(share * max(0.0, 1 - m / self._total))) + 2)
        ascending = np.sort(tile.contiguous().numpy(), axis=1)  # vector instructions: faster than a selection
        if count < m:
            self._bound = np.minimum(self._bound, ascending[:, count])
        self._parts.append(ascending[:, :count].copy())
        if sum(part.shape[1] for part in self._parts) > 6 * self._columns:
            self._merge()

    def result(self) -> tuple[Tensor, Tensor]:
        """Return the smallest shortfalls (a, columns), ascending, and whether they are (a,)."""
        self._merge()
        values = self._parts[0]
        return torch.from_numpy(values), torch.from_numpy(values[:, -1] <= self._bound)

    def _merge(self) -> None:
        self._parts = [np.sort(np.concatenate(self._parts, axis=1), axis=1)[:, : self._columns].copy()]


def smallest_shortfalls(pairs: Pairs, queries: Tensor, columns: int) -> Tensor:
    """Find the `columns` smallest negative shortfalls, ascending, of each of the (a,) `queries`: (a, columns).

    Queries are numbered rows first, then columns. Infinity fills up where a query has fewer negatives.
    """
    with torch.autocast(device_type=pairs.u.device.type, enabled=False):
        return _all_strips(pairs, queries, columns)


def _all_strips(pairs: Pairs, queries: Tensor, columns: int) -> Tensor:
    r = pairs.u.shape[0]
    parts = [
        _strip(pairs, rows, columns, by_row=True)
        for rows in torch.split(queries[queries < r], _STRIP)
        if rows.numel()
    ]
    parts += [
        _strip(pairs, rows - r, columns, by_row=False)
        for rows in torch.split(queries[queries >= r], _STRIP)
        if rows.numel()
    ]
    return torch.cat(parts) if parts else pairs.u.new_empty((0, columns))


def _strip(pairs: Pairs, rows: Tensor, columns: int, *, by_row: bool) -> Tensor:
    mine, theirs = (pairs.u, pairs.v) if by_row else (pairs.v, pairs.u)
    queries = mine[rows]  # (a, d)
    s = torch.mm(queries, theirs.T)  # (a, c)
    each = torch.arange(rows.numel(), device=rows.device)
    s[each, rows] = -torch.inf  # itself in a triangle, the positive in a rectangle
    if pairs.triangle:
        r = pairs.u.shape[0]
        s[each, (rows + r // 2) % r] = -torch.inf
    if pairs.row_labels is not None and pairs.column_labels is not None:
        own, other = (
            (pairs.row_labels, pairs.column_labels) if by_row else (pairs.column_labels, pairs.row_labels)
        )
        s.masked_fill_(own[rows, None] == other[None, :], -torch.inf)
    if pairs.same is not None:
        s.masked_fill_(pairs.same[rows] if by_row else pairs.same[:, rows].T, -torch.inf)
    found = pairs.endpoint - largest(s, columns)
    if columns == 0:
        return found
    near = (found[:, 0] < NEAR).nonzero()[:, 0]
    if near.numel() and pairs.unit and pairs.endpoint == 1.0:
        values, places = s[near].topk(columns, dim=1)
        distances = 0.5 * (queries[near][:, None, :] - theirs[places]).square().sum(dim=2)
        found[near] = torch.where(values > -torch.inf, distances, torch.inf).sort(dim=1).values
    elif found.numel():
        _inputs.below_endpoint(pairs.endpoint - found.amin(), pairs.endpoint)
    return found


def largest(values: Tensor, k: int) -> Tensor:
    """Find the k largest values of each row, descending: (a, c) to (a, k).

    The k largest lie in the k groups of largest maxima, so a wide row is first cut into groups, whose maxima
    cost one pass; a selection among the whole row costs 4 to 12 ns a value on a CPU. The last sort is NumPy's
    there: its vector instructions make it five times as fast as torch's.
    """
    a, c = values.shape
    if k == 0:
        return values[:, :0]
    group = 1
    while 4 * k * group * group <= c:
        group *= 2
    wide = c // group
    if group > 1:
        grouped = values[:, : group * wide].view(a, group, wide)
        chosen = grouped.amax(dim=1).topk(k, dim=1, sorted=False).indices  # (a, k)
        members = grouped.gather(2, chosen[:, None, :].expand(a, group, k)).reshape(a, group * k)
        values = torch.cat([members, values[:, group * wide :]], dim=1)
    if values.device.type == "cpu" and values.shape[1] <= 1024:
        ascending = torch.from_numpy(np.sort(values.numpy(), axis=1))
        return ascending[:, values.shape[1] - k :].flip(1)
    return values.topk(k, dim=1).values
