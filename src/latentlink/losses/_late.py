"""Looking at rows on a GPU without making it wait.

A check that raises must bring an answer to the host, and a host that waits for one at once lets the GPU run dry.
So the question is asked with the forward pass, its answer is copied on the side, and the backward pass reads it: by
then the loss and its gradient are queued behind the answer, so that the GPU has work while the host waits. What is
found raises out of `backward()`, before an optimizer could step.

`torch._assert_async` would ask as cheaply, but a device that asserts is lost to its process, and names no row.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from latentlink import _checks


def applies(x: Tensor) -> bool:
    """Whether rows are looked at late: on a CUDA device, with a gradient asked for, outside graphs."""
    return (
        x.device.type == "cuda"
        and x.requires_grad
        and torch.is_grad_enabled()
        and not torch.compiler.is_compiling()
        and not torch.cuda.is_current_stream_capturing()
    )


def checked(name: str, x: Tensor) -> Tensor:
    """Return `x`, whose backward pass raises naming the rows that are not finite."""
    result: Tensor = _Late.apply(x, name)
    return result


class _Late(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, name: str) -> Tensor:
        ctx.finite = x.isfinite().all().to("cpu", non_blocking=True)  # into pinned memory
        ctx.arrived = _mark(x.device)
        ctx.name, ctx.rows = name, x.detach()
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor, None]:
        ctx.arrived.synchronize()
        if not bool(ctx.finite):
            _checks.finite_rows(ctx.name, ctx.rows.reshape(-1, ctx.rows.shape[-1]).cpu())
        return upstream, None


def _mark(device: torch.device) -> Any:
    """Mark the place in the device's queue up to which the host will have to wait."""
    event = torch.cuda.Event()  # type: ignore[no-untyped-call]
    event.record(torch.cuda.current_stream(device))
    return event
