"""Continuity, temperature and complexity bounds: oracle values, random trials, sharpness."""

import math

import numpy as np
import pytest

from latentlink import InvalidInput
from latentlink.risk import (
    combined_bound,
    continuity_bound,
    empirical_bernstein,
    lipschitz_of_model,
    lipschitz_of_weights,
    loss_range,
    pool_mcdiarmid,
    rademacher_lipschitz,
    row_statistics,
    shift_bounds,
    weight_cap,
)
from latentlink.risk.bounds import FORMS
from latentlink.risk.complexity import CHAINING

ORACLE_FORMS = {
    "B0_logit": "logit",
    "B1_endpoint": "endpoint",
    "B2_Dstar": "tightest",
    "B3_max": "max",
    "B4_avg": "average",
    "B5_tv": "tv",
    "B6_chi2": "chi2",
    "B8_Holder_beta=2/tau": "holder",
}


def test_continuity_agrees_with_the_oracle(theory):
    for case in theory["continuity"]:
        first = tuple(np.array(case[key])[None] for key in ("u", "v", "z"))
        second = tuple(np.array(case[key])[None] for key in ("u2", "v2", "z2"))
        for key, form in ORACLE_FORMS.items():
            beta = 2 / case["tau"] if form == "holder" else None
            bound = continuity_bound(first, second, case["tau"], form=form, beta=beta)
            assert bound.value[0] == pytest.approx(case["bounds_in"][key], rel=1e-10), key
            assert bound.value[0] >= case["abs_dloss_in"] * (1 - 1e-12)
        for key, variant in (("abs_dloss_in", "inside"), ("abs_dloss_ex", "outside")):
            change = abs(losses(first, case["tau"], variant) - losses(second, case["tau"], variant))
            assert change[0] == pytest.approx(case[key], rel=1e-9)
        k, moved = (
            len(case["z"]),
            [np.linalg.norm(b - a, axis=-1)[0] for a, b in zip(first, second, strict=True)],
        )
        share = 1 / (1 + np.exp(-2 / case["tau"]) / k)
        assert share == pytest.approx(case["P"], rel=1e-10)
        tightest = continuity_bound(first, second, case["tau"]).value[0]
        norm = tightest * case["tau"] / share - 2 * moved[0] - moved[1]
        assert norm == pytest.approx(case["D_star"], rel=1e-10)


def test_complexities_agree_with_the_oracle(theory):
    functions = theory["functions"]
    assert pytest.approx(functions["C_chain_q_1_9"], rel=1e-10) == CHAINING
    for temperature, k, value in functions["range_in"]:
        assert loss_range(k, temperature) == pytest.approx(value, rel=1e-10)
    for temperature, k, value in functions["kappa_weight"]:
        assert weight_cap(k, temperature) == pytest.approx(value, rel=1e-10)
    for temperature, value in functions["range_ex"]:
        assert loss_range(1, temperature, variant="outside") == pytest.approx(value, rel=1e-10)
    for case in theory["theorem_F"]:
        settings = {
            "n_parameters": case["p"],
            "radius": case["B"],
            "lipschitz": case["L"],
            "delta": case["delta"],
        }
        chained = combined_bound(case["n"], case["k"], case["tau"], method="chaining", **settings)
        assert chained.sample == pytest.approx(case["sample_term"], rel=1e-10)
        assert chained.complexity == pytest.approx(case["complexity_chaining"], rel=1e-10)
        assert chained.finite_k == pytest.approx(case["bias_universal"], rel=1e-10)
        assert chained.total == pytest.approx(case["total_chaining"], rel=1e-10)
        covered = combined_bound(case["n"], case["k"], case["tau"], **settings)
        assert covered.total == pytest.approx(case["total_cover"], rel=1e-10)
    case = theory["empirical_bernstein"]
    half = empirical_bernstein(case["x"], case["range"], case["delta"])
    assert half == pytest.approx(case["half_width_two_sided"], rel=1e-10)
    for case in theory["pool_mcdiarmid"]:
        half = pool_mcdiarmid(case["n"], case["N"], case["tau"], case["delta"])
        assert half == pytest.approx(case["half_width"], rel=1e-10)


def test_shift_bounds_agree_with_the_oracle_and_are_attained(theory):
    keys = {"KL_max": "kl", "TV_max": "total_variation", "chi2_max": "chi2"}
    for key, name in keys.items():
        delta, value = np.array(theory["functions"][key]).T
        np.testing.assert_allclose(getattr(shift_bounds(delta), name), value, rtol=1e-10)
    p = np.linspace(1e-6, 1 - 1e-6, 200_001)
    for delta in (0.01, 1.0, 4.0):
        w = np.exp(delta) / (p * np.exp(delta) + 1 - p), 1 / (p * np.exp(delta) + 1 - p)
        reached = {
            "chi2": p * w[0] ** 2 + (1 - p) * w[1] ** 2 - 1,
            "total_variation": p * (w[0] - 1),
            "kl": p * w[0] * np.log(w[0]) + (1 - p) * w[1] * np.log(w[1]),
        }
        for name, values in reached.items():
            cap = float(getattr(shift_bounds(delta), name))
            assert cap * 0.5 <= values.max() <= cap * (1 + 1e-9), name


