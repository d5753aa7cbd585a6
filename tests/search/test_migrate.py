import numpy as np
import pytest

from latentlink import InvalidInput
from latentlink.io import write_vectors
from latentlink.search import migrate
from latentlink.spaces import RelativeSpace

pytest.importorskip("pyarrow")


@pytest.fixture(scope="module")
def world():
    """Old and new vectors of 600 items, and noisy queries of the new encoder for the last 100."""
    rng = np.random.default_rng(0)
    hidden = rng.standard_normal((600, 8))
    a, b = rng.standard_normal((8, 12)), rng.standard_normal((8, 16))
    noise = 0.3 * rng.standard_normal((100, 8))
    return hidden @ a, hidden @ b, (hidden[500:] + noise) @ b, (hidden[500:] + noise) @ a


def begin(world, folder, direction="corpus"):
    old, new, _, _ = world
    return migrate.fit(folder, old[:500], new[:500], old="old", new="new", direction=direction, n_anchors=8)


def evidence(world):
    old, new, queries_new, queries_old = world
    return {
        "corpus_old": old,
        "corpus_new": new,
        "queries_new": queries_new,
        "queries_old": queries_old,
        "relevant": np.arange(500, 600),
    }


@pytest.mark.parametrize("direction", ["corpus", "query", "shared"])
def test_a_whole_migration(world, tmp_path, direction):
    old, _, _, _ = world
    write_vectors(tmp_path / "old.arrow", old.astype(np.float32), ids=np.arange(600))
    before = (tmp_path / "old.arrow").read_bytes()
    state = begin(world, tmp_path / "m", direction)
    if direction == "query":
        with pytest.raises(InvalidInput, match='direction is "query": the corpus stays as it is'):
            migrate.convert_corpus(state, [tmp_path / "old.arrow"])
    else:
        state, done = migrate.convert_corpus(state, [tmp_path / "old.arrow"])
        assert done.rows == 600
    state, found = migrate.run_shadow(state, **evidence(world), tenants=["a"] * 40 + ["b"] * 60)
    assert found.retention > 0.95
    assert found.retention_interval.low <= found.retention <= found.retention_interval.high
    assert {name: count for name, (count, _, _) in found.tenants.items()} == {"a": 40, "b": 60}
    assert "retention" in str(found)
    with pytest.raises(InvalidInput, match="the gate has not passed since the last change; run `migrate gate`"):
        migrate.cut_over(state)
    state, passed = migrate.gate(state, retention=0.9)
    assert passed
    state = migrate.cut_over(state)
    assert migrate.open_migration(tmp_path / "m") == state
    assert state.serving == "new"
    with pytest.raises(InvalidInput, match="the new side is served already; there is nothing to cut over"):
        migrate.cut_over(state)
    state = migrate.roll_back(state)
    assert state.serving == "old"
    with pytest.raises(InvalidInput, match="the old side is served; there is nothing to roll back"):
        migrate.roll_back(state)
    assert (tmp_path / "old.arrow").read_bytes() == before
    assert [event["verb"] for event in state.events][-3:] == ["gate", "cutover", "rollback"]
    assert "serving old" in str(state)


def test_shuffled_pairs_drop_to_chance_and_the_gate_says_no(world, tmp_path, rng):
    old, new, _, _ = world
    state = migrate.fit(tmp_path / "m", old[:500], new[rng.permutation(500)], old="old", new="new", n_anchors=8)
    state, found = migrate.run_shadow(state, **evidence(world))
    assert found.migrated_recall < 0.1
    state, passed = migrate.gate(state, retention=0.5)
    assert not passed
    with pytest.raises(InvalidInput, match="the gate has not passed"):
        migrate.cut_over(state)


