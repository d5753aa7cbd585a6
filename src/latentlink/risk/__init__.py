"""Theory of similarity search, as numbers one can act on.

`certify` says how far a trained encoder's search is from ideal, with an interval; `negatives_needed`,
`pairs_needed` and `temperature_needed` read it backwards; the other names are the theory behind them.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from latentlink.risk.certificate import Certificate, certify
    from latentlink.risk.estimators import RowStatistics, row_statistics
    from latentlink.risk.expansion import predict_bias
    from latentlink.risk.needed import Needed, negatives_needed

_HOMES = {
    "Certificate": "certificate",
    "Needed": "needed",
    "RowStatistics": "estimators",
    "certify": "certificate",
    "negatives_needed": "needed",
    "predict_bias": "expansion",
    "row_statistics": "estimators",
}

__all__ = [
    "Certificate",
    "Needed",
    "RowStatistics",
    "certify",
    "negatives_needed",
    "predict_bias",
    "row_statistics",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'latentlink.risk' has no attribute {name!r}")
    value = getattr(importlib.import_module(f"latentlink.risk.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return list(__all__)
