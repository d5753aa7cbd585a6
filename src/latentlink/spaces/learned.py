"""PARAM: learn the anchors' weights so that every encoder ranks the same item first."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch.nn.functional import cross_entropy, normalize

FloatArray = np.ndarray[Any, np.dtype[np.floating[Any]]]


def learn_anchors(
    frames: Sequence[FloatArray],
    start: FloatArray,
    *,
    steps: int = 60,
    batch: int = 256,
    learning_rate: float = 0.2,
    temperature: float = 0.07,
    seed: int = 0,
) -> FloatArray:
    """Learn one row-stochastic P (k, m) shared by all encoders.

    Parameters
    ----------
    frames : sequence of (m, d_i) arrays
        Whitened vectors of the same m items.
    start : array (k, m)
        Logits to begin with; P = softmax(logits) over the items.
    steps, batch, learning_rate, temperature
        Of Adam on the symmetric InfoNCE of every pair of encoders.

    Returns
    -------
    array (k, m)
    """
    generator = torch.Generator().manual_seed(seed)
    m = frames[0].shape[0]
    stacked = torch.as_tensor(np.hstack(frames), dtype=torch.float32)  # (m, D)
    spans = _spans(frames)
    leverage = [(stacked[:, span] ** 2).sum(1) / (m - 1) for span in spans]
    logits = torch.as_tensor(start, dtype=torch.float32).requires_grad_()
    optimizer = torch.optim.Adam([logits], lr=learning_rate, betas=(0.9, 0.99))
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    for _ in range(steps):
        items = torch.randperm(m, generator=generator)[:batch]
        weights = torch.softmax(logits, dim=1) - 1 / m  # (k, m); the uniform part is the mean, that is zero
        anchors = weights @ stacked  # (k, D)
        own = weights[:, items].T  # (b, k)
        relative = []
        for span, lever in zip(spans, leverage, strict=True):
            h = lever[items, None]  # (b, 1)
            fitted = stacked[items, span] @ anchors[:, span].T / (m - 1)  # (b, k)
            # Exact leave-one-out: as if the item had not been among those fitted.
            relative.append(normalize((fitted - h * own) / (1 - h), dim=1))
        loss = symmetric_loss(relative, temperature)
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        schedule.step()
    return torch.softmax(logits.detach(), dim=1).double().numpy()


def symmetric_loss(relative: Sequence[torch.Tensor], temperature: float) -> torch.Tensor:
    """Mean symmetric InfoNCE over all pairs of encoders' unit vectors (b, k)."""
    target = torch.arange(relative[0].shape[0])
    losses = []
    for i, first in enumerate(relative):
        for second in relative[i + 1 :]:
            logit = first @ second.T / temperature  # (b, b)
            losses.append((cross_entropy(logit, target) + cross_entropy(logit.T, target)) / 2)
    return torch.stack(losses).mean()


def _spans(frames: Sequence[FloatArray]) -> list[slice]:
    ends = np.cumsum([0] + [frame.shape[1] for frame in frames])
    return [slice(int(a), int(b)) for a, b in itertools.pairwise(ends)]
