"""Loss modules: thin faces of the pure functions, callable as the users of other libraries call theirs.

No module keeps anything from one call to the next but its settings and a learnable temperature, if asked for.
"""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import torch
from torch import Tensor, nn

from latentlink import _checks
from latentlink.losses import _faces, _inputs
from latentlink.losses._choices import LAYOUTS
from latentlink.tails.online import Gate, QueryStatistics

REDUCTIONS = ("mean", "sum", "none")
RELEASED = Gate(evidence="regression", beta="unit", pivot=None, tail_size=None, floor=1e-6, softening=0.0)

_OPTIONS = ("labels", "negative_labels", "same", "weights", "denominator", "in_batch", "normalize", "memory")
_OF_A_CALL = ("reduction", "positive_labels", "statistics")
_GATE = tuple(field.name for field in dataclasses.fields(Gate))
_FOUND = "Leave it out: other processes are found, and the gradient is exact."
_ELSEWHERE = {  # what other libraries' losses are told, and where it is here
    "memory_bank_size": "Give InfoNCELoss the rows of a latentlink.losses.queue.Queue as negatives.",
    "gather_distributed": "Wrap the loss in latentlink.losses.gather.DistributedLoss.",
    **dict.fromkeys(("local_loss", "gather_with_grad", "cache_labels", "rank", "world_size"), _FOUND),
}


class LogitScale(nn.Module):
    """Learn a temperature as the logarithm of its inverse, clamped as CLIP's.

    Parameters
    ----------
    temperature : float
        Where it starts.
    largest : float
        Largest inverse temperature.

    Examples
    --------
    >>> scale = LogitScale(0.07)
    >>> round(float(scale().detach()), 4), bool(scale.clamped)
    (0.07, False)
    """

    def __init__(self, temperature: float = 0.07, largest: float = 100.0) -> None:
        super().__init__()
        start = -math.log(_checks.number("temperature", temperature, low=0, open_low=True))
        self.largest = _checks.number("largest", largest, low=0, open_low=True)
        self.log_scale = nn.Parameter(torch.tensor(start))

    def forward(self) -> Tensor:
        """Return the temperature, a tensor of one value with a graph."""
        return torch.exp(-self.log_scale.clamp(max=math.log(self.largest)))

    @property
    def clamped(self) -> Tensor:
        """Whether the clamp is active; the temperature then gets no gradient."""
        return self.log_scale.detach() > math.log(self.largest)


class _Loss(nn.Module):
    layout: str

    def __init__(
        self, temperature: float | Tensor | nn.Module, reduction: str, options: dict[str, Any]
    ) -> None:
        super().__init__()
        if not isinstance(temperature, nn.Module):
            _inputs.temperature(temperature)
        self.temperature = temperature
        self.reduction = _checks.one_of("reduction", reduction, REDUCTIONS)
        self.options = options
        self._known(options)

    def _known(self, options: dict[str, Any]) -> None:
        """Raise when an option is none of the loss."""
        more = ("endpoint", *_GATE) if isinstance(self, WEINCELoss) else ()
        for name in options:
            if name not in (*_OPTIONS, *_OF_A_CALL, *more[:1]):
                remedy = _ELSEWHERE.get(name, f"Options are {', '.join((*_OPTIONS, *more))}.")
                raise _checks.InvalidType(f"{name} is no option of {type(self).__name__}. {remedy}")

    def as_one_way(self, queries: Tensor, positives: Tensor, negatives: Tensor, **options: Any) -> Tensor:
        """Score queries against all rows of positives and negatives, whatever the layout of the loss."""
        return _faces.plain("one_way", queries, positives, negatives, **self.settings(options))

    def extra_repr(self) -> str:
        """Print the settings, temperature and its inverse side by side."""
        if isinstance(self.temperature, nn.Module):
            return f"reduction={self.reduction!r}"
        tau = float(self.temperature)
        return f"temperature={tau:g} (scale {1 / tau:g}), reduction={self.reduction!r}"

    def settings(self, options: dict[str, Any]) -> dict[str, Any]:
        """Join the settings of the module and of one call."""
        self._known(options)
        tau = self.temperature() if isinstance(self.temperature, nn.Module) else self.temperature
        return {"temperature": tau, "reduction": self.reduction, **self.options, **options}


