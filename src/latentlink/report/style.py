"""One look for all figures: readable in print, safe for colour-blind readers, no global state."""

from __future__ import annotations

from typing import Any

from latentlink._checks import need

# Okabe and Ito 2008, "Color Universal Design", in an order that also differs in lightness.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#F0E442")

_RC = {
    "axes.axisbelow": True,
    "axes.grid": True,
    "axes.labelsize": 9,
    "axes.prop_cycle": f"cycler('color', {list(COLOURS)!r})",
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlelocation": "left",
    "axes.titlesize": 10,
    "figure.dpi": 110,
    "font.size": 9,
    "grid.color": "0.9",
    "legend.fontsize": 8,
    "lines.linewidth": 1.6,
    "svg.fonttype": "none",
    "svg.hashsalt": "latentlink",
    "xtick.labelsize": 8,
    "ytick.labelsize": 8,
}


def figure(width: float, height: float) -> Any:
    """Make an empty figure of the house's look.

    Parameters
    ----------
    width, height : float
        In inches.

    Returns
    -------
    matplotlib.figure.Figure
        With `subplots()` for its axes; made without pyplot, so that nothing global changes.

    Raises
    ------
    MissingExtra
        matplotlib is not installed (extra ``report``).

    Examples
    --------
    >>> axes = figure(4, 3).subplots()
    >>> bool(axes.spines["top"].get_visible())
    False
    """
    matplotlib = need("matplotlib", extra="report", job="a figure")
    from matplotlib.figure import Figure

    class House(Figure):
        """A figure whose axes are made and saved under the house's settings."""

        def subplots(self, *args: Any, **kwargs: Any) -> Any:
            with matplotlib.rc_context(_RC):
                return super().subplots(*args, **kwargs)

        def savefig(self, *args: Any, **kwargs: Any) -> None:
            with matplotlib.rc_context(_RC):
                super().savefig(*args, **kwargs)

    with matplotlib.rc_context(_RC):
        return House(figsize=(width, height), layout="constrained")
