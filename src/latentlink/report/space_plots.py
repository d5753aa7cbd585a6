"""Figures of shared spaces."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from latentlink.report.style import figure as make_figure

if TYPE_CHECKING:
    from latentlink.spaces import MapComparison


def plot_comparison(comparison: MapComparison) -> Any:
    """Draw each method's recall at 1 over ordered pairs of encoders: every pair a dot, the mean a bar.

    Returns
    -------
    matplotlib.figure.Figure
    """
    methods = sorted(comparison.methods, key=comparison.mean)
    figure = make_figure(7.0, 0.45 * len(methods) + 1.2)
    axes = figure.subplots()
    for height, method in enumerate(methods):
        values = [score.recall_at_1 for score in comparison.scores if score.method == method]
        axes.plot(values, np.full(len(values), height), "o", alpha=0.35, color="C0", markersize=4)
        axes.plot(comparison.mean(method), height, "|", color="black", markersize=16, markeredgewidth=2)
    axes.set_yticks(range(len(methods)), methods)
    axes.set_xlim(-0.02, 1.02)
    axes.set_xlabel("R@1 on held-out items (a dot is a pair of encoders, the bar their mean)")
    return figure


def plot_learning_curve(curve: Sequence[MapComparison]) -> Any:
    """Draw each method's mean recall at 1 over the number of fitted pairs.

    Returns
    -------
    matplotlib.figure.Figure
    """
    figure = make_figure(7.0, 4.0)
    axes = figure.subplots()
    for method in curve[0].methods:
        axes.plot([c.n_fit for c in curve], [c.mean(method) for c in curve], "o-", label=method)
    axes.set_xscale("log")
    axes.set_xlabel("fitted pairs")
    axes.set_ylabel("mean R@1 on held-out items")
    axes.legend(frameon=False)
    return figure
