import numpy as np
import pytest

from latentlink import InvalidInput, compare_maps
from latentlink.spaces import fit_cca, fit_low_rank, fit_procrustes, fit_ridge, learning_curve

TEXT = ("minilm", "use", "e5")


@pytest.fixture
def spaces(rng):
    shared = rng.normal(size=(300, 10))
    return {
        name: shared @ rng.normal(size=(10, d)) + 0.3 * rng.normal(size=(300, d)) + 1.0
        for name, d in (("a", 12), ("b", 15))
    }


def test_ridge_is_least_squares_with_a_penalty(rng):
    x, y = rng.normal(size=(50, 4)), rng.normal(size=(50, 3))
    xc, yc = x - x.mean(axis=0), y - y.mean(axis=0)
    penalty = 0.1 * np.trace(xc.T @ xc) / 4
    expected = np.linalg.solve(xc.T @ xc + penalty * np.eye(4), xc.T @ yc)
    assert np.allclose(fit_ridge(x, y, strength=0.1).map, expected)


@pytest.mark.parametrize("strength", [0.0, 0.3])
def test_low_rank_is_least_squares_on_augmented_rows_truncated(rng, strength):
    x, y = rng.normal(size=(50, 4)) @ rng.normal(size=(4, 4)), rng.normal(size=(50, 6))
    xc, yc = x - x.mean(axis=0), y - y.mean(axis=0)
    penalty = strength * np.trace(xc.T @ xc) / 4
    rows = np.vstack([xc, np.sqrt(penalty) * np.eye(4)])
    targets = np.vstack([yc, np.zeros((4, 6))])
    full = np.linalg.lstsq(rows, targets, rcond=None)[0]
    u, s, vt = np.linalg.svd(rows @ full, full_matrices=False)
    expected = np.linalg.lstsq(rows, (u[:, :2] * s[:2]) @ vt[:2], rcond=None)[0]
    found = fit_low_rank(x, y, rank=2, strength=strength)
    assert np.allclose(found.map, expected)
    assert np.linalg.matrix_rank(found.map) == found.rank == 2
    assert np.allclose(fit_low_rank(x, y, rank=4, strength=strength).map, full)


def test_no_map_of_that_rank_fits_better(rng):
    x, y = rng.normal(size=(60, 5)), rng.normal(size=(60, 4))
    found = fit_low_rank(x, y, rank=1, strength=0)
    xc, yc = x - x.mean(axis=0), y - y.mean(axis=0)
    left = rng.normal(size=4)
    for _ in range(2000):  # alternating least squares over a b', from a random start
        a = np.linalg.lstsq(xc, yc @ left / (left @ left), rcond=None)[0]
        left = yc.T @ (xc @ a) / ((xc @ a) @ (xc @ a))
    best = ((yc - np.outer(xc @ a, left)) ** 2).sum()
    assert ((found(x) - y) ** 2).sum() == pytest.approx(best, rel=1e-9)


def test_the_rank_is_chosen_on_held_out_pairs(rng):
    hidden = rng.normal(size=(400, 4))
    x = hidden @ rng.normal(size=(4, 30)) + 0.1 * rng.normal(size=(400, 30))
    y = hidden @ rng.normal(size=(4, 20)) + 2.0 * rng.normal(size=(400, 20))
    found = fit_low_rank(x, y, strength=0)
    assert found.rank == 4
    assert found.method == "low-rank"
    with pytest.raises(InvalidInput) as error:
        fit_low_rank(x, y, rank=21)
    assert str(error.value) == "rank is 21; needs a whole number from 1 to 20."


def test_low_rank_is_compared_when_asked_for(spaces):
    result = compare_maps(spaces, methods=["low-rank", "ridge"], n_anchors=8)
    assert result.methods == ("low-rank", "ridge")
    assert result.mean("low-rank") > 0.8
    assert 0 < result.of("low-rank", "a", "b").mean_cosine <= 1


