"""`latentlink demo`: the main job on bundled real data."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from latentlink.cli._frame import Json, Quiet, emit


def demo(
    out: Annotated[Path, typer.Option("--out", help="Folder of the report.")] = Path("latentlink-demo"),
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Diagnose, certify, align, search and train on bundled real data; about a minute."""
    from rich.console import Console

    from latentlink.demo import run_demo

    console = Console(stderr=True, quiet=quiet)
    with console.status("starting") as status:

        def say(line: str) -> None:
            status.update(line)
            if not console.is_terminal:
                console.print(line, highlight=False)

        result = run_demo(out, say=say)
    emit(str(result), result.record(), as_json=json)
