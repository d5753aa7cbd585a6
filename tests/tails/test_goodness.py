"""Goodness of fit with fitted parameters, ForwardStop in the right order, and threshold choice."""

import json

import numpy as np
import pytest
from tests.tails.test_pareto import sample

from latentlink import InvalidInput
from latentlink.tails import Tail, choose_threshold, fit_tail, forward_stop, goodness
from latentlink.tails.goodness import _null


def test_forward_stop_oracle(oracles):
    numbers = json.loads((oracles / "evt.json").read_text(encoding="utf-8"))["forward_stop"]
    np.testing.assert_allclose(forward_stop(numbers["p"]), numbers["values"], atol=1e-6)


@pytest.mark.parametrize(
    "estimator", ["endpoint", "zhang_stephens", pytest.param("ml", marks=pytest.mark.medium)]
)
def test_right_law_passes_and_wrong_one_fails(estimator):
    right = goodness(fit_tail(sample(-0.3, 200, 64, seed=1), estimator))
    assert 0.01 < (right.p_anderson_darling < 0.05).mean() < 0.11
    y = np.random.default_rng(0).uniform(size=(50, 64)) ** 3
    wrong = goodness(fit_tail(Tail.of(y, np.zeros(50), endpoint=1.0), estimator))
    assert (wrong.p_cramer_von_mises < 0.05).mean() > 0.9


def test_statistics_by_hand():
    fit = fit_tail(sample(-0.3, 1, 20))
    y = np.sort(fit.tail.values[0])
    f = 1 - (1 + fit.xi[0] * y / fit.sigma[0]) ** (-1 / fit.xi[0])
    i = np.arange(1, 21)
    result = goodness(fit)
    np.testing.assert_allclose(
        result.anderson_darling[0], -20 - ((2 * i - 1) / 20 * (np.log(f) + np.log(1 - f[::-1]))).sum()
    )
    np.testing.assert_allclose(result.cramer_von_mises[0], 1 / 240 + ((f - (2 * i - 1) / 40) ** 2).sum())


@pytest.mark.stats
def test_upper_points_oracle(oracles):
    numbers = json.loads((oracles / "evt.json").read_text(encoding="utf-8"))["anderson_darling_5_percent_n64"]
    for xi in (-0.8, -0.4):
        tables = [_null(64, round(xi + side, 2), "zhang_stephens", 0)[0] for side in (-0.05, 0.05)]
        point = np.mean([np.quantile(table, 0.95) for table in tables])
        assert abs(point - numbers["zhang_stephens"][f"{xi:g}"]) < 0.08


@pytest.mark.stats
@pytest.mark.parametrize("xi", [-0.8, -0.3, 0.1])
def test_sizes_with_fitted_parameters(xi):
    result = goodness(fit_tail(sample(xi, 4000, 64, seed=5), "zhang_stephens"))
    assert abs((result.p_anderson_darling <= 0.05).mean() - 0.05) < 0.015
    assert abs((result.p_cramer_von_mises <= 0.05).mean() - 0.05) < 0.015


@pytest.mark.medium
def test_threshold_choice_stops_where_the_law_breaks():
    rng = np.random.default_rng(0)
    top = 0.5 + np.expm1(0.3 * np.log(rng.random(400))) / -0.3 * 0.05
    below = 0.5 - rng.exponential(size=3000) * 0.002  # ten times as dense: no law spans both
    tail = Tail.of(np.concatenate([top, below])[None], [below.min()], endpoint=1.0)
    choice = choose_threshold(tail, sizes=[3000, 2000, 1000, 700, 380, 200, 100])
    assert choice.size in (380, 200)
    assert not choice.all_rejected
    np.testing.assert_allclose(choice.forward_stop, forward_stop(choice.p))


def test_threshold_choice_refuses():
    with pytest.raises(InvalidInput) as caught:
        choose_threshold(sample(-0.3, 2, 40), sizes=[60])
    assert str(caught.value) == (
        "sizes go from 60 to 60 but the tail has 40 exceedances; needs sizes from 8 to 39. Take a deeper tail."
    )
