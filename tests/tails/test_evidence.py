"""Three laws on one likelihood, agreeing with the fits and with the gate that training uses."""

import numpy as np
import pytest
from tests.tails.test_pareto import sample

from latentlink.tails import Tail, fit_tail, take_tail, weigh
from latentlink.tails.online import Gate


def test_log_likelihoods_are_those_of_scipy():
    from scipy import stats

    tail = sample(-0.39, 10, 64)
    evidence = weigh(tail)
    mean = tail.values.mean(axis=1)[:, None]
    np.testing.assert_allclose(evidence.exponential, stats.expon.logpdf(tail.values, scale=mean).sum(axis=1))
    fit = fit_tail(tail)
    law = stats.genpareto(np.asarray(fit.xi)[:, None], scale=np.asarray(fit.sigma)[:, None])
    np.testing.assert_allclose(evidence.endpoint, law.logpdf(tail.values).sum(axis=1))
    assert (evidence.free >= evidence.endpoint - 1e-9).all()
    assert (evidence.free >= evidence.exponential - 1e-9).all()


def test_bounded_evidence_is_the_gates():
    s = 1 - np.random.default_rng(0).uniform(size=(30, 200)) ** 0.4
    evidence = weigh(take_tail(similarities=s, tail_size=64, duplicate_gap=0))
    shortfalls = np.sort(1 - s, axis=1)[:, :65]
    np.testing.assert_allclose(evidence.bounded, Gate().statistics(shortfalls).evidence, atol=1e-9)


def test_criteria():
    evidence = weigh(sample(-0.39, 50, 64))
    aic, bic = evidence.criterion("aic"), evidence.criterion("bic")
    np.testing.assert_allclose(bic["free"] - aic["free"], 2 * (np.log(64) - 2))
    assert sum(evidence.shares()) == pytest.approx(1)


def test_shares_of_the_papers_shape():
    evidence = weigh(sample(-0.39, 1000, 64))
    assert evidence.shares().exponential < 0.05
    assert 0.7 < evidence.shares().endpoint < 0.9
    assert (evidence.bounded > 0).mean() > 0.95
    assert 0.6 < (evidence.vuong > 1.64).mean() < 0.85


def test_rows_without_spread_and_without_endpoint():
    rows = np.stack([sample(-0.3, 1, 16).values[0], np.zeros(16), np.full(16, np.nan)])
    evidence = weigh(Tail.of(rows, np.zeros(3), endpoint=None))
    assert np.isnan(evidence.endpoint).all()
    assert np.isnan(evidence.free[1:]).all()
    assert evidence.shares().endpoint == 0
