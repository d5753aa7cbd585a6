"""`latentlink translate`: turn vectors of one encoder into vectors of another."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from latentlink.cli._frame import Json, Quiet
from latentlink.cli._jobs import Address, Engine, Files, Result, Workers, map_files


def translate(
    space: Annotated[Path, typer.Argument(help="Folder of the space.")],
    vectors: Files,
    result: Result,
    source: Annotated[str, typer.Option("--source", help="Name of the encoder that made the vectors.")],
    target: Annotated[str, typer.Option("--target", help="Name of the encoder whose vectors are wanted.")],
    engine: Engine = "local",
    workers: Workers = 1,
    address: Address = None,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Translate files of vectors into another encoder's own space."""
    map_files(space, vectors, result, source, target, (engine, workers, address), json=json, quiet=quiet)
