"""One loss over the batches of all processes, with the gradient of one process on the whole batch.

The convention is DDP's: it averages gradients over the W processes. The loss returned has, on every process, the
value of the whole batch, and a gradient W times its process's share, so that the average is exact. Batches may
differ in size and a process may have none.

A step exchanges a fixed number of messages, whatever the sizes and however the rows were encoded: forward one
for the sizes, one for all rows, one for all labels if there are any, one for the value; backward one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from latentlink import _checks
from latentlink.losses import _inputs
from latentlink.losses._choices import as_labels
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
    if n_processes() == 1:
        return rows
    result: Tensor = _Gather.apply(_sizes(rows), rows)[0]
    return result


class DistributedLoss(nn.Module):
    """Compute a loss over the batches of all processes.

    Parameters
    ----------
    loss : InfoNCELoss, NTXentLoss, SymmetricInfoNCELoss or WEINCELoss
        Its reduction must be "mean".
    local : bool, optional
        Each process scores its own queries against the candidates of all: 1/W of the matrix each. Otherwise
        every process computes the whole loss, which a gate with a relative pivot needs. By default local unless
        the loss has such a gate.

    Notes
    -----
    Learn a temperature inside the module that DDP wraps, so that its gradient is averaged, too.

    Examples
    --------
    >>> loss = DistributedLoss(NTXentLoss(0.5))
    >>> float(loss(torch.ones(4, 2), torch.ones(4, 2)).exp())  # one process: the loss itself
    7.0000...
    """

    def __init__(self, loss: nn.Module, *, local: bool | None = None) -> None:
        super().__init__()
        if not isinstance(loss, (InfoNCELoss, NTXentLoss, SymmetricInfoNCELoss, WEINCELoss)):
            raise _checks.InvalidType(f"loss is {type(loss).__name__}; needs a loss of latentlink.losses.")
        if loss.reduction != "mean":
            raise _checks.InvalidInput(f"loss.reduction is {loss.reduction!r}; needs 'mean'.")
        relative = isinstance(loss, WEINCELoss) and loss.gate.pivot is None
        if local and relative:
            raise _checks.InvalidInput(
                "the gate's pivot is None, a quantile of the whole batch; needs local=False, or a number."
            )
        self.loss = loss
        self.local = not relative if local is None else local

    def forward(
        self,
        z0: Tensor,
        z1: Tensor,
        labels: Tensor | None = None,
        *,
        negatives: Tensor | None = None,
        negative_labels: Tensor | None = None,
    ) -> Tensor:
        """Compute the loss of the whole batch: this process's (n, d), (n, d) and labels (n,) → scalar.

        `negatives` (m, d), this process's hard negatives, become everyone's; one-way losses only, and with
        `labels` they need `negative_labels` (m,). As on one process, the other queries' positives are then
        negatives only with ``in_batch=True`` among the options of the loss.
        """
        columns = self._shared(negatives, labels, negative_labels)
        if n_processes() == 1:
            alone: Tensor = self.loss(z0, z1, *columns, **_labels_of(labels, negative_labels))
            return alone
        first, second = _inputs.pair("z0", z0, "z1", z1)
        n, d = first.shape
        parts = [torch.cat([first, second], dim=1)]  # (n, 2 d)
        if columns:
            _inputs.embeddings("negatives", columns[0], columns=d)
            common = torch.promote_types(parts[0].dtype, columns[0].dtype)
            parts = [parts[0].to(common), columns[0].to(common)]
        sizes = _sizes(*parts)
        rows, *shared = _Gather.apply(sizes, *parts)  # (N, 2 d), (M, d)
        _finite(sizes, {"z0": rows[:, :d], "z1": rows[:, d:]}, dict(zip(["negatives"], shared, strict=False)))
        ids = [] if labels is None else [_wide("labels", labels, n)]
        if negative_labels is not None:
            ids.append(_wide("negative_labels", negative_labels, columns[0].shape[0]))
        everyone = [x[:, 0] for x in _exchange(sizes[:, : len(ids)], ids)] if ids else []
        part: Tensor
        if self.local:
            start = int(sizes[: dist.get_rank(), 0].sum())
            part = self._share(rows, shared, everyone, d, start, n)
        else:
            part = self.loss(rows[:, :d], rows[:, d:], *shared, **_labels_of(*everyone)) / n_processes()
        total = part.detach().clone()
        dist.all_reduce(total)
        scaled = part * n_processes()
        result: Tensor = scaled + (total - scaled).detach()
        return result

    def _shared(
        self, negatives: Tensor | None, labels: Tensor | None, negative_labels: Tensor | None
    ) -> list[Tensor]:
        layout = self.loss.layout
        if negatives is None:
            if negative_labels is not None:
                raise _checks.InvalidInput(
                    "negative_labels is given without negatives; needs both, or neither."
                )
            return []
        if layout != "one_way":
            raise _checks.InvalidInput(f"negatives are given with layout {layout!r}; needs a one-way loss.")
        if (labels is None) != (negative_labels is None):
            missing = "labels" if labels is None else "negative_labels"
            raise _checks.InvalidInput(f"{missing} is None; with negatives give labels of both, or of neither.")
        return [_inputs.embeddings("negatives", negatives)]

    def _share(
        self, rows: Tensor, shared: list[Tensor], labels: list[Tensor], d: int, start: int, n: int
    ) -> Tensor:
        """Compute this process's queries' part of the mean over the whole batch."""
        if n == 0:
            tau = self.loss.settings({})["temperature"]
            nothing: Tensor = sum((x * 0.0).sum() for x in (rows, *shared)) + 0.0 * tau
            return nothing  # takes part in the backward exchange
        layout, whole = self.loss.layout, rows.shape[0]
        a, b = rows[:, :d], rows[:, d:]
        mine = slice(start, start + n)
        everyone = torch.arange(whole, device=rows.device)
        order = torch.cat([everyone[mine], everyone[:start], everyone[start + n :]])
        if layout == "nt_xent":
            views = torch.arange(2 * whole, device=rows.device)
            view_ids = labels[0].repeat(2) if labels else views
            rest = order[n:]
            # A row's positive stands in its own place of the candidates; equal ids take out the row itself.
            place = torch.cat([order[:n] + whole, order[:n], rest, rest + whole])
            query = torch.cat([order[:n], order[:n] + whole])
            z = torch.cat([a, b])  # (2 N, d)
            return self._one_way(z[query], z[place], view_ids[query], view_ids[place]) / (2 * whole)
        if shared and not self.loss.options.get("in_batch"):
            ids = _labels_of(*(x[mine] if i == 0 else x for i, x in enumerate(labels)))
            alone: Tensor = self.loss(a[mine], b[mine], *shared, reduction="sum", **ids)
            return alone / whole
        own, other = (labels[0][mine], labels[0][order]) if labels else (None, None)
        if other is not None:
            other = torch.cat([other, *labels[1:]])
        there = self._one_way(a[mine], torch.cat([b[order], *shared]), own, other)
        if layout == "one_way":
            return there / whole
        return (there + self._one_way(b[mine], a[order], own, other)) / (2 * whole)

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
    """Concatenate each part's rows over all processes, with one message forward and one back."""

    @staticmethod
    def forward(ctx: Any, sizes: Tensor, *parts: Tensor) -> tuple[Tensor, ...]:
        ctx.sizes, ctx.widths = sizes, [part.shape[1:].numel() for part in parts]
        return tuple(
            x.reshape(-1, *part.shape[1:]) for x, part in zip(_exchange(sizes, parts), parts, strict=True)
        )

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, *upstream: Tensor) -> tuple[Tensor | None, ...]:
        total = torch.cat([x.reshape(-1) for x in upstream])
        dist.all_reduce(total)
        rank = dist.get_rank()
        wholes = torch.split(total, [x.numel() for x in upstream])
        result: list[Tensor | None] = [None]
        for i, (whole, like) in enumerate(zip(wholes, upstream, strict=True)):
            start = int(ctx.sizes[:rank, i].sum())
            result.append(whole.view_as(like)[start : start + int(ctx.sizes[rank, i])])
        return tuple(result)


