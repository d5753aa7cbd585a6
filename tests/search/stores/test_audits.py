"""Audit and doctor on the real engines: what a store lets in is found again."""

import numpy as np
import pytest

from latentlink import InvalidInput
from latentlink.search.stores import PgVector, Qdrant, QdrantEdge, StoredIndex
from latentlink.spaces import RelativeSpace

pytestmark = pytest.mark.stores


@pytest.fixture(scope="module")
def world():
    """Two encoders of 12 columns, each in a narrow cone of its own as real ones are."""
    rng = np.random.default_rng(0)
    hidden = rng.standard_normal((900, 8))
    views = {}
    for name in ["old", "new"]:
        x = (
            hidden @ rng.standard_normal((8, 12))
            + 0.3 * rng.standard_normal((900, 12))
            + rng.normal(size=12) * 4
        )
        views[name] = (x / np.linalg.norm(x, axis=1, keepdims=True)).astype(np.float32)
    return RelativeSpace(n_anchors=8).fit({name: x[:600] for name, x in views.items()}), views


def write(store, field, ids, vectors):
    """Write raw vectors past every door of this package."""
    store.upsert(field, ids, np.asarray(vectors, dtype=np.float32))


@pytest.mark.parametrize("batch_rows", [7, 4096])
def test_a_scan_gives_back_what_was_written(store, world, batch_rows):
    _, views = world
    stored = StoredIndex.create(store, "plain", source="old", dimension=12)
    other = StoredIndex.create(store, "other", source="new", dimension=12)
    names = [f"doc {i}" for i in range(50)]
    stored.add(views["old"][:50], source="old", ids=names)
    other.add(views["new"][40:60], source="new", ids=np.arange(20))
    read = list(store.scan("plain", batch_rows))
    assert max(len(ids) for ids, _ in read) <= batch_rows
    found = {name: vector for ids, vectors in read for name, vector in zip(ids, vectors, strict=True)}
    assert sorted(found) == sorted(names)
    np.testing.assert_allclose([found[name] for name in names], views["old"][:50], atol=1e-6)
    assert sorted(name for ids, _ in store.scan("other", batch_rows) for name in ids) == list(range(20))


def test_a_clean_field_is_clean_and_of_its_encoder(store, world):
    space, views = world
    stored = StoredIndex.create(store, "plain", source="old", dimension=12)
    stored.add(views["old"][600:], source="old", ids=np.arange(300))
    found = stored.audit(space=space, batch_rows=64)
    assert (found.n_rows, found.dimension, found.clean) == (300, 12, True)
    assert found.looked_for == ("other than 'old'",)
    assert stored.doctor(space, batch_rows=64).verdict == "same"


def test_a_mixed_population_is_named_row_by_row(store, world):
    space, views = world
    stored = StoredIndex.create(store, "plain", source="old", dimension=12)
    stored.add(views["old"][600:], source="old", ids=np.arange(300))
    stored.add(views["new"][600:640], source="old", ids=np.arange(1000, 1040))  # a worker with the wrong model
    found = stored.audit(space=space, batch_rows=64)
    assert np.isin(np.arange(1000, 1040), found.foreign_rows).mean() > 0.9
    assert np.isin(np.arange(300), found.foreign_rows).mean() < 0.02
    assert not found.clean
    assert stored.audit().looked_for == ()  # without a space there is nothing to compare with


def test_doctor_tells_a_field_of_another_encoder(store, world):
    space, views = world
    stored = StoredIndex.create(store, "plain", source="old", dimension=12)
    stored.add(views["new"][600:], source="old", ids=np.arange(300))
    assert stored.doctor(space).verdict == "other"
    with pytest.raises(InvalidInput, match="source is 'old'; needs one of 'a', 'b'"):
        stored.doctor(RelativeSpace(4).fit(dict.fromkeys("ab", views["old"][:100])))


def test_vectors_encoded_as_another_encoders_are_found_in_a_shared_field(store, world):
    space, views = world
    stored = StoredIndex.create(store, "shared", space=space, dimension=8)
    stored.add(views["old"][600:], source="old", ids=np.arange(300))
    assert stored.audit().clean
    stored.add(views["new"][600:640], source="old", ids=np.arange(1000, 1040), check=False)
    found = stored.audit(batch_rows=50)
    assert np.isin(np.arange(1000, 1040), found.foreign_rows).mean() > 0.9
    assert np.isin(np.arange(300), found.foreign_rows).mean() < 0.02
    assert any(what.startswith("'new' taken for 'old'") for what in found.looked_for)
    with pytest.raises(InvalidInput, match="field 'shared' holds vectors of a shared space; `audit` looks"):
        stored.doctor(space)


