"""One loss over the batches of all processes, with the gradient of one process on the whole batch.

The convention is DDP's: it averages gradients over the W processes. The loss returned has, on every process, the
value of the whole batch, and a gradient W times its process's share, so that the average is exact. Batches may
differ in size and a process may have none.

A step exchanges a fixed number of messages, whatever the sizes: forward one for the sizes, one for the rows, one
for the labels if there are any, one for the value; backward one.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from latentlink import _checks
from latentlink.losses import _inputs
from latentlink.losses.modules import InfoNCELoss, NTXentLoss, SymmetricInfoNCELoss, WEINCELoss


def gather_rows(rows: Tensor) -> Tensor:
    """Concatenate the rows of all processes in the order of their ranks.

    Parameters
    ----------
    rows : tensor (n, …)
        n may differ from process to process and be 0; the other axes may not.

    Returns
    -------
    tensor (Σ n, …)
        The gradient of a process's rows is the sum of what all processes ask of them. Without a process group,
        or alone in it, the rows themselves.

    Examples
    --------
    >>> gather_rows(torch.ones(2, 3)).shape  # one process
    torch.Size([2, 3])
    """
    if _world() == 1:
        return rows
    result: Tensor = _Gather.apply(rows, _sizes(rows))
    return result


class DistributedLoss(nn.Module):
    """Compute a loss over the batches of all processes.

    Parameters
    ----------
    loss : InfoNCELoss, NTXentLoss, SymmetricInfoNCELoss or WEINCELoss
        Its reduction must be "mean".
    local : bool
        Each process scores its own queries against the candidates of all: 1/W of the matrix each. Otherwise
        every process computes the whole loss, which a gate with a relative pivot needs.

    Notes
    -----
    Learn a temperature inside the module that DDP wraps, so that its gradient is averaged, too.

    Examples
    --------
    >>> loss = DistributedLoss(NTXentLoss(0.5))
    >>> float(loss(torch.ones(4, 2), torch.ones(4, 2)).exp())  # one process: the loss itself
    7.0000...
    """

    def __init__(self, loss: nn.Module, *, local: bool = True) -> None:
        super().__init__()
        if not isinstance(loss, (InfoNCELoss, NTXentLoss, SymmetricInfoNCELoss, WEINCELoss)):
            raise _checks.InvalidType(f"loss is {type(loss).__name__}; needs a loss of latentlink.losses.")
        if loss.reduction != "mean":
            raise _checks.InvalidInput(f"loss.reduction is {loss.reduction!r}; needs 'mean'.")
        if local and isinstance(loss, WEINCELoss) and loss.gate.pivot is None:
            raise _checks.InvalidInput(
                "the gate's pivot is None, a quantile of the whole batch; needs local=False, or a number."
            )
        self.loss = loss
        self.local = local

    def forward(self, z0: Tensor, z1: Tensor, labels: Tensor | None = None) -> Tensor:
        """Compute the loss of the whole batch: this process's (n, d), (n, d) and labels (n,) → scalar."""
        world = _world()
        extra: dict[str, Any] = {} if labels is None else {"labels": labels}
        if world == 1:
            value: Tensor = self.loss(z0, z1, **extra)
            return value
        first, second = _inputs.pair("z0", z0, "z1", z1)
        d = first.shape[1]
        sizes = _sizes(first)
        rows: Tensor = _Gather.apply(torch.cat([first, second], dim=1), sizes)  # (N, 2 d)
        everyone = None if labels is None else _Gather.apply(labels.reshape(-1), sizes)
        whole = int(sizes.sum())
        part: Tensor
        if self.local:
            start = int(sizes[: dist.get_rank()].sum())
            part = self._share(rows, everyone, d, start, first.shape[0], whole)
        else:
            extra = {} if everyone is None else {"labels": everyone}
            part = self.loss(rows[:, :d], rows[:, d:], **extra) / world
        total = part.detach().clone()
        dist.all_reduce(total)
        result: Tensor = part * world + (total - part * world).detach()
        return result

    def _share(self, rows: Tensor, labels: Tensor | None, d: int, start: int, n: int, whole: int) -> Tensor:
        """Compute this process's queries' part of the mean over the whole batch."""
        if n == 0:
            tau = self.loss.settings({})["temperature"]
            nothing: Tensor = (rows * 0.0).sum() + 0.0 * tau  # takes part in the backward exchange
            return nothing
        layout = self.loss.layout
        mine, others = slice(start, start + n), [i for i in range(whole) if not start <= i < start + n]
        a, b = rows[:, :d], rows[:, d:]
        order = torch.tensor([*range(start, start + n), *others], device=rows.device)
        if layout == "nt_xent":
            views = torch.arange(2 * whole, device=rows.device)
            view_ids = views if labels is None else labels.repeat(2)
            rest = order[n:]
            # A row's positive stands in its own place of the candidates; equal ids take out the row itself.
            place = torch.cat([order[:n] + whole, order[:n], rest, rest + whole])
            query = torch.cat([order[:n], order[:n] + whole])
            z = torch.cat([a, b])  # (2 N, d)
            return self._one_way(z[query], z[place], view_ids[query], view_ids[place]) / (2 * whole)
        ids = None if labels is None else labels[order]
        own = None if ids is None else ids[:n]
        there = self._one_way(a[mine], b[order], own, ids)
        if layout == "one_way":
            return there / whole
        return (there + self._one_way(b[mine], a[order], own, ids)) / (2 * whole)

    def _one_way(
        self, queries: Tensor, candidates: Tensor, ids: Tensor | None, candidate_ids: Tensor | None
    ) -> Tensor:
        """Sum the losses of queries (n, d) whose positives are the first n of the candidates (m, d)."""
        n = queries.shape[0]
        settings: dict[str, Any] = {"reduction": "sum", "in_batch": True}
        if ids is not None and candidate_ids is not None:
            settings.update(labels=ids, negative_labels=candidate_ids[n:], positive_labels=candidate_ids[:n])
        value: Tensor = self.loss.as_one_way(queries, candidates[:n], candidates[n:], **settings)
        return value


class _Gather(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, rows: Tensor, sizes: Tensor) -> Tensor:
        ctx.sizes = sizes
        most = int(sizes.max())
        padded = rows.new_zeros((most, *rows.shape[1:]))
        padded[: rows.shape[0]] = rows
        parts = [torch.empty_like(padded) for _ in range(sizes.numel())]
        dist.all_gather(parts, padded)
        return torch.cat([part[:size] for part, size in zip(parts, sizes.tolist(), strict=True)])

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor, None]:
        total = upstream.contiguous().clone()
        dist.all_reduce(total)
        rank, sizes = dist.get_rank(), ctx.sizes.tolist()
        start = sum(sizes[:rank])
        return total[start : start + sizes[rank]], None


def _world() -> int:
    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1


def _sizes(rows: Tensor) -> Tensor:
    """Ask every process for its number of rows: (W,), on the CPU."""
    mine = torch.tensor([rows.shape[0]], device=rows.device)
    parts = [torch.empty_like(mine) for _ in range(_world())]
    dist.all_gather(parts, mine)
    return torch.cat(parts).cpu()
