"""Maps between two encoders, fitted on pairs: ridge, orthogonal Procrustes, canonical correlation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from latentlink import _checks
from latentlink._metrics import paired_ranks, reciprocal_rank
from latentlink.similarity import normalize
from latentlink.whitening import Whitener

FloatArray = np.ndarray[Any, np.dtype[np.floating[Any]]]

STRENGTHS = tuple(float(10.0**power) for power in range(-5, 3))


@dataclass(frozen=True)
class AffineMap:
    """Vectors of one space as vectors of another: ``(x - mean) @ map + target_mean``.

    Attributes
    ----------
    mean : array (d,)
    map : array (d, e)
    target_mean : array (e,)
    method : str
    strength : float
        The ridge relative to the mean variance of a column, 0 where there is none.
    """

    mean: FloatArray
    map: FloatArray
    target_mean: FloatArray
    method: str
    strength: float = 0.0

    def __call__(self, embeddings: Any) -> FloatArray:
        """Translate (n, d) vectors to (n, e)."""
        x = np.asarray(_checks.matrix("embeddings", embeddings, columns=self.mean.shape[0]))
        dtype = x.dtype
        return np.asarray(
            (x - self.mean.astype(dtype)) @ self.map.astype(dtype) + self.target_mean.astype(dtype)
        )


def fit_ridge(source: Any, target: Any, *, strength: str | float = "auto", seed: int = 0) -> AffineMap:
    """Fit an affine map by ridge regression.

    Parameters
    ----------
    source, target : array (n, d), (n, e)
        Paired rows.
    strength : "auto" or float >= 0
        Relative to the mean variance of a column. "auto" holds out a fifth of the pairs and takes the strength
        of the best mean reciprocal rank there, then fits all pairs.

    Examples
    --------
    >>> x = np.random.default_rng(0).normal(size=(50, 3))
    >>> y = x @ np.ones((3, 2)) + 7.0
    >>> bool(np.allclose(fit_ridge(x, y, strength=0)(x), y))
    True
    """
    x, y = _pair(source, target)
    if strength == "auto":
        strength = _best_strength(x, y, seed)
    amount = _checks.number("strength", strength, low=0)
    return _ridge(x, y, [amount])[0]


def fit_procrustes(source: Any, target: Any) -> AffineMap:
    """Fit the rotation (with one scale) that brings the centred source closest to the centred target.

    Spaces of different dimension are matched by a map of orthonormal rows or columns.

    References
    ----------
    Schoenemann 1966, Psychometrika 31.

    Examples
    --------
    >>> x = np.random.default_rng(0).normal(size=(50, 2))
    >>> turn = np.array([[0.0, 1.0], [-1.0, 0.0]])
    >>> bool(np.allclose(fit_procrustes(x, 3 * x @ turn).map, 3 * turn))
    True
    """
    x, y = _pair(source, target)
    x_mean, y_mean = x.mean(axis=0), y.mean(axis=0)
    u, s, vt = np.linalg.svd((x - x_mean).T @ (y - y_mean), full_matrices=False)
    scale = s.sum() / ((x - x_mean) ** 2).sum()
    return AffineMap(x_mean, scale * u @ vt, y_mean, "procrustes")


def fit_cca(
    source: Any, target: Any, *, n_components: int | None = None, power: float = 1.0
) -> tuple[AffineMap, AffineMap]:
    """Fit maps of both spaces into their canonical coordinates, each weighted by its correlation to `power`.

    Whitening is shrunk as in `latentlink.Whitener`. Both maps lead to the same (n_components,) coordinates.

    References
    ----------
    Hotelling 1936, Biometrika 28.
    """
    x, y = _pair(source, target)
    wx, wy = Whitener().fit(x), Whitener().fit(y)
    return cca_from(wx, wy, wx.transform(x), wy.transform(y), n_components=n_components, power=power)


def cca_from(
    first: Whitener,
    second: Whitener,
    z: FloatArray,
    w: FloatArray,
    *,
    n_components: int | None = None,
    power: float = 1.0,
) -> tuple[AffineMap, AffineMap]:
    """Do `fit_cca` with whiteners and whitened rows that are at hand."""
    u, correlation, vt = np.linalg.svd(z.T @ w / (z.shape[0] - 1), full_matrices=False)
    k = min(n_components or correlation.size, correlation.size)
    weight = np.minimum(correlation[:k], 1.0) ** power
    origin = np.zeros(k)
    return (
        AffineMap(first.mean_, first.matrix_ @ (u[:, :k] * weight), origin, "cca"),
        AffineMap(second.mean_, second.matrix_ @ (vt[:k].T * weight), origin, "cca"),
    )


def _best_strength(x: FloatArray, y: FloatArray, seed: int) -> float:
    order = np.random.default_rng(seed).permutation(x.shape[0])
    held, kept = order[: max(1, x.shape[0] // 5)], order[max(1, x.shape[0] // 5) :]
    if kept.size < 2:
        return STRENGTHS[-3]
    gallery = normalize(y[held], on_zero="skip")
    scores = [
        reciprocal_rank(paired_ranks(normalize(fitted(x[held]), on_zero="skip"), gallery)).mean()
        for fitted in _ridge(x[kept], y[kept], STRENGTHS)
    ]
    return STRENGTHS[int(np.argmax(scores))]


def _ridge(x: FloatArray, y: FloatArray, strengths: Any) -> list[AffineMap]:
    """One map for each strength, from one eigendecomposition."""
    x_mean, y_mean = x.mean(axis=0), y.mean(axis=0)
    centred = x - x_mean
    values, vectors = np.linalg.eigh(centred.T @ centred)
    values = np.maximum(values, 0)
    cross = vectors.T @ (centred.T @ (y - y_mean))  # (d, e)
    maps = []
    for strength in strengths:
        # At strength 0 this is the pseudo-inverse: directions without variance get no weight.
        penalised = values + max(strength * values.mean(), 0.0)
        good = penalised > 1e-12 * values[-1]
        weight = np.where(good, 1 / np.where(good, penalised, 1.0), 0.0)
        maps.append(AffineMap(x_mean, vectors @ (weight[:, None] * cross), y_mean, "ridge", float(strength)))
    return maps


def _pair(source: Any, target: Any) -> tuple[FloatArray, FloatArray]:
    x = np.asarray(_checks.matrix("source", source, min_rows=2), dtype=np.float64)
    y = np.asarray(_checks.matrix("target", target, min_rows=2), dtype=np.float64)
    _checks.same_rows(source=x, target=y)
    return x, y
