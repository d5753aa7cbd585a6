import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from latentlink import _metrics

scores = arrays(np.float64, (6, 9), elements=st.integers(-4, 4).map(float))


@given(scores, st.floats(-100, 100))
def test_ranks_come_from_order_alone(values, shift):
    relevant = np.arange(6)
    plain = _metrics.ranks(values, relevant)
    np.testing.assert_array_equal(plain, _metrics.ranks(3 * values, relevant))
    np.testing.assert_array_equal(plain, _metrics.ranks(np.exp(values), relevant))
    slow = [sum(v >= row[i] for v in row) for i, row in enumerate(values)]
    np.testing.assert_array_equal(plain, slow)


def test_negative_similarities_are_as_good_as_positive():
    """Peers give MRR 0 here: they drop items whose score is not positive."""
    rank = _metrics.ranks(np.array([[-0.1, -0.9]]), np.array([0]))
    assert _metrics.reciprocal_rank(rank).mean() == 1.0


def test_paired_ranks_in_blocks(rng):
    q, c = rng.normal(size=(2, 30, 4))
    whole = _metrics.ranks(q @ c.T, np.arange(30))
    np.testing.assert_array_equal(_metrics.paired_ranks(q, c, block_rows=7), whole)


def test_ndcg_agrees_with_scikit_learn(rng):
    from sklearn.metrics import ndcg_score

    gains = rng.integers(0, 4, size=(20, 15)).astype(float)
    order = -np.arange(15.0)
    expected = [ndcg_score(g[None], order[None], k=5) for g in gains]
    np.testing.assert_allclose(_metrics.ndcg_at(gains, 5), expected)


def test_ndcg_without_gain_is_nan():
    assert np.isnan(_metrics.ndcg_at(np.zeros((1, 3)), 2)[0])


def test_wilson_against_scipy(rng):
    from scipy.stats import binomtest

    for hits in (0, 3, 50, 97, 100):
        values = np.zeros(100)
        values[:hits] = 1
        expected = binomtest(hits, 100).proportion_ci(method="wilson")
        np.testing.assert_allclose(
            _metrics.proportion_interval(values), [expected.low, expected.high], atol=1e-12
        )


@pytest.mark.medium
def test_bootstrap_covers(rng):
    """Coverage of a nominal 95 % interval of a mean of 100, over 1,000 repetitions."""
    covered = 0
    for seed in range(1000):
        low, high = _metrics.bootstrap_interval(rng.exponential(size=100), n_resamples=400, seed=seed)
        covered += low <= 1 <= high
    assert 0.91 <= covered / 1000 <= 0.965  # the percentile bootstrap of a skew mean is a little short


def test_bootstrap_statistic(rng):
    x = rng.normal(size=200)
    low, high = _metrics.bootstrap_interval(x, statistic=np.median, n_resamples=200)
    assert low < np.median(x) < high
    mean = _metrics.bootstrap_interval(x, statistic=np.mean, n_resamples=2000, seed=1)
    np.testing.assert_allclose(mean, _metrics.bootstrap_interval(x, n_resamples=2000), atol=0.02)
