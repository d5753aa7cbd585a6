"""The smallest shortfalls of chosen queries, found exactly in strips."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from latentlink.losses import _inputs
from latentlink.losses._walk import NEAR, Pairs

_STRIP = 128


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
