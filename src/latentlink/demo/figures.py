"""The two figures of the demo's report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from latentlink.spaces import MapComparison


def tails(fits: Mapping[str, Any]) -> Any:
    """Draw the distribution of xi over queries, one line an encoder."""
    from latentlink.report.style import COLOURS, figure

    drawing = figure(7.2, 3.2)
    axes = drawing.subplots()
    for (name, fit), colour in zip(fits.items(), COLOURS, strict=False):
        xi = np.sort(np.asarray(fit.xi)[np.isfinite(fit.xi)])
        axes.plot(xi, np.arange(1, xi.size + 1) / xi.size, color=colour, label=name)
    axes.axvline(0, color="0.4", linewidth=0.8, linestyle=":")
    axes.set(xlabel="xi of a query, end free (below 0: the tail ends)", ylabel="share of queries at or below")
    axes.legend(frameon=False)
    return drawing


def recalls(result: MapComparison, strong: Sequence[str]) -> Any:
    """Draw R@1 of every ordered pair by method, the strong encoders' pairs filled."""
    from latentlink.report.style import COLOURS, figure

    drawing = figure(7.2, 3.4)
    axes = drawing.subplots()
    order = sorted(result.methods, key=result.mean)
    for place, method in enumerate(order):
        for score in (score for score in result.scores if score.method == method):
            both = {score.source, score.target} <= set(strong)
            axes.plot(
                score.recall_at_1,
                place,
                "o",
                markersize=6,
                color=COLOURS[0],
                markerfacecolor=COLOURS[0] if both else "none",
            )
        axes.plot(result.mean(method), place, "|", markersize=18, color=COLOURS[1])
    axes.set_yticks(range(len(order)), order)
    axes.set(
        xlabel="R@1 on held-out sentences (filled: minilm, use, e5; bar: mean of all pairs)", xlim=(-0.02, 1.02)
    )
    return drawing
