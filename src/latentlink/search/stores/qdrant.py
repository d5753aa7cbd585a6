"""Qdrant: a collection a space behind one alias; and its engine in process, without a server."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from latentlink import _checks, _files
from latentlink.search.gate import FloatArray

_BATCH = 256
_IDS = uuid.UUID("6f1c9d5e-0a52-5a55-9a0e-2d6c1f0c7b11")  # of text ids: Qdrant knows only numbers and UUIDs


class Qdrant:
    """A Qdrant server, or the client's local mode: collection ``<name>_<field>``, alias ``<name>``.

    Parameters
    ----------
    client : qdrant_client.QdrantClient
    name : str
    """

    def __init__(self, client: Any, name: str = "items") -> None:
        self._models = _checks.need("qdrant_client", extra="qdrant", job="Qdrant").models
        self._client = client
        self.name = name

    def create(self, field: str, dimension: int, record: dict[str, Any]) -> None:
        """Make a collection with the named vector `field`; its first point keeps the record."""
        models = self._models
        # The alias moves whole collections, so every space has its own; a reserved collection keeps records.
        self._client.create_collection(
            self._collection(field),
            vectors_config={field: models.VectorParams(size=dimension, distance=models.Distance.DOT)},
        )
        if not self._client.collection_exists(self._records):
            self._client.create_collection(self._records, vectors_config={})
        point = models.PointStruct(id=_point_id(field), vector={}, payload={"field": field, "record": record})
        self._client.upsert(self._records, [point])

    def record(self, field: str) -> dict[str, Any] | None:
        """Return the record of a field."""
        if not self._client.collection_exists(self._records):
            return None
        found = self._client.retrieve(self._records, [_point_id(field)], with_payload=True)
        return found[0].payload["record"] if found else None

    def upsert(self, field: str, ids: Sequence[Any], vectors: FloatArray) -> None:
        """Write points in batches; the payload keeps the id as given."""
        for low in range(0, len(ids), _BATCH):
            points = [
                self._models.PointStruct(id=_point_id(i), vector={field: v.tolist()}, payload={"id": i})
                for i, v in zip(ids[low : low + _BATCH], vectors[low : low + _BATCH], strict=True)
            ]
            self._client.upsert(self._collection(field), points, wait=True)

    def finish(self, field: str) -> None:
        """Do nothing: the server builds its graph as points come."""

    def search(self, field: str, queries: FloatArray, k: int) -> tuple[FloatArray, list[list[Any]]]:
        """Search in batches."""
        values, ids = [], []
        for low in range(0, len(queries), _BATCH):
            requests = [
                self._models.QueryRequest(query=q.tolist(), using=field, limit=k, with_payload=True)
                for q in queries[low : low + _BATCH]
            ]
            for answer in self._client.query_batch_points(self._collection(field), requests):
                values.append([point.score for point in answer.points])
                ids.append([point.payload["id"] for point in answer.points])
        return np.asarray(values, dtype=np.float32), ids

    def count(self, field: str) -> int:
        """Return the points of a field."""
        return int(self._client.count(self._collection(field), exact=True).count)

    def scan(self, field: str, batch_rows: int) -> Iterator[tuple[list[Any], FloatArray]]:
        """Scroll through the collection."""
        after = None
        while True:
            points, after = self._client.scroll(
                self._collection(field), limit=batch_rows, offset=after, with_payload=True, with_vectors=[field]
            )
            if points:
                yield _batch(points, field)
            if after is None:
                return

    def point(self, field: str | None) -> None:
        """Move the alias in one request, or delete it."""
        models = self._models
        changes: list[Any] = []
        if self.current() is not None:
            changes.append(models.DeleteAliasOperation(delete_alias=models.DeleteAlias(alias_name=self.name)))
        if field is not None:
            create = models.CreateAlias(collection_name=self._collection(field), alias_name=self.name)
            changes.append(models.CreateAliasOperation(create_alias=create))
        self._client.update_collection_aliases(changes)

    def current(self) -> str | None:
        """Return the field behind the alias."""
        for alias in self._client.get_aliases().aliases:
            if alias.alias_name == self.name:
                return str(alias.collection_name).removeprefix(f"{self.name}_")
        return None

    def close(self) -> None:
        """Close the client."""
        self._client.close()

    @property
    def _records(self) -> str:
        return f"{self.name}_spaces"

    def _collection(self, field: str) -> str:
        return f"{self.name}_{field}"


class QdrantEdge:
    """Qdrant's engine in this process, in a folder: one shard, one named vector a space.

    A JSON file beside the shard keeps the records and the current field.

    Parameters
    ----------
    folder : path
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self._edge = _checks.need("qdrant_edge", extra="qdrant", job="QdrantEdge")
        self._folder = Path(folder)
        self._notes_path = self._folder / "latentlink.json"
        self._notes: dict[str, Any] = {"records": {}, "current": None}
        self._shard: Any = None
        if self._notes_path.exists():
            self._notes = _files.read_json(self._notes_path)
            self._shard = self._edge.EdgeShard.load(str(self._folder / "shard"))

    def create(self, field: str, dimension: int, record: dict[str, Any]) -> None:
        """Add a named vector to the shard, making it at first."""
        edge = self._edge
        if self._shard is None:
            (self._folder / "shard").mkdir(parents=True)
            parameters = edge.EdgeVectorParams(size=dimension, distance=edge.Distance.Dot)
            self._shard = edge.EdgeShard.create(
                str(self._folder / "shard"), edge.EdgeConfig(vectors={field: parameters})
            )
        else:
            self._shard.update(edge.UpdateOperation.create_dense_vector(field, dimension, edge.Distance.Dot))
        self._notes["records"][field] = record
        _files.write_json(self._notes_path, self._notes)

    def record(self, field: str) -> dict[str, Any] | None:
        """Return the record of a field."""
        found: dict[str, Any] | None = self._notes["records"].get(field)
        return found

    def upsert(self, field: str, ids: Sequence[Any], vectors: FloatArray) -> None:
        """Write points; one that is there keeps its other vectors."""
        edge = self._edge
        numbers = [_point_id(i) for i in ids]
        there = {str(point.id) for point in self._shard.retrieve(numbers, False, False)}
        fresh, kept = [], []
        for number, i, vector in zip(numbers, ids, vectors, strict=True):
            if str(number) in there:
                kept.append(edge.PointVectors(number, {field: vector.tolist()}))
            else:
                fresh.append(edge.Point(number, {field: vector.tolist()}, {"id": i}))
        if fresh:
            self._shard.update(edge.UpdateOperation.upsert_points(fresh))
        if kept:
            self._shard.update(edge.UpdateOperation.update_vectors(kept))
        self._shard.flush()

    def finish(self, field: str) -> None:
        """Let the engine merge segments and build its graph."""
        self._shard.optimize()

    def search(self, field: str, queries: FloatArray, k: int) -> tuple[FloatArray, list[list[Any]]]:
        """Search one query after the other."""
        edge = self._edge
        values, ids = [], []
        for query in queries:
            nearest = edge.Query.Nearest(query.tolist(), using=field)
            found = self._shard.query(edge.QueryRequest(limit=k, query=nearest, with_payload=True))
            values.append([point.score for point in found])
            ids.append([point.payload["id"] for point in found])
        return np.asarray(values, dtype=np.float32), ids

    def count(self, field: str) -> int:
        """Return the points that have this field."""
        condition = self._edge.Filter(must=[self._edge.HasVectorCondition(field)])
        return int(self._shard.count(self._edge.CountRequest(exact=True, filter=condition)))

    def scan(self, field: str, batch_rows: int) -> Iterator[tuple[list[Any], FloatArray]]:
        """Scroll through the points that have this field."""
        edge = self._edge
        condition = edge.Filter(must=[edge.HasVectorCondition(field)])
        after = None
        while True:
            request = edge.ScrollRequest(
                offset=after, limit=batch_rows, filter=condition, with_payload=True, with_vector=[field]
            )
            points, after = self._shard.scroll(request)
            if points:
                yield _batch(points, field)
            if after is None:
                return

    def point(self, field: str | None) -> None:
        """Note the current field, atomically."""
        self._notes["current"] = field
        _files.write_json(self._notes_path, self._notes)

    def current(self) -> str | None:
        """Return the current field."""
        found: str | None = self._notes["current"]
        return found

    def close(self) -> None:
        """Let go of the folder."""
        if self._shard is not None:
            self._shard.close()


def _batch(points: Sequence[Any], field: str) -> tuple[list[Any], FloatArray]:
    """Return ids as they were given, and vectors, of points that another program may have written."""
    ids = [(point.payload or {}).get("id", point.id) for point in points]
    return ids, np.asarray([point.vector[field] for point in points], dtype=np.float32)


def _point_id(name: Any) -> Any:
    """Return a whole number >= 0 as it is and everything else as a UUID of its text."""
    if isinstance(name, int) and not isinstance(name, bool) and 0 <= name < 2**64:
        return name
    return str(uuid.uuid5(_IDS, str(name)))