def _exchange(sizes: Tensor, parts: Sequence[Tensor]) -> list[Tensor]:
    """Send each part's rows, (n, …), to all and receive theirs in the order of ranks, (Σ n, width) each.

    All parts travel in one message, each with as many rows as its largest on any process.
    """
    flat, lengths = [], []
    for i, part in enumerate(parts):
        rows = part.detach().reshape(part.shape[0], part.shape[1:].numel())
        padded = rows.new_zeros((int(sizes[:, i].max()), rows.shape[1]))
        padded[: rows.shape[0]] = rows
        flat.append(padded.view(-1))
        lengths.append(padded.numel())
    message = torch.cat(flat)
    received = [torch.empty_like(message) for _ in range(sizes.shape[0])]
    dist.all_gather(received, message)
    by_part = zip(*(torch.split(x, lengths) for x in received), strict=True)
    return [
        torch.cat([x.view(-1, part.shape[1:].numel())[:n] for x, n in zip(column, ns.tolist(), strict=True)])
        for part, column, ns in zip(parts, by_part, sizes.T, strict=True)
    ]


def _finite(sizes: Tensor, *groups: dict[str, Tensor]) -> None:
    """Raise on every process alike, naming the process and the row, when gathered rows are not finite.

    Each of `groups` has a column of `sizes`. Looked at on a CPU only; a lone process that raised before it sent
    its rows would leave the others waiting.
    """
    for ns, group in zip(sizes.T.tolist(), groups, strict=False):
        for name, rows in group.items():
            if rows.device.type != "cpu" or bool(rows.detach().sum().isfinite()):
                continue
            for rank, part in enumerate(torch.split(rows.detach(), ns)):
                _checks.finite_rows(f"{name} on process {rank}", part)


def _labels_of(labels: Tensor | None = None, negative_labels: Tensor | None = None) -> dict[str, Tensor]:
    """Name the labels that are there."""
    given = {"labels": labels, "negative_labels": negative_labels}
    return {name: x for name, x in given.items() if x is not None}


def _wide(name: str, labels: Tensor, n: int) -> Tensor:
    """Return labels (n,) as (n, 1) of a type that every backend sends and that keeps them apart."""
    return as_labels(name, labels, n)[:, None].to(torch.float64 if labels.is_floating_point() else torch.int64)


def n_processes() -> int:
    """Count the processes of the group; 1 without one."""
    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1


def _sizes(*parts: Tensor) -> Tensor:
    """Ask every process for its number of rows of each part: (W, parts), on the CPU."""
    mine = torch.tensor([part.shape[0] for part in parts], device=parts[0].device)
    received = [torch.empty_like(mine) for _ in range(n_processes())]
    dist.all_gather(received, mine)
    return torch.stack(received).cpu()
