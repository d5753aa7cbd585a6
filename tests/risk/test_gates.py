"""Do the gates let through only what may be trusted? Ninety laws with near-duplicates of any rarity."""

import itertools

import numpy as np
import pytest

from latentlink.risk import judge_rows, row_statistics


def cells(rng):
    """Yield (verdict, error, expected number of duplicates drawn) for each law."""
    grid = itertools.product((0.05, 0.08, 0.15), (0.08, 0.15), (0, 3e-5, 3e-4, 3e-3, 3e-2), (128, 512, 2048))
    for temperature, sigma, rare, k in grid:
        near = rng.uniform(0.6, 0.9)
        s = rng.normal(0, sigma, size=(300, k))
        s[rng.random(s.shape) < rare] = near
        rows = row_statistics(np.zeros(300), s / temperature)
        truth = np.log((1 - rare) * np.exp(sigma**2 / temperature**2 / 2) + rare * np.exp(near / temperature))
        judged = judge_rows(rows)
        yield judged.verdict, abs(rows.jackknife.mean() - truth), 300 * k * rare


@pytest.mark.medium
def test_what_passes_the_gates_is_right_unless_nothing_was_seen(rng):
    found = list(cells(rng))
    trusted = [(error, seen) for verdict, error, seen in found if verdict == "trust"]
    refused = [error for verdict, error, _ in found if verdict != "trust"]
    print(f"trusted {len(trusted)}, errors {sorted(round(e, 3) for e, _ in trusted)[-6:]}; refused median "
          f"{np.median(refused):.2f}, needlessly {sum(e <= 0.02 for e in refused)}")  # fmt: skip
    assert len(trusted) >= 30
    # A law whose duplicates were expected less than five times cannot be told from one without.
    assert all(error < 0.05 for error, seen in trusted if seen == 0 or seen > 5)
    assert sum(error > 0.05 for error, _ in trusted) <= 3
    assert np.median(refused) > 0.1
