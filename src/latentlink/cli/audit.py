"""`latentlink audit`: what in a file of vectors would spoil a search."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from latentlink.cli._frame import CheckFailed, Json, Out, emit


def audit(
    vectors: Annotated[Path, typer.Argument(help="File of vectors.")],
    space: Annotated[Path | None, typer.Option("--space", help="Folder of a space to compare with.")] = None,
    source: Annotated[
        str | None, typer.Option("--source", help="Name of the encoder the vectors are said to be of.")
    ] = None,
    json: Json = False,
    out: Out = None,
) -> None:
    """Look for NaN, zero rows, repeated ids and vectors of another encoder."""
    import numpy as np

    from latentlink.io import open_vectors
    from latentlink.spaces import audit as run
    from latentlink.spaces import load_space

    file = open_vectors(vectors)
    # Blocks come unchecked, so that broken rows are reported together instead of ending the reading.
    blocks = list(file._reader.blocks(0, file.rows, 16_384))
    ids = np.concatenate([block.ids for block in blocks]) if file.has_ids else None
    found = run(
        np.concatenate([block.vectors for block in blocks]),
        ids=ids,
        space=None if space is None else load_space(space),
        source=source,
    )
    counts = {
        "rows with NaN": found.nan_rows,
        "rows with infinity": found.infinite_rows,
        "zero rows": found.zero_rows,
        "repeated ids": found.duplicate_ids,
        "rows equal to an earlier one": found.duplicate_rows,
        "constant columns": found.constant_columns,
        "foreign rows": found.foreign_rows,
    }
    lines = [f"{found.n_rows} rows of {found.dimension} dimensions"]
    lines += [
        f"{what}: {len(rows)}"
        + (f" ({', '.join(map(str, rows[:5]))}{', …' if len(rows) > 5 else ''})" if len(rows) else "")
        for what, rows in counts.items()
    ]
    lines.append(f"norms: {found.norms[0]:.4g} to {found.norms[2]:.4g}, median {found.norms[1]:.4g}")
    emit("\n".join(lines), found.to_dict(), as_json=json, out=out)
    if not found.clean:
        raise CheckFailed(f"{vectors} is not clean")
