"""`latentlink audit`: what in a file or a database of vectors would spoil a search."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from latentlink.cli._frame import CheckFailed, Json, Out, emit
from latentlink.cli._stored import Field, one_of_both, opened
from latentlink.cli.migrate import Store, Table


def audit(
    vectors: Annotated[Path | None, typer.Argument(help="File of vectors, unless --store is given.")] = None,
    space: Annotated[Path | None, typer.Option("--space", help="Folder of a space to compare with.")] = None,
    source: Annotated[
        str | None,
        typer.Option("--source", help="Name of the encoder the vectors of a file are said to be of."),
    ] = None,
    store: Store = None,
    table: Table = "items",
    field: Field = None,
    json: Json = False,
    out: Out = None,
) -> None:
    """Look for NaN, zero rows, repeated ids and vectors of another encoder, in bounded memory."""
    from latentlink.io import open_vectors
    from latentlink.spaces import load_space
    from latentlink.spaces.audits import audit_batches, strangers_to

    one_of_both(vectors, store)
    shared = None if space is None else load_space(space)
    if vectors is None:
        with opened(str(store), table, field, shared) as index:
            found, what = index.audit(space=shared), f"field {index.field!r}"
    else:
        file, what = open_vectors(vectors), str(vectors)
        # Blocks come unchecked, so that broken rows are reported together instead of ending the reading.
        blocks = ((block.ids, block.vectors) for block in file._reader.blocks(0, file.rows, 16_384))
        found = audit_batches(blocks, strangers=strangers_to(shared, source))
    emit(str(found), found.to_dict(), as_json=json, out=out)
    if not found.clean:
        raise CheckFailed(f"{what} is not clean")
