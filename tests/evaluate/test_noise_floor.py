"""The synthetic noise floor: the numbers of the theory come out of the simulation."""

import importlib.util
import sys
from pathlib import Path

import pytest


@pytest.fixture(scope="module")
def script():
    path = Path(__file__).resolve().parents[2] / "benchmarks" / "noise_floor.py"
    spec = importlib.util.spec_from_file_location("noise_floor", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules["noise_floor"] = module  # dataclasses look their module up
    yield spec.loader.exec_module(module) or module
    del sys.modules["noise_floor"]


@pytest.fixture(scope="module")
def result(script):
    return script.noise_floor()


def test_the_right_link_learns_for_ever(result):
    assert result.slope == pytest.approx(-1, abs=0.05)
    for n, error in zip(result.sizes, result.shortfall, strict=True):
        assert n * error == pytest.approx(result.constant_in_theory, rel=0.06)
    assert result.constant_in_theory == pytest.approx(7.136026, abs=1e-6)


def test_the_softmax_stops_at_its_floor(result):
    assert result.floor_in_theory == pytest.approx(0.0451514, abs=1e-7)
    assert result.floor == pytest.approx(result.floor_in_theory, rel=0.05)
    assert result.softmax[-1] / result.shortfall[-1] > 50


def test_the_plot_is_written(script, result, tmp_path):
    pytest.importorskip("matplotlib")
    script.draw(result, tmp_path / "floor.png")
    assert (tmp_path / "floor.png").stat().st_size > 5000
