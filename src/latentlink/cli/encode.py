"""`latentlink encode`: turn vectors of one encoder into vectors of the shared space."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from latentlink.cli._frame import Json, emit


def encode(
    space: Annotated[Path, typer.Argument(help="Folder of the space.")],
    vectors: Annotated[Path, typer.Argument(help="File of vectors.")],
    result: Annotated[
        Path, typer.Argument(help="File to write: .arrow is streamed, others are held in memory.")
    ],
    source: Annotated[str, typer.Option("--source", help="Name of the encoder that made the vectors.")],
    json: Json = False,
) -> None:
    """Encode a file of vectors into the shared space."""
    from latentlink.spaces import encode_file, load_space

    rows = encode_file(load_space(space), vectors, result, source=source)
    emit(f"{result}: {rows} rows", {"rows": rows, "out": str(result)}, as_json=json)
