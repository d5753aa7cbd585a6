"""`latentlink train images | text | pairs`: recipes that train an encoder, and take a stopped run up again."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from latentlink import _checks
from latentlink.cli._frame import Json, Quiet, Report, emit

train = typer.Typer(help="Train an encoder of images or texts.", no_args_is_help=True)

_Data = Annotated[str, typer.Option("--data", help="A file or a folder; for images also 'digits'.")]
_Folder = Annotated[
    Path, typer.Option("--out", help="Folder of the run: settings, weights, logs, checkpoints.")
]
_Resume = Annotated[bool, typer.Option("--resume", help="Go on from the folder's last checkpoint.")]
_Loss = Annotated[str | None, typer.Option("--loss", help="infonce, weince, weince-paper, weince-released …")]
_Temperature = Annotated[float | None, typer.Option("--temperature", help="Divides the similarities.")]
_Epochs = Annotated[int | None, typer.Option("--epochs")]
_BatchSize = Annotated[int | None, typer.Option("--batch-size")]
_Seed = Annotated[int | None, typer.Option("--seed", help="Of weights, order, views and dropout.")]
_Set = Annotated[
    list[str] | None, typer.Option("--set", help="Any other setting as name=value; may be repeated.")
]


@train.command()
def images(
    data: _Data,
    out: _Folder,
    loss: _Loss = None,
    temperature: _Temperature = None,
    backbone: Annotated[str | None, typer.Option("--backbone", help="'small', or a name of timm.")] = None,
    image_size: Annotated[int | None, typer.Option("--image-size", help="Pixels a side.")] = None,
    epochs: _Epochs = None,
    batch_size: _BatchSize = None,
    seed: _Seed = None,
    set_: _Set = None,
    devices: Annotated[
        str, typer.Option("--devices", help="How many of a machine's, which ('0,1'), or 'auto'.")
    ] = "auto",
    nodes: Annotated[int, typer.Option("--nodes", help="Machines.")] = 1,
    accelerator: Annotated[str, typer.Option("--accelerator", help="Lightning's: cpu, gpu …")] = "auto",
    strategy: Annotated[str, typer.Option("--strategy", help="Lightning's: ddp …")] = "auto",
    resume: _Resume = False,
    json: Json = False,
    quiet: Quiet = False,
    report: Report = None,
) -> None:
    """Train on images without labels, by two random views of each; writes their features as well."""
    from latentlink.train import ImageSettings, history, train_images
    from latentlink.train.batches import load_images
    from latentlink.train.settings import load_settings

    given = _given(
        ImageSettings,
        set_,
        loss=loss,
        temperature=temperature,
        backbone=backbone,
        image_size=image_size,
        epochs=epochs,
        batch_size=batch_size,
        seed=seed,
    )
    settings = _settings(ImageSettings, given, resume)
    source = load_images(data, _image_size(settings or load_settings(out)))
    encoder = train_images(
        source,
        out,
        settings,
        resume=resume,
        devices=devices,
        num_nodes=nodes,
        accelerator=accelerator,
        strategy=strategy,
        quiet=quiet or json,
    )
    if not _speaks():
        return
    features = _write_features(out / "features.npz", encoder.encode(source), source)
    _emit(out, history(out), {"features": str(features)}, json, report)


@train.command()
def text(
    data: _Data,
    out: _Folder,
    model: Annotated[str | None, typer.Option("--model", help="A folder, a name, or 'scratch'.")] = None,
    column: Annotated[str, typer.Option("--column", help="Of a table.")] = "text",
    loss: _Loss = None,
    temperature: _Temperature = None,
    epochs: _Epochs = None,
    batch_size: _BatchSize = None,
    seed: _Seed = None,
    set_: _Set = None,
    resume: _Resume = False,
    json: Json = False,
    quiet: Quiet = False,
    report: Report = None,
) -> None:
    """Train on texts without labels, each its own positive under another dropout."""
    from latentlink.train import TextSettings, history, train_text

    given = _given(
        TextSettings,
        set_,
        loss=loss,
        temperature=temperature,
        model=model,
        epochs=epochs,
        batch_size=batch_size,
        seed=seed,
    )
    train_text(
        data, out, _settings(TextSettings, given, resume), column=column, resume=resume, quiet=quiet or json
    )
    if _speaks():
        _emit(out, history(out), {"model": str(out / "model")}, json, report)


@train.command()
def pairs(
    data: _Data,
    out: _Folder,
    model: Annotated[str | None, typer.Option("--model", help="A folder, a name, or 'scratch'.")] = None,
    columns: Annotated[str, typer.Option("--columns", help="Both texts' columns, with a comma.")] = "a,b",
    group: Annotated[str, typer.Option("--group", help="Column of what a pair is about.")] = "group",
    loss: _Loss = None,
    temperature: _Temperature = None,
    epochs: _Epochs = None,
    batch_size: _BatchSize = None,
    seed: _Seed = None,
    set_: _Set = None,
    resume: _Resume = False,
    json: Json = False,
    quiet: Quiet = False,
    report: Report = None,
) -> None:
    """Train on pairs of texts that belong together; other pairs' texts are the negatives."""
    from latentlink.train import TextSettings, history, train_pairs

    names = tuple(columns.split(","))
    if len(names) != 2:
        raise _checks.InvalidInput(f"columns is {columns!r}; needs two names with a comma between them.")
    given = _given(
        TextSettings,
        set_,
        loss=loss,
        temperature=temperature,
        model=model,
        epochs=epochs,
        batch_size=batch_size,
        seed=seed,
    )
    train_pairs(
        data,
        out,
        _settings(TextSettings, given, resume),
        columns=(names[0], names[1]),
        group=group,
        resume=resume,
        quiet=quiet or json,
    )
    if _speaks():
        _emit(out, history(out), {"model": str(out / "model")}, json, report)


