"""Loss modules: thin faces of the pure functions, callable as the users of other libraries call theirs.

No module keeps anything from one call to the next but its settings (and a learnable temperature, if asked for).
"""

from __future__ import annotations

import dataclasses
from typing import Any

import torch
from torch import Tensor, nn

from latentlink import _checks
from latentlink.losses import _inputs, functional
from latentlink.losses._choices import LAYOUTS, choices_of
from latentlink.tails.online import Gate, QueryStatistics


class InfoNCELoss(nn.Module):
    """Score queries against their positives, one way.

    Parameters
    ----------
    temperature : float or tensor of one value
    negative_mode : {"unpaired", "paired"}
        Whether explicit negatives are shared (m, d) or each query's own (n, m, d).
    reduction : {"mean", "sum", "none"}
    options
        Keyword options of `latentlink.losses.functional.info_nce`.

    Examples
    --------
    >>> loss = InfoNCELoss(temperature=0.1)
    >>> float(loss(torch.eye(4), torch.eye(4))) < 1e-3
    True
    """

    def __init__(
        self,
        temperature: float | Tensor = 0.1,
        negative_mode: str = "unpaired",
        reduction: str = "mean",
        **options: Any,
    ) -> None:
        super().__init__()
        self.temperature = _inputs.temperature(temperature)
        self.negative_mode = _checks.one_of("negative_mode", negative_mode, ["unpaired", "paired"])
        self.reduction = _checks.one_of("reduction", reduction, ["mean", "sum", "none"])
        self.options = options

    def forward(
        self, query: Tensor, positive_key: Tensor, negative_keys: Tensor | None = None, **options: Any
    ) -> Tensor:
        """Compute the loss: (n, d), (n, d), optional negatives → scalar, or (n,) unreduced."""
        if negative_keys is not None and negative_keys.ndim != (3 if self.negative_mode == "paired" else 2):
            needed = "(n, m, d)" if self.negative_mode == "paired" else "(m, d)"
            raise _checks.InvalidInput(
                f"negative_keys has shape {tuple(negative_keys.shape)}; needs {needed} "
                f"for negative_mode={self.negative_mode!r}."
            )
        each = functional.info_nce(
            query, positive_key, negative_keys, temperature=self.temperature, **{**self.options, **options}
        )
        return reduce(each, self.reduction)


class NTXentLoss(nn.Module):
    """Score two views of each item against all other views.

    Parameters
    ----------
    temperature : float or tensor of one value
    reduction : {"mean", "sum", "none"}
    options
        Keyword options of `latentlink.losses.functional.nt_xent`.

    Examples
    --------
    >>> loss = NTXentLoss(temperature=0.5)
    >>> float(loss(torch.ones(4, 2), torch.ones(4, 2)).exp())
    7.0000...
    """

    def __init__(self, temperature: float | Tensor = 0.5, reduction: str = "mean", **options: Any) -> None:
        super().__init__()
        self.temperature = _inputs.temperature(temperature)
        self.reduction = _checks.one_of("reduction", reduction, ["mean", "sum", "none"])
        self.options = options

    def forward(self, z0: Tensor, z1: Tensor, **options: Any) -> Tensor:
        """Compute the loss: (n, d), (n, d) → scalar, or (2n,) unreduced."""
        each = functional.nt_xent(z0, z1, temperature=self.temperature, **{**self.options, **options})
        return reduce(each, self.reduction)


class SymmetricInfoNCELoss(nn.Module):
    """Score paired towers in both directions.

    Parameters
    ----------
    temperature : float or tensor of one value
    reduction : {"mean", "sum", "none"}
    options
        Keyword options of `latentlink.losses.functional.symmetric_info_nce`.

    Examples
    --------
    >>> loss = SymmetricInfoNCELoss(temperature=0.07)
    >>> float(loss(torch.eye(4), torch.eye(4))) < 1e-3
    True
    """

    def __init__(self, temperature: float | Tensor = 0.07, reduction: str = "mean", **options: Any) -> None:
        super().__init__()
        self.temperature = _inputs.temperature(temperature)
        self.reduction = _checks.one_of("reduction", reduction, ["mean", "sum", "none"])
        self.options = options

    def forward(self, a: Tensor, b: Tensor, **options: Any) -> Tensor:
        """Compute the loss: (n, d), (n, d) → scalar, or (2n,) unreduced."""
        each = functional.symmetric_info_nce(a, b, temperature=self.temperature, **{**self.options, **options})
        return reduce(each, self.reduction)