def test_shift_bounds_hold_on_random_laws(rng):
    logits = rng.normal(size=(20_000, 6)) * rng.exponential(size=(20_000, 1)) * 3
    pi = rng.dirichlet(np.full(6, 0.5), size=20_000) + 1e-300
    w = np.exp(logits - logits.max(axis=1, keepdims=True))
    w /= (pi * w).sum(axis=1, keepdims=True)
    bounds = shift_bounds(np.ptp(logits, axis=1))
    slack = 1 + 1e-9
    assert (w <= bounds.density_high[:, None] * slack).all()
    assert (w >= bounds.density_low[:, None] / slack).all()
    assert ((pi * w**2).sum(axis=1) - 1 <= bounds.chi2 * slack + 1e-12).all()
    assert ((pi * np.abs(w - 1)).sum(axis=1) / 2 <= bounds.total_variation * slack + 1e-12).all()
    assert ((pi * w * np.log(w)).sum(axis=1) <= bounds.kl * slack + 1e-12).all()
    assert (-(pi * np.log(w)).sum(axis=1) <= bounds.kl * slack + 1e-12).all()


def tuples(rng, n, k, d):
    """Unit vectors of two encoders, from nearly equal to unrelated."""

    def unit(x):
        return x / np.linalg.norm(x, axis=-1, keepdims=True)

    noise = np.exp(rng.uniform(np.log(1e-3), np.log(3), (n, 1)))
    first = [unit(rng.normal(size=(n, d))), unit(rng.normal(size=(n, d))), unit(rng.normal(size=(n, k, d)))]
    uneven = rng.exponential(size=(n, k, 1)) ** 2
    second = [
        unit(first[0] + noise * rng.normal(size=(n, d))),
        unit(first[1] + noise * rng.normal(size=(n, d))),
        unit(first[2] + noise[:, :, None] * uneven * rng.normal(size=(n, k, d))),
    ]
    return tuple(first), tuple(second)


def losses(t, temperature, variant):
    u, v, z = t
    rows = row_statistics((u * v).sum(axis=1) / temperature, np.einsum("nd,nkd->nk", u, z) / temperature)
    return rows.loss_inside if variant == "inside" else rows.loss_outside


def violations(rng, n):
    """Tuples whose loss changes by more than a bound allows, over all forms, temperatures and sizes."""
    found, trials = 0, 0
    for temperature in (2.0, 1.0, 0.5, 0.2, 0.1, 0.05):
        for k, d in ((2, 2), (7, 3), (32, 8)):
            first, second = tuples(rng, n, k, d)
            for variant in ("inside", "outside"):
                change = np.abs(losses(first, temperature, variant) - losses(second, temperature, variant))
                for form in FORMS:
                    bound = continuity_bound(first, second, temperature, form=form, variant=variant).value
                    found += int((change > bound * (1 + 1e-9) + 1e-12).sum())
                trials += n
    return found, trials


def test_no_continuity_bound_is_violated(rng):
    assert violations(rng, 60)[0] == 0


@pytest.mark.stats
def test_no_continuity_bound_is_violated_in_a_hundred_thousand_trials(rng):
    found, trials = violations(rng, 3000)
    assert trials >= 100_000
    assert found == 0


def test_the_tightest_form_is_attained_by_half():
    # The worst case of theory: the nearest negatives move straight at the query, the others away from it.
    temperature, k, step = 1.0, 1, 1e-4
    angle = np.linspace(0, np.pi, 4001)[1:-1]
    u = np.tile([1.0, 0.0], (angle.size, 1))
    v = -u
    z = np.stack([np.cos(angle), np.sin(angle)], axis=1)[:, None]
    z2 = np.stack([np.cos(angle - step), np.sin(angle - step)], axis=1)[:, None]
    bound = continuity_bound((u, v, z), (u, v, z2), temperature).value
    change = np.abs(losses_of_one(u, v, z, temperature) - losses_of_one(u, v, z2, temperature))
    assert (change / bound).max() >= 0.5
    assert k == z.shape[1]


def losses_of_one(u, v, z, temperature):
    plus, minus = (u * v).sum(axis=1) / temperature, np.einsum("nd,nkd->nk", u, z)[:, 0] / temperature
    return np.logaddexp(0, minus - plus)


def test_the_average_form_pays_for_its_mean():
    # At a low temperature the plain average costs min(k, e^(2/τ)) and loses to the maximum.
    first, second = tuples(np.random.default_rng(1), 200, 32, 8)
    cold = {
        form: continuity_bound(first, second, 0.1, form=form).value for form in ("max", "average", "tightest")
    }
    assert (cold["average"] > cold["max"]).all()
    assert (cold["tightest"] <= cold["max"] * (1 + 1e-12)).all()


