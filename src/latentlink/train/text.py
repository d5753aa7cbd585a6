"""Train a text encoder: by dropout alone, or from pairs, on sentence-transformers' Trainer."""

from __future__ import annotations

import csv
import json
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from latentlink import _checks
from latentlink._progress import watched
from latentlink.train.monitor import TailMonitor, numbers, refuse_broken
from latentlink.train.objective import make_loss, over_processes
from latentlink.train.optimizer import make_optimizer, make_schedule
from latentlink.train.settings import TextSettings, claim, resolved
from latentlink.train.texts import load_columns
from latentlink.train.transformer import calm, load_text_encoder, scratch_encoder

_st = _checks.need("sentence_transformers", extra="text", job="train_text")
_checks.need("datasets", extra="text", job="train_text")
_transformers = _checks.need("transformers", extra="text", job="train_text")


def train_text(
    data: str | os.PathLike[str] | Sequence[str],
    folder: str | os.PathLike[str],
    settings: TextSettings | None = None,
    *,
    column: str = "text",
    resume: bool = False,
    quiet: bool = False,
) -> Any:
    """Train an encoder of texts without labels: each text is its own positive under another dropout (SimCSE).

    Parameters
    ----------
    data : path or sequence of str
        Texts, or a file of them: .txt (one a line), .csv, .tsv, .jsonl or .parquet. Repeated texts are used
        once: a copy would be its own negative.
    folder : path
        Gets settings.json, model/ (a sentence-transformers model), log/ and checkpoints/.
    settings : TextSettings, optional
        Left out with `resume`: those of the folder are used.
    column : str
        Column of a table.
    resume : bool
        Go on from the last whole checkpoint, to the same result as a run that was never stopped.
    quiet : bool
        No progress bar; there is none either where stderr is no terminal.

    Returns
    -------
    sentence_transformers.SentenceTransformer

    Raises
    ------
    InvalidInput
        The folder holds another run and `resume` is off, or holds none and it is on; or too few texts, or a
        batch that cannot be shared out evenly.
    Collapsed
        The embeddings collapsed, or the loss is not a number.

    Notes
    -----
    Started by torchrun or accelerate on several processes, or alone on several GPUs, a batch is shared out among
    them, its negatives stay those of the whole batch, and the first process alone writes.

    References
    ----------
    Gao, Yao, Chen 2021, "SimCSE: Simple Contrastive Learning of Sentence Embeddings".
    """
    if isinstance(data, (str, os.PathLike)):
        texts = load_columns(data, [column])[0]
    else:
        texts = _checks.sequence("data", data)
    texts = list(dict.fromkeys(texts))
    return _trained({"a": texts, "b": texts}, folder, settings, resume, quiet)


def train_pairs(
    data: str | os.PathLike[str] | Sequence[tuple[str, str]],
    folder: str | os.PathLike[str],
    settings: TextSettings | None = None,
    *,
    columns: tuple[str, str] = ("a", "b"),
    group: str = "group",
    resume: bool = False,
    quiet: bool = False,
) -> Any:
    """Train an encoder of texts from pairs that belong together; other pairs' texts are the negatives.

    Parameters
    ----------
    data : path or sequence of (str, str)
        Pairs, or a table of them: .csv, .tsv, .jsonl or .parquet.
    folder, settings, resume, quiet
        See `train_text`.
    columns : tuple of str
        Columns of both texts.
    group : str
        Column that names what a pair is about, if the table has it (the image of a caption, say): pairs of one
        group are not negatives of each other. Without it, pairs that share a text are one group.

    Returns
    -------
    sentence_transformers.SentenceTransformer
    """
    groups: list[Any] = []
    if isinstance(data, (str, os.PathLike)):
        first, second, groups = load_columns(data, columns, optional=group)
    else:
        pairs = _checks.sequence("data", data)
        first, second = ([pair[side] for pair in pairs] for side in (0, 1))
    numbered = (
        np.unique(np.asarray(groups).astype(str), return_inverse=True)[1] if groups else _shared(first, second)
    )
    return _trained({"a": first, "b": second, "label": numbered.tolist()}, folder, settings, resume, quiet)


class PairLoss(nn.Module):
    """One of our losses in the form that sentence-transformers' Trainer calls, watched by a monitor.

    Parameters
    ----------
    model : SentenceTransformer
    loss : module
        Maps (n, d), (n, d) to a scalar.
    monitor : TailMonitor
    """

    def __init__(self, model: nn.Module, loss: nn.Module, monitor: TailMonitor) -> None:
        super().__init__()
        self.model = model
        self.loss = loss
        self.monitor = monitor
        self.step = 0
        self.row: dict[str, float] = {}

    def forward(self, sentence_features: Iterable[dict[str, Tensor]], labels: Tensor | None) -> Tensor:
        """Encode both columns and compute the loss."""
        z0, z1 = (self.model(features)["sentence_embedding"] for features in sentence_features)  # (n, d) each
        refuse_broken(self.step, z0, z1)
        value = over_processes(self.loss, z0, z1, labels)
        seen = self.monitor.look(self.step, z0.detach(), z1.detach(), float(value.detach()))
        self.row = {"loss": float(value.detach()), **(numbers(seen) if seen is not None else {})}
        return value


class _Trainer(_st.SentenceTransformerTrainer):  # type: ignore[misc, name-defined]
    """The library's trainer without its model card, whose examples cost time and draw a bar of their own."""

    def add_model_card_callback(self, *_: Any, **__: Any) -> None:
        """Add none."""


