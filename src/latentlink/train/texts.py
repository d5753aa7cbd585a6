"""Texts and pairs of texts from files."""

from __future__ import annotations

import csv
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from latentlink import _checks

_SUFFIXES = (".txt", ".csv", ".tsv", ".jsonl", ".parquet")


def load_columns(
    path: str | os.PathLike[str], columns: Sequence[str], *, optional: str = ""
) -> list[list[Any]]:
    """Read named columns of a table.

    Parameters
    ----------
    path : path
        .csv or .tsv with a header, .jsonl, or .parquet; for one column also .txt, a text a line.
    columns : sequence of str
    optional : str
        One more column that is read if it is there; an empty list stands for it otherwise.

    Returns
    -------
    list of list
        The values of each column; texts are stripped.
    """
    file = Path(path)
    suffix = _checks.one_of(f"the suffix of {file.name}", file.suffix.lower(), _SUFFIXES)
    if suffix == ".txt":
        if len(columns) != 1:
            raise _checks.InvalidInput(f"{file} has no columns; needs a table with {', '.join(columns)}.")
        lines = file.read_text(encoding="utf-8").splitlines()
        return [[line.strip() for line in lines if line.strip()], *([[]] if optional else [])]
    table = _table(file, suffix)
    missing = [name for name in columns if name not in table]
    if missing:
        raise _checks.InvalidInput(f"{file} has no column {missing[0]!r}; it has {', '.join(table) or 'none'}.")
    found = [[str(value).strip() for value in table[name]] for name in columns]
    return [*found, *([list(table.get(optional, []))] if optional else [])]


def _table(file: Path, suffix: str) -> dict[str, list[Any]]:
    if suffix == ".parquet":
        parquet = _checks.need("pyarrow.parquet", extra="files", job=f"reading {file.name}")
        table: dict[str, list[Any]] = parquet.read_table(file).to_pydict()
        return table
    with open(file, newline="", encoding="utf-8") as stream:
        if suffix == ".jsonl":
            rows = [_object(line, file, number) for number, line in enumerate(stream, 1) if line.strip()]
        else:
            rows = list(csv.DictReader(stream, delimiter="\t" if suffix == ".tsv" else ","))
    names = rows[0].keys() if rows else []
    for number, row in enumerate(rows):
        if row.keys() != rows[0].keys() or None in row.values():
            raise _checks.InvalidInput(f"row {number} of {file} has not the columns of the first; mend it.")
    return {name: [row[name] for row in rows] for name in names}


def _object(line: str, file: Path, number: int) -> dict[str, Any]:
    try:
        value = json.loads(line)
    except json.JSONDecodeError as error:
        raise _checks.InvalidInput(f"line {number} of {file} is not JSON ({error.msg}).") from error
    if not isinstance(value, dict):
        raise _checks.InvalidInput(f"line {number} of {file} is no object; needs one with named values.")
    return value
