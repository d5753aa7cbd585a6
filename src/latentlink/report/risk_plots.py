"""Figures of the risk: the curve over the number of negatives, the parts of a bound, and a temperature sweep."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from latentlink import _checks
from latentlink.report.style import COLOURS, figure

if TYPE_CHECKING:
    from latentlink.risk.certificate import Certificate
    from latentlink.risk.complexity import CombinedBound
    from latentlink.risk.curve import RiskCurve


def plot_risk_curve(curve: RiskCurve) -> Any:
    """Draw the measured risk with 95 % bars, its prediction, and the k → ∞ limit.

    Parameters
    ----------
    curve : RiskCurve

    Returns
    -------
    matplotlib.figure.Figure
        Predicted points that are not trusted are hollow.
    """
    fig = figure(5.2, 3.4)
    axes = fig.subplots()
    axes.errorbar(
        curve.sizes,
        curve.measured,
        1.96 * curve.error,
        fmt="o",
        markersize=4,
        color=COLOURS[0],
        label="measured",
    )
    axes.plot(curve.sizes, curve.predicted, color=COLOURS[1], label="predicted")
    unsure = ~curve.trusted
    if unsure.any():
        axes.plot(
            curve.sizes[unsure],
            curve.predicted[unsure],
            "o",
            markersize=8,
            markerfacecolor="none",
            color=COLOURS[1],
            label="prediction not trusted",
        )
    axes.axhline(curve.limit, color=COLOURS[6], linestyle="--", linewidth=1, label="limit k → ∞")
    axes.set_xscale("log", base=2)
    axes.set(
        xlabel="negatives k",
        ylabel="risk less log k (nats)" if curve.variant != "corpus" else "risk less log(k + 1) (nats)",
        title=f"Risk over the number of negatives, positive {curve.variant}",
    )
    axes.legend(frameon=False)
    return fig


def plot_bound_parts(positions: Sequence[float], bounds: Sequence[CombinedBound], *, over: str = "n") -> Any:
    """Draw the three parts of combined bounds, stacked, beside the range of the loss.

    Parameters
    ----------
    positions : sequence of float
        Values of n or k.
    bounds : sequence of CombinedBound
    over : {"n", "k"}

    Returns
    -------
    matplotlib.figure.Figure
        Where the stack is above the line the bound says nothing.
    """
    _checks.one_of("over", over, ("n", "k"))
    if len(positions) != len(bounds) or not bounds:
        raise _checks.InvalidInput(
            f"positions has {len(positions)} values and bounds {len(bounds)}; needs as many, at least one."
        )
    fig = figure(5.2, 3.4)
    axes = fig.subplots()
    parts = np.array([[b.sample, b.complexity, b.finite_k] for b in bounds]).T  # (3, s)
    axes.stackplot(
        positions, parts, labels=["sample", "complexity", "finite k"], colors=COLOURS[:3], alpha=0.85
    )
    axes.plot(positions, [b.loss_range for b in bounds], "--", color=COLOURS[6], label="range of the loss")
    axes.set_xscale("log")
    axes.set(
        xlabel="independent tuples n" if over == "n" else "negatives k",
        ylabel="bound (nats)",
        title="Three parts of the combined bound",
    )
    axes.legend(frameon=False)
    return fig


def plot_temperatures(certificates: Sequence[Certificate]) -> Any:
    """Draw the cross-entropy with its interval over the temperature, and the gate that limits it.

    Parameters
    ----------
    certificates : sequence of Certificate
        Of the same data at several temperatures, softmax link.

    Returns
    -------
    matplotlib.figure.Figure
    """
    if not certificates:
        raise _checks.InvalidInput("certificates is empty; needs at least one.")
    ordered = sorted(certificates, key=lambda c: c.link.temperature)
    temperature = [c.link.temperature for c in ordered]
    fig = figure(5.2, 4.6)
    above, below = fig.subplots(2, 1, sharex=True)
    low, high = np.array([c.interval() for c in ordered]).T
    above.fill_between(temperature, low, high, color=COLOURS[0], alpha=0.25, linewidth=0)
    above.plot(temperature, [c.cross_entropy for c in ordered], "o-", markersize=4, color=COLOURS[0])
    above.set(ylabel="cross-entropy (nats)", title="Cross-entropy over the temperature")
    below.plot(
        temperature,
        [c.sandwich.high - c.sandwich.low for c in ordered],
        "o-",
        markersize=4,
        color=COLOURS[1],
        label="width of the sandwich",
    )
    below.axhline(0.1, color=COLOURS[6], linestyle="--", linewidth=1, label="gate")
    below.set_xscale("log")
    below.set_yscale("log")
    below.set(xlabel="temperature", ylabel="nats")
    below.legend(frameon=False)
    return fig


def plot_certificate(certificate: Certificate) -> Any:
    """Draw the surprise of each query's positive, sorted, and the search that each candidate draws.

    Parameters
    ----------
    certificate : Certificate

    Returns
    -------
    matplotlib.figure.Figure
    """
    fig = figure(7.0, 3.0)
    left, right = fig.subplots(1, 2)
    surprise = np.sort(certificate.rows.jackknife)
    left.plot(np.linspace(0, 1, surprise.size), surprise, color=COLOURS[0])
    left.axhline(certificate.cross_entropy, color=COLOURS[6], linestyle="--", linewidth=1)
    left.set(xlabel="share of queries", ylabel="surprise (nats)", title="Queries, best first")
    if certificate.mass.size:
        mass = np.sort(certificate.mass)[::-1]
        right.plot(np.linspace(0, 1, mass.size), mass, color=COLOURS[1])
        right.axhline(1.0, color=COLOURS[6], linestyle="--", linewidth=1)
        right.set_yscale("log")
    right.set(xlabel="share of candidates", ylabel="search drawn (1 = even)", title="Candidates, hubs first")
    return fig
