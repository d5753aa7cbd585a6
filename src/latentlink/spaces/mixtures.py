"""Anchors as convex mixtures of few items: PARAM as its paper describes it, P = softmax(logits) row by row.

Each anchor mixes its own s items, so that memory grows with k s and not with k m. For retrieval between encoders
`latentlink.spaces.learned` is better; this is for one encoder alone, and for supports whose rows must be sparse.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import embedding_bag, normalize

from latentlink import _checks
from latentlink.losses import LogitScale
from latentlink.spaces.anchors import kmeans_anchors
from latentlink.spaces.learned import LearnedAnchors, contrast_of, descend, hold_out, left_out
from latentlink.tails.online import Gate

FloatArray = np.ndarray[Any, np.dtype[np.floating[Any]]]

# Rows of the starting weights that are ranked at a time.
_ROWS = 64


def learn_mixtures(
    frames: Sequence[FloatArray],
    n_anchors: int,
    *,
    n_items: int | None = None,
    start: str | Any = "kmeans",
    steps: int = 100,
    batch: int = 512,
    learning_rate: float = 0.15,
    temperature: float = 0.05,
    contrast: float = 1.0,
    coverage: float = 0.0,
    orthogonality: float = 0.0,
    length: float = 0.0,
    loss: str = "infonce",
    gate: Gate | None = None,
    patience: int = 0,
    seed: int = 0,
) -> LearnedAnchors:
    """Learn a sparse row-stochastic P (k, m) shared by all encoders.

    Parameters
    ----------
    frames : sequence of (m, d_i) arrays
        Whitened vectors of the same m items. One encoder alone needs ``contrast=0``.
    n_anchors : int
        k.
    n_items : int, optional
        s, how many items an anchor mixes; all m by default. They are chosen at the start and stay.
    start : {"kmeans", "random"} or array (k, m), dense or sparse
        An anchor's items and their logits: those nearest to a cluster's centre, its members favoured; at random;
        or the largest weights of each row, as from `learn_anchors`.
    steps, batch, learning_rate
        Of Adam, with a cosine schedule.
    temperature : float
        Where that of the contrastive term begins; it is learned.
    contrast, coverage, orthogonality, length : float
        Weights of the terms: the contrastive loss on vectors as if their own item had not been fitted; soft
        k-means distortion; mean squared cosine between anchors; squared deviation of the anchors'
        root-mean-square coordinate from 0.3. The last three look at each encoder alone.
    loss, gate, patience
        See `latentlink.spaces.learned.learn_anchors`; held-out items get no weight.
    seed : int

    Returns
    -------
    LearnedAnchors
        With sparse weights of s entries a row.

    Raises
    ------
    InvalidInput
        One encoder with a contrastive term; more items or anchors than there are.

    Notes
    -----
    Cost of a step: k s sum(d_i), and as in `learn_anchors`. Memory beyond the frames: six arrays (k, s).

    References
    ----------
    After arXiv 2605.30596, whose formulas and settings are not public; ours are in docs/spaces.md.

    Examples
    --------
    >>> x = np.random.default_rng(0).normal(size=(100, 4))
    >>> learned = learn_mixtures([x], 3, n_items=10, contrast=0, coverage=1)
    >>> learned.weights.shape, learned.weights.nnz
    ((3, 100), 30)
    """
    if len(frames) < 2 and contrast > 0:
        raise _checks.InvalidInput("frames holds 1 encoder; the contrastive term needs 2. Pass contrast=0.")
    generator = torch.Generator().manual_seed(seed)
    m = frames[0].shape[0]
    fitted, part, held = hold_out(frames, patience, generator)
    _checks.integer("n_anchors", n_anchors, low=1, high=fitted.size)
    s = fitted.size if n_items is None else _checks.integer("n_items", n_items, low=1, high=fitted.size)
    chosen, logits = _start(start, part, n_anchors, s, fitted, seed)  # (k, s) twice
    logits.requires_grad_()
    widths = [frame.shape[1] for frame in part]
    stacked = torch.as_tensor(np.hstack(part), dtype=torch.float32)  # (n, D)
    stacked = stacked - stacked.mean(0)
    scale = LogitScale(temperature)
    measure = contrast_of(loss, gate, scale)

    def anchors() -> tuple[Tensor, Tensor]:
        weights = torch.softmax(logits, dim=1)
        return weights, embedding_bag(chosen, stacked, per_sample_weights=weights, mode="sum")  # (k, D)

    def total(z: Tensor, b: Tensor, relative: Sequence[Tensor]) -> Tensor:
        value = contrast * measure(relative) if contrast else logits.sum() * 0
        for vectors, own in zip(torch.split(z, widths, dim=1), torch.split(b, widths, dim=1), strict=True):
            value = value + geometry(vectors, own, coverage, orthogonality, length) / len(widths)
        return value

    def objective(items: Tensor) -> Tensor:
        weights, b = anchors()
        z, n = stacked[items], len(stacked)
        own = own_weights(weights, chosen, items, n) - 1 / n
        pairs = zip(torch.split(z, widths, dim=1), torch.split(b, widths, dim=1), strict=True)
        return total(z, b, [left_out(vectors, each.T, own, n) for vectors, each in pairs])

    def check() -> Tensor:
        b = anchors()[1]
        pairs = zip(torch.split(unseen, widths, dim=1), torch.split(b, widths, dim=1), strict=True)
        return total(unseen, b, [vectors @ each.T for vectors, each in pairs])

    unseen = torch.as_tensor(np.hstack(held), dtype=torch.float32)
    losses, checks = descend(
        [{"params": [logits], "lr": learning_rate}, {"params": list(scale.parameters()), "lr": 0.02}],
        objective,
        fitted.size,
        steps=steps,
        batch=batch,
        generator=generator,
        patience=patience,
        check=check,
    )
    from scipy.sparse import csr_array

    values = torch.softmax(logits.detach().double(), dim=1).numpy().ravel()
    columns = fitted[chosen.numpy().ravel()]
    weights = csr_array((values, columns, np.arange(0, values.size + 1, s)), shape=(n_anchors, m))
    return LearnedAnchors(weights, losses, checks, float(scale().detach()))


def own_weights(weights: Tensor, chosen: Tensor, items: Tensor, m: int) -> Tensor:
    """Look up the weights (b, k) that batch items have in anchors of weights and item numbers (k, s)."""
    place = torch.full((m,), items.numel())
    place[items] = torch.arange(items.numel())
    table = weights.new_zeros((weights.shape[0], items.numel() + 1))
    return table.scatter(1, place[chosen], weights)[:, :-1].T


def geometry(z: Tensor, b: Tensor, coverage: float, orthogonality: float, length: float) -> Tensor | float:
    """Weigh the terms that look at one encoder: its vectors z (b, d) and anchors b (k, d)."""
    total: Tensor | float = 0.0
    d = z.shape[1]
    if coverage:
        distance = torch.cdist(z, b).square() / d  # (b, k)
        total = total + coverage * (torch.softmax(-distance / 0.1, dim=1) * distance).sum(1).mean()
    if orthogonality:
        unit = normalize(b, dim=1)
        cosines = unit @ unit.T  # (k, k)
        k = b.shape[0]
        total = total + orthogonality * (cosines.square().sum() - k) / max(1, k * (k - 1))
    if length:
        total = total + length * (b.norm(dim=1) / d**0.5 - 0.3).square().mean()
    return total


def _start(
    start: str | Any, frames: Sequence[FloatArray], k: int, s: int, fitted: Any, seed: int
) -> tuple[Tensor, Tensor]:
    """Choose each anchor's items and their logits: (k, s) twice."""
    n = frames[0].shape[0]
    if isinstance(start, str) and _checks.one_of("start", start, ["kmeans", "random"]) == "random":
        generator = torch.Generator().manual_seed(seed)
        chosen = torch.stack([torch.randperm(n, generator=generator)[:s] for _ in range(k)])
        return chosen, torch.randn((k, s), generator=generator)
    if isinstance(start, str):
        members = kmeans_anchors(frames, k, seed=seed)
        stacked = np.hstack(frames)
        centres = members @ stacked
    parts, logits = [], []
    for low in range(0, k, _ROWS):
        rows = slice(low, low + _ROWS)
        if isinstance(start, str):
            member = members[rows].toarray() > 0
            score = centres[rows] @ stacked.T
            score = score / np.abs(score).max() + 2.0 * member
            value = 4.0 * member
        else:
            score = np.asarray(start[rows].toarray() if hasattr(start, "toarray") else start[rows])[:, fitted]
            value = np.log(np.maximum(n * score, 1e-6))
        best = np.argsort(-score, axis=1, kind="stable")[:, :s]
        parts.append(best)
        logits.append(np.take_along_axis(value, best, axis=1))
    return torch.as_tensor(np.vstack(parts)), torch.as_tensor(np.vstack(logits), dtype=torch.float32)
