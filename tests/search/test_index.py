import subprocess
import sys

import numpy as np
import pytest

from latentlink import InvalidInput, InvalidType
from latentlink.search import Index
from latentlink.search.chain import with_transforms
from latentlink.search.engines import choose_kind
from latentlink.spaces import RelativeSpace


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


def test_ids_are_kept_when_rows_are_added(world):
    space, old, new = world
    for kind in ["exact", "flat", "hnsw"]:
        index = Index.build(old[:200], space=space, source="old", ids=np.arange(1000, 1200), kind=kind)
        index.add(new[200:], source="new", ids=np.arange(5000, 5100))
        _, found = index.search(old[200:], source="old", k=1)
        assert len(index) == 300
        assert (found[:, 0] == np.arange(5000, 5100)).mean() > 0.97


def test_nothing_is_added_when_an_id_is_known(world):
    _, old, _ = world
    index = Index.build(old[:3], source="old", ids=["a", "b", "c"])
    with pytest.raises(InvalidInput, match=r"ids has 1 that the index holds, b among them; drop them."):
        index.add(old[3:5], source="old", ids=["d", "b"])
    with pytest.raises(
        InvalidType, match="ids have type int64 but those in the index have <U1; needs one kind"
    ):
        index.add(old[3:5], source="old", ids=[1, 2])
    assert len(index) == 3


@pytest.mark.parametrize("kind", ["hnsw", "ivf"])
def test_recall_is_measured_and_reached(rng, kind):
    x = rng.standard_normal((3000, 16))
    index = Index.build(x, source="a", kind=kind, recall=0.9)
    truth = Index.build(x, source="a", kind="exact")
    assert index.recall.value >= 0.9
    assert index.recall.interval.low <= index.recall.value <= index.recall.interval.high
    assert "against exact search, 256 queries, search width" in str(index.recall)
    queries = rng.standard_normal((200, 16))
    found, expected = (i.search(queries, source="a")[1] for i in (index, truth))
    assert np.mean([np.isin(a, b).mean() for a, b in zip(found, expected, strict=True)]) > 0.8


@pytest.mark.parametrize("kind", ["hnsw", "ivf"])
def test_recall_is_reached_on_the_queries_that_were_given(rng, kind, tmp_path):
    x = rng.standard_normal((3000, 16))
    elsewhere = 0.3 * rng.standard_normal((150, 16)) + 1  # of a cone where the corpus is sparse
    plain = Index.build(x, source="a", kind=kind, recall=0.97)
    index = Index.build(x, source="a", kind=kind, recall=0.97, queries=elsewhere, queries_source="a")
    truth = Index.build(x, source="a", kind="exact").search(elsewhere, source="a")[1]

    def recall(other):
        found = other.search(elsewhere, source="a")[1]
        return np.mean([np.isin(a, b).mean() for a, b in zip(truth, found, strict=True)])

    assert index.recall.value == pytest.approx(recall(index))
    assert index.recall.value >= 0.97
    assert (index.recall.width > plain.recall.width) == (recall(plain) < 0.97)
    assert (index.recall.k, index.recall.n_queries, index.recall.given) == (10, 150, True)
    assert "150 given queries" in str(index.recall)
    index.save(tmp_path / "index")
    assert Index.load(tmp_path / "index").recall == index.recall


def test_queries_for_tuning_pass_the_door(real_world):
    space, old, new = real_world
    with pytest.raises(InvalidInput, match="queries have 16 columns but 'old' in this space has 12"):
        Index.build(old, space=space, source="old", queries=new)
    built = Index.build(old, space=space, source="old", kind="hnsw", queries=new, queries_source="new")
    assert built.recall.given


@pytest.mark.parametrize("kind", ["exact", "hnsw"])
def test_hubs_are_ranked_by_a_slow_csls(rng, kind, tmp_path):
    x, crowd, queries = (rng.standard_normal((n, 8)) + 0.5 for n in (400, 60, 50))
    names = np.array([f"doc {i}" for i in range(400)])
    index = Index.build(x[:300], source="a", ids=names[:300], kind=kind, recall=0.9, crowd=crowd)
    index.add(x[300:], source="a", ids=names[300:])
    index.save(tmp_path / "index")
    similarities, found = Index.load(tmp_path / "index").search(queries, source="a", k=5)
    unit = [v / np.linalg.norm(v, axis=1, keepdims=True) for v in (x, crowd, queries)]
    hubs = np.array([np.sort([item @ one for one in unit[1]])[-11:-1].mean() for item in unit[0]])
    cosine = unit[2] @ unit[0].T
    expected = np.argsort(hubs - 2 * cosine, axis=1)[:, :5]
    agree = (found == names[expected]).mean()
    assert agree == 1 if kind == "exact" else agree > 0.9
    assert (found == Index.build(x, source="a", ids=names).search(queries, source="a", k=5)[1]).mean() < 0.9
    rows = np.array([[int(name.split()[1]) for name in row] for row in found])
    tolerance = 1e-5 if kind == "exact" else 0.06  # one byte a value, and its range was learned before `add`
    np.testing.assert_allclose(similarities, np.take_along_axis(cosine, rows, axis=1), atol=tolerance)