class WEINCELoss(nn.Module):
    """Score with the WEINCE logit, which bends towards a shortfall law where a tail ends at the endpoint.

    Parameters
    ----------
    temperature : float or tensor of one value
    evidence, beta, pivot, gap_sharpness, margin, evidence_sharpness, tail_size, softening
        Rule for beta and blend; see `latentlink.tails.online.Gate`.
    layout : {"nt_xent", "one_way", "symmetric"}
    reduction : {"mean", "sum", "none"}
    options
        Further keyword options of `latentlink.losses.functional.weince`.

    Examples
    --------
    >>> loss = WEINCELoss(temperature=0.5)
    >>> z0, z1 = torch.randn(2, 64, 16, generator=torch.Generator().manual_seed(0))
    >>> loss(z0, z1).shape, loss.statistics(z0, z1).blend.shape
    (torch.Size([]), torch.Size([128]))
    """

    def __init__(
        self,
        temperature: float | Tensor = 0.5,
        *,
        layout: str = "nt_xent",
        reduction: str = "mean",
        gate: Gate | None = None,
        options: dict[str, Any] | None = None,
        **rule: Any,
    ) -> None:
        super().__init__()
        self.temperature = _inputs.temperature(temperature)
        self.layout = _checks.one_of("layout", layout, LAYOUTS)
        self.reduction = _checks.one_of("reduction", reduction, ["mean", "sum", "none"])
        self.gate = dataclasses.replace(gate if gate is not None else Gate(), **rule)
        self.options = options or {}

    @classmethod
    def released(cls, temperature: float | Tensor = 0.5, **settings: Any) -> WEINCELoss:
        """Make the loss of the authors' released code: regression evidence, relative pivot, beta 1."""
        return cls(temperature, gate=RELEASED, **settings)

    @classmethod
    def paper(cls, temperature: float | Tensor = 0.5, **settings: Any) -> WEINCELoss:
        """Make the loss as the paper writes it: as `released`, with each query's own beta."""
        return cls(temperature, gate=dataclasses.replace(RELEASED, beta="estimated"), **settings)

    def forward(self, z0: Tensor, z1: Tensor, negatives: Tensor | None = None, **options: Any) -> Tensor:
        """Compute the loss: (n, d), (n, d) → scalar, or (n,) or (2n,) unreduced."""
        each = functional.weince(
            z0,
            z1,
            negatives,
            layout=self.layout,
            temperature=self.temperature,
            gate=self.gate,
            **{**self.options, **options},
        )
        return reduce(each, self.reduction)

    @torch.no_grad()
    def statistics(
        self, z0: Tensor, z1: Tensor, negatives: Tensor | None = None, **options: Any
    ) -> QueryStatistics:
        """Compute gap, beta, evidence and blend of each query; detached, and nothing is remembered."""
        settings = {**self.options, **options}
        choices = choices_of(
            z0,
            z1,
            negatives,
            self.layout,
            settings.get("labels"),
            settings.get("negative_labels"),
            settings.get("same"),
            settings.get("in_batch"),
            settings.get("normalize", True),
        )
        endpoint = settings.get("endpoint", 1.0)
        shortfalls = [functional.exact_shortfalls(choice, endpoint, self.gate) for choice in choices]
        return functional.tail_statistics(choices, shortfalls, self.gate)


RELEASED = Gate(evidence="regression", beta="unit", pivot=None, tail_size=None, floor=1e-6, softening=0.0)


def reduce(each: Tensor, reduction: str) -> Tensor:
    """Reduce losses (n,) by "mean", "sum" or "none"; the mean over no query is 0."""
    if reduction == "none":
        return each
    total = each.sum()
    return total / max(1, each.shape[0]) if reduction == "mean" else total
