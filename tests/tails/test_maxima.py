"""Laws of maxima against ismev and polished optima, and their agreement with exceedances."""

import json

import numpy as np
import pytest
from tests.tails.test_pareto import column

from latentlink import InvalidInput
from latentlink.tails import fit_maxima, fit_tail, maxima_by_size, take_tail

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