class InfoNCELoss(_Loss):
    """Score queries against their positives, one way.

    Parameters
    ----------
    temperature : float, tensor of one value, or LogitScale
    reduction : {"mean", "sum", "none"}
    negative_mode : {"unpaired", "paired"}
        Whether explicit negatives are shared (m, d) or each query's own (n, m, d).
    options
        Keyword options of `latentlink.losses.functional.info_nce`.

    Examples
    --------
    >>> loss = InfoNCELoss(temperature=0.1)
    >>> float(loss(torch.eye(4), torch.eye(4))) < 1e-3
    True
    """

    layout = "one_way"

    def __init__(
        self,
        temperature: float | Tensor | nn.Module = 0.1,
        reduction: str = "mean",
        negative_mode: str = "unpaired",
        **options: Any,
    ) -> None:
        super().__init__(temperature, reduction, options)
        self.negative_mode = _checks.one_of("negative_mode", negative_mode, ["unpaired", "paired"])

    def forward(
        self, query: Tensor, positive_key: Tensor, negative_keys: Tensor | None = None, **options: Any
    ) -> Tensor:
        """Compute the loss: (n, d), (n, d), optional negatives → scalar, or (n,) unreduced.

        With explicit negatives the other positives are not negatives, unless ``in_batch=True``.
        """
        if negative_keys is not None and _inputs.tensor("negative_keys", negative_keys).ndim != (
            3 if self.negative_mode == "paired" else 2
        ):
            needed = "(n, m, d)" if self.negative_mode == "paired" else "(m, d)"
            raise _checks.InvalidInput(
                f"negative_keys has shape {tuple(negative_keys.shape)}; needs {needed} "
                f"for negative_mode={self.negative_mode!r}."
            )
        return _faces.plain("one_way", query, positive_key, negative_keys, **self.settings(options))


class NTXentLoss(_Loss):
    """Score two views of each item against all other views.

    Parameters
    ----------
    temperature : float, tensor of one value, or LogitScale
    reduction : {"mean", "sum", "none"}
    options
        Keyword options of `latentlink.losses.functional.nt_xent`, and `memory`, the MiB of tiles that may be
        kept between the forward and the backward walk.

    Examples
    --------
    >>> loss = NTXentLoss(temperature=0.5)
    >>> float(loss(torch.ones(4, 2), torch.ones(4, 2)).exp())
    7.0000...
    """

    layout = "nt_xent"

    def __init__(
        self, temperature: float | Tensor | nn.Module = 0.5, reduction: str = "mean", **options: Any
    ) -> None:
        super().__init__(temperature, reduction, options)

    def forward(self, z0: Tensor, z1: Tensor, **options: Any) -> Tensor:
        """Compute the loss: (n, d), (n, d) → scalar, or (2n,) unreduced."""
        return _faces.plain("nt_xent", z0, z1, **self.settings(options))


class SymmetricInfoNCELoss(_Loss):
    """Score paired towers in both directions.

    Parameters
    ----------
    temperature : float, tensor of one value, or LogitScale
    reduction : {"mean", "sum", "none"}
    options
        Keyword options of `latentlink.losses.functional.symmetric_info_nce`, and `memory` as in `NTXentLoss`.

    Examples
    --------
    >>> loss = SymmetricInfoNCELoss(temperature=LogitScale())
    >>> float(loss(torch.eye(4), torch.eye(4)).detach()) < 1e-3
    True
    """

    layout = "symmetric"

    def __init__(
        self, temperature: float | Tensor | nn.Module = 0.07, reduction: str = "mean", **options: Any
    ) -> None:
        super().__init__(temperature, reduction, options)

    def forward(self, a: Tensor, b: Tensor, **options: Any) -> Tensor:
        """Compute the loss: (n, d), (n, d) → scalar, or (2n,) unreduced."""
        return _faces.plain("symmetric", a, b, **self.settings(options))


