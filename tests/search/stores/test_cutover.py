"""A migration served by a real engine: filled, cut over, rolled back, and the old field as it was."""

import shutil
from contextlib import closing

import numpy as np
import pytest

from latentlink import InvalidInput
from latentlink.io import write_vectors
from latentlink.search import migrate
from latentlink.search.stores import QdrantEdge, StoredIndex, open_store

pytestmark = pytest.mark.stores


@pytest.fixture(scope="module")
def world():
    rng = np.random.default_rng(0)
    hidden = rng.standard_normal((600, 8))
    a, b = rng.standard_normal((8, 12)), rng.standard_normal((8, 16))
    queries = hidden[500:] + 0.1 * rng.standard_normal((100, 8))
    return hidden @ a, hidden @ b, queries @ a, queries @ b


def begin(world, folder, direction="corpus"):
    """A migration whose gate has passed, with its corpus converted but for the query side."""
    old, new, _, queries = world
    state = migrate.fit(
        folder / "m", old[:400], new[:400], old="old", new="e5/v2", direction=direction, n_anchors=8
    )
    if direction != "query":
        write_vectors(folder / "old.arrow", old.astype(np.float32), ids=np.arange(600))
        state, _ = migrate.convert_corpus(state, [folder / "old.arrow"], shard_rows=256, batch_rows=64)
    real = {"corpus_old": old, "corpus_new": new, "queries_new": queries, "relevant": np.arange(500, 600)}
    state, _ = migrate.run_shadow(state, **real)
    return migrate.gate(state, retention=0.9)[0]


def serve_old(store, world):
    """Put the old vectors into the store, as it stands before any migration."""
    index = StoredIndex.create(store, "minilm", source="old", dimension=12)
    index.add(world[0], source="old", ids=np.arange(600))
    store.finish("minilm")
    index.cut_over()
    return index


@pytest.mark.parametrize("direction", ["corpus", "shared"])
def test_a_store_is_cut_over_and_rolled_back(store, world, tmp_path, direction):
    _, _, queries_old, queries_new = world
    before = serve_old(store, world).search(queries_old, source="old", k=5)
    state = begin(world, tmp_path, direction)
    state, index = migrate.fill_store(state, store)
    field = {"corpus": "e5_v2", "shared": "shared"}[direction]
    assert (index.field, len(index)) == (field, 600)
    assert migrate.serves(state, store) == ("minilm", True)
    with pytest.raises(InvalidInput, match=f"field '{field}' of a store was filled; pass the store"):
        migrate.cut_over(state)
    state = migrate.cut_over(state, store=store)
    assert (state.serving, migrate.serves(state, store)) == ("new", (field, True))
    space = migrate.folder.load(state) if direction == "shared" else None
    found = StoredIndex.open(store, space=space).search(queries_new, source="e5/v2", k=5)[1]
    assert (found == np.arange(500, 600)[:, None]).any(axis=1).mean() > 0.95
    with pytest.raises(InvalidInput, match=f"made a store serve '{field}'; pass the store"):
        migrate.roll_back(state)
    state = migrate.roll_back(state, store=store)
    assert (state.serving, migrate.serves(state, store)) == ("old", ("minilm", True))
    after = StoredIndex.open(store).search(queries_old, source="old", k=5)
    for a, b in zip(before, after, strict=True):
        np.testing.assert_array_equal(a, b)
    with pytest.raises(InvalidInput, match="the old side is served; there is nothing to roll back"):
        migrate.roll_back(state, store=store)
    assert migrate.cut_over(state, store=store).serving == "new"  # the field still stands


def test_a_fill_resumes_and_a_foreign_field_is_left_alone(store, world, tmp_path, monkeypatch):
    serve_old(store, world)
    state = begin(world, tmp_path)
    upsert, calls = type(store).upsert, []

    def dying(self, *arguments):
        calls.append(0)
        if len(calls) == 3:
            raise KeyboardInterrupt
        upsert(self, *arguments)

    monkeypatch.setattr(type(store), "upsert", dying)
    with pytest.raises(KeyboardInterrupt):
        migrate.fill_store(state, store)
    assert migrate.open_migration(tmp_path / "m") == state
    assert store.current() == "minilm"
    monkeypatch.setattr(type(store), "upsert", upsert)
    state, index = migrate.fill_store(state, store)
    assert len(index) == 600
    assert migrate.fill_store(state, store)[1].field == "e5_v2"  # again: nothing to do
    with pytest.raises(InvalidInput, match="field 'minilm' exists; open it, or pick another name"):
        migrate.fill_store(migrate.open_migration(tmp_path / "m"), store, field="minilm")


