"""Fit a frame on items that not every encoder has seen: each encoder uses those that it has."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from latentlink.spaces.items import Support
from latentlink.whitening import Whitener

FloatArray = np.ndarray[Any, np.dtype[np.floating[Any]]]
IntArray = np.ndarray[Any, np.dtype[np.int64]]


def predicted_anchors(weights: FloatArray, frame: FloatArray, places: IntArray) -> FloatArray:
    """Compute an encoder's anchors (k, d) as they would be had it seen all items.

    Parameters
    ----------
    weights : array (k, m)
        Row-stochastic, over all m items.
    frame : array (m_i, d)
        The encoder's vectors of the items it has seen, in whitened coordinates.
    places : int array (m_i,)
        Which items those are.

    Notes
    -----
    Under the whitened inner product the map to coordinate r is the regression of the weights of anchor r, less
    1/m, on the encoder's vectors. Least squares needs no other items than those seen; (m − 1) / (m_i − 1) brings
    the covariance to the scale of m items.
    """
    m, seen = weights.shape[1], places.size
    # Centring the frame takes the 1/m off: a constant has no covariance with anything.
    mean = frame.mean(axis=0)
    return np.asarray(mean + weights[:, places] @ (frame - mean) * ((m - 1) / (seen - 1)))


def balanced(support: Support, coordinates: Mapping[str, FloatArray]) -> dict[str, FloatArray]:
    """Spread frames over all m items, zeros where unseen, so that each keeps the covariance of its seen items."""
    m, frames = support.ids.size, {}
    for name, z in coordinates.items():
        frames[name] = z
        if z.shape[0] < m:
            frames[name] = np.zeros((m, z.shape[1]))
            frames[name][support.places[name]] = z * np.sqrt((m - 1) / (z.shape[0] - 1))
    return frames


def moved_mean(
    mean: FloatArray, x: FloatArray, weights: FloatArray, places: IntArray, shrinkage: str | float
) -> FloatArray:
    """Estimate an encoder's mean (d,) over all m items from the vectors (m_i, d) of those it has seen.

    The seen items may differ from the rest. Where they lie in the shared coordinates is known, and so, by
    regression of x on these, is how far the mean would move: the regression estimator of survey statistics.
    Without this step an encoder that has seen other kinds of items than the rest is shifted against them.
    """
    m, seen = weights.shape[1], places.size
    targets = (weights[:, places] - 1 / m).T  # (m_i, k), mean 0 over all items
    few = seen < 5 * targets.shape[1]
    whitener = Whitener(shrinkage="auto" if few else shrinkage).fit(targets)
    white = whitener.transform(targets)
    slope = whitener.matrix_ @ (white.T @ (x - x.mean(axis=0))) / (seen - 1)  # (k, d)
    return np.asarray(mean - targets.mean(axis=0) @ slope)


def consensus(relative: Mapping[str, FloatArray], support: Support) -> FloatArray:
    """Average relative vectors (m, k) over the encoders that have seen the item."""
    total: FloatArray = np.zeros((support.ids.size, next(iter(relative.values())).shape[1]))
    counts = np.zeros(support.ids.size)
    for name, r in relative.items():
        total[support.places[name]] += r
        counts[support.places[name]] += 1
    return total / counts[:, None]


def decoder(pairs: Sequence[tuple[FloatArray, FloatArray]]) -> FloatArray:
    """Least squares (k, d) from relative vectors to centred vectors of the same items, with a light ridge."""
    gram = np.asarray(sum(r.T @ r for r, _ in pairs))
    cross = np.asarray(sum(r.T @ centred for r, centred in pairs))
    ridge = 1e-6 * np.trace(gram) / gram.shape[0]
    return np.asarray(np.linalg.solve(gram + ridge * np.eye(gram.shape[0]), cross))


def shared_rows(
    relative: FloatArray, places: IntArray, centred: FloatArray, own: IntArray
) -> tuple[FloatArray, FloatArray]:
    """Keep the rows of items that both encoders have seen."""
    if np.array_equal(places, own):
        return relative, centred
    _, first, second = np.intersect1d(places, own, assume_unique=True, return_indices=True)
    return relative[first], centred[second]