def _speaks() -> bool:
    """Tell whether this process is the first of those that trained, which alone writes and prints."""
    from torch import distributed

    from latentlink.losses.gather import n_processes

    return n_processes() == 1 or distributed.get_rank() == 0


def _image_size(settings: Any) -> int:
    if settings.kind != "images":
        raise _checks.InvalidInput(f"the folder holds a run of kind {settings.kind!r}; needs 'images'.")
    return int(settings.image_size)


def _given(kind: Any, pairs_: list[str] | None, **options: Any) -> dict[str, Any]:
    """Gather the settings that were given, those of --set read by the type of their default."""
    import dataclasses

    defaults = {field.name: field.default for field in dataclasses.fields(kind)}
    given = {name: value for name, value in options.items() if value is not None}
    for pair in pairs_ or []:
        name, equals, value = pair.partition("=")
        if not equals or name not in defaults:
            raise _checks.InvalidInput(f"--set {pair!r}; needs name=value, name one of {', '.join(defaults)}.")
        given[name] = _read(name, value, defaults[name])
    return given


def _read(name: str, value: str, default: Any) -> Any:
    if isinstance(default, bool):
        return _checks.one_of(name, value, ["true", "false"]) == "true"
    if value == "none" or isinstance(default, str):
        return None if value == "none" else value
    try:
        return float(value) if isinstance(default, float) else int(value)
    except ValueError as error:
        kind = "a number" if isinstance(default, float) else "a whole number"
        raise _checks.InvalidInput(f"{name} is {value!r}; needs {kind}.") from error


def _settings(kind: Any, given: dict[str, Any], resume: bool) -> Any:
    if resume and given:
        raise _checks.InvalidInput(
            f"settings {', '.join(given)} are given with --resume; a run goes on with its own. Leave them out."
        )
    return None if resume else kind(**given)


def _write_features(path: Path, vectors: Any, source: Any) -> Path:
    import numpy as np

    from latentlink._files import replacing

    with replacing(path) as temporary, open(temporary, "wb") as stream:
        np.savez(stream, vectors=vectors, ids=source.ids, labels=source.labels)
    return path


def _emit(
    folder: Path,
    seen: dict[str, dict[int, float]],
    written: dict[str, str],
    as_json: bool,
    report: Path | None,
) -> None:
    last = {name: list(values.values())[-1] for name, values in seen.items() if values}
    record = {"folder": str(folder), **written, "steps": len(seen["loss"]), "last": last}
    shown = [
        f"{name} {last[name]:.4g}"
        for name in ("loss", "alignment", "uniformity", "gap", "blend")
        if name in last
    ]
    lines = [f"trained {record['steps']} steps: {', '.join(shown)}", *written.values()]
    if report is not None:
        _write_report(folder, lines[0], seen, last, report)
    emit("\n".join(lines), record, as_json=as_json)


def _write_report(
    folder: Path, text: str, seen: dict[str, dict[int, float]], last: dict[str, float], path: Path
) -> None:
    from latentlink._files import read_json
    from latentlink.report.page import Table, page
    from latentlink.report.training_plots import draw_training

    settings = read_json(folder / "settings.json")
    page(
        "A training run",
        [
            ("Course", text, [draw_training(seen), Table(["logged", "last value"], list(last.items()))]),
            ("Settings", "", [Table(["setting", "value"], list(settings.items()))]),
        ],
        path,
    )
