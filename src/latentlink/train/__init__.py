"""Recipes that train encoders: images on Lightning, text on sentence-transformers' Trainer.

A recipe is one readable file; its settings are a dataclass that is saved beside the result.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from latentlink._checks import look_for
from latentlink._lazy import lazy

look_for("torch", extra="train,text", job="latentlink.train")

if TYPE_CHECKING:
    from latentlink.train.encoder import ImageEncoder, load_image_encoder
    from latentlink.train.images import train_images
    from latentlink.train.monitor import Collapsed, TailMonitor
    from latentlink.train.settings import ImageSettings, TextSettings, history, load_settings
    from latentlink.train.text import train_pairs, train_text
    from latentlink.train.transformer import load_text_encoder

_HOMES = {
    "Collapsed": "monitor",
    "ImageEncoder": "encoder",
    "ImageSettings": "settings",
    "TailMonitor": "monitor",
    "TextSettings": "settings",
    "history": "settings",
    "load_image_encoder": "encoder",
    "load_settings": "settings",
    "load_text_encoder": "transformer",
    "train_images": "images",
    "train_pairs": "text",
    "train_text": "text",
}

__all__ = [
    "Collapsed",
    "ImageEncoder",
    "ImageSettings",
    "TailMonitor",
    "TextSettings",
    "history",
    "load_image_encoder",
    "load_settings",
    "load_text_encoder",
    "train_images",
    "train_pairs",
    "train_text",
]

__getattr__, __dir__ = lazy(__name__, _HOMES)