def test_the_crowd_passes_the_door(real_world):
    space, old, new = real_world
    with pytest.raises(InvalidInput, match="crowd have 16 columns but 'old' in this space has 12"):
        Index.build(old, space=space, source="old", crowd=new)
    index = Index.build(old, space=space, source="old", crowd=new, queries_source="new")
    assert (index.search(new, source="new", k=1)[1][:, 0] == np.arange(len(new))).mean() > 0.97


def test_a_recall_out_of_reach_is_said(rng, monkeypatch):
    monkeypatch.setattr("latentlink.search.engines._LADDER", [1])
    with pytest.warns(UserWarning, match=r"recall@10 0\.\d+ \[.*\] against exact .* below the 1.0 asked for"):
        Index.build(rng.standard_normal((4000, 32)), source="a", kind="ivf", recall=1.0)


def test_budgets_choose_the_engine(rng):
    x = rng.standard_normal((2000, 64))
    assert Index.build(x, source="a").kind == "exact"
    with pytest.raises(InvalidInput) as error:
        Index.build(x, source="a", memory="100K")
    assert str(error.value) == (
        "memory is 100K but kind='ivf' needs about 1 MiB; give more, or build on a database "
        "(latentlink.search.stores)."
    )
    with pytest.raises(InvalidInput, match="memory is 'much'; needs a size such as 4G, 500M or bytes"):
        Index.build(x, source="a", memory="much")
    assert choose_kind("auto", 100_000, 384, None) == "exact"
    assert choose_kind("auto", 100_001, 384, None) == "hnsw"
    assert choose_kind("auto", 50_000, 384, "20M") == "ivf"


def test_k_up_to_the_whole_index(world):
    space, old, new = world
    for kind in ["exact", "flat", "hnsw", "ivf"]:
        _, found = Index.build(old, space=space, source="old", kind=kind).search(new[:3], source="new", k=300)
        np.testing.assert_array_equal(np.sort(found, axis=1), np.tile(np.arange(300), (3, 1)))


def test_save_never_overwrites_unasked(world, tmp_path):
    _, old, _ = world
    Index.build(old, source="old").save(tmp_path / "index")
    with pytest.raises(InvalidInput, match="exists; pass overwrite=True to replace it"):
        Index.build(old[:9], source="old").save(tmp_path / "index")
    assert len(Index.load(tmp_path / "index")) == 300
    Index.build(old[:9], source="old").save(tmp_path / "index", overwrite=True)
    assert len(Index.load(tmp_path / "index")) == 9
    (tmp_path / "other").mkdir()
    with pytest.raises(InvalidInput, match="exists and is no index; pick another path"):
        Index.build(old, source="old").save(tmp_path / "other", overwrite=True)


def test_the_second_of_two_writers_who_met_is_told(world, tmp_path):
    _, old, _ = world
    Index.build(old[:100], source="old").save(tmp_path / "index")
    first, second = Index.load(tmp_path / "index"), Index.load(tmp_path / "index")
    first.add(old[100:150], source="old")
    second.add(old[150:], source="old")
    first.save(tmp_path / "index")
    with pytest.raises(
        InvalidInput, match=r"by another writer since .* \(generation 1, now 2\); load it again"
    ):
        second.save(tmp_path / "index")
    assert len(Index.load(tmp_path / "index")) == 150


HOLD = """
import sys, time
import subprocess
import sys

import numpy as np
from latentlink.search import Index
from latentlink.search.chain import with_transforms
from latentlink.search.engines import choose_kind
from latentlink.spaces import RelativeSpace
with Index.edit(sys.argv[1]) as index:
    index.add(np.load(sys.argv[2])[250:], source="old")
    print("held", flush=True)
    sys.stdin.readline()
"""


