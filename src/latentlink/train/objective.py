"""The losses a recipe can name, and the authors' script as it was run."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from latentlink import _checks
from latentlink.losses import InfoNCELoss, NTXentLoss, WEINCELoss
from latentlink.losses._inputs import computing_type
from latentlink.train.settings import Settings

# Of the script: hardest candidates of both extra losses, their weight, and the bounds of the pooled exponent.
_HARDEST = 50
_WEIGHT = 0.5
_BOUNDS = (0.5, 16.0)


def make_loss(settings: Settings, *, two_views: bool) -> nn.Module:
    """Make the loss that `settings.loss` names.

    Parameters
    ----------
    settings : Settings
    two_views : bool
        NT-Xent's candidates (both views of every other item), or one-way InfoNCE's.
    """
    temperature = settings.temperature
    if settings.loss == "weince-script":
        return ScriptLoss(temperature)
    if settings.loss == "infonce":
        return NTXentLoss(temperature) if two_views else InfoNCELoss(temperature)
    layout = "nt_xent" if two_views else "one_way"
    if settings.loss == "weince-paper":
        return WEINCELoss.paper(temperature, layout=layout)
    if settings.loss == "weince-released":
        return WEINCELoss.released(temperature, layout=layout)
    ours: dict[str, Any] = {"weince": {}, "weince-wide": {"pivot": 0.2}, "weince-unit": {"beta": "unit"}}
    return WEINCELoss(temperature, layout=layout, **ours[settings.loss])


def over_processes(loss: nn.Module, z0: Tensor, z1: Tensor, labels: Tensor | None = None) -> Tensor:
    """Compute a loss over the batches of all processes; its gradient is for DDP, which averages."""
    from latentlink.losses.gather import DistributedLoss, n_processes

    given = {} if labels is None else {"labels": labels}
    if n_processes() == 1:
        alone: Tensor = loss(z0, z1, **given)
        return alone
    if isinstance(loss, ScriptLoss):
        raise _checks.InvalidInput(
            "loss is 'weince-script'; it is defined for one process. Use 'weince-released'."
        )
    # WEINCE as a whole on every process: a relative pivot needs the whole batch, and near the endpoint the shares'
    # other order of sums (1e-5 of the gradient in float32) grows until the curve of one process is left.
    value: Tensor = DistributedLoss(loss, local=not isinstance(loss, WEINCELoss))(z0, z1, **given)
    return value


class ScriptLoss(nn.Module):
    """The objective of the script that reproduces the paper's CIFAR-100 rows: WEINCE and two further losses.

    The two are cross-entropies over each view's positive and its 50 hardest candidates, once with the softmax
    and once with the shortfall logit, each with weight 0.5. The exponent of the latter is a running estimate
    over the batch; unlike our losses this one therefore has a state, which is saved with the weights.

    Parameters
    ----------
    temperature : float
    """

    exponent: Tensor

    def __init__(self, temperature: float) -> None:
        super().__init__()
        self.main = WEINCELoss.released(temperature)
        self.temperature = temperature
        self.register_buffer("exponent", torch.tensor(4.0))

    def forward(self, z0: Tensor, z1: Tensor) -> Tensor:
        """Compute the loss: (n, d), (n, d) → scalar."""
        dtype = computing_type(z0, z1)
        u = torch.nn.functional.normalize(torch.cat([z0, z1]).to(dtype), dim=1)  # (2n, d)
        s = u @ u.T
        n = z0.shape[0]
        rows = torch.arange(2 * n, device=s.device)
        partner = (rows + n) % (2 * n)
        positive = s[rows, partner]  # (2n,)
        others = s.masked_fill(torch.eye(2 * n, dtype=torch.bool, device=s.device), -torch.inf)
        others = others.scatter(1, partner[:, None], -torch.inf)
        hardest = others.topk(min(_HARDEST, 2 * n - 2), dim=1).values  # (2n, k)
        if self.training:
            self._follow(others.detach())
        chosen = torch.cat([positive[:, None], hardest], dim=1)  # (2n, 1 + k), positive first
        shortfall = -self.exponent * torch.log((1 - chosen).clamp(min=1e-6))
        extra = _first_wins(shortfall) + _first_wins(chosen / self.temperature)
        return self.main(z0, z1) + _WEIGHT * extra  # type: ignore[no-any-return]

    def statistics(self, z0: Tensor, z1: Tensor, **options: Any) -> Any:
        """Compute gap, beta, evidence and blend of the main part."""
        return self.main.statistics(z0, z1, **options)

    @torch.no_grad()
    def _follow(self, similarities: Tensor) -> None:
        """Move the exponent by a tenth towards the slope of log rank on log shortfall over the batch's top."""
        known = similarities[similarities > -torch.inf]
        k = min(max(1024, int(0.05 * known.numel())), known.numel())
        if k < 10:
            return
        x = (1 - known.topk(k).values).clamp(min=1e-6).log()  # ascending shortfalls
        y = (torch.arange(1, k + 1, device=x.device, dtype=x.dtype) / (k + 1)).log()
        first = max(1, k // 20)
        x, y = x[first:] - x[first:].mean(), y[first:] - y[first:].mean()
        slope = (x @ y) / (x @ x).clamp(min=1e-12)
        fit = 1 - (y - slope * x).square().sum() / y.square().sum()
        if slope > 0 and fit >= 0.85:
            self.exponent.mul_(0.9).add_(0.1 * slope.clamp(*_BOUNDS))


def _first_wins(logits: Tensor) -> Tensor:
    return (logits.logsumexp(dim=1) - logits[:, 0]).mean()
