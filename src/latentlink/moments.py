"""Mean, covariance and cross-covariance in one pass, as plain sums that any number of workers can add.

All workers share one float32 shift, a rough mean. Products of shifted rows are taken in the type of the data
(float32 is enough once centred) and added up in float64, so states merge by addition.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from latentlink import _checks

FloatArray = np.ndarray[Any, np.dtype[np.floating[Any]]]


@dataclass
class Moments:
    """Sums over the vectors of one encoder, and a sample of items that every encoder draws alike.

    Make one by `empty` and `update`, or by `collect`.

    Attributes
    ----------
    space : str
        The encoder's name; states of different encoders do not merge.
    policy : {"none", "unit"}
        What was done to each vector before it was added: nothing, or division by its norm.
    shift : float32 array (d,)
        Subtracted before the sums.
    counts : int array (folds,)
    sums : array (folds, d)
        Of shifted vectors.
    products : array (folds, d, d)
        Of shifted vectors with themselves.
    support_size : int
        The sample keeps the items of the smallest hashes, at most this many.
    support_hashes, support_ids, support_vectors : arrays (s,), (s,), (s, d)

    Examples
    --------
    >>> x = np.random.default_rng(0).normal(size=(100, 2)) + 5.0
    >>> one = collect("a", [x])
    >>> two = merge([collect("a", [x[:30]], shift=one.shift), collect("a", [x[30:]], shift=one.shift)])
    >>> bool(np.allclose(one.covariance, two.covariance)), two.count
    (True, 100)
    """

    space: str
    policy: str
    shift: FloatArray
    counts: np.ndarray[Any, np.dtype[np.int64]]
    sums: FloatArray
    products: FloatArray
    support_size: int
    support_hashes: np.ndarray[Any, np.dtype[np.uint64]]
    support_ids: np.ndarray[Any, Any]
    support_vectors: FloatArray

    @classmethod
    def empty(
        cls, space: str, shift: Any, *, policy: str = "none", support_size: int = 0, n_folds: int = 1
    ) -> Moments:
        """Make a state of no vectors.

        Parameters
        ----------
        space : str
        shift : array (d,)
            A rough mean; all states to be merged need the same.
        policy : {"none", "unit"}
        support_size, n_folds : int
            Folds are drawn by the hash of an item's id, so every encoder puts an item into the same fold.
        """
        _checks.one_of("policy", policy, ["none", "unit"])
        folds = _checks.integer("n_folds", n_folds, low=1)
        start = _checks.numpy_vector("shift", shift, dtype=np.float32)
        d = start.size
        return cls(
            space,
            policy,
            start,
            np.zeros(folds, dtype=np.int64),
            np.zeros((folds, d)),
            np.zeros((folds, d, d)),
            _checks.integer("support_size", support_size),
            np.zeros(0, dtype=np.uint64),
            np.zeros(0, dtype=np.int64),
            np.zeros((0, d), dtype=np.float32),
        )

    def update(self, embeddings: Any, *, ids: Any = None) -> Moments:
        """Add vectors (n, d) and return the state itself.

        Parameters
        ----------
        embeddings : array (n, d)
        ids : array (n,), optional
            Needed for a support sample or folds.
        """
        x = _checks.numpy_matrix("embeddings", embeddings, columns=self.shift.size)
        x = _policed(self.policy, x)
        folds = self.counts.size
        if ids is None and (self.support_size or folds > 1):
            raise _checks.InvalidInput("ids is missing; a support sample and folds are drawn by id. Pass ids.")
        hashes = None if not (self.support_size or folds > 1) else hash_ids(ids)
        if hashes is not None and hashes.size != x.shape[0]:
            raise _checks.InvalidInput(f"ids has {hashes.size} values; needs {x.shape[0]}, one for each row.")
        centred = x - self.shift.astype(x.dtype)
        for fold in range(folds):
            part = centred if folds == 1 else centred[np.asarray(hashes) % np.uint64(folds) == fold]
            self.counts[fold] += part.shape[0]
            self.sums[fold] += part.sum(axis=0, dtype=np.float64)
            self.products[fold] += part.T @ part
        if self.support_size:
            self._sample(np.asarray(hashes), np.asarray(ids), x)
        return self

    @property
    def count(self) -> int:
        """Vectors added."""
        return int(self.counts.sum())

    @property
    def mean(self) -> FloatArray:
        """Mean (d,) of all vectors."""
        return np.asarray(self.shift + self.sums.sum(axis=0) / self._some(1))

    @property
    def covariance(self) -> FloatArray:
        """Unbiased covariance (d, d)."""
        n, s = self._some(2), self.sums.sum(axis=0)
        return np.asarray((self.products.sum(axis=0) - np.outer(s, s) / n) / (n - 1))

    def without(self, fold: int) -> Moments:
        """Return the sums over all folds but one; added up from the others, never by subtraction."""
        _checks.integer("fold", fold, low=0, high=self.counts.size - 1)
        kept = [i for i in range(self.counts.size) if i != fold]
        return Moments(
            self.space,
            self.policy,
            self.shift,
            self.counts[kept],
            self.sums[kept],
            self.products[kept],
            0,
            self.support_hashes[:0],
            self.support_ids[:0],
            self.support_vectors[:0],
        )

    def _some(self, least: int) -> int:
        if self.count < least:
            raise _checks.InvalidInput(f"the state of {self.space!r} holds {self.count} rows; needs {least}.")
        return self.count

    def _sample(self, hashes: Any, ids: np.ndarray[Any, Any], x: FloatArray) -> None:
        if self.support_hashes.size >= self.support_size:  # most rows fail this and cost nothing more
            small = hashes < self.support_hashes[-1]
            hashes, ids, x = hashes[small], ids[small], x[small]
        self.support_hashes, self.support_ids, self.support_vectors = _smallest(
            self.support_size,
            np.concatenate([self.support_hashes, hashes]),
            np.concatenate([self.support_ids, ids]) if self.support_ids.size else ids,
            np.concatenate([self.support_vectors, x.astype(np.float32)]),
        )


@dataclass
class CrossMoments:
    """Sums over pairs of vectors of two encoders.

    Attributes
    ----------
    spaces : tuple of two str
    shifts : tuple of two float32 arrays
    count : int
    sums : tuple of arrays (d,) and (e,)
    products : array (d, e)

    Examples
    --------
    >>> x = np.random.default_rng(0).normal(size=(100, 2))
    >>> cross = CrossMoments.empty(("a", "b"), (x[0], x[0])).update(x, x)
    >>> bool(np.allclose(cross.covariance, np.cov(x, rowvar=False)))
    True
    """

    spaces: tuple[str, str]
    shifts: tuple[FloatArray, FloatArray]
    count: int
    sums: tuple[FloatArray, FloatArray]
    products: FloatArray

    @classmethod
    def empty(cls, spaces: tuple[str, str], shifts: tuple[Any, Any]) -> CrossMoments:
        """Make a state of no pairs."""
        k = tuple(_checks.numpy_vector("shifts", shift, dtype=np.float32) for shift in shifts)
        first, second = np.zeros(k[0].size), np.zeros(k[1].size)
        return cls(spaces, (k[0], k[1]), 0, (first, second), np.zeros((k[0].size, k[1].size)))

    def update(self, first: Any, second: Any) -> CrossMoments:
        """Add paired rows (n, d) and (n, e) and return the state itself."""
        x = _checks.numpy_matrix("first", first, columns=self.shifts[0].size)
        y = _checks.numpy_matrix("second", second, columns=self.shifts[1].size)
        _checks.same_rows(first=x, second=y)
        x, y = x - self.shifts[0].astype(x.dtype), y - self.shifts[1].astype(y.dtype)
        self.count += x.shape[0]
        self.sums = (
            self.sums[0] + x.sum(axis=0, dtype=np.float64),
            self.sums[1] + y.sum(axis=0, dtype=np.float64),
        )
        self.products = self.products + x.T @ y
        return self

    @property
    def covariance(self) -> FloatArray:
        """Unbiased cross-covariance (d, e)."""
        if self.count < 2:
            raise _checks.InvalidInput(f"the state of {self.spaces} holds {self.count} pairs; needs 2.")
        centred = self.products - np.outer(self.sums[0], self.sums[1]) / self.count
        return np.asarray(centred / (self.count - 1))


def collect(
    space: str,
    batches: Iterable[Any],
    *,
    shift: Any = None,
    policy: str = "none",
    support_size: int = 0,
    n_folds: int = 1,
) -> Moments:
    """Gather the moments of batches: arrays (n, d), or pairs of an array and its ids.

    The mean of the first batch is the shift when none is given.
    """
    state = None
    _checks.one_of("policy", policy, ["none", "unit"])
    _checks.instance("batches", batches, Iterable, "an iterable of arrays (n, d)")
    for batch in batches:
        x, ids = batch if isinstance(batch, tuple) else (batch, None)
        if state is None:
            rough = _policed(policy, _checks.matrix("batches", x)).mean(axis=0) if shift is None else shift
            state = Moments.empty(space, rough, policy=policy, support_size=support_size, n_folds=n_folds)
        state.update(x, ids=ids)
    if state is None:
        raise _checks.InvalidInput("batches is empty; needs at least one array.")
    return state


def merge(states: Sequence[Moments]) -> Moments:
    """Add up states of one encoder, refusing those that were gathered differently.

    Raises
    ------
    InvalidInput
        The states differ in space, policy, shift, folds or support size.
    """
    states = _checks.sequence("states", states)
    if not states:
        raise _checks.InvalidInput("states is empty; needs at least one.")
    for state in states:
        _checks.instance("states", state, Moments, "Moments, as collect gathers them")
    first = states[0]
    for state in states[1:]:
        for what in ("space", "policy", "support_size"):
            if getattr(state, what) != getattr(first, what):
                raise _checks.InvalidInput(
                    f"states differ in {what}: {getattr(first, what)!r} and {getattr(state, what)!r}; "
                    "gather them alike."
                )
        if state.counts.size != first.counts.size or not np.array_equal(state.shift, first.shift):
            raise _checks.InvalidInput("states differ in shift or folds; give all workers the same shift.")
    support = _smallest(
        first.support_size,
        np.concatenate([state.support_hashes for state in states]),
        np.concatenate(
            [state.support_ids for state in states if state.support_ids.size] or [first.support_ids]
        ),
        np.concatenate([state.support_vectors for state in states]),
    )
    return Moments(
        first.space,
        first.policy,
        first.shift,
        np.sum([state.counts for state in states], axis=0),
        np.sum([state.sums for state in states], axis=0),
        np.sum([state.products for state in states], axis=0),
        first.support_size,
        *support,
    )


def hash_ids(ids: Any) -> np.ndarray[Any, np.dtype[np.uint64]]:
    """Hash the text of each id to 64 bits, the same on every machine; 7 and "7" are the same item."""
    values = np.asarray(ids).tolist()
    joined = b"".join(hashlib.blake2b(str(value).encode(), digest_size=8).digest() for value in values)
    return np.frombuffer(joined, dtype="<u8").astype(np.uint64)


def _policed(policy: str, x: FloatArray) -> FloatArray:
    if policy == "none":
        return x
    norms = np.linalg.norm(x, axis=1)
    _checks.nonzero_rows("embeddings", norms)
    return np.asarray(x / norms[:, None])


def _smallest(
    size: int, hashes: Any, ids: np.ndarray[Any, Any], x: FloatArray
) -> tuple[Any, np.ndarray[Any, Any], FloatArray]:
    order = np.argsort(hashes, kind="stable")[:size]
    return hashes[order], ids[order], x[order]
