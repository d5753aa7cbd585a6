"""An index that knows whose vectors it holds, exact or on FAISS."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from latentlink import _checks, _files
from latentlink._progress import track
from latentlink.search import saved
from latentlink.search.engines import (
    KINDS,
    TRAIN_ROWS,
    Exact,
    Faiss,
    Nearest,
    Recall,
    choose_kind,
    chunks,
    need_faiss,
)
from latentlink.search.gate import BATCH_ROWS, FloatArray, Gate, Ids, Space
from latentlink.search.hubs import Hubs

_TUNING_QUERIES = 256
_GIVEN_QUERIES = 1024


class Index:
    """Vectors under cosine similarity, with ids, searched by any encoder of their space.

    Made by `Index.build` or `Index.load`.

    Attributes
    ----------
    ids : array (n,)
    recall : Recall or None
        Measured when an approximate index was built; prints as a sentence.

    Examples
    --------
    >>> corpus = np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
    >>> index = Index.build(corpus, source="minilm", ids=["east", "north", "northeast"])
    >>> similarities, ids = index.search(np.array([[2.0, 0.2]]), source="minilm", k=2)
    >>> similarities.round(3), ids
    (array([[0.995, 0.774]], dtype=float32), array([['east', 'northeast']], dtype='<U9'))
    """

    def __init__(
        self,
        *,
        engine: Exact | Faiss,
        gate: Gate,
        ids: Ids,
        recall: Recall | None = None,
        hubs: Hubs | None = None,
    ) -> None:
        self._engine = engine
        self._gate = gate
        self.ids = ids
        self.recall = recall
        self._hubs = hubs
        self._origin: tuple[Path, int] | None = None  # where it was loaded from, and that generation

    @property
    def kind(self) -> str:
        """The engine: "exact", "flat", "hnsw" or "ivf"."""
        return self._engine.kind

    @property
    def dimension(self) -> int:
        """The number of columns of the stored vectors."""
        return self._engine.dimension

    @property
    def space(self) -> Any:
        """The shared space, or None when the index holds plain vectors of one encoder."""
        return self._gate.space

    @property
    def source(self) -> str | None:
        """The name of that one encoder, or None when there is a space."""
        return self._gate.source

    def __len__(self) -> int:
        return len(self.ids)

    def __repr__(self) -> str:
        whose = f"source={self.source!r}" if self.space is None else f"encoders={tuple(self.space.names)}"
        return f"Index(n={len(self)}, dimension={self.dimension}, kind={self.kind!r}, {whose})"

    @classmethod
    def build(
        cls,
        vectors: Any,
        *,
        space: Space | None = None,
        source: str | None = None,
        ids: Sequence[Any] | Ids | None = None,
        kind: str = "auto",
        memory: str | int | None = None,
        recall: float = 0.95,
        queries: Any = None,
        queries_source: str | None = None,
        crowd: Any = None,
        seed: int = 0,
        check: bool = True,
        progress: bool = True,
    ) -> Index:
        """Build an index of a corpus.

        Parameters
        ----------
        vectors : array (n, d)
            Finite rows, none of them zero; a memory map serves.
        space : RelativeSpace, optional
            Vectors are encoded into it, and every encoder of it may search.
        source : str
            Whose vectors these are: an encoder of `space`, or the name of the only one without a space.
        ids : sequence of n distinct values, optional
            Row numbers when left out.
        kind : {"auto", "exact", "flat", "hnsw", "ivf"}
            "exact" keeps float32 vectors in NumPy, "flat" the same in FAISS, "hnsw" FAISS's graph over one
            byte a value, "ivf" its inverted lists of the same. "auto" is exact up to 100,000 rows, and above
            that the first of hnsw and ivf that fits into `memory`.
        memory : str or int, optional
            What the index may take, such as "4G". No limit when left out.
        recall : float
            In (0, 1]: share of the true 10 nearest that hnsw and ivf must find. They search as narrowly as
            reaches it on 256 vectors of the corpus, each against the others; `Index.recall` says what it was.
        queries : array (n, d), optional
            Queries like those to come, such as another encoder's or in another language, which lie elsewhere than
            the corpus: up to 1,024 of them are searched for in place of its own vectors. "exact" and "flat" only
            check them.
        queries_source : str, optional
            The encoder of the queries and of the crowd; `source` when left out.
        crowd : array (m, d), optional
            Vectors by the encoder of the queries, such as those of the items that the space was fitted on. Items
            near to many of them (hubs) are ranked by 2 similarity - hubness, so that they do not crowd out the
            right ones; see `latentlink.similarity.hubness`. Costs n m r at the build.
        seed : int
            Of the samples for training and tuning.
        check : bool
            Hold the vectors against the statistics of their encoder in `space`, and refuse strangers.
        progress : bool
            Draw a bar on stderr, if that is a terminal.

        Returns
        -------
        Index

        Raises
        ------
        InvalidInput
            `source` is not in `space`, columns differ from that encoder's, an id repeats, or `memory` is too
            small.
        MissingExtra
            FAISS is needed and not installed.

        Warns
        -----
        UserWarning
            The widest search does not reach `recall`.
        """
        _checks.one_of("kind", kind, KINDS)
        wanted = _checks.number("recall", recall, low=0, high=1, open_low=True)
        x = _checks.numpy_matrix("vectors", vectors)
        gate = Gate.of(space, source, x)
        x = gate.admit("vectors", x, source, check=check)
        names = np.arange(len(x)) if ids is None else _checks.unique_ids("ids", ids, rows=len(x))
        whose = queries_source or source
        q = None if queries is None else gate.admit("queries", queries, whose, check=check)
        people = None if crowd is None else gate.admit("crowd", crowd, whose, check=check)
        hubs = None if people is None else Hubs(_rows(people, np.arange(len(people)), gate, whose))
        sinks = [] if hubs is None else [hubs]
        first = next(gate.encoded(x[:1], source))
        chosen = choose_kind(kind, len(x), first.shape[1], memory)
        n_batches = -(-len(x) // BATCH_ROWS)
        batches = track(gate.encoded(x, source), total=n_batches, what="batches", show=progress)
        if chosen == "exact":
            exact = Exact(first.shape[1])
            chunks(batches, exact, *sinks)
            return cls(engine=exact, gate=gate, ids=names, hubs=hubs)
        rng = np.random.default_rng(seed)
        sample = _rows(x, np.sort(rng.permutation(len(x))[:TRAIN_ROWS]), gate, source)
        engine = Faiss.trained(sample, len(x), chosen)
        if chosen == "flat" or len(x) < 2:
            chunks(batches, engine, *sinks)
            return cls(engine=engine, gate=gate, ids=names, hubs=hubs)
        if q is None:
            probes = np.sort(rng.permutation(len(x))[:_TUNING_QUERIES])
            nearest = Nearest(_rows(x, probes, gate, source), min(11, len(x)))
        else:
            probes, some = None, rng.permutation(len(q))[:_GIVEN_QUERIES]
            nearest = Nearest(_rows(q, some, gate, whose), min(10, len(x)))
        chunks(batches, engine, nearest, *sinks)
        measured = engine.tune(nearest.queries, probes, nearest.rows, wanted)
        if measured.value < wanted:
            warnings.warn(f"{measured}, below the {wanted} asked for; build with kind='exact'.", stacklevel=2)
        return cls(engine=engine, gate=gate, ids=names, recall=measured, hubs=hubs)

    def add(
        self,
        vectors: Any,
        *,
        source: str | None = None,
        ids: Sequence[Any] | Ids | None = None,
        check: bool = True,
    ) -> None:
        """Append vectors.

        Parameters
        ----------
        vectors : array (n, d)
        source : str
            Whose vectors these are.
        ids : sequence of n values, optional
            Distinct from each other and from those in the index; the next row numbers when left out.
        check : bool
            See `build`.

        Raises
        ------
        InvalidInput
            The vectors are of another space, or an id is in the index already. Nothing is added then.
        """
        x = self._gate.admit("vectors", vectors, source, check=check)
        new = np.arange(len(self), len(self) + len(x)) if ids is None else np.asarray(ids)
        if new.dtype.kind != self.ids.dtype.kind:
            raise _checks.InvalidType(
                f"ids have type {new.dtype} but those in the index have {self.ids.dtype}; needs one kind."
            )
        _checks.unique_ids("ids", new, rows=len(x))
        known = new[np.isin(new, self.ids)]
        if known.size:
            raise _checks.InvalidInput(
                f"ids has {known.size} that the index holds, {known[0]} among them; drop them."
            )
        for batch in list(self._gate.encoded(x, source)):  # encode all before adding any
            self._engine.add(batch)
            if self._hubs is not None:
                self._hubs.add(batch)
        self.ids = np.concatenate([self.ids, new])

    def search(
        self, queries: Any, *, source: str | None = None, k: int = 10, check: bool = True
    ) -> tuple[FloatArray, Ids]:
        """Find the k most similar vectors of each query.

        Parameters
        ----------
        queries : array (n, d)
        source : str
            Whose vectors the queries are.
        k : int
            From 1 to the size of the index.
        check : bool
            Hold 8 and more queries against the statistics of `source` in the space, and refuse strangers.

        Returns
        -------
        similarities : array (n, k)
            Cosine in the shared space, decreasing; in an index built with a crowd, in the order of the search.
        ids : array (n, k)

        Raises
        ------
        InvalidInput
            The queries are declared to be of another space, have other columns, or look foreign.
        """
        q = self._gate.admit("queries", queries, source, check=check)
        k = _checks.integer("k", k, low=1, high=len(self))
        parts = [self._nearest(block, k) for block in self._gate.encoded(q, source)]
        similarities = np.concatenate([values for values, _ in parts])
        return similarities, self.ids[np.concatenate([rows for _, rows in parts])]

    def _nearest(self, queries: FloatArray, k: int) -> tuple[FloatArray, FloatArray]:
        if self._hubs is None:
            return self._engine.search(queries, k)
        return self._hubs.rank(*self._engine.search(queries, self._hubs.width(k)), k)

    def save(self, path: str | os.PathLike[str], *, overwrite: bool = False) -> None:
        """Write the index as a folder, whole or not at all.

        Parameters
        ----------
        path : path
        overwrite : bool
            Replace another index at `path`. Not needed to save a loaded index back to its place, unless
            another writer has saved there since.

        Raises
        ------
        InvalidInput
            Another process is writing there, something else stands there, or it has changed since loading.
        """
        target = _checks.path("path", path)
        with _files.locked(target):
            generation = saved.generation_of(target)
            if generation and not overwrite:
                if self._origin is None or self._origin[0] != target.resolve():
                    raise _checks.InvalidInput(f"{path} exists; pass overwrite=True to replace it.")
                if self._origin[1] != generation:
                    raise _checks.InvalidInput(
                        f"{path} was saved by another writer since this index was loaded (generation "
                        f"{self._origin[1]}, now {generation}); load it again and repeat the change."
                    )
            self._write(target, generation + 1)

    @classmethod
    def load(cls, path: str | os.PathLike[str], *, space: Space | None = None) -> Index:
        """Read an index that `save` wrote, checking every file's SHA-256.

        Parameters
        ----------
        path : path
        space : RelativeSpace, optional
            The space in which the index was built. The one saved with the index when left out; passing one
            to which encoders were added since lets these search too.
        """
        path = _checks.path("path", path)
        parts, generation = saved.read(path, space)
        index = cls(**parts)
        index._origin = (path.resolve(), generation)
        return index

    @classmethod
    @contextmanager
    def edit(cls, path: str | os.PathLike[str], *, space: Space | None = None) -> Iterator[Index]:
        """Load an index, hold its lock while it is changed, and save it on success.

        Raises
        ------
        InvalidInput
            At once, when another process holds the lock.
        """
        target = _checks.path("path", path)
        with _files.locked(target):
            index = cls.load(target, space=space)
            yield index
            index._write(target, saved.generation_of(target) + 1)

    def export_faiss(self, path: str | os.PathLike[str], *, source: str) -> None:
        """Write a plain FAISS file that takes raw vectors of one encoder.

        The encoder's map, centring and normalisation become FAISS pre-transforms before the index; the file
        needs nothing of this package.

        Parameters
        ----------
        path : path
        source : str
            An encoder of the space.

        Raises
        ------
        InvalidInput
            The index is not on FAISS, or the space's encode is not an affine map.
        """
        if not isinstance(self._engine, Faiss):
            raise _checks.InvalidInput(
                'kind is "exact"; only an index on FAISS can be exported. Build with "flat".'
            )
        if self._gate.space is None:
            raise _checks.InvalidInput("space is None; an index of plain vectors needs no transform before it.")
        from latentlink.search.chain import with_transforms

        faiss = need_faiss()
        with (
            _files.replacing(path) as temporary,
            with_transforms(self._engine.index, self._gate.space, source) as chain,
        ):
            faiss.write_index(chain, str(temporary))

    def _write(self, target: Path, generation: int) -> None:
        saved.write(
            target,
            generation,
            engine=self._engine,
            gate=self._gate,
            ids=self.ids,
            recall=self.recall,
            hubs=self._hubs,
        )
        self._origin = (target.resolve(), generation)


def _rows(x: FloatArray, rows: FloatArray, gate: Gate, source: str | None) -> FloatArray:
    return np.concatenate(list(gate.encoded(x[rows], source)))
