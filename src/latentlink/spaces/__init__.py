"""Many encoders in one frame: shared anchors, translation between spaces, and honest rivals beside them."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from latentlink.spaces.artefact import load_space
    from latentlink.spaces.compare import MapComparison, compare_maps
    from latentlink.spaces.relative import RelativeSpace

_HOMES = {
    "MapComparison": "compare",
    "RelativeSpace": "relative",
    "compare_maps": "compare",
    "load_space": "artefact",
}

__all__ = ["MapComparison", "RelativeSpace", "compare_maps", "load_space"]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'latentlink.spaces' has no attribute {name!r}")
    value = getattr(importlib.import_module(f"latentlink.spaces.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return list(__all__)
