"""The statistics of a batch's tails: their laws, their edges, NumPy and torch alike."""

import numpy as np
import pytest

from latentlink import InvalidInput
from latentlink.tails.online import Gate, released_tail_size


def tails(law, n=2000, negatives=510, columns=65, seed=0):
    """Draw the smallest shortfalls of n queries, ascending."""
    u = np.random.default_rng(seed).random((n, negatives))
    return np.sort(law(u), axis=1)[:, :columns]


def power(beta, edge=1.0):
    return lambda u: edge * u ** (1 / beta)


def test_beta_is_unbiased_and_evidence_as_found_before():
    # Mean evidence of an independent simulation: 510 negatives, 51 tail points, 4,000 draws.
    for beta, evidence in ((1.0, 32.0), (2.56, 6.6), (6.4, 1.35)):
        found = Gate(pivot=1.0, tail_size=51).statistics(tails(power(beta), columns=52))
        assert found.beta.mean() == pytest.approx(beta, rel=0.02)
        assert found.evidence.mean() == pytest.approx(evidence, rel=0.05)


def test_an_exponential_tail_gives_no_evidence():
    found = Gate(pivot=1.0).statistics(tails(lambda u: 1.0 + 0.05 * np.log(u + 1e-12)))
    assert (found.evidence > 2).mean() < 0.01
    assert found.evidence.mean() < 0.2


def test_regression_evidence_is_inert():
    """The released rule finds evidence on an exponential tail, too: it does not gate."""
    gate = Gate(evidence="regression", tail_size=None)
    found = gate.statistics(tails(lambda u: 1.0 + 0.05 * np.log(u + 1e-12), columns=51))
    assert (found.evidence > 2).all()


def test_one_duplicated_item_does_not_open_the_gate():
    d = tails(power(2.0), n=5)
    d[:, :2] = 0.0  # both views of a duplicate
    found = Gate().statistics(d)
    assert (found.gap == 1e-6).all()
    assert (found.blend < Gate().statistics(tails(power(2.0), n=5) * 0.3).blend + 1e-9).all()
    assert (Gate(pivot=1e-3).statistics(d).blend == 0).all()


def test_numpy_and_torch_agree(xp):
    d = tails(power(2.0), n=50) * 0.2
    for gate in (
        Gate(pivot=0.1),
        Gate(pivot=None),
        Gate(evidence="regression"),
        Gate(evidence="gap", beta=3.0),
    ):
        plain, other = gate.statistics(d), gate.statistics(xp(d))
        for name in ("gap", "beta", "evidence", "blend", "pivot"):
            np.testing.assert_allclose(getattr(plain, name), getattr(other, name), rtol=1e-12)
        assert plain.share_blended == other.share_blended
        assert plain.share_near_endpoint == other.share_near_endpoint


def test_collapsed_short_and_missing_tails_say_nothing():
    d = np.concatenate([np.zeros((1, 65)), np.full((1, 65), 0.01), tails(power(2.0), n=1) * 0.1])
    d = np.concatenate([d, d[2:]])
    d[3, 40:] = np.inf  # fewer negatives than asked for
    found = Gate(pivot=0.5).statistics(d)
    assert found.blend[[0, 1, 3]].tolist() == [0, 0, 0]
    assert found.evidence[[0, 1, 3]].tolist() == [0, 0, 0]
    assert found.blend[2] > 0.5
    assert Gate().columns(19) == 0
    assert Gate().columns(20) == 11
    assert Gate().columns(510) == 65
    assert np.isinf(Gate().statistics(np.empty((3, 0))).gap).all()
    assert Gate().statistics(np.empty((0, 65))).share_blended == 0


def test_reach_bounds_the_blend():
    gate = Gate(pivot=0.1)
    d = np.geomspace(gate.reach * 1.001, 1.0, 65)[None]
    assert gate.statistics(d).blend[0] == 0
    assert Gate(pivot=None).reach == np.inf


def test_released_tail_sizes():
    assert [released_tail_size(k) for k in (14, 126, 254, 510, 1022, 2046)] == [14, 32, 32, 51, 102, 205]


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"evidence": "aic"}, "evidence is 'aic'; needs one of 'likelihood', 'regression', 'gap'."),
        ({"beta": 0.0}, "beta is 0.0; needs a number > 0."),
        ({"pivot": -1.0}, "pivot is -1.0; needs a number > 0."),
        ({"tail_size": 5}, "tail_size is 5; needs a whole number >= 10."),
        (
            {"softening": 0.0},
            "floor and softening are both 0; needs one > 0, or the logit of a duplicate is infinite.",
        ),
    ],
)
def test_errors(settings, text):
    with pytest.raises(InvalidInput) as caught:
        Gate(**settings)
    assert str(caught.value) == text
