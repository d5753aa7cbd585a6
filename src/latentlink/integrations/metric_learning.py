"""Losses called as pytorch-metric-learning's: ``loss(embeddings, labels, indices_tuple, ref_emb, ref_labels)``."""

from __future__ import annotations

from typing import Any

from latentlink._checks import need, one_of

need("torch", extra="torch", job="latentlink.integrations.metric_learning")

import torch  # noqa: E402
from torch import Tensor, nn  # noqa: E402

from latentlink.losses import _inputs, functional  # noqa: E402
from latentlink.losses._choices import Choice, as_labels, labelled_choice  # noqa: E402
from latentlink.losses._labelled import labelled_loss  # noqa: E402
from latentlink.tails.online import Gate  # noqa: E402


class InfoNCELoss(nn.Module):
    """Score rows that share a label against rows that do not.

    Parameters
    ----------
    temperature : float or tensor of one value
    positives_in_denominator : bool
        False: one term for each pair of a query and a positive, as NTXentLoss there. True: the mean over each
        query's positives, all of them in the denominator, then over queries that have one, as SupConLoss there.
    normalize : bool

    Notes
    -----
    Memory: that of the rows and of a few tiles of the similarity matrix, whatever the labels. With
    `indices_tuple` a few matrices of all pairs, but never pairs times negatives.

    Examples
    --------
    >>> x = torch.tensor([[1.0, 0.0], [1.0, 0.1], [0.0, 1.0], [0.1, 1.0]])
    >>> float(InfoNCELoss(0.07)(x, torch.tensor([0, 0, 1, 1]))) < 1e-4
    True
    """

    tiled = True  # labels need no matrix of all pairs

    def __init__(
        self,
        temperature: float | Tensor = 0.07,
        *,
        positives_in_denominator: bool = False,
        normalize: bool = True,
    ) -> None:
        super().__init__()
        _inputs.temperature(temperature)
        self.temperature = temperature
        self.denominator = one_of("denominator", "all" if positives_in_denominator else "own", ["own", "all"])
        self.normalize = normalize

    def forward(
        self,
        embeddings: Tensor,
        labels: Tensor | None = None,
        indices_tuple: tuple[Tensor, ...] | None = None,
        ref_emb: Tensor | None = None,
        ref_labels: Tensor | None = None,
    ) -> Tensor:
        """Compute the loss: (n, d), labels (n,) → scalar; a differentiable 0 when there is no pair."""
        if self.tiled and indices_tuple is None and not torch.compiler.is_compiling():
            tau = _inputs.temperature(self.temperature)
            batch = (embeddings, labels, ref_emb, ref_labels)
            return labelled_loss(*batch, tau, self.denominator, normalize=self.normalize)
        choice = labelled_choice(embeddings, labels, indices_tuple, ref_emb, ref_labels, self.normalize)
        if choice.similarities.numel() == 0:
            return choice.similarities.sum()
        each = self._each(choice)
        count = choice.positive.sum(dim=1).to(each)  # (n,)
        share = count if self.denominator == "own" else (count > 0).to(each)
        return (each * share).sum() / share.sum().clamp(min=1)

    def _each(self, choice: Choice) -> Tensor:
        tau = _inputs.temperature(self.temperature)
        return functional.choice_losses(choice.similarities / tau, choice, self.denominator)


class WEINCELoss(InfoNCELoss):
    """Score as `InfoNCELoss` does, with the WEINCE logit.

    Parameters
    ----------
    temperature : float or tensor of one value
    positives_in_denominator : bool
    gate : Gate, optional
        Rule for beta and blend.

    Notes
    -----
    Memory: a few matrices of all pairs, with labels, too.

    Examples
    --------
    >>> x = torch.tensor([[1.0, 0.0], [1.0, 0.1], [0.0, 1.0], [0.1, 1.0]])
    >>> float(WEINCELoss(0.07)(x, torch.tensor([0, 0, 1, 1]))) < 1e-4
    True
    """

    tiled = False

    def __init__(self, temperature: float | Tensor = 0.07, *, gate: Gate | None = None, **options: Any) -> None:
        super().__init__(temperature, **options)
        self.gate = Gate() if gate is None else gate

    def _each(self, choice: Choice) -> Tensor:
        tau = _inputs.temperature(self.temperature)
        return functional.bent_losses([choice], tau, 1.0, self.gate, self.denominator)


class SelfSupervised(nn.Module):
    """Give a loss two views of the same items instead of labels: ``loss(embeddings, ref_emb)``.

    Parameters
    ----------
    loss : module
        Called with stacked views and their items' numbers as labels.

    Examples
    --------
    >>> x = torch.eye(3)
    >>> float(SelfSupervised(InfoNCELoss(0.07))(x, x)) < 1e-4
    True
    """

    def __init__(self, loss: nn.Module) -> None:
        super().__init__()
        self.loss = loss

    def forward(self, embeddings: Tensor, ref_emb: Tensor) -> Tensor:
        """Compute the loss of two views: (n, d), (n, d) → scalar."""
        items = torch.arange(embeddings.shape[0], device=embeddings.device)
        value: Tensor = self.loss(torch.cat([embeddings, ref_emb]), items.repeat(2))
        return value


def unpaired(labels: Tensor, ref_labels: Tensor | None = None) -> Tensor:
    """List the rows that have no positive, and so take no part in a loss but as negatives.

    Parameters
    ----------
    labels : tensor (n,)
    ref_labels : tensor (m,), optional
        Labels of the reference set; without one rows meet each other.

    Returns
    -------
    int tensor (k,)
        Numbers of rows, ascending.

    Examples
    --------
    >>> unpaired(torch.tensor([3, 5, 3, 4]))
    tensor([1, 3])
    >>> unpaired(torch.tensor([3, 5, 3, 4]), torch.tensor([5, 6]))
    tensor([0, 2, 3])
    """
    mine = as_labels("labels", labels, len(labels))
    if ref_labels is None:
        _, place, count = torch.unique(mine, return_inverse=True, return_counts=True)
        without: Tensor = count[place] == 1  # (n,)
    else:
        without = ~torch.isin(mine, ref_labels.to(mine.device))
    return without.nonzero()[:, 0]