class WEINCELoss(_Loss):
    """Score with the WEINCE logit, which bends towards a shortfall law where a tail ends at the endpoint.

    Parameters
    ----------
    temperature : float, tensor of one value, or LogitScale
    layout : {"nt_xent", "one_way", "symmetric"}
        Who chooses among whom: as in `NTXentLoss`, `InfoNCELoss` or `SymmetricInfoNCELoss`.
    reduction : {"mean", "sum", "none"}
    gate : Gate, optional
        Rule for beta and blend; by default likelihood evidence and an absolute pivot of the gap.
    options : dict, optional
        Keyword options of `latentlink.losses.functional.weince`; they may also be given with a call.
    evidence, beta, pivot, gap_sharpness, margin, evidence_sharpness, tail_size, softening, …
        Single fields of the gate, or single options.

    Examples
    --------
    >>> loss = WEINCELoss(temperature=0.5)
    >>> z0, z1 = torch.randn(2, 64, 16, generator=torch.Generator().manual_seed(0))
    >>> loss(z0, z1).shape, loss.statistics(z0, z1).blend.shape
    (torch.Size([]), torch.Size([128]))
    """

    def __init__(
        self,
        temperature: float | Tensor | nn.Module = 0.5,
        *,
        layout: str = "nt_xent",
        reduction: str = "mean",
        gate: Gate | None = None,
        options: dict[str, Any] | None = None,
        **rule: Any,
    ) -> None:
        single = {name: value for name, value in rule.items() if name not in _GATE}
        super().__init__(temperature, reduction, {**(options or {}), **single})
        self.layout = _checks.one_of("layout", layout, LAYOUTS)
        rule = {name: value for name, value in rule.items() if name in _GATE}
        self.gate = dataclasses.replace(gate if gate is not None else Gate(), **rule)

    @classmethod
    def released(cls, temperature: float | Tensor | nn.Module = 0.5, **settings: Any) -> WEINCELoss:
        """Make the loss of the authors' released code: regression evidence, relative pivot, beta 1."""
        return cls(temperature, gate=RELEASED, **settings)

    @classmethod
    def paper(cls, temperature: float | Tensor | nn.Module = 0.5, **settings: Any) -> WEINCELoss:
        """Make the loss as the paper writes it: as `released`, with each query's own beta."""
        return cls(temperature, gate=dataclasses.replace(RELEASED, beta="estimated"), **settings)

    def forward(self, z0: Tensor, z1: Tensor, negatives: Tensor | None = None, **options: Any) -> Tensor:
        """Compute the loss: (n, d), (n, d) → scalar, or (n,) or (2n,) unreduced."""
        return _faces.weince(self.layout, z0, z1, negatives, gate=self.gate, **self.settings(options))

    def as_one_way(self, queries: Tensor, positives: Tensor, negatives: Tensor, **options: Any) -> Tensor:
        """Score queries against all rows of positives and negatives, whatever the layout of the loss."""
        return _faces.weince("one_way", queries, positives, negatives, gate=self.gate, **self.settings(options))

    def statistics(
        self, z0: Tensor, z1: Tensor, negatives: Tensor | None = None, **options: Any
    ) -> QueryStatistics:
        """Compute gap, beta, evidence and blend of each query; detached, and nothing is remembered."""
        joined = {**self.options, **options}
        known = ("labels", "negative_labels", "same", "in_batch", "normalize", "endpoint")
        settings = {name: joined[name] for name in known if name in joined}
        return _faces.statistics(self.layout, z0, z1, negatives, gate=self.gate, **settings)
