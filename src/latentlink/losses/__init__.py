"""Contrastive losses: pure functions, an exact engine bounded in memory, and thin modules over both."""

from latentlink._checks import need

need("torch", extra="torch", job="latentlink.losses")

from latentlink.losses.functional import info_nce, nt_xent, symmetric_info_nce, weince  # noqa: E402
from latentlink.losses.modules import (  # noqa: E402
    InfoNCELoss,
    LogitScale,
    NTXentLoss,
    SymmetricInfoNCELoss,
    WEINCELoss,
)

__all__ = [
    "InfoNCELoss",
    "LogitScale",
    "NTXentLoss",
    "SymmetricInfoNCELoss",
    "WEINCELoss",
    "info_nce",
    "nt_xent",
    "symmetric_info_nce",
    "weince",
]
