"""Intervals over seeds and items: their coverage, the verdicts' error rates, and exact small cases."""

import numpy as np
import pytest
from scipy import stats

from latentlink import InvalidInput
from latentlink.evaluate import holm, paired_difference, spearman_pseudo_values
from latentlink.evaluate.verdicts import Difference


def crossed(rng, s, n, seed_sd, item_sd, rest_sd):
    return seed_sd * rng.normal(size=(s, 1)) + item_sd * rng.normal(size=n) + rest_sd * rng.normal(size=(s, n))


def test_one_seed_is_the_paired_t_test(rng):
    a, b = rng.normal(size=40), rng.normal(size=40)
    difference = paired_difference(a, b)
    theirs = stats.ttest_rel(a, b)
    assert difference.p_value() == pytest.approx(theirs.pvalue)
    assert difference.interval(0.9) == pytest.approx(tuple(theirs.confidence_interval(0.9)))


def test_items_that_all_agree_leave_the_t_test_over_seeds(rng):
    by_seed = rng.normal(size=(6, 1))
    difference = paired_difference(np.repeat(by_seed, 50, axis=1), np.zeros((6, 50)))
    assert difference.p_value() == pytest.approx(stats.ttest_1samp(by_seed[:, 0], 0).pvalue)


def test_pairing_removes_what_both_share(rng):
    hard = rng.normal(size=300) * 100
    noise = rng.normal(size=(5, 300))
    low, high = paired_difference(hard + noise, np.tile(hard, (5, 1))).interval()
    assert high - low < 1


def coverage(rng, s, n, sds, method, trials):
    hits = 0
    for _ in range(trials):
        low, high = Difference(crossed(rng, s, n, *sds)).interval(method=method, n_resamples=400)
        hits += low <= 0 <= high
    return hits / trials


@pytest.mark.parametrize("sds", [(0.05, 0, 1), (0.1, 0.5, 0.5), (1, 0, 1), (1, 1, 0.1), (0, 1, 1)])
def test_components_cover_with_five_seeds(rng, sds):
    """At least 0.93 in every mixture; more where only the residual varies, which costs power, not truth."""
    assert coverage(rng, 5, 300, sds, "components", 1500) >= 0.93 - 3 * np.sqrt(0.05 * 0.95 / 1500)


def test_the_bootstrap_is_too_short_with_few_seeds(rng):
    """Why it is not the default: five seeds that differ leave it near 0.8."""
    assert coverage(rng, 5, 100, (1, 0, 1), "bootstrap", 300) < 0.9
    assert coverage(rng, 30, 100, (1, 0, 1), "bootstrap", 200) > 0.9


def test_verdicts():
    rng = np.random.default_rng(1)
    noise = rng.normal(size=(5, 1000)) * 0.1

    def word(shift, margin):
        return paired_difference(noise - noise.mean() + shift, np.zeros((5, 1000))).verdict(margin)

    assert word(0.1, 0.05).word == "better"
    assert word(0.1, 0.05).beyond_margin
    assert word(-0.1, 0.05).word == "worse"
    assert word(0.03, 0.05).word == "better"
    assert not word(0.03, 0.05).beyond_margin
    assert word(0.0, 0.05).word == "equivalent"
    assert word(0.0, 0.001).word == "undecided"
    assert str(word(0.1, 0.05)).startswith("better by more than the margin: +0.1 (95 % interval +0.0")


def test_equivalence_is_seldom_claimed_at_the_margin(rng):
    """Two one-sided tests: a true difference of exactly the margin is called equivalent in at most 5 %."""
    claimed = sum(
        Difference(crossed(rng, 5, 300, 0.05, 0.3, 0.3) + 0.1).verdict(0.1).word == "equivalent"
        for _ in range(1000)
    )
    assert claimed / 1000 <= 0.05 + 3 * np.sqrt(0.05 * 0.95 / 1000)


def test_no_difference_at_all():
    same = np.ones((3, 10))
    difference = paired_difference(same, same)
    assert difference.interval() == (0, 0)
    assert difference.p_value() == 1
    assert difference.verdict(0.01).word == "equivalent"


def test_pseudo_values_of_spearman(rng):
    from scipy.stats import spearmanr

    x = rng.normal(size=400)
    y = x + rng.normal(size=400)
    values = spearman_pseudo_values(x, y)
    assert values.mean() == pytest.approx(spearmanr(x, y).statistic, abs=2e-3)
    draws = [spearmanr(x[rows], y[rows]).statistic for rows in rng.integers(0, 400, (500, 400))]
    assert values.std(ddof=1) / np.sqrt(400) == pytest.approx(np.std(draws), rel=0.12)


def test_holm_equals_its_definition(rng):
    p = rng.uniform(size=6) ** 3
    adjusted = holm(p)
    for alpha in (0.01, 0.05, 0.2):
        rejected = np.zeros(6, dtype=bool)
        for step, i in enumerate(np.argsort(p)):
            if p[i] > alpha / (6 - step):
                break
            rejected[i] = True
        assert ((adjusted <= alpha) == rejected).all()


def test_mistakes_are_named():
    with pytest.raises(
        InvalidInput,
        match=r"^first and second have shapes \(1, 5\) and \(1, 4\); needs the same seeds and items\.$",
    ):
        paired_difference(np.zeros(5), np.zeros(4))
    with pytest.raises(InvalidInput, match=r"^margin is 0; needs a number > 0\.$"):
        paired_difference(np.zeros(5), np.zeros(5)).verdict(0)
    with pytest.raises(
        InvalidInput, match=r"^first has shape \(5, 1\); needs \(n,\) or \(s, n\) with at least 2 items\.$"
    ):
        paired_difference(np.zeros((5, 1)), np.zeros((5, 1)))
    with pytest.raises(InvalidInput, match=r"^similarities has 3 values; needs at least 4\.$"):
        spearman_pseudo_values(np.arange(3.0), np.arange(3.0))
