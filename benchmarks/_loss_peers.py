"""The contrastive losses that are compared: ours, the installed peers', and the bare matrix products.

Each case is a function of two views (n, d) that returns a scalar to differentiate, at temperature 0.1. solo-learn
1.0.2 asks for torch 1.9.1 exactly, so it does not install beside this project's torch with what it requires; its
logic (one matrix of all views, positives by mask) is the "dense" case written as its users write it.
"""

from __future__ import annotations

import warnings

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, normalize

from latentlink.losses import InfoNCELoss, NTXentLoss, SymmetricInfoNCELoss, WEINCELoss

TEMPERATURE = 0.1
warnings.filterwarnings("ignore")


def dense_nt_xent(z0: Tensor, z1: Tensor) -> Tensor:
    """NT-Xent as a careful user writes it."""
    z = normalize(torch.cat([z0, z1]))
    logits = z @ z.T / TEMPERATURE
    logits.fill_diagonal_(-torch.inf)
    n = z0.shape[0]
    return cross_entropy(logits, torch.arange(2 * n).roll(n))


def dense_one_way(z0: Tensor, z1: Tensor) -> Tensor:
    """One-way InfoNCE as a careful user writes it."""
    return cross_entropy(normalize(z0) @ normalize(z1).T / TEMPERATURE, torch.arange(len(z0)))


def dense_symmetric(z0: Tensor, z1: Tensor) -> Tensor:
    """Symmetric InfoNCE as a careful user writes it."""
    logits = normalize(z0) @ normalize(z1).T / TEMPERATURE
    labels = torch.arange(len(z0))
    return (cross_entropy(logits, labels) + cross_entropy(logits.T, labels)) / 2


def products(rows: Tensor, columns: Tensor) -> None:
    """Do the three products of all pairs that any dense loss does, tile by tile, and nothing else."""
    for i in range(0, len(rows), 512):
        for j in range(0, len(columns), 512):
            u, v = rows[i : i + 512], columns[j : j + 512]
            tile = u @ v.T
            tile @ v
            tile.T @ u


def stacked_products(z0: Tensor, z1: Tensor) -> None:
    """Do the products of NT-Xent's 2n rows."""
    z = torch.cat([z0, z1]).detach()
    products(z, z)


def sup_con():
    from pytorch_metric_learning.losses import SelfSupervisedLoss, SupConLoss

    return SelfSupervisedLoss(SupConLoss(TEMPERATURE))


def lightly():
    from lightly.loss import NTXentLoss as Lightly

    return Lightly(TEMPERATURE)


def info_nce_pytorch():
    from info_nce import InfoNCE

    return InfoNCE(TEMPERATURE)


def ranking():
    from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss

    loss = MultipleNegativesRankingLoss(torch.nn.Module(), scale=1 / TEMPERATURE)
    return lambda z0, z1: loss.compute_loss_from_embeddings([z0, z1], None)


def cached_ranking():
    """Make the loss half of the cached loss, in its mini-batches of 32: it leaves its gradients in the leaves."""
    from sentence_transformers.sentence_transformer.losses import CachedMultipleNegativesRankingLoss

    loss = CachedMultipleNegativesRankingLoss(torch.nn.Sequential(torch.nn.Identity()), scale=1 / TEMPERATURE)
    return lambda z0, z1: loss.calculate_loss([[z0], [z1]], with_backward=True)


def grad_cache():
    from gradcache.loss import SimpleContrastiveLoss

    loss = SimpleContrastiveLoss()
    return lambda z0, z1: loss(normalize(z0) / TEMPERATURE, normalize(z1))


def clip():
    from open_clip.loss import ClipLoss

    loss, scale = ClipLoss(), torch.tensor(1 / TEMPERATURE)
    return lambda z0, z1: loss(normalize(z0), normalize(z1), scale)


# Each family's cases by name, made when called: a process that measures one imports one peer.
FAMILIES = {
    "nt_xent": {
        "ours": lambda: NTXentLoss(TEMPERATURE),
        "weince": lambda: WEINCELoss(TEMPERATURE),
        # Every query's gate open: the dearest case there is, on data where the default's are closed.
        "weince, all gates open": lambda: WEINCELoss(TEMPERATURE, pivot=1.5, margin=-50.0),
        "lightly NTXentLoss": lightly,
        "pytorch-metric-learning SupConLoss": sup_con,
        "dense": lambda: dense_nt_xent,
        "products": lambda: stacked_products,
    },
    "one_way": {
        "ours": lambda: InfoNCELoss(TEMPERATURE),
        "info-nce-pytorch": info_nce_pytorch,
        "sentence-transformers MNRL": ranking,
        "sentence-transformers cached MNRL": cached_ranking,
        "GradCache SimpleContrastiveLoss": grad_cache,
        "dense": lambda: dense_one_way,
        "products": lambda: lambda z0, z1: products(z0.detach(), z1.detach()),
    },
    "symmetric": {
        "ours": lambda: SymmetricInfoNCELoss(TEMPERATURE),
        "open_clip ClipLoss": clip,
        "dense": lambda: dense_symmetric,
        "products": lambda: lambda z0, z1: products(z0.detach(), z1.detach()),
    },
}