def test_procrustes_agrees_with_scipy(rng):
    from scipy.linalg import orthogonal_procrustes

    x, y = rng.normal(size=(50, 4)), rng.normal(size=(50, 4))
    xc, yc = x - x.mean(axis=0), y - y.mean(axis=0)
    turn, total = orthogonal_procrustes(xc, yc)
    assert np.allclose(fit_procrustes(x, y).map, total / (xc**2).sum() * turn)


def test_cca_meets_its_correlations(rng):
    shared = rng.normal(size=(2000, 1))
    x, y = (
        np.hstack([shared + 0.5 * rng.normal(size=(2000, 1)), rng.normal(size=(2000, 2))]) for _ in range(2)
    )
    first, second = fit_cca(x, y, n_components=1, power=0)
    assert np.corrcoef(first(x)[:, 0], second(y)[:, 0])[0, 1] == pytest.approx(0.8, abs=0.03)


def test_every_method_is_scored_on_held_out_pairs(spaces):
    pytest.importorskip("torch")
    result = compare_maps(spaces, n_anchors=10)
    assert result.n_fit == 240
    assert result.n_held_out == 60
    for method in ("gcca", "cca", "ridge", "param-wip"):
        assert result.mean(method) > 0.8, method
    assert result.mean("shuffled") < 0.15
    score = result.of("ridge", "a", "b")
    assert score.recall_at_1_interval.low <= score.recall_at_1 <= score.recall_at_1_interval.high
    assert 0 < score.mean_cosine <= 1
    assert np.isnan(result.of("gcca", "a", "b").mean_cosine)
    assert result.table().count("\n") == 9
    assert {s["method"] for s in result.to_dict()["scores"]} == set(result.methods)


def test_hubness_correction_uses_fitted_items_only(spaces):
    plain = compare_maps(spaces, methods=["gcca"], n_anchors=10)
    corrected = compare_maps(spaces, methods=["gcca"], n_anchors=10, csls=True)
    assert corrected.mean("gcca") >= plain.mean("gcca") - 0.05
    held = np.arange(240, 300)
    fewer = np.concatenate([np.arange(240), held[:30]])
    whole = compare_maps(spaces, methods=["gcca"], n_anchors=10, csls=True, holdout=held)
    part = compare_maps(
        {name: x[fewer] for name, x in spaces.items()},
        methods=["gcca"],
        n_anchors=10,
        csls=True,
        holdout=np.arange(240, 270),
    )
    # A smaller gallery is easier, never harder: no statistic of the held-out items enters.
    assert part.mean("gcca") >= whole.mean("gcca") - 0.1


def surprise(mapped, own, temperature):
    """Mean −log of the right item's share of a softmax search among all rows: ten lines, no library."""
    q, p = (x / np.linalg.norm(x, axis=1, keepdims=True) for x in (mapped, own))
    logits = q @ p.T / temperature
    logits -= logits.max(axis=1, keepdims=True)
    return float((np.log(np.exp(logits).sum(axis=1)) - np.diag(logits)).mean())


@pytest.mark.parametrize("candidates", [400, 3000])
def test_the_certificate_meets_the_search_among_so_many(rng, candidates):
    shared = rng.normal(size=(3800, 8))
    views = {
        name: shared @ rng.normal(size=(8, 10)) + 0.5 * rng.normal(size=(3800, 10)) + 1.0 for name in ("a", "b")
    }
    small = {name: x[:800] for name, x in views.items()}
    found = compare_maps(
        small,
        holdout=np.arange(400, 800),
        methods=["ridge", "shuffled"],
        n_anchors=8,
        certify_at=candidates,
        temperature=0.5,
    )
    ridge = fit_ridge(small["a"][:400], small["b"][:400])
    fresh = {name: x[800 : 800 + candidates] for name, x in views.items()}
    measured = surprise(ridge(fresh["a"]) - ridge.target_mean, fresh["b"] - ridge.target_mean, 0.5)
    c = found.of("ridge", "a", "b").certified
    assert c.verdict == "trust"
    # The width is 3.9 standard errors; over 200 draws the 95 % interval covered 0.965 (400) and 0.975 (3,000).
    assert abs(c.loss - measured) < c.interval.high - c.interval.low < 0.1
    assert c.interval.low < c.loss < c.interval.high
    control = found.of("shuffled", "a", "b").certified
    assert control.interval.high > np.log(candidates) > c.interval.high + 1
    assert "trust" in found.table()
    assert found.to_dict()["scores"][0]["certified"]["n_candidates"] == candidates
    assert found.of("ridge", "a", "b").recall_at_1 == pytest.approx(found.mean("ridge"), abs=0.1)


