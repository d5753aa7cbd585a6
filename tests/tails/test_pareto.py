"""Fits against the oracles of evt.json, against plain loops and SciPy, and under every hard input."""

import csv
import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests import slow

from latentlink.tails import Tail, fit_tail, take_tail
from latentlink.tails.pareto import ESTIMATORS

ORACLES = ["rain_30", "rain_20", "wooster_minus", "danish_10", "danish_20", "wave_8", "surge_04"]


def column(folder, oracle):
    with open(folder / "evt" / oracle["file"], encoding="utf-8") as stream:
        rows = list(csv.reader(stream))
    place = rows[0].index(oracle["column"])
    return np.array([float(row[place]) for row in rows[1:]]) * (-1 if oracle.get("negate") else 1)


def exceedances(folder, oracle):
    x = column(folder, oracle)
    return Tail.of(x[x > oracle["threshold"]][None], [oracle["threshold"]], endpoint=None, n_candidates=x.size)


def sample(xi, n, k, seed=0):
    """Draws of a generalised Pareto law with sigma = 1, as tails over 0 with the endpoint where it is."""
    u = np.random.default_rng(seed).random((n, k))
    y = -np.log(u) if xi == 0 else np.expm1(-xi * np.log(u)) / xi
    return Tail.of(y, np.zeros(n), endpoint=-1 / xi if xi < 0 else None)


