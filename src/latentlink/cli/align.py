"""`latentlink align`: fit one shared space for several encoders, from files of paired vectors."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated

import typer

from latentlink._checks import InvalidInput
from latentlink.cli._frame import Json, Quiet, Seed, emit
from latentlink.cli._jobs import Address, Engine, Workers


def align(
    space: Annotated[Path, typer.Argument(help="Folder to write the space to.")],
    files: Annotated[
        list[str],
        typer.Argument(
            help="NAME=FILE, at least two; joined on ids, else on rows. A pattern such as old='part-*.arrow' "
            "stands for several files in the order of their names."
        ),
    ],
    anchors: Annotated[
        str, typer.Option("--anchors", help="gcca, param, kmeans, farthest, random or auto.")
    ] = "gcca",
    n_anchors: Annotated[int, typer.Option("--n-anchors", help="Dimension of the shared space.")] = 256,
    similarity: Annotated[
        str, typer.Option("--similarity", help="wip, whitened, centred, cosine or mahalanobis.")
    ] = "wip",
    normalisation: Annotated[str, typer.Option("--normalisation", help="none, gram, zscore or l2.")] = "none",
    shrinkage: Annotated[
        str, typer.Option("--shrinkage", help="Of the covariance: auto, or a number from 0 to 1.")
    ] = "auto",
    seen_by: Annotated[
        str, typer.Option("--seen-by", help="Fit items that so many encoders have seen: auto, all or a number.")
    ] = "auto",
    streaming: Annotated[
        bool, typer.Option("--streaming", help="Read files once in bounded memory; anchors from a sample.")
    ] = False,
    engine: Engine = "local",
    workers: Workers = 1,
    address: Address = None,
    seed: Seed = 0,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Fit a shared space and save it. Several files of one encoder, workers or Ray read as --streaming does."""
    from latentlink import scale
    from latentlink.spaces import RelativeSpace, fit_files

    run = scale.engine(engine, workers=workers, address=address, progress=not (quiet or json))
    amount = shrinkage_of(shrinkage)
    fitted = RelativeSpace(n_anchors, anchors, similarity, normalisation, amount, seed=seed)
    named = {name: matching(path) for name, path in pairs_of(files).items()}
    if streaming or engine != "local" or workers > 1 or any(len(paths) > 1 for paths in named.values()):
        if seen_by != "auto":
            raise InvalidInput("--seen-by is for files held in memory; leave it out.")
        fit_files(fitted, named, run=run)
    else:
        vectors, ids = read_spaces({name: paths[0] for name, paths in named.items()})
        fitted.fit(vectors, ids=ids, seen_by=int(seen_by) if seen_by.isdigit() else seen_by)
    fitted.save(space)
    record = {
        "space": str(space),
        "fingerprint": fitted.fingerprint(),
        "reason": fitted.reason_,
        "items": int(fitted.ids_.size),
        "encoders": {
            name: {
                "dimension": fitted.dimension(name),
                "matched": fitted.matched_[name][0],
                "of": fitted.matched_[name][1],
            }
            for name in fitted.names
        },
    }
    lines = [f"{space}: {fitted.consensus_.shape[1]} anchors on {fitted.ids_.size} items, {fitted.reason_}"]
    for name, (matched, given) in fitted.matched_.items():
        lines.append(f"{name}: {fitted.dimension(name)} dimensions, {matched} of {given} rows matched")
    emit("\n".join(lines), record, as_json=json)


def shrinkage_of(value: str) -> str | float:
    """Read "auto" or a number in [0, 1]."""
    if value == "auto":
        return value
    try:
        amount = float(value)
    except ValueError:
        amount = math.nan
    if not 0 <= amount <= 1:
        raise InvalidInput(f"shrinkage is {value!r}; needs 'auto' or a number in [0, 1].")
    return amount


def pairs_of(files: list[str]) -> dict[str, Path]:
    """Split NAME=FILE arguments."""
    named: dict[str, Path] = {}
    for value in files:
        name, found, path = value.partition("=")
        if not found or not name or not path:
            raise InvalidInput(f"{value!r} is not NAME=FILE; write for example old=old.npy.")
        if name in named:
            raise InvalidInput(f"{name!r} is given twice; needs distinct names.")
        named[name] = Path(path)
    return named


def matching(path: Path) -> list[Path]:
    """Return the files that a pattern stands for, in the order of their names; a plain path stands for itself."""
    if path.exists() or not set("*?[") & set(str(path)):
        return [path]
    found = sorted(path.parent.glob(path.name))
    if not found:
        raise InvalidInput(f"{path} matches no file; check the path.")
    return found


def read_spaces(named: dict[str, Path]) -> tuple[dict[str, object], dict[str, object] | None]:
    """Read vectors, and ids when every file has them."""
    from latentlink.io import read_vectors

    read = {name: read_vectors(path) for name, path in named.items()}
    ids = {name: found for name, (_, found) in read.items()}
    return {name: vectors for name, (vectors, _) in read.items()}, (
        None if any(found is None for found in ids.values()) else dict(ids)
    )