def test_steps_out_of_order_are_refused(world, tmp_path):
    state = begin(world, tmp_path / "m")
    with pytest.raises(InvalidInput, match="there is no shadow evaluation yet; run `migrate shadow` first"):
        migrate.gate(state)
    with pytest.raises(InvalidInput, match="old and new are both 'old'; needs two names"):
        migrate.fit(tmp_path / "x", world[0][:500], world[1][:500], old="old", new="old")
    with pytest.raises(InvalidInput, match="holds a migration already; pick another folder"):
        begin(world, tmp_path / "m")
    later, _ = migrate.run_shadow(state)
    with pytest.raises(InvalidInput, match="was changed by another process; open it and try again"):
        migrate.run_shadow(state)
    later, _ = migrate.gate(later)
    with pytest.raises(
        InvalidInput, match="the corpus is not converted; run `migrate convert` to its end first"
    ):
        migrate.cut_over(later)
    with pytest.raises(InvalidInput, match="holds no migration; begin one with `migrate fit`"):
        migrate.open_migration(tmp_path)


def test_each_state_says_what_is_next(world, tmp_path):
    old, _, _, _ = world
    write_vectors(tmp_path / "old.arrow", old.astype(np.float32), ids=np.arange(600))
    state = begin(world, tmp_path / "m")
    assert state.advice == "`migrate shadow` with real queries"
    state, _ = migrate.run_shadow(state, **evidence(world))
    assert state.advice == "`migrate convert` the corpus"
    state, _ = migrate.convert_corpus(state, [tmp_path / "old.arrow"])
    assert state.advice == "`migrate gate`"
    state, _ = migrate.gate(state, certified=-50.0)  # no search is that certain
    assert (state.gate_passed, state.advice.split(":")[0]) == (False, "the gate is shut")
    state, _ = migrate.gate(state, retention=0.9)
    assert (state.gate_passed, state.advice) == (True, "`migrate cutover`")
    state = migrate.cut_over(state)
    assert state.advice.startswith("search the converted vectors with queries of 'new' as they are")
    assert str(state).endswith("`migrate rollback` goes back")


def test_a_gate_that_passed_before_a_later_shadow_does_not_open(world, tmp_path):
    """Nor does a rollback or a fill in between hide that the evidence has changed."""
    state, _ = migrate.run_shadow(begin(world, tmp_path / "m", "query"), **evidence(world))
    state, _ = migrate.gate(state, retention=0.9)
    state = migrate.roll_back(migrate.cut_over(state))
    assert state.gate_passed
    state, _ = migrate.run_shadow(state, **evidence(world))
    with pytest.raises(InvalidInput, match="the gate has not passed since the last change"):
        migrate.cut_over(state)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"tenants": ["a", "b"]}, r"tenants has shape \(2,\); needs \(100,\), a name for each query"),
        ({"relevant": np.zeros(100)}, r"relevant has shape \(100,\) and type float64; needs 100 row numbers"),
        ({"relevant": np.arange(550, 650)}, "of the corpus sample, from 0 to 599"),
        ({"corpus_old": None}, "corpus_old and corpus_new go together"),
        (
            {"corpus_old": None, "corpus_new": None},
            "queries_new need a corpus sample, whose rows relevant counts",
        ),
    ],
)
def test_evidence_that_does_not_fit_is_refused(world, tmp_path, wrong, message):
    state = begin(world, tmp_path / "m")
    with pytest.raises(InvalidInput, match=message):
        migrate.run_shadow(state, **{**evidence(world), **wrong})


def test_what_is_not_known_is_not_printed(world, tmp_path):
    few = {**evidence(world), "relevant": np.arange(500, 510)}
    few |= {"queries_new": few["queries_new"][:10], "queries_old": None}
    _, found = migrate.run_shadow(begin(world, tmp_path / "m"), **few)
    assert "nan" not in str(found)
    assert "certified       nothing: fewer than 20 queries" in str(found)


def test_native_search_against_a_plain_loop(world):
    old, new, queries, _ = world
    space = RelativeSpace(n_anchors=8).fit({"old": old[:500], "new": new[:500]})
    found = migrate.shadow(
        space, old="old", new="new", direction="corpus", **{**evidence(world), "queries_old": None}, k=3
    )
    hits = []
    for q, item in zip(queries, range(500, 600), strict=True):
        cosines = [q @ x / np.linalg.norm(q) / np.linalg.norm(x) for x in new]
        hits.append(item in np.argsort(cosines)[::-1][:3])
    assert found.native_recall == np.mean(hits)
    assert np.isnan(found.old_recall)


