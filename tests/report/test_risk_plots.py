import numpy as np
import pytest

from latentlink import InvalidInput
from latentlink.risk import certify, combined_bound, risk_curve

pytest.importorskip("matplotlib")
from latentlink.report import risk_plots


@pytest.fixture(scope="module")
def pairs():
    rng = np.random.default_rng(0)
    items = rng.normal(size=(60, 8))
    return items + 0.5 * rng.normal(size=items.shape), items, rng.normal(size=(256, 8))


def test_a_curve_draws_what_it_holds(pairs):
    curve = risk_curve(*pairs, [16, 64, 256], 0.5)
    axes = curve.plot().axes[0]
    measured, predicted = axes.containers[0].lines[0], axes.lines[1]
    np.testing.assert_allclose(measured.get_ydata(), curve.measured)
    np.testing.assert_allclose(predicted.get_ydata(), curve.predicted)
    assert axes.get_ylabel() == "risk less log k (nats)"


def test_parts_of_a_bound_are_stacked():
    bounds = [
        combined_bound(n, 1024, 0.5, n_parameters=100, radius=1.0, lipschitz=1.0) for n in (10**4, 10**5, 10**6)
    ]
    axes = risk_plots.plot_bound_parts([1e4, 1e5, 1e6], bounds).axes[0]
    assert len(axes.collections) == 3
    top = max(path.vertices[:, 1].max() for collection in axes.collections for path in collection.get_paths())
    assert top == pytest.approx(bounds[0].total)
    with pytest.raises(
        InvalidInput, match=r"^positions has 1 values and bounds 3; needs as many, at least one\.$"
    ):
        risk_plots.plot_bound_parts([1.0], bounds)


def test_temperatures_are_sorted(pairs):
    certificates = [certify(*pairs, temperature=t) for t in (1.0, 0.3, 0.5)]
    axes = risk_plots.plot_temperatures(certificates).axes[0]
    np.testing.assert_allclose(axes.lines[0].get_xdata(), [0.3, 0.5, 1.0])
    with pytest.raises(InvalidInput, match=r"^certificates is empty; needs at least one\.$"):
        risk_plots.plot_temperatures([])


def test_a_certificate_shows_queries_and_candidates(pairs):
    left, right = risk_plots.plot_certificate(certify(*pairs)).axes
    assert len(left.lines[0].get_xdata()) == 60
    assert len(right.lines[0].get_xdata()) == 256
