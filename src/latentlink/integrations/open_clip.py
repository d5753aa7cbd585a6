"""Losses called as open_clip's: ``loss(image_features, text_features, logit_scale)``."""

from __future__ import annotations

from typing import Any

from latentlink._checks import need

need("torch", extra="torch", job="latentlink.integrations.open_clip")

from torch import Tensor, nn  # noqa: E402

from latentlink import losses  # noqa: E402
from latentlink.losses.gather import DistributedLoss  # noqa: E402


class InfoNCELoss(nn.Module):
    """Compute what open_clip's ClipLoss computes, without the logits of all pairs.

    Over several processes it is the loss of the whole batch, with its exact gradient under DDP: what ClipLoss
    gives with ``local_loss=True, gather_with_grad=True``.

    Parameters
    ----------
    options
        Keyword options of `latentlink.losses.SymmetricInfoNCELoss`.

    Examples
    --------
    >>> import torch
    >>> x = torch.eye(3)
    >>> float(InfoNCELoss()(x, x, torch.tensor(20.0))) < 1e-6
    True
    """

    def __init__(self, **options: Any) -> None:
        super().__init__()
        self.options = {"normalize": False, **options}
        losses.SymmetricInfoNCELoss(**self.options)  # refuses what is wrong now, not at the first step

    def forward(
        self,
        image_features: Tensor,
        text_features: Tensor,
        logit_scale: Tensor | float,
        logit_bias: Tensor | None = None,
        output_dict: bool = False,
    ) -> Tensor | dict[str, Tensor]:
        """Compute the loss: normalised (n, d) twice and the live scale, 1 / temperature → scalar.

        `logit_bias` is accepted and without effect: a constant cancels in a softmax. `output_dict` is open_clip's
        own flag, kept for its training loop.
        """
        value = self._loss(1.0 / logit_scale)(image_features, text_features)
        return {"contrastive_loss": value} if output_dict else value

    def _loss(self, temperature: Tensor | float) -> nn.Module:
        return DistributedLoss(losses.SymmetricInfoNCELoss(temperature, **self.options))


class WEINCELoss(InfoNCELoss):
    """Compute the symmetric WEINCE loss.

    Rows are normalised once more, in float32: half-precision features that were normalised in their own type
    are otherwise up to 0.004 away from norm 1, and a shortfall is a small number.

    Parameters
    ----------
    options
        Keyword options of `latentlink.losses.WEINCELoss`.

    Examples
    --------
    >>> import torch
    >>> x = torch.eye(3)
    >>> sorted(WEINCELoss()(x, x, torch.tensor(20.0), output_dict=True))
    ['contrastive_loss']
    """

    def __init__(self, **options: Any) -> None:
        super().__init__()
        self.options = options
        losses.WEINCELoss(**options)

    def _loss(self, temperature: Tensor | float) -> nn.Module:
        return DistributedLoss(losses.WEINCELoss(temperature, layout="symmetric", **self.options))
