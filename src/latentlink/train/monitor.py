"""What the top of the similarities does during training, and a clear stop when there is nothing left to learn.

`observe` is plain: two batches of embeddings and a loss in, numbers out. `TailMonitor` counts steps, remembers
the last numbers for a logger and stops on collapse; both trainers use it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from latentlink.losses import WEINCELoss
from latentlink.train.objective import ScriptLoss

_DECILES = 10
# Mean cosine of different items above which they are one item to a search.
_ALIKE = 0.995
_PATIENCE = 3


class Collapsed(RuntimeError):
    """Training that cannot recover: all items have one direction, or the loss is not a number."""


def refuse_broken(step: int, *embeddings: Tensor) -> None:
    """Raise `Collapsed` when embeddings are not finite, before a loss blames its input for it."""
    if not all(bool(z.isfinite().all()) for z in embeddings):
        raise Collapsed(
            f"the embeddings are not finite at step {step}; lower the learning rate or the clip_norm, "
            "or train in float32. The last checkpoint stands."
        )


@torch.no_grad()
def observe(z0: Tensor, z1: Tensor, loss: nn.Module | None = None) -> dict[str, float]:
    """Measure what a batch's embeddings and a loss's gradient look like.

    Parameters
    ----------
    z0, z1 : tensor (n, d)
        Two views of n items, or queries and their positives.
    loss : module, optional
        One of latentlink's; adds what its gate says, and which negatives its gradient comes from.

    Returns
    -------
    dict of str to float
        "alignment" (mean squared distance of positives), "uniformity" (log mean exp(−2 squared distance) of
        different items), "effective_rank" (exp of the entropy of the singular values, at most d),
        "cosine_other" (mean cosine of different items), "xi_pooled" and "beta_pooled" (tail of all negatives
        of the batch under the endpoint 1), and with a loss "gap", "beta", "evidence", "blend", "share_blended"
        (means over queries) and "gradient_decile_1" … "gradient_decile_10" (share of the gradient that reaches
        the negatives, from the least to the most similar tenth of each query's).

    Notes
    -----
    Cost: one similarity matrix, its sort, and a singular value decomposition of (2n, d).

    References: Wang and Isola 2020 (alignment, uniformity); Roy and Vetterli 2007 (effective rank).

    Examples
    --------
    >>> z = torch.eye(32)
    >>> seen = observe(z, z)
    >>> round(seen["alignment"], 6), round(seen["effective_rank"], 3)
    (0.0, 32.0)
    """
    u, v = (torch.nn.functional.normalize(z.detach().float(), dim=1) for z in (z0, z1))
    n = u.shape[0]
    other = ~torch.eye(n, dtype=torch.bool, device=u.device)
    within = (u @ u.T)[other].view(n, n - 1)  # (n, n − 1)
    singular = torch.linalg.svdvals(torch.cat([u, v]))
    share = singular / singular.sum()
    entropy = -(share * share.clamp(min=1e-12).log()).sum()
    seen = {
        "alignment": float((u - v).square().sum(dim=1).mean()),
        "uniformity": float(
            torch.logsumexp((-2 * (2 - 2 * within)).flatten(), 0) - torch.tensor(within.numel()).log()
        ),
        "effective_rank": float(entropy.exp()),
        "cosine_other": float(within.mean()),
        **_pooled_tail((u @ v.T)[other]),
    }
    if loss is not None and (rule := _rule(loss)) is not None:
        seen |= _gradient_by_decile(u, v, rule)
    return seen


@dataclass
class TailMonitor:
    """Look at the embeddings every so many steps, and stop training that has collapsed.

    Attributes
    ----------
    loss : module
    every : int
        Steps between looks.
    latest : dict
        What the last look saw.
    """

    loss: nn.Module | None
    every: int = 20
    latest: dict[str, float] = field(default_factory=dict)
    _alike: int = 0

    def look(self, step: int, z0: Tensor, z1: Tensor, value: float) -> dict[str, float] | None:
        """Observe when it is time, and return what was seen.

        Raises
        ------
        Collapsed
            The loss is not finite, or the mean cosine of different items was above 0.995 three times in a row.
        """
        if value != value or value in (float("inf"), float("-inf")):
            raise Collapsed(
                f"the loss is {value} at step {step}; lower the learning rate or the clip_norm, "
                "or train in float32. The last checkpoint stands."
            )
        if step % self.every and self.latest:  # the first look comes at once, also of a resumed run
            return None
        self.latest = observe(z0, z1, self.loss)
        self._alike = self._alike + 1 if self.latest["cosine_other"] > _ALIKE else 0
        if self._alike >= _PATIENCE:
            raise Collapsed(
                f"the embeddings collapsed: at step {step} different items have a mean cosine of "
                f"{self.latest['cosine_other']:.4f} (effective rank {self.latest['effective_rank']:.1f}), "
                f"{_PATIENCE} looks in a row. Lower the learning rate, lengthen the warm-up, or raise the "
                "batch size. The last checkpoint stands."
            )
        return self.latest


@dataclass(frozen=True)
class _Rule:
    temperature: float
    weince: WEINCELoss | None
    two_views: bool


def _rule(loss: nn.Module) -> _Rule | None:
    """Read what the gradient needs from one of our losses; None for another's."""
    if isinstance(loss, ScriptLoss):
        loss = loss.main
    temperature = getattr(loss, "temperature", None)
    if temperature is None:
        return None
    two_views = type(loss).__name__ == "NTXentLoss" or getattr(loss, "layout", "") == "nt_xent"
    return _Rule(float(temperature), loss if isinstance(loss, WEINCELoss) else None, two_views)


def _gradient_by_decile(u: Tensor, v: Tensor, rule: _Rule) -> dict[str, float]:
    """Split the gradient with respect to the negatives' similarities: P times the logit's slope."""
    n = u.shape[0]
    queries, candidates = (torch.cat([u, v]),) * 2 if rule.two_views else (u, v)
    rows = torch.arange(len(queries), device=u.device)
    partner = (rows + n) % (2 * n) if rule.two_views else rows
    s = queries @ candidates.T  # (q, c)
    taking_part = torch.ones_like(s, dtype=torch.bool)
    if rule.two_views:
        taking_part.fill_diagonal_(False)
    seen: dict[str, float] = {}
    logits, slope = s / rule.temperature, torch.full_like(s, 1 / rule.temperature)
    if rule.weince is not None:
        gate, statistics = rule.weince.gate, rule.weince.statistics(u, v)
        blend, beta = statistics.blend[:, None], statistics.beta[:, None]
        shortfall = (1 - s).clamp(min=max(gate.floor, 1e-7)) + gate.softening
        logits = (1 - blend) * logits - blend * beta * shortfall.log()
        slope = (1 - blend) * slope + blend * beta / shortfall
        for name in ("gap", "beta", "evidence", "blend"):
            seen[name] = float(getattr(statistics, name).float().mean())
        seen["share_blended"] = statistics.share_blended
    force = logits.masked_fill(~taking_part, -torch.inf).softmax(dim=1) * slope
    negative = taking_part.scatter(1, partner[:, None], False)
    order = s.masked_fill(~negative, torch.inf).argsort(dim=1)[
        :, : int(negative[0].sum())
    ]  # least similar first
    ranked = force.gather(1, order)  # (q, k)
    tenths = torch.tensor_split(ranked / ranked.sum(dim=1, keepdim=True).clamp(min=1e-30), _DECILES, dim=1)
    return seen | {f"gradient_decile_{i + 1}": float(part.sum(dim=1).mean()) for i, part in enumerate(tenths)}


def _pooled_tail(negatives: Tensor) -> dict[str, float]:
    """Fit the top percent of all negatives under the endpoint 1: xi, minus the mean log ratio of shortfalls."""
    k = max(20, negatives.numel() // 100)
    if negatives.numel() <= k:
        return {}
    shortfall = (1 - negatives.topk(k + 1).values).clamp(min=1e-6)
    xi = -float((shortfall[-1] / shortfall[:-1]).log().mean())
    return {"xi_pooled": xi, "beta_pooled": -1 / xi if xi < 0 else float("inf")}


def numbers(seen: dict[str, Any]) -> dict[str, float]:
    """Keep what a logger can write: finite numbers."""
    return {name: value for name, value in seen.items() if abs(value) < float("inf")}
