"""`latentlink search`: search an index with a file of vectors."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from latentlink.cli._frame import Json, Out, emit


def search(
    index: Annotated[Path, typer.Argument(help="Folder of the index.")],
    queries: Annotated[Path, typer.Argument(help="File of query vectors.")],
    source: Annotated[str, typer.Option("--source", help="Name of the encoder that made the queries.")],
    k: Annotated[int, typer.Option("--k", help="Neighbours of each query.")] = 10,
    check: Annotated[
        bool, typer.Option("--check/--no-check", help="Refuse queries that look like another encoder's.")
    ] = True,
    out: Out = None,
    json: Json = False,
) -> None:
    """Find the k most similar vectors of each query."""
    from latentlink.io import read_vectors
    from latentlink.search import Index

    x, ids = read_vectors(queries)
    similarities, found = Index.load(index).search(x, source=source, k=k, check=check)
    names = np.arange(len(x)) if ids is None else ids
    lines = [
        f"{name}\t" + "\t".join(f"{item} {value:.4f}" for item, value in zip(*row, strict=True))
        for name, row in zip(names, zip(found, similarities, strict=True), strict=True)
    ]
    record = {"queries": names, "ids": found, "similarities": similarities}
    emit("\n".join(lines), record, as_json=json, out=out)
