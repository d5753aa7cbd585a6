"""Find things: one index that every encoder of a shared space can search."""

from __future__ import annotations

from typing import TYPE_CHECKING

from latentlink._lazy import lazy

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

__getattr__, __dir__ = lazy(__name__, _HOMES)
