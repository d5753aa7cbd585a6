"""Find things: one index that every encoder of a shared space can search."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from latentlink.search.index import Index

_HOMES = {"Index": "index"}

__all__ = ["Index"]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'latentlink.search' has no attribute {name!r}")
    return getattr(importlib.import_module(f"latentlink.search.{_HOMES[name]}"), name)