def test_combined_bounds_say_when_they_are_vacuous():
    probe = combined_bound(100_000, 1024, 0.5, n_parameters=100, radius=1.0, lipschitz=1.0)
    assert not probe.vacuous
    network = combined_bound(50_000, 1024, 0.1, n_parameters=730_000, radius=5.0, lipschitz=23.5)
    assert network.vacuous
    assert network.finite_k > network.loss_range  # e^(2/τ)/k alone
    reused = combined_bound(1000, 999, 0.5, n_parameters=10, radius=1.0, lipschitz=1.0, reused=True)
    assert reused.vacuous  # one independent block
    corpus = combined_bound(100_000, 1023, 0.5, n_parameters=100, radius=1.0, lipschitz=1.0, corpus=1024)
    assert corpus.finite_k == 0.0
    assert combined_bound(10, 20, 0.5, n_parameters=1, radius=1.0, lipschitz=math.inf).vacuous


def test_measured_complexity_stays_below_its_bound(rng):
    # Parameters θ in a ball of R^4 move a normalised linear map; the true complexity is found by random search.
    n, k, temperature, radius, d = 128, 8, 0.5, 0.3, 2
    x, positive, negatives = rng.normal(size=(n, d)), rng.normal(size=(n, d)), rng.normal(size=(n, k, d))
    signs = rng.choice([-1.0, 1.0], n)

    def correlation(map_):
        u, v, z = (a @ map_.T for a in (x, positive, negatives))
        u, v, z = (a / np.linalg.norm(a, axis=-1, keepdims=True) for a in (u, v, z))
        return float(signs @ losses((u, v, z), temperature, "inside")) / n

    steps = rng.normal(size=(2000, d, d))
    steps *= radius / np.linalg.norm(steps, axis=(1, 2), keepdims=True)
    best = max(correlation(np.eye(d) + step) for step in steps) - correlation(np.eye(d))
    # ‖Wx‖ ≥ (1 − B)‖x‖, so normalise(Wx) moves by at most ‖ΔW‖/(1 − B).
    assert best <= rademacher_lipschitz(n, d * d, radius, 1 / (1 - radius), temperature)


def test_lipschitz_constants_hold_for_a_real_network(rng):
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Linear(6, 12, bias=False), torch.nn.ReLU(), torch.nn.Linear(12, 5, bias=False)
    ).double()
    x = torch.as_tensor(rng.normal(size=(50, 6)))
    x = x / x.norm(dim=1, keepdim=True)
    radius = 0.05
    with torch.no_grad():
        before = model(x)
        least = float(before.norm(dim=1).min()) / 2
        bound = lipschitz_of_model(model, radius=radius, input_norm=1.0, least_norm=least)
        base = [parameter.clone() for parameter in model.parameters()]
        for _ in range(50):
            step = [torch.as_tensor(rng.normal(size=p.shape)) for p in base]
            size = math.sqrt(sum(float((s**2).sum()) for s in step))
            for parameter, start, move in zip(model.parameters(), base, step, strict=True):
                parameter.copy_(start + move * radius / size)
            after = model(x)
            assert float(after.norm(dim=1).min()) >= least
            moved = after / after.norm(dim=1, keepdim=True) - before / before.norm(dim=1, keepdim=True)
            assert float(moved.norm(dim=1).max()) <= bound.value * radius


def test_layers_outside_the_theory_give_infinity():
    nn = pytest.importorskip("torch").nn
    settings = {"radius": 0.1, "input_norm": 1.0, "least_norm": 0.1}
    for model, reason in [
        (nn.Linear(4, 2), "Linear has an offset; the theory covers layers without"),
        (nn.Conv2d(1, 2, 3, stride=2, bias=False), "Conv2d has stride (2, 2); the theory covers stride 1"),
        (nn.GELU(), "GELU is not globally Lipschitz with a known constant"),
    ]:
        bound = lipschitz_of_model(model, **settings)
        assert bound.value == math.inf
        assert bound.assumptions == (reason,)
    with pytest.raises(InvalidInput, match=r"^weights is empty; needs at least one layer\.$"):
        lipschitz_of_weights([], **settings)


def test_bad_tuples_are_named(rng):
    first, second = tuples(rng, 3, 4, 2)
    with pytest.raises(
        InvalidInput, match=r"^first has a vector of norm 2; needs unit vectors\. Normalise the rows\.$"
    ):
        continuity_bound((2 * first[0], *first[1:]), second, 0.5)
    with pytest.raises(
        InvalidInput,
        match=r"^second has shapes \(3, 2\), \(3, 2\) and \(3, 2\); needs \(n, d\), \(n, d\) and \(n, k, d\)\.$",
    ):
        continuity_bound(first, (second[0], second[1], second[1]), 0.5)
