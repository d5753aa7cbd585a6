"""Intervals: exact where promised, near their level elsewhere, wider where pairs are dependent."""

import numpy as np
import pytest
from tests.tails.test_pareto import sample

from latentlink.tails import Tail, fit_tail, take_tail


def coverage(fit, xi, **options):
    low, high = fit.interval(**options)
    return float(((low <= xi) & (xi <= high)).mean())


def test_chi2_interval_by_hand():
    from scipy import stats

    tail = sample(-0.4, 3, 20)
    fit = fit_tail(tail)
    low, high = fit.interval(0.9)
    total = 2 * 20 * -fit.xi
    np.testing.assert_allclose(low, -total / stats.chi2.ppf(0.05, 40))
    np.testing.assert_allclose(high, -total / stats.chi2.ppf(0.95, 40))


def test_methods_have_their_names():
    tail = sample(-0.4, 2, 20)
    names = {estimator: fit_tail(tail, estimator).interval_method for estimator in ("endpoint", "ml", "pwm")}
    assert names == {"endpoint": "chi2", "ml": "profile", "pwm": "bootstrap"}
    with pytest.raises(ValueError, match=r"method is 'chi2'; needs one of 'bootstrap', 'profile', 'wald'\."):
        fit_tail(tail, "ml").interval(method="chi2")


@pytest.mark.parametrize("xi", [-0.39, 0.0, 0.2])
def test_profile_interval_covers_about_its_level(xi):
    assert 0.88 < coverage(fit_tail(sample(xi, 300, 64), "ml"), xi) < 0.97


def test_profile_interval_drops_by_half_chi2():
    from scipy import optimize
    from tests.slow import pareto_negative_log_likelihood as loss

    tail = sample(-0.3, 1, 64)
    fit = fit_tail(tail, "ml")
    y = tail.values[0].tolist()
    for end in fit.interval():
        start = max(fit.sigma[0], -end[0] * y[0])
        best = optimize.minimize_scalar(
            lambda sigma, at=end[0]: loss(y, sigma, at),
            bounds=(-end[0] * y[0] + 1e-9, 5 * start),
            method="bounded",
            options={"xatol": 1e-10},
        )
        np.testing.assert_allclose(best.fun + fit.log_likelihood[0], 1.920729, atol=1e-4)


def test_bootstrap_interval_brackets():
    fit = fit_tail(sample(-0.3, 50, 128), "pwm")
    assert coverage(fit, -0.3) > 0.8
    again = fit.interval(seed=0)
    np.testing.assert_array_equal(again[0], fit.interval(seed=0)[0])


def test_pooled_pairs_cannot_be_drawn_singly():
    tail = take_tail(np.random.default_rng(0).normal(size=(60, 4)), tail_size=50, pooled=True)
    with pytest.raises(ValueError, match='method is "bootstrap" but the tail is pooled'):
        fit_tail(tail, "pwm").interval()


def test_design_effect_is_one_for_queries():
    assert fit_tail(sample(-0.3, 3, 20)).design_effect == 1.0


def clusters(seed, n=384, groups=12):
    rng = np.random.default_rng(seed)
    sizes = rng.dirichlet(np.ones(groups)) * n
    centres = rng.normal(size=(groups, 16))
    own = np.repeat(np.arange(groups), np.round(sizes).astype(int))
    return centres[own] + 0.7 * rng.normal(size=(own.size, 16))


@pytest.mark.stats
@pytest.mark.parametrize("groups", [1, 12])
def test_pooled_interval_covers_where_pairs_are_dependent(groups):
    fixed = np.random.default_rng(5)
    centres, shares = 2 * fixed.normal(size=(groups, 16)) * (groups > 1), fixed.dirichlet(np.ones(groups))
    fits = []
    for seed in range(200):
        rng = np.random.default_rng(seed)
        x = centres[rng.choice(groups, 384, p=shares)] + rng.normal(size=(384, 16))
        fits.append(fit_tail(take_tail(x, fraction=0.01, pooled=True)))
    centre = np.mean([fit.xi[0] for fit in fits])
    covered = [low[0] <= centre <= high[0] for low, high in (fit.interval() for fit in fits)]
    assert np.mean(covered) > 0.92


def test_design_effect_grows_with_clusters():
    uniform = fit_tail(take_tail(np.random.default_rng(0).normal(size=(384, 16)), fraction=0.01, pooled=True))
    grouped = fit_tail(take_tail(clusters(0), fraction=0.01, pooled=True))
    assert grouped.design_effect > 1.2 > uniform.design_effect
    naive = fit_tail(Tail.of(grouped.tail.values, grouped.tail.threshold))
    width, plain = (np.subtract(*fit.interval()[::-1])[0] for fit in (grouped, naive))
    np.testing.assert_allclose(width, plain * grouped.design_effect**0.5, rtol=0.02)
