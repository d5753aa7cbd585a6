import numpy as np
import pytest

from latentlink import InvalidInput, MissingExtra, RelativeSpace, load_space
from latentlink.moments import collect
from latentlink.spaces import anchors as choice


@pytest.fixture
def pair(rng):
    """Two affine views of the same items, exactly."""
    shared = rng.normal(size=(300, 6))
    return {"a": shared @ rng.normal(size=(6, 6)) + 2.0, "b": shared @ rng.normal(size=(6, 9)) - 1.0}


@pytest.fixture
def noisy(rng):
    shared = rng.normal(size=(400, 10))
    return {
        name: np.tanh(shared @ rng.normal(size=(10, d)) / 3) + 0.05 * rng.normal(size=(400, d)) + 1.0
        for name, d in (("a", 20), ("b", 24), ("c", 16))
    }


def recall(space, data, source, target):
    queries, gallery = (space.encode(data[name], source=name) for name in (source, target))
    unit = [x / np.linalg.norm(x, axis=1, keepdims=True) for x in (queries, gallery)]
    return float(((unit[0] @ unit[1].T).argmax(axis=1) == np.arange(len(queries))).mean())


@pytest.mark.parametrize("kind", ["random", "farthest", "kmeans", "gcca"])
def test_an_encode_is_one_affine_map_and_affine_views_agree_exactly(pair, kind):
    space = RelativeSpace(5, kind, shrinkage=0).fit(pair)
    encoded = {name: space.encode(x, source=name) for name, x in pair.items()}
    assert np.allclose(encoded["a"], encoded["b"], atol=1e-9 * np.abs(encoded["a"]).max())
    encoder = space.encoders_["a"]
    assert np.array_equal(encoded["a"], (pair["a"] - encoder.mean) @ encoder.map)


@pytest.mark.parametrize("kind", ["random", "farthest", "kmeans", "gcca"])
def test_relative_vectors_are_similarities_to_weighted_means(pair, kind):
    x = pair["a"]
    space = RelativeSpace(4, kind, shrinkage=0).fit(pair)
    weights = space.weights_ if isinstance(space.weights_, np.ndarray) else space.weights_.toarray()
    assert (weights >= 0).all()
    assert np.allclose(weights.sum(axis=1), 1)
    centred, anchors = x - x.mean(axis=0), weights @ x - x.mean(axis=0)
    expected = centred @ np.linalg.inv(np.cov(x, rowvar=False)) @ anchors.T
    assert np.allclose(space.encode(x, source="a"), expected, atol=1e-9)


def test_given_weights_may_be_sparse(pair, tmp_path):
    weights = RelativeSpace(4, "kmeans").fit(pair).weights_
    sparse, dense = (RelativeSpace(4, given).fit(pair) for given in (weights, weights.toarray()))
    assert np.allclose(sparse.encode(pair["a"], source="a"), dense.encode(pair["a"], source="a"), atol=1e-9)
    assert not isinstance(sparse.weights_, np.ndarray)
    sparse.save(tmp_path / "space")
    assert load_space(tmp_path / "space").fingerprint() == sparse.fingerprint()
    with pytest.raises(InvalidInput, match=r"anchors has rows that do not sum to 1"):
        RelativeSpace(4, 2 * weights).fit(pair)
    with pytest.raises(InvalidInput, match=rf"anchors has 9 columns; needs {len(pair['a'])}"):
        RelativeSpace(4, weights[:, :9]).fit(pair)


@pytest.mark.parametrize("similarity", ["cosine", "centred", "whitened", "mahalanobis"])
def test_other_similarities_agree_with_their_formula(pair, similarity):
    x = pair["a"]
    space = RelativeSpace(7, "random", similarity, shrinkage=0).fit(pair)
    anchors = space.weights_ @ x
    centre = 0.0 if similarity == "cosine" else x.mean(axis=0)
    root = np.eye(6)
    if similarity in ("whitened", "mahalanobis"):
        values, vectors = np.linalg.eigh(np.cov(x, rowvar=False))
        root = vectors / np.sqrt(values)
    z, b = (x - centre) @ root, (anchors - centre) @ root
    if similarity == "mahalanobis":
        expected = -np.linalg.norm(z[:, None] - b[None], axis=2)
    else:
        expected = z @ b.T / np.linalg.norm(z, axis=1)[:, None] / np.linalg.norm(b, axis=1)
    assert np.allclose(space.encode(x, source="a"), expected, atol=1e-6)


