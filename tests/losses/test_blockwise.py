"""The engine equals the dense functions: values, and gradients in rows, candidates and temperature."""

import math

import numpy as np
import pytest
import torch
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from latentlink.losses import (
    InfoNCELoss,
    NTXentLoss,
    SymmetricInfoNCELoss,
    WEINCELoss,
    _walk,
    blockwise,
    functional,
)
from latentlink.losses._faces import lay_out
from latentlink.losses._tops import Tops, largest
from latentlink.tails.online import Gate

FUNCTIONS = {
    "nt_xent": functional.nt_xent,
    "one_way": functional.info_nce,
    "symmetric": functional.symmetric_info_nce,
}
MODULES = {"nt_xent": NTXentLoss, "one_way": InfoNCELoss, "symmetric": SymmetricInfoNCELoss}
OPEN = Gate(pivot=0.5, margin=-5.0)
GATES = {
    "open": OPEN,
    "half": Gate(pivot=0.25),
    "relative": Gate(pivot=None),
    "released": WEINCELoss.released().gate,
    "paper": WEINCELoss.paper().gate,
}


def views(n, d, seed=0, dtype=torch.float64, noise=0.5):
    g = torch.Generator().manual_seed(seed)
    z0 = torch.randn(n, d, generator=g, dtype=dtype)
    return z0, z0 + noise * torch.randn(n, d, generator=g, dtype=dtype)


def value_and_gradients(loss, z0, z1, tau, weights):
    a, b = z0.clone().requires_grad_(), z1.clone().requires_grad_()
    t = torch.tensor(tau, dtype=z0.dtype, requires_grad=True)
    each = loss(a, b, t)
    return each.detach(), *torch.autograd.grad((each * weights).sum(), (a, b, t))


def assert_equal(engine, dense, rtol):
    for name, x, y in zip(["loss", "z0", "z1", "temperature"], engine, dense, strict=True):
        size = max(float(y.abs().max()), 1e-30)
        np.testing.assert_allclose(x / size, y / size, rtol=rtol, atol=rtol, err_msg=name)


@pytest.mark.parametrize("layout", FUNCTIONS)
@pytest.mark.parametrize("n", [1, 2, 3, 200, 700])  # 700: several tiles, the last one uneven
@pytest.mark.parametrize("tau", [0.5, 0.01, 0.002])
@pytest.mark.parametrize("memory", [0.0, 32.0])
def test_plain_losses_in_float64(layout, n, tau, memory):
    z0, z1 = views(n, 6)
    w = torch.linspace(0.1, 1, n if layout == "one_way" else 2 * n, dtype=torch.float64)
    engine = value_and_gradients(
        lambda a, b, t: blockwise.plain_losses(lay_out(layout, a, b), t, "own", memory), z0, z1, tau, w
    )
    dense = value_and_gradients(lambda a, b, t: FUNCTIONS[layout](a, b, temperature=t), z0, z1, tau, w)
    assert_equal(engine, dense, 1e-9)


@pytest.mark.parametrize("layout", FUNCTIONS)
@pytest.mark.parametrize("gate", GATES)
@pytest.mark.parametrize("noise", [0.5, 0.01])
def test_weince_in_float64(layout, gate, noise):
    z0, z1 = views(300, 6, noise=noise)
    w = torch.linspace(0.1, 1, 300 if layout == "one_way" else 600, dtype=torch.float64)
    engine = value_and_gradients(
        lambda a, b, t: blockwise.bent_losses(lay_out(layout, a, b), t, "own", GATES[gate]), z0, z1, 0.2, w
    )
    dense = value_and_gradients(
        lambda a, b, t: functional.weince(a, b, layout=layout, temperature=t, gate=GATES[gate]), z0, z1, 0.2, w
    )
    assert_equal(engine, dense, 1e-9)


