"""The rehearsal: an index of real sentences by MiniLM, a switch to e5, USE and GloVe as further tenants.

On FAISS, on PostgreSQL with pgvector and on Qdrant's engine, with vectors that the encoders really made.
"""

import warnings

import numpy as np
import pytest

from latentlink.search import Index, migrate
from latentlink.search.stores import PgVector, QdrantEdge, StoredIndex
from latentlink.spaces import RelativeSpace

ENCODERS = ["minilm", "e5", "use", "glove50"]
FIT = slice(0, 2000)
GERMAN = np.arange(2000, 2400)  # rows with a German translation by e5 and USE


@pytest.fixture(scope="module")
def sentences(shared_data):
    with np.load(shared_data / "embeddings" / "tatoeba_demo.npz", allow_pickle=False) as file:
        return {name: file[name].astype(np.float32) for name in [*ENCODERS, "e5_de", "use_de"]}


@pytest.fixture(scope="module")
def space(sentences):
    return RelativeSpace(n_anchors=256).fit({name: sentences[name][FIT] for name in ENCODERS})


@pytest.fixture(params=["faiss", "pgvector", "qdrant"])
def index(request, sentences, space, tmp_path):
    corpus, ids = sentences["minilm"], np.arange(2400)
    if request.param == "faiss":
        pytest.importorskip("faiss")
        yield Index.build(corpus, space=space, source="minilm", ids=ids, kind="hnsw", recall=0.99)
    elif request.param == "pgvector":
        psycopg = pytest.importorskip("psycopg")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # pgserver's dependency speaks of XDG_RUNTIME_DIR
            server = pytest.importorskip("pgserver").get_server(tmp_path / "pg")
        with psycopg.connect(server.get_uri(), autocommit=True) as connection:
            yield _stored(PgVector(connection, "sentences"), space, corpus, ids)
        server.cleanup()
    else:
        pytest.importorskip("qdrant_edge")
        edge = QdrantEdge(tmp_path / "edge")
        yield _stored(edge, space, corpus, ids)
        edge.close()


def _stored(store, space, corpus, ids):
    stored = StoredIndex.create(store, "shared", space=space, dimension=256)
    stored.add(corpus, source="minilm", ids=ids)
    store.finish("shared")
    stored.cut_over()
    return stored


@pytest.mark.stores
def test_every_tenant_searches_the_index_that_minilm_filled(index, sentences, space):
    exact = Index.build(sentences["minilm"], space=space, source="minilm")
    held = {name: sentences[name][GERMAN] for name in ENCODERS}
    for name, own, least in [
        ("minilm", held["minilm"], 1.0),
        ("e5", held["e5"], 0.99),
        ("use", held["use"], 0.97),
    ]:
        _, found = index.search(own, source=name)
        assert (found == GERMAN[:, None]).any(axis=1).mean() >= least, name
    _, glove = index.search(held["glove50"], source="glove50")
    assert (glove == GERMAN[:, None]).any(axis=1).mean() > 0.3  # word averages of 50 columns; chance is 0.004
    for name, german in [("e5", sentences["e5_de"]), ("use", sentences["use_de"])]:
        native = Index.build(sentences[name], source=name).search(german, source=name)[1]
        found = index.search(german, source=name)[1]
        expected = exact.search(german, source=name)[1]
        kept = (found == GERMAN[:, None]).any(axis=1).mean() / (native == GERMAN[:, None]).any(axis=1).mean()
        assert kept >= 0.9, name
        same = np.mean([np.isin(a, b).mean() for a, b in zip(found, expected, strict=True)])
        # FAISS's graph of one-byte values is tuned on the corpus's own vectors; German queries find less of the
        # exact neighbours (0.950 measured), which docs/search.md says.
        assert same >= (0.93 if isinstance(index, Index) else 0.97)


@pytest.mark.medium
def test_minilm_to_e5_keeps_95_percent_on_the_corpus_side(sentences, space):
    found = {
        direction: migrate.shadow(
            space,
            old="minilm",
            new="e5",
            direction=direction,
            corpus_old=sentences["minilm"],
            corpus_new=sentences["e5"],
            queries_new=sentences["e5_de"],
            relevant=GERMAN,
        )
        for direction in ["corpus", "query"]
    }
    assert found["corpus"].retention >= 0.95
    assert found["query"].retention >= 0.90  # below the bar of 0.95: docs/migration.md
