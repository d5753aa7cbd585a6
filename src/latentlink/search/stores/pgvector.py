"""PostgreSQL with the extension vector: a column a space, a view for the cut-over."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from latentlink import _checks
from latentlink.search.gate import FloatArray

_VECTOR_HNSW = 2000  # columns that an HNSW index over `vector` takes; over `halfvec` it is twice as many
_HALFVEC_HNSW = 4000


class PgVector:
    """A table ``(id, one column a space)`` in PostgreSQL.

    Ids are text in the table; whole numbers come back as whole numbers. Vectors of more than 2,000 columns are
    kept as ``halfvec``. The view ``<table>_current`` is what readers should query.

    Parameters
    ----------
    connection : psycopg.Connection
        Or what `psycopg.connect` takes. One of your own should be in autocommit mode; otherwise you commit.
    table : str

    Raises
    ------
    MissingExtra
        Without psycopg or pgvector.
    """

    def __init__(self, connection: Any, table: str = "items") -> None:
        psycopg = _checks.need("psycopg", extra="pgvector", job="PgVector")
        self._sql = _checks.need("psycopg.sql", extra="pgvector", job="PgVector")
        register = _checks.need("pgvector.psycopg", extra="pgvector", job="PgVector").register_vector
        # Without autocommit the first SELECT would open a transaction that nobody commits.
        self._mine = isinstance(connection, str)
        self._connection = psycopg.connect(connection, autocommit=True) if self._mine else connection
        self.table = table
        with self._connection.transaction():
            self._run("CREATE EXTENSION IF NOT EXISTS vector")
            self._run("CREATE TABLE IF NOT EXISTS {table} (id text PRIMARY KEY, number boolean NOT NULL)")
        register(self._connection)

    def create(self, field: str, dimension: int, record: dict[str, Any]) -> None:
        """Add a column; its comment keeps the record."""
        _checks.integer("dimension", dimension, low=1, high=_HALFVEC_HNSW)
        kind = "vector" if dimension <= _VECTOR_HNSW else "halfvec"
        with self._connection.transaction():
            self._run(f"ALTER TABLE {{table}} ADD COLUMN {{field}} {kind}({dimension:d})", field)
            self._run("COMMENT ON COLUMN {table}.{field} IS {note}", field, note=json.dumps(record))

    def record(self, field: str) -> dict[str, Any] | None:
        """Return the record in the column's comment."""
        row = self._run(
            "SELECT col_description(attrelid, attnum) FROM pg_attribute "
            "WHERE attrelid = {name}::regclass AND attname = {note} AND NOT attisdropped",
            name=self.table,
            note=field,
        ).fetchone()
        return None if row is None or row[0] is None else json.loads(row[0])

    def upsert(self, field: str, ids: Sequence[Any], vectors: FloatArray) -> None:
        """Write a batch in one transaction."""
        half = self._half(field)
        rows = [(str(i), isinstance(i, int), _literal(v, half)) for i, v in zip(ids, vectors, strict=True)]
        statement = self._text(
            "INSERT INTO {table} (id, number, {field}) VALUES (%s, %s, %s) "
            "ON CONFLICT (id) DO UPDATE SET {field} = EXCLUDED.{field}",
            field,
        )
        with self._connection.transaction(), self._connection.cursor() as cursor:
            cursor.executemany(statement, rows)

    def finish(self, field: str) -> None:
        """Build the HNSW index of the column."""
        kind = "halfvec" if self._half(field) else "vector"
        with self._connection.transaction():
            self._run(
                f"CREATE INDEX IF NOT EXISTS {{index}} ON {{table}} USING hnsw ({{field}} {kind}_ip_ops)",
                field,
                index=f"{self.table}_{field}_hnsw",
            )

    def search(self, field: str, queries: FloatArray, k: int) -> tuple[FloatArray, list[list[Any]]]:
        """Search; `hnsw.ef_search` is raised to what k needs for the transaction only."""
        half = self._half(field)
        statement = self._text(
            "SELECT id, number, -({field} <#> %(q)s) FROM {table} WHERE {field} IS NOT NULL "
            "ORDER BY {field} <#> %(q)s LIMIT %(k)s",
            field,
        )
        values, ids = [], []
        with self._connection.transaction(), self._connection.cursor() as cursor:
            cursor.execute(f"SET LOCAL hnsw.ef_search = {min(1000, max(100, 2 * k)):d}")
            cursor.execute("SET LOCAL hnsw.iterative_scan = strict_order")
            for query in queries:
                found = cursor.execute(statement, {"q": _literal(query, half), "k": k}).fetchall()
                if len(found) < k:
                    raise _checks.InvalidInput(
                        f"k is {k} but the search of {field!r} gave {len(found)}; lower k."
                    )
                ids.append([int(i) if number else i for i, number, _ in found])
                values.append([value for *_, value in found])
        return np.asarray(values, dtype=np.float32), ids

    def count(self, field: str) -> int:
        """Return the rows that have this field."""
        return int(self._run("SELECT count({field}) FROM {table}", field).fetchone()[0])

    def scan(self, field: str, batch_rows: int) -> Iterator[tuple[list[Any], FloatArray]]:
        """Read the rows that have this field in the order of their ids, a page a query."""
        page = self._text(
            "SELECT id, number, {field} FROM {table} WHERE {field} IS NOT NULL "
            "AND (%(last)s::text IS NULL OR id > %(last)s) ORDER BY id LIMIT %(rows)s",
            field,
        )
        last = None
        while rows := self._connection.execute(page, {"last": last, "rows": batch_rows}).fetchall():
            last = rows[-1][0]
            vectors = [vector.to_numpy() if hasattr(vector, "to_numpy") else vector for *_, vector in rows]
            yield [int(i) if number else i for i, number, _ in rows], np.asarray(vectors, dtype=np.float32)

    def point(self, field: str | None) -> None:
        """Replace the view in one transaction, or drop it."""
        with self._connection.transaction():
            self._run("DROP VIEW IF EXISTS {view}")
            if field is None:
                return
            self._run("CREATE VIEW {view} AS SELECT id, {field} AS embedding FROM {table}", field)
            self._run("COMMENT ON VIEW {view} IS {note}", note=field)

    def current(self) -> str | None:
        """Return the field of the view."""
        row = self._run("SELECT obj_description(to_regclass({name}))", name=f"{self.table}_current").fetchone()
        return None if row is None else row[0]

    def close(self) -> None:
        """Close the connection, unless it was given."""
        if self._mine:
            self._connection.close()

    def _half(self, field: str) -> bool:
        row = self._run(
            "SELECT format_type(atttypid, atttypmod) FROM pg_attribute "
            "WHERE attrelid = {name}::regclass AND attname = {note}",
            name=self.table,
            note=field,
        ).fetchone()
        return bool(row is not None and str(row[0]).startswith("halfvec"))

    def _text(self, template: str, field: str = "id", **values: str) -> Any:
        names = {"table": self.table, "view": f"{self.table}_current", "field": field}
        if "index" in values:
            names["index"] = values.pop("index")
        parts = {name: self._sql.Identifier(value) for name, value in names.items()}
        return self._sql.SQL(template).format(
            **parts, **{name: self._sql.Literal(value) for name, value in values.items()}
        )

    def _run(self, template: str, field: str = "id", **values: str) -> Any:
        return self._connection.execute(self._text(template, field, **values))


def _literal(vector: FloatArray, half: bool) -> Any:
    import pgvector

    return pgvector.HalfVector(vector) if half else pgvector.Vector(vector)