@pytest.mark.parametrize("gate", ["open", "half"])
def test_weince_of_bent_and_plain_tiles_together(gate):
    z0, z1 = views(700, 6)
    z0[:60] = z0[0] + 0.05 * z0[:60]  # only these crowd
    z1[:60] = z0[:60] + 0.05 * z1[:60]
    settings = {"temperature": 0.2, "gate": GATES[gate]}
    stats = WEINCELoss(gate=GATES[gate]).statistics(z0, z1)
    assert stats.share_blended > 0
    dense = functional.weince(z0, z1, **settings)
    np.testing.assert_allclose(WEINCELoss(reduction="none", **settings)(z0, z1), dense, rtol=1e-10)
    held = WEINCELoss(reduction="none", **settings)(z0, z1, statistics=stats)
    np.testing.assert_allclose(held, dense, rtol=1e-10)


@pytest.mark.medium
@pytest.mark.filterwarnings("ignore:a batch of one item")
@settings(max_examples=200, phases=[Phase.explicit, Phase.reuse, Phase.generate])
@given(
    layout=st.sampled_from(list(FUNCTIONS)),
    n=st.integers(1, 900),
    d=st.integers(1, 40),
    tau=st.sampled_from([1.0, 0.1, 0.01, 0.002]),
    bent=st.booleans(),
    seed=st.integers(0, 1000),
)
def test_random_shapes_in_float32(layout, n, d, tau, bent, seed):
    """Equal to 1e-6 relative down to temperature 0.3; below, both forms carry rounding of s over temperature.

    A float32 cosine has an error of 1e-7, so a logit is known to 1e-7 times its steepness, 1 / temperature or,
    bent, that of its nearest candidate: neither form can be nearer to the other than that. Differences are
    relative to the loss, or to 1 nat if that is more. The blend is held: it multiplies the rounding of its own
    inputs by the gate's sharpness of 10.
    """
    z0, z1 = views(n, d, seed, torch.float32)
    if bent:
        held = WEINCELoss(layout=layout, gate=OPEN).statistics(z0, z1)
        settings = {"temperature": tau, "gate": OPEN, "layout": layout}
        dense = functional.weince(z0, z1, statistics=held, **settings)
        each = WEINCELoss(reduction="none", **settings)(z0, z1, statistics=held)
        own = WEINCELoss(reduction="none", **settings)(z0, z1)
        assert float(((own - each).abs() / each.abs().clamp(min=1.0)).max()) <= 3e-5
        bar = 5e-7 * (1 + steepest(layout, z0, z1, tau, held))
    else:
        dense = FUNCTIONS[layout](z0, z1, temperature=tau)
        each = MODULES[layout](tau, reduction="none")(z0, z1)
        bar = torch.tensor(1e-6 * max(1.0, 0.3 / tau))
    gap = (each - dense).abs() / dense.abs().clamp(min=1.0)
    assert float((gap / bar).max()) <= 1


def steepest(layout, z0, z1, tau, held):
    """Slope of each query's logit at its most similar candidate, in float64."""
    u0, u1 = (z.double() / z.double().norm(dim=1, keepdim=True) for z in (z0, z1))
    if layout == "nt_xent":
        s = (u := torch.cat([u0, u1])) @ u.T
        s.fill_diagonal_(-1)
    else:
        s = torch.cat([u0 @ u1.T, u1 @ u0.T]) if layout == "symmetric" else u0 @ u1.T
    nearest = (1 - s.amax(1)).clamp(min=0)
    blend, beta = held.blend.double(), held.beta.double()
    return (1 - blend) / tau + torch.nan_to_num(blend * beta / (nearest + OPEN.softening))


@pytest.mark.parametrize(("tau", "bar"), [(0.1, 2e-6), (0.01, 2e-5)])
@pytest.mark.parametrize("layout", FUNCTIONS)
def test_gradient_of_float32_against_float64(layout, tau, bar):
    z0, z1 = views(700, 32)
    w = torch.ones(700 if layout == "one_way" else 1400, dtype=torch.float64)
    loss = lambda a, b, t: MODULES[layout](t, reduction="none")(a, b)  # noqa: E731
    _, *exact = value_and_gradients(loss, z0, z1, tau, w)
    _, *single = value_and_gradients(loss, z0.float(), z1.float(), tau, w.float())
    for x, y in zip(single[:2], exact[:2], strict=True):
        assert float((x - y).norm() / y.norm()) <= bar


