"""The batches of tests/oracles/weince_oracle.json and how closely its numbers are to be met."""

import numpy as np
import torch

CASES = [
    "tiny_N2_d3",
    "tiny_N3_d4",
    "gauss_N8_d4",
    "gauss_N64_d16",
    "cluster_N32_d8",
    "neardup_N32_d8",
    "exactdup_N16_d8",
    "trig_N256_d64",
]


def views(oracle, case):
    """The two views of a case, float64, with gradients."""
    if case == "trig_N256_d64":  # a closed form, not stored
        i, k = np.arange(1, 257)[:, None], np.arange(1, 65)[None, :]
        z0 = np.sin(0.37 * i * k) + 0.5 * np.cos(0.11 * (i % 7) * k)
        z1 = z0 + 0.3 * np.cos(0.53 * i * k + 0.2 * k)
    else:
        z0, z1 = np.array(oracle[case]["z1"]), np.array(oracle[case]["z2"])
    return torch.as_tensor(z0).requires_grad_(), torch.as_tensor(z1).requires_grad_()


def tolerance(case):
    """The relative tolerance of a case: on duplicates 1 − s of the reference cancels."""
    return 1e-6 if case in ("neardup_N32_d8", "exactdup_N16_d8") else 1e-9
