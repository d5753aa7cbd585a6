"""Random views of images: one batch at a time, on its device, with each image's own draw.

torchvision's transforms draw once for a whole batch, or take images one by one (0.65 ms each on a CPU, more
than the encoder of a small image needs). Here the crop, the resize and the mirror are one resampling, and all
colour changes of an image are one affine map of its colours; 0.02 ms an image. Hue turns the chroma plane (YIQ)
instead of the hue of HSV, which is what makes it linear.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from latentlink.train.settings import ImageSettings

_LUMA = (0.299, 0.587, 0.114)
_TO_YIQ = ((0.299, 0.587, 0.114), (0.5959, -0.2746, -0.3213), (0.2115, -0.5227, 0.3112))


@dataclass(frozen=True)
class Draw:
    """The random choices for n images, drawn before the images are there.

    Attributes
    ----------
    crop : (n, 2, 3)
        Affine map from output to input coordinates, both in [−1, 1].
    color : (n, 3, 3)
        Linear map of the colours.
    brightness, contrast : (n,)
    """

    crop: Tensor
    color: Tensor
    brightness: Tensor
    contrast: Tensor

    def rows(self, rows: slice, device: torch.device) -> Draw:
        """Take some images' choices to a device."""
        return Draw(
            *(part[rows].to(device) for part in (self.crop, self.color, self.brightness, self.contrast))
        )


def draw_views(n: int, settings: ImageSettings, generator: torch.Generator) -> Draw:
    """Draw the random choices for n images."""

    def uniform(low: float, high: float) -> Tensor:
        return torch.rand(n, generator=generator) * (high - low) + low

    area, log_ratio = uniform(settings.smallest_crop, 1.0), uniform(math.log(3 / 4), math.log(4 / 3))
    width = (area * log_ratio.exp()).sqrt().clamp(max=1.0)  # (n,), share of the image
    height = (area / log_ratio.exp()).sqrt().clamp(max=1.0)
    x, y = (1 - width) * uniform(-1, 1), (1 - height) * uniform(-1, 1)  # centre of the crop
    mirror = 1 - 2 * (uniform(0, 1) < settings.flip).float()
    zero = torch.zeros(n)
    crop = torch.stack([width * mirror, zero, x, zero, height, y], dim=1).view(n, 2, 3)
    jittered = (uniform(0, 1) < 0.8).float() * settings.color
    brightness, contrast, saturation = (1 + 0.8 * jittered * uniform(-1, 1) for _ in range(3))
    turn = 2 * math.pi * 0.2 * jittered * uniform(-1, 1)
    saturation = torch.where(uniform(0, 1) < settings.gray, zero, saturation)
    return Draw(crop, _color_map(saturation, turn), brightness, contrast)


def apply_views(images: Tensor, draw: Draw, size: int) -> Tensor:
    """Make one view of each image.

    Parameters
    ----------
    images : uint8 tensor (n, c, h, w)
        c is 1 or 3; one channel has no saturation and no hue.
    draw : Draw
    size : int

    Returns
    -------
    float32 tensor (n, c, size, size)
        In [0, 1].
    """
    n, channels = images.shape[:2]
    x = images.float() / 255  # (n, c, h, w)
    grid = functional.affine_grid(draw.crop, [n, channels, size, size], align_corners=False)  # (n, s, s, 2)
    x = functional.grid_sample(x, grid, mode="bilinear", padding_mode="reflection", align_corners=False)
    x = x * draw.brightness[:, None, None, None]
    luma = x.new_tensor(_LUMA if channels == 3 else (1.0,))
    gray = torch.einsum("nchw,c->n", x, luma) / (size * size)  # mean brightness of each image
    contrast = draw.contrast[:, None, None, None]
    if channels == 3:
        x = torch.bmm(draw.color, x.flatten(2)).view_as(x)  # keeps gray as it is, so it commutes with contrast
    view: Tensor = contrast * x + (1 - contrast) * gray[:, None, None, None]
    return view.clamp(0, 1)


def _color_map(saturation: Tensor, turn: Tensor) -> Tensor:
    """Build saturation and hue as one map of colours: (n,), (n,) to (n, 3, 3)."""
    to_yiq = torch.tensor(_TO_YIQ)
    cos, sin = saturation * turn.cos(), saturation * turn.sin()
    zero, one = torch.zeros_like(cos), torch.ones_like(cos)
    chroma = torch.stack([one, zero, zero, zero, cos, -sin, zero, sin, cos], dim=1).view(-1, 3, 3)
    back: Tensor = torch.linalg.inv(to_yiq)
    return back @ chroma @ to_yiq
