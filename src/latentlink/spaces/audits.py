"""What in a matrix, a file or a store would spoil a search; one pass over batches."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from latentlink import _checks
from latentlink.similarity import normalize
from latentlink.spaces.foreign import fitted_norm, foreign_rows
from latentlink.spaces.relative import RelativeSpace
from latentlink.whitening import Whitener

AnyArray = np.ndarray[Any, np.dtype[Any]]
FloatArray = np.ndarray[Any, np.dtype[np.floating[Any]]]

_FALSE_ALARMS = 0.001


@dataclass(frozen=True)
class Strangers:
    """How to recognise the vectors that do not belong.

    Attributes
    ----------
    find : callable
        Turns finite vectors (n, d) into a bool array (n,).
    false_alarms : float
        Share of the right vectors that it calls foreign.
    what : tuple of str
        What it can see.
    """

    find: Callable[[FloatArray], AnyArray]
    false_alarms: float
    what: tuple[str, ...]


@dataclass(frozen=True)
class Audit:
    """What `audit` found.

    Attributes
    ----------
    n_rows, dimension : int
    nan_rows, infinite_rows, zero_rows, foreign_rows : arrays
        Row numbers, or the rows' ids where `audit_batches` was asked for them. Foreign rows are looked for when a
        space was given.
    duplicate_rows : array
        Rows equal to an earlier row.
    duplicate_ids : array
        Ids that occur more than once.
    constant_columns : int array
    mean_norm : float
        Of the mean vector over the root-mean-square norm: 0 for centred data, near 1 for a narrow cone.
    norms : tuple of float
        Smallest, median and largest norm of finite rows.
    expected_foreign : float
        Rows that would be called foreign by chance.
    looked_for : tuple of str
        What the search for foreign rows could see.
    """

    n_rows: int
    dimension: int
    nan_rows: AnyArray
    infinite_rows: AnyArray
    zero_rows: AnyArray
    duplicate_rows: AnyArray
    duplicate_ids: AnyArray
    constant_columns: AnyArray
    foreign_rows: AnyArray
    expected_foreign: float
    mean_norm: float
    norms: tuple[float, float, float]
    looked_for: tuple[str, ...] = ()

    @property
    def clean(self) -> bool:
        """Whether nothing was found that spoils a search: foreign rows count beyond thrice their expectation."""
        spoiled = (self.nan_rows, self.infinite_rows, self.zero_rows, self.duplicate_ids)
        few = self.foreign_rows.size <= max(3.0, 3 * self.expected_foreign)
        return few and not any(found.size for found in spoiled)

    def __str__(self) -> str:
        found = {
            "rows with NaN": self.nan_rows,
            "rows with infinity": self.infinite_rows,
            "zero rows": self.zero_rows,
            "repeated ids": self.duplicate_ids,
            "rows equal to an earlier one": self.duplicate_rows,
            "constant columns": self.constant_columns,
            "foreign rows": self.foreign_rows,
        }
        lines = [f"{self.n_rows} rows of {self.dimension} dimensions"]
        for what, rows in found.items():
            some = f" ({', '.join(map(str, rows[:5]))}{', …' if len(rows) > 5 else ''})" if len(rows) else ""
            lines.append(f"{what}: {len(rows)}{some}")
        if self.looked_for:
            lines.append(
                f"foreign rows looked for: {'; '.join(self.looked_for)}; {self.expected_foreign:.1f} would be "
                "called so by chance"
            )
        lines.append(f"norms: {self.norms[0]:.4g} to {self.norms[2]:.4g}, median {self.norms[1]:.4g}")
        return "\n".join(lines)

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain values for JSON."""
        return asdict(self) | {"clean": self.clean}