def test_a_cut_over_that_died_before_it_was_recorded_is_done_again(store, world, tmp_path):
    serve_old(store, world)
    state, index = migrate.fill_store(begin(world, tmp_path), store)
    index.cut_over()  # the name moves, and the process dies
    assert migrate.serves(state, store) == ("e5_v2", False)
    state = migrate.cut_over(state, store=store)
    assert migrate.roll_back(state, store=store).events[-1]["field"] == "minilm"
    assert store.current() == "minilm"


def test_a_name_that_somebody_else_has_moved_stays(store, world, tmp_path):
    old_index = serve_old(store, world)
    state, _ = migrate.fill_store(begin(world, tmp_path), store)
    state = migrate.cut_over(state, store=store)
    third = StoredIndex.create(store, "third", source="old", dimension=12)
    third.add(world[0], source="old", ids=np.arange(600))
    third.cut_over()
    with pytest.raises(InvalidInput, match="the store serves 'third' and not 'e5_v2', which the cut-over set"):
        migrate.roll_back(state, store=store)
    assert (store.current(), migrate.open_migration(tmp_path / "m").serving) == ("third", "new")
    old_index.cut_over()
    assert migrate.roll_back(state, store=store).serving == "old"


def test_a_store_that_served_nothing_serves_nothing_again(store, world, tmp_path):
    state, _ = migrate.fill_store(begin(world, tmp_path), store)
    state = migrate.cut_over(state, store=store)
    assert store.current() == "e5_v2"
    state = migrate.roll_back(state, store=store)
    assert store.current() is None
    assert migrate.serves(state, store) == (None, True)


def test_the_query_side_leaves_the_store_alone(store, world, tmp_path):
    serve_old(store, world)
    state = begin(world, tmp_path, "query")
    for job in [migrate.fill_store, lambda m, s: migrate.cut_over(m, store=s)]:
        with pytest.raises(InvalidInput, match='direction is "query": the store keeps serving the old vectors'):
            job(state, store)
    assert migrate.cut_over(state).serving == "new"


@pytest.mark.parametrize("engine", ["pgvector", "edge"])
def test_the_verbs_work_on_an_address(request, world, tmp_path, run, engine):
    """Each command connects anew: what one did, the next one sees."""
    if engine == "edge":
        pytest.importorskip("qdrant_edge")
        address = str(tmp_path / "edge")
        with closing(QdrantEdge(address)) as store:
            serve_old(store, world)
    else:
        psycopg = pytest.importorskip("psycopg")
        address = request.getfixturevalue("server")
        with psycopg.connect(address, autocommit=True) as connection:
            connection.execute("DROP TABLE IF EXISTS items CASCADE")
        with open_store(address) as store:
            serve_old(store, world)
    begin(world, tmp_path)
    at = ["--store", address]
    convert = ["migrate", "convert", tmp_path / "m", tmp_path / "old.arrow", *at]
    code, shown = run(*convert)
    assert code == 2  # the shards that stand there have other borders
    assert "holds another conversion (shard_rows, batch_rows differ)" in shown.err
    shutil.rmtree(tmp_path / "m" / "converted")
    assert run(*convert)[0] == 0
    code, shown = run("migrate", "cutover", tmp_path / "m", *at)
    assert (code, "the gate has not passed since the last change" in shown.err) == (2, True)
    assert run("migrate", "gate", tmp_path / "m")[0] == 0
    for verb, field in [("cutover", "e5_v2"), ("rollback", "minilm")]:
        assert run("migrate", verb, tmp_path / "m", *at)[0] == 0
        code, shown = run("migrate", "status", tmp_path / "m", *at)
        assert (code, shown.out.splitlines()[-1]) == (0, f"the store serves field {field}")
    with open_store(address) as store:
        StoredIndex.open(store, "e5_v2").cut_over()
    code, shown = run("migrate", "status", tmp_path / "m", *at)
    assert code == 1
    assert "the store serves field e5_v2, which is not what this migration has on record" in shown.err


@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("nowhere", "store is 'nowhere'; needs postgresql://…, http://… of Qdrant, or a folder"),
        ("postgresql://127.0.0.1:1/x?connect_timeout=2", "PostgreSQL does not answer"),
        ("http://127.0.0.1:1", "Qdrant does not answer at http://127.0.0.1:1"),
    ],
)
def test_an_address_where_nothing_is_is_one_line(address, message):
    with pytest.raises(InvalidInput, match=message), open_store(address):
        pass
