"""Exact tests: their critical values, their sizes, their power, and what a normal law would show."""

import json

import numpy as np
import pytest
from tests.tails.test_pareto import sample

from latentlink import InvalidInput
from latentlink.tails import Tail, endpoint_test, judge, take_tail
from latentlink.tails._nulls import exponential_null
from latentlink.tails.verdicts import false_discovery, greenwood


@pytest.mark.medium
def test_critical_values(oracles):
    numbers = json.loads((oracles / "evt.json").read_text(encoding="utf-8"))
    for k in (32, 64, 128, 256, 1024):
        low, high = np.quantile(exponential_null(k), [0.05, 0.95])
        assert abs(low - numbers["greenwood_lower_5_percent"][str(k)]) < 0.01
        assert abs(high - numbers["greenwood_upper_5_percent"][str(k)]) < 0.03  # the printed ones are simulated


def test_greenwood_by_hand(xp):
    y = xp(np.array([[3.0, 1.0, np.nan], [2.0, 2.0, 2.0], [0.0, 0.0, 0.0]]))
    np.testing.assert_allclose(greenwood(y, np.array([2, 3, 3])), [5 / 4, 1, np.nan])


@pytest.mark.parametrize(("xi", "call"), [(-0.39, "bounded"), (0.4, "heavy")])
def test_calls(xi, call):
    verdict = judge(Tail.of(sample(xi, 400, 64).values, np.zeros(400), endpoint=None, n_candidates=4096))
    assert verdict.call == call
    assert verdict.bounded + verdict.heavy + verdict.undecided == verdict.n_queries == 400
    assert sum(verdict.shares) == pytest.approx(1)


def test_power_at_the_papers_shape():
    verdict = judge(sample(-0.39, 4000, 64))
    assert 0.82 < verdict.shares.bounded < 0.92


def test_normal_similarities_are_not_called_bounded():
    s = np.random.default_rng(0).normal(0.1, 0.12, (600, 4096)).clip(-1, 1)
    verdict = judge(take_tail(similarities=s, tail_size=64))
    assert verdict.call == "undecided"
    assert 0.13 < verdict.normal.bounded < 0.21  # 0.17 in the first trial
    assert abs(verdict.shares.bounded - verdict.normal.bounded) < 0.05
    assert abs((verdict.p_beyond_normal < 0.05).mean() - 0.05) < 0.03


def test_untested_rows():
    rows = np.array([[0.3, 0.2, 0.1], [0.1, 0.1, 0.1], [0.2, np.nan, np.nan], [np.nan] * 3])
    verdict = judge(Tail.of(rows, [0.0, 0.1, 0.0, 0.0]))
    assert (verdict.n_queries, verdict.untested) == (1, 3)
    assert np.isnan(verdict.p_bounded[1:]).all()


def test_same_data_same_p():
    tail = sample(-0.2, 30, 64)
    np.testing.assert_array_equal(judge(tail).p_bounded, judge(tail).p_bounded)
    moved = Tail.of(tail.values * 7 + 3, tail.threshold + 3, endpoint=None)
    np.testing.assert_allclose(judge(moved).p_heavy, judge(tail).p_heavy, atol=1e-4)


def test_false_discovery_keeps_nulls_out():
    p = np.random.default_rng(0).uniform(size=2000)
    assert false_discovery(p, 0.1) <= 5
    assert false_discovery(np.concatenate([p, np.full(200, 1e-5)]), 0.1) >= 195


def test_endpoint_test_sees_a_lower_end():
    ends_at_1 = 1 - np.random.default_rng(0).uniform(size=(600, 300)) ** 0.4
    assert endpoint_test(take_tail(similarities=ends_at_1, duplicate_gap=0)).rejected < 50
    lower = take_tail(similarities=0.6 * ends_at_1)
    assert endpoint_test(lower).rejected > 200
    with pytest.raises(InvalidInput) as caught:
        endpoint_test(sample(0.2, 2, 16))
    assert str(caught.value) == "tail has no endpoint; give take_tail the one to test."


@pytest.mark.stats
@pytest.mark.parametrize("k", [8, 64, 256])
def test_sizes_are_exact(k):
    tail = sample(0.0, 8000, k, seed=k)
    verdict = judge(tail)
    for p in (verdict.p_bounded, verdict.p_heavy):
        assert abs((p <= 0.05).mean() - 0.05) < 0.01
    for xi in (-0.8, -0.39, -0.1):
        test = endpoint_test(sample(xi, 8000, k, seed=k + 1))
        assert abs((test.p_below <= 0.05).mean() - 0.05) < 0.01
        assert abs((test.p_above <= 0.05).mean() - 0.05) < 0.01


@pytest.mark.stats
@pytest.mark.parametrize("k", [2, 16, 64, 256])
@pytest.mark.parametrize("xi", [-0.8, -0.39, -0.1])
def test_chi2_coverage_is_exact(xi, k):
    from latentlink.tails import fit_tail

    low, high = fit_tail(sample(xi, 8000, k, seed=7)).interval(0.95)
    assert abs(((low <= xi) & (xi <= high)).mean() - 0.95) < 0.01


@pytest.mark.stats
@pytest.mark.parametrize("xi", [-0.8, -0.39, 0.0, 0.2])
def test_total_variance_coverage(xi):
    from latentlink.tails import fit_tail

    low, high = fit_tail(sample(xi, 4000, 64, seed=9), "zhang_stephens").interval(0.95)
    assert 0.93 < ((low <= xi) & (xi <= high)).mean() < 0.975


@pytest.mark.stats
def test_order_statistic_threshold_keeps_the_test_exact():
    s = 0.9 - 0.05 * np.random.default_rng(3).exponential(size=(6000, 500))
    verdict = judge(take_tail(similarities=-s + 0.9, tail_size=64, endpoint=None))
    assert abs((verdict.p_bounded <= 0.05).mean() - 0.05) < 0.01
