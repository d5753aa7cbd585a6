"""The linear probe and k-NN against scikit-learn, loops and mistakes."""

import numpy as np
import pytest
from tests import slow

from latentlink import InvalidInput
from latentlink.evaluate import knn_accuracy, linear_probe, neighbour_recall


@pytest.fixture(scope="module")
def digits():
    from sklearn.datasets import load_digits

    x, y = load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(x))
    x, y = x[order], y[order]
    return x[:500], y[:500], x[500:900], y[500:900]


@pytest.mark.parametrize("temperature", [None, 0.1, 0.01])
def test_knn_equals_scikit_learn(digits, temperature):
    from sklearn.neighbors import KNeighborsClassifier

    weights = "uniform" if temperature is None else lambda d: np.exp((1 - d) / temperature)
    model = KNeighborsClassifier(20, metric="cosine", weights=weights, algorithm="brute").fit(*digits[:2])
    result = knn_accuracy(*digits, k=20, temperature=temperature)
    assert (
        result.predictions == model.predict(digits[2])
    ).mean() > 0.997  # equal similarities at the 20th place
    assert result.accuracy == pytest.approx(model.score(*digits[2:]), abs=0.003)


def test_knn_equals_a_loop(digits):
    x, y, x_test, y_test = (part[:120] for part in digits)
    result = knn_accuracy(x, y, x_test, y_test, k=7, temperature=0.2)
    assert result.predictions.tolist() == [slow.knn_label(x, y, row, 7, 0.2) for row in x_test]


def test_recall_is_whether_any_neighbour_has_the_label(digits):
    x, y, x_test, y_test = (part[:100] for part in digits)
    found = neighbour_recall(x, y, x_test, y_test, ks=(1, 3, 50))
    for k, hits in found.items():
        assert hits.tolist() == [
            float(label in slow.nearest_labels(x, y, row, k)) for row, label in zip(x_test, y_test, strict=True)
        ]
    assert found[1].mean() == knn_accuracy(x, y, x_test, y_test, k=1).accuracy


def test_probe_equals_scikit_learn(digits):
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    result = linear_probe(*digits)
    model = make_pipeline(StandardScaler(), LogisticRegression(C=result.settings["strength"], max_iter=300))
    assert result.accuracy == model.fit(*digits[:2]).score(*digits[2:])
    assert result.settings["converged"]
    low, high = result.interval(0.95)
    assert low < result.accuracy < high
    assert high - low == pytest.approx(3.92 * np.sqrt(result.accuracy * (1 - result.accuracy) / 400), rel=0.05)


def test_the_choice_does_not_see_the_test_set(digits):
    x, y, x_test, y_test = digits
    wrong = linear_probe(x, y, x_test, np.roll(y_test, 1))
    assert wrong.settings == linear_probe(x, y, x_test, y_test).settings
    assert wrong.accuracy < 0.2


def test_the_validated_strength_is_the_best_of_its_grid(digits):
    result = linear_probe(*digits)
    scores = result.settings["validation_accuracy"]
    assert scores[result.settings["strength"]] == max(scores.values())
    assert min(scores) < result.settings["strength"] < max(scores)


def test_constant_columns_and_tensors(digits):
    torch = pytest.importorskip("torch")
    x, y, x_test, y_test = digits
    wide = (
        np.hstack([x, np.full((len(x), 1), 0.1)]),
        y,
        np.hstack([x_test, np.full((len(x_test), 1), 0.1)]),
        y_test,
    )
    expected = linear_probe(*digits, strengths=[0.1]).accuracy
    assert linear_probe(*wide, strengths=[0.1]).accuracy == expected
    assert linear_probe(*map(torch.as_tensor, wide), strengths=[0.1]).accuracy == expected


def test_labels_of_text_and_unknown_labels():
    x = np.vstack([np.eye(4) + 0.1, np.eye(4) + 0.2])
    y = np.array(["a", "a", "b", "b"] * 2)
    result = linear_probe(x, y, x[:3], ["a", "b", "never seen"])
    assert result.hits.tolist() == [1.0, 0.0, 0.0]
    assert result.predictions.tolist() == ["a", "a", "b"]


def test_a_probe_that_stops_early_says_so(digits):
    assert not linear_probe(*digits, strengths=[10.0], max_iter=2).settings["converged"]


def test_mistakes_are_named(digits):
    x, y, x_test, y_test = digits
    with pytest.raises(
        InvalidInput, match=r"^train_labels has shape \(3,\); needs \(500,\), one label for each row\.$"
    ):
        knn_accuracy(x, y[:3], x_test, y_test)
    with pytest.raises(InvalidInput, match=r"^k is 501; needs a whole number from 1 to 500\.$"):
        knn_accuracy(x, y, x_test, y_test, k=501)
    with pytest.raises(InvalidInput, match=r"^train_labels has 1 class, 3; needs at least 2\.$"):
        linear_probe(x, np.full(500, 3), x_test, y_test)
    with pytest.raises(InvalidInput, match=r"no class with two items, so no strength can be validated"):
        linear_probe(np.eye(3), [0, 1, 2], np.eye(3), [0, 1, 2])
    with pytest.raises(
        InvalidInput, match=r"^train_features and test_features differ in columns: 64 and 63\.$"
    ):
        linear_probe(x, y, x_test[:, 1:], y_test)
    with pytest.raises(InvalidInput, match=r"^temperature is 0; needs a number > 0\.$"):
        knn_accuracy(x, y, x_test, y_test, temperature=0)
