import json

import numpy as np
import pytest

from latentlink.spaces import RelativeSpace

pytest.importorskip("pyarrow")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    rng = np.random.default_rng(0)
    hidden = rng.standard_normal((300, 8))
    old, new = hidden @ rng.standard_normal((8, 12)), hidden @ rng.standard_normal((8, 16))
    RelativeSpace(n_anchors=8).fit({"old": old, "new": new}).save(tmp_path / "space")
    ids = np.array([f"doc {i}" for i in range(300)])
    for name, x in [("old", old), ("new", new)]:
        np.savez(tmp_path / f"{name}.npz", vectors=x.astype(np.float32), ids=ids)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_index_and_search(folder, run):
    code, output = run("index", "old.npz", "index", "--space", "space", "--source", "old")
    assert (code, output.out) == (
        0,
        "index: Index(n=300, dimension=8, kind='exact', encoders=('old', 'new'))\n",
    )
    code, output = run("search", "index", "new.npz", "--source", "new", "--k", "2", "--json")
    record = json.loads(output.out)
    assert [ids[0] for ids in record["ids"]] == record["queries"]
    code, output = run("search", "index", "new.npz", "--source", "new", "--k", "1")
    assert output.out.startswith("doc 0\tdoc 0 0.99")
    code, output = run("search", "index", "new.npz", "--source", "old")
    assert code == 2
    assert "queries have 16 columns but 'old' in this space has 12" in output.err


def test_recall_is_measured_on_the_queries_of_a_file(folder, run):
    pytest.importorskip("faiss")
    given = ["--queries", "new.npz", "--queries-source", "new"]
    made = ["index", "old.npz", "index", "--space", "space", "--source", "old", "--kind", "hnsw"]
    code, output = run(*made, *given)
    assert (code, "300 given queries" in output.out) == (0, True)
    code, output = run(*made, "--overwrite", "--queries", "new.npz")
    assert (code, "queries have 16 columns but 'old'" in output.err) == (2, True)


def test_an_index_and_a_shadow_take_a_crowd(folder, run):
    made = ["index", "old.npz", "index", "--space", "space", "--source", "old"]
    assert run(*made, "--crowd", "new.npz", "--queries-source", "new")[0] == 0
    assert (folder / "index" / "hubs.npz").exists()
    begin = ["migrate", "fit", "m", "old.npz", "new.npz", "--old", "old", "--new", "new", "--anchors", "8"]
    assert run(*begin)[0] == 0
    assert run("migrate", "shadow", "m", "--crowd", "new.npz")[0] == 0
    code, output = run("migrate", "shadow", "m", "--crowd", "old.npz")
    assert (code, "crowd has 12 columns; needs 16" in output.err) == (2, True)


def test_the_verbs_of_a_migration(folder, run):
    code, output = run("migrate", "plan", "old.npz", "--target-dimension", "16")
    assert code == 0
    assert "300 vectors of 12 in 1 files" in output.out
    begin = ["migrate", "fit", "m", "old.npz", "new.npz", "--old", "old", "--new", "new", "--anchors", "8"]
    assert run(*begin)[0] == 0
    assert run("migrate", "gate", "m") == (
        2,
        ("", "latentlink: there is no shadow evaluation yet; run `migrate shadow` first.\n"),
    )
    assert run("migrate", "convert", "m", "old.npz")[0] == 0
    assert run("migrate", "shadow", "m")[0] == 0
    assert run("migrate", "gate", "m", "--retention", "0.9")[0] == 0
    assert run("migrate", "cutover", "m")[0] == 0
    code, output = run("migrate", "status", "m")
    assert "old -> new, corpus side; serving new" in output.out
    assert run("migrate", "rollback", "m")[0] == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["convert", "m", "nothing.parquet"], "nothing.parquet: No such file or directory; check the path."),
        (
            ["shadow", "m", "--queries", "new.npz", "--relevant", "rows.txt"],
            "rows.txt is not a npy file of row",
        ),
        (["convert", "n", "old.npz"], "n holds no migration; begin one with `migrate fit`."),
        (["cutover", "m"], "the gate has not passed since the last change; run `migrate gate`"),
        (["rollback", "m"], "the old side is served; there is nothing to roll back."),
    ],
)
def test_a_mistake_in_a_migration_is_one_line(folder, run, arguments, message):
    begin = ["migrate", "fit", "m", "old.npz", "new.npz", "--old", "old", "--new", "new", "--anchors", "8"]
    assert run(*begin)[0] == 0
    (folder / "rows.txt").write_text("1 2 3")
    code, output = run("migrate", *arguments)
    assert (code, output.err.count("\n")) == (2, 1)
    assert message in output.err


