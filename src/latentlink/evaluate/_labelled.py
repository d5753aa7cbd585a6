"""What the judges of labelled features share: their input, and a result with one hit for each test item."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from latentlink import _checks
from latentlink._arrays import to_numpy
from latentlink._metrics import FloatArray, IntArray, Interval, proportion_interval


@dataclass(frozen=True, eq=False)
class Accuracy:
    """How many test items got their own label.

    Attributes
    ----------
    hits : array (n,)
        1.0 where the predicted label is the right one.
    predictions : array (n,)
        The predicted labels.
    settings : dict
        What the prediction was made with, the values chosen on validation data included.
    """

    hits: FloatArray
    predictions: np.ndarray[Any, Any]
    settings: dict[str, Any]

    @property
    def accuracy(self) -> float:
        """Share of hits, in [0, 1]."""
        return float(self.hits.mean())

    def interval(self, level: float = 0.95) -> Interval:
        """Return Wilson's interval of the accuracy over test items, for this one training set."""
        return proportion_interval(
            self.hits, level=_checks.number("level", level, low=0, high=1, open_low=True)
        )

    def record(self) -> dict[str, Any]:
        """Return the result as plain values for JSON, without the items."""
        low, high = self.interval()
        return {"accuracy": self.accuracy, "interval": [low, high], "n": int(self.hits.size), **self.settings}


class Labelled(NamedTuple):
    """Checked features and labels; `train_codes` numbers the classes in their sorted order."""

    train: FloatArray  # (n, d)
    train_codes: IntArray  # (n,)
    classes: np.ndarray[Any, Any]  # (c,)
    test: FloatArray  # (m, d)
    test_labels: np.ndarray[Any, Any]  # (m,)

    def judged(self, codes: IntArray, settings: dict[str, Any]) -> Accuracy:
        """Make the result of predicted class numbers (m,)."""
        predictions = self.classes[codes]
        return Accuracy((predictions == self.test_labels).astype(np.float64), predictions, settings)


def labelled(train_features: Any, train_labels: Any, test_features: Any, test_labels: Any) -> Labelled:
    """Check features (n, d), (m, d) and labels (n,), (m,) and return them as NumPy arrays."""
    train = _checks.numpy_matrix("train_features", train_features, min_rows=2)
    test = _checks.numpy_matrix("test_features", test_features)
    _checks.same_columns(train_features=train, test_features=test)
    classes, codes = np.unique(_labels("train_labels", train_labels, len(train)), return_inverse=True)
    if classes.size < 2:
        raise _checks.InvalidInput(f"train_labels has 1 class, {classes[0]!s}; needs at least 2.")
    return Labelled(train, codes.reshape(-1), classes, test, _labels("test_labels", test_labels, len(test)))


def _labels(name: str, labels: Any, rows: int) -> np.ndarray[Any, Any]:
    array = to_numpy(labels)
    if array.shape != (rows,):
        raise _checks.InvalidInput(f"{name} has shape {array.shape}; needs ({rows},), one label for each row.")
    if array.dtype.kind == "f":
        _checks.finite_rows(name, array[:, None], unit="value")
    return array
