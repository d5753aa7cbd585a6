"""Figures of tails: density, quantiles, stability over thresholds, mean residual life, the map of xi, evidence."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from latentlink import _checks
from latentlink._arrays import to_numpy
from latentlink.report.style import COLOURS, figure

if TYPE_CHECKING:
    from latentlink.tails import Evidence, Tail, Verdict

FloatArray = np.ndarray[Any, np.dtype[np.float64]]

_PARETO, _EXPONENTIAL, _DATA = COLOURS[0], COLOURS[1], COLOURS[6]
# Points drawn of a pooled tail; more make a heavy file and no better picture.
_MOST_POINTS = 400


def plot_density(tail: Tail) -> Any:
    """Draw the density of exceedances with the fitted generalised Pareto and exponential laws, plain and log-log.

    Parameters
    ----------
    tail : Tail
        A pooled one, or one of queries, whose excesses are then divided by each query's reach (or mean) first.

    Returns
    -------
    matplotlib.figure.Figure
    """
    y, unit, xi, sigma = _pooled_law(tail)
    fig = figure(7.2, 3.1)
    plain, logarithmic = fig.subplots(1, 2)
    # The first thousandth of the range is left to the linear panel: on a log axis it would fill half the picture.
    edges = np.geomspace(y.max() / 1000, y.max(), 25)
    counts, _ = np.histogram(y, edges)
    heights = counts / (y.size * np.diff(edges))
    centres = np.sqrt(edges[1:] * edges[:-1])
    x = np.geomspace(edges[0], y.max() * 0.9999, 300)
    plain.hist(y, bins=40, density=True, color="0.85", label="exceedances")
    logarithmic.plot(
        centres[counts > 0], heights[counts > 0], "o", markersize=3, color=_DATA, label="exceedances"
    )
    for axes in (plain, logarithmic):
        axes.plot(x, _density(x, xi, sigma), color=_PARETO, label=f"generalised Pareto, xi = {xi:.2f}")
        axes.plot(x, _density(x, 0.0, float(y.mean())), "--", color=_EXPONENTIAL, label="exponential")
        axes.set(xlabel=f"excess {unit}", ylabel="density")
    logarithmic.set(xscale="log", yscale="log", title="log-log")
    plain.set_title("Density of exceedances")
    plain.legend()
    return fig


def plot_quantiles(tail: Tail) -> Any:
    """Draw exceedances against the quantiles of both fitted laws; on the diagonal the law fits.

    Parameters
    ----------
    tail : Tail
        As in `plot_density`.
    """
    y, unit, xi, sigma = _pooled_law(tail)
    p = (np.arange(1, 200) - 0.5) / 199
    observed = np.quantile(y, p)
    fig = figure(3.8, 3.4)
    axes = fig.subplots()
    pareto = sigma * np.expm1(-xi * np.log1p(-p)) / xi if abs(xi) > 1e-9 else -sigma * np.log1p(-p)
    axes.plot([0, y.max()], [0, y.max()], color="0.6", linewidth=1)
    axes.plot(pareto, observed, "o", markersize=3, color=_PARETO, label=f"generalised Pareto, xi = {xi:.2f}")
    axes.plot(-y.mean() * np.log1p(-p), observed, "^", markersize=3, color=_EXPONENTIAL, label="exponential")
    axes.set(xlabel=f"fitted quantile {unit}", ylabel=f"observed {unit}", title="Quantiles of both fits")
    axes.legend()
    return fig


def plot_stability(tail: Tail, *, sizes: Any = None, level: float = 0.95) -> Any:
    """Draw xi for shallower and shallower tails: where the law holds the line is flat.

    Parameters
    ----------
    tail : Tail
        The deepest; of one pooled row the line has its interval, of queries the median has the quartiles.
    sizes : ints, optional
        Twelve on a geometric grid from 10 by default.
    level : float

    Returns
    -------
    matplotlib.figure.Figure
        For the endpoint held (where there is one) and free.
    """
    from latentlink.tails import fit_tail

    deepest = int(tail.counts[tail.counts > 0].min(initial=tail.tail_size))
    if deepest < 12:
        raise _checks.InvalidInput(
            f"tail has {deepest} exceedances a row; needs at least 12 for a stability plot."
        )
    grid = np.geomspace(10, deepest - 1, 12) if sizes is None else np.asarray(sizes)
    grid = np.unique(np.round(grid).astype(int))
    fig = figure(5.4, 3.2)
    axes = fig.subplots()
    estimators = ["zhang_stephens"] if tail.endpoint is None else ["endpoint", "zhang_stephens"]
    names = {"endpoint": f"ends at {tail.endpoint}", "zhang_stephens": "endpoint free"}
    for estimator, colour, mark in zip(estimators, COLOURS, "os", strict=False):
        lines = []
        for k in grid:
            fit = fit_tail(tail.top(int(k)), estimator)
            xi = np.asarray(to_numpy(fit.xi), dtype=np.float64)
            if tail.n_queries == 1:
                low, high = (float(to_numpy(end)[0]) for end in fit.interval(level))
                lines.append((low, float(xi[0]), high))
            else:
                lines.append(tuple(np.nanquantile(xi, [0.25, 0.5, 0.75])))
        low, middle, high = np.asarray(lines).T
        axes.fill_between(grid, low, high, color=colour, alpha=0.18, linewidth=0)
        axes.plot(grid, middle, mark + "-", markersize=3.5, color=colour, label=names[estimator])
    axes.axhline(0, color="0.4", linewidth=0.8)
    band = f"band: {level:.0%} interval" if tail.n_queries == 1 else "line: median, band: quartiles of queries"
    axes.set(
        xscale="log", xlabel="exceedances", ylabel="xi", title=f"Shape over the depth of the tail ({band})"
    )
    axes.legend()
    return fig


def plot_residual_life(tail: Tail) -> Any:
    """Draw the mean excess over rising thresholds: falling where the tail is bounded, flat where exponential.

    Parameters
    ----------
    tail : Tail
        As in `plot_density`. The band is twice the standard error of independent exceedances.
    """
    y, unit, _, _ = _pooled_law(tail)
    y = np.sort(y)[::-1]
    n = np.unique(np.round(np.geomspace(10, y.size - 1, min(_MOST_POINTS, y.size - 10))).astype(int))
    sums, squares = np.cumsum(y), np.cumsum(y * y)
    mean = sums[n - 1] / n - y[n]
    deviation = np.sqrt(np.maximum(squares[n - 1] / n - (sums[n - 1] / n) ** 2, 0) / n)
    fig = figure(4.6, 3.2)
    axes = fig.subplots()
    axes.fill_between(y[n], mean - 2 * deviation, mean + 2 * deviation, color=_PARETO, alpha=0.18, linewidth=0)
    axes.plot(y[n], mean, color=_PARETO)
    axes.set(
        xlabel=f"threshold above the tail's {unit}", ylabel=f"mean excess {unit}", title="Mean residual life"
    )
    axes.set_ylim(bottom=0)
    return fig


def plot_map(positions: Any, xi: Any) -> Any:
    """Draw xi of each query at its place in the plane of the first two principal components.

    Parameters
    ----------
    positions : array (n, d)
        Embeddings of the queries, in the order of `xi`.
    xi : array (n,)
    """
    x = _checks.numpy_matrix("positions", positions, dtype=np.float64)
    values = _checks.numpy_vector("xi", xi, length=x.shape[0], finite=False, dtype=np.float64)
    centred = x - x.mean(axis=0)
    plane = centred @ np.linalg.svd(centred, full_matrices=False)[2][:2].T  # (n, 2)
    if plane.shape[1] < 2:
        raise _checks.InvalidInput("positions has 1 column; needs at least 2 for a map.")
    known = np.isfinite(values)
    largest = float(np.quantile(np.abs(values[known]), 0.98)) if known.any() else 1.0
    fig = figure(4.8, 3.8)
    axes = fig.subplots()
    # Blue to orange through white: told apart by every reader, and in print by the sign's side of white.
    dots = axes.scatter(
        *plane[known].T,
        c=values[known],
        s=6,
        cmap="PuOr_r",
        vmin=-largest,
        vmax=largest,
        linewidths=0.2,
        edgecolors="0.5",
    )
    fig.colorbar(dots, ax=axes, label="xi (below 0: bounded)")
    axes.set(xlabel="first component", ylabel="second component", title="Shape of each query's tail")
    axes.grid(False)
    return fig


def plot_evidence(evidence: Evidence, verdict: Verdict) -> Any:
    """Draw the evidence for a bounded tail over queries, and Greenwood's ratio beside its two references.

    Parameters
    ----------
    evidence : Evidence
    verdict : Verdict
        Of the same tail. Its statistic is drawn beside the laws it has for exponential and for normal similarities.
    """
    from latentlink.tails._nulls import exponential_null, normal_null

    fig = figure(7.2, 3.1)
    left, right = fig.subplots(1, 2)
    gain = (
        evidence.bounded if np.isfinite(evidence.bounded).any() else 2 * (evidence.free - evidence.exponential)
    )
    known = gain[np.isfinite(gain)]
    left.hist(known, bins=40, color=COLOURS[5], edgecolor="white", linewidth=0.3)
    left.axvline(0, color=_DATA, linewidth=0.9)
    left.axvline(2, color=_DATA, linewidth=0.9, linestyle=":")
    left.set(
        xlabel="AIC of exponential less bounded",
        ylabel="queries",
        title=f"Bounded is likelier for {(known > 0).mean():.0%}",
    )
    tested = np.isfinite(verdict.statistic)
    k = int(np.median(evidence.counts[tested])) if tested.any() else 2
    edges = np.quantile(exponential_null(k), [0.0005, 0.9995])
    bins = np.linspace(min(edges[0], 1.0), edges[1], 45)
    right.hist(
        np.clip(verdict.statistic[tested], bins[0], bins[-1]),
        bins=bins,
        density=True,
        color="0.85",
        label="queries",
    )
    for null, colour, line, name in (
        (exponential_null(k), _EXPONENTIAL, "--", "exponential"),
        (normal_null(k, max(verdict.n_candidates, k + 1)), _PARETO, "-", "matched normal"),
    ):
        height, _ = np.histogram(null, bins, density=True)
        right.plot((bins[1:] + bins[:-1]) / 2, height, line, color=colour, label=name)
    right.set(xlabel="Greenwood's ratio (small: bounded)", ylabel="density", title="Against two references")
    right.legend()
    return fig


def _pooled_law(tail: Tail) -> tuple[FloatArray, str, float, float]:
    """Return excesses (m,), their unit in words, and the shape and scale of a law fitted to them."""
    from latentlink.tails import Tail as Made
    from latentlink.tails import fit_tail

    y = np.asarray(to_numpy(tail.excesses), dtype=np.float64)
    unit = "in similarity"
    if tail.n_queries > 1:
        if tail.endpoint is not None:
            y = y / (tail.endpoint - np.asarray(to_numpy(tail.threshold), dtype=np.float64))[:, None]
            unit = "/ reach"
        else:
            y = y / np.nanmean(np.where(tail.counts[:, None] > 0, y, 0.0), axis=1)[:, None]
            unit = "/ mean"
    values = y[np.isfinite(y)]
    if values.size < 20 or values.max() <= 0:
        raise _checks.InvalidInput(f"tail has {values.size} exceedances in all; needs at least 20 that differ.")
    fit = fit_tail(Made.of(values[None], [0.0], endpoint=None), "zhang_stephens")
    return values, unit, float(fit.xi[0]), float(fit.sigma[0])


def _density(x: FloatArray, xi: float, sigma: float) -> FloatArray:
    if abs(xi) < 1e-9:
        return np.asarray(np.exp(-x / sigma) / sigma)
    base = np.maximum(1 + xi * x / sigma, 0.0)
    with np.errstate(divide="ignore"):
        return np.asarray(np.where(base > 0, base ** (-1 / xi - 1), np.nan) / sigma)