def audit(
    embeddings: Any, *, ids: Any = None, space: RelativeSpace | None = None, source: str | None = None
) -> Audit:
    """Look for what spoils a search: NaN, zero rows, repeated ids, vectors of another encoder.

    Parameters
    ----------
    embeddings : array (n, d)
        May hold NaN and infinity.
    ids : array (n,), optional
    space, source : RelativeSpace and str, optional
        The space and the encoder that the vectors are said to come from.

    Returns
    -------
    Audit

    Examples
    --------
    >>> found = audit(np.array([[1.0, 0.0], [np.nan, 1.0], [1.0, 0.0]]), ids=["a", "b", "a"])
    >>> found.nan_rows, found.duplicate_rows, found.duplicate_ids.tolist(), found.clean
    (array([1]), array([2]), ['a'], False)
    """
    names = None if ids is None else np.asarray(ids)
    rows = np.shape(embeddings)[:1]
    if names is not None and names.shape != rows:
        raise _checks.InvalidInput(f"ids has shape {names.shape}; needs {rows}, one id for each row.")
    return audit_batches([(names, embeddings)], strangers=strangers_to(space, source))


def audit_batches(
    batches: Iterable[tuple[Any, Any]], *, strangers: Strangers | None = None, by_id: bool = False
) -> Audit:
    """Audit vectors that come in batches.

    Parameters
    ----------
    batches : iterable of (ids, vectors)
        Vectors (b, d) with their ids (b,), or None in place of the ids.
    strangers : Strangers, optional
        See `strangers_to` and `strangers_in_shared`.
    by_id : bool
        Name the rows that were found by their ids instead of by their numbers in the order they came.

    Returns
    -------
    Audit
        Memory: one batch, 24 bytes a row (two 64-bit hashes to find repetitions, and the norm), and what is found.
    """
    rows: dict[str, list[Any]] = {
        name: [] for name in ("nan", "infinite", "zero", "repeated", "foreign", "ids")
    }
    norms: list[FloatArray] = []
    vectors_seen, ids_seen = _Seen(), _Seen()
    total: Any = 0.0
    low, high, count, dimension = np.inf, -np.inf, 0, 0
    for ids, vectors in batches:
        x = _checks.numpy_matrix("embeddings", vectors, finite=False, columns=dimension or None)
        dimension = x.shape[1]
        names = np.asarray(ids) if by_id else np.arange(count, count + len(x))
        nan, infinite = np.isnan(x).any(axis=1), np.isinf(x).any(axis=1)
        good = ~(nan | infinite)
        y = x[good].astype(np.float64)
        length = np.linalg.norm(y, axis=1)
        norms.append(length)
        rows["nan"].append(names[nan])
        rows["infinite"].append(names[infinite])
        rows["zero"].append(names[good][length == 0])
        rows["repeated"].append(names[good & vectors_seen.again(_row_keys(x))])
        if ids is not None:
            keys = np.array([hash(repr(name)) for name in np.asarray(ids).tolist()], dtype=np.int64)
            rows["ids"].append(np.asarray(ids)[ids_seen.again(keys.view(np.uint64))])
        if len(y):
            total = total + y.sum(axis=0)
            low, high = np.minimum(low, y.min(axis=0)), np.maximum(high, y.max(axis=0))
            if strangers is not None:
                rows["foreign"].append(names[good][strangers.find(y)])
        count += len(x)
    if not count:
        raise _checks.InvalidInput("embeddings has 0 rows; needs at least 1.")
    length = np.concatenate(norms)
    found = {
        name: np.concatenate([np.zeros(0, np.int64) if not part else part[0][:0], *part])
        for name, part in rows.items()
    }
    power = float(np.sqrt((length**2).mean())) if length.size else 0.0
    return Audit(
        n_rows=count,
        dimension=dimension,
        nan_rows=found["nan"],
        infinite_rows=found["infinite"],
        zero_rows=found["zero"],
        duplicate_rows=found["repeated"],
        duplicate_ids=np.unique(found["ids"]),
        constant_columns=np.flatnonzero(np.equal(low, high)) if len(length) > 1 else np.zeros(0, np.int64),
        foreign_rows=found["foreign"],
        expected_foreign=0.0 if strangers is None else strangers.false_alarms * len(length),
        mean_norm=float(np.linalg.norm(total / len(length)) / power) if power else float("nan"),
        norms=(float(length.min()), float(np.median(length)), float(length.max()))
        if length.size
        else (0.0,) * 3,
        looked_for=() if strangers is None else strangers.what,
    )


