"""Find things: one index that every encoder of a shared space can search."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from latentlink.search.conversion import Conversion, convert, read_conversion
    from latentlink.search.index import Index

_HOMES = {
    "Conversion": "conversion",
    "Index": "index",
    "convert": "conversion",
    "read_conversion": "conversion",
}

__all__ = ["Conversion", "Index", "convert", "read_conversion"]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'latentlink.search' has no attribute {name!r}")
    value = getattr(importlib.import_module(f"latentlink.search.{_HOMES[name]}"), name)
    globals()[name] = value  # a function shadows the module of its name
    return value
