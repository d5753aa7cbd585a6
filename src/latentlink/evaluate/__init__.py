"""Judge embeddings: probes, neighbours, retrieval, sentence pairs; always with intervals.

No function here uses the test set for a choice: what has to be chosen is chosen on a part of the training set.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from latentlink.evaluate.neighbours import knn_accuracy, neighbour_recall
    from latentlink.evaluate.probe import linear_probe

_HOMES = {
    "knn_accuracy": "neighbours",
    "linear_probe": "probe",
    "neighbour_recall": "neighbours",
}

__all__ = ["knn_accuracy", "linear_probe", "neighbour_recall"]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'latentlink.evaluate' has no attribute {name!r}")
    value = getattr(importlib.import_module(f"latentlink.evaluate.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return list(__all__)
