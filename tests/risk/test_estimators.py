import numpy as np
import pytest
from tests import slow

from latentlink import InvalidInput
from latentlink.risk.estimators import RowStatistics, row_statistics, upper_with_virtual

NAMES = {
    "low": "low",
    "jack": "jackknife",
    "delta": "delta",
    "up": "up",
    "mid": "mid",
    "V_hat": "variance",
    "ess": "ess",
    "r_hat": "ratio",
    "p_max": "largest",
    "loss_in": "loss_inside",
    "loss_ex": "loss_outside",
}


def test_estimates_agree_with_the_oracle(theory):
    for case in theory["estimators"]:
        positive = np.array(case["s_pos"]) / case["tau"]
        rows = row_statistics(positive, np.array(case["s_neg"]) / case["tau"])
        for key, name in NAMES.items():
            np.testing.assert_allclose(getattr(rows, name), case[key], rtol=1e-9, atol=1e-9, err_msg=key)
        bounded = upper_with_virtual(positive, np.array(case["s_neg"]) / case["tau"], 1 / case["tau"])
        np.testing.assert_allclose(bounded, case["up_virtual"], rtol=1e-9)
        assert rows.jackknife.mean() == pytest.approx(case["H_jack_mean"], abs=1e-9)


def test_a_masked_entry_is_as_good_as_absent(rng):
    logits, positive = rng.normal(size=(3, 9)), rng.normal(size=3)
    masked = np.insert(logits, 4, -np.inf, axis=1)
    a, b = row_statistics(positive, logits), row_statistics(positive, masked, n_negatives=9)
    for name in [*NAMES.values(), "third"]:
        np.testing.assert_allclose(getattr(a, name), getattr(b, name), rtol=1e-12, err_msg=name)


def test_equal_weights_have_no_bias_at_a_million_negatives():
    rows = row_statistics(np.zeros(1), np.zeros((1, 1_000_000)))
    for name in ("low", "jackknife", "delta", "up"):
        assert abs(getattr(rows, name)[0]) < 1e-9, name


def test_views_of_an_instance_count_once(rng):
    logits, positive = rng.normal(size=(4, 6)), rng.normal(size=4)
    twice = np.repeat(logits, 2, axis=1)
    a, b = row_statistics(positive, logits), row_statistics(positive, twice, groups=np.repeat(np.arange(6), 2))
    np.testing.assert_allclose(a.jackknife, b.jackknife, rtol=1e-12)
    assert b.n_negatives == 6


def test_blocks_join(rng):
    logits, positive = rng.normal(size=(7, 5)), rng.normal(size=7)
    whole = row_statistics(positive, logits)
    joined = RowStatistics.joined(
        [row_statistics(positive[:3], logits[:3]), row_statistics(positive[3:], logits[3:])]
    )
    np.testing.assert_allclose(whole.mass, joined.mass, rtol=1e-12)
    np.testing.assert_array_equal(whole.up, joined.up)


def test_the_jackknife_is_the_plain_one(rng):
    logits, positive = rng.normal(size=(4, 12)) * 2, rng.normal(size=4)
    rows = row_statistics(positive, logits)
    plain = [slow.jackknife_surprise(p, row) for p, row in zip(positive, logits, strict=True)]
    np.testing.assert_allclose(rows.jackknife, plain, rtol=1e-10)


def test_too_few_negatives_are_named():
    with pytest.raises(
        InvalidInput, match=r"^negative_logits has 1 negatives a row; needs at least 2\. Widen the pool"
    ):
        row_statistics(np.zeros(2), np.zeros((2, 1)))
    with pytest.raises(
        InvalidInput, match=r"^negative_logits has shape \(3, 4\); needs \(2, k\), a row for each query\.$"
    ):
        row_statistics(np.zeros(2), np.zeros((3, 4)))
    with pytest.raises(
        InvalidInput, match=r"^groups has shape \(3,\); needs \(4,\), one instance for each candidate\.$"
    ):
        row_statistics(np.zeros(2), np.zeros((2, 4)), groups=[0, 1, 2])
