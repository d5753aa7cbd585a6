"""The noise floor of a misspecified link: more data does not mend the wrong softmax.

Four candidates with similarities below an endpoint are picked with probability proportional to
(1 - similarity) ** -beta. The log odds of the best against the worst candidate are estimated from n picks, by
the shortfall link that made them and by a softmax with one free temperature. The first estimate's mean squared
error falls as 1 / n for ever; the second one's stops at a floor, the square of its bias. (A softmax with a free
logit for each candidate has no such floor: the floor is the price of one temperature for all candidates.)

    python benchmarks/noise_floor.py --plot noise_floor.png
"""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict, dataclass

import numpy as np

SIMILARITIES = np.array([0.15, 0.45, 0.70, 0.90])
BETA = 0.8
SIZES = (100, 200, 500, 1000, 2000, 5000, 10000)


@dataclass(frozen=True)
class NoiseFloor:
    """Mean squared errors of the log odds for each number of picks, and what theory says of them."""

    sizes: list[int]
    shortfall: list[float]
    softmax: list[float]
    slope: float  # of log MSE against log n, shortfall link; theory: -1
    floor: float  # intercept of the softmax MSE against 1 / n
    floor_in_theory: float
    constant_in_theory: float  # limit of n times the MSE, shortfall link


def noise_floor(n_replicates: int = 12_000, seed: int = 20260113) -> NoiseFloor:
    """Simulate picks and fit both links to each replicate."""
    rng = np.random.default_rng(seed)
    shortfall_scores, softmax_scores = -np.log1p(-SIMILARITIES), SIMILARITIES
    chances = _chances(shortfall_scores, np.array([BETA]))[0]  # (4,)
    truth = BETA * (shortfall_scores[-1] - shortfall_scores[0])
    errors = {"shortfall": [], "softmax": []}
    for n in SIZES:
        picks = rng.multinomial(n, chances, size=n_replicates) / n  # (r, 4)
        for name, scores in [("shortfall", shortfall_scores), ("softmax", softmax_scores)]:
            log_odds = _fitted_slope(scores, picks @ scores) * (scores[-1] - scores[0])  # (r,)
            errors[name].append(float(np.mean((log_odds - truth) ** 2)))
    inverse = 1 / np.array(SIZES)
    # The variance of a simulated MSE grows with the MSE's square; weights keep small n from ruling the line.
    floor = float(np.polyfit(inverse, errors["softmax"], 1, w=1 / np.array(errors["softmax"]))[1])
    pseudo_true = _fitted_slope(softmax_scores, np.array([chances @ softmax_scores]))[0]
    spread = shortfall_scores[-1] - shortfall_scores[0]
    variance = chances @ shortfall_scores**2 - (chances @ shortfall_scores) ** 2
    return NoiseFloor(
        sizes=list(SIZES),
        **errors,
        slope=float(np.polyfit(np.log(SIZES), np.log(errors["shortfall"]), 1)[0]),
        floor=floor,
        floor_in_theory=float((pseudo_true * (softmax_scores[-1] - softmax_scores[0]) - truth) ** 2),
        constant_in_theory=float(spread**2 / variance),
    )


def _chances(scores: np.ndarray, slopes: np.ndarray) -> np.ndarray:
    """Softmax of slope x score: (4,), (r,) to (r, 4)."""
    logits = slopes[:, None] * (scores - scores.max())
    weights = np.exp(logits - logits.max(axis=1, keepdims=True))
    return weights / weights.sum(axis=1, keepdims=True)


def _fitted_slope(scores: np.ndarray, mean_score: np.ndarray) -> np.ndarray:
    """Solve for the slopes whose expected score is `mean_score` (r,), all at once by bisection."""
    low, high = np.full_like(mean_score, -100.0), np.full_like(mean_score, 100.0)
    for _ in range(60):
        middle = (low + high) / 2
        too_small = _chances(scores, middle) @ scores < mean_score
        low, high = np.where(too_small, middle, low), np.where(too_small, high, middle)
    return (low + high) / 2


def draw(result: NoiseFloor, path: str) -> None:
    """Write the plot of both errors against n."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    n = np.array(result.sizes)
    figure, axes = plt.subplots(figsize=(5.5, 4), layout="constrained")
    axes.loglog(n, result.softmax, "o-", label="softmax, one temperature")
    axes.loglog(n, result.shortfall, "s-", label=f"shortfall link (slope {result.slope:.3f})")
    axes.loglog(
        n, result.constant_in_theory / n, "k:", linewidth=1, label=f"{result.constant_in_theory:.2f} / n"
    )
    axes.axhline(result.floor_in_theory, color="C0", linestyle="--", linewidth=1)
    label = f"floor {result.floor_in_theory:.4f}"
    axes.annotate(
        label, (n[-1], result.floor_in_theory), (0, -4), textcoords="offset points", ha="right", va="top"
    )
    axes.set(xlabel="picks n", ylabel="mean squared error of the log odds")
    axes.legend()
    figure.savefig(path, dpi=150)
    plt.close(figure)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--plot", help="write the figure to this file")
    parser.add_argument("--replicates", type=int, default=12_000)
    arguments = parser.parse_args()
    result = noise_floor(arguments.replicates)
    print(json.dumps(asdict(result), indent=2))
    if arguments.plot:
        draw(result, arguments.plot)


if __name__ == "__main__":
    main()
