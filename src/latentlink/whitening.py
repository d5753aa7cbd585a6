"""The whitened inner product: similarities that no affine change of an encoder's coordinates can alter."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from latentlink import _checks
from latentlink.moments import Moments

FloatArray = np.ndarray[Any, np.dtype[np.floating[Any]]]

# Eigenvalues of a correlation matrix below this share of the largest are rounding, not signal.
_FLOOR = 1e-12


class Whitener:
    """Centre and decorrelate the vectors of one encoder.

    Parameters
    ----------
    shrinkage : "auto" or float in [0, 1]
        How far the correlation matrix is pulled towards the identity. "auto" takes Ledoit and Wolf's estimate
        on standardised data in memory, or the OAS estimate on the correlation matrix of merged moments. 0 gives
        exact invariance to affine maps and needs at least 2 d rows.

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
    Ledoit and Wolf 2004, J. Multivariate Analysis 88; Chen, Wiesel, Eldar and Hero 2010, IEEE Trans. Signal
    Processing 58 (OAS); whitened inner product: arXiv 2605.30596.

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
        x = _checks.numpy_matrix("embeddings", embeddings, min_rows=2, dtype=np.float64)
        _checks.varied("embeddings", x)
        n = x.shape[0]
        mean = x.mean(axis=0)
        centred = x - mean
        deviation = np.sqrt((centred**2).sum(axis=0) / (n - 1))  # (d,)
        inverse = _inverse_deviation(deviation, mean)
        standard = centred * inverse  # (n, d)
        self._solve(mean, inverse, standard.T @ standard / (n - 1), n, standard)
        return self

    def fit_moments(self, moments: Moments) -> Whitener:
        """Learn mean and matrix from merged `latentlink.moments.Moments`, without touching the data again."""
        mean, covariance = moments.mean, moments.covariance
        inverse = _inverse_deviation(np.sqrt(np.maximum(np.diag(covariance), 0)), mean)
        correlation = inverse[:, None] * covariance * inverse
        self._solve(mean, inverse, correlation, moments.count, None)
        return self

    def transform(self, embeddings: Any) -> FloatArray:
        """Whiten an (n, d) array."""
        self._fitted()
        x = _checks.numpy_matrix("embeddings", embeddings, columns=self.mean_.shape[0])
        return np.asarray((x - self.mean_) @ self.matrix_)

    def similarity(self, queries: Any, anchors: Any) -> FloatArray:
        """Compute the whitened inner product of (n, d) queries with (k, d) anchors: (n, k)."""
        return np.asarray(self.transform(queries) @ self.transform(anchors).T)

    def invariance_error(self, embeddings: Any, *, seed: int = 0) -> float:
        """Measure how much similarities change when the data go through a random affine map.

        Parameters
        ----------
        embeddings : array (n, d)
            The data fitted, or others of the same law with n rows enough for this shrinkage.

        Returns
        -------
        float
            Largest change of a whitened inner product over the largest such product: rounding (1e-9) at
            shrinkage 0; with shrinkage the invariance is only to the unit of each column.
        """
        x = _checks.numpy_matrix("embeddings", embeddings, min_rows=2, dtype=np.float64)
        rng = np.random.default_rng(seed)
        d = x.shape[1]
        moved = x @ (rng.normal(size=(d, d)) / np.sqrt(d) + 2 * np.eye(d)) + rng.normal(size=d)
        some = slice(0, 200)
        before = Whitener(shrinkage=self.shrinkage).fit(x).transform(x[some])
        after = Whitener(shrinkage=self.shrinkage).fit(moved).transform(moved[some])
        kernel = before @ before.T
        return float(np.abs(after @ after.T - kernel).max() / np.abs(kernel).max())

    def _fitted(self) -> None:
        if not hasattr(self, "matrix_"):
            raise _checks.InvalidInput("this Whitener is not fitted; call fit(embeddings) first.")

    def _solve(
        self, mean: FloatArray, inverse: FloatArray, correlation: FloatArray, n: int, standard: Any
    ) -> None:
        varies = inverse > 0
        d = int(varies.sum())
        if d == 0:
            raise _checks.InvalidInput("no column varies; whitening needs vectors that are not all equal.")
        amount = self._amount(n, d, standard, correlation)
        eigenvalues, vectors = np.linalg.eigh((1 - amount) * correlation + amount * np.diag(varies * 1.0))
        good = eigenvalues > _FLOOR * eigenvalues[-1]
        roots = np.where(good, 1 / np.sqrt(np.where(good, eigenvalues, 1.0)), 0.0)
        self.mean_, self.n_rows_, self.shrinkage_ = mean, n, amount
        self.matrix_ = inverse[:, None] * (vectors * roots) @ vectors.T
        self.condition_number_ = float(eigenvalues[-1] / eigenvalues[good][0])

    def _amount(self, n: int, d: int, standard: Any, correlation: FloatArray) -> float:
        if _checks.is_auto(self.shrinkage):
            return _safe_amount(n, d, standard, correlation)
        amount = _checks.number("shrinkage", self.shrinkage, low=0, high=1)
        if amount == 0 and n < 2 * d:
            raise _checks.InvalidInput(
                f"shrinkage is 0 with {n} rows of {d} columns; unregularised whitening needs at least {2 * d} "
                'rows. Add rows or pass shrinkage="auto".'
            )
        if n < 5 * d and amount < (safe := _safe_amount(n, d, standard, correlation)):
            warnings.warn(
                f"{n} rows of {d} columns at shrinkage {amount:g}: the covariance is unstable below 5 rows a "
                f'column; shrinkage="auto", here {safe:.2g}, is safer.',
                stacklevel=4,
            )
        return amount


def _safe_amount(n: int, d: int, standard: Any, correlation: FloatArray) -> float:
    """Shrinkage that "auto" takes: Ledoit and Wolf's from standardised data, the oracle's from a state."""
    if standard is None:
        return _oas(correlation, n, d)
    from sklearn.covariance import ledoit_wolf_shrinkage

    return float(ledoit_wolf_shrinkage(standard, assume_centered=True))


def _oas(correlation: FloatArray, n: int, d: int) -> float:
    """Oracle-approximating shrinkage of a (d, d) correlation matrix of n rows."""
    squared = float((correlation**2).sum()) / d**2
    needed = (n + 1) * (squared - 1 / d)
    return 1.0 if needed <= 0 else min(1.0, (squared + 1) / needed)


def _inverse_deviation(deviation: FloatArray, mean: FloatArray) -> FloatArray:
    """1 / deviation, and 0 for a column whose variation is rounding."""
    varies = deviation > 1e-12 * np.maximum(np.abs(mean), np.finfo(np.float64).tiny)
    return np.where(varies, 1 / np.where(varies, deviation, 1.0), 0.0)
