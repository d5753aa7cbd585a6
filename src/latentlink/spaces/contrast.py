"""How much better an encoder's law explains vectors than altered copies of the same vectors.

The energy of a vector under the encoder's whitening is compared with that of the vector negated, and with the
mean energy of the vector under random signs of its columns. Vectors of another encoder, and permuted, flipped or
turned ones, lie to the law like random copies of themselves, so the logarithm of the ratio is near 0. At home it is
clearly below 0, and stays so for texts of another domain, whose energy and that of whose copies rise together.
"""

from __future__ import annotations

from typing import Any

import numpy as np

FloatArray = np.ndarray[Any, np.dtype[np.floating[Any]]]

_DRAWS = 32
_ROWS = 128
# Standard deviations of a batch's mean between the fitted vectors and the highest limit: 1 false alarm in 1,000.
_HOME = 3.0
_AWAY = 2.5
# How far the limit stands from what altered copies reach (0) to what the encoder's own vectors reach (1). Small, so
# that another domain passes. Chosen on fitted rows and halves of shifted sets that the tables of docs/search.md do
# not judge: 0.05 to 0.25 detected every altered batch there.
_SHARE = 0.1
_TINY = float(np.finfo(np.float64).tiny)


def contrasts(x: FloatArray, mean: FloatArray, whitening: FloatArray) -> FloatArray:
    """Compare each vector with altered copies of itself under a law.

    Parameters
    ----------
    x : array (n, d)
    mean : array (d,)
    whitening : array (d, d)
        Whitened vectors are ``(x - mean) @ whitening``.

    Returns
    -------
    array (n, 2)
        log e(x) / e(-x), and log e(x) / E[e(s x)] with e the squared length of a whitened vector and s random signs
        of the columns. Cost: one n x d x d product.

    Notes
    -----
    With A = W W' the expectation is the sum of x_j² A_jj plus mean' A mean.

    Examples
    --------
    >>> contrasts(np.array([[2.0, 0.0]]), np.array([1.0, 0.0]), np.eye(2)).round(3).tolist()
    [[-2.197, -1.609]]
    """
    z = (x - mean) @ whitening
    centre = mean @ whitening  # (d,)
    own, negated = (z * z).sum(axis=1), ((z + 2 * centre) ** 2).sum(axis=1)
    signed = (x * x) @ (whitening * whitening).sum(axis=1) + centre @ centre
    return _log_ratios(own, negated, signed)


def left_out(
    x: FloatArray, mean: FloatArray, whitening: FloatArray, *, n_rows: int, shrinkage: float
) -> tuple[FloatArray, FloatArray]:
    """Compute energies and contrasts of fitted vectors as if each had been left out of the fit.

    Parameters
    ----------
    x : array (n, d)
        Among the `n_rows` vectors whose mean and shrunk covariance gave `mean` and `whitening`.
    mean, whitening : arrays (d,), (d, d)
    n_rows : int
    shrinkage : float
        In [0, 1]; the amount itself and the columns' standard deviations are taken as not changed by one vector.

    Returns
    -------
    energies : array (n,)
        Mean square of a whitened vector.
    contrasts : array (n, 2)
        See `contrasts`.

    Notes
    -----
    With A = W W', D the deviation of a vector from the mean, h = D' A D and k = (1 - shrinkage) n / (n - 1)²,
    Sherman and Morrison give the inverse without it as A + k A D D' A / (1 - k h), and the mean moves by
    -D / (n - 1). Cost: three n x d x d products.
    """
    n, d = n_rows, x.shape[1]
    deviation = x - mean
    z, centre = deviation @ whitening, mean @ whitening
    pulled = z @ whitening.T  # A D, (n, d)
    h = (z * z).sum(axis=1)
    k = (1 - shrinkage) * n / (n - 1) ** 2
    rest = np.maximum(1 - k * h, 1e-9)  # above 0 but for rounding, where the vector is among the fitted ones
    factor = k / rest
    own = (n / (n - 1)) ** 2 * h / rest
    other = x + mean - deviation / (n - 1)
    negated = ((other @ whitening) ** 2).sum(axis=1) + factor * (other * pulled).sum(axis=1) ** 2
    shared = z @ centre  # D' A mean
    signed = (x * x) @ (whitening * whitening).sum(axis=1) + factor * ((x * pulled) ** 2).sum(axis=1)
    signed += centre @ centre - 2 * shared / (n - 1) + h / (n - 1) ** 2
    signed += factor * (shared - h / (n - 1)) ** 2
    return own / d, _log_ratios(own, negated, signed)


def signature(
    x: FloatArray, found: FloatArray, mean: FloatArray, whitening: FloatArray, *, seed: int = 0
) -> FloatArray:
    """Describe the contrasts of an encoder's own vectors and of altered ones.

    Parameters
    ----------
    x : array (n, d)
        Fitted vectors.
    found : array (n, 2)
        Their contrasts, each left out.
    mean, whitening : arrays (d,), (d, d)
    seed : int
        Of the altered copies: 32 draws of signs and 32 permutations of the columns of up to 128 vectors.

    Returns
    -------
    array (4, 2)
        Mean and standard deviation of the first contrast at home, of the second at home; then, of the second under
        signs and under permutations, the lowest mean of a draw and the mean standard deviation within a draw.
    """
    rng = np.random.default_rng(seed)
    some = x[np.linspace(0, len(x) - 1, min(len(x), _ROWS)).astype(int)]
    d = x.shape[1]
    rows = [[found[:, column].mean(), found[:, column].std()] for column in (0, 1)]
    for kind in ("signs", "permuted"):
        draws = []
        for _ in range(_DRAWS):
            copy = some * rng.choice([-1.0, 1.0], d) if kind == "signs" else some[:, rng.permutation(d)]
            values = contrasts(copy, mean, whitening)[:, 1]
            draws.append((values.mean(), values.std()))
        lowest, spread = np.min(draws, axis=0)[0], np.mean(draws, axis=0)[1]
        rows.append([lowest, spread])
    return np.asarray(rows, dtype=np.float64)


def limits(signature: FloatArray, rows: int) -> tuple[FloatArray, np.ndarray[Any, np.dtype[np.bool_]]]:
    """Compute what the mean contrasts of a batch may at most be for it to be at home.

    Parameters
    ----------
    signature : array (4, 2)
    rows : int
        Of the batch.

    Returns
    -------
    limits : array (2,)
        Of the mean contrast with the negated vectors, and with random signs.
    telling : bool array (2,)
        False where the encoder's own vectors and altered ones overlap in batches of that size. The limit then only
        keeps false alarms rare.
    """
    mean, deviation = signature[:, 0], signature[:, 1] / np.sqrt(rows)
    home = mean[:2] + _HOME * deviation[:2]
    # Negated, the first contrast is the same with the other sign; halfway is 0.
    away = np.array([-home[0], (mean[2:] - _AWAY * deviation[2:]).min()])
    telling = away > home
    share = np.array([0.5, _SHARE])
    return np.where(telling, away + share * (home - away), home), telling


def _log_ratios(own: FloatArray, negated: FloatArray, signed: FloatArray) -> FloatArray:
    return np.log((own[:, None] + _TINY) / (np.stack([negated, signed], axis=1) + _TINY))