def test_a_gate_that_does_not_pass_exits_with_1(folder, run, rng):
    with np.load("new.npz") as file:
        np.save("shuffled.npy", file["vectors"][rng.permutation(300)])
    begin = ["migrate", "fit", "m", "old.npz", "shuffled.npy", "--old", "old", "--new", "new", "--anchors", "8"]
    assert run(*begin)[0] == 0
    assert run("migrate", "shadow", "m")[0] == 0
    code, output = run("migrate", "gate", "m")
    assert code == 1
    assert "is below 0.95; the gate stays shut." in output.err


def test_a_certified_gate_passes_or_exits_with_1(folder, run, rng):
    begin = ["migrate", "fit", "m", "old.npz", "new.npz", "--old", "old", "--new", "new", "--anchors", "8"]
    assert run(*begin)[0] == 0
    assert run("migrate", "shadow", "m")[0] == 0  # held-out items find themselves: no trust in that
    assert run("migrate", "gate", "m")[0] == 0
    code, output = run("migrate", "gate", "m", "--certified", "100")
    assert code == 1
    assert "verdict raise the temperature" in output.err
    with np.load("new.npz") as file:
        np.save("queries.npy", file["vectors"][:50] + 2 * rng.standard_normal((50, 16)))
    np.save("relevant.npy", np.arange(50))
    real = ["--queries", "queries.npy", "--relevant", "relevant.npy"]
    real += ["--corpus-old", "old.npz", "--corpus-new", "new.npz"]
    code, output = run("migrate", "shadow", "m", *real, "--json")
    found = json.loads(output.out)
    high = found["cross_entropy_high"]
    code, output = run("migrate", "gate", "m", "--retention", "0.8", "--certified", str(high + 0.01))
    assert code == 0
    assert "verdict trust, cross-entropy at most" in output.out
    code, output = run("migrate", "gate", "m", "--retention", "0.8", "--certified", str(high - 0.01))
    assert code == 1
    assert "needs trust and less than" in output.err


@pytest.mark.ray
@pytest.mark.filterwarnings("ignore")
def test_ray_converts_what_the_local_engine_converts(folder, run):
    pytest.importorskip("ray")
    begin = ["old.npz", "new.npz", "--old", "old", "--new", "new", "--anchors", "8"]
    for place, engine in [("here", "local"), ("far", "ray")]:
        assert run("migrate", "fit", place, *begin)[0] == 0
        code, output = run("migrate", "convert", place, "old.npz", "--engine", engine)
        assert (code, "rows 300" in output.out) == (0, True)
    shard = "converted/part-00000.arrow"
    assert (folder / "here" / shard).read_bytes() == (folder / "far" / shard).read_bytes()


def test_an_engine_that_is_not_there_is_one_line(folder, run):
    begin = ["migrate", "fit", "m", "old.npz", "new.npz", "--old", "old", "--new", "new", "--anchors", "8"]
    assert run(*begin)[0] == 0
    code, output = run("migrate", "convert", "m", "old.npz", "--engine", "spark")
    assert code == 2
    assert "engine is 'spark'; needs one of 'local', 'ray'" in output.err
