"""Figures of training runs and of comparisons between methods."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from latentlink.report.style import figure as figure_of

_DECILES = range(1, 11)


def draw_training(history: Mapping[str, Mapping[int, float]]) -> Any:
    """Draw what a run logged: its loss, the gate, the geometry, and where the gradient of the negatives goes.

    Parameters
    ----------
    history : mapping of str to mapping of int to float
        From `latentlink.train.history`.

    Returns
    -------
    matplotlib.figure.Figure
    """
    figure = figure_of(9, 6)
    panels = figure.subplots(2, 2)
    for axes, title, names in [
        (panels[0, 0], "loss", ["loss"]),
        (panels[0, 1], "gate (means over queries)", ["gap", "blend", "share_blended"]),
        (panels[1, 0], "geometry", ["alignment", "uniformity"]),
    ]:
        for name in names:
            if name in history:
                axes.plot(list(history[name]), list(history[name].values()), label=name)
        axes.set(title=title, xlabel="step")
        if axes.lines:
            axes.legend()
    _decile_bars(panels[1, 1], {"last look": history})
    return figure


def draw_deciles(histories: Mapping[str, Mapping[str, Mapping[int, float]]]) -> Any:
    """Draw which negatives the gradient reaches, for several methods: shares by decile of similarity.

    Parameters
    ----------
    histories : mapping of str to history
        Of each method; the second half of each run is averaged.

    Returns
    -------
    matplotlib.figure.Figure
    """
    figure = figure_of(7, 4)
    _decile_bars(figure.subplots(), histories)
    return figure


def draw_differences(rows: Sequence[tuple[str, float, float, float]], *, margin: float, unit: str) -> Any:
    """Draw differences with their intervals, one line each, and the margin of equivalence.

    Parameters
    ----------
    rows : sequence of (name, effect, low, high)
    margin : float
    unit : str
        Of the effects.

    Returns
    -------
    matplotlib.figure.Figure
    """
    figure = figure_of(7, 1 + 0.35 * len(rows))
    axes = figure.subplots()
    places = np.arange(len(rows))[::-1]
    effects = np.array([row[1:] for row in rows], dtype=float).reshape(-1, 3)  # (r, 3): effect, low, high
    axes.axvspan(-margin, margin, color="0.92", label="margin")
    axes.axvline(0, color="0.5", linewidth=1)
    axes.errorbar(
        effects[:, 0], places, xerr=np.abs(effects[:, 1:] - effects[:, :1]).T, fmt="o", capsize=3, color="C0"
    )
    axes.set_yticks(places, [row[0] for row in rows])
    axes.set_xlabel(unit)
    return figure


def _decile_bars(axes: Any, histories: Mapping[str, Mapping[str, Mapping[int, float]]]) -> None:
    width = 0.8 / max(1, len(histories))
    for place, (name, history) in enumerate(histories.items()):
        if "gradient_decile_1" not in history:
            continue
        shares = []
        for decile in _DECILES:
            values = list(history[f"gradient_decile_{decile}"].values())
            shares.append(float(np.mean(values[len(values) // 2 :])))
        axes.bar(np.array(_DECILES) + (place - (len(histories) - 1) / 2) * width, shares, width, label=name)
    axes.axhline(0.1, color="0.5", linewidth=1)
    axes.set(
        title="share of the gradient of the negatives", xlabel="decile of similarity", xticks=list(_DECILES)
    )
    if len(histories) > 1:
        axes.legend()
