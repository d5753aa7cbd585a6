"""Fits of tails a second, on one core, beside SciPy and pyextremes in the same run.

Each of our estimators fits the same tails of 64 exceedances (xi = -0.39, the end at 1), float64 and float32, in
alternating rounds with the peers; CPU time of this process, medians with a range.

    OMP_NUM_THREADS=1 python benchmarks/tails.py --json
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from collections.abc import Callable
from statistics import median

import numpy as np

from latentlink.tails import Tail, fit_tail, judge, take_tail

BARS = {"endpoint float64": 4e6, "zhang_stephens float64": 0.2e6}  # fits a second, from the design


def tails(n: int, k: int, dtype: type, seed: int = 0) -> Tail:
    """Draw n tails of k similarities that end at 1, over a threshold of 0.6."""
    shortfalls = 0.4 * np.random.default_rng(seed).random((n, k)) ** 0.39
    values = -np.sort(-(1 - shortfalls), axis=1).astype(dtype)
    return Tail.of(values, np.full(n, 0.6, dtype=dtype))


def scipy_fit(values: np.ndarray) -> None:
    """Fit one tail at a time as SciPy's users do."""
    from scipy import stats

    for row in values:
        stats.genpareto.fit(row - 0.6, floc=0)


def pyextremes_fit(values: np.ndarray) -> None:
    """Fit one tail at a time by pyextremes' maximum likelihood."""
    import pandas as pd
    from pyextremes.models import get_model

    index = pd.date_range("2000", periods=values.shape[1])
    for row in values:
        get_model(
            "MLE",
            extremes=pd.Series(row, index=index),
            distribution="genpareto",
            distribution_kwargs={"floc": 0.6},
        )


def rate(job: Callable[[], object], n: int) -> float:
    """Measure fits a second of CPU."""
    start = time.process_time()
    job()
    return n / (time.process_time() - start)


def measure(rounds: int, n: int, k: int) -> dict[str, dict[str, float]]:
    """Time every estimator once a round, so that noise falls on all alike."""
    data = {name: tails(n, k, dtype) for name, dtype in (("float64", np.float64), ("float32", np.float32))}
    jobs: dict[str, tuple[Callable[[], object], int]] = {}
    for name, tail in data.items():
        small = Tail.of(tail.values[: n // 10], tail.threshold[: n // 10])
        smaller = Tail.of(tail.values[: n // 40], tail.threshold[: n // 40])
        jobs[f"endpoint {name}"] = (lambda t=tail: fit_tail(t), n)
        jobs[f"pwm {name}"] = (lambda t=tail: fit_tail(t, "pwm"), n)
        jobs[f"zhang_stephens {name}"] = (lambda t=small: fit_tail(t, "zhang_stephens"), n // 10)
        jobs[f"ml {name}"] = (lambda t=smaller: fit_tail(t, "ml"), n // 40)
    judge(data["float64"])  # the tables are drawn once
    jobs["judge float64"] = (lambda: judge(data["float64"]), n)
    few = data["float64"].values[:40]
    jobs["scipy.stats.genpareto.fit"] = (lambda: scipy_fit(few), 40)
    try:
        import pyextremes  # noqa: F401

        jobs["pyextremes MLE"] = (lambda: pyextremes_fit(few), 40)
    except ModuleNotFoundError:
        print("pyextremes is not installed: pip install pyextremes")
    rates: dict[str, list[float]] = {name: [] for name in jobs}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _ in range(rounds):
            for name, (job, count) in jobs.items():
                rates[name].append(rate(job, count))
    base = median(rates["scipy.stats.genpareto.fit"])
    return {
        name: {"median": median(x), "lowest": min(x), "highest": max(x), "times_scipy": median(x) / base}
        for name, x in rates.items()
    }


def memory(n: int, d: int) -> dict[str, float]:
    """Take tails of n embeddings with 500 queries and report the peak memory of the process, in MiB."""
    import resource

    x = np.random.default_rng(0).normal(size=(n, d)).astype(np.float32)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    start = time.process_time()
    take_tail(x, n_queries=500)
    return {
        "rows": n,
        "columns": d,
        "seconds": time.process_time() - start,
        "peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        "peak_before_mib": before,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--tails", type=int, default=200_000)
    parser.add_argument("--size", type=int, default=64)
    parser.add_argument("--memory", action="store_true", help="also take tails of 100,000 x 384 embeddings")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    result: dict[str, object] = {"tail_size": arguments.size, "bars": BARS}
    if arguments.memory:
        result["memory"] = memory(100_000, 384)
    result["fits_per_cpu_second"] = rows = measure(arguments.rounds, arguments.tails, arguments.size)
    if arguments.json:
        print(json.dumps(result, indent=2))
        return
    for name, row in rows.items():
        bar = f"  bar {BARS[name]:,.0f}" if name in BARS else ""
        print(
            f"{name:28} {row['median']:>12,.0f} ({row['lowest']:,.0f} to {row['highest']:,.0f})"
            f"  {row['times_scipy']:>9,.0f} x SciPy{bar}"
        )
    if "memory" in result:
        print(result["memory"])


if __name__ == "__main__":
    main()
