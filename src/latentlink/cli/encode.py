"""`latentlink encode`: turn vectors of one encoder into vectors of the shared space."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from latentlink.cli._frame import Json, Quiet
from latentlink.cli._jobs import Address, Engine, Files, Result, Workers, map_files


def encode(
    space: Annotated[Path, typer.Argument(help="Folder of the space.")],
    vectors: Files,
    result: Result,
    source: Annotated[str, typer.Option("--source", help="Name of the encoder that made the vectors.")],
    engine: Engine = "local",
    workers: Workers = 1,
    address: Address = None,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Encode files of vectors into the shared space."""
    map_files(space, vectors, result, source, None, (engine, workers, address), json=json, quiet=quiet)
