"""PARAM: learn the anchors' weights so that every encoder ranks the same item first.

P = softmax(logits) over the shared items, one P for all encoders. Under the whitened inner product a relative
vector is a linear regression on the rows of P, so what it would be had its own item not been fitted is known
exactly (leave-one-out of least squares). The contrastive term is computed on those vectors: without that it
only learns to remember the fitted items.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch.nn.functional import cross_entropy, normalize

from latentlink import _checks
from latentlink.spaces.anchors import gcca_anchors, kmeans_anchors

FloatArray = np.ndarray[Any, np.dtype[np.floating[Any]]]


@dataclass(frozen=True)
class LearnedAnchors:
    """Weights that were learned, and how.

    Attributes
    ----------
    weights : array (k, m)
        Row-stochastic.
    losses : array (steps,)
        Of each step that was taken.
    held_out : array (checks,)
        Contrastive loss on the pairs held out for early stopping; empty without it.
    effective_items : array (k,)
        1 / sum of squared weights: how many items an anchor averages.
    """

    weights: FloatArray
    losses: FloatArray
    held_out: FloatArray
    effective_items: FloatArray


def learn_anchors(
    frames: Sequence[FloatArray],
    n_anchors: int,
    *,
    start: str | FloatArray = "kmeans",
    steps: int = 100,
    batch: int = 512,
    learning_rate: float = 0.15,
    temperature: float = 0.05,
    contrast: float = 1.0,
    coverage: float = 0.0,
    orthogonality: float = 0.0,
    length: float = 0.0,
    patience: int = 0,
    seed: int = 0,
) -> LearnedAnchors:
    """Learn one row-stochastic P (k, m) shared by all encoders.

    Parameters
    ----------
    frames : sequence of (m, d_i) arrays
        Whitened vectors of the same m items. One encoder alone needs ``contrast=0``.
    n_anchors : int
    start : {"kmeans", "gcca", "random"} or array (k, m)
        Where the logits begin: at cluster membership, at the closed form, at random, or as given.
    steps, batch, learning_rate
        Of Adam, with a cosine schedule.
    temperature : float
        Of the contrastive term, a symmetric InfoNCE averaged over all pairs of encoders.
    contrast, coverage, orthogonality, length : float
        Weights of the terms: symmetric InfoNCE; soft k-means distortion; mean squared cosine between anchors;
        squared deviation of the anchors' root-mean-square coordinate from 0.3.
    patience : int
        Above 0, a tenth of the items is held out; learning stops when their contrastive loss has not improved
        for this many checks of five steps, and the best weights are kept.
    seed : int

    Returns
    -------
    LearnedAnchors

    References
    ----------
    After arXiv 2605.30596, whose formulas and settings are not public; ours are in docs/spaces.md.
    """
    if len(frames) < 2 and contrast > 0:
        raise _checks.InvalidInput("frames holds 1 encoder; the contrastive term needs 2. Pass contrast=0.")
    generator = torch.Generator().manual_seed(seed)
    m = frames[0].shape[0]
    stacked = torch.as_tensor(np.hstack(frames), dtype=torch.float32)  # (m, D)
    spans = _spans(frames)
    order = torch.randperm(m, generator=generator)
    held, fitted = (order[: m // 10], order[m // 10 :]) if patience else (order[:0], order)
    logits = _start(start, frames, n_anchors, seed)
    logits.requires_grad_()
    mask = torch.zeros(m)
    mask[held] = -torch.inf  # held-out items carry no weight until the end
    optimizer = torch.optim.Adam([logits], lr=learning_rate, betas=(0.9, 0.99))
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    losses, checks, best, kept = [], [], np.inf, logits.detach().clone()
    for step in range(steps):
        items = fitted[torch.randperm(fitted.numel(), generator=generator)[:batch]]
        weights = torch.softmax(logits + mask, dim=1)  # (k, m)
        # Whitened coordinates have mean 0, so taking the uniform part off changes nothing but the rounding.
        anchors = (weights - 1 / m) @ stacked  # (k, D)
        loss = contrast * _contrast(stacked, spans, anchors, weights, items, temperature) if contrast else 0.0
        for span in spans:
            geometry = _geometry(stacked[items, span], anchors[:, span], coverage, orthogonality, length)
            loss = loss + geometry / len(spans)
        optimizer.zero_grad()
        torch.as_tensor(loss).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        schedule.step()
        losses.append(float(torch.as_tensor(loss).detach()))
        if patience and step % 5 == 4:
            with torch.no_grad():
                anchors = (torch.softmax(logits + mask, dim=1) - 1 / m) @ stacked
                unit = [normalize(stacked[held, span] @ anchors[:, span].T, dim=1) for span in spans]
                checks.append(float(symmetric_loss(unit, temperature)))
            if checks[-1] < best:
                best, kept = checks[-1], logits.detach().clone()
            elif len(checks) - int(np.argmin(checks)) > patience:
                break
    final = torch.softmax((kept if patience else logits.detach()) + mask, dim=1).double().numpy()
    return LearnedAnchors(final, np.asarray(losses), np.asarray(checks), np.asarray(1 / (final**2).sum(axis=1)))


def symmetric_loss(relative: Sequence[torch.Tensor], temperature: float) -> torch.Tensor:
    """Average the symmetric InfoNCE of all pairs of encoders' unit vectors (b, k)."""
    target = torch.arange(relative[0].shape[0])
    losses = []
    for first, second in itertools.combinations(relative, 2):
        logit = first @ second.T / temperature  # (b, b)
        losses.append((cross_entropy(logit, target) + cross_entropy(logit.T, target)) / 2)
    return torch.stack(losses).mean()


