"""What the verbs that look at a file or at a database share."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, TypeAlias

import typer

from latentlink._checks import InvalidInput

Field: TypeAlias = Annotated[
    str | None, typer.Option("--field", help="Field of the store; the current one if left out.")
]


@contextmanager
def opened(store: str, table: str, field: str | None, space: Any) -> Iterator[Any]:
    """Open a field of the store at an address as a `StoredIndex`."""
    from latentlink.search.stores import StoredIndex, open_store

    with open_store(store, table) as place:
        yield StoredIndex.open(place, field, space=space)


def one_of_both(vectors: Path | None, store: str | None) -> None:
    """Raise unless exactly one of a file and a store was given."""
    if (vectors is None) == (store is None):
        both = "both a file and --store" if vectors is not None else "neither a file nor --store"
        raise InvalidInput(f"{both} were given; needs one of them.")
