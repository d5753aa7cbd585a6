"""A batch of 32 vectors of another encoder is refused; the encoder's own are not: seven real encoders."""

import numpy as np
import pytest

from latentlink import InvalidInput
from latentlink.search.gate import Gate, refusals
from latentlink.spaces import RelativeSpace

ENCODERS = ["minilm", "use", "e5", "wordllama", "glove50", "tokenlearn64", "mpnet"]


@pytest.fixture(scope="module")
def pool(shared_data):
    with np.load(shared_data / "embeddings" / "stsb_pool3000.npz") as file:
        return {name: file[name].astype(np.float32) for name in ENCODERS}


def door(pool, name):
    other = "use" if name == "minilm" else "minilm"
    space = RelativeSpace(n_anchors=32).fit({n: pool[n][:2000] for n in [name, other]})
    return Gate(space, None)


@pytest.mark.medium
@pytest.mark.parametrize("name", ENCODERS)
def test_strangers_are_refused_and_kin_admitted(pool, rng, name):
    gate, x = door(pool, name), pool[name][2000:]
    d = x.shape[1]
    turn = np.linalg.qr(rng.standard_normal((d, d)))[0].astype(np.float32)
    strange = {
        "permuted": lambda y: y[:, rng.permutation(d)],
        "signs": lambda y: y * rng.choice([-1, 1], d).astype(np.float32),
        "negated": lambda y: -y,
        "rotated": lambda y: y @ turn,
    }
    assert refusals(gate, x, name, batches=100).mean() <= 0.01
    detected = {key: refusals(gate, x, name, batches=100, alter=alter).mean() for key, alter in strange.items()}
    assert min(detected.values()) >= 0.99, detected


@pytest.mark.medium
def test_minilm_and_e5_of_equal_dimension_are_told_apart(pool):
    for name, other in [("minilm", "e5"), ("e5", "minilm")]:
        assert refusals(door(pool, name), pool[other][2000:], name, batches=100).mean() >= 0.99


def test_refusals_are_those_of_the_door(rng):
    hidden = rng.standard_normal((400, 6))
    views = {name: hidden @ rng.standard_normal((6, 10)) + 1 for name in "ab"}
    gate = Gate(RelativeSpace(n_anchors=6).fit({name: x[:300] for name, x in views.items()}), None)
    mixed = np.concatenate([views["a"][300:], views["b"][300:]])
    picks = np.random.default_rng(3)
    expected = []
    for _ in range(20):
        try:
            gate.admit("x", mixed[picks.choice(200, 8, replace=False)], "a")
            expected.append(False)
        except InvalidInput:
            expected.append(True)
    assert refusals(gate, mixed, "a", rows=8, batches=20, seed=3).tolist() == expected


def test_the_refusal_says_what_was_done(rng):
    hidden = rng.standard_normal((400, 6))
    views = {name: hidden @ rng.standard_normal((6, 10)) + 3 for name in "ab"}
    gate = Gate(RelativeSpace(n_anchors=6).fit({name: x[:300] for name, x in views.items()}), None)
    a, b = views["a"][300:], views["b"][300:]
    cases = {
        "negate them": -a,
        "their norm is .* times the fitted one .100 rows checked.; divide them by that": 10 * a,
        "look like vectors of 'b'.*pass source='b'": b,
        "encode the texts with the right encoder": rng.standard_normal(a.shape) * np.linalg.norm(a) / 31,
    }
    for message, x in cases.items():
        with pytest.raises(InvalidInput, match=message):
            gate.admit("queries", x, "a")
    assert gate.admit("queries", a, "a") is not None