def test_easy_batches_keep_their_digits():
    """Where the loss is 1e-15, logsumexp minus the positive would return rounding."""
    z0, z1 = views(300, 64, noise=0.01)
    each = NTXentLoss(0.02, reduction="none")(z0.float(), z1.float())
    exact = functional.nt_xent(z0, z1, temperature=0.02)
    assert 1e-16 < float(exact.mean()) < 1e-8
    np.testing.assert_allclose(each, exact, rtol=1e-3)


def test_options_reach_the_engine():
    z0, z1 = views(80, 5)
    labels = torch.arange(80) % 30
    same = labels[:, None] == labels
    w = torch.linspace(0, 1, 160, dtype=torch.float64)
    for options in (
        {"labels": labels},
        {"same": same},
        {"denominator": "none"},
        {"weights": w},
        {"normalize": False},
        {"labels": labels, "weights": w},
    ):
        for layout in ("nt_xent", "symmetric"):
            engine = MODULES[layout](0.3, **options)(z0, z1)
            np.testing.assert_allclose(
                engine, FUNCTIONS[layout](z0, z1, temperature=0.3, **options).mean(), rtol=1e-12
            )
        if "normalize" not in options:
            engine = WEINCELoss(0.3, gate=OPEN, options=options)(z0, z1)
            dense = functional.weince(z0, z1, temperature=0.3, gate=OPEN, **options).mean()
            np.testing.assert_allclose(engine, dense, rtol=1e-12)
    extra = views(50, 5, seed=3)[0]
    ids = {"labels": labels, "negative_labels": torch.arange(50)}
    for options in ({}, {"in_batch": True}, {"in_batch": True, **ids}, {"in_batch": True, "labels": labels}):
        engine = InfoNCELoss(0.3, **options)(z0, z1, extra)
        dense = functional.info_nce(z0, z1, extra, temperature=0.3, **options)
        np.testing.assert_allclose(engine, dense.mean(), rtol=1e-12)


@pytest.mark.parametrize(("n", "extra"), [(5, 0), (300, 0), (700, 0), (600, 450), (2, 3)])
@pytest.mark.parametrize("tau", [0.3, 0.05, 0.001])
def test_one_way_sum_in_one_sweep(n, extra, tau):
    """Value, and gradients in rows, candidates, weights and temperature; 0.001 is beyond one window."""
    z0, z1 = views(n, 6)
    leaves = [z0, z1, torch.linspace(0.1, 1, n, dtype=torch.float64), torch.tensor(tau, dtype=torch.float64)]
    leaves += [views(extra, 6, seed=3)[0]] if extra else []
    leaves = [x.requires_grad_() for x in leaves]
    a, b, w, t, *more = leaves
    options = {"weights": w, "in_batch": True}
    engine = 3 * InfoNCELoss(t, **options)(a, b, *more)
    dense = 3 * functional.info_nce(a, b, *more, temperature=t, **options).mean()
    gradients = [torch.autograd.grad(value, leaves) for value in (engine, dense)]
    assert_equal(
        (engine.detach(), *gradients[0][:2], gradients[0][3]),
        (dense.detach(), *gradients[1][:2], gradients[1][3]),
        1e-9,
    )
    for x, y in zip(gradients[0][2::2], gradients[1][2::2], strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-9, atol=1e-12)


def test_all_masked_is_zero_with_zero_gradient():
    z0, z1 = (x.requires_grad_() for x in views(5, 3))
    for loss in (*(module(0.1) for module in MODULES.values()), WEINCELoss(gate=OPEN)):
        value = loss(z0, z1, labels=torch.zeros(5, dtype=torch.int64))
        assert float(value.detach()) == 0
        assert all(float(g.abs().max()) == 0 for g in torch.autograd.grad(value, (z0, z1)))


