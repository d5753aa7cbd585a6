"""`latentlink doctor`: whether vectors come from the encoder that the space knows."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from latentlink._checks import InvalidInput
from latentlink.cli._frame import CheckFailed, Json, Out, emit
from latentlink.cli._stored import Field, one_of_both, opened
from latentlink.cli.migrate import Store, Table


def doctor(
    space: Annotated[Path, typer.Argument(help="Folder of the space.")],
    vectors: Annotated[
        Path | None,
        typer.Argument(help="File of vectors of ordinary items, or of the probes, unless --store is given."),
    ] = None,
    source: Annotated[
        str | None,
        typer.Option("--source", help="Name of the encoder the vectors of a file are said to be of."),
    ] = None,
    probes: Annotated[
        bool, typer.Option("--probes", help="The vectors are those of the space's probe items, in order.")
    ] = False,
    store: Store = None,
    table: Table = "items",
    field: Field = None,
    json: Json = False,
    out: Out = None,
) -> None:
    """Tell same, scaled, sign-flipped, permuted, rotated and other encoders apart."""
    from latentlink.io import read_vectors
    from latentlink.spaces import doctor as run
    from latentlink.spaces import load_space

    one_of_both(vectors, store)
    known = load_space(space)
    if vectors is None:
        if probes:
            raise InvalidInput("--probes was given with --store; it compares a file of the probes.")
        with opened(str(store), table, field, known) as index:
            found, what, whose = index.doctor(known), f"field {index.field!r}", index.source
    else:
        if source is None:
            raise InvalidInput(f"--source is missing; needs one of {', '.join(map(repr, known.names))}.")
        found = run(known, read_vectors(vectors)[0], source=source, probes=probes)
        what, whose = str(vectors), source
    text = (
        f"{found.verdict}: {found.foreign_share:.1%} of the vectors look foreign to {whose!r} (0.1 % would by "
        f"chance), their norm is {found.factor:.3g} times the fitted one"
    )
    unseen = {"negated": "whether all signs were turned", "altered": "whether columns were altered"}
    if found.blind:
        text += f"; without probes they cannot show {' or '.join(unseen[kind] for kind in found.blind)}"
    emit(text, found.to_dict(), as_json=json, out=out)
    if found.verdict != "same":
        raise CheckFailed(f"{what} is not of {whose!r} as fitted: {found.verdict}")
