"""Train a small encoder on scikit-learn's digits (1,797 real 8 × 8 images), in plain PyTorch."""

from __future__ import annotations

from typing import Any

import numpy as np

from latentlink._checks import need

FloatArray = np.ndarray[Any, np.dtype[np.float32]]
IntArray = np.ndarray[Any, np.dtype[np.int64]]

TRAIN_IMAGES = 1200


def load_digits() -> tuple[FloatArray, IntArray]:
    """Return the images (1797, 1, 8, 8) in [0, 1] and their labels (1797,)."""
    from sklearn.datasets import load_digits as load

    bunch = load()
    images = (bunch.images / 16.0).astype(np.float32)[:, None]
    return images, bunch.target.astype(np.int64)


def train_encoder(images: FloatArray, loss: Any, *, epochs: int, seed: int) -> FloatArray:
    """Train on the first 1,200 images without their labels and return features of all images.

    Parameters
    ----------
    images : float array (n, 1, 8, 8)
    loss : module
        Maps two views (b, 32) and (b, 32) to a scalar: `NTXentLoss`, `WEINCELoss`.
    epochs, seed : int
        The same seed gives the same initial weights, batches and views whatever the loss.

    Returns
    -------
    float array (n, 128)
        Output of the encoder before the projector, of unaugmented images.
    """
    torch = need("torch", extra="torch", job="the demo's training")
    nn = torch.nn
    generator = torch.Generator().manual_seed(seed)
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        encoder = nn.Sequential(
            nn.Conv2d(1, 32, 3, padding=1), nn.ReLU(), nn.Conv2d(32, 32, 3, stride=2, padding=1), nn.ReLU(),
            nn.Flatten(), nn.Linear(512, 128), nn.ReLU(),
        )  # fmt: skip
        projector = nn.Sequential(nn.Linear(128, 64), nn.ReLU(), nn.Linear(64, 32))
    optimizer = torch.optim.AdamW([*encoder.parameters(), *projector.parameters()], lr=2e-3)
    x = torch.as_tensor(images)
    for _ in range(epochs):
        for rows in torch.randperm(TRAIN_IMAGES, generator=generator).split(240):
            views = [projector(encoder(_augment(torch, x[rows], generator))) for _ in range(2)]
            value = loss(*views)
            optimizer.zero_grad()
            value.backward()
            optimizer.step()
    with torch.no_grad():
        return np.asarray(encoder(x))


def _augment(torch: Any, x: Any, generator: Any) -> Any:
    """Rotate, scale, shift and disturb each image (b, 1, 8, 8) at random."""
    b = x.shape[0]
    angle, zoom = (torch.rand(2, b, generator=generator) * 2 - 1) * torch.tensor([[0.35], [0.2]])
    shift = (torch.rand(b, 2, generator=generator) * 2 - 1) * 0.25  # in half images: one pixel
    cosine, sine = torch.cos(angle) * (1 + zoom), torch.sin(angle) * (1 + zoom)
    rows = [torch.stack([cosine, -sine, shift[:, 0]], 1), torch.stack([sine, cosine, shift[:, 1]], 1)]
    grid = torch.nn.functional.affine_grid(torch.stack(rows, 1), x.shape, align_corners=False)
    moved = torch.nn.functional.grid_sample(x, grid, align_corners=False)
    return moved + 0.1 * torch.randn(moved.shape, generator=generator)
