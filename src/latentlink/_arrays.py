"""NumPy and torch behind one small namespace.

Importing this module imports neither torch nor anything heavier than NumPy: a value can only be a tensor when
its user has imported torch already.
"""

from __future__ import annotations

import sys
from typing import Any, TypeAlias

import numpy as np

# A NumPy array or a torch tensor. mypy cannot name the second without importing torch.
Array: TypeAlias = Any


def is_tensor(value: Any) -> bool:
    """Tell whether `value` is a torch tensor, without importing torch.

    >>> is_tensor(np.ones(2))
    False
    """
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.Tensor)


def namespace(*arrays: Array) -> Any:
    """Return the array-API namespace of NumPy arrays or of tensors.

    >>> namespace(np.ones(2)).__name__
    'array_api_compat.numpy'
    """
    if any(is_tensor(array) for array in arrays):
        import array_api_compat.torch as xp_torch

        return xp_torch
    import array_api_compat.numpy as xp_numpy

    return xp_numpy


def to_numpy(array: Array) -> np.ndarray[Any, Any]:
    """Return a NumPy view (or copy, from a device) of an array or tensor, without its graph."""
    if is_tensor(array):
        detached = array.detach().cpu()
        return np.asarray(detached.float() if detached.element_size() < 4 else detached)
    return np.asarray(array)


def like(result: np.ndarray[Any, Any], source: Array) -> Array:
    """Return a NumPy `result` as the kind of `source`, on its device."""
    if is_tensor(source):
        return sys.modules["torch"].as_tensor(result, device=source.device)
    return result