def test_more_pairs_help(spaces):
    curve = learning_curve(spaces, sizes=[20, 200], methods=["gcca"], n_anchors=10)
    assert [c.n_fit for c in curve] == [20, 200]
    assert curve[1].mean("gcca") > curve[0].mean("gcca")


def test_too_many_anchors_are_lowered_with_a_note(spaces):
    result = compare_maps(spaces, methods=["gcca"], n_anchors=500)
    assert result.notes == ("n_anchors lowered from 500 to 27: 240 fitted items allow no more",)


def test_a_comparison_without_torch_says_what_is_missing(spaces, monkeypatch):
    monkeypatch.setattr("latentlink.spaces.compare._has_torch", lambda: False)
    result = compare_maps(spaces, methods=["gcca", "param-wip"], n_anchors=8)
    assert result.methods == ("gcca",)
    assert result.notes == ('param-wip left out: it needs torch (pip install "latentlink[torch]")',)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"holdout": 0.0}, "holdout is 0.0; needs a number in (0, 1]."),
        ({"holdout": 0.001}, "holdout is 0.001 of 300 items; needs at least 2 held out and 2 fitted."),
        ({"holdout": [0, 300]}, "holdout must hold row numbers from 0 to 299"),
        ({"certify_at": 1}, "certify_at is 1; needs a whole number >= 2."),
        ({"certify_at": 9, "csls": True}, "csls is True with certify_at: only plain cosine is certified."),
        ({"methods": ["magic"]}, "methods is 'magic'; needs one of 'random-cosine'"),
    ],
)
def test_mistakes_are_named(spaces, change, message):
    with pytest.raises(InvalidInput) as error:
        compare_maps(spaces, **change)
    assert message in str(error.value)


@pytest.mark.medium
def test_tatoeba_bars(shared_data):
    pytest.importorskip("torch")
    z = np.load(shared_data / "embeddings" / "tatoeba_demo.npz")
    spaces = {name: z[name].astype(np.float32) for name in (*TEXT, "glove50")}
    methods = ["random-cosine", "param-wip", "gcca", "ridge", "procrustes", "shuffled"]
    result = compare_maps(spaces, holdout=np.arange(1600, 2400), methods=methods)
    assert result.mean("gcca", names=TEXT) >= 0.98
    assert result.mean("param-wip", names=TEXT) >= 0.95
    assert result.mean("gcca") > max(result.mean("ridge"), result.mean("procrustes"))
    assert result.mean("shuffled") <= 0.01


@pytest.mark.medium
def test_seven_text_encoders_in_one_space(shared_data):
    z = np.load(shared_data / "embeddings" / "stsb_pool3000.npz")
    names = ("minilm", "use", "e5", "wordllama", "glove50", "tokenlearn64", "mpnet")
    spaces = {name: z[name].astype(np.float32) for name in names}
    held = np.arange(2000, 3000)
    assert compare_maps(spaces, holdout=held, methods=["gcca"]).mean("gcca") >= 0.84
    assert compare_maps(spaces, holdout=held, methods=["gcca"], csls=True).mean("gcca") >= 0.88
