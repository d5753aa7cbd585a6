"""What every database must do, and the index on top that knows whose vectors are in it."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from latentlink import _checks, _files
from latentlink.io import open_vectors
from latentlink.search.gate import FloatArray, Gate, Ids, Space

if TYPE_CHECKING:
    from latentlink.spaces.audits import Audit
    from latentlink.spaces.foreign import Diagnosis


class Store(Protocol):
    """A table or collection with one field of vectors a space. Fields are never changed in place."""

    def create(self, field: str, dimension: int, record: dict[str, Any]) -> None:
        """Make a field for unit vectors and keep the record of its space with it."""

    def record(self, field: str) -> dict[str, Any] | None:
        """Return the record of a field, or None when there is no such field."""

    def upsert(self, field: str, ids: Sequence[Any], vectors: FloatArray) -> None:
        """Write vectors (b, r) under their ids; writing the same again changes nothing."""

    def finish(self, field: str) -> None:
        """Build the field's search structure, when that is better done after loading."""

    def search(self, field: str, queries: FloatArray, k: int) -> tuple[FloatArray, list[list[Any]]]:
        """Return similarities (n, k) and ids of the k most similar vectors."""

    def count(self, field: str) -> int:
        """Return how many vectors a field holds."""

    def scan(self, field: str, batch_rows: int) -> Iterator[tuple[list[Any], FloatArray]]:
        """Yield all ids and vectors (b, r) of a field as they are stored, at most `batch_rows` at a time."""

    def point(self, field: str | None) -> None:
        """Make the store's current name (a view or alias) mean this field, or take it away, atomically."""

    def current(self) -> str | None:
        """Return the field that the current name means."""


