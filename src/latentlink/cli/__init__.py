"""The command `latentlink`: one file a verb, each a thin face of one public function."""

from __future__ import annotations

import typer

from latentlink.cli._frame import build, run

_VERBS = [
    "demo",
    "train",
    "diagnose",
    "certify",
    "align",
    "encode",
    "translate",
    "compare",
    "index",
    "search",
    "migrate",
    "audit",
    "doctor",
    "evaluate",
    "info",
]


def app() -> typer.Typer:
    """Make the application."""
    return build(_VERBS)


def main(arguments: list[str] | None = None) -> None:
    """Run the command line and exit with 0 (done), 1 (a check failed) or 2 (bad input)."""
    run(app, arguments)
