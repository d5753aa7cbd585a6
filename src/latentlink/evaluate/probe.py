"""The linear probe: how well a linear classifier on frozen features does."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np

from latentlink import _checks
from latentlink._metrics import FloatArray, IntArray
from latentlink.evaluate._labelled import Accuracy, labelled

# Inverse strengths for standardised features; from far too strong to far too weak for every data set tried.
_STRENGTHS = (1e-4, 1e-3, 1e-2, 1e-1, 1.0, 10.0)


def linear_probe(
    train_features: Any,
    train_labels: Any,
    test_features: Any,
    test_labels: Any,
    *,
    strengths: Sequence[float] = _STRENGTHS,
    validation: float = 0.2,
    max_iter: int = 300,
    seed: int = 0,
) -> Accuracy:
    """Fit a multinomial logistic regression on training features and judge it on test features.

    Parameters
    ----------
    train_features, test_features : array or tensor (n, d), (m, d)
        Each column is standardised by the training features' mean and deviation.
    train_labels, test_labels : array (n,), (m,)
        Of any sortable kind. A test label that no training item has is a miss.
    strengths : sequence of float
        Inverse regularisation strengths (scikit-learn's C) to choose from. The choice is made on validation
        items taken from the training set, never on the test set; with one strength there is nothing to choose
        and no validation is done.
    validation : float
        Share of each class of the training set held out for that choice, in (0, 0.5]. The final fit uses all.
    max_iter : int
        Steps of L-BFGS at most; ``settings["converged"]`` says whether they were enough.
    seed : int
        Of the validation split.

    Returns
    -------
    Accuracy
        With `accuracy`, `hits`, `predictions`, `interval(level)`, and in `settings` the strength chosen, the
        validation accuracy of each strength, and whether the final fit converged.

    Notes
    -----
    Cost: about n d c multiply-adds for c classes a step, for each strength.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> y = np.repeat([0, 1], 50)
    >>> x = rng.normal(size=(100, 3)) + 6 * y[:, None]
    >>> linear_probe(x[::2], y[::2], x[1::2], y[1::2]).accuracy
    1.0
    """
    data = labelled(train_features, train_labels, test_features, test_labels)
    grid = [
        _checks.number("strengths", c, low=0, open_low=True) for c in _checks.sequence("strengths", strengths)
    ]
    if not grid:
        raise _checks.InvalidInput("strengths is empty; needs at least one number > 0.")
    share = _checks.number("validation", validation, low=0, high=0.5, open_low=True)
    _checks.integer("max_iter", max_iter, low=1)
    train, test = _standardised(data.train, data.test)
    scores: dict[float, float] = {}
    best = grid[0]
    if len(grid) > 1:
        held_out = _held_out(data.train_codes, share, seed)
        for c in sorted(grid):
            model, _ = _fitted(train[~held_out], data.train_codes[~held_out], c, max_iter)
            scores[c] = float((model.predict(train[held_out]) == data.train_codes[held_out]).mean())
        best = max(scores, key=lambda c: scores[c])  # the strongest regularisation among equals
    model, converged = _fitted(train, data.train_codes, best, max_iter)
    settings = {"strength": best, "validation_accuracy": scores, "converged": converged}
    return data.judged(np.asarray(model.predict(test)), settings)


def _standardised(train: FloatArray, test: FloatArray) -> tuple[FloatArray, FloatArray]:
    mean, deviation = train.mean(axis=0), train.std(axis=0)  # (d,)
    # A column constant up to rounding says nothing; dividing by its rounding noise would make it shout.
    constant = deviation <= 1e-6 * np.abs(train).max(axis=0)
    per_column = np.where(constant, 0.0, 1.0 / np.where(constant, 1.0, deviation)).astype(train.dtype)
    return (train - mean) * per_column, (test - mean) * per_column


def _held_out(codes: IntArray, share: float, seed: int) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """Choose validation items: the share of each class, at least one of a class of two or more."""
    order = np.random.default_rng(seed).permutation(codes.size)
    order = order[np.argsort(codes[order], kind="stable")]  # by class, shuffled within
    counts = np.bincount(codes)
    places = np.arange(codes.size) - np.repeat(np.cumsum(counts) - counts, counts)  # place within the class
    wanted = np.where(counts > 1, np.ceil(share * counts), 0)
    chosen = np.zeros(codes.size, dtype=bool)
    chosen[order] = places < np.repeat(wanted, counts)
    if not chosen.any():
        raise _checks.InvalidInput(
            "train_labels has no class with two items, so no strength can be validated; pass one strength."
        )
    return chosen


def _fitted(x: FloatArray, codes: IntArray, strength: float, max_iter: int) -> tuple[Any, bool]:
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LogisticRegression

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", ConvergenceWarning)
        model = LogisticRegression(C=strength, max_iter=max_iter).fit(x, codes)
    stopped = False
    for warning in caught:
        if issubclass(warning.category, ConvergenceWarning):
            stopped = True
        else:
            warnings.warn_explicit(warning.message, warning.category, warning.filename, warning.lineno)
    return model, not stopped
