"""The search kernel, the corpus identity, temperature and the answers read backwards."""

import numpy as np
import pytest

from latentlink import InvalidInput, Link
from latentlink.risk import (
    ExactWorld,
    calibrate_temperature,
    certify,
    extrapolate_corpus,
    measure_shift,
    negatives_needed,
    pairs_needed,
    risk_curve,
    search_cross_entropies,
    search_kernel,
    self_normalised_error,
    temperature_needed,
)


def test_a_kernel_is_a_law(pairs):
    kernel = search_kernel(pairs[0], pairs[2], link=Link.softmax(0.3))
    np.testing.assert_allclose(kernel.sum(axis=1), 1)
    q, y = (x / np.linalg.norm(x, axis=1, keepdims=True) for x in (pairs[0], pairs[2]))
    plain = np.exp(q @ y.T / 0.3)
    np.testing.assert_allclose(kernel, plain / plain.sum(axis=1, keepdims=True), rtol=1e-10)


def test_search_costs_are_the_kernel_of_a_corpus_with_the_positive(pairs):
    link = Link.softmax(0.3)
    costs = search_cross_entropies(*pairs, link=link)
    for i in range(5):
        corpus = np.concatenate([pairs[1][i : i + 1], pairs[2]])
        kernel = search_kernel(pairs[0][i : i + 1], corpus, link=link)
        assert costs[i] == pytest.approx(-np.log(1001 * kernel[0, 0]), rel=1e-10)


def test_a_search_costs_what_theory_says_on_any_corpus(theory, law_of, rng):
    law, case = law_of("circle"), theory["discrete"][0]["results"][1]
    for size, cost in case["UN_cross_entropy"][2:5]:
        costs = [
            search_cross_entropies(*law.pairs(rng, 40), law.pool(rng, size - 1), link=Link.softmax(0.5)).mean()
            for _ in range(200)
        ]
        assert np.mean(costs) == pytest.approx(cost, abs=4 * np.std(costs) / np.sqrt(200))


def test_corpus_sizes_extrapolate(theory):
    for case in theory["discrete"][1]["results"]:
        world = ExactWorld.discrete(theory["discrete"][1]["X"], theory["discrete"][1]["pi"],
                                    theory["discrete"][1]["M"], case["tau"])  # fmt: skip
        # Every (query, positive) cell with its probability.
        draws = np.repeat(np.arange(world.positives.size),
                          np.round((world.law[:, None] * world.positives).ravel() * 1e4).astype(int))  # fmt: skip
        variance = np.repeat(world.variance, world.positives.shape[1])[draws]
        ratio = world.density.ravel()[draws]
        costs = dict(case["UN_cross_entropy"])
        small, large = costs[65], costs[257]
        value, bound, trusted = extrapolate_corpus(
            small, 64, 257, variance=variance, ratio=ratio, temperature=case["tau"]
        )
        assert trusted == (case["tau"] == 0.5)
        assert not trusted or abs(value - large) < 0.25 * abs(small - large) + 1e-4
        assert abs(small - large) <= bound
        assert extrapolate_corpus(small, 64, 65, variance=variance, ratio=ratio, temperature=1.0).bound == 0


def test_the_self_normalised_kernel_keeps_to_its_bound(theory):
    # Monte Carlo of the ideal kernel with weights ρ / Σρ on a finite world, against the bound and its bias.
    data = theory["discrete"][0]
    world = ExactWorld.discrete(data["X"], data["pi"], data["M"], 0.5)
    rng = np.random.default_rng(1)
    density = np.array(data["M"]) / np.array(data["pi"])  # (query, candidate)
    m, total, n = 64, 0.0, 4000
    for i, weight in enumerate(world.law):
        y = rng.choice(4, size=(n, m), p=data["pi"])
        rho, w = density[i][y], world.density[i][y]
        ideal = rho / rho.sum(axis=1, keepdims=True)
        total += weight * -(ideal * np.log(m * w / w.sum(axis=1, keepdims=True))).sum(axis=1).mean()
    error = total - world.cross_entropy - world.bias(m, variant="outside")
    chi2 = theory["discrete"][0]["results"][1]["chi2_M_pi"]
    assert abs(error) <= self_normalised_error(0.5, chi2, m)
    assert 0 < abs(error) < 0.05


