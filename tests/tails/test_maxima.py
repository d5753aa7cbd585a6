"""Laws of maxima against ismev and polished optima, and their agreement with exceedances."""

import json

import numpy as np
import pytest
from tests.tails.test_pareto import column

from latentlink import InvalidInput
from latentlink.tails import fit_maxima, fit_tail, maxima_by_size, take_tail, xi_from_scipy

ORACLES = ["portpirie", "fremantle", "glass", "glass_minima", "venice", "oxford"]


@pytest.mark.parametrize("name", ORACLES)
def test_oracle(name, oracles, shared_data):
    oracle = json.loads((oracles / "evt.json").read_text(encoding="utf-8"))["extreme"][name]
    fit = fit_maxima(column(shared_data, oracle))
    found = [fit.mu, fit.sigma, fit.xi]
    np.testing.assert_allclose(-fit.log_likelihood, oracle["nll"], atol=1e-5)
    if "mle" in oracle:
        np.testing.assert_allclose(found, oracle["mle"], atol=1e-6)
    if "ismev" in oracle:
        np.testing.assert_allclose(found, oracle["ismev"], atol=5e-3)
    if "se" in oracle:
        np.testing.assert_allclose(fit.standard_errors, oracle["se"], rtol=5e-3)
    if "gumbel_nll" in oracle:
        np.testing.assert_allclose(-fit.gumbel_log_likelihood, oracle["gumbel_nll"], atol=1e-5)


@pytest.mark.parametrize(("xi", "name"), [(-0.4, "weibull"), (0.0, "gumbel"), (0.3, "frechet")])
@pytest.mark.medium
def test_limits_by_type(xi, name):
    from scipy import stats

    x = stats.genextreme(-xi, loc=2.0, scale=0.5).rvs(700, random_state=1)
    fit = fit_maxima(x)
    assert fit.limit() == name
    np.testing.assert_allclose(
        stats.genextreme(**fit.to_scipy()).logpdf(x).sum(), fit.log_likelihood, rtol=1e-9
    )
    low, high = fit.interval(0.99)
    assert low < xi < high
    moved = fit_maxima(10 * x - 4)
    np.testing.assert_allclose(
        [moved.mu, moved.sigma, moved.xi], [10 * fit.mu - 4, 10 * fit.sigma, fit.xi], atol=1e-5
    )


@pytest.mark.medium
def test_maxima_and_exceedances_agree_on_the_sphere():
    x = np.random.default_rng(0).normal(size=(3000, 4))
    fits = maxima_by_size(x, (64, 256, 1024))
    assert [fit.block_size for fit in fits] == [64, 256, 1024]
    exceedances = float(np.median(fit_tail(take_tail(x)).xi))
    assert abs(fits[-1].xi - exceedances) < 0.1  # both near -2 / 3
    assert abs(exceedances + 2 / 3) < 0.05


def test_refusals():
    with pytest.raises(InvalidInput) as caught:
        fit_maxima(np.ones(20))
    assert str(caught.value) == (
        "maxima has 20 values of which 1 differ; needs at least 10 that are not all equal."
    )
    with pytest.raises(InvalidInput) as caught:
        maxima_by_size(np.random.default_rng(0).normal(size=(20, 3)), (64,))
    assert str(caught.value) == "sizes are all above the 19 candidates; needs smaller ones."


@pytest.mark.parametrize("xi", [-0.4, -0.1, 0.2])
def test_signs_to_and_from_scipy(xi):
    """A law made in SciPy and turned into xi has its end where our sign says."""
    from scipy import stats

    for law, shape in [("genpareto", xi), ("genextreme", -xi)]:
        high = getattr(stats, law)(shape).support()[1]
        assert np.isfinite(high) == (xi_from_scipy(law, shape) < 0)
    draws = stats.weibull_max(2.5).rvs(4000, random_state=0)
    np.testing.assert_allclose(fit_maxima(draws).xi, xi_from_scipy("weibull_max", 2.5), atol=0.03)


def test_a_fit_of_scipy_is_ours():
    from scipy import stats

    x = stats.genextreme(0.3).rvs(800, random_state=3)
    np.testing.assert_allclose(
        fit_maxima(x).xi, xi_from_scipy("genextreme", stats.genextreme.fit(x)[0]), atol=1e-3
    )


def test_an_unknown_law_is_named():
    with pytest.raises(
        InvalidInput, match="law is 'gumbel'; needs one of 'genpareto', 'genextreme', 'weibull_max'"
    ):
        xi_from_scipy("gumbel", 0.0)
