"""Tails as taken: exact, blocked, with exclusions counted, and refusals that say what to do."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests import slow

from latentlink import InvalidInput, normalize
from latentlink.tails import Tail, _source, take_tail


def points(n=60, d=5, seed=0):
    return np.random.default_rng(seed).normal(size=(n, d))


def test_agrees_with_full_sorts(xp):
    x = points()
    tail = take_tail(xp(x), tail_size=7)
    values, thresholds = slow.largest_similarities(normalize(x), 7)
    np.testing.assert_allclose(tail.values, values, atol=1e-12)
    np.testing.assert_allclose(tail.threshold, thresholds, atol=1e-12)
    assert (tail.n_candidates == 59).all()
    np.testing.assert_allclose(tail.rate, 7 / 59)


def test_blocks_change_nothing(monkeypatch):
    x = points()
    whole = take_tail(x, tail_size=9)
    pooled = take_tail(x, tail_size=50, pooled=True)
    monkeypatch.setattr(_source, "_BLOCK_VALUES", 130)
    np.testing.assert_allclose(take_tail(x, tail_size=9).values, whole.values, atol=1e-14)
    np.testing.assert_allclose(take_tail(x, tail_size=50, pooled=True).values, pooled.values, atol=1e-14)


@given(st.integers(0, 100))
def test_rotation_changes_nothing(seed):
    x = points(seed=seed)
    rotation = np.linalg.qr(points(5, 5, seed + 1))[0]
    np.testing.assert_allclose(take_tail(x @ rotation, tail_size=5).values, take_tail(x, tail_size=5).values)


def test_positives_and_duplicates_are_left_out_and_counted():
    x = points(40)
    x[1] = x[0]
    labels = np.arange(40)
    labels[3] = labels[2]
    tail = take_tail(x, tail_size=8, same=labels)
    assert tail.excluded == (2, 2)
    assert tail.n_candidates[[0, 1, 2, 3, 4]].tolist() == [38, 38, 38, 38, 39]
    pairs = np.array([[2, 3], [3, 2]])
    np.testing.assert_array_equal(take_tail(x, tail_size=8, exclude=pairs).values, tail.values)
    kept = take_tail(x, tail_size=8, duplicate_gap=0)
    np.testing.assert_allclose(kept.values[:2, 0], 1.0)


def test_corpus_with_labels():
    x, y = points(10), points(30, seed=1)
    tail = take_tail(x, corpus=y, tail_size=4, same=(np.arange(10), np.arange(30) % 10))
    assert tail.excluded.positives == 30
    assert (tail.n_candidates == 27).all()


def test_threshold_rows_differ_in_length():
    s = np.linspace(-1, 0.9, 40)[None, :].repeat(3, axis=0) * np.array([[1.0], [0.5], [0.1]])
    tail = take_tail(similarities=s, threshold=0.3)
    assert tail.counts.tolist() == [(row > 0.3).sum() for row in s]
    assert np.isnan(tail.values[2]).all()
    assert tail.values[1][: tail.counts[1]].min() > 0.3


def test_fraction_and_sampled_queries():
    tail = take_tail(points(101), fraction=0.1, n_queries=20, seed=3)
    assert tail.values.shape == (20, 10)
    again = take_tail(points(101), fraction=0.1, n_queries=20, seed=3)
    np.testing.assert_array_equal(tail.rows, again.rows)
    whole = take_tail(points(101), fraction=0.1)
    np.testing.assert_array_equal(whole.values[tail.rows], tail.values)
    np.testing.assert_array_equal(take_tail(points(101), fraction=0.1, n_queries=500).values, whole.values)


def test_pooled_counts_each_pair_once():
    x = points(30)
    tail = take_tail(x, fraction=0.1, pooled=True)
    s = normalize(x) @ normalize(x).T
    pairs = np.sort(s[np.triu_indices(30, 1)])[::-1]
    np.testing.assert_allclose(tail.values[0], pairs[: tail.tail_size])
    np.testing.assert_allclose(tail.threshold[0], pairs[tail.tail_size])
    np.testing.assert_allclose(s[tail.owners[:, 0], tail.owners[:, 1]], tail.values[0])
    assert tail.n_candidates[0] == 435
    sampled = take_tail(x, tail_size=20, pooled=True, n_queries=10)
    assert len({tuple(sorted(pair)) for pair in sampled.owners.tolist()}) == 20


def test_cap_coordinate_squares():
    plain, cap = take_tail(points(), tail_size=5), take_tail(points(), tail_size=5, coordinate="cap")
    np.testing.assert_allclose(cap.values, plain.values * np.abs(plain.values))


def test_rows_with_nan_stay_nan():
    s = np.random.default_rng(0).uniform(-1, 0.9, (4, 50))
    s[2, 7] = np.nan
    tail = take_tail(similarities=s, tail_size=8)
    assert np.isnan(tail.values[2]).all()
    assert tail.counts.tolist() == [8, 8, 0, 8]
    assert np.isfinite(tail.values[[0, 1, 3]]).all()


def test_input_is_not_written_into():
    s = np.random.default_rng(0).uniform(-1, 0.9, (4, 50))
    s[0, 0] = 1.0
    copy = s.copy()
    take_tail(similarities=s, tail_size=8, exclude=np.array([[1, 1]]))
    np.testing.assert_array_equal(s, copy)


def test_top_is_a_shallower_tail():
    x = points()
    np.testing.assert_array_equal(take_tail(x, tail_size=20).top(7).values, take_tail(x, tail_size=7).values)
    np.testing.assert_array_equal(
        take_tail(x, tail_size=20).top(7).threshold, take_tail(x, tail_size=7).threshold
    )


SIMILAR = np.tile(np.linspace(-0.5, 0.5, 20), (3, 1))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "neither of embeddings and similarities given; needs exactly one."),
        (
            {"similarities": SIMILAR, "tail_size": 64},
            "tail_size is 64 but row 0 has 20 finite similarities; lower tail_size or add candidates.",
        ),
        (
            {"similarities": SIMILAR, "threshold": 0.98},
            "threshold 0.98 leaves 0 of 20 similarities; needs at least 8. "
            "Lower the threshold or take a fraction.",
        ),
        (
            {"similarities": SIMILAR * 2.0008, "tail_size": 8},
            "similarity 1.0004 exceeds the endpoint 1 beyond rounding (tolerance 0.0001); are the rows "
            "normalised? Similarities without a largest value need endpoint=None.",
        ),
        (
            {"similarities": SIMILAR, "tail_size": 8, "fraction": 0.5},
            "tail_size and fraction given; needs at most one of them.",
        ),
        (
            {"similarities": SIMILAR, "tail_size": 8, "coordinate": "cap", "endpoint": None},
            'coordinate is "cap" with endpoint None; needs endpoint 1.',
        ),
        (
            {"similarities": SIMILAR, "tail_size": 8, "same": np.arange(3)},
            "same has shapes (3,) and (3,); needs a pair of shapes (3,) and (20,), one label for each row.",
        ),
        (
            {"similarities": SIMILAR, "tail_size": 8, "exclude": np.array([[0, 20]])},
            "exclude names a pair outside (3, 20); needs rows from 0.",
        ),
        (
            {"embeddings": SIMILAR, "corpus": SIMILAR[:, :4], "tail_size": 2},
            "embeddings and corpus differ in columns: 20 and 4.",
        ),
    ],
)
def test_refusals(arguments, message):
    with pytest.raises(InvalidInput) as caught:
        take_tail(**arguments)
    assert str(caught.value) == message


def test_of_pads_and_refuses():
    tail = Tail.of([[0.6, np.nan, 0.9]], [0.5])
    assert tail.counts.tolist() == [2]
    np.testing.assert_array_equal(tail.values, [[0.9, 0.6, np.nan]])
    with pytest.raises(
        ValueError, match=r"values has exceedances below their threshold; needs values >= threshold\."
    ):
        Tail.of([[0.4]], [0.5])
