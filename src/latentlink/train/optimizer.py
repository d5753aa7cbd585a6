"""Optimisers by name, and the learning rate over a run."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from latentlink import _checks
from latentlink.train.settings import Settings

# LARS moves a layer by this share of its norm; the usual value of large-batch training.
_TRUST = 0.001


def make_optimizer(model: nn.Module, settings: Settings) -> torch.optim.Optimizer:
    """Make the optimiser that the settings name; biases and gains of norms are not decayed."""
    weights = [p for p in model.parameters() if p.requires_grad]
    groups: list[dict[str, Any]] = [
        {"params": [p for p in weights if p.ndim > 1], "weight_decay": settings.weight_decay},
        {"params": [p for p in weights if p.ndim <= 1], "weight_decay": 0.0},
    ]
    rate = settings.learning_rate
    if settings.optimizer == "lars":
        timm_optim = _checks.need("timm.optim", extra="train", job="optimizer 'lars'")
        optimizer: torch.optim.Optimizer = timm_optim.Lars(groups, lr=rate, momentum=0.9, trust_coeff=_TRUST)
        return optimizer
    if settings.optimizer == "sgd":
        return torch.optim.SGD(groups, lr=rate, momentum=0.9, nesterov=True)
    kind = torch.optim.Adam if settings.optimizer == "adam" else torch.optim.AdamW
    return kind(groups, lr=rate)


def rate_factor(total: int, warmup: float, *, constant: bool) -> Callable[[int], float]:
    """Make the factor of the learning rate: a linear warm-up, then a cosine to 0, or constant.

    >>> factor = rate_factor(100, 0.1, constant=False)
    >>> [round(factor(step), 3) for step in (0, 9, 10, 55, 100)]
    [0.1, 1.0, 1.0, 0.5, 0.0]
    """
    first = round(warmup * total)

    def factor(step: int) -> float:
        if step < first:
            return (step + 1) / first
        if constant or total <= first:
            return 1.0
        return 0.5 * (1 + math.cos(math.pi * (step - first) / (total - first)))

    return factor


def make_schedule(optimizer: torch.optim.Optimizer, total: int, settings: Settings) -> Any:
    """Make the schedule of a run of `total` steps."""
    factor = rate_factor(total, settings.warmup, constant=settings.constant_rate)
    return torch.optim.lr_scheduler.LambdaLR(optimizer, factor)
