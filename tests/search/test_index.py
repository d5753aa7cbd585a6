import numpy as np
import pytest

from latentlink import InvalidInput
from latentlink.search import Index


class Rotations:
    """A stand-in for RelativeSpace: each encoder is a linear map of the same hidden vectors."""

    def __init__(self, maps):
        self.maps = maps
        self.names = list(maps)

    def encode(self, vectors, *, source):
        return vectors @ self.maps[source]

    def dimension(self, name):
        return self.maps[name].shape[0]

    def fingerprint(self, name):
        return f"{name}:{self.maps[name].sum():.6f}"


@pytest.fixture
def world(rng):
    """(space, vectors of 300 items by "old" of 12 columns and "new" of 16)."""
    hidden = rng.standard_normal((300, 8))
    old, new = rng.standard_normal((8, 12)), rng.standard_normal((8, 16))
    space = Rotations({"old": np.linalg.pinv(old), "new": np.linalg.pinv(new)})
    return space, hidden @ old, hidden @ new


@pytest.mark.parametrize("kind", ["exact", "flat", "hnsw"])
def test_a_query_of_one_encoder_finds_its_item_by_the_other(world, kind):
    space, old, new = world
    ids = np.array([f"item {i}" for i in range(len(old))])
    index = Index.build(old, space=space, source="old", ids=ids, kind=kind)
    similarities, found = index.search(new, source="new", k=5)
    assert len(index) == 300
    assert (found[:, 0] == ids).mean() > 0.99
    assert similarities.shape == found.shape == (300, 5)
    assert (np.diff(similarities, axis=1) <= 0).all()
    if kind != "hnsw":
        np.testing.assert_allclose(similarities[:, 0], 1, atol=1e-5)


def test_exact_and_flat_are_the_argsort(world):
    space, old, new = world
    a, b = space.encode(new, source="new"), space.encode(old, source="old")
    a, b = a / np.linalg.norm(a, axis=1, keepdims=True), b / np.linalg.norm(b, axis=1, keepdims=True)
    expected = np.argsort(-(a @ b.T), axis=1)[:, :10]
    for kind in ["exact", "flat"]:
        _, found = Index.build(old, space=space, source="old", kind=kind).search(new, source="new")
        assert (found == expected).mean() > 0.999


@pytest.mark.parametrize("kind", ["exact", "flat", "hnsw"])
def test_round_trip(world, tmp_path, kind):
    space, old, new = world
    index = Index.build(old, space=space, source="old", kind=kind)
    index.save(tmp_path / "index")
    loaded = Index.load(tmp_path / "index", space=space)
    for a, b in zip(index.search(new, source="new"), loaded.search(new, source="new"), strict=True):
        np.testing.assert_array_equal(a, b)


def test_another_space_is_refused_on_load(world, tmp_path):
    space, old, _ = world
    Index.build(old, space=space, source="old").save(tmp_path / "index")
    other = Rotations({"old": space.maps["old"], "new": 2 * space.maps["new"]})
    with pytest.raises(InvalidInput, match="was built in another space: the fingerprint of new differs"):
        Index.load(tmp_path / "index", space=other)
    with pytest.raises(InvalidInput, match="space is None but"):
        Index.load(tmp_path / "index")


def test_a_flipped_bit_is_seen(world, tmp_path):
    _, old, _ = world
    Index.build(old, source="old").save(tmp_path / "index")
    file = tmp_path / "index" / "vectors.npy"
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.write_bytes(data)
    with pytest.raises(
        InvalidInput, match=r"vectors.npy differs from its checksum; restore or build it again."
    ):
        Index.load(tmp_path / "index")


def test_declared_foreigners_are_refused(world):
    space, old, new = world
    index = Index.build(old, source="old")
    with pytest.raises(InvalidInput) as error:
        index.search(new, source="new")
    assert str(error.value) == (
        "queries are declared as 'new' but the index holds vectors of 'old'; fit a RelativeSpace on pairs of "
        "both and pass space.translate(queries, source='new', target='old')."
    )
    shared = Index.build(old, space=space, source="old")
    with pytest.raises(InvalidInput, match="source is 'third'; needs one of 'old', 'new'"):
        shared.search(new, source="third")
    with pytest.raises(InvalidInput) as error:
        shared.search(new, source="old")
    assert str(error.value) == (
        "queries have 16 columns but 'old' in this space has 12; are they of another encoder?"
    )
    with pytest.raises(InvalidInput, match="source is missing"):
        Index.build(old)
