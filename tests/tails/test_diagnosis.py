"""The whole diagnosis, on tensors as on arrays, and on real features."""

import numpy as np
import pytest

from latentlink.tails import diagnose


def test_tensors_say_what_arrays_say():
    torch = pytest.importorskip("torch")
    x = np.random.default_rng(0).normal(size=(200, 5))
    y = x + 0.3 * np.random.default_rng(1).normal(size=x.shape)
    options = {"tail_size": 32, "n_queries": 100}
    found, other = (diagnose(kind(x), kind(y), **options) for kind in (np.asarray, torch.as_tensor))
    a, b = found.record(), other.record()
    assert a["verdict"] == b["verdict"]
    np.testing.assert_allclose(a["endpoint_held"]["xi"], b["endpoint_held"]["xi"], rtol=1e-9)
    np.testing.assert_allclose(a["pooled"]["xi"], b["pooled"]["xi"], rtol=1e-6)
    np.testing.assert_allclose(a["link"]["blend"], b["link"]["blend"], atol=1e-6)
    assert str(found).startswith("100 queries, the 32 largest of 199 similarities each")


def test_labels_are_no_candidates():
    x = np.random.default_rng(0).normal(size=(300, 5))
    found = diagnose(x, same=np.arange(300) // 3, tail_size=32)
    assert found.record()["excluded"]["positives"] == 600


@pytest.mark.medium
def test_real_features_are_mildly_bounded(shared_data):
    """The page docs/real-tails.md: nothing near the paper's xi of -0.39 on CIFAR-100 features."""
    with np.load(shared_data / "embeddings" / "cifar100_effnetlite.npz") as stored:
        record = diagnose(stored["lite0"]).record()
    assert record["verdict"]["call"] == "bounded"
    assert -0.10 < record["endpoint_held"]["xi"] < -0.07
    assert record["endpoint_free"]["xi_interval"][0] > -0.15