@pytest.mark.parametrize("direction", ["corpus", "query", "shared"])
def test_a_shadow_with_a_crowd_against_a_plain_loop(world, direction):
    old, new, queries, _ = world
    space = RelativeSpace(n_anchors=8).fit({"old": old[:500], "new": new[:500]})
    given = {**evidence(world), "old": "old", "new": "new", "direction": direction, "k": 3}
    found = migrate.shadow(space, **given, crowd=new[:200])
    place = {
        "corpus": (lambda x: x, space.translate(old, source="old", target="new")),
        "query": (lambda x: space.translate(x, source="new", target="old"), old),
        "shared": (lambda x: space.encode(x, source="new"), space.encode(old, source="old")),
    }
    bring, items = place[direction]

    def cosines(a, b):
        return (a / np.linalg.norm(a, axis=1)[:, None]) @ (b / np.linalg.norm(b, axis=1)[:, None]).T

    hubs = [np.mean(sorted(row)[-11:-1]) for row in cosines(items, bring(new[:200]))]
    hits = 0
    for query, row in enumerate(cosines(bring(queries), items)):
        scores = 2 * row - hubs
        hits += (scores >= scores[500 + query]).sum() <= 3
    assert found.migrated_recall == pytest.approx(hits / 100)
    assert found.native_recall == migrate.shadow(space, **given).native_recall


def test_a_plan_counts_bytes(world, tmp_path):
    old, _, _, _ = world
    np.save(tmp_path / "old.npy", old.astype(np.float32))
    found = migrate.plan([tmp_path / "old.npy"], target_dimension=16, out=tmp_path / "not there yet")
    assert (found.rows, found.dimension, found.bytes_written) == (600, 12, 600 * 80)
    assert found.fits
    assert "600 vectors of 12 in 1 files" in str(found)
    assert not (tmp_path / "not there yet").exists()


def test_more_pairs_retain_more(world):
    old, new, _, _ = world
    pairs = {"old": old[:500], "new": new[:500]}
    task = {"old": "old", "new": "new", "direction": "corpus", **evidence(world)}
    curve = migrate.learning_curve(pairs, (20, 100), n_anchors=8, **task)
    assert [size for size, _, _ in curve] == [20, 100, 500]
    assert curve[-1][1] >= curve[0][1] - 0.02


def test_uncertainty_finds_what_the_map_has_not_seen(world, rng):
    old, new, _, _ = world
    space = RelativeSpace(n_anchors=8).fit({"old": old[:500], "new": new[:500]})
    strange = old[500:] + rng.standard_normal((100, 12))
    known = migrate.uncertainty(space, old[500:], source="old", target="new")
    unknown = migrate.uncertainty(space, strange, source="old", target="new")
    assert np.median(unknown) > 3 * np.median(known)


def test_thresholds_that_tell_nothing_are_refused():
    with pytest.raises(InvalidInput, match=r"threshold is 2.0, which none of the 5 pairs pass; needs some"):
        migrate.recalibrate(np.arange(5) / 5, np.arange(5) / 5, 2.0)


def test_a_certified_gate_asks_for_trust_and_a_bound(world, tmp_path, rng):
    state, found = migrate.run_shadow(begin(world, tmp_path / "m"), **evidence(world))
    assert found.verdict == "trust"
    assert found.cross_entropy < found.cross_entropy_high
    state, passed = migrate.gate(state, certified=found.cross_entropy_high + 0.01)
    assert passed
    assert state.last("gate")["verdict"] == "trust"
    state, passed = migrate.gate(state, certified=found.cross_entropy_high - 0.01)
    assert not passed
    worse = {**evidence(world), "corpus_old": world[0] + 2 * rng.standard_normal((600, 12))}
    state, found = migrate.run_shadow(state, **worse)
    assert found.verdict == "trust"
    state, passed = migrate.gate(state, certified=100.0)
    assert not passed  # the certificate does not replace retention
    few = {**evidence(world), "relevant": np.arange(500, 510)}
    few |= {side: few[side][:10] for side in ("queries_new", "queries_old")}
    state, found = migrate.run_shadow(state, **few)
    assert found.verdict == "none"
    state, passed = migrate.gate(state, certified=100.0)
    assert not passed  # no certificate is not a good one
    with pytest.raises(InvalidInput, match="certified is nan"):
        migrate.gate(state, certified=float("nan"))
