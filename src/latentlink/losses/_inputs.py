"""What every loss does with its input first: checks, the computing type, rows of norm 1."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from latentlink import _checks
from latentlink.losses import _late


def tensor(name: str, value: Any) -> Tensor:
    """Return `value` when it is a dense tensor, or raise saying how it becomes one."""
    if not isinstance(value, Tensor):
        raise _checks.InvalidType(
            f"{name} is {type(value).__name__}; needs a torch tensor. Use torch.as_tensor({name})."
        )
    if value.layout != torch.strided:
        raise _checks.InvalidType(f"{name} is a sparse tensor; needs a dense one. Use {name}.to_dense().")
    given: Tensor = value
    return given


def embeddings(name: str, value: Any, *, columns: int | None = None, dims: int = 2) -> Tensor:
    """Return `value` when it is a floating tensor of `dims` axes, or raise naming what is wrong."""
    given = tensor(name, value)
    if dims == 2:
        _checks.matrix(name, given, min_rows=0, columns=columns, finite=False)
        return given
    if given.ndim != dims or not given.is_floating_point():
        raise _checks.InvalidInput(f"{name} has shape {tuple(given.shape)} of {given.dtype}; needs (n, m, d).")
    if columns is not None and given.shape[-1] != columns:
        raise _checks.InvalidInput(f"{name} has {given.shape[-1]} columns; needs {columns}.")
    return given


def pair(first: str, x: Any, second: str, y: Any) -> tuple[Tensor, Tensor]:
    """Return two (n, d) tensors of one shape, or raise naming the difference."""
    a, b = embeddings(first, x), embeddings(second, y)
    _checks.same_rows(**{first: a, second: b})
    _checks.same_columns(**{first: a, second: b})
    same_device(**{first: a, second: b})
    return a, b


def same_device(**tensors: Tensor) -> None:
    """Raise when tensors given by name lie on different devices."""
    devices = {name: value.device for name, value in tensors.items()}
    if len(set(devices.values())) > 1:
        listing = " and ".join(f"{name} is on {device}" for name, device in devices.items())
        raise _checks.InvalidInput(f"{listing}; needs one device. Move one with .to(device).")


def temperature(value: Any) -> float | Tensor:
    """Return a temperature: a number > 0, or a tensor of one value that may be learned."""
    if not isinstance(value, Tensor):
        return _checks.number("temperature", value, low=0, open_low=True)
    if value.numel() != 1:
        raise _checks.InvalidInput(f"temperature has shape {tuple(value.shape)}; needs one value.")
    if _at_once(value):
        _checks.number("temperature", float(value.detach()), low=0, open_low=True)
    return value.reshape(())


def computing_type(*tensors: Tensor) -> torch.dtype:
    """Name the type to compute in: float32, or float64 when any input is of it."""
    return torch.float64 if any(t.dtype == torch.float64 for t in tensors) else torch.float32


_SAFE = (1e-4, 1e15)  # norms whose squares neither vanish nor overflow, in every type


class _Unit(torch.autograd.Function):
    """x / norm with its gradient in three passes, where autograd takes eight."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, norm: Tensor) -> Tensor:
        unit = x / norm
        ctx.save_for_backward(unit, norm)
        return unit

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, upstream: Tensor) -> tuple[Tensor, None]:
        unit, norm = ctx.saved_tensors
        along = (unit * upstream).sum(dim=-1, keepdim=True)
        return torch.addcmul(upstream, unit, along, value=-1.0).div_(norm), None


def unit_rows(name: str, x: Tensor, dtype: torch.dtype, *, normalize: bool = True) -> Tensor:
    """Divide each row by its norm, in `dtype`: (..., d) to (..., d).

    A row below the smallest normal number of its own type has no direction: it becomes 0, similar to nothing,
    and its gradient is 0. Each row is first divided by its largest absolute value, a constant, so that neither
    1e-30 nor 1e30 under- or overflows. Rows that are not finite raise: on a CPU at once, on a GPU out of the
    backward pass. Where neither can be, without a gradient or on another device, they give NaN.
    """
    if _late.applies(x):
        x = _late.checked(name, x)
    wide = x.to(dtype)
    if x.shape[-2] == 0:
        return wide
    if normalize and _at_once(x):
        norm = torch.linalg.vector_norm(wide.detach(), dim=-1, keepdim=True)  # (..., 1)
        low, high = torch.aminmax(norm)
        if float(low) > _SAFE[0] and float(high) < _SAFE[1]:  # and so no NaN
            unit: Tensor = _Unit.apply(wide, norm)
            return unit
    largest = x.detach().abs().amax(dim=-1, keepdim=True)  # (..., 1)
    if _at_once(x) and not bool(largest.isfinite().all()):
        _checks.finite_rows(name, x.detach().reshape(-1, x.shape[-1]))
    if not normalize:
        return wide
    known = (largest >= torch.finfo(x.dtype).tiny).to(dtype)
    largest = largest.to(dtype)
    y = wide / (largest * known + (1 - known)) * known
    return y * torch.rsqrt((y * y).sum(dim=-1, keepdim=True) + (1 - known))


def _at_once(x: Tensor) -> bool:
    """Whether values may decide what to do: not on an accelerator, which would wait, nor in a traced graph."""
    return x.device.type == "cpu" and not torch.compiler.is_compiling()


def product(u: Tensor, v: Tensor) -> Tensor:
    """Multiply (r, d) by (c, d) to (r, c) in their own type, whatever autocast would make of it."""
    with torch.autocast(device_type=u.device.type, enabled=False):
        return u @ v.T


def below_endpoint(highest: Tensor, endpoint: float) -> None:
    """Raise when the largest similarity lies beyond the endpoint by more than rounding."""
    if float(highest) > endpoint + 1e-4:
        raise _checks.InvalidInput(
            f"similarity {float(highest):g} exceeds the endpoint {endpoint:g} beyond rounding "
            "(tolerance 0.0001); are the rows normalised?"
        )
