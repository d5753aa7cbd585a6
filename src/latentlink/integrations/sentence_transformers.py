"""Losses for sentence-transformers' Trainer, called as its MultipleNegativesRankingLoss."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from latentlink import _checks
from latentlink._checks import need

need("torch", extra="text", job="latentlink.integrations.sentence_transformers")

import torch  # noqa: E402
from torch import Tensor, nn  # noqa: E402
from torch.utils.checkpoint import checkpoint  # noqa: E402

from latentlink import losses  # noqa: E402


class InfoNCELoss(nn.Module):
    """Score each anchor's positive against the batch's positives and all hard-negative columns.

    Parameters
    ----------
    model : SentenceTransformer
    scale : float
        1 / temperature.
    symmetric : bool
        Score both directions of pairs; without hard-negative columns only.
    mini_batch_size : int, optional
        Encode at most so many texts at a time and encode them again in the backward pass: the memory is that of
        a mini-batch, the value and the gradient are those of the whole batch.
    options
        Keyword options of the loss.

    Notes
    -----
    Columns of the data set: anchor, positive, then any number of negatives. Equal texts in a batch are
    negatives of each other: keep ``batch_sampler="no_duplicates"``.

    Examples
    --------
    >>> model = nn.Module()
    >>> x = torch.eye(3)
    >>> float(InfoNCELoss(model, scale=20.0).compute_loss_from_embeddings([x, x])) < 1e-6
    True
    """

    def __init__(
        self,
        model: nn.Module,
        scale: float = 20.0,
        *,
        symmetric: bool = False,
        mini_batch_size: int | None = None,
        **options: Any,
    ) -> None:
        super().__init__()
        self.model = model
        self.scale = _checks.number("scale", scale, low=0, open_low=True)
        self.symmetric = symmetric
        self.mini_batch_size = (
            None if mini_batch_size is None else _checks.integer("mini_batch_size", mini_batch_size, low=1)
        )
        self.options = options
        self.loss = self._make("symmetric" if symmetric else "one_way", 1.0 / self.scale, options)

    def _make(self, layout: str, temperature: float, options: dict[str, Any]) -> nn.Module:
        if layout == "symmetric":
            return losses.SymmetricInfoNCELoss(temperature, **options)
        return losses.InfoNCELoss(temperature, in_batch=True, **options)

    def forward(self, sentence_features: Iterable[dict[str, Tensor]], labels: Tensor | None = None) -> Tensor:
        """Compute the loss of tokenised columns → scalar; `labels` is the Trainer's and not used."""
        return self.compute_loss_from_embeddings([self._embed(column) for column in sentence_features])

    def compute_loss_from_embeddings(self, embeddings: list[Tensor], labels: Tensor | None = None) -> Tensor:
        """Compute the loss of columns (n, d): anchor, positive, negatives… → scalar."""
        anchors, positives, *rest = embeddings
        if rest and self.symmetric:
            raise _checks.InvalidInput(
                f"symmetric is True with {len(rest)} columns of negatives; needs pairs, or symmetric=False."
            )
        negatives = (torch.cat(rest),) if rest else ()
        value: Tensor = self.loss(anchors, positives, *negatives, **(self._call() if rest else {}))
        return value

    def _call(self) -> dict[str, Any]:
        return {}

    def _embed(self, column: dict[str, Tensor]) -> Tensor:
        if self.mini_batch_size is None:
            whole: Tensor = self.model(column)["sentence_embedding"]
            return whole
        n = next(x.shape[0] for x in column.values() if isinstance(x, Tensor))
        parts = []
        for start in range(0, n, self.mini_batch_size):
            some = slice(start, start + self.mini_batch_size)
            chunk = {key: x[some] if isinstance(x, Tensor) and x.ndim else x for key, x in column.items()}
            parts.append(checkpoint(self._encode, chunk, use_reentrant=False))
        return torch.cat(parts)

    def _encode(self, chunk: dict[str, Tensor]) -> Tensor:
        embedding: Tensor = self.model(dict(chunk))["sentence_embedding"]
        return embedding

    def get_config_dict(self) -> dict[str, Any]:
        """Return the settings for the model card."""
        own = {"scale": self.scale, "temperature": 1.0 / self.scale, "symmetric": self.symmetric}
        return {**own, "mini_batch_size": self.mini_batch_size, **self.options}

    @property
    def citation(self) -> str:
        """What to cite, for the model card."""
        return "van den Oord et al. 2018, Representation Learning with Contrastive Predictive Coding"


class WEINCELoss(InfoNCELoss):
    """Score as `InfoNCELoss` does, with the WEINCE logit.

    Parameters
    ----------
    model : SentenceTransformer
    scale : float
        1 / temperature.
    symmetric, mini_batch_size
        See `InfoNCELoss`.
    options
        Keyword options of `latentlink.losses.WEINCELoss`.

    Examples
    --------
    >>> x = torch.eye(3)
    >>> float(WEINCELoss(nn.Module()).compute_loss_from_embeddings([x, x, -x])) < 1e-6
    True
    """

    def _make(self, layout: str, temperature: float, options: dict[str, Any]) -> nn.Module:
        return losses.WEINCELoss(temperature, layout=layout, **options)

    def _call(self) -> dict[str, Any]:
        return {"in_batch": True}

    @property
    def citation(self) -> str:
        """What to cite, for the model card."""
        return "When Softmax Fails at the Top, arXiv 2606.00262"
