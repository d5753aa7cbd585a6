"""`latentlink index`: build an index from a file of vectors."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from latentlink.cli._frame import Json, Quiet, Seed, emit


def index(
    vectors: Annotated[Path, typer.Argument(help="File of vectors, with ids where the format has them.")],
    result: Annotated[Path, typer.Argument(help="Folder to write the index to.")],
    source: Annotated[str, typer.Option("--source", help="Name of the encoder that made the vectors.")],
    space: Annotated[
        Path | None, typer.Option("--space", help="Folder of a shared space to encode into.")
    ] = None,
    kind: Annotated[str, typer.Option("--kind", help="auto, exact, flat, hnsw or ivf.")] = "auto",
    memory: Annotated[str | None, typer.Option("--memory", help="What the index may take, such as 4G.")] = None,
    recall: Annotated[float, typer.Option("--recall", help="Recall@10 that hnsw and ivf must reach.")] = 0.95,
    queries: Annotated[
        Path | None,
        typer.Option("--queries", help="File of queries like those to come: --recall is measured on them."),
    ] = None,
    queries_source: Annotated[
        str | None,
        typer.Option("--queries-source", help="Encoder of the queries and the crowd, if another one."),
    ] = None,
    crowd: Annotated[
        Path | None,
        typer.Option(
            "--crowd", help="File of vectors, such as the fitted ones: items near to many rank lower."
        ),
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace an index that stands there.")] = False,
    seed: Seed = 0,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Build an index: exact up to 100,000 vectors, FAISS above, its recall measured."""
    from latentlink.io import read_vectors
    from latentlink.search import Index
    from latentlink.spaces import load_space

    x, ids = read_vectors(vectors)
    shared = None if space is None else load_space(space)
    built = Index.build(
        x,
        space=shared,
        source=source,
        ids=ids,
        kind=kind,
        memory=memory,
        recall=recall,
        queries=None if queries is None else read_vectors(queries)[0],
        queries_source=queries_source,
        crowd=None if crowd is None else read_vectors(crowd)[0],
        seed=seed,
        progress=not (quiet or json),
    )
    built.save(result, overwrite=overwrite)
    record = {
        "out": str(result),
        "rows": len(built),
        "dimension": built.dimension,
        "kind": built.kind,
        "recall": None if built.recall is None else vars(built.recall),
    }
    lines = [f"{result}: {built!r}", *([] if built.recall is None else [str(built.recall)])]
    emit("\n".join(lines), record, as_json=json)
