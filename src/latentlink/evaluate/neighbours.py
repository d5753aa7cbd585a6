"""Nearest neighbours as judges of frozen features: a weighted vote, and whether any of k is of the class."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from latentlink import _checks
from latentlink._metrics import FloatArray
from latentlink.evaluate._labelled import Accuracy, labelled
from latentlink.similarity import top_k


def knn_accuracy(
    train_features: Any,
    train_labels: Any,
    test_features: Any,
    test_labels: Any,
    *,
    k: int = 50,
    temperature: float | None = 0.1,
    on_zero: str = "error",
) -> Accuracy:
    """Predict each test label by a vote of its k most similar training items.

    Parameters
    ----------
    train_features, test_features : array or tensor (n, d), (m, d)
        Compared by cosine.
    train_labels, test_labels : array (n,), (m,)
        Of any sortable kind. A test label that no training item has is a miss.
    k : int
        From 1 to n.
    temperature : float or None
        A neighbour of similarity s votes with weight exp(s / temperature); None gives each one vote. Equal
        sums go to the smaller label.
    on_zero : {"error", "skip"}
        What to do with features of norm 0; see `latentlink.normalize`.

    Returns
    -------
    Accuracy
        With `accuracy`, `hits`, `predictions` and `interval(level)`.

    Notes
    -----
    Exact. Cost: n m d multiply-adds, in blocks.

    References
    ----------
    Wu et al. 2018, "Unsupervised Feature Learning via Non-Parametric Instance Discrimination" (the weights).

    Examples
    --------
    >>> train = np.array([[1.0, 0.0], [0.9, 0.1], [0.0, 1.0]])
    >>> result = knn_accuracy(train, ["a", "a", "b"], [[1.0, 0.2], [0.1, 1.0]], ["a", "b"], k=2)
    >>> result.accuracy
    1.0
    """
    data = labelled(train_features, train_labels, test_features, test_labels)
    k = _checks.integer("k", k, low=1, high=len(data.train))
    if temperature is not None:
        temperature = _checks.number("temperature", temperature, low=0, open_low=True)
    similarities, rows = top_k(data.test, data.train, k, on_zero=on_zero)  # (m, k) each
    weights = np.ones_like(similarities)
    if temperature is not None:
        weights = np.exp((similarities - similarities[:, :1]) / temperature)  # at most 1: nothing overflows
    votes = np.zeros((len(data.test), data.classes.size))
    np.add.at(votes, (np.arange(len(data.test))[:, None], data.train_codes[rows]), weights)
    return data.judged(votes.argmax(axis=1), {"k": k, "temperature": temperature})


def neighbour_recall(
    train_features: Any,
    train_labels: Any,
    test_features: Any,
    test_labels: Any,
    *,
    ks: Sequence[int] = (1, 2, 5, 10, 20, 50),
    on_zero: str = "error",
) -> dict[int, FloatArray]:
    """Tell for each test item whether any of its k nearest training items has its label.

    Parameters
    ----------
    train_features, test_features : array or tensor (n, d), (m, d)
        Compared by cosine.
    train_labels, test_labels : array (n,), (m,)
    ks : sequence of int
        Each from 1 to n.
    on_zero : {"error", "skip"}

    Returns
    -------
    dict of int to array (m,)
        For each k the hits, 0.0 or 1.0, whose mean is R@k of metric learning. R@1 is the accuracy of the
        nearest neighbour; R@k of a larger k is no accuracy, it only grows with k.

    Examples
    --------
    >>> train = np.array([[1.0, 0.0], [0.9, 0.2], [0.0, 1.0]])
    >>> found = neighbour_recall(train, [0, 1, 1], [[1.0, 0.0]], [1], ks=(1, 2))
    >>> {k: float(hits.mean()) for k, hits in found.items()}
    {1: 0.0, 2: 1.0}
    """
    data = labelled(train_features, train_labels, test_features, test_labels)
    sizes = [_checks.integer("ks", k, low=1, high=len(data.train)) for k in _checks.sequence("ks", ks)]
    if not sizes:
        raise _checks.InvalidInput("ks is empty; needs at least one k.")
    _, rows = top_k(data.test, data.train, max(sizes), on_zero=on_zero)  # (m, k)
    same = data.classes[data.train_codes[rows]] == data.test_labels[:, None]  # (m, k)
    found = np.maximum.accumulate(same, axis=1).astype(np.float64)
    return {k: found[:, k - 1] for k in sizes}
