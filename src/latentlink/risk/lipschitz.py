"""How far an embedding can move when the parameters of its network do: read from real weights."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from latentlink import _checks

# Layers that move no two inputs apart and map 0 to 0 (dropout and flatten as in evaluation).
_HARMLESS = (
    "ReLU",
    "Tanh",
    "Identity",
    "Flatten",
    "Dropout",
    "LeakyReLU",
    "MaxPool2d",
    "AvgPool2d",
    "Softsign",
)


@dataclass(frozen=True)
class ParameterLipschitz:
    """A bound on ‖embedding − embedding′‖ / ‖parameters − parameters′‖ over a ball, normalised outputs.

    Attributes
    ----------
    value : float
        L; infinite where a layer is outside the theory.
    n_parameters : int
        Weights counted.
    spectral : tuple of float
        Bound of the spectral norm of each layer over the ball.
    assumptions : tuple of str
        What the value rests on, or which layer broke it.
    """

    value: float
    n_parameters: int
    spectral: tuple[float, ...]
    assumptions: tuple[str, ...]


def lipschitz_of_weights(
    weights: Sequence[Any], *, radius: float, input_norm: float, least_norm: float
) -> ParameterLipschitz:
    """Bound the movement of a normalised multilayer network's output with its weights.

    Parameters
    ----------
    weights : sequence of array (out, in) or (out, in, height, width)
        First layer first; convolutions of stride 1.
    radius : float
        B ≥ 0 of the Frobenius ball around these weights.
    input_norm : float
        Bound of ‖x‖.
    least_norm : float
        ν > 0: least norm of the output before normalisation, over the class and the data.

    Returns
    -------
    ParameterLipschitz
        (‖x‖/ν) Π s_l √(Σ s_l⁻²), s_l = ‖W_l‖₂ + B.

    Examples
    --------
    >>> lipschitz_of_weights([np.eye(3)], radius=0.0, input_norm=2.0, least_norm=0.5).value
    4.0
    """
    b = _checks.number("radius", radius, low=0)
    x = _checks.number("input_norm", input_norm, low=0)
    nu = _checks.number("least_norm", least_norm, low=0, open_low=True)
    layers = _checks.sequence("weights", weights)
    if not layers:
        raise _checks.InvalidInput("weights is empty; needs at least one layer.")
    spectral, count = [], 0
    for value in layers:
        w = _checks.real("weights", value)
        if w.ndim not in (2, 4):
            raise _checks.InvalidInput(f"weights holds shape {w.shape}; needs (out, in) or (out, in, h, w).")
        spread = math.sqrt(w.shape[2] * w.shape[3]) if w.ndim == 4 else 1.0
        spectral.append(spread * (float(np.linalg.norm(w.reshape(w.shape[0], -1), 2)) + b))
        count += w.size
    product = math.prod(spectral)
    slope = math.sqrt(sum(s**-2 for s in spectral)) if min(spectral) > 0 else math.inf
    assumptions = (
        "activations move no two points apart and keep 0",
        "no offsets",
        f"outputs of norm at least {nu:g} before normalisation",
    )
    bound = x / nu * product * slope if product > 0 else math.inf
    return ParameterLipschitz(bound, count, tuple(spectral), assumptions)


def lipschitz_of_model(
    model: Any, *, radius: float, input_norm: float, least_norm: float
) -> ParameterLipschitz:
    """Read the weights of a torch model and bound how its normalised output moves with them.

    Parameters
    ----------
    model : torch.nn.Module
        A chain of linear or stride-1 convolution layers and 1-Lipschitz activations, in the order of
        ``model.modules()``. Anything else (attention, normalisation layers, residual sums the class cannot
        show) gives an infinite value that says why.
    radius, input_norm, least_norm : float
        As in `lipschitz_of_weights`.

    Returns
    -------
    ParameterLipschitz

    Examples
    --------
    >>> from torch import nn
    >>> model = nn.Sequential(nn.Linear(8, 16, bias=False), nn.ReLU(), nn.Linear(16, 4, bias=False))
    >>> bound = lipschitz_of_model(model, radius=0.1, input_norm=1.0, least_norm=0.1)
    >>> bound.n_parameters, bound.value < float("inf")
    (192, True)
    >>> lipschitz_of_model(nn.LayerNorm(8), radius=0.1, input_norm=1.0, least_norm=0.1).assumptions
    ('LayerNorm is not globally Lipschitz with a known constant',)
    """
    nn = _checks.need("torch", extra="torch", job="lipschitz_of_model").nn
    count = sum(parameter.numel() for parameter in model.parameters())
    weights = []
    for layer in model.modules():
        if isinstance(layer, nn.Sequential):
            continue
        name = type(layer).__name__
        reason = None
        if isinstance(layer, nn.Linear) or (isinstance(layer, nn.Conv2d) and layer.groups == 1):
            if tuple(getattr(layer, "stride", (1, 1))) != (1, 1):
                reason = f"{name} has stride {layer.stride}; the theory covers stride 1"
            elif layer.bias is not None:
                reason = f"{name} has an offset; the theory covers layers without"
            weights.append(layer.weight)
        elif name not in _HARMLESS or getattr(layer, "negative_slope", 0.0) > 1:
            reason = f"{name} is not globally Lipschitz with a known constant"
        if reason is not None:
            return ParameterLipschitz(math.inf, count, (), (reason,))
    if not weights:
        return ParameterLipschitz(math.inf, count, (), ("no linear layer found",))
    return lipschitz_of_weights(weights, radius=radius, input_norm=input_norm, least_norm=least_norm)
