"""The verbs of `Index` on databases: pgvector and Qdrant.

A `StoredIndex` is an index whose vectors live in a `Store`: one column or named vector a space, so that several
spaces stand side by side and a cut-over is a change of one name.
"""

from latentlink.search.stores.address import open_store
from latentlink.search.stores.base import Store, StoredIndex
from latentlink.search.stores.pgvector import PgVector
from latentlink.search.stores.qdrant import Qdrant, QdrantEdge

__all__ = ["PgVector", "Qdrant", "QdrantEdge", "Store", "StoredIndex", "open_store"]
