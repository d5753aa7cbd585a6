"""The real engines: PostgreSQL with pgvector, Qdrant's engine in process, Qdrant's client."""

import warnings

import pytest

from latentlink.search.stores import PgVector, Qdrant, QdrantEdge


@pytest.fixture(scope="session")
def server(tmp_path_factory):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # pgserver's dependency speaks of XDG_RUNTIME_DIR
        pgserver = pytest.importorskip("pgserver")
        running = pgserver.get_server(tmp_path_factory.mktemp("pg"))
    yield running.get_uri()
    running.cleanup()


@pytest.fixture(params=["pgvector", "edge", "client"])
def store(request, tmp_path):
    if request.param == "pgvector":
        psycopg = pytest.importorskip("psycopg")
        with psycopg.connect(request.getfixturevalue("server"), autocommit=True) as connection:
            connection.execute("DROP TABLE IF EXISTS items CASCADE")
            yield PgVector(connection)
    elif request.param == "edge":
        pytest.importorskip("qdrant_edge")
        edge = QdrantEdge(tmp_path / "edge")
        yield edge
        edge.close()
    else:
        client = pytest.importorskip("qdrant_client").QdrantClient(":memory:")
        yield Qdrant(client)
        client.close()
