import numpy as np
import pytest

from latentlink import InvalidInput, RelativeSpace
from latentlink.spaces import audit, doctor, foreign_rows


@pytest.fixture
def home(rng):
    shared = rng.normal(size=(1200, 12))
    views = {n: shared @ rng.normal(size=(12, 20)) + 0.3 * rng.normal(size=(1200, 20)) + 2.0 for n in "ab"}
    space = RelativeSpace(10).fit({n: x[:1000] for n, x in views.items()}, ids=[f"i{j}" for j in range(1000)])
    return space, views


def spun(rng, d):
    return np.linalg.qr(rng.normal(size=(d, d)))[0]


CASES = {
    "same": lambda x, rng: x + 0.001 * rng.normal(size=x.shape),
    "scaled": lambda x, rng: 3 * x,
    "sign-flipped": lambda x, rng: -x,
    "permuted": lambda x, rng: x[:, rng.permutation(x.shape[1])],
    "rotated": lambda x, rng: x @ spun(rng, x.shape[1]),
    "other": lambda x, rng: rng.normal(size=x.shape),
}


@pytest.mark.parametrize("story", CASES)
def test_probes_tell_all_six_stories(home, rng, story):
    space, views = home
    assert space.probe_ids.tolist() == [f"i{j}" for j in range(64)]
    found = doctor(space, CASES[story](views["a"][:64], rng), source="a", probes=True)
    assert found.verdict == story


@pytest.mark.parametrize(
    ("story", "verdict"),
    [("same", "same"), ("scaled", "scaled"), ("sign-flipped", "sign-flipped"), ("other", "other")],
)
def test_without_probes_the_simple_stories_are_told(home, rng, story, verdict):
    space, views = home
    assert doctor(space, CASES[story](views["a"][1000:], rng), source="a").verdict == verdict


def test_another_encoder_is_foreign_and_home_is_not(home):
    space, views = home
    assert foreign_rows(space, views["a"][1000:], source="a").mean() < 0.03
    assert foreign_rows(space, views["b"][1000:], source="a").mean() > 0.9


def test_audit_finds_a_mixed_population(home):
    space, views = home
    mixed = np.vstack([views["a"][1000:], views["b"][1000:1050]])
    found = audit(mixed, space=space, source="a")
    assert np.isin(np.arange(200, 250), found.foreign_rows).mean() > 0.9
    assert not found.clean
    assert audit(views["a"][1000:], space=space, source="a").clean


def test_audit_finds_broken_rows():
    x = np.arange(12.0).reshape(6, 2) + 1
    x[1, 0], x[2, 1], x[3], x[5] = np.nan, np.inf, 0, x[0]
    found = audit(x, ids=[1, 2, 3, 4, 5, 1])
    rows = (found.nan_rows, found.infinite_rows, found.zero_rows, found.duplicate_rows, found.duplicate_ids)
    assert [r.tolist() for r in rows] == [[1], [2], [3], [5], [1]]
    assert found.to_dict()["clean"] is False


def test_mistakes_are_named(home):
    space, views = home
    with pytest.raises(InvalidInput, match=r"source is missing; needs one of 'a', 'b'."):
        audit(views["a"], space=space)
    with pytest.raises(InvalidInput, match="embeddings has 9 rows; the space keeps 64 probes"):
        doctor(space, views["a"][:9], source="a", probes=True)
    with pytest.raises(InvalidInput, match=r"false_alarms is 0.2; needs one of 0.05, 0.01, 0.001"):
        foreign_rows(space, views["a"], source="a", false_alarms=0.2)


@pytest.mark.medium
def test_real_encoders(shared_data):
    z = np.load(shared_data / "embeddings" / "stsb_pool3000.npz")
    data = {name: z[name].astype(np.float32) for name in ("minilm", "e5", "use")}
    space = RelativeSpace().fit({name: x[:2000] for name, x in data.items()})
    for name in data:
        assert foreign_rows(space, data[name][2000:], source=name).mean() < 0.03
    assert foreign_rows(space, data["e5"][2000:], source="minilm").mean() > 0.99
    assert doctor(space, data["minilm"][2000:], source="minilm").verdict == "same"
    assert doctor(space, data["e5"][2000:], source="minilm").verdict == "other"
