"""Train an image encoder without labels: two random views of each image, one loss, on Lightning."""

from __future__ import annotations

import logging
import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from latentlink import _checks
from latentlink._progress import watched
from latentlink.train.augment import apply_views, draw_views
from latentlink.train.batches import Batch, Batches, Images, load_images
from latentlink.train.callbacks import TailLog
from latentlink.train.chunked import chunked_backward
from latentlink.train.encoder import ImageEncoder
from latentlink.train.monitor import refuse_broken
from latentlink.train.objective import make_loss, over_processes
from latentlink.train.optimizer import make_optimizer, make_schedule
from latentlink.train.settings import ImageSettings, claim, resolved

_lightning = _checks.need("lightning.pytorch", extra="train", job="train_images")

_CHECKPOINT = "last.ckpt"


def train_images(
    data: str | os.PathLike[str] | np.ndarray[Any, Any] | Images,
    folder: str | os.PathLike[str],
    settings: ImageSettings | None = None,
    *,
    resume: bool = False,
    devices: int | str = "auto",
    num_nodes: int = 1,
    accelerator: str = "auto",
    strategy: Any = "auto",
    quiet: bool = False,
) -> ImageEncoder:
    """Train an encoder of images by contrasting two random views of each (SimCLR).

    Parameters
    ----------
    data : str, path, array or Images
        "digits", an .npz file with `images`, a folder of image files, or uint8 images (n, h, w) or (n, h, w, 3);
        see `latentlink.train.batches`.
    folder : path
        Gets settings.json, encoder.safetensors, the last checkpoint, TensorBoard's events, and
        log/0/metrics.csv (log/1 and so on for the parts of a resumed run; `latentlink.train.history` joins
        them).
    settings : ImageSettings, optional
        Left out with `resume`: those of the folder are used.
    resume : bool
        Go on from the folder's last checkpoint, to the same result as a run that was never stopped.
    devices, num_nodes, accelerator, strategy
        Of Lightning's Trainer. On several processes every one needs the same data; negatives are those of the
        whole batch, and the first process alone writes.
    quiet : bool
        No progress bar; there is none either where stderr is no terminal.

    Returns
    -------
    ImageEncoder

    Raises
    ------
    InvalidInput
        The folder holds another run and `resume` is off, or holds none and it is on.
    Collapsed
        The embeddings collapsed, or the loss is not a number; the last checkpoint stands.

    Notes
    -----
    A process killed at any moment loses at most `checkpoint_every` steps.

    References: Chen et al. 2020, "A Simple Framework for Contrastive Learning of Visual Representations".
    """
    target = _checks.path("folder", folder)
    checkpoint = target / _CHECKPOINT
    settings = resolved(settings, target, ImageSettings, resume=resume)
    images = data if isinstance(data, Images) else load_images(data, settings.image_size)
    shown = watched(show=not quiet)
    with _calm():
        trainer = _trainer(
            {"accelerator": accelerator, "devices": devices, "num_nodes": num_nodes, "strategy": strategy},
            precision=settings.precision,
            max_epochs=settings.epochs,
            default_root_dir=target,
            logger=_loggers(target),
            callbacks=_callbacks(target, settings, bar=shown),
            log_every_n_steps=1,
            enable_progress_bar=shown,
            enable_model_summary=False,
            use_distributed_sampler=False,
        )
        _all_take_part(trainer.world_size)
        torch.manual_seed(settings.seed)
        module = TwoViews(settings, images)
        if trainer.is_global_zero:
            claim(settings, target, resume=resume)
        trainer.fit(
            module, ckpt_path=checkpoint if resume and checkpoint.exists() else None, weights_only=False
        )
    if trainer.is_global_zero:
        module.encoder.save(target)
    return module.encoder.eval()


