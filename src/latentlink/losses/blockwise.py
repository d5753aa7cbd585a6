"""The exact engine: the losses of `functional` without the similarity matrix.

Each query needs one number of its negatives, the log of Σ e^logit; `negatives_log_sum` makes it, and its
gradient in closed form, by walking over tiles (`_walk`). The rest of a loss is O(n) and left to autograd.

A walk costs one product of all pairs (half of them when the matrix is symmetric). The plain losses take one
walk forward and one with two more products backward. WEINCE sees each query's nearest negative on the first
walk, and puts the smallest shortfalls aside where a sample says that they are near enough to the endpoint for a
tail to matter; if some queries then bend, it takes one more walk for the sums of their logits.

Nothing of size n² is stored, except the tiles themselves while all of them fit in `memory` MiB; keeping them
saves the product of the backward walk.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from latentlink.losses._sweep import one_way_total
from latentlink.losses._tops import Tops, smallest_shortfalls
from latentlink.losses._walk import Logits, Pairs, Workspace, gradients, log_sums, nearest
from latentlink.tails.online import Gate, QueryStatistics

MEMORY = 32.0


@dataclass(frozen=True)
class Solved:
    """Shifted logits, the log-sums (q,) under them, and the buffers and kept tiles of that walk."""

    logits: Logits
    sums: Tensor
    space: Workspace


def plain_losses(pairs: Pairs, tau: float | Tensor, denominator: str, memory: float = MEMORY) -> Tensor:
    """Compute the loss of each query of `pairs`, (q,), with the softmax logit."""
    rate = rate_of(tau, pairs.u)
    positive = rate * _positives(pairs, (pairs.u * pairs.positive_columns()).sum(dim=1))
    return _scores(negatives_log_sum(pairs, rate, solve_plain(pairs, rate, memory)), positive, denominator)


def bent_losses(
    pairs: Pairs,
    tau: float | Tensor,
    denominator: str,
    gate: Gate,
    statistics: QueryStatistics | None = None,
    memory: float = MEMORY,
) -> Tensor:
    """Compute the loss of each query of `pairs`, (q,), with the WEINCE logit."""
    rate = rate_of(tau, pairs.u)
    similarity = (pairs.u * pairs.positive_columns()).sum(dim=1)
    solved, blend, beta = _bent(pairs, rate, gate, statistics, memory)
    sums = negatives_log_sum(pairs, rate, solved)
    if not solved.logits.bent:
        return _scores(sums, rate * _positives(pairs, similarity), denominator)
    if pairs.unit and pairs.endpoint == 1.0:
        shortfall = 0.5 * (pairs.u - pairs.positive_columns()).square().sum(dim=1)
    else:
        shortfall = (pairs.endpoint - similarity).clamp(min=0.0)
    log = _positives(pairs, torch.log(shortfall.clamp(min=gate.floor) + gate.softening))
    positive = (1 - blend) * rate * _positives(pairs, similarity) - blend * beta * log
    return _scores(sums, positive, denominator)


def statistics(pairs: Pairs, gate: Gate) -> QueryStatistics:
    """Compute the statistics of every query of `pairs`."""
    queries = torch.arange(_queries(pairs), device=pairs.u.device)
    return gate.statistics(smallest_shortfalls(pairs, queries, gate.columns(_negatives(pairs))))


def one_way_sum(pairs: Pairs, tau: float | Tensor, weights: Tensor) -> Tensor:
    """Compute Σ weights · loss over the rows of a rectangle with the softmax logit, in one sweep.

    A sum whose weights are known beforehand needs three products of all pairs, where losses one by one need
    four; falls back to those where one window cannot hold all logits.
    """
    rate = rate_of(tau, pairs.u)
    if _window(pairs, float(rate.detach())) > 0:
        return (weights * plain_losses(pairs, tau, "own", 0.0)).sum()
    total: Tensor = _OneWaySum.apply(pairs.u, pairs.v, rate, weights, pairs)
    return total


def negatives_log_sum(pairs: Pairs, rate: Tensor, solved: Solved) -> Tensor:
    """Give each query's log Σ e^logit over its negatives, (q,), its gradient; very low where there are none."""
    result: Tensor = _LogSum.apply(pairs.u, pairs.v, rate, pairs, solved)
    return result


