"""Items that not every encoder has seen."""

import itertools

import numpy as np
import pytest

from latentlink import InvalidInput, RelativeSpace, load_space
from latentlink.spaces import anchors as choice
from latentlink.spaces import doctor
from latentlink.spaces.items import gather
from latentlink.spaces.missing import balanced, moved_mean, predicted_anchors


def views_of(rng, n=390, noise=0.0, d=6):
    """Three views of the same items; a third of the items lies elsewhere than the rest."""
    shared = rng.normal(size=(n, 6))
    shared[n // 3 : 2 * n // 3, 0] += 2.0
    return {
        name: shared @ rng.normal(size=(6, d)) + noise * rng.normal(size=(n, d)) + 1.0
        for name, d in (("a", d), ("b", d), ("c", d))
    }


def rotating(views, n=300):
    """Each encoder sees two thirds of the first n items, in an order of its own: no item is seen by all."""
    third = n // 3
    seen = {
        "a": np.arange(0, 2 * third),
        "b": np.arange(third, n)[::-1],
        "c": np.concatenate([np.arange(2 * third, n), np.arange(third)]),
    }
    return {name: views[name][rows] for name, rows in seen.items()}, seen


def test_affine_views_agree_exactly_though_no_item_is_seen_by_all(rng):
    views = views_of(rng)
    fit, ids = rotating(views)
    space = RelativeSpace(6, shrinkage=0).fit(fit, ids=ids)
    assert space.matched_ == dict.fromkeys("abc", (200, 200))
    assert space.ids_.size == 300
    encoded = [space.encode(views[name][300:], source=name) for name in "abc"]
    for first, second in itertools.combinations(encoded, 2):
        assert np.allclose(first, second, atol=1e-8 * np.abs(first).max())
    moved = space.translate(views["a"][300:], source="a", target="c")
    assert np.allclose(moved, views["c"][300:], atol=1e-3)
    with pytest.raises(InvalidInput) as error:
        RelativeSpace(6).fit(fit, ids=ids, seen_by="all")
    assert str(error.value) == "the encoders have no id in common; needs shared items."


@pytest.mark.parametrize("kind", ["gcca", "kmeans", "random", "farthest"])
def test_with_nothing_missing_it_is_the_plain_fit(rng, kind):
    views = views_of(rng, noise=0.2)
    order = rng.permutation(390)
    ids = {name: np.arange(390) for name in views}
    moved, ids["b"] = {**views, "b": views["b"][order]}, order
    plain, joined = RelativeSpace(5, kind).fit(views), RelativeSpace(5, kind).fit(moved, ids=ids)
    assert joined.fingerprint() == plain.fingerprint()
    for name, x in views.items():
        assert np.array_equal(joined.encode(x, source=name), plain.encode(x, source=name))


def test_the_closed_form_solves_its_equation(rng):
    views = views_of(rng, n=60, noise=0.5)
    fit, ids = rotating(views, n=60)
    support = gather(fit, ids, seen_by=2)
    m, left, counts = support.ids.size, np.zeros((60, 60)), np.zeros(60)
    frames = {}
    for name, x in fit.items():
        z = x[support.rows[name]]
        z = (z - z.mean(axis=0)) @ np.linalg.inv(np.linalg.cholesky(np.cov(z, rowvar=False))).T
        frames[name] = z
        design = np.column_stack([np.ones(z.shape[0]), z])
        hat = design @ np.linalg.solve(design.T @ design, design.T)
        left[np.ix_(support.places[name], support.places[name])] += hat
        counts[support.places[name]] += 1
    places = list(support.places.values())
    weights = choice.gcca_anchors(list(balanced(support, frames).values()), 4, weight=0.0, places=places)
    assert (weights >= 0).all()
    assert np.allclose(weights.sum(axis=1), 1)
    from scipy.linalg import eigh

    values, vectors = eigh(left, np.diag(counts))
    assert values[-1] == pytest.approx(1.0)  # the constant
    g = weights.T - 1 / m
    for r in range(4):
        wanted = vectors[:, -2 - r] - vectors[:, -2 - r].mean()
        cosine = g[:, r] @ wanted / np.linalg.norm(g[:, r]) / np.linalg.norm(wanted)
        assert abs(cosine) == pytest.approx(1.0, abs=1e-9)


def test_the_closed_form_with_gaps_meets_the_plain_one(rng, monkeypatch):
    frames = [rng.normal(size=(80, 5)), rng.normal(size=(80, 4))]
    plain = choice.gcca_anchors(frames, 6)
    places = [np.arange(80), np.arange(80)]
    stacked, root = choice._with_gaps(frames, places)
    assert np.allclose(root, 1)
    values, shared = choice._leading(stacked, 6)
    wanted_values, wanted = choice._leading(np.hstack([z - z.mean(axis=0) for z in frames]), 6)
    assert np.allclose(values, wanted_values)
    assert np.allclose(shared, wanted)
    assert np.array_equal(choice.gcca_anchors(frames, 6, places=places), plain)


def test_targets_are_predicted_by_least_squares(rng):
    z, places = rng.normal(size=(40, 3)), np.sort(rng.permutation(70)[:40])
    z -= z.mean(axis=0)
    z = z @ np.linalg.inv(np.linalg.cholesky(np.cov(z, rowvar=False))).T  # whitened on the seen items
    weights = rng.dirichlet(np.ones(70), size=5)
    targets = (weights[:, places] - 1 / 70).T
    wanted = np.linalg.lstsq(z, targets - targets.mean(axis=0), rcond=None)[0].T * 69
    assert np.allclose(predicted_anchors(weights, z, places), wanted)


def test_the_mean_over_all_items_is_recovered(rng):
    shared = rng.normal(size=(200, 3)) + (np.arange(200) > 120)[:, None] * [3.0, 0.0, 0.0]
    x = shared @ rng.normal(size=(3, 5)) + 4.0
    places = np.arange(120)
    g = shared - shared.mean(axis=0)
    weights = 1 / 200 + g.T / (200 * np.abs(g).max())
    assert np.allclose(moved_mean(x[:120].mean(axis=0), x[:120], weights, places, 0.0), x.mean(axis=0))
    assert np.linalg.norm(x[:120].mean(axis=0) - x.mean(axis=0)) > 1


def held_out(space, views, n=300):
    return space.evaluate({name: x[n:] for name, x in views.items()}).mean("space")


def some_missing(rng, views, n=300, share=0.4):
    seen = {name: np.sort(rng.permutation(n)[: round((1 - share) * n)]) for name in views}
    return {name: x[seen[name]] for name, x in views.items()}, seen


@pytest.mark.parametrize("similarity", ["wip", "whitened", "centred", "cosine", "mahalanobis"])
@pytest.mark.parametrize("normalisation", ["none", "zscore", "gram"])
def test_items_that_some_lack_help(rng, similarity, normalisation):
    views = views_of(rng, noise=0.3, d=12)
    fit, ids = some_missing(rng, views, share=0.5)
    space = RelativeSpace(6, "gcca", similarity, normalisation).fit(fit, ids=ids)
    joined = RelativeSpace(6, "gcca", similarity, normalisation).fit(fit, ids=ids, seen_by="all")
    whole = RelativeSpace(6, "gcca", similarity, normalisation).fit(
        {name: x[:300] for name, x in views.items()}
    )
    assert joined.ids_.size < 60 < 130 < space.ids_.size
    assert np.isfinite(space.consensus_).all()
    if similarity in ("wip", "whitened"):
        assert held_out(joined, views) < held_out(space, views) < held_out(whole, views)


@pytest.mark.parametrize("kind", ["kmeans", "random", "farthest", "auto"])
def test_other_anchors_take_items_that_all_have_seen(rng, kind):
    views = views_of(rng, noise=0.3, d=12)
    fit, ids = some_missing(rng, views)
    space = RelativeSpace(6, kind).fit(fit, ids=ids)
    common = set(ids["a"]) & set(ids["b"]) & set(ids["c"])
    assert set(space.ids_.tolist()) == common
    if kind == "auto":
        return
    with pytest.raises(InvalidInput) as error:
        RelativeSpace(6, kind).fit(fit, ids=ids, seen_by=2)
    assert str(error.value) == (
        f"seen_by is 2 with anchors {kind!r}; items that some encoder has not seen need "
        'anchors="gcca". Pass seen_by="all".'
    )
    rows = space.ids_[:-1].astype(int)
    with pytest.raises(
        InvalidInput, match=f"support items; needs all, as the anchors are {kind!r}. Add their rows."
    ):
        space.add("d", views["a"][rows], ids=rows)


def test_an_encoder_joins_though_it_has_not_seen_all_items(rng, tmp_path):
    views = views_of(rng)
    fit, ids = rotating({name: x[:300] for name, x in views.items()})
    space = RelativeSpace(6, shrinkage=0).fit({n: fit[n] for n in "ab"}, ids=ids, seen_by=2)
    assert space.ids_.tolist() == list(range(100, 200))
    rows = np.arange(90, 160)  # 60 support items of one kind, and 10 others
    space.save(tmp_path / "space")
    for fitted in (space, load_space(tmp_path / "space")):
        fitted.add("c", views["c"][rows][10:], ids=rows[10:])
        assert fitted.matched_["c"] == (60, 60)
        first, second = (fitted.encode(views[name][300:], source=name) for name in "ac")
        assert np.allclose(first, second, atol=1e-6 * np.abs(first).max())
    with pytest.warns(UserWarning, match="ids has 40 of the 100 support items: the map of 'd' will be rough"):
        space.add("d", views["c"][100:140], ids=np.arange(100, 140))
    with pytest.raises(InvalidInput) as error:
        space.add("e", views["c"][:102], ids=np.arange(102))
    assert str(error.value) == "ids has 2 of the 100 support items; needs 4, better all. Add their rows."


def test_probes_that_were_not_seen_are_left_out(rng, tmp_path):
    views = views_of(rng)
    fit, ids = rotating(views)
    RelativeSpace(6).fit(fit, ids=ids).save(tmp_path / "space")
    space = load_space(tmp_path / "space")
    probes = space.probe_ids.astype(int)
    assert doctor(space, views["a"][probes], source="a", probes=True).verdict == "same"
    assert doctor(space, -views["a"][probes], source="a", probes=True).verdict == "sign-flipped"
    with pytest.raises(InvalidInput, match="'b' had seen only 0 probe items when it was fitted; needs 8"):
        doctor(space, views["b"][probes], source="b", probes=True)


@pytest.mark.parametrize(
    ("ids", "seen_by", "message"),
    [
        ({"a": [1, 2], "b": [3, 4], "c": [5, 6]}, 2, "the encoders have no id in common; needs shared items."),
        (
            {"a": [1, 2], "b": [1, 2], "c": [5, 6]},
            2,
            "'c' shares no item with 'a', directly or through other encoders; add items that link them.",
        ),
        (
            {"a": [1, 2], "b": [1, 2], "c": [1, 2]},
            4,
            'seen_by is 4; needs "all" or a whole number from 2 to 3.',
        ),
        ({"a": [1, 1], "b": [1, 2], "c": [1, 2]}, 2, "ids['a']"),
    ],
)
def test_mistakes_are_named(ids, seen_by, message):
    arrays = {name: np.random.default_rng(0).normal(size=(2, 2)) for name in "abc"}
    with pytest.raises(InvalidInput) as error:
        RelativeSpace(1).fit(arrays, ids=ids, seen_by=seen_by)
    assert message in str(error.value)


@pytest.mark.medium
def test_seven_encoders_of_which_each_lacks_some_items(shared_data):
    z = np.load(shared_data / "embeddings" / "stsb_pool3000.npz")
    names = ("minilm", "use", "e5", "wordllama", "glove50", "tokenlearn64", "mpnet")
    spaces = {name: z[name].astype(np.float32) for name in names}
    rng = np.random.default_rng(0)
    ids = {name: np.sort(rng.permutation(2000)[:1400]) for name in names}
    fit = {name: x[ids[name]] for name, x in spaces.items()}
    overlap = held_out(RelativeSpace().fit(fit, ids=ids), spaces, 2000)
    joined = held_out(RelativeSpace(150).fit(fit, ids=ids, seen_by="all"), spaces, 2000)
    assert overlap >= 0.79
    assert joined <= 0.6