def test_closed_form_coordinates_are_uncorrelated_and_shared(pair):
    space = RelativeSpace(6, "gcca", shrinkage=0).fit(pair)
    r = space.encode(pair["a"], source="a")
    correlation = np.corrcoef(r, rowvar=False)
    assert np.allclose(correlation, np.eye(6), atol=1e-8)


def test_float32_in_gives_float32_out(noisy):
    space = RelativeSpace(8).fit(noisy)
    single = space.encode(noisy["a"].astype(np.float32), source="a")
    assert single.dtype == np.float32
    assert np.allclose(single, space.encode(noisy["a"], source="a"), atol=1e-5)


@pytest.mark.parametrize("kind", ["gcca", "param"])
def test_search_between_encoders_and_its_control(noisy, kind):
    if kind == "param":
        pytest.importorskip("torch")
    rng = np.random.default_rng(3)
    fit = {name: x[:300] for name, x in noisy.items()}
    held = {name: x[300:] for name, x in noisy.items()}
    assert RelativeSpace(10, kind).fit(fit).evaluate(held).mean("space") > 0.9
    broken = {name: x[rng.permutation(300)] for name, x in fit.items()}
    assert RelativeSpace(10, kind).fit(broken).evaluate(held).mean("space") < 0.1


def test_exact_translation_where_it_exists(pair):
    space = RelativeSpace(6, "gcca", shrinkage=0).fit(pair)
    assert np.allclose(space.translate(pair["b"], source="b", target="a"), pair["a"], atol=1e-4)


@pytest.mark.parametrize("kind", ["kmeans", "gcca"])
@pytest.mark.parametrize("normalisation", ["none", "gram", "zscore", "l2"])
def test_saved_and_loaded_spaces_are_the_same(noisy, tmp_path, normalisation, kind):
    ids = [f"item {i}" for i in range(400)]
    space = RelativeSpace(8, kind, normalisation=normalisation).fit(noisy, ids=ids)
    space.save(tmp_path / "space")
    loaded = load_space(tmp_path / "space")
    for name, x in noisy.items():
        assert np.array_equal(loaded.encode(x, source=name), space.encode(x, source=name))
        assert loaded.fingerprint(name) == space.fingerprint(name)
    assert loaded.ids_.tolist() == ids
    assert loaded.fingerprint() == space.fingerprint()
    extra = noisy["a"] * 2
    added = [s.add("d", extra, ids=ids).encode(extra, source="d") for s in (space, loaded)]
    assert np.allclose(*added)
    r = space.encode(noisy["a"], source="a")
    if normalisation == "l2":
        assert np.allclose(np.linalg.norm(r, axis=1), 1)
    if normalisation == "zscore":
        assert np.allclose(r.std(axis=0), 1)


def test_an_altered_file_is_refused(noisy, tmp_path):
    RelativeSpace(8).fit(noisy).save(tmp_path / "space")
    file = tmp_path / "space" / "space.safetensors"
    data = bytearray(file.read_bytes())
    data[-9] ^= 1
    file.write_bytes(data)
    with pytest.raises(InvalidInput) as error:
        load_space(tmp_path / "space")
    assert str(error.value) == f"{file} was altered after it was saved; take it from a good copy."


def test_an_added_encoder_joins_from_the_support_alone(noisy):
    two = {name: noisy[name] for name in ("a", "b")}
    space = RelativeSpace(10).fit({name: x[:300] for name, x in two.items()})
    before = space.fingerprint(), space.fingerprint("a")
    order = np.random.default_rng(0).permutation(300)
    space.add("c", noisy["c"][order], ids=order)
    assert (space.fingerprint(), space.fingerprint("a")) == before
    assert recall(space, {name: x[300:] for name, x in noisy.items()}, "c", "a") > 0.9