def test_zero_and_repeated_rows_are_found(store, world):
    _, views = world
    stored = StoredIndex.create(store, "plain", source="old", dimension=12)
    stored.add(views["old"][:40], source="old", ids=[f"doc {i}" for i in range(40)])
    stored.add(views["old"][3:4], source="old", ids=["twin"])
    write(store, "plain", ["nothing"], [np.zeros(12)])
    found = stored.audit(batch_rows=16)
    assert found.zero_rows.tolist() == ["nothing"]
    assert found.duplicate_rows.size == 1
    assert found.duplicate_rows[0] in ("twin", "doc 3")
    assert found.duplicate_ids.size == 0


def test_nan_is_found_where_the_engine_lets_it_in(store, world):
    _, views = world
    stored = StoredIndex.create(store, "plain", source="old", dimension=12)
    stored.add(views["old"][:40], source="old", ids=np.arange(40))
    bad = views["old"][:2].copy()
    bad[0, 3], bad[1, 5] = np.nan, np.inf
    if isinstance(store, PgVector):
        psycopg = pytest.importorskip("psycopg")
        with pytest.raises(psycopg.errors.DataException, match="NaN not allowed in vector"):
            write(store, "plain", [100], bad[:1])
        assert stored.audit().clean
        return
    if isinstance(store, Qdrant):
        with pytest.raises(ValueError, match="Vector contains NaN values"):
            write(store, "plain", [100], bad[:1])
    else:
        write(store, "plain", [100], bad[:1])
    write(store, "plain", [101], bad[1:])
    found = stored.audit(batch_rows=16)
    nan = [] if isinstance(store, Qdrant) else [100]
    assert (found.nan_rows.tolist(), found.infinite_rows.tolist(), found.clean) == (nan, [101], False)
    assert found.n_rows == 41 + len(nan)


def test_ids_that_another_program_wrote_twice_are_found(world):
    client = pytest.importorskip("qdrant_client")
    _, views = world
    with_client = client.QdrantClient(":memory:")
    stored = StoredIndex.create(Qdrant(with_client), "plain", source="old", dimension=12)
    stored.add(views["old"][:10], source="old", ids=[f"doc {i}" for i in range(10)])
    point = client.models.PointStruct(
        id=7, vector={"plain": views["old"][20].tolist()}, payload={"id": "doc 4"}
    )
    with_client.upsert("items_plain", [point], wait=True)
    found = stored.audit(batch_rows=4)
    assert (found.duplicate_ids.tolist(), found.clean) == (["doc 4"], False)
    with_client.close()


def test_the_verbs_on_a_store(run, world, server, tmp_path):
    psycopg = pytest.importorskip("psycopg")
    pytest.importorskip("qdrant_edge")
    space, views = world
    space.save(tmp_path / "space")
    edge = QdrantEdge(tmp_path / "edge")
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute("DROP TABLE IF EXISTS watched CASCADE")
        for place in [PgVector(connection, "watched"), edge]:
            stored = StoredIndex.create(place, "plain", source="old", dimension=12)
            stored.add(views["old"][600:], source="old", ids=np.arange(300))
            stored.cut_over()
    edge.close()
    for address in [server, str(tmp_path / "edge")]:
        at = ["--store", address, "--table", "watched"]
        code, (out, _) = run("audit", *at, "--space", tmp_path / "space")
        assert (code, "300 rows of 12 dimensions" in out) == (0, True)
        code, (out, _) = run("doctor", tmp_path / "space", *at, "--field", "plain")
        assert (code, out.startswith("same: ")) == (0, True)
    again = QdrantEdge(tmp_path / "edge")
    StoredIndex.open(again, "plain").add(views["new"][:100], source="old", ids=np.arange(1000, 1100))
    again.close()
    code, (out, err) = run("audit", "--store", tmp_path / "edge", "--space", tmp_path / "space")
    assert (code, "field 'plain' is not clean" in err) == (1, True)
    assert "rows of 12 dimensions" in out
