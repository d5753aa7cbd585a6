"""Maximum likelihood along the profile curve, and the profile of the shape alone.

The two-parameter problem is one-dimensional on the curve P(t) of `estimators`; no generic optimiser is used.
The likelihood is unbounded for xi < −1, so xi >= −1 is imposed; where no interior maximum beats the boundary,
the solution is the uniform law xi = −1, sigma = largest excess, flagged as an edge.
"""

from __future__ import annotations

import numpy as np

from latentlink._arrays import Array, namespace
from latentlink.tails.estimators import Excesses, Fitted, log_likelihood, mean_log, profile

# Illinois steps at most; about ten give xi to 1e-12.
_STEPS = 40
_SCALE_STEPS = 12
_BISECTIONS = 44


@np.errstate(all="ignore")  # points outside the support are NaN and lose every comparison
def maximum_likelihood(e: Excesses) -> Fitted:
    """Maximise P(t) over a geometric grid in 1 − t, then by Illinois steps on its derivative."""
    xp = namespace(e.z)
    # v = log(1 − t): t = 0 is v = 0, the end of the support v → −∞, heavy tails v > 0.
    points = np.concatenate([np.arange(-14.0, 0.0, 0.2), np.arange(0.0, 16.0, 0.4) + 1e-3])
    grid = xp.asarray(points, dtype=xp.float64, device=e.z.device)
    n, m = int(e.z.shape[0]), points.size
    value, xi = profile(xp.ones_like(e.z[:, :1]) * (1.0 - xp.exp(grid))[None, :], e)
    value = xp.where((xi >= -1.0) & ~xp.isnan(value), value, xp.ones_like(value) * -np.inf)
    best = xp.argmax(value, axis=1)  # (n,)
    low, high = grid[xp.clip(best - 1, 0, m - 1)], grid[xp.clip(best + 1, 0, m - 1)]
    v = _root(low, high, e)
    t = 1.0 - xp.exp(v)
    top, shape = profile(t[:, None], e)
    top, shape = top[:, 0], shape[:, 0]
    # In the units of z the uniform law on [0, 1] has log-likelihood 0.
    edge = ~((top > 0) & (shape > -1.0) & xp.isfinite(top))
    small = xp.abs(t) < 1e-9
    sigma = xp.where(small, e.mean, -shape / xp.where(small, xp.ones_like(t), t))
    shape = xp.where(edge, -xp.ones_like(shape), shape)
    sigma = xp.where(edge, xp.ones_like(sigma), sigma)
    known = xp.isfinite(e.largest) if n else edge
    return Fitted(shape, sigma, _observed_variance(shape, sigma, e), edge & known)


def scale_given_shape(xi: Array, e: Excesses) -> Array:
    """Maximise the likelihood over sigma for given shapes xi > −1, (n,): (n,).

    The score is mean z / (sigma + xi z) = 1 / (1 + xi). Its reciprocal is a concave increasing function of
    sigma, so Newton steps from the left of the root rise to it without a safeguard.
    """
    xp = namespace(xi)
    inside = xp.astype(e.z > 0, xp.float64)
    count = xp.where(e.count > 0, e.count, e.count * np.nan)
    floor = xp.clip(-xi, 0.0, None) + (1.0 + xi) / (4.0 * count)
    sigma = xp.where(floor > (1.0 + xi) / count - xi, floor, (1.0 + xi) / count - xi)
    for _ in range(_SCALE_STEPS):
        ratio = e.z / (sigma[:, None] + xi[:, None] * e.z + (1.0 - inside))
        first = xp.sum(ratio, axis=1) / count
        second = xp.sum(ratio * ratio / xp.where(e.z > 0, e.z, xp.ones_like(e.z)), axis=1) / count
        # h = 1 / first, h' = second / first²
        step = (1.0 + xi - 1.0 / first) * first * first / second
        sigma = xp.where(sigma + step > floor, sigma + step, floor)
    return sigma


