import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from latentlink import InvalidInput
from latentlink.moments import CrossMoments, Moments, collect, hash_ids, merge


@pytest.mark.parametrize(("dtype", "tolerance"), [(np.float64, 1e-12), (np.float32, 1e-6)])
def test_ten_merged_shards_equal_one_pass(rng, dtype, tolerance):
    x = (rng.normal(size=(5000, 24)) * np.geomspace(1, 100, 24) + 50).astype(dtype)
    shift = x[:100].mean(axis=0)
    ids = np.arange(5000)
    shards = [collect("a", [(x[i::10], ids[i::10])], shift=shift, support_size=50) for i in range(10)]
    whole = collect("a", [(x, ids)], shift=shift, support_size=50)
    found = merge(shards)
    reference = np.cov(x.astype(np.float64), rowvar=False)
    size = np.abs(reference).max()
    assert found.count == 5000
    assert np.abs(found.covariance - whole.covariance).max() / size < tolerance
    assert np.abs(found.covariance - reference).max() / size < tolerance
    assert np.abs(found.mean - x.astype(np.float64).mean(axis=0)).max() / 50 < tolerance
    assert np.array_equal(found.support_ids, whole.support_ids)
    assert np.array_equal(found.support_vectors, whole.support_vectors)


@given(cut=st.integers(1, 59))
def test_any_cut_gives_the_same_sums(cut):
    x = np.random.default_rng(1).normal(size=(60, 3))
    parts = [collect("a", [part], shift=[0, 0, 0]) for part in (x[:cut], x[cut:])]
    assert np.allclose(merge(parts).covariance, np.cov(x, rowvar=False), rtol=1e-10)


def test_every_encoder_samples_the_same_items(rng):
    ids = np.arange(1000)
    order = rng.permutation(1000)
    first = collect("a", [(rng.normal(size=(1000, 3)), ids)], support_size=40)
    second = collect("b", [(rng.normal(size=(1000, 5)), ids[order].astype(str))], support_size=40)
    assert second.support_ids.tolist() == [str(i) for i in first.support_ids]


def test_folds_add_up_from_the_others(rng):
    x, ids = rng.normal(size=(500, 4)), np.arange(500)
    state = collect("a", [(x, ids)], n_folds=5)
    fold = hash_ids(ids) % 5
    assert np.allclose(state.without(2).covariance, np.cov(x[fold != 2], rowvar=False))
    assert state.without(2).count == (fold != 2).sum()


def test_unit_policy_divides_by_norms(rng):
    x = rng.normal(size=(200, 4)) * 9 + 3
    state = collect("a", [x], policy="unit")
    unit = x / np.linalg.norm(x, axis=1, keepdims=True)
    assert np.allclose(state.covariance, np.cov(unit, rowvar=False))


def test_cross_covariance(rng):
    x, y = rng.normal(size=(300, 3)), rng.normal(size=(300, 2))
    cross = CrossMoments.empty(("a", "b"), (x[0], y[0])).update(x[:100], y[:100]).update(x[100:], y[100:])
    assert np.allclose(cross.covariance, np.cov(x, y, rowvar=False)[:3, 3:])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"space": "b"}, "states differ in space: 'a' and 'b'; gather them alike."),
        ({"policy": "unit"}, "states differ in policy: 'none' and 'unit'; gather them alike."),
        ({"support_size": 3}, "states differ in support_size: 0 and 3; gather them alike."),
        ({"shift": [1.0, 0.0]}, "states differ in shift or folds; give all workers the same shift."),
        ({"n_folds": 2}, "states differ in shift or folds; give all workers the same shift."),
    ],
)
def test_different_states_do_not_merge(change, message):
    settings = {"space": "a", "shift": [0.0, 0.0]}
    other = settings | change
    with pytest.raises(InvalidInput) as error:
        merge([Moments.empty(**settings), Moments.empty(**other)])
    assert str(error.value) == message


def test_ids_are_asked_for(rng):
    with pytest.raises(InvalidInput, match="ids is missing; a support sample and folds are drawn by id"):
        collect("a", [rng.normal(size=(5, 2))], support_size=2)
    with pytest.raises(InvalidInput, match="the state of 'a' holds 0 rows; needs 2"):
        _ = Moments.empty("a", [0.0]).covariance
    with pytest.raises(InvalidInput, match="batches is empty"):
        collect("a", [])
