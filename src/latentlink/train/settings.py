"""What a recipe can be told, as dataclasses that are checked when made and saved as JSON beside the result."""

from __future__ import annotations

import dataclasses
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from latentlink import _checks
from latentlink._files import plain, read_json, write_json

LOSSES = (
    "infonce",
    "weince",
    "weince-wide",
    "weince-unit",
    "weince-paper",
    "weince-released",
    "weince-script",
)
OPTIMIZERS = ("adam", "adamw", "lars", "sgd")
PRECISIONS = ("32-true", "bf16-mixed", "16-mixed")


@dataclass(frozen=True)
class Settings:
    """What every recipe can be told.

    Attributes
    ----------
    loss : one of LOSSES
        "infonce" is NT-Xent for two views of images and one-way InfoNCE for text. "weince" is our default
        gate, "weince-wide" the same with a pivot of 0.2 (it opens for nearest negatives of cosine 0.8, not
        only 0.95), "weince-unit" the default with exponent 1, "weince-paper" the paper's formula,
        "weince-released" the authors' loss, and "weince-script" the authors' script, which adds two further
        losses to it (two views only).
    temperature : float
        Divides the similarities.
    batch_size : int
        Items of one step, over all processes.
    chunk_size : int or None
        Encode a batch in chunks of this size, with the same negatives and the same gradient as in one piece,
        for batches that do not fit into memory; encodes everything twice.
    epochs : int
    optimizer : {"adam", "adamw", "lars", "sgd"}
    learning_rate, weight_decay : float
    warmup : float
        Share of all steps over which the rate rises from 0; it then falls to 0 along a cosine.
    constant_rate : bool
        Keep the rate after the warm-up, as the WEINCE paper's script does.
    clip_norm : float or None
        Largest norm of the gradient.
    precision : {"32-true", "bf16-mixed", "16-mixed"}
        Of the encoder; losses always compute in float32.
    seed : int
        Of weights, order, augmentations and dropout.
    log_every : int
        Steps between looks at the tails.
    checkpoint_every : int
        Steps between checkpoints.
    """

    loss: str = "infonce"
    temperature: float = 0.5
    batch_size: int = 256
    chunk_size: int | None = None
    epochs: int = 100
    optimizer: str = "adamw"
    learning_rate: float = 1e-3
    weight_decay: float = 1e-4
    warmup: float = 0.05
    constant_rate: bool = False
    clip_norm: float | None = 1.0
    precision: str = "32-true"
    seed: int = 0
    log_every: int = 20
    checkpoint_every: int = 200

    kind = "settings"

    def __post_init__(self) -> None:
        _checks.one_of("loss", self.loss, LOSSES)
        _checks.one_of("optimizer", self.optimizer, OPTIMIZERS)
        _checks.one_of("precision", self.precision, PRECISIONS)
        for name in ("temperature", "learning_rate"):
            _checks.number(name, getattr(self, name), low=0, open_low=True)
        _checks.flag("constant_rate", self.constant_rate)
        _checks.number("weight_decay", self.weight_decay, low=0)
        _checks.number("warmup", self.warmup, low=0, high=1)
        _checks.integer("batch_size", self.batch_size, low=2)
        _checks.integer("seed", self.seed)
        for name in ("epochs", "log_every", "checkpoint_every"):
            _checks.integer(name, getattr(self, name), low=1)
        if self.chunk_size is not None:
            _checks.integer("chunk_size", self.chunk_size, low=1)
        if self.clip_norm is not None:
            _checks.number("clip_norm", self.clip_norm, low=0, open_low=True)


@dataclass(frozen=True)
class ImageSettings(Settings):
    """What `train_images` can be told, beside what every recipe can.

    Attributes
    ----------
    backbone : str
        "small" (a residual net of 0.2 million weights for trials on a CPU), or any name of timm: "resnet18",
        "resnet50", "vit_small_patch16_224" …
    image_size : int
        Pixels a side. Residual nets get the small-image stem (3 x 3, no pooling) up to 64.
    width : int
        Channels of the first stage of "small".
    norm : {"batch", "group"}
        Of "small". Group normalisation makes a run independent of how a batch is spread over processes or
        chunks.
    projection : int
        Width of the projector's output, which only the loss sees.
    smallest_crop : float
        Least area of a random crop, as a share of the image.
    flip : float
        Probability of mirroring an image.
    color : float
        Strength of the colour jitter: 1 varies brightness, contrast and saturation by 80 % and hue by a fifth
        of a turn; 0 leaves colours alone.
    gray : float
        Probability of removing colour.
    workers : int
        Processes that read and decode images.
    """

    backbone: str = "resnet18"
    image_size: int = 32
    width: int = 24
    norm: str = "batch"
    projection: int = 64
    smallest_crop: float = 0.08
    flip: float = 0.5
    color: float = 1.0
    gray: float = 0.2
    workers: int = 0

    kind = "images"

    def __post_init__(self) -> None:
        super().__post_init__()
        _checks.instance("backbone", self.backbone, str, 'a name: "small", or one of timm\'s')
        _checks.one_of("norm", self.norm, ["batch", "group"])
        for name in ("image_size", "width", "projection"):
            _checks.integer(name, getattr(self, name), low=1)
        _checks.integer("workers", self.workers)
        _checks.number("smallest_crop", self.smallest_crop, low=0, high=1, open_low=True)
        for name in ("flip", "color", "gray"):
            _checks.number(name, getattr(self, name), low=0, high=1)