class TwoViews(_lightning.LightningModule):  # type: ignore[misc, name-defined]
    """One step: two views of each image, their embeddings, one loss over all processes' negatives."""

    def __init__(self, settings: ImageSettings, images: Images) -> None:
        super().__init__()
        self.automatic_optimization = False  # a batch in chunks sends its gradient back in pieces
        self.settings = settings
        self.images = images
        self.encoder = ImageEncoder(settings, images.channels).to(memory_format=torch.channels_last)
        self.loss = make_loss(settings, two_views=True)

    def train_dataloader(self) -> Batches:
        """Make this process's share of the batches."""
        s, trainer = self.settings, self.trainer
        return Batches(
            self.images,
            s.batch_size,
            s.seed,
            workers=s.workers,
            rank=trainer.global_rank,
            world=trainer.world_size,
        )

    def transfer_batch_to_device(self, batch: Batch, device: torch.device, dataloader_idx: int) -> Batch:
        """Move the images; the rest are numbers."""
        return batch._replace(images=batch.images.to(device, non_blocking=True))

    def training_step(self, batch: Batch, batch_idx: int) -> dict[str, Any]:
        """Make one step and return the loss and both views' embeddings."""
        optimizer, schedule = self.optimizers(), self.lr_schedulers()
        optimizer.zero_grad()
        views = self._views(batch)
        value, embeddings = self._in_chunks(views) if self.settings.chunk_size else self._in_one_piece(views)
        if self.settings.clip_norm is not None:
            self.clip_gradients(optimizer, self.settings.clip_norm, gradient_clip_algorithm="norm")
        optimizer.step()
        schedule.step()
        self.log("loss", value, prog_bar=True)
        return {"loss": value, "z0": embeddings[0], "z1": embeddings[1]}

    def configure_optimizers(self) -> dict[str, Any]:
        """Make the optimiser and its rate: a linear warm-up, then a cosine to 0 (or constant)."""
        s = self.settings
        total = s.epochs * (len(self.images) // s.batch_size)
        optimizer = make_optimizer(self.encoder, s)
        schedule = make_schedule(optimizer, total, s)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": schedule, "interval": "step"}}

    def _in_one_piece(self, views: list[Tensor]) -> tuple[Tensor, list[Tensor]]:
        embeddings = [self.encoder(view) for view in views]
        value = self._scored(*embeddings)
        self.manual_backward(value)
        return value.detach(), [z.detach() for z in embeddings]

    def _scored(self, z0: Tensor, z1: Tensor) -> Tensor:
        refuse_broken(self.trainer.global_step, z0, z1)
        return over_processes(self.loss, z0, z1)

    def _in_chunks(self, views: list[Tensor]) -> tuple[Tensor, list[Tensor]]:
        return chunked_backward(
            self.encoder,
            views,
            self._scored,
            chunk_size=self.settings.chunk_size or len(views[0]),
            model=self.encoder,
            backward=self.manual_backward,
            # Only strategies of several processes exchange gradients and know how not to.
            unsynced=getattr(self.trainer.strategy, "block_backward_sync", nullcontext),
        )

    def _views(self, batch: Batch) -> list[Tensor]:
        """Draw for the whole batch of all processes, so that the views do not depend on their number."""
        s = self.settings
        generator = torch.Generator().manual_seed(s.seed * 1_000_003 + batch.step)
        mine = slice(batch.start, batch.start + len(batch.images))
        views = []
        for _ in range(2):
            draw = draw_views(s.batch_size, s, generator).rows(mine, batch.images.device)
            view = apply_views(batch.images, draw, s.image_size)
            views.append(view.contiguous(memory_format=torch.channels_last))
        return views


def _trainer(machines: dict[str, Any], **options: Any) -> Any:
    """Make Lightning's Trainer; what it says against the machines asked for is the caller's mistake."""
    from lightning.fabric.utilities.exceptions import MisconfigurationException

    try:
        return _lightning.Trainer(**machines, **options)
    except (MisconfigurationException, TypeError, ValueError) as error:
        asked = ", ".join(f"{name}={value!r}" for name, value in machines.items())
        raise _checks.InvalidInput(f"Lightning refuses {asked}: {error}") from error


def _all_take_part(world: int) -> None:
    """Refuse to train alone in each of several processes that were started together."""
    started = int(os.environ.get("WORLD_SIZE", "1"))
    if started > world:
        raise _checks.InvalidInput(
            f"{started} processes were started but the trainer counts {world}; pass devices, the number of "
            "processes of a machine, and num_nodes."
        )


def _loggers(folder: Path) -> list[Any]:
    from lightning.pytorch.loggers import CSVLogger, TensorBoardLogger

    part = len(
        list(folder.glob("log/*"))
    )  # a resumed run writes a further part: CSVLogger begins its file anew
    return [CSVLogger(folder, "log", str(part)), TensorBoardLogger(folder, "tensorboard", "")]


def _callbacks(folder: Path, settings: ImageSettings, *, bar: bool) -> list[Any]:
    from lightning.pytorch.callbacks import ModelCheckpoint, RichProgressBar

    # Lightning's own bar goes to stdout, where results are read.
    bars = [RichProgressBar(console_kwargs={"stderr": True})] if bar else []
    return [
        *bars,
        TailLog(settings.log_every),
        ModelCheckpoint(
            folder,
            filename=Path(_CHECKPOINT).stem,
            every_n_train_steps=settings.checkpoint_every,
            save_on_train_epoch_end=False,
            enable_version_counter=False,
        ),
    ]


@contextmanager
def _calm() -> Iterator[None]:
    """Keep Lightning's hints, which speak of its own defaults, from the user."""
    logger = logging.getLogger("lightning.pytorch")
    level = logger.level
    logger.setLevel(logging.ERROR)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", module=r"lightning\..*")
        warnings.filterwarnings("ignore", message=".*weights_only.*")
        warnings.filterwarnings("ignore", message=".*lr_scheduler.step.*")
        try:
            yield
        finally:
            logger.setLevel(level)