def test_no_gradient_needed_and_sums():
    z0, z1 = views(30, 4)
    with torch.no_grad():
        for layout, module in MODULES.items():
            each = FUNCTIONS[layout](z0, z1, temperature=0.1)
            np.testing.assert_allclose(module(0.1)(z0, z1), each.mean())
            np.testing.assert_allclose(module(0.1, reduction="sum")(z0, z1), each.sum())


@given(c=st.integers(1, 3000), k=st.integers(1, 80), seed=st.integers(0, 50), ties=st.booleans())
def test_largest_equals_topk(c, k, seed, ties):
    values = torch.randn(3, c, generator=torch.Generator().manual_seed(seed))
    values = values.round() if ties else values
    k = min(k, c)
    assert torch.equal(largest(values, k), values.topk(k, dim=1).values)


@pytest.mark.medium
@settings(max_examples=40)
@given(
    layout=st.sampled_from(list(FUNCTIONS)),
    n=st.integers(60, 700),
    columns=st.integers(1, 45),
    crowd=st.sampled_from(["none", "sorted clusters", "copies"]),
    masked=st.booleans(),
    seed=st.integers(0, 1000),
)
def test_smallest_shortfalls_of_a_walk_are_exact(layout, n, columns, crowd, masked, seed):
    """Also where the first candidates are not like the others, and a tile holds all that are wanted."""
    z0, z1 = views(n, 5, seed)
    if crowd == "sorted clusters":
        centre = views(n, 5, seed + 1)[0][torch.arange(n) // 50]
        z0, z1 = centre + 0.1 * z0, centre + 0.1 * z1
    elif crowd == "copies":
        z0, z1 = z0.clone(), z1.clone()
        z0[n // 2 :], z1[n // 2 :] = z0[: n - n // 2].clone(), z1[: n - n // 2].clone()
    labels = torch.arange(n) % 30 if masked else None
    pairs = lay_out(layout, z0, z1, labels=labels)
    tops = Tops(pairs, columns, math.inf)
    blockwise.solve_plain(pairs, torch.tensor(1.0, dtype=torch.float64), 0.0, tops)
    s = pairs.u @ pairs.v.T
    shortfall = 0.5 * (pairs.u[:, None] - pairs.v[None]).square().sum(dim=2) if n < 200 else 1 - s
    place = torch.arange(pairs.u.shape[0])
    shortfall[place, place] = math.inf
    if layout == "nt_xent":
        shortfall[place, (place + n) % (2 * n)] = math.inf
    if masked:
        label = labels.repeat(2) if layout == "nt_xent" else labels
        shortfall[label[:, None] == label] = math.inf
    rows = torch.cat([shortfall, shortfall.T]) if layout == "symmetric" else shortfall
    dense = rows.sort(dim=1).values[:, :columns]
    queries = torch.arange(rows.shape[0])
    np.testing.assert_allclose(tops.smallest(queries), dense, atol=1e-12)
    np.testing.assert_allclose(tops.smallest(queries[::3]), dense[::3], atol=1e-12)
    np.testing.assert_allclose(tops.nearest(), dense[:, 0], atol=1e-12)


def test_nothing_quadratic_is_kept(monkeypatch):
    """The largest piece of memory of a walk is its buffers of a tile each, never the matrix."""
    sizes = []
    real = _walk.memory

    def spy(like, size):
        sizes.append(size)
        return real(like, size)

    monkeypatch.setattr(_walk, "memory", spy)
    z0, z1 = (x.requires_grad_() for x in views(3000, 4, dtype=torch.float32))
    NTXentLoss(0.1, memory=0.0)(z0, z1).backward()
    assert sizes == [8 * 512 * 512]
    assert sizes[0] < math.prod([6000, 6000]) / 15
