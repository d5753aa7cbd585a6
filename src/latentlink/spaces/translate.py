"""Maps between two encoders, fitted on pairs: ridge, low-rank, orthogonal Procrustes, canonical correlation."""

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
    rank : int
        Of the map where it was limited, 0 where it was not.
    """

    mean: FloatArray
    map: FloatArray
    target_mean: FloatArray
    method: str
    strength: float = 0.0
    rank: int = 0

    def __call__(self, embeddings: Any) -> FloatArray:
        """Translate (n, d) vectors to (n, e)."""
        x = _checks.numpy_matrix("embeddings", embeddings, columns=self.mean.shape[0])
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
    if _checks.is_auto(strength):
        strength = _best_strength(x, y, seed)
    amount = _checks.number("strength", strength, low=0)
    return _ridge(x, y, [amount])[0]


def fit_low_rank(
    source: Any,
    target: Any,
    *,
    rank: str | int = "auto",
    strength: str | float = "auto",
    seed: int = 0,
) -> AffineMap:
    """Fit an affine map of limited rank by reduced-rank ridge regression.

    Parameters
    ----------
    source, target : array (n, d), (n, e)
        Paired rows.
    rank : "auto" or int from 1 to min(d, e)
        "auto" holds out a fifth of the pairs and takes, among powers of two and the full rank, the smallest
        one of the best mean reciprocal rank there, then fits all pairs.
    strength : "auto" or float >= 0
        See `fit_ridge`; chosen first, at full rank, on the same held-out pairs.

    Notes
    -----
    The ridge map M is projected on the r leading right singular vectors V of its penalised prediction, those
    of ``M' (X'X + l I) M``: the map M V V' minimises the penalised squared error among maps of rank r.

    References
    ----------
    Izenman 1975, Journal of Multivariate Analysis 5; Mukherjee and Zhu 2011, Statistical Analysis and Data
    Mining 4 (with a ridge).

    Examples
    --------
    >>> x = np.random.default_rng(0).normal(size=(200, 8))
    >>> y = x[:, :2] @ np.arange(10.0).reshape(2, 5) + 7.0
    >>> found = fit_low_rank(x, y, rank=2, strength=0)
    >>> bool(np.allclose(found(x), y))
    True
    """
    x, y = _pair(source, target)
    largest = min(x.shape[1], y.shape[1])
    if _checks.is_auto(strength):
        strength = _best_strength(x, y, seed)
    amount = _checks.number("strength", strength, low=0)
    if _checks.is_auto(rank):
        rank = _best_rank(x, y, amount, largest, seed)
    limit = _checks.integer("rank", rank, low=1, high=largest)
    return _truncated(x, _ridge(x, y, [amount])[0], [limit])[0]


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
    k = correlation.size if n_components is None else _checks.integer("n_components", n_components, low=1)
    k = min(k, correlation.size)
    weight = np.minimum(correlation[:k], 1.0) ** _checks.number("power", power, low=0)
    origin = np.zeros(k)
    return (
        AffineMap(first.mean_, first.matrix_ @ (u[:, :k] * weight), origin, "cca"),
        AffineMap(second.mean_, second.matrix_ @ (vt[:k].T * weight), origin, "cca"),
    )


def _best_strength(x: FloatArray, y: FloatArray, seed: int) -> float:
    held, kept = _split(x.shape[0], seed)
    if kept.size < 2:
        return STRENGTHS[-3]
    return STRENGTHS[_best(_ridge(x[kept], y[kept], STRENGTHS), x[held], y[held])]


def _best_rank(x: FloatArray, y: FloatArray, strength: float, largest: int, seed: int) -> int:
    held, kept = _split(x.shape[0], seed)
    if kept.size < 2:
        return largest
    ranks = [1 << power for power in range(largest.bit_length()) if 1 << power < largest] + [largest]
    full = _ridge(x[kept], y[kept], [strength])[0]
    return ranks[_best(_truncated(x[kept], full, ranks), x[held], y[held])]


def _split(n: int, seed: int) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Row numbers of a held-out fifth, and of the others."""
    order = _checks.generator(seed).permutation(n)
    return order[: max(1, n // 5)], order[max(1, n // 5) :]


def _best(maps: list[AffineMap], x: FloatArray, y: FloatArray) -> int:
    """Position of the first map of the best mean reciprocal rank."""
    gallery = normalize(y, on_zero="skip")
    scores = [
        reciprocal_rank(paired_ranks(normalize(fitted(x), on_zero="skip"), gallery)).mean() for fitted in maps
    ]
    return int(np.argmax(scores))


def _truncated(x: FloatArray, full: AffineMap, ranks: list[int]) -> list[AffineMap]:
    """One map for each rank: the ridge map `full` of rows x on its leading directions of the target."""
    centred = x - full.mean
    penalty = full.strength * (centred**2).sum() / x.shape[1]
    predicted = centred @ full.map  # (n, e)
    energy = predicted.T @ predicted + penalty * full.map.T @ full.map
    vectors = np.linalg.eigh(np.asarray(energy))[1][:, ::-1]  # (e, e), largest first
    maps = []
    for rank in ranks:
        leading = vectors[:, :rank]
        limited = full.map @ leading @ leading.T
        maps.append(AffineMap(full.mean, limited, full.target_mean, "low-rank", full.strength, rank))
    return maps


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
    x = _checks.numpy_matrix("source", source, min_rows=2, dtype=np.float64)
    y = _checks.numpy_matrix("target", target, min_rows=2, dtype=np.float64)
    _checks.same_rows(source=x, target=y)
    return x, y