class StoredIndex:
    """An index in a database; made by `StoredIndex.create` or `StoredIndex.open`.

    Attributes
    ----------
    store : Store
    field : str
    """

    def __init__(self, store: Store, field: str, gate: Gate) -> None:
        self.store = store
        self.field = field
        self._gate = gate

    @classmethod
    def create(
        cls, store: Store, field: str, *, space: Space | None = None, source: str | None = None, dimension: int
    ) -> StoredIndex:
        """Make a new field for one space.

        Parameters
        ----------
        store : Store
        field : str
            Letters, digits and underscores; the name of the column or vector.
        space : RelativeSpace, optional
        source : str, optional
            The one encoder whose plain vectors are stored, without a space.
        dimension : int
            Columns of the stored vectors: of the shared space, or of that encoder.

        Raises
        ------
        InvalidInput
            The field exists; fields are not overwritten.
        """
        if not re.fullmatch(r"[a-z_][a-z0-9_]{0,40}", field):
            raise _checks.InvalidInput(f"field is {field!r}; needs lower-case letters, digits and underscores.")
        if store.record(field) is not None:
            raise _checks.InvalidInput(f"field {field!r} exists; open it, or pick another name.")
        gate = Gate(space, source, dimension if space is None else None)
        store.create(field, _checks.integer("dimension", dimension, low=1), gate.record())
        return cls(store, field, gate)

    @classmethod
    def open(cls, store: Store, field: str | None = None, *, space: Space | None = None) -> StoredIndex:
        """Open a field (the current one when left out), refusing a space that is not the recorded one."""
        name = field or store.current()
        record = store.record(name) if name else None
        if name is None or record is None:
            raise _checks.InvalidInput(f"field {name!r} is not in the store; create it first.")
        return cls(store, name, Gate.of_record(f"field {name!r}", record, space))

    @property
    def source(self) -> str | None:
        """The one encoder whose plain vectors are stored, or None in a shared space."""
        return self._gate.source

    def __len__(self) -> int:
        return self.store.count(self.field)

    def add(
        self, vectors: Any, *, ids: Sequence[Any] | Ids, source: str | None = None, check: bool = True
    ) -> None:
        """Write vectors (n, d) under their ids, in batches; an id that is there is replaced.

        See `Index.add`; here ids are whole numbers or text, and must be given.
        """
        x = self._gate.admit("vectors", vectors, source, check=check)
        names = _checks.unique_ids("ids", ids, rows=len(x)).tolist()
        at = 0
        for block in self._gate.encoded(x, source):
            self.store.upsert(self.field, names[at : at + len(block)], block)
            at += len(block)

    def load(
        self,
        files: Iterable[Any],
        *,
        source: str | None = None,
        encoded: bool = False,
        progress: Any = None,
        batch_rows: int = 4096,
    ) -> int:
        """Write files of vectors, resuming after the last whole file, and build the search structure.

        Parameters
        ----------
        files : iterable of paths
            With ids, such as the shards of `convert`.
        source : str, optional
            Whose vectors they are.
        encoded : bool
            They are in the shared space of the index already, as `convert` writes them; `source` says nothing then.
        progress : path, optional
            A JSON file that remembers the files that are in. A file that was half in is written again.

        Returns
        -------
        int
            Vectors now in the field.
        """
        done: list[str] = []
        if progress is not None and Path(progress).exists():
            done = _files.read_json(progress)
        for path in map(Path, files):
            mark = f"{path.name} {path.stat().st_size}"
            if mark in done:
                continue
            for batch in open_vectors(path).batches(batch_rows=batch_rows):
                into, whose = self, source
                if encoded:  # a door that lets vectors of the shared space in as they are
                    whose = "shared"
                    into = StoredIndex(self.store, self.field, Gate(None, whose, batch.vectors.shape[1]))
                into.add(batch.vectors, ids=batch.ids, source=whose)
            done.append(mark)
            if progress is not None:
                _files.write_json(progress, done)
        self.store.finish(self.field)
        return len(self)

    def search(
        self, queries: Any, *, source: str | None = None, k: int = 10, check: bool = True
    ) -> tuple[FloatArray, Ids]:
        """Find the k most similar vectors of each query; see `Index.search`."""
        q = self._gate.admit("queries", queries, source, check=check)
        k = _checks.integer("k", k, low=1, high=len(self))
        parts = [self.store.search(self.field, block, k) for block in self._gate.encoded(q, source)]
        ids = [row for _, rows in parts for row in rows]
        return np.concatenate([values for values, _ in parts]), np.asarray(ids)

    def audit(self, *, space: Any = None, batch_rows: int = 4096) -> Audit:
        """Look through every stored vector for what spoils a search: NaN, zero rows, repeats, other encoders.

        Parameters
        ----------
        space : RelativeSpace, optional
            One that has the encoder of a field of plain vectors: rows of other encoders are looked for then. A
            field of a shared space knows its own, and looks for vectors that were encoded as another encoder's.
        batch_rows : int
            Rows read at a time.

        Returns
        -------
        Audit
            Rows are named by their ids. See `latentlink.spaces.audit_batches` for the memory it takes.

        Raises
        ------
        InvalidInput
            The field is empty, or `space` lacks its encoder.
        """
        from latentlink.spaces.audits import audit_batches, strangers_in_shared, strangers_to

        rows = _checks.integer("batch_rows", batch_rows, low=1)
        shared: Any = self._gate.space
        if shared is not None:
            strangers = strangers_in_shared(shared)
        else:
            strangers = strangers_to(space, self._gate.source, unit=True)
        return audit_batches(self.store.scan(self.field, rows), strangers=strangers, by_id=True)

    def doctor(self, space: Any, *, rows: int = 2048, batch_rows: int = 4096) -> Diagnosis:
        """Say whether a field's plain vectors come from its encoder, from a sample of the whole field.

        Parameters
        ----------
        space : RelativeSpace
            One that has the encoder.
        rows : int
            At least 8: the rows whose ids have the smallest hashes, whatever order the store reads them in.
        batch_rows : int
            Rows read at a time.

        Returns
        -------
        Diagnosis
            Stored vectors have length 1, so their scale says nothing; they are taken times the median fitted norm.

        Raises
        ------
        InvalidInput
            The field is of a shared space (audit it instead), or the sampled rows are not finite.
        """
        from latentlink.spaces.foreign import doctor, fitted_norm

        if self._gate.space is not None:
            raise _checks.InvalidInput(
                f"field {self.field!r} holds vectors of a shared space; `audit` looks for the encoders in it."
            )
        most = _checks.integer("rows", rows, low=8)
        _checks.one_of("source", self._gate.source, space.names)
        kept: list[tuple[str, FloatArray]] = []
        for ids, vectors in self.store.scan(self.field, _checks.integer("batch_rows", batch_rows, low=1)):
            marks = [hashlib.sha256(repr(name).encode()).hexdigest() for name in ids]
            kept = sorted([*kept, *zip(marks, vectors, strict=True)], key=lambda pair: pair[0])[:most]
        sample = np.stack([vector for _, vector in kept]) if kept else np.zeros((0, 1), np.float32)
        source = str(self._gate.source)
        return doctor(space, sample * fitted_norm(space, source), source=source)

    def cut_over(self) -> str | None:
        """Make this field the current one and return the one that was; undo by pointing back."""
        before = self.store.current()
        self.store.point(self.field)
        return before
