"""The same jobs on every real engine: PostgreSQL with pgvector, Qdrant's engine, Qdrant's client."""

import json

import numpy as np
import pytest

from latentlink import InvalidInput
from latentlink.io import write_vectors
from latentlink.search import Index
from latentlink.search.stores import PgVector, StoredIndex
from latentlink.spaces import RelativeSpace

pytestmark = pytest.mark.stores


@pytest.fixture(scope="module")
def world():
    rng = np.random.default_rng(0)
    hidden = rng.standard_normal((400, 8))
    old, new = hidden @ rng.standard_normal((8, 12)) + 1, hidden @ rng.standard_normal((8, 16)) - 2
    return RelativeSpace(n_anchors=8).fit({"old": old[:300], "new": new[:300]}), old, new


@pytest.mark.parametrize("kind", ["text", "numbers"])
def test_either_encoder_finds_what_the_index_finds(store, world, kind):
    space, old, new = world
    ids = np.arange(400) if kind == "numbers" else np.array([f"doc {i}" for i in range(400)])
    stored = StoredIndex.create(store, "shared", space=space, dimension=8)
    stored.add(old, source="old", ids=ids)
    store.finish("shared")
    assert len(stored) == 400
    expected, expected_ids = Index.build(old, space=space, source="old", ids=ids).search(new, source="new", k=5)
    similarities, found = stored.search(new, source="new", k=5)
    assert found.dtype.kind == ids.dtype.kind
    assert (found == expected_ids).mean() > 0.97
    np.testing.assert_allclose(similarities[:, 0], expected[:, 0], atol=1e-4)


def test_the_record_travels_and_foreigners_are_refused(store, world, rng):
    space, old, new = world
    StoredIndex.create(store, "shared", space=space, dimension=8).add(old, source="old", ids=np.arange(400))
    stored = StoredIndex.open(store, "shared", space=space)
    with pytest.raises(InvalidInput, match="queries have 16 columns but 'old' in this space has 12"):
        stored.search(new, source="old")
    with pytest.raises(InvalidInput, match="do not look like it"):
        stored.search(old[:32, rng.permutation(12)], source="old")
    other = RelativeSpace(n_anchors=8).fit({"old": old[100:], "new": new[100:]})
    with pytest.raises(
        InvalidInput, match="field 'shared' was built in another space: the fingerprint of old, new"
    ):
        StoredIndex.open(store, "shared", space=other)
    with pytest.raises(InvalidInput, match="field 'shared' exists; open it, or pick another name"):
        StoredIndex.create(store, "shared", space=space, dimension=8)
    with pytest.raises(InvalidInput, match="field 'nothing' is not in the store; create it first"):
        StoredIndex.open(store, "nothing")


def test_cut_over_and_back(store, world):
    space, old, _ = world
    plain = StoredIndex.create(store, "old_model", source="old", dimension=12)
    plain.add(old, source="old", ids=np.arange(400))
    assert plain.cut_over() is None
    before = plain.search(old[:9], source="old", k=3)
    shared = StoredIndex.create(store, "shared", space=space, dimension=8)
    shared.add(old, source="old", ids=np.arange(400))
    assert shared.cut_over() == "old_model"
    assert StoredIndex.open(store, space=space).field == "shared"
    store.point("old_model")
    back = StoredIndex.open(store)
    assert back.field == "old_model"
    for a, b in zip(before, back.search(old[:9], source="old", k=3), strict=True):
        np.testing.assert_array_equal(a, b)


def test_loading_resumes_after_the_last_whole_file(store, world, tmp_path):
    space, old, _ = world
    for i in range(4):
        rows = np.arange(100 * i, 100 * i + 100)
        write_vectors(tmp_path / f"part-{i}.arrow", old[rows].astype(np.float32), ids=rows)
    parts = sorted(tmp_path.glob("part-*.arrow"))
    stored = StoredIndex.create(store, "shared", space=space, dimension=8)
    broken = tmp_path / "part-9.arrow"
    broken.write_bytes(parts[3].read_bytes()[:-20])
    with pytest.raises(InvalidInput):
        stored.load([*parts[:2], broken], source="old", progress=tmp_path / "progress.json")
    assert len(json.loads((tmp_path / "progress.json").read_text())) == 2
    assert stored.load(parts, source="old", progress=tmp_path / "progress.json") == 400
    assert stored.load(parts, source="old", progress=tmp_path / "progress.json") == 400


def test_wide_vectors_are_halves_in_pgvector(server, rng):
    psycopg = pytest.importorskip("psycopg")
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute("DROP TABLE IF EXISTS wide CASCADE")
        store = PgVector(connection, "wide")
        x = rng.standard_normal((30, 2500))
        stored = StoredIndex.create(store, "big", source="a", dimension=2500)
        stored.add(x, source="a", ids=np.arange(30))
        store.finish("big")
        kind = connection.execute(
            "SELECT format_type(atttypid, atttypmod) FROM pg_attribute WHERE attname = 'big'"
        )
        assert kind.fetchone()[0] == "halfvec(2500)"
        np.testing.assert_array_equal(stored.search(x, source="a", k=1)[1][:, 0], np.arange(30))
        with pytest.raises(InvalidInput, match="dimension is 4001; needs a whole number from 1 to 4000"):
            StoredIndex.create(store, "huge", source="a", dimension=4001)


def test_readers_of_the_view_see_the_current_field(server, world):
    psycopg = pytest.importorskip("psycopg")
    _, old, _ = world
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute("DROP TABLE IF EXISTS seen CASCADE")
        stored = StoredIndex.create(PgVector(connection, "seen"), "first", source="old", dimension=12)
        stored.add(old, source="old", ids=np.arange(400))
        stored.cut_over()
        assert connection.execute("SELECT count(embedding) FROM seen_current").fetchone()[0] == 400
