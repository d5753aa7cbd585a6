"""`latentlink diagnose`: what the upper tail of similarities looks like, and which link it asks for."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from latentlink.cli._frame import Json, Out, Report, Seed, emit


def diagnose(
    embeddings: Annotated[Path, typer.Argument(help="Vectors, one row each.")],
    positives: Annotated[
        Path | None, typer.Option("--positives", help="Vectors of their positives, in the same order.")
    ] = None,
    tail_size: Annotated[int, typer.Option("--tail-size", help="Largest similarities of each query.")] = 64,
    n_queries: Annotated[int, typer.Option("--queries", help="Queries drawn where there are more.")] = 5000,
    level: Annotated[float, typer.Option("--level", help="Level of the intervals.")] = 0.95,
    json: Json = False,
    out: Out = None,
    report: Report = None,
    seed: Seed = 0,
) -> None:
    """Say whether similarities end, how they thin out below the end, and which link fits."""
    from latentlink.io import read_vectors
    from latentlink.tails import diagnose as run

    x, _ = read_vectors(embeddings)
    p = None if positives is None else read_vectors(positives)[0]
    found = run(x, p, tail_size=tail_size, n_queries=n_queries, level=level, seed=seed)
    if report is not None:
        found.report(report)
    emit(str(found), found.record(), as_json=json, out=out)
