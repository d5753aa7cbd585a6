"""Image encoders: a backbone whose features are kept, and a projector that only the loss sees."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, nn

from latentlink import _checks
from latentlink._files import replacing
from latentlink.train.batches import Images, array_images
from latentlink.train.settings import ImageSettings, load_settings


class ImageEncoder(nn.Module):
    """A backbone, images to features (n, d), and a projector, features to the loss's space.

    Parameters
    ----------
    settings : ImageSettings
    channels : int
        Of the images, 1 or 3.
    """

    def __init__(self, settings: ImageSettings, channels: int) -> None:
        super().__init__()
        self.settings = settings
        self.channels = channels
        self.backbone, self.width = _backbone(settings, channels)
        self.projector = nn.Sequential(
            nn.Linear(self.width, self.width, bias=False),
            nn.ReLU(inplace=True),
            nn.Linear(self.width, settings.projection, bias=False),
        )

    def forward(self, images: Tensor) -> Tensor:
        """Project images: (n, c, s, s) in [0, 1] to (n, projection)."""
        return cast(Tensor, self.projector(self.backbone(images)))

    @torch.no_grad()
    def encode(self, images: Images | np.ndarray[Any, Any], *, batch_size: int = 512) -> np.ndarray[Any, Any]:
        """Compute features of all images, without augmentation.

        Parameters
        ----------
        images : Images, or uint8 array (n, h, w) or (n, h, w, 3)
            From `latentlink.train.batches.load_images`; an array has the size that was trained on.
        batch_size : int

        Returns
        -------
        float32 array (n, width)
        """
        if not isinstance(images, Images):
            images = array_images(images)
        if images.channels != self.channels:
            raise _checks.InvalidInput(
                f"images have {images.channels} channels; the encoder was trained on {self.channels}."
            )
        device = next(self.parameters()).device
        training = self.training
        self.eval()
        parts = [
            self.backbone(part.to(device, memory_format=torch.channels_last).float() / 255)
            .float()
            .cpu()
            .numpy()
            for part in images.batches(batch_size)
        ]
        self.train(training)
        return np.concatenate(parts)

    def save(self, folder: str | os.PathLike[str]) -> Path:
        """Write the weights to `folder`/encoder.safetensors; the settings stand beside it."""
        from safetensors.torch import save_file

        path = Path(folder) / "encoder.safetensors"
        weights = {name: value.contiguous() for name, value in self.state_dict().items()}
        with replacing(path) as temporary:
            save_file(weights, temporary, metadata={"channels": str(self.channels)})
        return path


def load_image_encoder(folder: str | os.PathLike[str]) -> ImageEncoder:
    """Load the encoder that `train_images` wrote to a folder; runs no code from it.

    Parameters
    ----------
    folder : path

    Returns
    -------
    ImageEncoder
        On the CPU and in evaluation mode.
    """
    from safetensors import safe_open

    settings = load_settings(folder)
    path = Path(folder) / "encoder.safetensors"
    if not isinstance(settings, ImageSettings):
        raise _checks.InvalidInput(f"{folder} is a training run of kind {settings.kind!r}; needs 'images'.")
    if not path.is_file():
        raise _checks.InvalidInput(f"{path} does not exist; the run has not ended. Take it up with resume.")
    with safe_open(path, framework="pt") as file:
        encoder = ImageEncoder(settings, int(file.metadata()["channels"]))
        encoder.load_state_dict({name: file.get_tensor(name) for name in file.keys()})  # noqa: SIM118
    return encoder.eval().to(memory_format=torch.channels_last)


def _backbone(settings: ImageSettings, channels: int) -> tuple[nn.Module, int]:
    if settings.backbone == "small":
        return _small(channels, settings.width, settings.norm), 4 * settings.width
    timm = _checks.need("timm", extra="train", job=f"backbone {settings.backbone!r}")
    if settings.backbone not in timm.list_models():
        raise _checks.InvalidInput(
            f"backbone is {settings.backbone!r}; needs 'small' or a name of timm.list_models()."
        )
    size: dict[str, Any] = {}
    if settings.backbone.startswith("vit") and settings.image_size != 224:
        size = {"img_size": settings.image_size, "patch_size": max(2, settings.image_size // 14)}
    model = timm.create_model(settings.backbone, num_classes=0, in_chans=channels, **size)
    if settings.image_size <= 64 and hasattr(model, "maxpool") and hasattr(model, "conv1"):
        model.conv1 = nn.Conv2d(channels, model.conv1.out_channels, 3, stride=1, padding=1, bias=False)
        model.maxpool = nn.Identity()
    return model, int(model.num_features)


def _small(channels: int, width: int, norm: str) -> nn.Module:
    """Build a residual net of three stages; its first convolution halves the image, for speed."""
    return nn.Sequential(
        nn.Conv2d(channels, width, 3, stride=2, padding=1, bias=False),
        _norm(width, norm),
        nn.ReLU(inplace=True),
        _Residual(width, width, 1, norm),
        _Residual(width, 2 * width, 2, norm),
        _Residual(2 * width, 4 * width, 2, norm),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
    )


class _Residual(nn.Module):
    def __init__(self, inside: int, outside: int, stride: int, norm: str) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(inside, outside, 3, stride, padding=1, bias=False),
            _norm(outside, norm),
            nn.ReLU(inplace=True),
            nn.Conv2d(outside, outside, 3, padding=1, bias=False),
            _norm(outside, norm),
        )
        self.short = (
            nn.Identity()
            if inside == outside and stride == 1
            else nn.Sequential(nn.Conv2d(inside, outside, 1, stride, bias=False), _norm(outside, norm))
        )

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.body(x) + self.short(x))


def _norm(width: int, norm: str) -> nn.Module:
    return nn.BatchNorm2d(width) if norm == "batch" else nn.GroupNorm(max(1, width // 8), width)