def test_calibration_recovers_the_temperature_of_the_law(rng):
    # vMF positives of concentration 6 are a softmax search at temperature 1/6 on the sphere.
    x = rng.normal(size=(800, 3))
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    u = rng.random(800)
    c = 1 + np.log(u + (1 - u) * np.exp(-12.0)) / 6
    side = np.cross(x, rng.normal(size=x.shape))
    side /= np.linalg.norm(side, axis=1, keepdims=True)
    positives = c[:, None] * x + np.sqrt(1 - c**2)[:, None] * side
    found = calibrate_temperature(x, positives, rng.normal(size=(2000, 3)))
    assert found == pytest.approx(1 / 6, rel=0.1)
    with pytest.raises(InvalidInput, match=r"^positives are no more similar to the queries than the pool is;"):
        calibrate_temperature(x, -x, rng.normal(size=(100, 3)))
    with pytest.raises(InvalidInput, match=r"^positives are more similar than the closest candidates even at"):
        calibrate_temperature(x, x, -np.abs(rng.normal(size=(5, 3))) * 0 + [[0.0, 0.0, 1.0]])


def test_calibration_minimises_the_cross_entropy(pairs):
    noisy = pairs[0] + pairs[0][::-1], *pairs[1:]
    best = calibrate_temperature(*noisy)
    at_best, warmer, colder = (certify(*noisy, temperature=best * f).sandwich.low for f in (1.0, 1.2, 0.83))
    assert at_best < warmer
    assert at_best < colder


def test_a_hotter_search_is_closer_to_the_data_law(pairs):
    shifts = [measure_shift(pairs[0], pairs[2], temperature) for temperature in (0.1, 0.2, 0.5, 1.0)]
    kl = np.array([shift.kl for shift in shifts])
    assert (np.diff(kl, axis=0) <= 0).all()
    for shift in shifts:
        for name in ("kl", "total_variation", "chi2"):
            assert (getattr(shift, name) <= getattr(shift.bounds, name) * 1.001 + 1e-12).all()
            assert (getattr(shift.bounds, name) <= getattr(shift.universal, name) * (1 + 1e-12)).all()


def test_the_curve_is_as_predicted_on_the_sphere(law_of, rng):
    law = law_of("sphere")
    queries, positives = law.pairs(rng, 500)
    curve = risk_curve(queries, positives, law.pool(rng, 4096), [64, 256, 1024], 0.2, variant="inside")
    assert (np.abs(curve.measured - curve.predicted) < 4 * curve.error).all()
    world = ExactWorld.sphere(3, 0.2, 10.0)
    exact = [world.cross_entropy + world.bias(k) for k in (64, 256, 1024)]
    assert (np.abs(curve.measured - exact) < 4 * curve.error).all()
    assert list(curve.trusted) == [False, True, True]  # r̄ = 6.7


def test_answers_agree_with_the_certificate(pairs):
    noisy = negatives_needed(*pairs, temperature=0.5, tolerance=0.01)
    curve = risk_curve(*pairs, [1000], 0.5)
    assert int(noisy) == float(noisy)
    assert (int(noisy) > 1000) == (abs(curve.predicted[0] - curve.limit) > 0.01)
    needed = pairs_needed(*pairs, temperature=0.5, half_width=0.05)
    c = certify(*pairs, temperature=0.5)
    assert int(needed) == pytest.approx(2 * (1.96 * c.query_error / 0.05) ** 2 * 200, rel=0.01)
    warm = temperature_needed(pairs[0], pairs[2], 100)
    assert float(warm) > float(temperature_needed(pairs[0], pairs[2], 1000))
    assert str(warm) == warm.advice
    starved = negatives_needed(*pairs, temperature=0.03)
    assert not starved.trusted
    assert "cannot vouch" in starved.advice
