"""`latentlink translate`: turn vectors of one encoder into vectors of another."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from latentlink.cli._frame import Json, emit


def translate(
    space: Annotated[Path, typer.Argument(help="Folder of the space.")],
    vectors: Annotated[Path, typer.Argument(help="File of vectors.")],
    result: Annotated[
        Path, typer.Argument(help="File to write: .arrow is streamed, others are held in memory.")
    ],
    source: Annotated[str, typer.Option("--source", help="Name of the encoder that made the vectors.")],
    target: Annotated[str, typer.Option("--target", help="Name of the encoder whose vectors are wanted.")],
    json: Json = False,
) -> None:
    """Translate a file of vectors into another encoder's own space."""
    from latentlink.spaces import encode_file, load_space

    rows = encode_file(load_space(space), vectors, result, source=source, target=target)
    emit(f"{result}: {rows} rows", {"rows": rows, "out": str(result)}, as_json=json)
