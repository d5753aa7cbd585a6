"""Do the intervals hold what they promise? Simulated coverage of each design on three known laws."""

import numpy as np
import pytest

from latentlink.risk import certify

SETTINGS = {"temperature": 0.5, "leaks": "allow", "progress": False}


def draw(law, design, rng):
    """One certificate of a design, small enough for thousands."""
    if design == "pool":
        return certify(*law.pairs(rng, 1000), law.pool(rng, 128), **SETTINGS)
    if design == "iid":
        return certify(*law.pairs(rng, 300), law.pool(rng, 300, 64), design="iid", **SETTINGS)
    if design == "batches":
        return certify(*law.pairs(rng, 40 * 32), design="batches", batch_size=32, **SETTINGS)
    return certify(*law.pairs(rng, 200), design="in_batch", batch_negatives=design, **SETTINGS)


def coverage(law, design, rng, repetitions):
    negatives = {"positives": "positives", "batches": "positives", "queries": "queries"}.get(design, "pool")
    truth = law.truth(SETTINGS["temperature"], negatives)
    hits = 0
    for _ in range(repetitions):
        low, high = draw(law, design, rng).interval()
        hits += low <= truth <= high
    return hits / repetitions


DESIGNS = ("pool", "iid", "positives", "queries", "batches")


def test_the_hubs_are_hubs(law_of, rng):
    c = draw(law_of("hubs"), "pool", rng)
    assert c.hubness > 0.3
    assert c.pool_error > 2 * c.query_error  # the part that the naive standard error leaves out


@pytest.mark.medium
@pytest.mark.parametrize("name", ["sphere", "hubs"])
def test_the_sandwich_holds_with_a_shared_pool(law_of, name, rng):
    law = law_of(name)
    truth = law.truth(0.5)
    ends = np.array(
        [certify(*law.pairs(rng, 100), law.pool(rng, 8), **SETTINGS).sandwich for _ in range(2000)]
    )  # so few candidates that the width is many standard errors
    low, high = ends.mean(axis=0)
    noise = 4 * ends.std(axis=0) / np.sqrt(len(ends))
    assert low < truth + noise[0]
    assert high > truth - noise[1]
    assert high - low > noise.max()


@pytest.mark.medium
@pytest.mark.parametrize("design", DESIGNS)
def test_coverage_roughly(law_of, design, rng):
    assert coverage(law_of("circle"), design, rng, 200) > 0.87  # five standard errors below 0.95


@pytest.mark.stats
@pytest.mark.parametrize("name", ["circle", "sphere", "hubs"])
@pytest.mark.parametrize("design", DESIGNS)
def test_coverage(law_of, design, name, record_property):
    rng = np.random.default_rng([len(design), len(name)])
    repetitions = 2000
    rate = coverage(law_of(name), design, rng, repetitions)
    record_property("coverage", rate)
    print(f"coverage {design} {name} {rate:.4f}")
    slack = [3.29 * np.sqrt(p * (1 - p) / repetitions) for p in (0.93, 0.97)]
    assert 0.93 - slack[0] <= rate <= 0.97 + slack[1]
