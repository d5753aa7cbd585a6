"""The whitened inner product: similarities that no affine change of an encoder's coordinates can alter."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from latentlink import _checks

FloatArray = np.ndarray[Any, np.dtype[np.floating[Any]]]

# Eigenvalues of a correlation matrix below this share of the largest are rounding, not signal.
_FLOOR = 1e-12


class Whitener:
    """Centre and decorrelate the vectors of one encoder.

    Parameters
    ----------
    shrinkage : "auto" or float in [0, 1]
        How far the correlation matrix is pulled towards the identity. "auto" takes Ledoit and Wolf's estimate
        on standardised data. 0 gives exact invariance to affine maps and needs at least 2 d rows.

    Attributes
    ----------
    mean_ : array (d,)
    matrix_ : array (d, d)
        Whitened vectors are ``(x - mean_) @ matrix_``. Rows of constant columns are zero.
    shrinkage_ : float
        The amount used.
    condition_number_ : float
        Largest over smallest eigenvalue of the correlation matrix that was inverted.
    n_rows_ : int

    Notes
    -----
    With D the standard deviations and C the correlation matrix, the matrix is D^-1 ((1 - a) C + a I)^(-1/2).
    Standardising first keeps the result invariant to the unit of each column at every shrinkage a. All in
    float64. Cost: n d² + d³.

    References
    ----------
    Ledoit and Wolf 2004, J. Multivariate Analysis 88; whitened inner product: arXiv 2605.30596.

    Examples
    --------
    >>> x = np.random.default_rng(0).normal(size=(500, 3)) * [1.0, 10.0, 0.1] + 5.0
    >>> z = Whitener(shrinkage=0).fit(x).transform(x)
    >>> bool(np.allclose(np.cov(z, rowvar=False), np.eye(3)))
    True
    """

    def __init__(self, *, shrinkage: str | float = "auto") -> None:
        self.shrinkage = shrinkage

    def fit(self, embeddings: Any) -> Whitener:
        """Learn mean and matrix from an (n, d) array; a second dimension that never varies gets no weight."""
        x = np.asarray(_checks.matrix("embeddings", embeddings, min_rows=2), dtype=np.float64)
        n = x.shape[0]
        mean = x.mean(axis=0)
        centred = x - mean
        deviation = np.sqrt((centred**2).sum(axis=0) / (n - 1))  # (d,)
        inverse = _inverse_deviation(deviation, mean)
        standard = centred * inverse  # (n, d)
        self._solve(mean, inverse, standard.T @ standard / (n - 1), n, standard)
        return self

    def transform(self, embeddings: Any) -> FloatArray:
        """Whiten an (n, d) array."""
        self._fitted()
        x = _checks.matrix("embeddings", embeddings, columns=self.mean_.shape[0])
        return np.asarray((x - self.mean_) @ self.matrix_)

    def similarity(self, queries: Any, anchors: Any) -> FloatArray:
        """Compute the whitened inner product of (n, d) queries with (k, d) anchors: (n, k)."""
        return np.asarray(self.transform(queries) @ self.transform(anchors).T)

    def _fitted(self) -> None:
        if not hasattr(self, "matrix_"):
            raise _checks.InvalidInput("this Whitener is not fitted; call fit(embeddings) first.")

    def _solve(
        self, mean: FloatArray, inverse: FloatArray, correlation: FloatArray, n: int, standard: Any
    ) -> None:
        varies = inverse > 0
        d = int(varies.sum())
        amount = self._amount(n, d, standard)
        eigenvalues, vectors = np.linalg.eigh((1 - amount) * correlation + amount * np.diag(varies * 1.0))
        good = eigenvalues > _FLOOR * eigenvalues[-1]
        roots = np.where(good, 1 / np.sqrt(np.where(good, eigenvalues, 1.0)), 0.0)
        self.mean_, self.n_rows_, self.shrinkage_ = mean, n, amount
        self.matrix_ = inverse[:, None] * (vectors * roots) @ vectors.T
        self.condition_number_ = float(eigenvalues[-1] / eigenvalues[good][0])

    def _amount(self, n: int, d: int, standard: Any) -> float:
        if self.shrinkage == "auto":
            from sklearn.covariance import ledoit_wolf_shrinkage

            return float(ledoit_wolf_shrinkage(standard, assume_centered=True))
        amount = _checks.number("shrinkage", self.shrinkage, low=0, high=1)
        if amount == 0 and n < 2 * d:
            raise _checks.InvalidInput(
                f"shrinkage is 0 with {n} rows of {d} columns; unregularised whitening needs at least {2 * d} "
                'rows. Add rows or pass shrinkage="auto".'
            )
        if n < 5 * d:
            warnings.warn(
                f"{n} rows of {d} columns at shrinkage {amount:g}: the covariance is unstable below 5 rows a "
                'column; shrinkage="auto" is safer.',
                stacklevel=4,
            )
        return amount


def _inverse_deviation(deviation: FloatArray, mean: FloatArray) -> FloatArray:
    """1 / deviation, and 0 for a column whose variation is rounding."""
    varies = deviation > 1e-12 * np.maximum(np.abs(mean), np.finfo(np.float64).tiny)
    return np.where(varies, 1 / np.where(varies, deviation, 1.0), 0.0)