def test_items_are_joined_by_id(noisy):
    order = np.random.default_rng(0).permutation(400)
    ids = {"a": np.arange(400), "b": order[:350], "c": np.arange(400)}
    moved = {"a": noisy["a"], "b": noisy["b"][order[:350]], "c": noisy["c"]}
    space = RelativeSpace(8).fit(moved, ids=ids, seen_by="all")
    assert space.matched_ == {"a": (350, 400), "b": (350, 350), "c": (350, 400)}
    kept = np.sort(order[:350])
    plain = RelativeSpace(8).fit({name: x[kept] for name, x in noisy.items()})
    assert np.allclose(space.encode(noisy["a"], source="a"), plain.encode(noisy["a"], source="a"))


def test_moments_stand_for_the_data(noisy):
    ids = np.arange(400)
    states = {name: collect(name, [(x, ids)], support_size=400) for name, x in noisy.items()}
    by_moments = RelativeSpace(8, shrinkage=0.05).fit(states)
    direct = RelativeSpace(8, shrinkage=0.05).fit(noisy, ids=ids)
    assert by_moments.ids_.size == 400
    for name, x in noisy.items():
        a, b = (np.abs(s.encode(x, source=name)) for s in (by_moments, direct))
        assert np.allclose(a, b, rtol=1e-3, atol=1e-4)


def test_auto_says_why(noisy):
    space = RelativeSpace(8, "auto").fit(noisy)
    assert space.reason_.startswith("anchors are '")
    assert "mean R@1 on 80 held-out items was" in space.reason_


def test_sixty_pairs_and_duplicates_stay_usable(rng):
    shared = rng.normal(size=(160, 8))
    views = {n: shared @ rng.normal(size=(8, 40)) + 0.02 * rng.normal(size=(160, 40)) for n in "ab"}
    fit = {n: np.vstack([x[:60], x[:10]]) for n, x in views.items()}
    space = RelativeSpace(8).fit(fit)
    assert space.evaluate({n: x[60:] for n, x in views.items()}).mean("space") > 0.9


@pytest.mark.parametrize(
    ("action", "message"),
    [
        (
            lambda p: RelativeSpace(5).fit({"a": p["a"]}),
            "spaces has 1 encoder; a shared space needs at least 2.",
        ),
        (lambda p: RelativeSpace(5, "gca").fit(p), "anchors is 'gca'; needs one of"),
        (
            lambda p: RelativeSpace(500, "random").fit(p),
            "n_anchors is 500 but there are 300 shared items; lower n_anchors or add items.",
        ),
        (lambda p: RelativeSpace(5).encode(p["a"], source="a"), "this RelativeSpace is not fitted"),
        (lambda p: RelativeSpace(5).fit(p).encode(p["a"], source="z"), "source is 'z'; needs one of 'a', 'b'."),
        (lambda p: RelativeSpace(5).fit(p).encode(p["b"], source="a"), "embeddings has 9 columns; needs 6."),
        (
            lambda p: RelativeSpace(5).fit({"a": p["a"], "b": p["b"][1:]}),
            "a and b differ in rows: 300 and 299.",
        ),
        (lambda p: RelativeSpace(5).fit(p).add("a", p["a"]), "name is 'a', which the space has already"),
        (lambda p: RelativeSpace(5).fit(p).add("c", p["a"][:9]), "embeddings has 9 rows; the support has 300"),
        (
            lambda p: (
                RelativeSpace(5, similarity="mahalanobis").fit(p).translate(p["a"], source="a", target="b")
            ),
            'similarity is "mahalanobis"; translate needs one that is linear.',
        ),
    ],
)
def test_mistakes_are_named(pair, action, message):
    with pytest.raises(InvalidInput) as error:
        action(pair)
    assert message in str(error.value)


def test_param_without_torch_names_the_extra(pair, monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises((MissingExtra, ImportError)):
        RelativeSpace(5, "param").fit(pair)


def test_farthest_points_are_far_apart(rng):
    points = np.concatenate([rng.normal(size=(50, 2)) * 0.01 + c for c in ([0, 0], [9, 0], [0, 9])])
    picked = choice.farthest_anchors([points], 3).indices
    assert sorted(picked // 50) == [0, 1, 2]