class _Bar(_transformers.ProgressCallback):  # type: ignore[misc, name-defined]
    """The library's bar on stderr, without what it writes to stdout."""

    def on_log(self, *_: Any, **__: Any) -> None:
        """Write nothing."""


class _Steps(_transformers.TrainerCallback):  # type: ignore[misc, name-defined]
    """Keep the loss's step in time with the Trainer's."""

    def __init__(self, loss: PairLoss) -> None:
        self._loss = loss

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self._loss.step = state.global_step

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self._loss.step = state.global_step


class _Log(_transformers.TrainerCallback):  # type: ignore[misc, name-defined]
    """Write what the loss saw to a CSV and to TensorBoard, before its step moves on."""

    def __init__(self, loss: PairLoss, folder: Path) -> None:
        from torch.utils.tensorboard import SummaryWriter

        part = len(list(folder.glob("log/*")))
        self._path = folder / "log" / str(part) / "metrics.csv"
        self._path.parent.mkdir(parents=True)
        self._board = SummaryWriter(str(folder / "tensorboard"))
        self._loss = loss
        self._names: list[str] = []

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        row = self._loss.row
        for name, value in row.items():
            self._board.add_scalar(name, value, self._loss.step)
        first = not self._names
        self._names = self._names or ["step", *row]
        with open(self._path, "a", newline="", encoding="utf-8") as stream:
            writer = csv.DictWriter(stream, self._names, restval="", extrasaction="ignore")
            if first:
                writer.writeheader()
            writer.writerow({"step": self._loss.step, **row})

    def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self._board.close()


def _trained(
    columns: dict[str, list[Any]],
    folder: str | os.PathLike[str],
    settings: TextSettings | None,
    resume: bool,
    quiet: bool,
) -> Any:
    from datasets import Dataset

    target = _checks.path("folder", folder)
    settings = resolved(settings, target, TextSettings, resume=resume)
    n = len(columns["a"])
    if n < settings.batch_size:
        raise _checks.InvalidInput(f"batch_size is {settings.batch_size}, but there are {n} rows; lower it.")
    shown = watched(show=not quiet)
    with calm(bars=shown):
        arguments = _arguments(settings, target, shown)
        first = arguments.process_index == 0
        torch.manual_seed(settings.seed)
        model = _model(settings, columns["a"] + columns["b"])
        if first:
            claim(settings, target, resume=resume)
        monitor = TailMonitor(make_loss(settings, two_views=False), settings.log_every)
        loss = PairLoss(model, monitor.loss, monitor)  # type: ignore[arg-type]
        optimizer = make_optimizer(model, settings)
        total = settings.epochs * (n // settings.batch_size)
        trainer = _Trainer(
            model=model,
            args=arguments,
            train_dataset=Dataset.from_dict(columns),
            loss=loss,
            optimizers=(optimizer, make_schedule(optimizer, total, settings)),
            callbacks=[*([_Log(loss, target)] if first else []), _Steps(loss)],
        )
        # Both print totals to stdout, where results are read; the log has them.
        trainer.remove_callback(_transformers.PrinterCallback)
        trainer.remove_callback(_transformers.ProgressCallback)
        if shown:
            trainer.add_callback(_Bar)
        trainer.train(resume_from_checkpoint=_last_checkpoint(target) if resume else None)
        if first:
            model.save(str(target / "model"), create_model_card=False)
    return model.eval()


def _arguments(settings: TextSettings, folder: Path, shown: bool) -> Any:
    arguments = _st.SentenceTransformerTrainingArguments(
        output_dir=str(folder / "checkpoints"),
        num_train_epochs=settings.epochs,
        dataloader_drop_last=True,
        max_grad_norm=settings.clip_norm or 0.0,
        bf16=settings.precision == "bf16-mixed",
        fp16=settings.precision == "16-mixed",
        seed=settings.seed,
        save_strategy="steps",
        save_steps=settings.checkpoint_every,
        save_total_limit=2,
        logging_strategy="no",
        report_to="none",
        disable_tqdm=not shown,
        use_cpu=not torch.accelerator.is_available(),  # several processes without one are told so, or train apart
    )
    # How many share a batch is known only now: processes, or the GPUs that one process uses by itself.
    shares = arguments.world_size * max(1, arguments.n_gpu)
    if settings.batch_size % shares:
        raise _checks.InvalidInput(
            f"batch_size is {settings.batch_size}; needs a multiple of the {shares} processes or GPUs."
        )
    arguments.per_device_train_batch_size = settings.batch_size // shares
    return arguments


def _last_checkpoint(folder: Path) -> str | None:
    """Find the last checkpoint that was written to its end: trainer_state.json is its last file."""
    for path in sorted(folder.glob("checkpoints/checkpoint-*"), key=lambda p: -int(p.name.split("-")[1])):
        try:
            json.loads((path / "trainer_state.json").read_text(encoding="utf-8"))
        except (OSError, json.JSONDecodeError):
            continue
        return str(path)
    return None


def _model(settings: TextSettings, texts: list[str]) -> Any:
    if settings.model != "scratch":
        model = load_text_encoder(settings.model)
    else:
        model = scratch_encoder(texts, settings.max_length)
    model.max_seq_length = settings.max_length
    return model


def _shared(first: list[str], second: list[str]) -> np.ndarray[Any, Any]:
    """Give pairs that are joined by equal texts the same number: (n,)."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    texts = np.unique(np.asarray(first + second), return_inverse=True)[1].reshape(-1)
    n = len(first)
    size = int(texts.max()) + 1
    joined = coo_array((np.ones(n), (texts[:n], texts[n:])), shape=(size, size))
    return np.asarray(connected_components(joined, directed=False)[1][texts[:n]])
