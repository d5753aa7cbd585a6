"""Retrieval metrics against a loop, sentence-transformers' evaluator, and the order of similarities alone."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests import slow

from latentlink import InvalidInput
from latentlink.evaluate import retrieval


def random_case(rng, n=30, m=50, d=4, ties=False):
    queries, corpus = rng.normal(size=(n, d)), rng.normal(size=(m, d))
    if ties:  # small integers: many exactly equal inner products
        queries, corpus = rng.integers(1, 3, (n, d)).astype(float), rng.integers(-2, 3, (m, d)).astype(float)
    relevant = [
        {int(row): float(rng.integers(1, 4)) for row in rng.choice(m, rng.integers(1, 9), replace=False)}
        for _ in range(n)
    ]
    return queries, corpus, relevant


@given(seed=st.integers(0, 10_000), ties=st.booleans(), k=st.integers(1, 60))
def test_equals_a_full_sort(seed, ties, k):
    queries, corpus, relevant = random_case(np.random.default_rng(seed), n=4, ties=ties)
    result = retrieval(queries, corpus, relevant, ks=[k], similarity="dot")
    for i, gains in enumerate(relevant):
        row = [gains.get(j, 0.0) for j in range(len(corpus))]
        expected = slow.retrieval_of_one(
            (corpus @ queries[i]).round(9) if ties else corpus @ queries[i], row, k
        )
        found = [result.values[name][i] for name in (f"hit@{k}", f"recall@{k}", f"ndcg@{k}", "mrr")]
        assert found == pytest.approx(expected)


def test_only_the_order_counts(rng):
    """Adding −10 to every similarity (a column of the corpus) changes nothing; all are then negative."""
    queries, corpus, relevant = random_case(rng)
    one = np.ones((len(queries), 1))
    shifted = retrieval(
        np.hstack([queries, one]), np.hstack([corpus, -10 * np.ones((50, 1))]), relevant, similarity="dot"
    )
    plain = retrieval(queries, corpus, relevant, similarity="dot")
    for name, values in plain.values.items():
        assert values == pytest.approx(shifted.values[name])


def test_a_constant_encoder_finds_nothing():
    result = retrieval(np.ones((5, 3)), np.ones((20, 3)), np.arange(5))
    assert result.mean("hit@10") == 0
    assert result.first_rank.tolist() == [20] * 5


def test_equals_scikit_learn_without_ties(rng):
    from sklearn.metrics import ndcg_score

    queries, corpus, relevant = random_case(rng)
    result = retrieval(queries, corpus, relevant, ks=[5], similarity="dot")
    gains = np.array([[entry.get(j, 0.0) for j in range(50)] for entry in relevant])
    assert result.mean("ndcg@5") == pytest.approx(ndcg_score(gains, queries @ corpus.T, k=5))


@pytest.mark.medium
@pytest.mark.filterwarnings("ignore")
def test_equals_sentence_transformers_evaluator(rng):
    evaluation = pytest.importorskip("sentence_transformers.evaluation")
    from sentence_transformers.util import cos_sim

    queries, corpus, relevant = random_case(rng)
    texts = {f"q{i}": row for i, row in enumerate(queries)} | {f"c{j}": row for j, row in enumerate(corpus)}
    evaluator = evaluation.InformationRetrievalEvaluator(
        {f"q{i}": f"q{i}" for i in range(30)},
        {f"c{j}": f"c{j}" for j in range(50)},
        {f"q{i}": {f"c{j}" for j in entry} for i, entry in enumerate(relevant)},
        accuracy_at_k=[1, 5],
        precision_recall_at_k=[1, 5],
        mrr_at_k=[50],
        ndcg_at_k=[1, 5],
        score_functions={"cosine": cos_sim},
    )

    class Model:
        similarity_fn_name = "cosine"

        def encode(self, sentences, **_):
            import torch

            return torch.as_tensor(np.array([texts[s] for s in sentences]))

        encode_query = encode_document = encode

    theirs = evaluator.compute_metrices(Model())["cosine"]
    ours = retrieval(queries, corpus, [list(entry) for entry in relevant], ks=[1, 5])
    for k in (1, 5):
        assert ours.mean(f"hit@{k}") == pytest.approx(theirs["accuracy@k"][k])
        assert ours.mean(f"recall@{k}") == pytest.approx(theirs["recall@k"][k])
        assert ours.mean(f"ndcg@{k}") == pytest.approx(theirs["ndcg@k"][k])
    assert ours.mean("mrr") == pytest.approx(theirs["mrr@k"][50])


def test_forms_of_relevant_agree(rng):
    queries, corpus, _ = random_case(rng)
    rows = rng.integers(0, 50, 30)
    plain = retrieval(queries, corpus, rows)
    for form in ([[r] for r in rows.tolist()], [{r} for r in rows.tolist()], [{r: 1.0} for r in rows.tolist()]):
        assert retrieval(queries, corpus, form).record() == plain.record()


def test_blocks_change_nothing(rng, monkeypatch):
    queries, corpus, relevant = random_case(rng)
    whole = retrieval(queries, corpus, relevant).record()
    monkeypatch.setattr("latentlink.evaluate.ranking._BLOCK_VALUES", 120)
    assert retrieval(queries, corpus, relevant).record() == whole


def test_mistakes_are_named(rng):
    queries, corpus, _ = random_case(rng, n=2)
    with pytest.raises(InvalidInput, match=r"^relevant has 1 entries; needs 2, one for each query\.$"):
        retrieval(queries, corpus, [0])
    with pytest.raises(
        InvalidInput, match=r"^relevant of query 1 is \[50\]; needs corpus rows, whole numbers from 0 to 49\.$"
    ):
        retrieval(queries, corpus, [0, 50])
    with pytest.raises(
        InvalidInput, match=r"^relevant of query 0 is empty; drop the query: it has no right answer\.$"
    ):
        retrieval(queries, corpus, [[], [1]])
    with pytest.raises(
        InvalidInput, match=r"^relevant of query 1 has a gain that is not > 0; leave such rows out\.$"
    ):
        retrieval(queries, corpus, [{0: 1}, {1: 0}])
    with pytest.raises(
        InvalidInput, match=r"^metric is 'map'; needs one of 'hit@1', 'recall@1', 'ndcg@1', 'mrr'\.$"
    ):
        retrieval(queries, corpus, [0, 1], ks=[1]).mean("map")
