"""What the verbs on files of vectors share: the options of an engine, and encoding or translating files."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, TypeAlias

import typer

from latentlink._checks import InvalidInput
from latentlink.cli._frame import emit

Engine: TypeAlias = Annotated[str, typer.Option("--engine", help="local or ray.")]
Workers: TypeAlias = Annotated[int, typer.Option("--workers", help="Processes of the local engine.")]
Address: TypeAlias = Annotated[
    str | None, typer.Option("--address", help="Of a Ray cluster; without it Ray runs here.")
]

Files: TypeAlias = Annotated[list[Path], typer.Argument(help="Files of vectors; they are only read.")]
Result: TypeAlias = Annotated[
    Path,
    typer.Argument(
        help="File to write: .arrow is streamed, others are held in memory. Without a suffix, a folder of "
        "shards: for many files, on any engine, and resumable."
    ),
]


def map_files(
    space: Path,
    files: list[Path],
    result: Path,
    source: str,
    target: str | None,
    engine: tuple[str, int, str | None],
    *,
    json: bool,
    quiet: bool,
) -> None:
    """Encode files (or with `target`, translate them) into one file, or into a folder of shards.

    `engine` is its name, its workers and its address.
    """
    from latentlink import scale
    from latentlink.spaces import encode_file, load_space

    name, workers, address = engine
    progress = not (quiet or json)
    run = scale.engine(name, workers=workers, address=address, progress=progress)
    shared = load_space(space)
    if not result.suffix:
        from latentlink.search import convert

        done = convert(files, result, space=shared, source=source, target=target, run=run)
        record = {"rows": done.rows, "out": str(result), "shards": len(done.shards)}
        emit(f"{result}: {done.rows} rows in {len(done.shards)} shards", record, as_json=json)
        return
    if len(files) > 1 or engine != ("local", 1, None):
        raise InvalidInput(
            f"{result} is one file, which this process writes from one file; for several files or an engine name "
            "a folder, without a suffix."
        )
    rows = encode_file(shared, files[0], result, source=source, target=target, progress=progress)
    emit(f"{result}: {rows} rows", {"rows": rows, "out": str(result)}, as_json=json)
