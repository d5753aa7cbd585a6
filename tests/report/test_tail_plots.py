"""Figures of tails draw what they say, in print colours, without global state."""

import sys

import numpy as np
import pytest

pytest.importorskip("matplotlib")

from latentlink import InvalidInput
from latentlink.report import tail_plots
from latentlink.tails import Tail, fit_tail, judge, take_tail, weigh


@pytest.fixture(scope="module")
def points():
    return np.random.default_rng(0).normal(size=(300, 6))


@pytest.fixture(scope="module")
def tails(points):
    return take_tail(points, tail_size=40), take_tail(points, fraction=0.02, pooled=True)


@pytest.mark.parametrize("plot", ["plot_density", "plot_quantiles", "plot_stability", "plot_residual_life"])
def test_figures_of_both_kinds_of_tail(plot, tails, tmp_path):
    for tail in tails:
        figure = getattr(tail_plots, plot)(tail)
        figure.savefig(tmp_path / "a.svg")
        assert (tmp_path / "a.svg").stat().st_size > 5000
        assert all(axes.get_xlabel() and axes.get_ylabel() for axes in figure.axes)
    pyplot = sys.modules.get("matplotlib.pyplot")  # another test's library may have loaded it
    assert pyplot is None or not pyplot.get_fignums()


@pytest.mark.medium
def test_map_and_evidence(points, tails, tmp_path):
    tail = tails[0]
    fit = fit_tail(tail)
    tail_plots.plot_map(points, fit.xi).savefig(tmp_path / "map.png")
    figure = tail_plots.plot_evidence(weigh(tail), judge(tail))
    figure.savefig(tmp_path / "evidence.png")
    assert [text.get_text() for text in figure.axes[1].get_legend().get_texts()] == [
        "queries",
        "exponential",
        "matched normal",
    ]


def test_stability_shows_the_shapes_that_were_fitted(tails):
    axes = tail_plots.plot_stability(tails[0], sizes=[10, 30]).axes[0]
    drawn = axes.get_lines()[0].get_ydata()
    expected = [np.median(fit_tail(tails[0].top(k)).xi) for k in (10, 30)]
    np.testing.assert_allclose(drawn, expected)


def test_refusals(points):
    with pytest.raises(InvalidInput) as caught:
        tail_plots.plot_stability(take_tail(points, tail_size=8))
    assert str(caught.value) == "tail has 8 exceedances a row; needs at least 12 for a stability plot."
    with pytest.raises(InvalidInput) as caught:
        tail_plots.plot_density(Tail.of([[0.9, 0.8]], [0.5]))
    assert str(caught.value) == "tail has 2 exceedances in all; needs at least 20 that differ."
