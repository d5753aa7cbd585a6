"""An index that knows whose vectors it holds, exact or on FAISS."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from latentlink import _checks, _files
from latentlink.similarity import normalize, top_k

FORMAT = 1
EXACT_ROWS = 100_000  # up to here an exact search of one query takes a few milliseconds
_BATCH_ROWS = 16_384
_KINDS = ["auto", "exact", "flat", "hnsw"]

FloatArray = np.ndarray[Any, np.dtype[Any]]
Ids = np.ndarray[Any, np.dtype[Any]]


class Space(Protocol):
    """What an index asks of a shared space; `latentlink.spaces.RelativeSpace` is one."""

    names: Any

    def encode(self, vectors: Any, *, source: str) -> Any:
        """Map vectors of one encoder, (n, d), into the shared space, (n, r)."""

    def dimension(self, name: str) -> int:
        """Return the number of columns of an encoder's vectors."""

    def fingerprint(self, name: str) -> str:
        """Return the digest that identifies an encoder within the space."""


class Index:
    """Vectors under cosine similarity, with ids, searched by any encoder of their space.

    Made by `Index.build` or `Index.load`.

    Attributes
    ----------
    space : RelativeSpace or None
        The shared space; None when the index holds plain vectors of one encoder.
    source : str or None
        The name of that one encoder.
    ids : array (n,)

    Examples
    --------
    >>> corpus = np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
    >>> index = Index.build(corpus, source="minilm", ids=["east", "north", "northeast"])
    >>> similarities, ids = index.search(np.array([[2.0, 0.2]]), source="minilm", k=2)
    >>> similarities.round(3), ids
    (array([[0.995, 0.774]], dtype=float32), array([['east', 'northeast']], dtype='<U9'))
    """

    def __init__(self, *, store: _Exact | _Faiss, ids: Ids, space: Space | None, source: str | None) -> None:
        self._store = store
        self.ids = ids
        self.space = space
        self.source = source

    @property
    def kind(self) -> str:
        """The engine: "exact", "flat" or "hnsw"."""
        return self._store.kind

    @property
    def dimension(self) -> int:
        """The number of columns of the stored vectors."""
        return self._store.dimension

    def __len__(self) -> int:
        return len(self.ids)

    @classmethod
    def build(
        cls,
        vectors: Any,
        *,
        space: Space | None = None,
        source: str | None = None,
        ids: Sequence[Any] | Ids | None = None,
        kind: str = "auto",
    ) -> Index:
        """Build an index of a corpus.

        Parameters
        ----------
        vectors : array (n, d)
            Finite rows, none of them zero.
        space : RelativeSpace, optional
            Vectors are encoded into it, and every encoder of it may search.
        source : str
            Whose vectors these are: an encoder of `space`, or the name of the only one without a space.
        ids : sequence of n distinct values, optional
            Row numbers when left out.
        kind : {"auto", "exact", "flat", "hnsw"}
            "exact" keeps float32 vectors in NumPy, "flat" the same in FAISS, "hnsw" FAISS's graph over one
            byte a value. "auto" is exact up to 100,000 rows and hnsw above.

        Returns
        -------
        Index

        Raises
        ------
        InvalidInput
            `source` is not in `space`, columns differ from that encoder's, or an id repeats.
        MissingExtra
            FAISS is needed and not installed.
        """
        _checks.one_of("kind", kind, _KINDS)
        x = _checks.matrix("vectors", vectors)
        owner = _owner(space, source)
        names = np.arange(len(x)) if ids is None else _checks.unique_ids("ids", ids, rows=len(x))
        if kind == "auto":
            kind = "exact" if len(x) <= EXACT_ROWS else "hnsw"
        if space is not None:
            _own_columns("vectors", x, space, owner)
        batches = _encoded(x, space, owner)
        store = _Exact.of(batches) if kind == "exact" else _Faiss.of(batches, kind)
        return cls(store=store, ids=names, space=space, source=None if space is not None else owner)

    def search(self, queries: Any, *, source: str | None = None, k: int = 10) -> tuple[FloatArray, Ids]:
        """Find the k most similar vectors of each query.

        Parameters
        ----------
        queries : array (n, d)
        source : str
            Whose vectors the queries are.
        k : int
            From 1 to the size of the index.

        Returns
        -------
        similarities : array (n, k)
            Cosine in the shared space, decreasing.
        ids : array (n, k)

        Raises
        ------
        InvalidInput
            The queries are declared to be of another space, or have other columns.
        """
        q = _checks.matrix("queries", queries)
        k = _checks.integer("k", k, low=1, high=len(self))
        self._admit("queries", q, source)
        parts = [self._store.search(block, k) for block in _encoded(q, self.space, str(source))]
        similarities = np.concatenate([values for values, _ in parts])
        rows = np.concatenate([found for _, found in parts])
        return similarities, self.ids[rows]

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the index as a folder; an older one at `path` is replaced as a whole, or not at all."""
        with _files.locked(path), _files.replacing_folder(path) as folder:
            self._store.write(folder)
            np.save(folder / "ids.npy", self.ids, allow_pickle=False)
            files = {file.name: _files.sha256(file) for file in sorted(folder.iterdir())}
            prints = None
            if self.space is not None:
                prints = {name: self.space.fingerprint(name) for name in self.space.names}
            manifest = {
                "format": FORMAT,
                "kind": self.kind,
                "rows": len(self),
                "dimension": self.dimension,
                "source": self.source,
                "space": prints,
                "sha256": files,
            }
            _files.write_json(folder / "index.json", manifest)

    @classmethod
    def load(cls, path: str | os.PathLike[str], *, space: Space | None = None) -> Index:
        """Read an index that `save` wrote, checking every file's SHA-256.

        Parameters
        ----------
        path : path
        space : RelativeSpace, optional
            The space in which the index was built; needed when it was built in one.
        """
        folder = Path(path)
        manifest = _files.read_json(folder / "index.json")
        if manifest.get("format") != FORMAT:
            raise _checks.InvalidInput(
                f"{path} has format {manifest.get('format')}; this version reads {FORMAT}. Build it again."
            )
        for name, digest in manifest["sha256"].items():
            if _files.sha256(folder / name) != digest:
                raise _checks.InvalidInput(
                    f"{folder / name} differs from its checksum; restore or build it again."
                )
        _same_space(str(path), manifest["space"], space)
        store: _Exact | _Faiss
        store = _Exact.read(folder) if manifest["kind"] == "exact" else _Faiss.read(folder, manifest["kind"])
        ids = np.load(folder / "ids.npy", allow_pickle=False)
        return cls(store=store, ids=ids, space=space, source=manifest["source"])

    def _admit(self, name: str, x: FloatArray, source: str | None) -> None:
        """Refuse vectors that are declared, or look, foreign."""
        owner = _owner(self.space, source)
        if self.space is not None:
            _own_columns(name, x, self.space, owner)
        elif owner != self.source:
            raise _checks.InvalidInput(
                f"{name} are declared as {owner!r} but the index holds vectors of {self.source!r}; fit a "
                f"RelativeSpace on pairs of both and pass space.translate({name}, source={owner!r}, "
                f"target={self.source!r})."
            )
        elif x.shape[1] != self.dimension:
            raise _checks.InvalidInput(
                f"{name} have {x.shape[1]} columns but {self.source!r} in this index has {self.dimension}; "
                "are they of another encoder?"
            )


class _Exact:
    kind = "exact"

    def __init__(self, vectors: FloatArray) -> None:
        self.vectors = vectors  # (n, r) float32, unit rows
        self.dimension = int(vectors.shape[1])

    @classmethod
    def of(cls, batches: Iterator[FloatArray]) -> _Exact:
        return cls(np.concatenate(list(batches)))

    @classmethod
    def read(cls, folder: Path) -> _Exact:
        return cls(np.load(folder / "vectors.npy", allow_pickle=False))

    def write(self, folder: Path) -> None:
        np.save(folder / "vectors.npy", self.vectors, allow_pickle=False)

    def search(self, queries: FloatArray, k: int) -> tuple[FloatArray, FloatArray]:
        return top_k(queries, self.vectors, k, similarity="dot")


class _Faiss:
    def __init__(self, index: Any, kind: str) -> None:
        self.index = index
        self.kind = kind
        self.dimension = int(index.d)

    @classmethod
    def of(cls, batches: Iterator[FloatArray], kind: str) -> _Faiss:
        faiss = _faiss()
        vectors = np.concatenate(list(batches))  # (n, r)
        recipe = "Flat" if kind == "flat" else "HNSW32,SQ8"
        index = faiss.index_factory(vectors.shape[1], recipe, faiss.METRIC_INNER_PRODUCT)
        index.train(vectors)
        index.add(vectors)
        return cls(index, kind)

    @classmethod
    def read(cls, folder: Path, kind: str) -> _Faiss:
        return cls(_faiss().read_index(str(folder / "index.faiss")), kind)

    def write(self, folder: Path) -> None:
        _faiss().write_index(self.index, str(folder / "index.faiss"))

    def search(self, queries: FloatArray, k: int) -> tuple[FloatArray, FloatArray]:
        if self.kind == "hnsw":
            self.index.hnsw.efSearch = max(64, 2 * k)
        similarities, rows = self.index.search(queries, k)
        return similarities, rows


def _faiss() -> Any:
    return _checks.need("faiss", extra="search", job="Index")


def _encoded(x: FloatArray, space: Space | None, source: str) -> Iterator[FloatArray]:
    """Yield unit rows of the shared space, (b, r) float32 and contiguous, a batch at a time."""
    for start in range(0, len(x), _BATCH_ROWS):
        block = x[start : start + _BATCH_ROWS]
        if space is not None:
            block = space.encode(block, source=source)
        yield np.ascontiguousarray(normalize(block), dtype=np.float32)


def _owner(space: Space | None, source: str | None) -> str:
    if space is None:
        if not source:
            raise _checks.InvalidInput(
                "source is missing; needs the name of the encoder that made the vectors."
            )
        return source
    return _checks.one_of("source", source, space.names)


def _own_columns(name: str, x: FloatArray, space: Space, source: str) -> None:
    if x.shape[1] != space.dimension(source):
        raise _checks.InvalidInput(
            f"{name} have {x.shape[1]} columns but {source!r} in this space has {space.dimension(source)}; "
            "are they of another encoder?"
        )


def _same_space(path: str, prints: dict[str, str] | None, space: Space | None) -> None:
    if prints is None:
        return
    if space is None:
        raise _checks.InvalidInput(
            f"space is None but {path} was built in one; pass the space it was built in."
        )
    found = {name: space.fingerprint(name) for name in space.names if name in prints}
    if found != prints:
        wrong = [name for name in prints if found.get(name) != prints[name]]
        raise _checks.InvalidInput(
            f"{path} was built in another space: the fingerprint of {', '.join(wrong)} differs; "
            "load the space saved with it, or build the index again."
        )
