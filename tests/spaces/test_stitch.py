import numpy as np
import pytest

from latentlink import InvalidInput, RelativeSpace
from latentlink.spaces import Head, carry_threshold, measure_stitch
from latentlink.spaces.stitch import macro_f1


@pytest.fixture
def task(rng):
    y = rng.integers(0, 3, 600)
    shared = np.eye(3)[y] @ rng.normal(size=(3, 8)) * 2 + rng.normal(size=(600, 8))
    views = {n: shared @ rng.normal(size=(8, 10)) + 0.02 * rng.normal(size=(600, 10)) for n in "ab"}
    return y, {n: x[:400] for n, x in views.items()}, {n: x[400:] for n, x in views.items()}


@pytest.mark.parametrize("kind", ["linear", "mlp"])
def test_one_head_serves_every_encoder(task, kind):
    y, train, test = task
    space = RelativeSpace(8).fit(train)
    report = measure_stitch(space, train, y[:400], test, y[400:], source="a", kind=kind)
    assert report.stitched["b"] > min(report.own.values()) - 0.05
    assert report.intervals["b"].low <= report.stitched["b"] <= report.intervals["b"].high


def test_macro_f1_agrees_with_sklearn(rng):
    from sklearn.metrics import f1_score

    y, p = rng.integers(0, 4, 100), rng.integers(0, 4, 100)
    assert macro_f1(y, p) == pytest.approx(f1_score(y, p, average="macro"))


@pytest.mark.parametrize("kind", ["linear", "mlp"])
def test_a_prediction_does_not_depend_on_its_batch(task, kind):
    y, train, test = task
    head = Head(kind).fit(train["a"], y[:400])
    together = head.predict(test["a"])
    assert [head.predict(row[None])[0] for row in test["a"]] == together.tolist()


def test_thresholds_keep_their_quantile(rng):
    a, b = rng.normal(size=5000), 3 * rng.normal(size=5000) + 1
    carried = carry_threshold(0.5, a, b)
    assert (b > carried).mean() == pytest.approx((a > 0.5).mean(), abs=1e-3)


def test_wrong_labels_are_named(rng):
    with pytest.raises(InvalidInput, match=r"labels has shape \(3,\); needs \(5,\)."):
        Head().fit(rng.normal(size=(5, 2)), [0, 1, 2])
