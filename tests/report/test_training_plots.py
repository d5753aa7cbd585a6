"""Figures of training: what is drawn is what was logged."""

import pytest

pytest.importorskip("matplotlib")

from latentlink.report.training_plots import draw_deciles, draw_differences, draw_training

HISTORY = {
    "loss": {0: 5.0, 10: 4.0},
    "gap": {0: 0.1, 10: 0.2},
    "blend": {0: 0.5, 10: 0.1},
    "alignment": {0: 1.0, 10: 0.5},
    "uniformity": {0: -1.0, 10: -2.0},
    **{f"gradient_decile_{i}": {0: 0.1, 10: i / 55} for i in range(1, 11)},
}


def test_a_run(tmp_path):
    figure = draw_training(HISTORY)
    assert list(figure.axes[0].lines[0].get_ydata()) == [5.0, 4.0]
    bars = figure.axes[3].patches
    assert [bar.get_height() for bar in bars] == pytest.approx([i / 55 for i in range(1, 11)])
    figure.savefig(tmp_path / "run.png")


def test_methods_side_by_side():
    figure = draw_deciles({"infonce": HISTORY, "weince": HISTORY})
    assert len(figure.axes[0].patches) == 20


def test_differences():
    axes = draw_differences([("a", 0.1, 0.0, 0.3), ("b", -0.1, -0.2, 0.0)], margin=0.05, unit="points").axes[0]
    assert [label.get_text() for label in axes.get_yticklabels()] == ["a", "b"]
    assert axes.get_xlabel() == "points"
