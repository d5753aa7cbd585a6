"""What WEINCE adds to a training step: its time minus NT-Xent's, over the time of a ResNet-18 step at batch 256.

    python benchmarks/training_overhead.py [--json]

CPU time of one thread. The losses run forward and backward on the same embeddings, alternating; these vary in
three directions, so that negatives come near the endpoint and WEINCE's gate is open (a closed gate costs less). The
encoder's step (ResNet-18 with the small-image stem, 32 x 32, both views) is measured on a quarter of the batch and
multiplied by four: convolutions cost the same for each image.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable

import numpy as np
import torch

from latentlink.losses import NTXentLoss, WEINCELoss
from latentlink.train import ImageEncoder, ImageSettings

PAIRS = 256
PART = 4


def seconds(work: Callable[[], None]) -> float:
    """Measure CPU time of one call."""
    start = time.process_time()
    work()
    return time.process_time() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--rounds", type=int, default=25)
    parser.add_argument("--steps", type=int, default=3)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    z0 = torch.randn(PAIRS, 3) @ torch.randn(3, 64)
    z1 = z0 + 0.1 * torch.randn(PAIRS, 64)
    z0.requires_grad_(True)
    z1.requires_grad_(True)
    losses = {
        "nt_xent": NTXentLoss(0.5),
        "weince": WEINCELoss(0.5),
        "weince_released": WEINCELoss.released(0.5),
    }
    times: dict[str, list[float]] = {name: [] for name in losses}
    for name, loss in [*losses.items()] * arguments.rounds:
        times[name].append(seconds(lambda loss=loss: loss(z0, z1).backward()))
    settings = ImageSettings(backbone="resnet18", image_size=32)
    encoder = ImageEncoder(settings, 3).to(memory_format=torch.channels_last)
    images = torch.rand(2 * PAIRS // PART, 3, 32, 32).contiguous(memory_format=torch.channels_last)
    steps = [
        PART * seconds(lambda: encoder(images).square().sum().backward()) for _ in range(1 + arguments.steps)
    ]
    encoder_seconds = float(np.median(steps[1:]))
    record = {
        "nt_xent_seconds": float(np.median(times["nt_xent"][2:])),
        "encoder_step_seconds": encoder_seconds,
        "share_blended": losses["weince"].statistics(z0, z1).share_blended,
    }
    for name in ("weince", "weince_released"):
        added = np.array(times[name][2:]) - np.array(times["nt_xent"][2:])  # of one round
        record[f"{name}_seconds"] = float(np.median(times[name][2:]))
        record[f"{name}_overhead"] = float(np.median(added)) / encoder_seconds
    if arguments.json:
        print(json.dumps(record, indent=2))
        return
    print(
        f"NT-Xent {1e3 * record['nt_xent_seconds']:.1f} ms, ResNet-18 step {encoder_seconds:.1f} s, "
        f"{100 * record['share_blended']:.0f} % of queries blended"
    )
    for name in ("weince", "weince_released"):
        print(
            f"{name} {1e3 * record[f'{name}_seconds']:.1f} ms: {100 * record[f'{name}_overhead']:.3f} % of a step"
        )


if __name__ == "__main__":
    main()
