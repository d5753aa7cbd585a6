"""What searches unit vectors: NumPy exactly, or FAISS; chosen by budgets, tuned to a measured recall."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from latentlink import _checks
from latentlink._metrics import Interval, bootstrap_interval
from latentlink.search.gate import FloatArray
from latentlink.similarity import top_k

EXACT_ROWS = 100_000  # up to here an exact search of one query takes a few milliseconds
KINDS = ["auto", "exact", "flat", "hnsw", "ivf"]
TRAIN_ROWS = 65_536
_LINKS = 32  # of an HNSW node: 64 of four bytes on the ground floor
_LADDER = [16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024]


@dataclass(frozen=True)
class Recall:
    """Recall of an approximate search, measured against the exact one.

    Attributes
    ----------
    value : float
        Mean share of the true k nearest that were found.
    interval : Interval
        95 %, bootstrap over queries.
    k, n_queries : int
    width : int
        How widely the index searches: efSearch of HNSW, nprobe of IVF.
    given : bool
        The queries were given; otherwise they are vectors of the corpus, each searching for the others.
    """

    value: float
    interval: Interval
    k: int
    n_queries: int
    width: int
    given: bool = False

    def __str__(self) -> str:
        low, high = self.interval
        return (
            f"recall@{self.k} {self.value:.3f} [{low:.3f}, {high:.3f}] against exact search, "
            f"{self.n_queries}{' given' if self.given else ''} queries, search width {self.width}"
        )


class Exact:
    """float32 vectors in NumPy."""

    kind = "exact"

    def __init__(self, dimension: int) -> None:
        self.dimension = dimension
        self._parts: list[FloatArray] = []  # (n_i, r), unit rows; one part once searched

    def add(self, vectors: FloatArray) -> None:
        """Append rows."""
        self._parts.append(vectors)

    @property
    def vectors(self) -> FloatArray:
        """All rows, (n, r)."""
        if len(self._parts) != 1:
            self._parts = [np.concatenate([np.empty((0, self.dimension), np.float32), *self._parts])]
        return self._parts[0]

    def search(self, queries: FloatArray, k: int) -> tuple[FloatArray, FloatArray]:
        """Return similarities and rows, (n, k) each."""
        return top_k(queries, self.vectors, k, similarity="dot")

    def write(self, folder: Path) -> None:
        """Write into a folder."""
        np.save(folder / "vectors.npy", self.vectors, allow_pickle=False)

    @classmethod
    def read(cls, folder: Path) -> Exact:
        """Read what `write` wrote."""
        vectors = np.load(folder / "vectors.npy", allow_pickle=False)
        engine = cls(int(vectors.shape[1]))
        engine.add(vectors)
        return engine


class Faiss:
    """A FAISS index of unit vectors under the inner product."""

    def __init__(self, index: Any, kind: str, width: int = 64) -> None:
        self.index = index
        self.kind = kind
        self.dimension = int(index.d)
        self.width = width

    @classmethod
    def trained(cls, sample: FloatArray, rows: int, kind: str) -> Faiss:
        """Make an empty index for about `rows` vectors from a sample (m, r) of them."""
        faiss = need_faiss()
        cells = int(max(1, min(4 * np.sqrt(rows), len(sample) // 39)))  # FAISS asks for 39 points a cell
        recipe = {"flat": "Flat", "hnsw": f"HNSW{_LINKS},SQ8", "ivf": f"IVF{cells},SQ8"}[kind]
        index = faiss.index_factory(sample.shape[1], recipe, faiss.METRIC_INNER_PRODUCT)
        if kind == "ivf":
            index.cp.seed = 1234
        index.train(sample)
        return cls(index, kind)

    def add(self, vectors: FloatArray) -> None:
        """Append rows."""
        self.index.add(vectors)

    def search(self, queries: FloatArray, k: int) -> tuple[FloatArray, FloatArray]:
        """Return similarities and rows, (n, k) each; queries whose walk ends early are searched wider."""
        similarities, rows = self._search(queries, k, self.width)
        short = np.flatnonzero((rows < 0).any(axis=1))
        width = self.width
        while short.size and width < self.index.ntotal:
            width *= 4
            similarities[short], rows[short] = self._search(queries[short], k, width)
            short = short[(rows[short] < 0).any(axis=1)]
        if short.size:
            raise _checks.InvalidInput(
                f"k is {k} but the graph reaches fewer vectors from {short.size} queries; lower k or build "
                'with kind="exact".'
            )
        return similarities, rows

    def _search(self, queries: FloatArray, k: int, width: int) -> tuple[FloatArray, FloatArray]:
        faiss = need_faiss()
        if self.kind == "hnsw":
            settings = faiss.SearchParametersHNSW(efSearch=max(width, k))
        elif self.kind == "ivf":
            settings = faiss.SearchParametersIVF(nprobe=min(width, self.index.nlist))
        else:
            settings = None
        similarities, rows = self.index.search(queries, k, params=settings)
        return similarities, rows

    def tune(self, queries: FloatArray, own: FloatArray | None, truth: FloatArray, wanted: float) -> Recall:
        """Take the narrowest search whose recall of the true rows (q, k) reaches `wanted`.

        The queries are rows `own` (q,) of the index, and finding oneself does not count (k is one less then); or
        they are others, with None.
        """
        width = truth.shape[1]
        selves = np.full(len(queries), -1) if own is None else own  # no row is -1
        others = (truth != selves[:, None]).sum(axis=1)  # (q,)
        for self.width in _LADDER:
            _, found = self.search(queries, width)
            true = (found[:, :, None] == truth[:, None, :]).any(axis=2) & (found != selves[:, None])
            hits = true.sum(axis=1) / others  # (q,)
            if hits.mean() >= wanted:
                break
        k, spread = width - (own is not None), bootstrap_interval(hits)
        return Recall(float(hits.mean()), spread, k, len(queries), self.width, own is None)

    def write(self, folder: Path) -> None:
        """Write into a folder."""
        need_faiss().write_index(self.index, str(folder / "index.faiss"))

    @classmethod
    def read(cls, folder: Path, kind: str, width: int) -> Faiss:
        """Read what `write` wrote."""
        return cls(need_faiss().read_index(str(folder / "index.faiss")), kind, width)


class Nearest:
    """The exact k nearest of a few queries among vectors that pass by in batches."""

    def __init__(self, queries: FloatArray, k: int) -> None:
        self.queries = queries
        self.similarities = np.full((len(queries), k), -np.inf, np.float32)
        self.rows = np.full((len(queries), k), -1)
        self._seen = 0

    def see(self, vectors: FloatArray) -> None:
        """Take the next batch (b, r) into account."""
        k = self.rows.shape[1]
        values, rows = top_k(self.queries, vectors, min(k, len(vectors)), similarity="dot")
        values = np.hstack([self.similarities, values])
        rows = np.hstack([self.rows, rows + self._seen])
        order = np.argsort(-values, axis=1, kind="stable")[:, :k]
        self.similarities = np.take_along_axis(values, order, axis=1)
        self.rows = np.take_along_axis(rows, order, axis=1)
        self._seen += len(vectors)


def choose_kind(kind: str, rows: int, dimension: int, memory: str | int | None) -> str:
    """Return the most exact engine that fits: exact to 100,000 rows, then hnsw, then ivf.

    >>> choose_kind("auto", 10**6, 384, "1G")
    'hnsw'
    >>> choose_kind("auto", 10**6, 384, "500M")
    'ivf'
    """
    sizes = {name: engine_bytes(name, rows, dimension) for name in ["exact", "hnsw", "ivf"]}
    budget = np.inf if memory is None else parse_bytes("memory", memory)
    if kind != "auto":
        needed = engine_bytes(kind, rows, dimension)
        if needed > budget:
            raise _over("memory", memory, kind, needed)
        return kind
    if rows <= EXACT_ROWS and sizes["exact"] <= budget:
        return "exact"
    for name in ["hnsw", "ivf"]:
        if sizes[name] <= budget:
            return name
    raise _over("memory", memory, "ivf", sizes["ivf"])


def engine_bytes(kind: str, rows: int, dimension: int) -> int:
    """Return the memory that an index takes, to within some percent."""
    each = {"exact": 4 * dimension, "flat": 4 * dimension, "hnsw": dimension + 8 * _LINKS + 24}
    return int(rows * each.get(kind, dimension + 8) + (1 << 20))


def parse_bytes(name: str, value: str | int) -> int:
    """Turn "4G", "500M" or a number of bytes into bytes.

    >>> parse_bytes("memory", "1.5K")
    1536
    """
    if isinstance(value, int):
        return _checks.integer(name, value, low=1)
    found = re.fullmatch(r"([0-9.]+)\s*([KMGT]?)(i?B)?", str(value).strip(), re.IGNORECASE)
    try:
        return int(float(found[1]) * 1024 ** " KMGT".index(found[2].upper() or " "))  # type: ignore[index]
    except (TypeError, ValueError) as error:
        raise _checks.InvalidInput(f"{name} is {value!r}; needs a size such as 4G, 500M or bytes.") from error


def _over(name: str, memory: Any, kind: str, needed: int) -> _checks.InvalidInput:
    return _checks.InvalidInput(
        f"{name} is {memory} but kind={kind!r} needs about {needed / 2**20:,.0f} MiB; give more, or build on a "
        "database (latentlink.search.stores)."
    )


def need_faiss() -> Any:
    """Import FAISS or say which extra brings it."""
    return _checks.need("faiss", extra="search", job="Index")


def chunks(batches: Iterator[FloatArray], *sinks: Any) -> None:
    """Give every batch to every sink's `add` or `see`."""
    for batch in batches:
        for sink in sinks:
            (sink.see if isinstance(sink, Nearest) else sink.add)(batch)
