"""What certify says, refuses and keeps invariant."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from latentlink import InvalidInput, Link
from latentlink.risk import certify, row_statistics
from latentlink.risk.gates import carrying_share


def test_the_standard_error_of_a_shared_pool_agrees_with_the_oracle(theory):
    from latentlink.risk.designs import standard_errors

    for case in theory["estimators"]:
        tau = case["tau"]
        rows = row_statistics(np.array(case["s_pos"]) / tau, np.array(case["s_neg"]) / tau)
        errors = standard_errors(rows, "pool", None)
        np.testing.assert_allclose([errors.total, errors.query, errors.pool], case["se_pool"], rtol=1e-9)


def test_a_certificate_agrees_with_the_dense_computation(pairs):
    c = certify(*pairs, temperature=0.2)
    q, p, y = (x / np.linalg.norm(x, axis=1, keepdims=True) for x in pairs)
    plus, minus = (q * p).sum(axis=1), q @ y.T
    rows = row_statistics(plus / 0.2, minus / 0.2)
    assert c.cross_entropy == pytest.approx(rows.jackknife.mean(), rel=1e-12)
    assert c.risk_at_k == pytest.approx(
        np.mean(-np.log(np.exp(plus / 0.2) / (np.exp(plus / 0.2) + np.exp(minus / 0.2).sum(axis=1))))
    )
    assert c.bias == pytest.approx(c.risk_at_k - np.log(1001) - c.cross_entropy)
    np.testing.assert_array_equal(c.ranks, 1 + (minus >= plus[:, None]).sum(axis=1))
    assert c.sandwich.low < c.cross_entropy < c.sandwich.high
    assert c.mass.mean() == pytest.approx(1)


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.float16])
def test_a_constant_encoder_tells_nothing_apart(dtype):
    same = np.tile(np.array([[0.3, -1.2, 0.7]], dtype=dtype), (300, 1))
    c = certify(same[:50], same[:50], same, leaks="allow")
    tolerance = 1e-12 if dtype == np.float64 else 1e-5
    assert abs(c.cross_entropy) < tolerance
    assert abs(c.bias) < tolerance
    assert c.recall_at_10 == 0  # a tie counts against the search
    assert c.verdict == "trust"


@pytest.mark.parametrize("kind", ["tensor", "memory map", "float32"])
def test_every_kind_of_array_gives_the_same_number(pairs, kind, tmp_path):
    wanted = certify(*pairs, temperature=0.3)
    if kind == "tensor":
        torch = pytest.importorskip("torch")
        got = certify(*(torch.as_tensor(x) for x in pairs), temperature=0.3)
    elif kind == "memory map":
        np.save(tmp_path / "pool.npy", pairs[2])
        got = certify(*pairs[:2], np.load(tmp_path / "pool.npy", mmap_mode="r"), temperature=0.3)
    else:
        got = certify(*(x.astype(np.float32) for x in pairs), temperature=0.3)
    assert got.cross_entropy == pytest.approx(wanted.cross_entropy, abs=1e-5)
    np.testing.assert_array_equal(got.ranks, wanted.ranks)


@given(seed=st.integers(0, 2**32 - 1), scale=st.floats(1e-3, 1e3))
def test_rotation_and_scale_of_the_embeddings_do_not_matter(seed, scale):
    rng = np.random.default_rng(seed)
    pairs = rng.normal(size=(20, 4)), rng.normal(size=(20, 4)), rng.normal(size=(40, 4))
    rotation = np.linalg.qr(rng.normal(size=(4, 4)))[0] * scale
    a, b = certify(*pairs), certify(*(x @ rotation for x in pairs))
    assert a.cross_entropy == pytest.approx(b.cross_entropy, abs=1e-9)
    assert a.standard_error == pytest.approx(b.standard_error, abs=1e-9)


@given(seed=st.integers(0, 2**32 - 1))
def test_the_order_of_pairs_and_pool_does_not_matter(seed):
    rng = np.random.default_rng(seed)
    q, p, pool = rng.normal(size=(20, 4)), rng.normal(size=(20, 4)), rng.normal(size=(40, 4))
    order = rng.permutation(20)
    a, b = certify(q, p, pool), certify(q[order], p[order], pool[::-1])
    assert a.cross_entropy == pytest.approx(b.cross_entropy, abs=1e-10)
    np.testing.assert_array_equal(a.ranks[order], b.ranks)


def test_shuffled_pairs_drop_to_chance(pairs):
    queries, positives, pool = pairs
    shuffled = certify(queries, np.roll(positives, 1, axis=0), pool, temperature=0.5)
    assert shuffled.interval().high > 0
    assert shuffled.recall_at_1 < 0.02


def test_blocks_do_not_change_the_numbers(pairs, monkeypatch):
    from latentlink.risk import _measure

    whole = certify(*pairs)
    monkeypatch.setattr(_measure, "_BLOCK_VALUES", 3000)
    monkeypatch.setattr(_measure, "_CHUNK_ROWS", 77)
    parts = certify(*pairs)
    assert parts.cross_entropy == pytest.approx(whole.cross_entropy, rel=1e-12)
    np.testing.assert_allclose(parts.mass, whole.mass, rtol=1e-12)
    np.testing.assert_array_equal(parts.ranks, whole.ranks)


def test_leaks_are_refused_by_name_or_left_out(pairs):
    queries, positives, pool = pairs
    dirty = np.concatenate([pool, positives[3:5]])
    message = (
        r"^row 1000 of the pool is an exact duplicate of row 3 of positives \(2 such rows in all\); a pool apart "
        r'from the pairs is needed\. Pass leaks="exclude" to leave them out, or leaks="allow" when the data law '
        r"repeats items\.$"
    )
    with pytest.raises(InvalidInput, match=message):
        certify(queries, positives, dirty)
    excluded = certify(queries, positives, dirty, leaks="exclude")
    clean = certify(*pairs)
    assert excluded.excluded == 2
    assert excluded.cross_entropy == pytest.approx(clean.cross_entropy, rel=1e-12)
    np.testing.assert_array_equal(excluded.ranks, clean.ranks)
    allowed = certify(queries, positives, dirty, leaks="allow")
    assert allowed.n_negatives == 1002
    ids = np.array([f"p{i}" for i in range(1000)])
    own = np.array([f"q{i}" for i in range(199)] + ["p7"])
    with pytest.raises(
        InvalidInput, match=r"^id p7 \(row 7\) of the pool is also among the pairs \(1 such rows"
    ):
        certify(*pairs, pool_ids=ids, pair_ids=own)
    with pytest.raises(InvalidInput, match=r"^pool_ids is given without pair_ids; needs both, or none\.$"):
        certify(*pairs, pool_ids=ids)


def test_duplicates_are_found_across_floating_types(pairs):
    queries, positives, pool = (x.astype(np.float32) for x in pairs)
    pool[11] = queries[2]
    with pytest.raises(InvalidInput, match=r"^row 11 of the pool is an exact duplicate of row 2 of queries"):
        certify(queries.astype(np.float64), positives, pool)


def test_fresh_negatives_agree_with_the_pool_where_they_are_the_same(pairs):
    queries, positives, pool = pairs
    shared = certify(queries, positives, pool[:50], temperature=0.5)
    own = certify(queries, positives, np.broadcast_to(pool[:50], (200, 50, 16)), temperature=0.5, design="iid")
    assert own.cross_entropy == pytest.approx(shared.cross_entropy, rel=1e-12)
    np.testing.assert_array_equal(own.ranks, shared.ranks)
    assert own.standard_error == pytest.approx(shared.query_error, rel=1e-12)
    inner, outer = own.interval(), own.conservative_interval()
    assert outer.low < inner.low < inner.high < outer.high


def test_a_batch_is_its_own_pool(pairs):
    queries, positives, _ = pairs
    c = certify(queries, positives, design="in_batch", temperature=0.5)
    q, p = (x / np.linalg.norm(x, axis=1, keepdims=True) for x in (queries, positives))
    s = q @ p.T / 0.5
    losses = [
        np.logaddexp.reduce(np.delete(s[i], i)) - np.log(199) - s[i, i] for i in range(200)
    ]  # the plain loop  # fmt: skip
    np.testing.assert_allclose(c.rows.low, losses, rtol=1e-10)
    assert c.n_negatives == 199


def test_two_views_count_an_instance_once(pairs):
    _, positives, _ = pairs
    same = certify(positives, positives, design="in_batch", batch_negatives="both", temperature=0.5)
    one = certify(positives, positives, design="in_batch", batch_negatives="positives", temperature=0.5)
    assert same.cross_entropy == pytest.approx(one.cross_entropy, rel=1e-12)
    assert same.standard_error == pytest.approx(one.standard_error, rel=1e-12)
    views = np.concatenate([pairs[2], pairs[2]])
    grouped = certify(*pairs[:2], views, groups=np.tile(np.arange(1000), 2))
    assert grouped.cross_entropy == pytest.approx(certify(*pairs).cross_entropy, rel=1e-12)
    assert grouped.n_negatives == 1000


def test_grouped_views_mend_the_bias_that_counting_views_leaves(rng):
    # d = 8, temperature 0.2, 15 instances of two close views: deleting one view leaves most of the bias.
    from latentlink.risk import ExactWorld

    n, d, instances = 4000, 8, 15
    truth = float(ExactWorld.sphere(d, 0.2, 10.0).log_partition[0])
    y = rng.normal(size=(n, instances, d))
    views = np.stack([y, y + 0.05 * rng.normal(size=y.shape)], axis=2)
    views /= np.linalg.norm(views, axis=-1, keepdims=True)
    logits = views[..., 0].reshape(n, 2 * instances) / 0.2
    by_view = row_statistics(np.zeros(n), logits).jackknife.mean() - truth
    by_instance = (
        row_statistics(np.zeros(n), logits, groups=np.repeat(np.arange(instances), 2)).jackknife.mean() - truth
    )
    assert abs(by_instance) < 0.25 * abs(by_view)


def test_a_starved_pool_is_not_trusted(rng):
    # Near-duplicates of mass 1/100 at a low temperature: a few candidates carry all weight.
    similarity = rng.normal(0, 0.1, size=(300, 256))
    similarity[rng.random((300, 256)) < 1e-2] = 0.95
    from latentlink.risk import judge_rows

    judged = judge_rows(row_statistics(np.full(300, 9.0), similarity / 0.1))
    assert judged.verdict == "raise the temperature"
    assert judged.advice.startswith("Not to be trusted as a point: sandwich")
    healthy = judge_rows(row_statistics(np.full(300, 9.0), rng.normal(0, 0.1, size=(300, 4096)) / 0.1))
    assert healthy.verdict == "trust"
    narrow = judge_rows(row_statistics(np.full(300, 1.0), rng.normal(0, 0.1, size=(300, 20)) / 0.5))
    assert narrow.verdict == "widen the pool"


def test_links_of_unbounded_weight_print_no_bound(pairs):
    c = certify(*pairs, link=Link.shortfall(2.0))
    assert c.universal_bias is None
    assert np.isfinite(c.cross_entropy)
    assert certify(*pairs).universal_bias.low < 0


def test_the_share_of_queries_that_carry_the_loss():
    assert carrying_share(np.ones(10)) == 0.8
    assert carrying_share(np.array([0.0, 0.0])) == 1.0


def test_text_of_a_certificate(pairs):
    text = str(certify(*pairs, temperature=0.5))
    assert "cross-entropy" in text
    assert "nats (95%)" in text
    assert "verdict           trust" in text


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"positives": np.ones((3, 16))}, r"^queries and positives differ in rows: 200 and 3\.$"),
        ({"pool": np.ones((9, 4))}, r"^queries and pool differ in columns: 16 and 4\.$"),
        ({"temperature": 0.0}, r"^temperature is 0\.0; needs a number > 0\.$"),
        ({"level": 1}, r"^level is 1; needs a number in \(0, 1\)\.$"),
        (
            {"pool": np.zeros((9, 16))},
            r"^rows 0, 1, 2 and 6 more of pool have norm 0; cosine is undefined\. Drop them\.$",
        ),
        (
            {"pool": np.full((9, 16), np.nan)},
            r"^rows 0, 1, 2 and 6 more of pool hold NaN; drop or mend them\.$",
        ),
        (
            {"pool": np.ones((1, 16))},
            r"^negative_logits has 1 negatives a row; needs at least 2\. Widen the pool\.$",
        ),
        ({"design": "batch"}, r"^design is 'batch'; needs one of 'pool', 'iid', 'in_batch', 'batches'\.$"),
        (
            {"pool": None},
            r"^pool is left out with design 'pool'; 'pool' and 'iid' need it, the others do without\.$",
        ),
        ({"batch_size": 8}, r"^batch_size is 8 with design 'pool'; it belongs to 'batches'\.$"),
        (
            {"design": "iid"},
            r"^pool has shape \(1000, 16\); design 'iid' needs \(200, k, 16\), fresh negatives",
        ),
        (
            {"design": "batches", "pool": None, "batch_size": 7},
            r"^batch_size is 7 with 200 pairs; needs at least two whole batches\. Drop the last rows\.$",
        ),
    ],
)
def test_bad_input_is_named(pairs, change, message):
    arguments = dict(zip(("queries", "positives", "pool"), pairs, strict=True)) | change
    with pytest.raises(InvalidInput, match=message):
        certify(**arguments)
