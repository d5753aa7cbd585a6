"""Learned anchors against least squares refitted by hand, the closed form, and slow dense versions."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from latentlink import InvalidInput, RelativeSpace, Whitener, compare_maps
from latentlink.spaces.anchors import gcca_anchors
from latentlink.tails.online import Gate

torch = pytest.importorskip("torch")
from latentlink.spaces.learned import learn_anchors, left_out  # noqa: E402
from latentlink.spaces.mixtures import geometry, learn_mixtures, own_weights  # noqa: E402


def views(m, widths, noise, *, seed=0, shared=12):
    """Draw noisy non-linear views of shared items, raw."""
    rng = np.random.default_rng(seed)
    items = rng.normal(size=(m, shared))
    return {
        f"e{i}": np.tanh(items @ rng.normal(size=(shared, d)) / 3) + noise * rng.normal(size=(m, d))
        for i, d in enumerate(widths)
    }


@pytest.fixture
def frames():
    return [Whitener(shrinkage=0).fit(x).transform(x) for x in views(160, (20, 24, 16), 0.2).values()]


def cosines(frame, weights):
    r = frame @ ((weights - weights.mean(axis=1, keepdims=True)) @ frame).T
    r /= np.linalg.norm(r, axis=1, keepdims=True)
    return r @ r.T


def test_a_left_out_vector_is_the_regression_refitted_without_its_item(rng):
    z = Whitener(shrinkage=0).fit(x := rng.normal(size=(60, 5))).transform(x)
    y = rng.normal(size=(60, 3))
    y -= y.mean(axis=0)
    given = [torch.as_tensor(v) for v in (z, z.T @ y, y)]
    fast = left_out(given[0], given[1], given[2], 60).numpy()
    for j in range(60):
        others = np.arange(60) != j
        slow = z[j] @ np.linalg.lstsq(z[others], y[others], rcond=None)[0]
        assert np.allclose(fast[j], slow, atol=1e-10)


@pytest.mark.medium
@pytest.mark.parametrize("start", ["random", "kmeans"])
def test_a_heavy_orthogonality_term_leads_to_the_closed_form(frames, start):
    options = {"steps": 150, "learning_rate": 0.1, "orthogonality": 1e4}
    learned = learn_anchors(frames, 8, start=start, **options)
    closed = gcca_anchors(frames, 8)
    for frame in frames:
        assert np.allclose(cosines(frame, learned.weights), cosines(frame, closed), atol=0.02)


@pytest.mark.parametrize("given", [False, True])
def test_no_step_from_the_closed_form_is_the_closed_form(frames, given):
    closed = gcca_anchors(frames, 8)
    weights = learn_anchors(frames, 8, start=closed if given else "gcca", steps=0).weights
    assert np.allclose(weights, closed, atol=1e-9)


@settings(max_examples=5, deadline=None)
@given(m=st.integers(12, 40), k=st.integers(1, 5), seed=st.integers(0, 99), patience=st.integers(0, 1))
def test_rows_are_weights(m, k, seed, patience):
    rng = np.random.default_rng(seed)
    data = [rng.normal(size=(m, d)) for d in (3, 4)]
    dense = learn_anchors(data, k, steps=5 * patience, patience=patience, seed=seed).weights
    sparse = learn_mixtures(
        data, k, n_items=3, steps=5 * patience, patience=patience, seed=seed
    ).weights.toarray()
    for weights in (dense, sparse):
        assert weights.shape == (k, m)
        assert (weights >= 0).all()
        assert np.allclose(weights.sum(axis=1), 1)
    assert ((sparse > 0).sum(axis=1) <= 3).all()


def test_learning_lowers_the_loss_and_repeats_to_the_bit(frames):
    first, second = (learn_anchors(frames, 8, steps=15, seed=3) for _ in range(2))
    assert np.array_equal(first.weights, second.weights)
    assert first.losses[-3:].mean() < 0.8 * first.losses[:3].mean()
    assert not np.array_equal(first.weights, learn_anchors(frames, 8, steps=15, seed=4).weights)


@pytest.mark.medium
@pytest.mark.parametrize(("start", "steps"), [("random", 40), ("kmeans", 100)])  # clusters begin farther away
def test_noisy_encoders_are_searched_as_well_as_by_the_closed_form(start, steps):
    data = views(1500, (40, 50, 60), 0.5, shared=24)
    fit, held = ({name: x[part] for name, x in data.items()} for part in (slice(1000), slice(1000, None)))
    frames = [Whitener().fit(x).transform(x) for x in fit.values()]
    found = {
        name: RelativeSpace(24, weights).fit(fit).evaluate(held).mean("space")
        for name, weights in (
            ("closed", gcca_anchors(frames, 24)),
            ("learned", learn_anchors(frames, 24, start=start, steps=steps).weights),
        )
    }
    assert 0.3 < found["closed"] < 0.99  # neither hopeless nor solved
    assert found["learned"] > found["closed"] - 0.02


@pytest.mark.medium
def test_seven_text_encoders_are_searched_as_well_as_by_the_closed_form(shared_data):
    z = np.load(shared_data / "embeddings" / "stsb_pool3000.npz")
    names = ("minilm", "use", "e5", "wordllama", "glove50", "tokenlearn64", "mpnet")
    result = compare_maps(
        {name: z[name].astype(np.float32) for name in names},
        holdout=np.arange(2000, 3000),
        methods=["gcca", "param-wip"],
    )
    assert result.mean("param-wip") >= result.mean("gcca") - 0.01


def test_weince_with_a_shut_gate_is_infonce_and_with_an_open_one_is_not(frames):
    plain = learn_anchors(frames, 8, steps=5).weights
    shut = learn_anchors(frames, 8, steps=5, loss="weince", gate=Gate(margin=1e9)).weights
    wide = learn_anchors(frames, 8, steps=5, loss="weince", gate=Gate(evidence="gap", pivot=2.0)).weights
    assert np.array_equal(plain, shut)
    assert np.abs(wide - plain).max() > 1e-6


@pytest.mark.parametrize("learn", [learn_anchors, learn_mixtures])
def test_early_stopping_keeps_the_best_and_held_out_items_say_nothing(frames, learn):
    learned = learn(frames, 8, steps=100, learning_rate=0.5, patience=2)
    assert learned.losses.size < 100
    assert learned.held_out.size - 1 - int(np.argmin(learned.held_out)) == 2
    weights = learned.weights if learn is learn_anchors else learned.weights.toarray()
    silent = np.isclose(weights, 1 / 160 if learn is learn_anchors else 0.0, atol=1e-15).all(axis=0)
    assert silent.sum() == 16


def test_one_encoder_can_stop_early_on_its_own_terms(frames):
    learned = learn_mixtures(frames[:1], 8, contrast=0, length=1, steps=20, patience=4)
    assert learned.held_out.size == 4
    assert learned.held_out[-1] < learned.held_out[0]


def test_all_items_a_row_is_the_dense_softmax(frames):
    """Twenty steps written out densely: softmax of (k, m) logits, leave-one-out, InfoNCE, Adam."""
    weights = np.random.default_rng(0).dirichlet(np.ones(160), size=8)
    sparse = learn_mixtures(frames, 8, start=weights, steps=20, batch=160, learning_rate=0.05)
    z = [torch.as_tensor(frame - frame.mean(axis=0)) for frame in frames]
    logits = torch.tensor(np.log(np.maximum(160 * weights, 1e-6)), requires_grad=True)
    scale = torch.tensor(-np.log(0.05), requires_grad=True)
    optimizer = torch.optim.Adam(
        [{"params": [logits], "lr": 0.05}, {"params": [scale], "lr": 0.02}], betas=(0.9, 0.99)
    )
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 20)
    for _ in range(20):
        p = torch.softmax(logits, dim=1)
        relative = []
        for x in z:
            h = (x * x).sum(1, keepdim=True) / 159
            r = (x @ (p @ x).T / 159 - h * (p.T - 1 / 160)) / (1 - h)
            relative.append(r / r.norm(dim=1, keepdim=True))
        terms = []
        for a, b in itertools.combinations(relative, 2):
            s = a @ b.T * scale.exp()
            terms += [-torch.log_softmax(s, dim=d).diagonal().mean() for d in (0, 1)]
        loss = torch.stack(terms).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
    assert sparse.weights.nnz == 8 * 160
    assert np.allclose(sparse.weights.toarray(), torch.softmax(logits.detach(), dim=1), rtol=2e-2, atol=1e-6)
    assert sparse.losses[-1] == pytest.approx(float(loss.detach()), rel=1e-4)


def test_sparse_rows_keep_the_largest_weights(frames):
    weights = np.random.default_rng(0).dirichlet(np.ones(160), size=8)
    sparse = learn_mixtures(frames, 8, n_items=20, start=weights, steps=0).weights.toarray()
    for row, full in zip(sparse, weights, strict=True):
        top = np.sort(np.argsort(full)[-20:])
        assert np.array_equal(np.flatnonzero(row), top)
        assert np.allclose(row[top], full[top] / full[top].sum(), rtol=1e-4)


def test_items_own_weights_are_looked_up(rng):
    dense = np.zeros((4, 10))
    chosen = np.array([rng.choice(10, 3, replace=False) for _ in range(4)])
    values = rng.random((4, 3))
    np.put_along_axis(dense, chosen, values, axis=1)
    items = np.array([7, 2, 9, 0, 4])
    found = own_weights(*(torch.as_tensor(v) for v in (values, chosen, items)), 10)
    assert np.array_equal(found.numpy(), dense[:, items].T)


def test_geometry_terms_agree_with_their_formulas(rng):
    z, b = rng.normal(size=(7, 4)), rng.normal(size=(3, 4))
    distance = ((z[:, None] - b) ** 2).mean(axis=2)
    share = np.exp(-distance / 0.1) / np.exp(-distance / 0.1).sum(axis=1, keepdims=True)
    angles = [
        (b[r] @ b[s] / np.linalg.norm(b[r]) / np.linalg.norm(b[s])) ** 2
        for r, s in itertools.permutations(range(3), 2)
    ]
    expected = (
        (share * distance).sum(axis=1).mean(),
        np.mean(angles),
        ((np.sqrt((b**2).mean(axis=1)) - 0.3) ** 2).mean(),
    )
    given = torch.as_tensor(z), torch.as_tensor(b)
    for weights, value in zip(np.eye(3), expected, strict=True):
        assert float(geometry(*given, *weights)) == pytest.approx(value, rel=1e-9)


@pytest.mark.parametrize(
    ("learn", "change", "message"),
    [
        (
            learn_anchors,
            {"frames": 1},
            "frames holds 1 encoder; the contrastive term needs 2. Use learn_mixtures",
        ),
        (learn_anchors, {"n_anchors": 200}, "n_anchors is 200 but 160 shared items of 60 columns"),
        (learn_anchors, {"start": "best"}, "start is 'best'"),
        (learn_anchors, {"loss": "triplet"}, "loss is 'triplet'"),
        (learn_anchors, {"gate": Gate()}, "gate is given but loss is 'infonce'"),
        (
            learn_mixtures,
            {"frames": 1},
            "frames holds 1 encoder; the contrastive term needs 2. Pass contrast=0.",
        ),
        (learn_mixtures, {"n_items": 161}, "n_items is 161"),
        (learn_mixtures, {"n_anchors": 161}, "n_anchors is 161"),
        (learn_mixtures, {"start": "gcca"}, "start is 'gcca'"),
    ],
)
def test_a_mistake_is_named(frames, learn, change, message):
    options = {"frames": 3, "n_anchors": 8, **change}
    with pytest.raises(InvalidInput) as error:
        learn(frames[: options.pop("frames")], options.pop("n_anchors"), **options)
    assert message in str(error.value)
