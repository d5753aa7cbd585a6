"""Losses for sentence-transformers' Trainer, called as its MultipleNegativesRankingLoss."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from latentlink import _checks
from latentlink._checks import need

need("torch", extra="text", job="latentlink.integrations.sentence_transformers")

import torch  # noqa: E402
from torch import Tensor, nn  # noqa: E402
from torch.nn.parallel import DistributedDataParallel  # noqa: E402
from torch.utils.checkpoint import checkpoint  # noqa: E402

from latentlink import losses  # noqa: E402
from latentlink.losses.gather import DistributedLoss  # noqa: E402

_WHOLE = "prompt_length"  # one value for the batch, in whatever form


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
    gather_across_devices : bool
        Score against the rows of all processes: the value and, under DDP, the gradient are those of one process
        on the whole batch, hard negatives and an uneven last batch included.
    options
        Keyword options of the loss.

    Notes
    -----
    Columns of the data set: anchor, positive, then any number of negatives. Equal texts in a batch are
    negatives of each other: keep ``batch_sampler="no_duplicates"``. Wrappers that change the model for the length
    of a call, such as MatryoshkaLoss, take this loss without `mini_batch_size`; with it the backward pass fails.

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
        gather_across_devices: bool = False,
        **options: Any,
    ) -> None:
        super().__init__()
        self.model = model
        self.scale = _checks.number("scale", scale, low=0, open_low=True)
        self.symmetric = symmetric
        self.mini_batch_size = (
            None if mini_batch_size is None else _checks.integer("mini_batch_size", mini_batch_size, low=1)
        )
        self.gather_across_devices = gather_across_devices
        self.options = options
        loss = self._make("symmetric" if symmetric else "one_way", 1.0 / self.scale, options)
        self.loss = DistributedLoss(loss) if gather_across_devices else loss

    def _make(self, layout: str, temperature: float, options: dict[str, Any]) -> nn.Module:
        if layout == "symmetric":
            return losses.SymmetricInfoNCELoss(temperature, **options)
        return losses.InfoNCELoss(temperature, in_batch=True, **options)

    def forward(self, sentence_features: Iterable[dict[str, Tensor]], labels: Tensor | None = None) -> Tensor:
        """Compute the loss of tokenised columns → scalar; `labels` is the Trainer's and not used."""
        columns = list(sentence_features)
        if self.mini_batch_size is None:
            embeddings = [self.model(column)["sentence_embedding"] for column in columns]
        else:
            embeddings = _in_parts(self.model, columns, self.mini_batch_size)
        return self.compute_loss_from_embeddings(embeddings)

    def compute_loss_from_embeddings(self, embeddings: list[Tensor], labels: Tensor | None = None) -> Tensor:
        """Compute the loss of columns (n, d): anchor, positive, negatives… → scalar."""
        if len(embeddings) < 2:
            raise _checks.InvalidInput(
                f"the batch has {len(embeddings)} column of texts; needs anchor, positive, then any hard negatives."
            )
        anchors, positives, *rest = embeddings
        if rest and self.symmetric:
            raise _checks.InvalidInput(
                f"symmetric is True with {len(rest)} columns of negatives; needs pairs, or symmetric=False."
            )
        if self.gather_across_devices:
            extra = {"negatives": torch.cat(rest)} if rest else {}
            everyone: Tensor = self.loss(anchors, positives, **extra)
            return everyone
        negatives = [torch.cat(rest)] if rest else []
        value: Tensor = self.loss(anchors, positives, *negatives)
        return value

    def get_config_dict(self) -> dict[str, Any]:
        """Return the settings for the model card."""
        names = ("scale", "symmetric", "mini_batch_size", "gather_across_devices")
        return {
            "temperature": 1.0 / self.scale,
            **{name: getattr(self, name) for name in names},
            **self.options,
        }

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
    symmetric, mini_batch_size, gather_across_devices
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
        return losses.WEINCELoss(temperature, layout=layout, **{"in_batch": True, **options})

    @property
    def citation(self) -> str:
        """What to cite, for the model card."""
        return "When Softmax Fails at the Top, arXiv 2606.00262"


def _in_parts(model: nn.Module, columns: list[dict[str, Tensor]], size: int) -> list[Tensor]:
    """Encode columns a part at a time, and again in the backward pass: (n, d) each.

    DistributedDataParallel sends its buffers at each call and expects none during a backward pass, and processes
    may have different numbers of parts. So it is called once a step, for the first part, and the module inside
    for all others; its averaging of gradients then takes place once, whatever the number of parts.
    """
    inner = model.module if isinstance(model, DistributedDataParallel) else model
    outermost = iter([model])

    def encode(part: dict[str, Any]) -> Tensor:
        embedding: Tensor = next(outermost, inner)(dict(part))["sentence_embedding"]
        return embedding

    found = []
    for column in columns:
        rows = {
            key: x.shape[0] for key, x in column.items() if key != _WHOLE and isinstance(x, Tensor) and x.ndim
        }
        n = max(rows.values(), default=0)
        for key, own in rows.items():
            if own != n:
                raise _checks.InvalidInput(
                    f"{key!r} has {own} rows and another feature {n}, so mini_batch_size cannot split the batch; "
                    "leave it out."
                )
        parts = []
        for start in range(0, max(n, 1), size):
            some = slice(start, start + size)
            part = {key: x[some] if key in rows else x for key, x in column.items()}
            parts.append(checkpoint(encode, part, use_reentrant=False))
        found.append(torch.cat(parts))
    return found
