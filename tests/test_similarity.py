import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from latentlink import similarity
from latentlink._arrays import to_numpy
from latentlink._checks import InvalidInput, InvalidType

matrices = arrays(np.float64, (7, 3), elements=st.floats(-10, 10).map(lambda x: round(x, 3)))


def test_cosine_agrees_with_scikit_learn(xp, rng):
    from sklearn.metrics.pairwise import cosine_similarity

    a, b = rng.normal(size=(20, 5)), rng.normal(size=(30, 5))
    np.testing.assert_allclose(to_numpy(similarity.cosine(xp(a), xp(b))), cosine_similarity(a, b), atol=1e-14)


@pytest.mark.parametrize("size", [1e-300, 1e-30, 1.0, 1e30, 1e300])
def test_norms_neither_underflow_nor_overflow(size):
    np.testing.assert_allclose(similarity.normalize(np.array([[3.0, 4.0]]) * size), [[0.6, 0.8]])


def test_float32_and_tensors_keep_their_type(xp):
    x = xp(np.array([[3.0, 4.0]], dtype=np.float32))
    assert similarity.normalize(x).dtype == x.dtype
    assert type(similarity.normalize(x)) is type(x)


def test_gradient_passes_through_normalize(rng):
    torch = pytest.importorskip("torch")
    x = torch.as_tensor(rng.normal(size=(3, 4))).requires_grad_()
    assert torch.autograd.gradcheck(similarity.normalize, (x,))


@given(matrices, st.integers(1, 7))
def test_top_k_is_a_sort(corpus, k):
    queries = corpus[:3]
    scores = similarity.dot(queries, corpus)
    values, rows = similarity.top_k(queries, corpus, k, similarity="dot")
    np.testing.assert_array_equal(values, -np.sort(-scores, axis=1)[:, :k])
    np.testing.assert_array_equal(np.take_along_axis(scores, rows, axis=1), values)
    for line_values, line_rows in zip(values, rows, strict=True):
        assert len(set(line_rows)) == k
        for one, two, row_one, row_two in zip(
            line_values, line_values[1:], line_rows, line_rows[1:], strict=False
        ):
            assert one > two or row_one < row_two


def test_top_k_of_tensors_and_arrays_agree(rng):
    torch = pytest.importorskip("torch")
    q, c = rng.normal(size=(5, 8)), rng.normal(size=(40, 8))
    values, rows = similarity.top_k(q, c, 6)
    t_values, t_rows = similarity.top_k(torch.as_tensor(q), torch.as_tensor(c), 6)
    np.testing.assert_allclose(t_values.numpy(), values)
    np.testing.assert_array_equal(t_rows.numpy(), rows)


def test_top_k_in_blocks_equals_one_block(rng, monkeypatch):
    x = rng.normal(size=(50, 4))
    whole = similarity.top_k(x, x, 3, exclude_self=True)
    monkeypatch.setattr(similarity, "_BLOCK_VALUES", 120)
    parts = similarity.top_k(x, x, 3, exclude_self=True)
    np.testing.assert_array_equal(whole[1], parts[1])
    assert not (whole[1] == np.arange(50)[:, None]).any()


@pytest.mark.parametrize(("k", "skip_best"), [(1, False), (3, False), (3, True), (50, False), (50, True)])
def test_hubness_is_a_mean_of_the_largest(xp, rng, k, skip_best):
    items, crowd = rng.standard_normal((9, 4)), rng.standard_normal((7, 4))
    found = to_numpy(similarity.hubness(xp(items), xp(crowd), k=k, skip_best=skip_best))
    for item, value in zip(items, found, strict=True):
        best = sorted((float(item @ one) for one in crowd), reverse=True)
        assert value == pytest.approx(np.mean(best[skip_best : k + skip_best]))


def test_a_zero_row_is_refused_or_skipped():
    x = np.array([[1.0, 0.0], [0.0, 0.0]])
    with pytest.raises(InvalidInput) as caught:
        similarity.normalize(x)
    assert str(caught.value) == (
        'row 1 of embeddings has norm 0; cosine is undefined. Drop it or pass on_zero="skip".'
    )
    np.testing.assert_array_equal(similarity.normalize(x, on_zero="skip"), x)


def test_pairwise_similarity_is_the_diagonal(rng):
    a, b = rng.normal(size=(2, 6, 3))
    np.testing.assert_allclose(similarity.pairwise_similarity(a, b), np.diag(similarity.cosine(a, b)))


def test_mixed_kinds_are_refused():
    torch = pytest.importorskip("torch")
    with pytest.raises(InvalidType, match="queries is a NumPy array, corpus is a tensor; needs one kind"):
        similarity.cosine(np.ones((1, 2)), torch.ones(1, 2))


def test_k_beyond_the_corpus_is_refused():
    with pytest.raises(InvalidInput, match=r"k is 4; needs a whole number from 1 to 3\."):
        similarity.top_k(np.eye(3), np.eye(3), 4)
