"""An audit in batches: equal to one in a piece, and to a slow count; what a shared space can see of mistakes."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from latentlink import InvalidInput, RelativeSpace
from latentlink.similarity import normalize
from latentlink.spaces import audit, audit_batches
from latentlink.spaces.audits import strangers_in_shared

ODD = [np.nan, np.inf, 0.0, -0.0, 1.0, 2.0]


@given(
    rows=st.lists(st.tuples(*[st.sampled_from(ODD)] * 2), min_size=1, max_size=30),
    ids=st.lists(st.integers(-3, 9), min_size=30, max_size=30),
    size=st.integers(1, 31),
    kind=st.sampled_from(["float32", "float64"]),
)
@settings(max_examples=60)
def test_batches_of_any_size_count_what_a_slow_loop_counts(rows, ids, size, kind):
    x, names = np.array(rows, dtype=kind), np.array(ids[: len(rows)])
    found = audit_batches((names[low : low + size], x[low : low + size]) for low in range(0, len(x), size))
    seen, repeated, named, twice = set(), [], set(), set()
    for number, (row, name) in enumerate(zip(rows, names.tolist(), strict=True)):
        row = tuple(value + 0.0 for value in row)
        finite = all(np.isfinite(value) for value in row)
        if finite and row in seen:
            repeated.append(number)
        seen.add(row)
        if name in named:
            twice.add(name)
        named.add(name)
    assert found.duplicate_rows.tolist() == repeated
    assert found.duplicate_ids.tolist() == sorted(twice)
    assert found.nan_rows.tolist() == np.flatnonzero(np.isnan(x).any(axis=1)).tolist()
    assert found.infinite_rows.tolist() == np.flatnonzero(np.isinf(x).any(axis=1)).tolist()
    good = x[np.isfinite(x).all(axis=1)].astype(np.float64)
    assert found.zero_rows.size == (good == 0).all(axis=1).sum()
    if len(good) > 1:
        assert found.constant_columns.tolist() == np.flatnonzero(np.ptp(good, axis=0) == 0).tolist()
        norms = np.linalg.norm(good, axis=1)
        assert found.norms == pytest.approx((norms.min(), np.median(norms), norms.max()))
        if norms.any():
            cone = np.linalg.norm(good.mean(axis=0)) / np.sqrt((norms**2).mean())
            assert found.mean_norm == pytest.approx(cone)


def test_rows_are_named_by_id_when_asked():
    x = np.array([[1.0, 2], [np.nan, 0], [1, 2]])
    found = audit_batches([(["a", "b"], x[:2]), (["c"], x[2:])], by_id=True)
    assert (found.nan_rows.tolist(), found.duplicate_rows.tolist()) == (["b"], ["c"])
    assert "rows with NaN: 1 (b)" in str(found)


def test_different_rows_are_not_taken_for_equal(rng):
    x = rng.standard_normal((20_000, 8)).astype(np.float16).astype(np.float32)
    x[10_000:, :2] = -x[:10_000, :2]  # the hardest to hash apart: the sign bits alone differ
    x[10_000:, 2:] = x[:10_000, 2:]
    assert np.unique(x, axis=0).shape[0] == 20_000
    assert audit(x).duplicate_rows.size == 0


def test_nothing_and_other_columns_are_mistakes():
    with pytest.raises(InvalidInput, match="embeddings has 0 rows; needs at least 1"):
        audit_batches([])
    with pytest.raises(InvalidInput, match="embeddings has 3 columns; needs 2"):
        audit_batches([(None, np.ones((1, 2))), (None, np.ones((1, 3)))])


def test_a_shared_space_sees_its_own_mistakes_and_says_what_it_sees(rng):
    hidden = rng.standard_normal((900, 8))
    views = {
        name: hidden @ rng.standard_normal((8, d))
        + 0.3 * rng.standard_normal((900, d))
        + 4 * rng.normal(size=d)
        for name, d in [("a", 12), ("b", 12), ("c", 16)]
    }
    space = RelativeSpace(n_anchors=8).fit({name: x[:600] for name, x in views.items()})
    strangers = strangers_in_shared(space)
    assert [what[:18] for what in strangers.what] == ["'b' taken for 'a' ", "'a' taken for 'b' "]
    assert strangers.false_alarms == pytest.approx(0.002)
    for name, x in views.items():
        assert strangers.find(normalize(space.encode(x[600:], source=name))).mean() < 0.02
    assert strangers.find(normalize(space.encode(views["b"][600:], source="a"))).mean() > 0.9
    lone = RelativeSpace(n_anchors=8).fit({name: views[name][:600] for name in "ac"})
    assert strangers_in_shared(lone) is None


@pytest.mark.medium
def test_minilm_and_e5_mistaken_for_each_other_in_a_shared_store(shared_data):
    with np.load(shared_data / "embeddings" / "stsb_pool3000.npz") as file:
        pool = {name: file[name].astype(np.float32) for name in ("minilm", "e5")}
    space = RelativeSpace(n_anchors=64).fit({name: x[:2000] for name, x in pool.items()})
    strangers = strangers_in_shared(space)
    for name, other in [("minilm", "e5"), ("e5", "minilm")]:
        assert strangers.find(normalize(space.encode(pool[name][2000:], source=name))).mean() < 0.02
        assert strangers.find(normalize(space.encode(pool[other][2000:], source=name))).mean() > 0.9