@pytest.fixture(scope="module")
def numbers(oracles):
    return json.loads((oracles / "evt.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", ORACLES)
def test_maximum_likelihood_oracle(name, numbers, shared_data):
    oracle = numbers["pareto"][name]
    fit = fit_tail(exceedances(shared_data, oracle), "ml")
    assert fit.tail.counts[0] == oracle["n"]
    np.testing.assert_allclose(fit.sigma[0], oracle["sigma"], rtol=1e-6)
    np.testing.assert_allclose(fit.xi[0], oracle["xi"], atol=1e-6)
    np.testing.assert_allclose(fit.log_likelihood[0], -oracle["nll"], rtol=1e-8)
    assert not fit.edge[0]
    if "se_xi" in oracle:
        np.testing.assert_allclose(fit.standard_error[0], oracle["se_xi"], rtol=1e-5)
    for sigma, xi in oracle.get("peers", []):
        np.testing.assert_allclose([fit.sigma[0], fit.xi[0]], [sigma, xi], atol=5e-3)


@pytest.mark.parametrize("name", ["rain_30", "wooster_minus"])
def test_zhang_stephens_oracle(name, numbers, shared_data):
    oracle = numbers["pareto"][name]
    fit = fit_tail(exceedances(shared_data, oracle), "zhang_stephens")
    np.testing.assert_allclose([fit.sigma[0], fit.xi[0]], oracle["zhang_stephens"], atol=1e-6)


def test_weighted_moments_oracle(numbers, shared_data):
    fit = fit_tail(exceedances(shared_data, numbers["pareto"]["rain_30"]), "pwm")
    np.testing.assert_allclose([fit.sigma[0], fit.xi[0]], numbers["pareto"]["rain_30"]["pwm"], atol=1e-6)
    oracle = numbers["pareto"]["wooster_minus"]
    tail = exceedances(shared_data, oracle)
    fit = fit_tail(tail, "pwm")
    assert fit.edge[0]  # the plain solution has its end below the largest value
    np.testing.assert_allclose(fit.sigma[0], oracle["pwm_infeasible"][0], atol=1e-6)
    np.testing.assert_allclose(fit.endpoint[0], tail.values[0, 0], rtol=1e-12)


def test_endpoint_oracle(numbers, shared_data):
    fit = fit_tail(exceedances(shared_data, numbers["pareto"]["wooster_minus"]), "ml")
    np.testing.assert_allclose(fit.endpoint[0], 27.959571, rtol=1e-6)


@pytest.mark.parametrize("xi", [-0.8, -0.39, -0.1, 0.0, 0.3])
def test_maximum_likelihood_beats_its_neighbours(xi):
    tail = sample(xi, 20, 64)
    fit = fit_tail(tail, "ml")
    for row in np.flatnonzero(~fit.edge):
        y = tail.values[row].tolist()
        best = slow.pareto_negative_log_likelihood(y, fit.sigma[row], fit.xi[row])
        np.testing.assert_allclose(-fit.log_likelihood[row], best, rtol=1e-10)
        for by in (1e-4, -1e-4):
            assert slow.pareto_negative_log_likelihood(y, fit.sigma[row] * (1 + by), fit.xi[row]) >= best
            moved = fit.xi[row] + by
            if 1 + moved * max(y) / fit.sigma[row] > 0:
                assert slow.pareto_negative_log_likelihood(y, fit.sigma[row], moved) >= best
    for row in np.flatnonzero(fit.edge):
        assert fit.xi[row] == -1
        assert fit.sigma[row] == tail.values[row, 0]


def test_zhang_stephens_is_the_plain_loop(xp):
    tail = sample(-0.39, 10, 64)
    fit = fit_tail(Tail.of(xp(tail.values), xp(tail.threshold), endpoint=None), "zhang_stephens")
    for row in range(10):
        np.testing.assert_allclose(
            [float(fit.xi[row]), float(fit.sigma[row])],
            slow.zhang_stephens(tail.values[row].tolist()),
            atol=1e-10,
        )


@pytest.mark.parametrize("k", [1, 2, 7, 8, 9, 64, 65])
def test_known_endpoint_is_a_mean_of_logs(k, xp):
    s = np.random.default_rng(k).uniform(0.5, 0.99, (6, k))
    fit = fit_tail(Tail.of(xp(s), xp(np.full(6, 0.45))))
    np.testing.assert_allclose(fit.xi, -np.log(0.55 / (1 - s)).mean(axis=1), rtol=1e-12)
    np.testing.assert_allclose(fit.sigma, -np.asarray(fit.xi) * 0.55, rtol=1e-12)


def test_unbiased_beta_and_dimension():
    fit = fit_tail(sample(-0.4, 20_000, 16))
    assert abs(fit.beta.mean() - 2.5) < 0.02
    np.testing.assert_allclose(fit.lid, 2 * fit.beta)
    assert abs(fit.xi.mean() + 0.4) < 0.002


@pytest.mark.parametrize("estimator", ESTIMATORS)
@pytest.mark.parametrize("xi", [-0.8, -0.39, -0.2])
def test_sign_comes_back(estimator, xi):
    fit = fit_tail(sample(xi, 300, 256), estimator)
    assert abs(np.median(fit.xi) - xi) < 0.05


@pytest.mark.parametrize("estimator", ["zhang_stephens", "ml", "pwm"])
def test_heavy_sign_comes_back(estimator):
    fit = fit_tail(sample(0.3, 300, 256), estimator)
    assert abs(np.median(fit.xi) - 0.3) < 0.05
    assert (fit.endpoint[fit.xi > 0] == np.inf).all()
    assert (fit.beta[fit.xi > 0] == np.inf).all()


@given(st.floats(1e-6, 1e6), st.sampled_from(ESTIMATORS))
def test_scale_moves_sigma_alone(c, estimator):
    tail = sample(-0.3, 4, 32)
    scaled = Tail.of(tail.values * c, tail.threshold, endpoint=tail.endpoint * c)
    fit, other = fit_tail(tail, estimator), fit_tail(scaled, estimator)
    np.testing.assert_allclose(other.xi, fit.xi, atol=1e-8)
    np.testing.assert_allclose(other.sigma, fit.sigma * c, rtol=1e-7)


@given(st.permutations(range(24)), st.sampled_from(ESTIMATORS))
def test_order_is_free(order, estimator):
    tail = sample(-0.3, 2, 24)
    shuffled = Tail.of(tail.values[:, list(order)], tail.threshold, endpoint=tail.endpoint)
    np.testing.assert_allclose(fit_tail(shuffled, estimator).xi, fit_tail(tail, estimator).xi, atol=1e-10)


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_hard_rows_stay_in_their_row(estimator):
    good = sample(-0.3, 1, 16).values[0]
    rows = np.stack([good, np.full(16, np.nan), np.zeros(16), np.round(good, 1) + 0.0])
    fit = fit_tail(Tail.of(rows, np.zeros(4), endpoint=1 / 0.3), estimator)
    assert np.isnan(fit.xi[1])
    assert np.isnan(fit.xi[2])
    assert np.isfinite(fit.xi[[0, 3]]).all()
    low, high = fit.interval()
    assert np.isnan(low[[1, 2]]).all()
    assert (low[[0, 3]] <= high[[0, 3]]).all()


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_ragged_rows_equal_their_short_selves(estimator):
    tail = sample(-0.4, 3, 40)
    padded = tail.values.copy()
    padded[1, 21:] = np.nan
    fit = fit_tail(Tail.of(padded, np.zeros(3), endpoint=2.5), estimator)
    short = fit_tail(Tail.of(padded[1:2, :21], np.zeros(1), endpoint=2.5), estimator)
    tolerance = 1e-8 if estimator == "ml" else 1e-12
    if estimator == "zhang_stephens":  # the grid has as many points as the longest row asks for
        tolerance = 2e-3
    np.testing.assert_allclose(fit.xi[1], short.xi[0], atol=tolerance)


@pytest.mark.parametrize(("estimator", "k"), [("zhang_stephens", 7), ("ml", 7), ("pwm", 1)])
def test_too_few_is_nan(estimator, k):
    assert np.isnan(fit_tail(sample(-0.3, 2, k), estimator).xi).all()


def test_float32_stays_float32_and_close(xp):
    tail = sample(-0.39, 50, 64)
    single = Tail.of(
        xp(tail.values.astype(np.float32)), xp(tail.threshold.astype(np.float32)), endpoint=tail.endpoint
    )
    for estimator, tolerance in (("endpoint", 2e-5), ("zhang_stephens", 2e-5), ("ml", 2e-4), ("pwm", 2e-5)):
        fit = fit_tail(single, estimator)
        assert "float32" in str(fit.xi.dtype)
        np.testing.assert_allclose(fit.xi, fit_tail(tail, estimator).xi, atol=tolerance)


def test_value_at_the_endpoint_is_finite():
    fit = fit_tail(Tail.of([[1.0, 0.9, 0.8]], [0.5]))
    assert np.isfinite(fit.xi).all()


def test_equal_similarities_have_no_fit():
    assert np.isnan(fit_tail(Tail.of(np.full((3, 48), [[0.3], [0.7], [0.9]]), [0.3, 0.7, 0.9])).xi).all()


def test_quantiles_are_of_all_candidates():
    from scipy import stats

    tail = take_tail(np.random.default_rng(0).normal(size=(500, 6)), tail_size=50)
    fit = fit_tail(tail, "zhang_stephens")
    peer = stats.genpareto(**fit.to_scipy())
    np.testing.assert_allclose(fit.quantile(0.01), peer.isf(0.01 / tail.rate), rtol=1e-10)
    np.testing.assert_allclose(fit.return_level(100), fit.quantile(0.01))
    assert np.isnan(fit.quantile(0.5)).all()


def test_endpoint_estimator_needs_an_endpoint():
    with pytest.raises(ValueError, match="estimator is") as caught:
        fit_tail(sample(0.1, 2, 16))
    assert str(caught.value) == (
        'estimator is "endpoint" but the tail has none; give take_tail an endpoint or use "zhang_stephens".'
    )


def test_pooled_summary_is_refused():
    pooled = fit_tail(take_tail(np.random.default_rng(0).normal(size=(60, 4)), tail_size=50, pooled=True))
    with pytest.raises(
        ValueError, match=r"summary needs one fit for each query; a pooled fit is one. Use interval."
    ):
        pooled.summary()


def test_summary_respects_its_seed():
    fit = fit_tail(sample(-0.4, 200, 64))
    assert fit.summary(seed=1) == fit.summary(seed=1)
    low, high = fit.summary().xi_interval
    assert low < -0.4 < high
