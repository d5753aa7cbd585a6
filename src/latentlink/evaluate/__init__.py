"""Judge embeddings: probes, neighbours, retrieval, sentence pairs; always with intervals.

No function here uses the test set for a choice: what has to be chosen is chosen on a part of the training set.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from latentlink._lazy import lazy

if TYPE_CHECKING:
    from latentlink.evaluate.neighbours import knn_accuracy, neighbour_recall
    from latentlink.evaluate.probe import linear_probe
    from latentlink.evaluate.ranking import retrieval
    from latentlink.evaluate.sts import sts_spearman
    from latentlink.evaluate.verdicts import holm, paired_difference, spearman_pseudo_values

_HOMES = {
    "holm": "verdicts",
    "knn_accuracy": "neighbours",
    "linear_probe": "probe",
    "neighbour_recall": "neighbours",
    "paired_difference": "verdicts",
    "retrieval": "ranking",
    "spearman_pseudo_values": "verdicts",
    "sts_spearman": "sts",
}

__all__ = [
    "holm",
    "knn_accuracy",
    "linear_probe",
    "neighbour_recall",
    "paired_difference",
    "retrieval",
    "spearman_pseudo_values",
    "sts_spearman",
]

__getattr__, __dir__ = lazy(__name__, _HOMES)
