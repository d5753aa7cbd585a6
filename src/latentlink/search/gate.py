"""The door of an index: whose vectors may enter, and how they are brought into the space of the index."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias, runtime_checkable

import numpy as np

from latentlink import _checks
from latentlink.similarity import normalize

BATCH_ROWS = 16_384
_FEWEST = 8  # below that many rows a batch shows too little of its encoder
_CHECKED = 256

FloatArray: TypeAlias = np.ndarray[Any, np.dtype[Any]]
Ids: TypeAlias = np.ndarray[Any, np.dtype[Any]]


@runtime_checkable
class Space(Protocol):
    """What an index asks of a shared space; `latentlink.spaces.RelativeSpace` is one."""

    @property
    def names(self) -> Any:
        """The encoders' names."""

    def encode(self, embeddings: Any, *, source: str) -> Any:
        """Map vectors of one encoder, (n, d), into the shared space, (n, r)."""

    def dimension(self, name: str) -> int:
        """Return the number of columns of an encoder's vectors."""

    def fingerprint(self, name: str) -> str:
        """Return the digest that identifies an encoder within the space."""


@dataclass(frozen=True)
class Gate:
    """Who may enter: the encoders of `space`, or only the encoder `source` when there is no space.

    Attributes
    ----------
    space : RelativeSpace or None
    source : str or None
        None exactly when there is a space.
    dimension : int or None
        Columns of the one encoder's vectors, when there is no space.
    """

    space: Space | None
    source: str | None
    dimension: int | None = None

    @classmethod
    def of(cls, space: Space | None, source: str | None, vectors: FloatArray) -> Gate:
        """Make the door of a new index that begins with these vectors."""
        if space is None:
            return cls(None, named(source), int(vectors.shape[1]))
        shared(space)
        return cls(space, None)

    def admit(self, name: str, vectors: Any, source: str | None, *, check: bool = True) -> FloatArray:
        """Return the vectors (n, d) checked, or raise naming both spaces and the remedy.

        With `check`, at least 8 rows are also held against the statistics of their declared encoder.
        """
        x = _checks.numpy_matrix(name, vectors)
        if self.space is None:
            owner, columns = named(source), self.dimension
            if owner != self.source:
                raise _checks.InvalidInput(
                    f"{name} are declared as {owner!r} but the index holds vectors of {self.source!r}; fit a "
                    f"RelativeSpace on pairs of both and pass space.translate({name}, source={owner!r}, "
                    f"target={self.source!r})."
                )
            place = "in this index"
        else:
            owner = _checks.one_of("source", source, self.space.names)
            columns, place = self.space.dimension(owner), "in this space"
        if x.shape[1] != columns:
            raise _checks.InvalidInput(
                f"{name} have {x.shape[1]} columns but {owner!r} {place} has {columns}; "
                "are they of another encoder?"
            )
        if check and len(x) >= _FEWEST and hasattr(self.space, "encoders_"):
            self._refuse_strangers(name, x, owner)
        return x

    def _refuse_strangers(self, name: str, x: FloatArray, owner: str) -> None:
        """Refuse a batch whose statistics are not those of the encoder that it is declared to be of."""
        from latentlink.spaces.foreign import doctor

        space: Any = self.space
        rows = np.linspace(0, len(x) - 1, min(len(x), _CHECKED)).astype(int)
        found = doctor(space, x[rows], source=owner)
        if found.verdict == "same":
            return
        fits = [
            other
            for other in space.names
            if other != owner
            and space.dimension(other) == x.shape[1]
            and doctor(space, x[rows], source=other).verdict == "same"
        ]
        looks = f"look like vectors of {fits[0]!r}" if fits else f"do not look like it ({found.verdict})"
        remedy = "encode the texts with the right encoder"
        why = "its fitted law suits them hardly better than copies of them with random signs"
        if fits:
            remedy = f"pass source={fits[0]!r}"
        elif found.verdict == "scaled":
            why, remedy = f"their norm is {found.factor:.3g} times the fitted one", "divide them by that"
        elif found.verdict == "sign-flipped":
            why, remedy = "its fitted law suits them worse than their negatives", "negate them"
        raise _checks.InvalidInput(
            f"{name} are declared as {owner!r} but {looks}: {why} ({len(rows)} rows checked); {remedy}. If they "
            "are right and only of another domain, pass check=False."
        )

    def encoded(self, x: FloatArray, source: str | None) -> Iterator[FloatArray]:
        """Yield admitted vectors as unit rows of the index, (b, r) float32 and contiguous, batch by batch."""
        for start in range(0, len(x), BATCH_ROWS):
            block = x[start : start + BATCH_ROWS]
            if self.space is not None:
                block = self.space.encode(block, source=str(source))
            yield np.ascontiguousarray(normalize(block), dtype=np.float32)

    def record(self) -> dict[str, Any]:
        """Return what an artefact keeps of its door, as JSON."""
        prints = None
        if self.space is not None:
            prints = {name: self.space.fingerprint(name) for name in self.space.names}
        return {"source": self.source, "space": prints, "columns": self.dimension}

    @classmethod
    def of_record(cls, what: str, record: dict[str, Any], space: Space | None) -> Gate:
        """Make the door of an artefact from its record, refusing a space that is not the recorded one."""
        prints = record["space"]
        if prints is None:
            return cls(None, record["source"], record["columns"])
        if space is None:
            raise _checks.InvalidInput(
                f"space is None but {what} was built in one; pass the space it was built in."
            )
        known = set(space.names)
        wrong = [name for name in prints if name not in known or space.fingerprint(name) != prints[name]]
        if wrong:
            raise _checks.InvalidInput(
                f"{what} was built in another space: the fingerprint of {', '.join(wrong)} differs; "
                "load the space saved with it, or build the index again."
            )
        return cls(space, None)


def shared(space: Any) -> None:
    """Raise when `space` is no shared space."""
    _checks.instance("space", space, Space, "a RelativeSpace: fit one, or load_space")


def named(source: str | None) -> str:
    """Return the name of an encoder, which must be given."""
    if not isinstance(source, str) or not source:
        raise _checks.InvalidInput("source is missing; needs the name of the encoder that made the vectors.")
    return source


def refusals(
    gate: Gate,
    vectors: Any,
    source: str,
    *,
    rows: int = 32,
    batches: int = 200,
    alter: Callable[[FloatArray], FloatArray] = np.asarray,
    seed: int = 0,
) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """Tell which random batches of vectors a door refuses: its false alarms on a domain, or what it detects.

    Parameters
    ----------
    gate : Gate
    vectors : array (n, d)
    source : str
        The encoder they are declared to be of.
    rows, batches : int
        Rows of a batch, drawn without repetition, and how many batches.
    alter : callable, optional
        What is done to each batch (rows, d) before the door sees it.
    seed : int

    Returns
    -------
    bool array (batches,)
    """
    x = _checks.numpy_matrix("vectors", vectors, min_rows=rows)
    rng = np.random.default_rng(seed)
    refused = np.zeros(batches, dtype=bool)
    for number in range(batches):
        try:
            gate.admit("vectors", alter(x[rng.choice(len(x), rows, replace=False)]), source)
        except _checks.InvalidInput:
            refused[number] = True
    return refused