def test_two_writers_one_waits_and_nothing_is_lost(world, tmp_path):
    _, old, _ = world
    np.save(tmp_path / "old.npy", old)
    path = tmp_path / "index"
    Index.build(old[:200], source="old").save(path)
    other = subprocess.Popen(
        [sys.executable, "-c", HOLD, path, tmp_path / "old.npy"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with other:
        assert other.stdout.readline() == "held\n"
        with pytest.raises(InvalidInput, match=rf"is being written by process {other.pid}; wait for it"):  # noqa: SIM117
            with Index.edit(path):
                pass
        other.communicate("go\n")
    with Index.edit(path) as index:
        index.add(old[200:250], source="old", ids=np.arange(1000, 1050))
    final = Index.load(path)
    assert len(final) == 300
    np.testing.assert_allclose(final.search(old, source="old", k=1)[0], 1, atol=1e-6)


def test_a_failed_edit_changes_nothing(world, tmp_path):
    _, old, _ = world
    Index.build(old[:100], source="old").save(tmp_path / "index")
    with pytest.raises(InvalidInput), Index.edit(tmp_path / "index") as index:  # noqa: PT012
        index.add(old[100:], source="old")
        index.add(old[:1] * np.nan, source="old")
    assert len(Index.load(tmp_path / "index")) == 100


@pytest.fixture
def real_world(rng):
    hidden = rng.standard_normal((400, 8))
    old, new = hidden @ rng.standard_normal((8, 12)) + 1, hidden @ rng.standard_normal((8, 16)) - 2
    return RelativeSpace(n_anchors=8).fit({"old": old[:300], "new": new[:300]}), old, new


def test_the_space_travels_with_the_index(real_world, tmp_path):
    space, old, new = real_world
    Index.build(old, space=space, source="old").save(tmp_path / "index")
    index = Index.load(tmp_path / "index")
    assert repr(index) == "Index(n=400, dimension=8, kind='exact', encoders=('old', 'new'))"
    assert (index.search(new, source="new", k=1)[1][:, 0] == np.arange(400)).mean() > 0.98


@pytest.mark.parametrize("kind", ["flat", "hnsw"])
def test_plain_faiss_takes_raw_vectors_of_either_encoder(real_world, tmp_path, kind):
    faiss = pytest.importorskip("faiss")
    space, old, new = real_world
    index = Index.build(old, space=space, source="old", kind=kind)
    for source, x in [("old", old), ("new", new)]:
        index.export_faiss(tmp_path / f"{source}.faiss", source=source)
        plain = faiss.read_index(str(tmp_path / f"{source}.faiss"))
        assert plain.ntotal == 400
        similarities, rows = plain.search(x.astype(np.float32), 5)
        expected, ids = index.search(x.astype(np.float32), source=source, k=5)
        assert (rows[:, 0] == ids[:, 0]).mean() > 0.98
        np.testing.assert_allclose(similarities[:, 0], expected[:, 0], atol=2e-3)


def test_two_chains_share_one_index(real_world):
    pytest.importorskip("faiss")
    space, old, new = real_world
    index = Index.build(old, space=space, source="old", kind="flat")
    inner = index._engine.index
    with with_transforms(inner, space, "old") as a, with_transforms(inner, space, "new") as b:
        assert a.ntotal == b.ntotal == 400
        rows = [chain.search(x.astype(np.float32), 1)[1][:, 0] for chain, x in [(a, old), (b, new)]]
    assert (rows[0] == rows[1]).mean() > 0.98


def test_a_space_without_an_affine_map_cannot_be_exported(real_world, tmp_path):
    pytest.importorskip("faiss")
    _, old, new = real_world
    space = RelativeSpace(n_anchors=8, similarity="whitened").fit({"old": old, "new": new})
    index = Index.build(old, space=space, source="old", kind="flat")
    with pytest.raises(InvalidInput, match="encode of 'old' is not an affine map in this space"):
        index.export_faiss(tmp_path / "x.faiss", source="old")


def test_vectors_that_look_foreign_are_refused(real_world, rng):
    space, old, _ = real_world
    index = Index.build(old, space=space, source="old")
    with pytest.raises(InvalidInput) as error:
        index.search(old[:32, rng.permutation(12)] * 3, source="old")
    assert str(error.value) == (
        "queries are declared as 'old' but do not look like it (other): its fitted law suits them "
        "hardly better than copies of them with random signs (32 rows checked); encode the texts with the "
        "right encoder. If they are right and only of another domain, pass check=False."
    )
    index.search(old[:32, rng.permutation(12)] * 3, source="old", check=False)
    with pytest.raises(InvalidInput, match="vectors are declared as 'old' but do not look like it"):
        Index.build(old[:, ::-1], space=space, source="old")


def test_the_encoder_that_fits_is_named(rng):
    hidden = rng.standard_normal((400, 8))
    x, y = hidden @ rng.standard_normal((8, 12)) + 1, hidden @ rng.standard_normal((8, 12)) - 1
    space = RelativeSpace(n_anchors=8).fit({"minilm": x, "e5": y})
    index = Index.build(x, space=space, source="minilm")
    with pytest.raises(InvalidInput, match=r"but look like vectors of 'e5': its .* source='e5'"):
        index.search(y[:32], source="minilm")
    with pytest.raises(InvalidInput, match="declared as 'minilm' but look like vectors of 'e5'"):
        index.add(y[:32], source="minilm", ids=np.arange(1000, 1032))


def test_centred_vectors_are_not_taken_for_flipped_ones(rng):
    hidden = rng.standard_normal((2000, 8))
    x, y = hidden @ rng.standard_normal((8, 12)), hidden @ rng.standard_normal((8, 16))
    space = RelativeSpace(n_anchors=8).fit({"old": x[:1000], "new": y[:1000]})
    index = Index.build(x[:50], space=space, source="old")
    for _ in range(50):
        index.search(y[rng.choice(1000, 32) + 1000], source="new", k=1)