class _LogSum(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, u: Tensor, v: Tensor, rate: Tensor, pairs: Pairs, solved: Solved) -> Tensor:
        ctx.save_for_backward(u, v, rate)
        ctx.parts = (replace(pairs, u=u.detach(), v=v.detach()), solved)
        return solved.sums.clamp(min=torch.finfo(u.dtype).min / 8)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        u, _, rate = ctx.saved_tensors
        pairs, solved = ctx.parts
        logits, sums = solved.logits, solved.sums
        weight = torch.where(sums.isfinite(), upstream * torch.exp(logits.shift - sums), 0.0)
        d_rate = None
        with torch.autocast(device_type=u.device.type, enabled=False):
            du, dv = gradients(pairs, logits, weight, solved.space)
            if ctx.needs_input_grad[2]:
                part = du
                if logits.bent:
                    part, _ = gradients(pairs, logits, weight, solved.space, softmax_only=True)
                d_rate = (part * u).sum() / (rate * (2 if pairs.triangle else 1))
        return du, None if pairs.triangle else dv, d_rate, None, None


class _OneWaySum(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, u: Tensor, v: Tensor, rate: Tensor, weights: Tensor, pairs: Pairs) -> Tensor:
        needed = any(ctx.needs_input_grad)
        with torch.autocast(device_type=u.device.type, enabled=False):
            positive = rate * torch.linalg.vecdot(u, v[: u.shape[0]])
            each, du, dv = one_way_total(pairs, float(rate), positive, weights, differentiate=needed)
        if needed:
            d_rate = (du * u).sum() / rate if ctx.needs_input_grad[2] else None
            ctx.save_for_backward(du, dv, each)
            ctx.d_rate = d_rate
        return (weights * each).sum()

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor | None, ...]:
        du, dv, each = ctx.saved_tensors
        d_rate = None if ctx.d_rate is None else ctx.d_rate * upstream
        d_weights = each * upstream if ctx.needs_input_grad[3] else None
        return du * upstream, dv * upstream, d_rate, d_weights, None


@torch.no_grad()
def solve_plain(pairs: Pairs, rate: Tensor, memory: float, tops: Tops | None = None) -> Solved:
    """Compute log-sums of softmax logits under a shift with which no power overflows and no sum vanishes.

    One window serves all queries down to a temperature of 0.013; below it as long as every query has a negative
    in the window's reach, else each query is shifted by its own nearest one. `tops` sees the tiles on the way.
    """
    memory = memory if pairs.u.requires_grad or pairs.v.requires_grad else 0.0
    space = Workspace(pairs, memory * 2**20)
    each, number = pairs.u.new_ones(_queries(pairs)) * rate, float(rate)
    none, window = torch.zeros_like(each), _window(pairs, number)
    logits = Logits(each, none, none + window, window=window, rate=number)
    with torch.autocast(device_type=each.device.type, enabled=False):
        sums = log_sums(pairs, logits, space, tops)
        if window > 0 and bool((sums < window - 70).any()):
            best = nearest(pairs)
            logits = Logits(each, none, each * torch.where(best.isfinite(), best, 0.0))
            space = Workspace(pairs, 0.0)
            sums = log_sums(pairs, logits, space)
    return Solved(logits, sums, space)