def strangers_to(space: RelativeSpace | None, source: str | None, *, unit: bool = False) -> Strangers | None:
    """Recognise vectors that are not of an encoder, by their whitened energy; None without a space.

    Parameters
    ----------
    space : RelativeSpace or None
    source : str or None
    unit : bool
        The vectors were divided by their norms; they are taken times the median fitted norm.

    Raises
    ------
    InvalidInput
        There is a space and `source` is no encoder of it.
    """
    if space is None:
        return None
    from latentlink.spaces.relative import known_space

    known_space(space)
    if source is None:
        raise _checks.InvalidInput(f"source is missing; needs one of {', '.join(map(repr, space.names))}.")
    _checks.one_of("source", source, space.names)
    factor = fitted_norm(space, source) if unit else 1.0
    whose = str(source)
    return Strangers(
        lambda x: foreign_rows(space, factor * x, source=whose, false_alarms=_FALSE_ALARMS),
        _FALSE_ALARMS,
        (f"other than {whose!r}",),
    )


def strangers_in_shared(space: RelativeSpace) -> Strangers | None:
    """Recognise unit vectors of the shared space that one encoder's map made of another encoder's vectors.

    Every mistake that the space can make by itself is tried on its probes: vectors of one encoder, encoded as those
    of another with as many columns. The discriminant between these and right vectors is kept with the threshold
    that 0.1 % of right ones pass. Vectors of encoders that the space does not know cannot be seen.

    Parameters
    ----------
    space : RelativeSpace

    Returns
    -------
    Strangers or None
        None when no two encoders have as many columns.
    """
    probes = {}
    for name in space.names:
        kept = space.encoders_[name].profile.probes
        probes[name] = kept[np.isfinite(kept).all(axis=1)]
    right = [normalize(space.encode(probes[name], source=name)) for name in space.names if len(probes[name])]
    if space.normalisation != "zscore":  # which the consensus is kept without
        right.append(normalize(space.consensus_.astype(np.float64)))
    home = np.concatenate(right)
    whitener = Whitener().fit(home)
    directions, limits, what = [], [], []
    for name in space.names:
        for other in space.names:
            same_columns = space.dimension(name) == space.dimension(other)
            if name == other or not same_columns or not len(probes[other]):
                continue
            wrong = normalize(space.encode(probes[other], source=name))
            direction = whitener.matrix_ @ (whitener.matrix_.T @ (wrong.mean(axis=0) - whitener.mean_))
            limit = np.quantile(home @ direction, 1 - _FALSE_ALARMS)
            caught = float((wrong @ direction > limit).mean())
            directions.append(direction)
            limits.append(limit)
            what.append(f"{other!r} taken for {name!r} ({caught:.0%} of its probes are caught)")
    if not what:
        return None
    w, at_most = np.stack(directions, axis=1), np.asarray(limits)
    return Strangers(lambda x: (x @ w > at_most).any(axis=1), _FALSE_ALARMS * len(what), tuple(what))


class _Seen:
    """Which 64-bit keys came before: sorted runs of doubling size, so that each key is sorted a few times only."""

    def __init__(self) -> None:
        self._runs: list[AnyArray] = []

    def again(self, keys: AnyArray) -> AnyArray:
        """Tell which keys (b,) came before, in this batch or an earlier one, and remember them."""
        fresh, first = np.unique(keys, return_index=True)
        again = np.ones(len(keys), dtype=bool)
        again[first] = False
        for run in self._runs:
            again |= run[np.minimum(np.searchsorted(run, keys), len(run) - 1)] == keys
        while self._runs and len(self._runs[-1]) <= len(fresh):
            fresh = np.union1d(self._runs.pop(), fresh)
        self._runs.append(fresh)
        return again


def _row_keys(x: AnyArray) -> AnyArray:
    """Hash rows (n, d) to 64 bits: two different rows of a million collide with a chance below one in a million."""
    words = np.ascontiguousarray(x + 0.0).view(np.uint32).astype(np.uint64)  # -0 becomes 0; (n, d) or (n, 2 d)
    odd = np.random.default_rng(0).integers(2**63, size=(2, words.shape[1]), dtype=np.uint64) * np.uint64(2)
    mixed = words * (odd[0] + np.uint64(1)) + odd[1]
    mixed ^= mixed >> np.uint64(32)
    mixed *= np.uint64(0x9E3779B97F4A7C15)
    return np.asarray(mixed.sum(axis=1, dtype=np.uint64))