@dataclass(frozen=True)
class TextSettings(Settings):
    """What `train_text` and `train_pairs` can be told, beside what every recipe can.

    Attributes
    ----------
    model : str
        A sentence-transformers or Hugging Face model (a folder or a name), or "scratch": a small transformer of
        4 layers and width 128 that is trained from random weights on a vocabulary made of the data.
    max_length : int
        Tokens of a text beyond which it is cut.
    """

    temperature: float = 0.05
    batch_size: int = 64
    epochs: int = 1
    learning_rate: float = 3e-5
    weight_decay: float = 0.0
    model: str = "scratch"
    max_length: int = 64

    kind = "text"

    def __post_init__(self) -> None:
        super().__post_init__()
        _checks.instance("model", self.model, str, 'a folder, a name, or "scratch"')
        _checks.integer("max_length", self.max_length, low=4)
        if self.chunk_size is not None:
            raise _checks.InvalidInput(
                f"chunk_size is {self.chunk_size}; text recipes encode a batch in one piece. For "
                "larger batches use latentlink.integrations' cached loss in your own Trainer."
            )
        if self.loss == "weince-script":
            raise _checks.InvalidInput(
                "loss is 'weince-script'; it is defined for two views. Use \"weince-released\"."
            )


Kind = TypeVar("Kind", bound=Settings)

_KINDS: dict[str, type[Settings]] = {cls.kind: cls for cls in (ImageSettings, TextSettings)}


def save_settings(settings: Settings, folder: str | os.PathLike[str]) -> None:
    """Write settings to `folder`/settings.json."""
    record = {"kind": settings.kind, **dataclasses.asdict(settings)}
    write_json(Path(folder) / "settings.json", plain(record))  # numbers may be NumPy's


def resolved(settings: Kind | None, folder: Path, kind: type[Kind], *, resume: bool) -> Kind:
    """Take the settings that were given, or those of the folder of a run that goes on."""
    if settings is not None:
        _checks.instance("settings", settings, kind, kind.__name__)
    if not resume:
        return kind() if settings is None else settings
    stored = load_settings(folder)
    if not isinstance(stored, kind) or (settings is not None and settings != stored):
        raise _checks.InvalidInput(f"settings differ from those of {folder}; leave them out to resume.")
    return stored


def claim(settings: Settings, folder: Path, *, resume: bool) -> None:
    """Make `folder` that of a run, which it must not be already unless the run goes on."""
    if not resume and (folder / "settings.json").exists():
        raise _checks.InvalidInput(f"{folder} holds a training run; resume it or name another folder.")
    save_settings(settings, folder)


def load_settings(folder: str | os.PathLike[str]) -> Settings:
    """Read the settings that a training run saved in its folder.

    Parameters
    ----------
    folder : path

    Returns
    -------
    ImageSettings or TextSettings

    Raises
    ------
    InvalidInput
        The folder holds no training run, or one of another version with settings unknown here.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save_settings(ImageSettings(loss="weince"), folder)
    ...     load_settings(folder).loss
    'weince'
    """
    path = Path(folder) / "settings.json"
    if not path.is_file():
        raise _checks.InvalidInput(f"{folder} holds no settings.json; needs the folder of a training run.")
    stored: dict[str, Any] = read_json(path)
    kind = stored.pop("kind", None)
    if kind not in _KINDS:
        raise _checks.InvalidInput(f"{path} is of kind {kind!r}; needs one of {', '.join(map(repr, _KINDS))}.")
    unknown = stored.keys() - {field.name for field in dataclasses.fields(_KINDS[kind])}
    if unknown:
        raise _checks.InvalidInput(
            f"{path} has unknown settings {sorted(unknown)}; was it written by another version?"
        )
    return _KINDS[kind](**stored)


def history(folder: str | os.PathLike[str]) -> dict[str, dict[int, float]]:
    """Read what a training run logged, its resumed parts joined.

    Parameters
    ----------
    folder : path

    Returns
    -------
    dict of str to dict of int to float
        For each quantity its value at the steps at which it was logged; where a resumed run repeated steps the
        later value stands.
    """
    import csv

    seen: dict[str, dict[int, float]] = {}
    for part in sorted(Path(folder).glob("log/*/metrics.csv"), key=lambda path: int(path.parent.name)):
        with open(part, newline="", encoding="utf-8") as stream:
            for row in csv.DictReader(stream):
                for name, value in row.items():
                    if value and name not in ("step", "epoch"):
                        seen.setdefault(name, {})[int(row["step"])] = float(value)
    return {name: dict(sorted(values.items())) for name, values in seen.items()}
