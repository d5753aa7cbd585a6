"""Certify real encoders, and look at the theory's claims on a trained linear head.

Run: python benchmarks/real_risk.py FOLDER [--out docs/results/risk_real.json] [--quick]
FOLDER holds multi30k_test2016.npz, stsb_test.npz, stsb_pool3000.npz, cifar100_effnetlite.npz and
words_glove50_glove100.npz: arrays named by encoder, rows aligned.
"""

from __future__ import annotations

import argparse
import json
import math
import os
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np

from latentlink.risk import (
    Certificate,
    certify,
    combined_bound,
    lipschitz_of_weights,
    negatives_for,
    row_statistics,
    self_normalised_error,
)

SIZES = (4, 8, 16, 32, 64, 128, 256, 512, 1024)
N, POOL = 1000, 3000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--quick", action="store_true", help="two seeds, few steps")
    arguments = parser.parse_args()
    seeds, steps = (2, 30) if arguments.quick else (5, 150)
    words = np.load(arguments.folder / "words_glove50_glove100.npz")
    result = {
        "encoders": encoders(arguments.folder),
        "gap_over_k": [gap(words, k, 32, seeds, steps) for k in SIZES],
        "gap_over_k_warm": [gap(words, k, 32, seeds, steps, 0.5) for k in SIZES[::2]],
        "gap_over_dimension": [gap(words, 256, d, seeds, steps) for d in (4, 8, 16, 32, 64, 128)],
        "norms": norms(words),
        "self_normalised": self_normalised(arguments.folder),
    }
    text = json.dumps(result, indent=1)
    print(text)
    if arguments.out is not None:
        arguments.out.write_text(text + "\n")


def encoders(folder: Path) -> list[dict[str, Any]]:
    """Certify each encoder at temperature 0.1."""
    rows = []
    captions = np.load(folder / "multi30k_test2016.npz")
    for encoder in ("e5", "use"):
        for language in ("de", "fr"):
            q, p = captions[f"{encoder}_{language}"], captions[f"{encoder}_en"]
            c = certify(q, p, temperature=0.1, design="in_batch", batch_negatives="positives")
            rows.append(line(f"multi30k {language} to en, {encoder}, in batch", c))
    test, pool = np.load(folder / "stsb_test.npz"), np.load(folder / "stsb_pool3000.npz")
    same = test["score"] >= 4
    for encoder in ("minilm", "e5", "wordllama"):
        q, p = test[encoder][test["ia"][same]], test[encoder][test["ib"][same]]
        c = certify(q, p, pool[encoder], temperature=0.1, leaks="exclude")
        rows.append(line(f"STS-B score >= 4, {encoder}, pool", c))
    images = np.load(folder / "cifar100_effnetlite.npz")
    x = images[next(name for name in images.files if images[name].ndim == 2)]
    held = x[~images["is_train"].astype(bool)]
    label = images["y"][~images["is_train"].astype(bool)]
    order = np.argsort(label, kind="stable")
    q, p = held[order[0::2]], held[order[1::2]]  # two images of one class
    c = certify(q, p, x[images["is_train"].astype(bool)], temperature=0.1)
    rows.append(line("CIFAR-100 same class, EfficientNet-Lite0, pool", c))
    return rows


def line(name: str, c: Certificate) -> dict[str, Any]:
    return {
        "name": name,
        "pairs": c.n_pairs,
        "negatives": c.n_negatives,
        "cross_entropy": round(c.cross_entropy, 4),
        "interval": [round(x, 4) for x in c.interval()],
        "sandwich": [round(x, 4) for x in c.sandwich],
        "naive_share_of_error": round(c.query_error / c.standard_error, 3),
        "bias_of_logged_loss": round(c.bias, 4),
        "mean_ratio": round(float(c.rows.ratio.mean()), 1),
        "recall_at_1": round(c.recall_at_1, 3),
        "gates": {gate.name: round(gate.value, 4) for gate in c.gates},
        "verdict": c.verdict,
        "negatives_inside": int(negatives_for(c.rows, 0.01)),
        "negatives_outside": int(negatives_for(c.rows, 0.01, variant="outside")),
    }


def gap(words: Any, k: int, dimension: int, seeds: int, steps: int, temperature: float = 0.1) -> dict[str, Any]:
    """Train linear heads on 1,000 tuples of k fixed negatives and test them on 1,000 others."""
    runs = [one_run(words, k, dimension, seed, steps, temperature) for seed in range(seeds)]
    train, test = (np.array([run[i] for run in runs]) for i in (0, 1))
    bounds = [run[2] for run in runs]
    return {
        "temperature": temperature,
        "k": k,
        "dimension": dimension,
        "train": round(float(train.mean()), 4),
        "test": round(float(test.mean()), 4),
        "gap": round(float((test - train).mean()), 4),
        "gap_error": round(float((test - train).std(ddof=1) / math.sqrt(seeds)), 4),
        "complexity": round(float(np.mean([bound.complexity for bound in bounds])), 1),
        "finite_k": round(bounds[0].finite_k, 1),
        "loss_range": round(bounds[0].loss_range, 2),
        "vacuous": all(bound.vacuous for bound in bounds),
    }


