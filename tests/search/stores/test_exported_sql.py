"""The SQL that a space exports, run in a real PostgreSQL with pgvector."""

import json

import numpy as np
import pytest

from latentlink import RelativeSpace
from latentlink.spaces import export

pytestmark = pytest.mark.stores


@pytest.fixture
def connection(server):
    psycopg = pytest.importorskip("psycopg")
    with psycopg.connect(server, autocommit=True) as made:
        made.execute("CREATE EXTENSION IF NOT EXISTS vector")
        yield made
        made.execute(
            "DROP FUNCTION IF EXISTS latentlink_map; DROP TABLE IF EXISTS latentlink_map_columns, papers"
        )


@pytest.mark.parametrize("offset", [0.0, 300.0])
@pytest.mark.parametrize("normalisation", ["none", "gram"])
@pytest.mark.parametrize("target", [None, "b"])
def test_the_function_gives_what_the_space_gives(rng, connection, target, normalisation, offset):
    shared = rng.normal(size=(500, 12))
    views = {
        name: shared @ rng.normal(size=(12, d)) + 0.1 * rng.normal(size=(500, d)) + offset
        for name, d in (("a", 48), ("b", 30))
    }
    space = RelativeSpace(24, normalisation=normalisation).fit(views)
    for statement in export.to_sql(space, source="a", target=target):
        connection.execute(statement)
    connection.execute("CREATE TABLE papers (id int, v vector(48))")
    x = views["a"][:50].astype(np.float32)
    for number, row in enumerate(x):
        connection.execute("INSERT INTO papers VALUES (%s, %s)", (number, json.dumps(row.tolist())))
    rows = connection.execute("SELECT latentlink_map(v)::text FROM papers ORDER BY id").fetchall()
    got = np.array([json.loads(text) for (text,) in rows])
    exact = x.astype(np.float64)
    want = (
        space.encode(exact, source="a") if target is None else space.translate(exact, source="a", target=target)
    )
    assert got.shape == want.shape
    assert np.abs(got - want).max() <= 1e-6 * np.abs(want).max()
