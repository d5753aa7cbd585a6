"""The losses by the engine that fits: walks over tiles, or the dense functions for what those do not lay out.

The arguments and the values are those of `functional`. Dense are only: several positives a query, explicit
negatives without the batch's (n m logits), and code that torch.compile traces.
"""

from __future__ import annotations

import warnings
from typing import Any

import torch
from torch import Tensor

from latentlink import _checks
from latentlink.losses import _inputs, blockwise, functional
from latentlink.losses._choices import LAYOUTS, as_labels, as_mask, choices_of
from latentlink.losses._walk import Pairs
from latentlink.tails.online import Gate, QueryStatistics


def plain(
    layout: str,
    z0: Tensor,
    z1: Tensor,
    negatives: Tensor | None = None,
    *,
    temperature: float | Tensor,
    reduction: str,
    denominator: str = "own",
    weights: Tensor | None = None,
    memory: float = blockwise.MEMORY,
    **options: Any,
) -> Tensor:
    """Compute the plain loss of one layout, reduced."""
    tau = _inputs.temperature(temperature)
    _checks.one_of("denominator", denominator, functional.DENOMINATORS)
    pairs = lay_out(layout, z0, z1, negatives, **options)
    _warn_of_one(pairs)
    if pairs is None:
        settings = {"temperature": tau, "denominator": denominator, "weights": weights, **options}
        if layout == "one_way":
            each = functional.info_nce(z0, z1, negatives, **settings)
        elif layout == "nt_xent":
            each = functional.nt_xent(z0, z1, **settings)
        else:
            each = functional.symmetric_info_nce(z0, z1, **settings)
        return reduce(each, reduction)
    if layout == "one_way" and reduction != "none" and denominator != "none":
        n = pairs.u.shape[0]
        share = pairs.u.new_ones(n) if weights is None else functional.weighted(pairs.u.new_ones(n), weights)
        return blockwise.one_way_sum(pairs, tau, share / max(1, n) if reduction == "mean" else share)
    each = blockwise.plain_losses(pairs, tau, denominator, memory)
    return reduce(functional.weighted(each, weights), reduction)


def weince(
    layout: str,
    z0: Tensor,
    z1: Tensor,
    negatives: Tensor | None = None,
    *,
    temperature: float | Tensor,
    reduction: str,
    gate: Gate,
    statistics: QueryStatistics | None = None,
    denominator: str = "own",
    weights: Tensor | None = None,
    memory: float = blockwise.MEMORY,
    **options: Any,
) -> Tensor:
    """Compute the WEINCE loss of one layout, reduced."""
    tau = _inputs.temperature(temperature)
    _checks.one_of("denominator", denominator, functional.DENOMINATORS)
    functional.known_rule(gate, statistics)
    pairs = lay_out(layout, z0, z1, negatives, **options)
    _warn_of_one(pairs)
    if pairs is None:
        settings = {"layout": layout, "gate": gate, "statistics": statistics, "weights": weights, **options}
        each = functional.weince(z0, z1, negatives, temperature=tau, denominator=denominator, **settings)
    else:
        each = blockwise.bent_losses(pairs, tau, denominator, gate, statistics, memory)
        each = functional.weighted(each, weights)
    return reduce(each, reduction)


@torch.no_grad()
def statistics(
    layout: str, z0: Tensor, z1: Tensor, negatives: Tensor | None = None, *, gate: Gate, **options: Any
) -> QueryStatistics:
    """Compute the statistics of every query."""
    pairs = lay_out(layout, z0, z1, negatives, **options)
    if pairs is not None:
        return blockwise.statistics(pairs, gate)
    known = ("labels", "negative_labels", "same", "in_batch")
    labels, negative_labels, same, in_batch = (options.get(name) for name in known)
    normalize = options.get("normalize", True)
    choices = choices_of(z0, z1, negatives, layout, labels, negative_labels, same, in_batch, normalize)
    endpoint = options.get("endpoint", 1.0)
    shortfalls = [functional.exact_shortfalls(choice, endpoint, gate) for choice in choices]
    return functional.tail_statistics(choices, shortfalls, gate)


def lay_out(
    layout: str,
    z0: Any,
    z1: Any,
    negatives: Any = None,
    *,
    labels: Tensor | None = None,
    positive_labels: Tensor | None = None,
    negative_labels: Tensor | None = None,
    same: Tensor | None = None,
    in_batch: bool | None = None,
    normalize: bool = True,
    endpoint: float = 1.0,
) -> Pairs | None:
    """Lay out a problem for the walks; None where they do not apply.

    `positive_labels` are the queries' own unless given, as when a process's two views meet those of all others.
    """
    _checks.one_of("layout", layout, LAYOUTS)
    several = any(isinstance(x, Tensor) and x.ndim == 3 for x in (z1, negatives))
    alone = negatives is not None and not in_batch
    if torch.compiler.is_compiling() or several or (layout != "one_way" and negatives is not None) or alone:
        return None
    names = {"nt_xent": ("z0", "z1"), "one_way": ("queries", "positives"), "symmetric": ("a", "b")}[layout]
    first, second = _inputs.pair(names[0], z0, names[1], z1)
    limit = _checks.number("endpoint", endpoint)
    given = [first, second]
    if negatives is not None:
        given.append(_inputs.embeddings("negatives", negatives, columns=first.shape[1]))
        _inputs.same_device(**{names[0]: first, "negatives": given[2]})
    dtype = _inputs.computing_type(*given)
    rows = [
        _inputs.unit_rows(name, x, dtype, normalize=normalize)
        for name, x in zip((*names, "negatives"), given, strict=False)
    ]
    n = first.shape[0]
    if n == 0:
        return None
    device = rows[0].device
    mine = None if labels is None else as_labels("labels", labels, n).to(device)
    if layout == "nt_xent":
        u = torch.cat(rows)  # (2n, d)
        twice = None if mine is None else torch.cat([mine, mine])
        mask = as_mask(same, ((n, n), (2 * n, 2 * n)), device)
        mask = mask.repeat(2, 2) if mask is not None and mask.shape[0] == n else mask
        return Pairs(u, u, True, True, normalize, limit, twice, twice, mask)
    others = mine if positive_labels is None else as_labels("positive_labels", positive_labels, n).to(device)
    if negatives is not None:
        if mine is not None:
            if negative_labels is None:
                return None  # labels then reach the batch alone: a mask that only the dense form makes
            extra = as_labels("negative_labels", negative_labels, rows[2].shape[0]).to(device)
            others = torch.cat([mine if others is None else others, extra])
        rows[1] = torch.cat(rows[1:])  # (n + m, d)
    mask = as_mask(same, ((n, rows[1].shape[0]),), device)
    return Pairs(rows[0], rows[1], False, layout == "symmetric", normalize, limit, mine, others, mask)


def _warn_of_one(pairs: Pairs | None) -> None:
    """Warn that a batch of one item teaches nothing; Python shows a warning of one place once a process."""
    if pairs is not None and pairs.v.shape[0] == (2 if pairs.triangle else 1):
        warnings.warn(
            "a batch of one item has no negatives: its loss and its gradient are 0. Use two items or more; a data "
            "loader's drop_last=True leaves out a last batch of one.",
            stacklevel=1,
        )


def reduce(each: Tensor, reduction: str) -> Tensor:
    """Reduce losses (n,) by "mean", "sum" or "none"; the mean over no query is 0."""
    if reduction == "none":
        return each
    total = each.sum()
    return total / max(1, each.shape[0]) if reduction == "mean" else total
