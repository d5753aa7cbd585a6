"""Images from arrays and folders, and batches of them that can be left and taken up at any step."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from latentlink import _checks
from latentlink.io import read_npz

_SUFFIXES = {".bmp", ".jpeg", ".jpg", ".png", ".webp"}


class Images:
    """Labelled images that are decoded when asked for.

    Attributes
    ----------
    labels : int array (n,)
        Number of the class in `classes`; all −1 where nothing is known.
    classes : list of str
    ids : array (n,)
        File names, or row numbers.
    channels : int
    """

    def __init__(
        self, source: np.ndarray[Any, Any] | list[Path], labels: Any, classes: list[str], ids: Any, size: int
    ) -> None:
        self._source = source
        self._size = size
        self.labels = np.asarray(labels, dtype=np.int64)
        self.classes = classes
        self.ids = np.asarray(ids)
        self.channels = 3 if isinstance(source, list) else int(source.shape[1])

    def __len__(self) -> int:
        return len(self._source)

    def __getitems__(self, rows: list[int]) -> Tensor:
        """Return uint8 images (n, c, size, size)."""
        if isinstance(self._source, list):
            return torch.stack([_decoded(self._source[row], self._size) for row in rows])
        return torch.from_numpy(np.ascontiguousarray(self._source[rows]))

    def batches(self, size: int) -> Iterator[Tensor]:
        """Yield all images in their order."""
        for start in range(0, len(self), size):
            yield self.__getitems__(list(range(start, min(start + size, len(self)))))


class Batch(NamedTuple):
    """The rows of one step that this process works on."""

    images: Tensor  # uint8 (n / world, c, h, w)
    step: int
    start: int  # place of the first of them in the whole batch


class Batches:
    """Shuffled batches of one epoch after another; where they stand is saved in a checkpoint.

    The order is a function of seed and epoch, so a resumed run, and one spread over other processes, sees the
    same batches. The last rows that fill no whole batch are left out of that epoch.
    """

    def __init__(
        self, images: Images, batch_size: int, seed: int, *, workers: int = 0, rank: int = 0, world: int = 1
    ) -> None:
        if len(images) < batch_size:
            raise _checks.InvalidInput(
                f"batch_size is {batch_size}, but there are {len(images)} images; lower it."
            )
        if batch_size % world:
            raise _checks.InvalidInput(
                f"batch_size is {batch_size}; needs a multiple of the {world} processes."
            )
        self._images, self._size, self._seed, self._workers = images, batch_size, seed, workers
        self._rank, self._world = rank, world
        self._step = 0

    def __len__(self) -> int:
        return len(self._images) // self._size

    def __iter__(self) -> Iterator[Batch]:
        from torch.utils.data import DataLoader

        epoch, first = divmod(self._step, len(self))
        order = np.random.default_rng([self._seed, epoch]).permutation(len(self._images))
        share = self._size // self._world
        starts = [place * self._size + self._rank * share for place in range(first, len(self))]
        rows = [order[start : start + share].tolist() for start in starts]
        source: Any = self._images  # it gives whole batches, which torch's types do not know
        for images in DataLoader(
            source, batch_sampler=rows, num_workers=self._workers, collate_fn=_as_they_are
        ):
            batch = Batch(images, self._step, self._rank * share)
            self._step += 1  # before the yield: a checkpoint is written while this batch is the latest one done
            yield batch

    def state_dict(self) -> dict[str, int]:
        """Say where the batches stand."""
        return {"step": self._step}

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Go to where they stood."""
        self._step = state["step"]


def load_images(source: str | os.PathLike[str] | np.ndarray[Any, Any], size: int) -> Images:
    """Open images by name or path, or wrap an array of them.

    Parameters
    ----------
    source : str, path or array
        "digits" (scikit-learn's, 1,797 of 8 x 8, resized to `size`); an .npz file with `images` (n, h, w) or
        (n, h, w, 3) of uint8 and perhaps `labels` (n,); or a folder of image files, where a first level of
        folders, if there is one, names the classes. An array is taken as `images`.
    size : int
        Pixels a side that files are cut and resized to; arrays must have it already.

    Returns
    -------
    Images
    """
    if isinstance(source, np.ndarray):
        return array_images(source, size=size)
    if str(source) == "digits":
        return _digits(size)
    path = _checks.path("data", source)
    if path.is_dir():
        return _folder(path, size)
    if path.suffix != ".npz":
        raise _checks.InvalidInput(
            f"data is {str(source)!r}; needs 'digits', an .npz file or a folder of images."
        )
    stored = read_npz(path)
    if "images" not in stored:
        raise _checks.InvalidInput(f"{path} holds {sorted(stored)}; needs an array named images.")
    return array_images(stored["images"], stored.get("labels"), size)


def array_images(images: Any, labels: Any = None, size: int | None = None) -> Images:
    """Wrap uint8 images (n, h, w) or (n, h, w, c) and labels (n,) of whole numbers."""
    x = np.asarray(images)
    x = x[..., None] if x.ndim == 3 else x
    if x.dtype != np.uint8 or x.ndim != 4 or x.shape[3] not in (1, 3):
        raise _checks.InvalidInput(
            f"images has type {x.dtype} and shape {np.shape(images)}; needs uint8 (n, h, w) or (n, h, w, 3)."
        )
    if size is not None and x.shape[1:3] != (size, size):
        raise _checks.InvalidInput(
            f"images are {x.shape[1]} x {x.shape[2]}, image_size is {size}; needs the same."
        )
    y = np.full(len(x), -1) if labels is None else np.asarray(labels)
    if y.shape != (len(x),) or y.dtype.kind not in "iu":
        raise _checks.InvalidInput(
            f"labels has shape {y.shape} and type {y.dtype}; needs ({len(x)},) of whole numbers."
        )
    classes = [str(value) for value in range(int(y.max()) + 1)]
    return Images(np.moveaxis(x, 3, 1), y, classes, np.arange(len(x)), x.shape[1])


def _digits(size: int) -> Images:
    from sklearn.datasets import load_digits

    x, y = load_digits(return_X_y=True)
    small = torch.from_numpy(x.reshape(-1, 1, 8, 8) * (255 / 16)).float()
    large = torch.nn.functional.interpolate(small, size=(size, size), mode="bilinear", align_corners=False)
    return array_images(large.round().to(torch.uint8).numpy()[:, 0], y, size)


def _folder(path: Path, size: int) -> Images:
    files = sorted(file for file in path.rglob("*") if file.suffix.lower() in _SUFFIXES)
    if not files:
        raise _checks.InvalidInput(f"{path} holds no image files ({', '.join(sorted(_SUFFIXES))}).")
    inside = [file.relative_to(path) for file in files]
    classes = sorted({file.parts[0] for file in inside if len(file.parts) > 1})
    number = {name: i for i, name in enumerate(classes)}
    labels = [number[file.parts[0]] if len(file.parts) > 1 else -1 for file in inside]
    return Images(files, labels, classes, [file.as_posix() for file in inside], size)


def _decoded(path: Path, size: int) -> Tensor:
    from PIL import Image, ImageOps

    with Image.open(path) as image:
        square = ImageOps.fit(image.convert("RGB"), (size, size), Image.Resampling.BICUBIC)
        return torch.from_numpy(np.array(square)).permute(2, 0, 1).contiguous()  # (3, size, size)


def _as_they_are(images: Any) -> Any:
    return images