def _contrast(
    stacked: torch.Tensor,
    spans: Sequence[slice],
    anchors: torch.Tensor,
    weights: torch.Tensor,
    items: torch.Tensor,
    temperature: float,
) -> torch.Tensor:
    m = stacked.shape[0]
    own = weights[:, items].T - 1 / m  # (b, k)
    relative = []
    for span in spans:
        z = stacked[items, span]  # (b, d)
        leverage = (z * z).sum(1, keepdim=True) / (m - 1)  # (b, 1)
        fitted = z @ anchors[:, span].T / (m - 1)  # (b, k)
        relative.append(normalize((fitted - leverage * own) / (1 - leverage).clamp_min(0.05), dim=1))
    return symmetric_loss(relative, temperature)


def _geometry(
    z: torch.Tensor, b: torch.Tensor, coverage: float, orthogonality: float, length: float
) -> torch.Tensor | float:
    """Weigh the terms that look at one encoder: its vectors z (b, d) and anchors b (k, d)."""
    total: torch.Tensor | float = 0.0
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


def _start(start: str | FloatArray, frames: Sequence[FloatArray], k: int, seed: int) -> torch.Tensor:
    m = frames[0].shape[0]
    if not isinstance(start, str):
        return torch.as_tensor(np.asarray(start), dtype=torch.float32).clone()
    _checks.one_of("start", start, ["kmeans", "gcca", "random"])
    if start == "random":
        return torch.randn((k, m), generator=torch.Generator().manual_seed(seed))
    if start == "kmeans":
        members = kmeans_anchors(frames, k, seed=seed).toarray() > 0
        return torch.as_tensor(4.0 * members, dtype=torch.float32)
    closed = gcca_anchors(frames, k)
    return torch.as_tensor(np.log(np.maximum(m * closed, 1e-6)), dtype=torch.float32)


def _spans(frames: Sequence[FloatArray]) -> list[slice]:
    ends = np.cumsum([0] + [frame.shape[1] for frame in frames])
    return [slice(int(a), int(b)) for a, b in itertools.pairwise(ends)]
