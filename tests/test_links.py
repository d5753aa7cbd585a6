import numpy as np
import pytest

from latentlink import Link
from latentlink._arrays import to_numpy
from latentlink._checks import InvalidInput

SCORES = np.array([0.15, 0.45, 0.70, 0.90])
LINKS = [
    Link.softmax(0.3),
    Link.shortfall(2.5),
    Link.power(3.0),
    Link.blended(0.4, temperature=0.5, beta=2.0, softening=1e-3),
]


def choices(link):
    weights = np.exp(link.logits(SCORES))
    return weights / weights.sum()


def simulated(utilities):
    return np.bincount(utilities.argmax(axis=1), minlength=4) / utilities.shape[0]


@pytest.mark.medium
def test_each_link_is_the_argmax_law_of_its_utilities():
    """400,000 choices a link; the standard error of a share is below 0.0008."""
    rng = np.random.default_rng(5)
    shape = (400_000, 4)
    gumbel = simulated(SCORES + 0.3 * rng.gumbel(size=shape))
    np.testing.assert_allclose(gumbel, choices(Link.softmax(0.3)), atol=0.004)
    weibull = simulated(1 - (1 - SCORES) * rng.weibull(2.5, size=shape))
    np.testing.assert_allclose(weibull, choices(Link.shortfall(2.5, softening=0)), atol=0.004)
    frechet = simulated(-1 + (SCORES + 1) * rng.weibull(3.0, size=shape) ** -1)
    np.testing.assert_allclose(frechet, choices(Link.power(3.0)), atol=0.004)


@pytest.mark.parametrize("link", LINKS, ids=lambda link: link.kind)
def test_slope_is_the_derivative(link, xp):
    s, h = np.linspace(-0.9, 0.95, 30), 1e-6
    numeric = (link.logits(s + h) - link.logits(s - h)) / (2 * h)
    np.testing.assert_allclose(to_numpy(link.slope(xp(s))), numeric, rtol=1e-6)


@pytest.mark.parametrize("link", LINKS, ids=lambda link: link.kind)
def test_arrays_and_tensors_agree(link):
    torch = pytest.importorskip("torch")
    np.testing.assert_allclose(link.logits(torch.as_tensor(SCORES)).numpy(), link.logits(SCORES))


def test_the_ends_of_the_blend():
    s = np.linspace(-1, 1, 9)
    zero = Link.blended(0, temperature=0.3, beta=2)
    np.testing.assert_array_equal(zero.logits(s), Link.softmax(0.3).logits(s))
    assert [link.kind for link in LINKS] == ["softmax", "shortfall", "power", "blend"]
    assert [link.bounded for link in LINKS] == [True, False, False, False]


def test_rounding_beyond_the_endpoint_is_taken_as_the_endpoint():
    link = Link.shortfall(1.0)
    assert link.logits(np.array([1.0 + 5e-5])) == link.logits(np.array([1.0]))
    with pytest.raises(InvalidInput) as caught:
        link.logits(np.array([1.0004]))
    assert str(caught.value) == (
        "similarity 1.0004 exceeds the endpoint 1 beyond rounding (tolerance 0.0001); are the rows normalised?"
    )
    with pytest.raises(InvalidInput, match=r"similarity -1 is not above the origin -1; .* Lower the origin\."):
        Link.power(1.0).logits(np.array([-1.0]))


def test_bad_parameters():
    with pytest.raises(InvalidInput, match=r"temperature is -0\.1; needs a number > 0\."):
        Link.softmax(-0.1)
    with pytest.raises(InvalidInput, match=r"blend is 1\.5; needs a number in \[0, 1\]\."):
        Link.blended(1.5, temperature=1, beta=1)
