"""The nested family of links recovers what simulated winners were drawn from."""

import json

import numpy as np
import pytest

from latentlink import InvalidInput, Link
from latentlink.tails import choose_link, positive_choices, view_choices


def scores(n=6000, m=17, seed=0):
    return np.random.default_rng(seed).uniform(-0.2, 0.97, (n, m))


def draw(logits, seed=1):
    gumbel = np.random.default_rng(seed).gumbel(size=logits.shape)
    return (logits + gumbel).argmax(axis=1)


def test_softmax_is_found():
    s = scores()
    choice = choose_link(s, draw(Link.softmax(0.25).logits(s)))
    assert choice.blend < 0.05
    assert abs(choice.softmax_temperature - 0.25) < 0.02
    assert choice.against_softmax.p > 0.01
    assert choice.against_shortfall.p < 1e-6
    assert choice.aic["softmax"] < choice.aic["shortfall"]


@pytest.mark.parametrize("seed", range(4))
def test_interval_at_an_end_is_a_profile(seed):
    s = scores(1500, seed=seed)
    winners = draw(12 * s, seed=seed + 100)
    choice = choose_link(s, winners)
    low, high = choice.interval()
    assert low == 0 < high < 0.2
    if choice.blend == 0:
        assert choice.interval(level=0.5).high < high
        logits = Link.blended(high, temperature=1.0, beta=1.0).logits(s)
        own = logits[np.arange(len(s)), winners]
        lost = [np.log(np.exp(k * (logits - own[:, None])).sum(axis=1)).sum() for k in np.linspace(6, 18, 121)]
        assert abs(2 * (choice.log_likelihoods["blend"] + min(lost)) - 3.84) < 0.3


def test_shortfall_is_found():
    s = scores()
    choice = choose_link(s, draw(Link.shortfall(2.0).logits(s)))
    assert choice.blend > 0.85
    assert choice.interval().high == 1
    assert abs(choice.shortfall_beta - 2) < 0.1
    assert choice.against_shortfall.p > 0.01
    assert choice.against_softmax.p < 1e-6


@pytest.mark.medium
def test_blend_is_found_and_its_interval_holds_it():
    s = scores(20_000)
    choice = choose_link(s, draw(Link.blended(0.4, temperature=0.25, beta=4.0).logits(s)))
    low, high = choice.interval()
    assert low < 0.4 < high
    assert high - low < 0.1
    low, high = choice.interval("beta")
    assert low < 4 < high
    assert choice.preferred == "blend"
    a, b = choice.weights
    shares = a * choice.softmax_temperature, b / choice.shortfall_beta
    assert choice.relative_blend == pytest.approx(shares[1] / sum(shares))
    low, high = choice.interval("relative_blend")
    assert low < choice.relative_blend < high
    np.testing.assert_allclose(
        choice.link.logits(s[:5]),
        choice.weights[0] * s[:5] - choice.weights[1] * np.log(1 - s[:5] + 1e-6),
    )


@pytest.mark.parametrize(
    ("kind", "link"),
    [("softmax", Link.softmax(0.3)), ("shortfall", Link.shortfall(1.5)), ("power", Link.power(4.0))],
)
def test_utilities_of_each_domain_choose_by_its_link(kind, link):
    """Winners by the random utilities of extreme-value theory, not by the link's own formula."""
    s, rng = scores(12_000), np.random.default_rng(2)
    exponential = rng.exponential(size=s.shape)
    utilities = {
        "softmax": s - 0.3 * np.log(exponential),
        "shortfall": 1 - (1 - s) * exponential ** (1 / 1.5),
        "power": -1 + (s + 1) * exponential ** (-1 / 4.0),
    }[kind]
    choice = choose_link(s, utilities.argmax(axis=1))
    one_parameter = {name: choice.aic[name] for name in ("softmax", "shortfall", "power")}
    assert min(one_parameter, key=one_parameter.get) == kind
    slope = 1 / choice.softmax_temperature
    found = {"softmax": slope, "shortfall": choice.shortfall_beta, "power": choice.power_alpha}
    truth = 1 / link.temperature if kind == "softmax" else link.beta
    assert abs(found[kind] / truth - 1) < 0.06


@pytest.mark.medium
def test_noise_floor_oracle(oracles):
    oracle = json.loads((oracles / "evt.json").read_text(encoding="utf-8"))["noise_floor"]
    s = np.array(oracle["similarities"])
    p = np.array(oracle["probabilities"])
    winners = np.random.default_rng(0).choice(4, 40_000, p=p / p.sum())
    choice = choose_link(np.tile(s, (winners.size, 1)), winners)
    assert abs(choice.shortfall_beta - oracle["beta"]) < 4 * (oracle["variance_of_beta"] / winners.size) ** 0.5
    assert abs(1 / choice.softmax_temperature - oracle["softmax_slope"]) < 0.05


def test_candidates_at_minus_infinity_do_not_count():
    s = scores(500)
    winners = draw(4 * s)
    wide = np.concatenate([s, np.full((500, 3), -np.inf)], axis=1)
    np.testing.assert_allclose(choose_link(wide, winners).weights, choose_link(s, winners).weights, atol=1e-8)


def test_clusters_widen_the_interval():
    s = scores(800)
    winners = draw(Link.blended(0.5, temperature=0.25, beta=4.0).logits(s))
    once = choose_link(s, winners)
    four = choose_link(np.tile(s, (4, 1)), np.tile(winners, 4), clusters=np.tile(np.arange(800), 4))
    np.testing.assert_allclose(four.covariance, once.covariance, rtol=1e-6)


def test_perfect_winners_are_said_to_be_separated():
    s = scores(200)
    choice = choose_link(s, s.argmax(axis=1))
    assert choice.top_share == 1
    assert choice.separated


def test_winners_that_avoid_the_top_give_no_link():
    s = scores(2000)
    choice = choose_link(s, s.argmin(axis=1))
    assert choice.weights == (0.0, 0.0)
    assert choice.temperature == np.inf
    assert np.isnan(choice.interval().low)


def test_choice_sets():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(80, 8))
    sets = positive_choices(x, x + 0.1 * rng.normal(size=x.shape), n_negatives=30)
    assert sets.similarities.shape == (80, 31)
    assert (sets.similarities[:, 0] > 0.8).all()
    views = view_choices(x, x, x, n_candidates=10, exclude=np.arange(80))
    np.testing.assert_array_equal(views.similarities.argmax(axis=1), views.winners)
    assert views.similarities.max() < 0.999


@pytest.mark.parametrize(
    ("similarities", "winners", "message"),
    [
        (scores(3), [0, 1], "winners has shape (2,) and type int64; needs whole numbers (3,)."),
        (scores(3), [0, 1, 17], "winners has columns outside 0 to 16; needs one column a query."),
        (np.array([[0.1, -np.inf]]), [0], "row 0 of similarities has fewer than two candidates; drop it."),
        (
            np.array([[0.1, 0.2, -np.inf]]),
            [2],
            "the winner of row 0 is no candidate: its similarity is -inf.",
        ),
        (
            np.array([[0.1, 1.2]]),
            [0],
            "similarity 1.2 exceeds the endpoint 1 beyond rounding (tolerance 0.0001); are the rows normalised?",
        ),
    ],
)
def test_refusals(similarities, winners, message):
    with pytest.raises(InvalidInput) as caught:
        choose_link(similarities, np.array(winners))
    assert str(caught.value) == message