def one_run(
    words: Any, k: int, dimension: int, seed: int, steps: int, temperature: float
) -> tuple[float, float, Any]:
    """Return the training and test risk less log(k + 1), and the combined bound of what was reached."""
    import torch

    torch.set_num_threads(1)
    torch.manual_seed(seed)
    rng = np.random.default_rng(seed)
    order = rng.permutation(len(words["glove50"]))
    x, y = (torch.as_tensor(unit(words[name][order].astype(np.float32))) for name in ("glove50", "glove100"))
    first, second = (torch.nn.Linear(z.shape[1], dimension, bias=False) for z in (x, y))
    start = [head.weight.detach().clone() for head in (first, second)]
    pairs = [slice(0, N), slice(N, 2 * N)]
    pools = [slice(2 * N, 2 * N + POOL), slice(2 * N + POOL, 2 * N + 2 * POOL)]
    columns = [torch.as_tensor(rng.integers(0, POOL, (N, k))) for _ in range(2)]
    optimizer = torch.optim.Adam([first.weight, second.weight], lr=0.01)

    def risk(which: int) -> Any:
        u = torch.nn.functional.normalize(first(x[pairs[which]]))
        v = torch.nn.functional.normalize(second(y[pairs[which]]))
        z = torch.nn.functional.normalize(second(y[pools[which]]))
        negatives = (u @ z.T).gather(1, columns[which]) / temperature  # (n, k)
        positive = (u * v).sum(1, keepdim=True) / temperature
        return (torch.cat([positive, negatives], 1).logsumexp(1) - positive[:, 0]).mean() - math.log(k + 1)

    for _ in range(steps):
        optimizer.zero_grad()
        risk(0).backward()
        optimizer.step()
    with torch.no_grad():
        train, test = float(risk(0)), float(risk(1))
        moves = [
            float(((head.weight - old) ** 2).sum()) for head, old in zip((first, second), start, strict=True)
        ]
        least = min(float(first(x[:N]).norm(dim=1).min()), float(second(y[:N]).norm(dim=1).min()))
    radius = math.sqrt(sum(moves))
    slope = lipschitz_of_weights([first.weight], radius=radius, input_norm=1.0, least_norm=least).value
    count = first.weight.numel() + second.weight.numel()
    return train, test, combined_bound(N, k, temperature, n_parameters=count, radius=radius, lipschitz=slope)


def norms(words: Any) -> list[dict[str, float]]:
    """Which negatives carry the weight of raw inner products, as the temperature falls."""
    x = words["glove50"].astype(np.float64)
    x /= np.linalg.norm(x, axis=1).mean()
    queries, pool = x[:500], x[500:4500]
    length = np.linalg.norm(pool, axis=1)
    found = []
    for temperature in (1.0, 0.5, 0.2, 0.1, 0.05, 0.02):
        row = {"temperature": temperature}
        for name, candidates in (("inner_product", pool), ("cosine", unit(pool))):
            logits = (unit(queries) if name == "cosine" else queries) @ candidates.T / temperature
            rows = row_statistics(np.zeros(500), logits)
            weights = np.exp(logits - logits.max(axis=1, keepdims=True))
            weights /= weights.sum(axis=1, keepdims=True)
            row[f"{name}_norm_of_the_weighted_negative"] = round(
                float((weights @ length).mean() / length.mean()), 3
            )
            row[f"{name}_effective_negatives"] = round(float(np.median(rows.ess)), 1)
        found.append(row)
    return found


def self_normalised(folder: Path) -> list[dict[str, float]]:
    """Measure the ideal kernel ρ/Σρ of class labels on m unseen images: how often it exists, and how far it is."""
    images = np.load(folder / "cifar100_effnetlite.npz")
    x = unit(images[next(name for name in images.files if images[name].ndim == 2)].astype(np.float64))
    y = images["y"]
    temperature, rng = 0.1, np.random.default_rng(0)
    found = []
    logits = x @ x.T / temperature
    np.fill_diagonal(logits, -np.inf)
    log_z = np.logaddexp.reduce(logits, axis=1) - math.log(len(x) - 1)
    same = y[:, None] == y[None, :]
    np.fill_diagonal(same, False)
    h = log_z - np.where(same, logits, 0).sum(axis=1) / same.sum(axis=1)
    truth = float(h.mean())
    for m in (32, 128, 512, 2048):
        values, missing = [], 0
        for i in rng.integers(0, len(x), 2000):
            rows = rng.choice(len(x) - 1, m, replace=False)
            rows += rows >= i
            hit = same[i, rows]
            if not hit.any():
                missing += 1
                continue
            row = logits[i, rows]
            values.append(np.logaddexp.reduce(row) - math.log(m) - row[hit].mean() - h[i])
        chi2 = (len(x) - 1) / same.sum(axis=1).mean() - 1
        found.append(
            {
                "m": m,
                "undefined_share": round(missing / 2000, 3),
                "distance_from_limit": round(float(np.mean(values)), 4),
                "error_of_mean": round(float(np.std(values) / math.sqrt(len(values))), 4),
                "limit": round(truth, 4),
                "bound": round(self_normalised_error(temperature, float(chi2), m), 1),
            }
        )
    return found


def unit(x: Any) -> Any:
    return x / np.linalg.norm(x, axis=1, keepdims=True)


if __name__ == "__main__":
    main()
