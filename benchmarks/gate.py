"""How often does the default gate act? Shares of queries with a blend above 0.1 in batches of a training run.

A two-layer head is trained with plain NT-Xent, 300 steps of 256 items, on two noisy views of each item: pixels of
scikit-learn's digits, frozen EfficientNet-Lite features of CIFAR-100 images, and frozen embeddings of captions,
whose two views are the English and the German one. The gate is read, not used. Run:
python benchmarks/gate.py --data FOLDER
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np
import torch
from torch import nn

from latentlink.losses import NTXentLoss, WEINCELoss

GATES = {
    "default": WEINCELoss(),
    "no evidence asked, pivot 0.05": WEINCELoss(evidence="gap"),
    "pivot 0.2": WEINCELoss(pivot=0.2),
    "likelihood, relative pivot": WEINCELoss(pivot=None),
    "released": WEINCELoss.released(),
}


def sources(folder: Path | None):
    from sklearn.datasets import load_digits

    digits = torch.tensor(load_digits().data / 16, dtype=torch.float32)
    yield "digits", digits, digits
    if folder is not None:
        images = np.load(folder / "cifar100_effnetlite.npz")["lite0"].astype(np.float32)
        yield "CIFAR-100 features", torch.tensor(images), torch.tensor(images)
        captions = np.load(folder / "multi30k_test2016.npz")
        yield "captions", *(torch.tensor(captions[name].astype(np.float32)) for name in ("e5_en", "e5_de"))


def measure(a: torch.Tensor, b: torch.Tensor, temperature: float) -> dict:
    torch.manual_seed(0)
    center, spread = a.mean(0), a.std(0).mean()
    head = nn.Sequential(nn.Linear(a.shape[1], 128), nn.ReLU(), nn.Linear(128, 64))
    optimizer, loss = torch.optim.Adam(head.parameters(), 1e-3), NTXentLoss(temperature)
    found: dict[str, list] = {name: [] for name in GATES}
    gaps, evidence = [], []
    for step in range(300):
        rows = torch.randperm(len(a))[:256]
        views = [(x[rows] - center) / spread + 0.5 * torch.randn(256, a.shape[1]) for x in (a, b)]
        z0, z1 = (head(view) for view in views)
        if step % 50 == 49:
            for name, gate in GATES.items():
                found[name].append(gate.statistics(z0, z1).share_blended)
            own = GATES["default"].statistics(z0, z1)
            gaps.append(float(own.gap.median()))
            evidence.append(float((own.evidence > 2).float().mean()))
        optimizer.zero_grad()
        loss(z0, z1).backward()
        optimizer.step()
    rounded = {name: [round(share, 3) for share in shares] for name, shares in found.items()}
    return {"median gap": np.round(gaps, 3).tolist(), "evidence > 2": np.round(evidence, 3).tolist(), **rounded}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, help="the folder of embeddings")
    for name, a, b in sources(parser.parse_args().data):
        for temperature in (0.5, 0.1):
            print(
                json.dumps({"data": name, "temperature": temperature, **measure(a, b, temperature)}), flush=True
            )


if __name__ == "__main__":
    main()
