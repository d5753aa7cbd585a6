"""Who chooses among whom: the layouts of the losses, as one similarity matrix with two masks.

A query's candidates are its positives, its negatives, and some that take no part (itself, known duplicates).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from latentlink import _checks
from latentlink.losses import _inputs

LAYOUTS = ("nt_xent", "one_way", "symmetric")


@dataclass(frozen=True)
class Choice:
    """r queries choosing among c candidates.

    Attributes
    ----------
    similarities : (r, c)
    positive, negative : bool (r, c)
        A candidate that is neither does not take part.
    queries : (r, d)
    candidates : (c, d) or (r, c, d)
    unit : bool
        Whether rows have norm 1, so that a shortfall is half a squared distance.
    n_negatives : int
        Negatives of a query when nothing is masked.
    """

    similarities: Tensor
    positive: Tensor
    negative: Tensor
    queries: Tensor
    candidates: Tensor
    unit: bool
    n_negatives: int


def choices_of(
    z0: Any,
    z1: Any,
    negatives: Any,
    layout: str,
    labels: Tensor | None,
    negative_labels: Tensor | None,
    same: Tensor | None,
    in_batch: bool | None,
    normalize: bool,
) -> list[Choice]:
    """Lay out the choices of one of the three layouts; "symmetric" makes two."""
    _checks.one_of("layout", layout, LAYOUTS)
    if layout == "one_way":
        return [one_way_choice(z0, z1, negatives, labels, negative_labels, same, in_batch, normalize)]
    if negatives is not None:
        raise _checks.InvalidInput(f'negatives are given with layout {layout!r}; needs layout="one_way".')
    if layout == "nt_xent":
        return [two_view_choice(z0, z1, labels, same, normalize)]
    return list(tower_choices(z0, z1, labels, same, normalize))


def two_view_choice(z0: Any, z1: Any, labels: Tensor | None, same: Tensor | None, normalize: bool) -> Choice:
    """Lay out NT-Xent: 2n rows choose among all others."""
    first, second = _inputs.pair("z0", z0, "z1", z1)
    dtype = _inputs.computing_type(first, second)
    u = torch.cat(
        [
            _inputs.unit_rows("z0", first, dtype, normalize=normalize),
            _inputs.unit_rows("z1", second, dtype, normalize=normalize),
        ]
    )  # (2n, d)
    n = first.shape[0]
    rows = torch.arange(2 * n, device=u.device)
    positive = rows[None, :] == ((rows + n) % max(1, 2 * n))[:, None]  # (2n, 2n)
    itself = rows[None, :] == rows[:, None]
    known = _known_same(labels, labels, n, n, u.device)
    blocked = as_mask(same, ((n, n), (2 * n, 2 * n)), u.device)
    for mask in (known, blocked):
        if mask is not None:
            itself = itself | (mask.repeat(2, 2) if mask.shape[0] == n else mask)
    negative = ~(itself | positive)
    return Choice(_inputs.product(u, u), positive, negative, u, u, normalize, max(0, 2 * n - 2))


def tower_choices(
    a: Any, b: Any, labels: Tensor | None, same: Tensor | None, normalize: bool
) -> tuple[Choice, Choice]:
    """Lay out both directions of paired towers; they share one product."""
    first, second = _inputs.pair("a", a, "b", b)
    dtype = _inputs.computing_type(first, second)
    u = _inputs.unit_rows("a", first, dtype, normalize=normalize)
    v = _inputs.unit_rows("b", second, dtype, normalize=normalize)
    n = u.shape[0]
    positive = torch.eye(n, dtype=torch.bool, device=u.device)
    negative = ~positive
    for mask in (_known_same(labels, labels, n, n, u.device), as_mask(same, ((n, n),), u.device)):
        if mask is not None:
            negative = negative & ~mask
    s = _inputs.product(u, v)  # (n, n)
    size = max(0, n - 1)
    return (
        Choice(s, positive, negative, u, v, normalize, size),
        Choice(s.T, positive, negative.T, v, u, normalize, size),
    )


def one_way_choice(
    queries: Any,
    positives: Any,
    negatives: Any,
    labels: Tensor | None,
    negative_labels: Tensor | None,
    same: Tensor | None,
    in_batch: bool | None,
    normalize: bool,
) -> Choice:
    """Lay out queries against positives of the batch, shared negatives, or negatives of their own."""
    q = _inputs.embeddings("queries", queries)
    n, d = q.shape
    several = isinstance(positives, Tensor) and positives.ndim == 3
    p = _inputs.embeddings("positives", positives, columns=d, dims=3 if several else 2)
    _inputs.same_device(queries=q, positives=p)
    _checks.same_rows(queries=q, positives=p)
    in_batch = negatives is None if in_batch is None else in_batch
    own = isinstance(negatives, Tensor) and negatives.ndim == 3
    given = [q, p]
    if negatives is not None:
        m = _inputs.embeddings("negatives", negatives, columns=d, dims=3 if own else 2)
        _inputs.same_device(queries=q, negatives=m)
        if own:
            _checks.same_rows(queries=q, negatives=m)
        given.append(m)
    dtype = _inputs.computing_type(*given)
    names = ("queries", "positives", "negatives")
    rows = [
        _inputs.unit_rows(name, x, dtype, normalize=normalize) for name, x in zip(names, given, strict=False)
    ]
    u, v = rows[0], rows[1]
    device = u.device
    per_query = v.shape[1] if several else 1
    each = torch.arange(n, device=device)
    if in_batch:
        owner = each.repeat_interleave(per_query)  # (n p,)
        positive = owner[None, :] == each[:, None]  # (n, n p)
        known = _known_same(labels, labels, n, n, device)
        negative = ~positive if known is None else ~known[:, owner]
        candidates = v.reshape(n * per_query, d)
        count = (n - 1) * per_query
    else:
        candidates = v.reshape(n, per_query, d)
        positive = torch.ones(n, per_query, dtype=torch.bool, device=device)
        negative = ~positive
        count = 0
    if negatives is not None:
        extra = rows[2]
        size = extra.shape[-2]
        known = _known_same(labels, negative_labels, n, size, device, shared=not own)
        free = torch.ones(n, size, dtype=torch.bool, device=device) if known is None else ~known
        positive = torch.cat([positive, torch.zeros_like(free)], dim=1)
        negative = torch.cat([negative, free], dim=1)
        if own or candidates.ndim == 3:
            extra = extra if own else extra.expand(n, size, d)
            candidates = candidates if candidates.ndim == 3 else candidates.expand(n, *candidates.shape)
            candidates = torch.cat([candidates, extra], dim=1)  # (n, c, d)
        else:
            candidates = torch.cat([candidates, extra])  # (c, d)
        count += size
    blocked = as_mask(same, (tuple(negative.shape),), device)
    if blocked is not None:
        negative = negative & ~blocked & ~positive
    if candidates.ndim == 3:
        with torch.autocast(device_type=u.device.type, enabled=False):
            s = torch.einsum("nd,ncd->nc", u, candidates)
    else:
        s = _inputs.product(u, candidates)
    return Choice(s, positive, negative, u, candidates, normalize, count)


def labelled_choice(
    embeddings: Any,
    labels: Tensor | None,
    pairs: tuple[Tensor, ...] | None,
    reference: Any,
    reference_labels: Tensor | None,
    normalize: bool,
) -> Choice:
    """Lay out rows that share labels: each chooses among a reference set, or among the other rows.

    `pairs` names positives and negatives by index, (anchors, positives, anchors, negatives) or (anchors, positives,
    negatives), instead of labels.
    """
    u, v, alone = labelled_rows(embeddings, reference, normalize)
    n, m = u.shape[0], v.shape[0]
    if pairs is not None:
        positive = torch.zeros(n, m, dtype=torch.bool, device=u.device)
        negative = positive.clone()
        anchors = pairs[0] if len(pairs) == 3 else pairs[2]
        positive[pairs[0], pairs[1]] = True
        negative[anchors, pairs[-1]] = True
    else:
        mine, others = label_pair(labels, reference_labels, u, v, alone)
        same = mine[:, None] == others[None, :]
        itself = torch.eye(n, m, dtype=torch.bool, device=u.device) & alone
        positive, negative = same & ~itself, ~same
    most = int(negative.sum(dim=1).max()) if n and m else 0
    return Choice(_inputs.product(u, v), positive, negative, u, v, normalize, most)


def labelled_rows(embeddings: Any, reference: Any, normalize: bool) -> tuple[Tensor, Tensor, bool]:
    """Return the rows (n, d) that share labels, those they choose among (m, d), and whether these are themselves.

    That is never decided by the identity of tensors: a reference set may be the rows once more.
    """
    alone = reference is None
    z = _inputs.embeddings("embeddings", embeddings)
    ref = z if alone else _inputs.embeddings("ref_emb", reference, columns=z.shape[1])
    dtype = _inputs.computing_type(z, ref)
    u = _inputs.unit_rows("embeddings", z, dtype, normalize=normalize)
    return u, u if alone else _inputs.unit_rows("ref_emb", ref, dtype, normalize=normalize), alone


def label_pair(
    labels: Tensor | None, reference_labels: Tensor | None, u: Tensor, v: Tensor, alone: bool
) -> tuple[Tensor, Tensor]:
    """Return the labels of both sides of `labelled_rows`, (n,) and (m,)."""
    if labels is None:
        raise _checks.InvalidInput("labels is None; needs labels (n,), or indices_tuple.")
    others = labels if alone else reference_labels
    if others is None:
        raise _checks.InvalidInput("ref_labels is None; needs one label for each row of ref_emb.")
    mine = as_labels("labels", labels, u.shape[0]).to(u.device)
    return mine, as_labels("ref_labels", others, v.shape[0]).to(u.device)


def _known_same(
    labels: Tensor | None,
    others: Tensor | None,
    n: int,
    m: int,
    device: torch.device,
    *,
    shared: bool = True,
) -> Tensor | None:
    """Compare labels (n,) and (m,) to a mask (n, m) of equal ones."""
    if labels is None or others is None or not shared:
        return None
    return (
        as_labels("labels", labels, n).to(device)[:, None] == as_labels("labels", others, m).to(device)[None, :]
    )


def as_labels(name: str, labels: Tensor, n: int) -> Tensor:
    """Return labels (n,) or (n, 1) as (n,), in their own type: integers never pass through float."""
    _inputs.tensor(name, labels)
    flat = labels.reshape(-1) if labels.ndim == 2 and labels.shape[1] == 1 else labels
    if flat.shape != (n,):
        raise _checks.InvalidInput(f"{name} has shape {tuple(labels.shape)}; needs ({n},).")
    return flat


def as_mask(same: Tensor | None, shapes: tuple[tuple[int, ...], ...], device: torch.device) -> Tensor | None:
    """Return a mask of pairs that are not negatives, of one of the `shapes`."""
    if same is None:
        return None
    _inputs.tensor("same", same)
    if same.dtype != torch.bool:
        raise _checks.InvalidType(f"same is a tensor of {same.dtype}; needs booleans. Use .bool().")
    if tuple(same.shape) not in shapes:
        needed = " or ".join(str(shape) for shape in shapes)
        raise _checks.InvalidInput(f"same has shape {tuple(same.shape)}; needs {needed}.")
    return same.to(device)
