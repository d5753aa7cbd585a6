"""Time and memory of the contrastive losses and their peers, forward and backward.

One thread, CPU time of this process, cases in turn within each round, so that a noisy machine slows all alike;
ratios are medians over rounds of the ratio within a round, with the range of the middle half. Memory is the peak
above the inputs of a process of its own. The rows are written as they are made, dearest last.
Run: python benchmarks/loss.py [--json FILE] [--plot FILE]
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path

os.environ["OMP_NUM_THREADS"] = "1"

import numpy as np
import torch
from _loss_peers import FAMILIES

SIZES = [
    (128, 128),
    (256, 128),
    (512, 128),
    (1024, 128),
    (4096, 128),
    (512, 768),
    (1024, 768),
    (4096, 768),
    (8192, 128),
    (2048, 128),
]
LIMIT_MIB = 5000.0  # a case that would take more is left out


def views(n: int, d: int) -> list[torch.Tensor]:
    torch.manual_seed(0)
    z0 = torch.randn(n, d)
    return [z0.requires_grad_(), (z0.detach() + 0.5 * torch.randn(n, d)).requires_grad_()]


def step(case, inputs) -> float | None:
    """Compute a loss and its gradient; return the value."""
    value = case(*inputs)
    if value is None:
        return None
    if value.requires_grad:
        torch.autograd.grad(value, inputs)
    for x in inputs:
        x.grad = None  # some peers leave their gradients there
    return float(value.detach())


def peak_mib(family: str, name: str, n: int, d: int) -> float:
    """Measure the peak memory of one step above the inputs, in a process of its own."""
    command = [sys.executable, __file__, "--child", json.dumps([family, name, n, d])]
    return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def child(family: str, name: str, n: int, d: int) -> None:
    case = FAMILIES[family][name]()
    step(case, views(16, d))  # loads what is loaded lazily
    inputs = views(n, d)
    Path("/proc/self/clear_refs").write_text("5")  # forget the peak of the imports
    before = status_mib("VmRSS")
    step(case, inputs)
    print(max(0.0, status_mib("VmHWM") - before))


def status_mib(field: str) -> float:
    lines = Path("/proc/self/status").read_text().splitlines()
    return float(next(line for line in lines if line.startswith(field)).split()[1]) / 1024


def rounds_of(cases: dict, inputs, rounds: int) -> dict[str, list[float]]:
    """Time every case once a round, in turn: CPU seconds."""
    seconds: dict[str, list[float]] = {name: [] for name in cases}
    for case in cases.values():
        step(case, inputs)
    for _ in range(rounds):
        for name, case in cases.items():
            start = time.process_time()
            step(case, inputs)
            seconds[name].append(time.process_time() - start)
    return seconds


def ratio(a: list[float], b: list[float]) -> list[float]:
    """Compare round by round: median, first and third quartile."""
    each = np.array(a) / np.array(b)
    return [round(float(x), 3) for x in np.quantile(each, [0.5, 0.25, 0.75])]


def measure(family: str, n: int, d: int, rounds: int, *, with_memory: bool) -> dict:
    cases = {name: make() for name, make in FAMILIES[family].items()}
    memory = {}
    for name in list(cases):
        wide = (2 * n if family == "nt_xent" else n) ** 2 * 4 / 2**20  # one matrix
        if "metric" in name and wide * 11 > LIMIT_MIB:
            del cases[name]
            continue
        if with_memory:
            memory[name] = round(peak_mib(family, name, n, d), 1)
    seconds = rounds_of(cases, views(n, d), rounds)
    peers = [name for name in cases if name not in ("ours", "dense", "products") and "weince" not in name]
    fastest = min(peers, key=lambda name: float(np.median(seconds[name])))
    best = min([*peers, "dense"], key=lambda name: float(np.median(seconds[name])))
    row = {
        "family": family,
        "n": n,
        "d": d,
        "milliseconds": {name: round(1e3 * float(np.median(s)), 2) for name, s in seconds.items()},
        "peak MiB": memory,
        "fastest peer": fastest,
        "ours / fastest peer": ratio(seconds["ours"], seconds[fastest]),
        "ours / fastest of peers and dense": ratio(seconds["ours"], seconds[best]),
        "ours / products": ratio(seconds["ours"], seconds["products"]),
        "rounds": rounds,
        "load": os.getloadavg()[0],
    }
    if memory:
        row["memory: fastest peer / ours"] = round(memory[fastest] / max(1.0, memory["ours"]), 1)
    for name in cases:
        if "weince" in name:
            row[f"{name} / ours"] = ratio(seconds[name], seconds["ours"])
            row[f"{name} / fastest peer"] = ratio(seconds[name], seconds[fastest])
    return row


def plot(rows: list[dict], path: str) -> None:
    import matplotlib

    matplotlib.use("svg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, 3, figsize=(12, 3.6), layout="constrained")
    for axis, family in zip(axes, ["nt_xent", "one_way", "symmetric"], strict=True):
        chosen = [row for row in rows if row["family"] == family and row["d"] == 128]
        chosen.sort(key=lambda row: row["n"])
        names = dict.fromkeys(name for row in chosen for name in row["milliseconds"])
        for name in names:
            points = [(row["n"], row["milliseconds"].get(name)) for row in chosen]
            x, y = zip(*[point for point in points if point[1]], strict=True)
            style = {"color": "black", "linestyle": ":"} if name == "products" else {}
            axis.loglog(x, y, label=name, marker=".", linewidth=2.2 if name == "ours" else 1.2, **style)
        axis.set(title=family, xlabel="pairs", ylabel="ms, forward and backward")
        axis.legend(fontsize=7)
    figure.savefig(path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--json", nargs="?", const="", help="write the rows to this file; they are printed anyway"
    )
    parser.add_argument("--plot", help="draw them there, as SVG")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--largest", type=int, default=8192)
    parser.add_argument(
        "--memory",
        type=int,
        nargs="*",
        default=[1024, 4096, 8192],
        help="pairs at which memory is measured, d = 128",
    )
    parser.add_argument("--child", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    if arguments.child:
        child(*json.loads(arguments.child))
        return
    rows = []
    for n, d in SIZES:
        rounds = (
            4 * arguments.rounds + 1
            if n <= 1024
            else max(1, arguments.rounds * 4096 // max(4096, 2 * n - 4096))
        )
        for family in FAMILIES if n <= arguments.largest else []:
            row = measure(family, n, d, rounds, with_memory=n in arguments.memory and d == 128)
            rows.append(row)
            print(json.dumps(row), flush=True)
            report = {"torch": torch.__version__, "load": os.getloadavg(), "temperature": 0.1, "rows": rows}
            if arguments.json:
                Path(arguments.json).write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    if arguments.plot:
        plot(rows, arguments.plot)


if __name__ == "__main__":
    main()
