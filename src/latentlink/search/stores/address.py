"""A store by its address, for the command line."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from latentlink import _checks
from latentlink.search.stores.base import Store
from latentlink.search.stores.pgvector import PgVector
from latentlink.search.stores.qdrant import Qdrant, QdrantEdge


@contextmanager
def open_store(address: str, name: str = "items") -> Iterator[Store]:
    """Open the store at an address, and close it at the end.

    Parameters
    ----------
    address : str
        ``postgresql://user@host/database``, ``http://host:6333`` of a Qdrant server (its key in the environment
        variable QDRANT_API_KEY), or a folder of Qdrant's engine in process.
    name : str
        Table or collection; a folder has one shard only.

    Raises
    ------
    InvalidInput
        The address is none of these, or nothing answers there.
    MissingExtra
        The store's client is not installed.
    """
    with closing(_connected(address, name)) as store:
        yield store


def _connected(address: str, name: str) -> PgVector | Qdrant | QdrantEdge:
    if address.startswith(("postgresql://", "postgres://")):
        psycopg = _checks.need("psycopg", extra="pgvector", job="a store in PostgreSQL")
        try:
            return PgVector(address, name)
        except psycopg.OperationalError as error:
            raise _checks.InvalidInput(f"PostgreSQL does not answer: {error}; check the address.") from error
    if address.startswith(("http://", "https://")):
        client = _checks.need("qdrant_client", extra="qdrant", job="a store in Qdrant")
        server = client.QdrantClient(
            url=address, api_key=os.environ.get("QDRANT_API_KEY"), check_compatibility=False
        )
        try:
            server.get_aliases()
        except client.http.exceptions.ResponseHandlingException as error:
            server.close()
            raise _checks.InvalidInput(f"Qdrant does not answer at {address}: {error}; check it.") from error
        return Qdrant(server, name)
    if not Path(address).is_dir():
        raise _checks.InvalidInput(
            f"store is {address!r}; needs postgresql://…, http://… of Qdrant, or a folder of Qdrant's engine."
        )
    return QdrantEdge(address)
