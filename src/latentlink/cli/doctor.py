"""`latentlink doctor`: whether vectors come from the encoder that the space knows."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from latentlink.cli._frame import CheckFailed, Json, Out, emit


def doctor(
    space: Annotated[Path, typer.Argument(help="Folder of the space.")],
    vectors: Annotated[Path, typer.Argument(help="File of vectors of ordinary items, or of the probes.")],
    source: Annotated[str, typer.Option("--source", help="Name of the encoder the vectors are said to be of.")],
    probes: Annotated[
        bool, typer.Option("--probes", help="The vectors are those of the space's probe items, in order.")
    ] = False,
    json: Json = False,
    out: Out = None,
) -> None:
    """Tell same, scaled, sign-flipped, permuted, rotated and other encoders apart."""
    from latentlink.io import read_vectors
    from latentlink.spaces import doctor as run
    from latentlink.spaces import load_space

    found = run(load_space(space), read_vectors(vectors)[0], source=source, probes=probes)
    text = (
        f"{found.verdict}: {found.foreign_share:.1%} of the vectors look foreign to {source!r} (0.1 % would by "
        f"chance), their norm is {found.factor:.3g} times the fitted one"
    )
    emit(text, found.to_dict(), as_json=json, out=out)
    if found.verdict != "same":
        raise CheckFailed(f"{vectors} is not of {source!r} as fitted: {found.verdict}")
