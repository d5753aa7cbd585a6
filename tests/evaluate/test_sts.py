"""Spearman against scipy and sentence-transformers; real STS pairs."""

import numpy as np
import pytest

from latentlink import InvalidInput
from latentlink.evaluate import sts_spearman


def pairs(rng, n=200):
    a = rng.normal(size=(n, 8))
    b = a + rng.normal(size=(n, 8)) * rng.uniform(0, 3, (n, 1))
    cosines = (a * b).sum(1) / np.linalg.norm(a, axis=1) / np.linalg.norm(b, axis=1)
    return a, b, np.round(5 * cosines + rng.normal(size=n)), cosines


def test_equals_scipy_with_ties(rng):
    from scipy.stats import spearmanr

    a, b, scores, cosines = pairs(rng)
    result = sts_spearman(a, b, scores)
    assert result.spearman == pytest.approx(spearmanr(cosines, scores).statistic, abs=1e-12)
    low, high = result.interval(0.9)
    assert low < result.spearman < high


@pytest.mark.medium
@pytest.mark.filterwarnings("ignore")
def test_equals_sentence_transformers_evaluator(rng):
    evaluation = pytest.importorskip("sentence_transformers.evaluation")
    a, b, scores, _ = pairs(rng)
    texts = {f"a{i}": row for i, row in enumerate(a)} | {f"b{i}": row for i, row in enumerate(b)}

    class Model:
        similarity_fn_name = "cosine"

        def encode(self, sentences, **_):
            return np.array([texts[s] for s in sentences])

    evaluator = evaluation.EmbeddingSimilarityEvaluator(
        [f"a{i}" for i in range(200)],
        [f"b{i}" for i in range(200)],
        scores.tolist(),
        similarity_fn_names=["cosine"],
    )
    evaluator.store_metrics_in_model_card_data = lambda *_: None
    assert evaluator(Model())["spearman_cosine"] == pytest.approx(sts_spearman(a, b, scores).spearman, abs=1e-9)


def test_published_number_of_a_real_encoder(shared_data):
    """all-MiniLM-L6-v2 on the STS-B test: 82.03 published."""
    stored = np.load(shared_data / "embeddings" / "stsb_test.npz")
    x = stored["minilm"].astype(np.float32)
    assert sts_spearman(x[stored["ia"]], x[stored["ib"]], stored["score"]).spearman == pytest.approx(
        0.8203, abs=2e-4
    )


def test_mistakes_are_named(rng):
    a, b, scores, _ = pairs(rng, 10)
    with pytest.raises(InvalidInput, match=r"^scores is 2 for every pair; a correlation is undefined\.$"):
        sts_spearman(a, b, np.full(10, 2.0))
    with pytest.raises(
        InvalidInput, match=r"^the cosines of a and b are 1 for every pair; a correlation is undefined\.$"
    ):
        sts_spearman(np.eye(10), np.eye(10), scores)
    with pytest.raises(InvalidInput, match=r"^scores has 9 values; needs 10\.$"):
        sts_spearman(a, b, scores[:9])
    with pytest.raises(InvalidInput, match=r"^a and b differ in rows: 10 and 9\.$"):
        sts_spearman(a, b[:9], scores)
