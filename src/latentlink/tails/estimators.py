"""Batched numerics of the generalised Pareto law: one row is one tail, and no loop runs over rows.

Everything rests on one curve. With theta = −xi / sigma the profile log-likelihood of k excesses y is P(theta) =
−k (log sigma + 1 + xi), xi(theta) = mean log(1 − theta y), sigma = −xi / theta. Its value at theta = 0 is the
exponential (Gumbel) fit, at 1 / (endpoint − threshold) the fit with the endpoint held, and its maximum the fit
of both parameters.

Inputs are excesses scaled by their largest value, z in [0, 1], zero-padded where rows differ in length: a zero
adds nothing to a sum of log(1 − t z). float64 throughout, NumPy or torch.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from latentlink._arrays import Array, namespace

# Cells (points x excesses x rows) and rows held at a time: they stay in the cache.
_CELLS = 65_536
_ROWS = 512
# log(1 − t z) summed as the log of a product of this many factors: fewer logarithms, the same result to 1e-13.
_FACTORS = 8


class Excesses(NamedTuple):
    """Excesses of many tails, ready for the estimators."""

    z: Array  # (n, k) in [0, 1], zero-padded, k a multiple of 8
    largest: Array  # (n,) the unit of z; NaN for a row without any positive excess
    mean: Array  # (n,) of z
    count: Array  # (n,) float


class Fitted(NamedTuple):
    """Shape and scale of many tails, in the units of z."""

    xi: Array  # (n,)
    sigma: Array  # (n,)
    variance: Array  # (n,) of xi; NaN where the estimator gives none
    edge: Array  # (n,) bool: the solution lies on the boundary of the allowed set


def prepare(excesses: Array, counts: Array) -> Excesses:
    """Scale and pad excesses (n, k), the largest first and NaN-padded."""
    xp = namespace(excesses)
    y = xp.astype(excesses, xp.float64)
    count = xp.astype(counts, xp.float64)
    largest = y[:, 0]
    largest = xp.where((largest > 0) & (count > 0), largest, largest * np.nan)
    z = y / largest[:, None]
    z = xp.where(xp.isnan(z), xp.zeros_like(z), z)
    mean = xp.sum(z, axis=1) / xp.where(count > 0, count, xp.ones_like(count))
    short = -int(z.shape[1]) % _FACTORS
    if short:
        z = xp.concat([z, xp.zeros_like(z[:, :1])] + [xp.zeros_like(z[:, :1])] * (short - 1), axis=1)
    return Excesses(z, largest, mean, count)


def mean_log(t: Array, e: Excesses) -> Array:
    """Compute xi(t) = mean log(1 − t z) at points t (n, m): (n, m).

    Cost: n m k multiply-adds and n m k / 8 logarithms, in blocks that stay in the cache.
    """
    xp = namespace(t)
    n, m, k = int(t.shape[0]), int(t.shape[1]), int(e.z.shape[1])
    rows = max(1, min(_ROWS, _CELLS // k))
    points = max(1, _CELLS // (rows * k))
    parts = []
    for start in range(0, n, rows):
        # Rows last: every operation then runs along contiguous memory, however few excesses are left by halving.
        minus_t = _columns(-t[start : start + rows])  # (m, b)
        z = _columns(e.z[start : start + rows])  # (k, b)
        sums = []
        for first in range(0, m, points):
            factors = minus_t[first : first + points, None, :] * z[None, :, :]  # (p, k, b)
            factors += 1.0
            for _ in range(_FACTORS.bit_length() - 1):
                half = int(factors.shape[1]) // 2
                upper = factors[:, half:]
                factors = factors[:, :half]
                factors *= upper
            with np.errstate(invalid="ignore", divide="ignore"):
                sums.append(xp.sum(xp.log(factors), axis=1))  # (p, b)
        parts.append(xp.concat(sums).T)
    total = xp.concat(parts)
    return total / xp.where(e.count > 0, e.count, e.count * np.nan)[:, None]


def _columns(x: Array) -> Array:
    """Transpose into contiguous memory."""
    return np.ascontiguousarray(x.T) if isinstance(x, np.ndarray) else x.T.contiguous()


def profile(t: Array, e: Excesses) -> tuple[Array, Array]:
    """Compute P(t) / k and xi(t) at points t (n, m), in the units of z.

    Near t = 0, where sigma = −xi / t is 0 / 0, the first terms of the series are used.
    """
    xp = namespace(t)
    xi = mean_log(t, e)
    small = xp.abs(t) < 1e-7
    safe = xp.where(small, xp.ones_like(t), t)
    sigma = xp.where(small, e.mean[:, None] * xp.ones_like(t), -xi / safe)
    with np.errstate(invalid="ignore", divide="ignore"):
        value = -(xp.log(sigma) + 1.0 + xi)
    return value, xi


@np.errstate(all="ignore")  # a row without spread is NaN
def zhang_stephens(e: Excesses) -> Fitted:
    """Average theta over Zhang and Stephens' grid by its profile likelihood.

    The variance is the total one: the spread of xi over the grid plus xi² / k, the exponential variance given
    theta.
    """
    xp = namespace(e.z)
    k = int(e.z.shape[1])
    m = 20 + int(float(xp.max(e.count)) ** 0.5) if int(e.count.shape[0]) else 20
    place = xp.clip(xp.astype(e.count - xp.floor(e.count / 4 + 0.5), xp.int64), 0, k - 1)  # from the largest
    quartile = xp.take_along_axis(e.z, place[:, None], axis=1)  # (n, 1) the lower quartile
    # A quartile of zero (ties at the threshold) would send the grid to infinity.
    quartile = xp.where(quartile > 1e-12, quartile, xp.ones_like(quartile) * 1e-12)
    j = xp.asarray(np.arange(1.0, m + 1.0), dtype=xp.float64, device=e.z.device)
    t = 1.0 + (1.0 - xp.sqrt(m / (j - 0.5)))[None, :] / (3.0 * quartile)  # (n, m)
    value, xi_t = profile(t, e)
    log_w = e.count[:, None] * value
    w = xp.exp(log_w - xp.max(log_w, axis=1, keepdims=True))
    w = w / xp.sum(w, axis=1, keepdims=True)
    theta = xp.sum(w * t, axis=1, keepdims=True)  # (n, 1)
    xi = mean_log(theta, e)[:, 0]
    centre = xp.sum(w * xi_t, axis=1, keepdims=True)
    variance = xp.sum(w * (xi_t - centre) ** 2, axis=1) + xi * xi / e.count
    return Fitted(xi, -xi / theta[:, 0], variance, xp.zeros_like(xi) > 1)


def log_likelihood(xi: Array, sigma: Array, e: Excesses) -> Array:
    """Compute the log-likelihood (n,) of laws (n,) in the units of z."""
    xp = namespace(xi)
    exponential, uniform = xp.abs(xi) < 1e-9, xi == -1.0
    t = xp.where(exponential, xp.zeros_like(xi), -xi / sigma)
    logs = e.count * mean_log(t[:, None], e)[:, 0]  # sum log(1 + xi z / sigma)
    safe = xp.where(exponential, xp.ones_like(xi), xi)
    power = xp.where(exponential, e.count * e.mean / sigma, (1.0 + 1.0 / safe) * logs)
    power = xp.where(uniform, xp.zeros_like(power), power)
    return -e.count * xp.log(sigma) - power


def mean_log_shortfall(values: Array, reach: Array, endpoint: float, counts: Array) -> Array:
    """Compute mean log(reach / shortfall) of each row of values (n, k): (n,), in the type of `values`.

    A value at the endpoint counts as one rounding step away from it. Rows without values, or whose values all
    equal their threshold, are NaN.
    """
    xp = namespace(values)
    n, k = int(values.shape[0]), int(values.shape[1])
    floor = float(xp.finfo(values.dtype).eps) * max(abs(endpoint), 1e-30)
    # Shortfalls are at least the rounding step: a product of four stays above 1e-29 in float32.
    factors = 4 if values.dtype == xp.float32 else 16
    ragged = bool(xp.any(counts < k))
    # Of similarities the product cannot overflow; in other units each is divided by its reach first.
    divided = not bool(xp.all((reach <= 2.0) | xp.isnan(reach)))
    rows = max(1, _CELLS // k)
    parts = []
    for start in range(0, n, rows):
        block = slice(start, start + rows)
        unit = reach[block, None]
        shortfall = endpoint - values[block]
        if bool(xp.any(shortfall[:, 0] < floor)):  # the first is the smallest
            shortfall = xp.clip(shortfall, floor, None)
        if divided:
            shortfall /= unit
        if ragged:
            shortfall = xp.where(xp.isnan(shortfall), xp.ones_like(unit) if divided else unit, shortfall)
        step = 1
        while step < factors and int(shortfall.shape[1]) % 2 == 0:
            half = int(shortfall.shape[1]) // 2
            upper = shortfall[:, half:]
            shortfall = shortfall[:, :half]
            shortfall *= upper
            step *= 2
        logs = xp.sum(xp.log(shortfall), axis=1)
        with np.errstate(invalid="ignore", divide="ignore"):
            parts.append(-logs if divided else k * xp.log(unit[:, 0]) - logs)
    total = parts[0] if len(parts) == 1 else xp.concat(parts)
    count = xp.astype(counts, values.dtype)
    # Less than rounding: all equal to the threshold.
    good = (count > 0) & (total > 16 * k * float(xp.finfo(values.dtype).eps))
    return xp.where(good, total, total * np.nan) / xp.where(good, count, xp.ones_like(count))


def weighted_moments(e: Excesses) -> Fitted:
    """Solve the probability-weighted moments (Hosking and Wallis 1987), made feasible where they are not.

    Where the fitted endpoint lies below the largest excess, xi moves to −sigma / largest (the hybrid of Dupuis and
    Tsao 1998), flagged as an edge.
    """
    xp = namespace(e.z)
    k = int(e.z.shape[1])
    # The i-th largest has i − 1 above it: weight (i − 1) / (count − 1).
    above = xp.asarray(np.arange(k, dtype=np.float64), dtype=xp.float64, device=e.z.device)
    safe = xp.where(e.count > 1, e.count - 1.0, e.count * np.nan)
    first = xp.sum(e.z * above[None, :], axis=1) / (safe * e.count)
    gap = e.mean - 2.0 * first
    with np.errstate(invalid="ignore", divide="ignore"):
        xi = 2.0 - e.mean / gap
        sigma = 2.0 * e.mean * first / gap
    edge = (xi < 0) & (sigma < -xi)
    xi = xp.where(edge, -sigma, xi)
    return Fitted(xi, sigma, xi * np.nan, edge)
