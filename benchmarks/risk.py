"""Certify 1,000 queries against a memory-mapped pool of a million vectors of 384 dimensions.

Prints CPU and wall seconds and the peak resident memory: in all, and above the pages of the mapped file, which the
kernel counts as resident while they are in its cache. Run: python benchmarks/risk.py [--pool 1000000]
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import tempfile
import threading
import time
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pool", type=int, default=1_000_000)
    parser.add_argument("--queries", type=int, default=1000)
    parser.add_argument("--dimension", type=int, default=384)
    parser.add_argument("--temperature", type=float, default=0.1)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        print(json.dumps(measure(Path(folder), arguments), indent=2))


def measure(folder: Path, arguments: argparse.Namespace) -> dict[str, float | str]:
    from latentlink.risk import certify

    rng = np.random.default_rng(0)
    n, size, d = arguments.queries, arguments.pool, arguments.dimension
    pool = np.lib.format.open_memmap(folder / "pool.npy", mode="w+", dtype=np.float32, shape=(size, d))
    for start in range(0, size, 50_000):
        rows = min(50_000, size - start)
        pool[start : start + rows] = rng.standard_normal((rows, d), dtype=np.float32)
    pool.flush()
    del pool
    positives = rng.standard_normal((n, d), dtype=np.float32)
    queries = positives + 0.8 * rng.standard_normal((n, d), dtype=np.float32)
    candidates = np.load(folder / "pool.npy", mmap_mode="r")
    before = resident()
    watch = Watch()
    cpu, wall = time.process_time(), time.perf_counter()
    c = certify(queries, positives, candidates, temperature=arguments.temperature)
    cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
    watch.stop()
    return {
        "cross_entropy": round(c.cross_entropy, 4),
        "standard_error": round(c.standard_error, 5),
        "verdict": c.verdict,
        "cpu_seconds": round(cpu, 1),
        "wall_seconds": round(wall, 1),
        "gib_before": round(before["anonymous"], 2),
        "gib_peak_anonymous": round(watch.anonymous, 2),
        "gib_peak_of_the_map": round(watch.mapped, 2),
        "gib_peak_resident": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20, 2),
    }


def resident() -> dict[str, float]:
    """Anonymous and file-backed resident memory of this process, GiB."""
    fields = dict(
        line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines() if ":" in line
    )
    return {
        "anonymous": float(fields["RssAnon"].split()[0]) / 2**20,
        "mapped": float(fields["RssFile"].split()[0]) / 2**20,
    }


class Watch:
    """Largest resident memory, looked at every 20 ms."""

    def __init__(self) -> None:
        self.anonymous = self.mapped = 0.0
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._look)
        self._thread.start()

    def _look(self) -> None:
        while not self._done.wait(0.02):
            now = resident()
            self.anonymous = max(self.anonymous, now["anonymous"])
            self.mapped = max(self.mapped, now["mapped"])

    def stop(self) -> None:
        """End the watch."""
        self._done.set()
        self._thread.join()


if __name__ == "__main__":
    main()
