"""Fixtures that every test may use: real data, both array kinds, and one thread a process."""

import os
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before NumPy and torch: tests run side by side

import numpy as np
import pytest
from hypothesis import HealthCheck, settings

# The same examples at every CI run: a change is judged by what it changed, new examples are for our desks.
settings.register_profile(
    "house", deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=bool(os.environ.get("CI"))
)
settings.load_profile("house")

SLOW_JOBS = ("stats", "peers", "stores", "ray", "training")


def pytest_collection_modifyitems(config, items):
    """Leave slow jobs to the run that asks for them by `-m`."""
    if config.option.markexpr:
        return
    skip = pytest.mark.skip(reason="a slow job; run it with -m")
    for item in items:
        if any(item.get_closest_marker(job) for job in SLOW_JOBS):
            item.add_marker(skip)


@pytest.fixture(scope="session")
def shared_data():
    """The folder of real data sets beside the checkout, for trials; skips where it is absent."""
    folder = Path(__file__).resolve().parents[1].parent / "shared" / "data"
    if not folder.is_dir():
        pytest.skip("the folder shared/data with real data sets is not beside this checkout")
    return folder


@pytest.fixture(scope="session")
def oracles():
    """The folder of number oracles."""
    return Path(__file__).parent / "oracles"


def _torch(array):
    torch = pytest.importorskip("torch")
    return torch.as_tensor(array)


@pytest.fixture(params=["numpy", "torch"])
def xp(request):
    """A function that makes an array of one kind: the test runs once with NumPy and once with torch."""
    return np.asarray if request.param == "numpy" else _torch


@pytest.fixture
def rng():
    return np.random.default_rng(0)


@pytest.fixture
def run(capsys):
    """Run `latentlink` with these arguments and return its exit code and what it printed."""

    from latentlink.cli import main

    def command(*arguments):
        with pytest.raises(SystemExit) as caught:
            main([str(part) for part in arguments])
        return caught.value.code, capsys.readouterr()

    return command