@np.errstate(all="ignore")
def profile_interval(fitted: Fitted, e: Excesses, drop: float) -> tuple[Array, Array]:
    """Find where the profile log-likelihood of xi lies `drop` below its maximum, by bisection: two (n,).

    The lower end stops at −1.
    """
    xp = namespace(fitted.xi)
    top = log_likelihood(fitted.xi, fitted.sigma, e)

    def inside(xi: Array) -> Array:
        return log_likelihood(xi, scale_given_shape(xi, e), e) >= top - drop

    ends = []
    for far in (-1.0 + 1e-9, None):
        near = xp.clip(fitted.xi, -1.0 + 1e-9, None)
        outside = near * 0 + (far if far is not None else 0.0)
        if far is None:
            outside = near + 1.0
            for _ in range(8):  # double until outside
                outside = xp.where(inside(outside), near + 2.0 * (outside - near), outside)
        kept = inside(outside)
        for _ in range(_BISECTIONS):
            middle = 0.5 * (near + outside)
            holds = inside(middle)
            near, outside = xp.where(holds, middle, near), xp.where(holds, outside, middle)
        ends.append(xp.where(kept, xp.ones_like(near) * (-1.0 if far is not None else np.inf), near))
    return ends[0], ends[1]


def _slope(v: Array, e: Excesses) -> Array:
    """Compute dP/dv at v (n,), v = log(1 − t): (n,)."""
    xp = namespace(v)
    t = 1.0 - xp.exp(v)
    count = xp.where(e.count > 0, e.count, e.count * np.nan)
    small = xp.abs(t) < 1e-5
    safe = xp.where(small, xp.ones_like(t) * 0.5, t)
    xi = mean_log(safe[:, None], e)[:, 0]
    decline = xp.sum(e.z / (1.0 - safe[:, None] * e.z), axis=1) / count  # −dxi/dt
    regular = decline * (1.0 + 1.0 / xi) + 1.0 / safe
    second = xp.sum(e.z * e.z, axis=1) / count
    third = xp.sum(e.z * e.z * e.z, axis=1) / count
    series = e.mean + second * t - (second / 2 + 2 * third * t / 3) / (e.mean + second * t / 2)
    return -xp.exp(v) * xp.where(small, series, regular)


def _root(low: Array, high: Array, e: Excesses) -> Array:
    """Find the zero of `_slope` in each bracket, from + to −; a bracket without one ends at its better side."""
    xp = namespace(low)
    f_low, f_high = _slope(low, e), _slope(high, e)
    bracketed = (f_low > 0) & (f_high < 0)
    x = 0.5 * (low + high)
    for _ in range(_STEPS):
        x = (low * f_high - high * f_low) / xp.where(f_high == f_low, f_high * np.nan, f_high - f_low)
        x = xp.where(xp.isnan(x), 0.5 * (low + high), x)
        f = _slope(x, e)
        rises = f > 0
        # Illinois: the side that stays has its value halved, so that it moves in the next step.
        f_high = xp.where(rises, 0.5 * f_high, f)
        f_low = xp.where(rises, f, 0.5 * f_low)
        low, high = xp.where(rises, x, low), xp.where(rises, high, x)
        if bool(xp.all(~bracketed | (xp.abs(f) < 1e-14) | (high - low < 1e-14))):
            break
    return xp.where(bracketed, x, xp.where(f_low > 0, high, low))


def _observed_variance(xi: Array, sigma: Array, e: Excesses) -> Array:
    """Invert the observed information for the variance of xi, (n,); NaN where it is not positive definite."""
    xp = namespace(xi)
    scaled = e.z / sigma[:, None]
    base = 1.0 + xi[:, None] * scaled
    with np.errstate(invalid="ignore", divide="ignore"):
        first = xp.sum(scaled / base, axis=1)
        second = xp.sum((scaled / base) ** 2, axis=1)
        single = xp.sum(scaled / base**2, axis=1)
        logs = xp.sum(xp.log(base), axis=1)
        small = xp.abs(xi) < 1e-4
        safe = xp.where(small, xp.ones_like(xi), xi)
        regular = -2 * logs / safe**3 + 2 * first / safe**2 + (1 + 1 / safe) * second
        series = xp.sum(scaled**2, axis=1) - 2 * xp.sum(scaled**3, axis=1) / 3
        shape = -xp.where(small, series, regular)
        scale = -(e.count - (1 + xi) * first - (1 + xi) * single)
        cross = -(first - (1 + xi) * second)
        determinant = shape * scale - cross * cross
        variance = scale / determinant
        return xp.where((determinant > 0) & (scale > 0), variance, variance * np.nan)