@torch.no_grad()
def _bent(
    pairs: Pairs, rate: Tensor, gate: Gate, known: QueryStatistics | None, memory: float
) -> tuple[Solved, Tensor, Tensor]:
    """Find each query's blend and beta, (q,), and its log-sum.

    The first walk sums softmax logits, for the queries that stay plain, and sees each query's nearest negative:
    only the tails of those within the gate's reach are read.
    """
    q, columns = _queries(pairs), gate.columns(_negatives(pairs))
    zero = pairs.u.new_zeros(q)
    if q == 0 or (known is None and columns == 0):
        return solve_plain(pairs, rate, memory), zero, zero
    tops = Tops(pairs, columns if known is None else 0, gate.reach)
    plain = solve_plain(pairs, rate, memory, tops)
    shortfall = tops.nearest()
    if known is None:
        with torch.autocast(device_type=zero.device.type, enabled=False):
            queries = (shortfall <= gate.reach + 1e-4).nonzero()[:, 0]
            found = gate.statistics(tops.smallest(queries))
        blend, beta = zero.index_copy(0, queries, found.blend), zero.index_copy(0, queries, found.beta)
    else:
        blend, beta = known.blend.to(zero), known.beta.to(zero)
    if not bool((blend > 0).any()):
        return plain, blend, beta
    plain.space.reuse("powers", "log")
    return _bend(pairs, rate, gate, blend, beta, shortfall, plain.space), blend, beta


def _bend(
    pairs: Pairs,
    rate: Tensor,
    gate: Gate,
    blend: Tensor,
    beta: Tensor,
    shortfall: Tensor,
    space: Workspace,
) -> Solved:
    """Compute log-sums of blended logits, each shifted by about its largest."""
    slope, bend = (1 - blend) * rate, blend * beta
    near = torch.where(shortfall.isfinite(), shortfall.clamp(min=0.0), 0.0)
    shift = slope * (pairs.endpoint - near) - bend * torch.log(near.clamp(min=gate.floor) + gate.softening)
    plain: tuple[bool, ...] = ()
    if _window(pairs, float(rate)) == 0:
        shift = torch.where(bend > 0, shift, 0.0)
        halves = (
            (bend,)
            if bend.shape[0] == pairs.u.shape[0]
            else torch.split(bend, [pairs.u.shape[0], pairs.v.shape[0]])
        )
        plain = tuple(not bool((part > 0).any()) for half in halves for part in torch.split(half, pairs.block))
    logits = Logits(slope, bend, shift, None, True, plain, gate.floor, gate.softening, float(rate))
    with torch.autocast(device_type=slope.device.type, enabled=False):
        return Solved(logits, log_sums(pairs, logits, space), space)


def _window(pairs: Pairs, rate: float) -> float:
    """Compute the least shift under which the largest possible sum of powers is finite."""
    largest = 1.0
    if not pairs.unit and pairs.u.numel() and pairs.v.numel():
        largest = float(pairs.u.detach().norm(dim=1).amax() * pairs.v.detach().norm(dim=1).amax())
    room = 85.0 if pairs.u.dtype == torch.float32 else 700.0
    return max(0.0, rate * largest + math.log(max(1, pairs.v.shape[0], pairs.u.shape[0])) - room)


def _scores(sums: Tensor, positive: Tensor, denominator: str) -> Tensor:
    gap = sums - positive
    if denominator != "none":
        return torch.logaddexp(torch.zeros_like(gap), gap)
    return torch.where(sums > torch.finfo(sums.dtype).min / 16, gap, torch.zeros_like(gap))


def rate_of(tau: float | Tensor, like: Tensor) -> Tensor:
    """Give 1 / temperature as a scalar tensor of the type and on the device of `like`."""
    return 1.0 / tau.to(like) if isinstance(tau, Tensor) else like.new_full((), 1.0 / tau)


def _positives(pairs: Pairs, values: Tensor) -> Tensor:
    """Repeat one value a row (r,) for the columns, when they are queries of their own: (q,)."""
    return torch.cat([values, values]) if pairs.both and not pairs.triangle else values


def _queries(pairs: Pairs) -> int:
    r = pairs.u.shape[0]
    return r + pairs.v.shape[0] if pairs.both and not pairs.triangle else r


def _negatives(pairs: Pairs) -> int:
    return max(0, pairs.v.shape[0] - (2 if pairs.triangle else 1))
