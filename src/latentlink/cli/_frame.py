"""What every verb shares: its registration, common options, output as text or JSON, and exit codes.

A verb is a module `cli/<verb>.py` holding a function `<verb>` (dashes as underscores) with typer annotations.
Common options are the aliases below. It calls one public function, then `emit(result, json=…, out=…)`. It never
catches errors: `run` turns InvalidInput, InvalidType, MissingExtra and a file that is not there into one line
on stderr and exit code 2. A verb whose check did not pass raises `CheckFailed`, exit code 1.
"""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, TypeAlias

import typer

from latentlink import _checks

Json: TypeAlias = Annotated[bool, typer.Option("--json", help="Print the result as JSON on stdout.")]
Out: TypeAlias = Annotated[Path | None, typer.Option("--out", help="Write the result to this file as well.")]
Seed: TypeAlias = Annotated[int, typer.Option("--seed", help="Seed of every random draw.")]
Quiet: TypeAlias = Annotated[bool, typer.Option("--quiet", help="No progress on stderr.")]
Report: TypeAlias = Annotated[
    Path | None, typer.Option("--report", help="Write a self-contained HTML report to this file.")
]


class CheckFailed(Exception):
    """A check that the user asked for did not pass: exit code 1, the message on stderr."""


def build(verbs: list[str]) -> typer.Typer:
    """Make the application from the names of its verbs, in the order given."""
    app = typer.Typer(
        name="latentlink",
        help="Similarity search as a random choice model: train, diagnose, certify, align.",
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
    )
    app.callback()(lambda: None)  # so that a single verb is still a verb
    for verb in verbs:
        name = verb.replace("-", "_")
        function = getattr(importlib.import_module(f"latentlink.cli.{name}"), name)
        if isinstance(function, typer.Typer):
            app.add_typer(function, name=verb)
        else:
            app.command(name=verb)(function)
    return app


def run(make: Callable[[], typer.Typer], arguments: list[str] | None = None) -> None:
    """Run an application and exit; a user's mistake is one line, never a stack trace."""
    try:
        make()(args=arguments)  # exits by itself: 0 when done, 2 on a wrong option or verb
    except CheckFailed as error:
        code = _say(str(error), 1)
    except (_checks.InvalidInput, _checks.InvalidType, _checks.MissingExtra) as error:
        code = _say(str(error), 2)
    except (FileNotFoundError, IsADirectoryError, NotADirectoryError, PermissionError) as error:
        code = _say(f"{error.filename}: {error.strerror}; check the path.", 2)
    except KeyboardInterrupt:
        code = _say("interrupted", 130)
    sys.exit(code)


def emit(text: str, record: dict[str, Any], *, as_json: bool, out: Path | None = None) -> None:
    """Print the text (or the record as JSON) on stdout, and write the record to `out` when given.

    NaN and infinity become null in JSON.
    """
    from latentlink._files import plain, write_json

    clean = plain(record)
    if out is not None:
        write_json(out, clean)
    typer.echo(json.dumps(clean, indent=2, allow_nan=False) if as_json else text)


def _say(message: str, code: int) -> int:
    print(f"latentlink: {' '.join(message.split())}", file=sys.stderr)
    return code
