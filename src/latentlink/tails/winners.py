"""Make choice sets from embeddings: who was there, and who won.

Two events are used. A query's own positive among other items is the event that InfoNCE models; it also measures
how different positives are from negatives. The best of the same negatives under an independent second view of
the query is about the tail alone.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from latentlink import _checks
from latentlink._arrays import Array
from latentlink.similarity import normalize
from latentlink.tails._source import drawn

FloatArray = np.ndarray[Any, np.dtype[np.float64]]


class ChoiceSets(NamedTuple):
    """Similarities (n, m) of candidates and the column (n,) of the winner, for `choose_link`."""

    similarities: FloatArray
    winners: np.ndarray[Any, np.dtype[np.int64]]


def positive_choices(
    queries: Array, positives: Array, *, n_negatives: int = 255, n_queries: int | None = 4000, seed: int = 0
) -> ChoiceSets:
    """Let each query's positive win against positives of other queries.

    Parameters
    ----------
    queries, positives : array or tensor (n, d)
        Row i belongs to row i.
    n_negatives : int
        Drawn for each query without replacement from the other positives; fewer when there are not so many.
    n_queries : int or None
    seed : int

    Returns
    -------
    ChoiceSets
        Of (n_queries, n_negatives + 1); the winner is column 0.

    Examples
    --------
    >>> x = np.random.default_rng(0).normal(size=(50, 8))
    >>> positive_choices(x, x + 0.1, n_negatives=20).similarities.shape
    (50, 21)
    """
    q, p = _units(queries, positives)
    _checks.same_rows(queries=q, positives=p)
    n = q.shape[0]
    if n < 3:
        raise _checks.InvalidInput(f"queries has {n} rows; needs at least 3.")
    rng = _checks.generator(seed)
    rows = drawn(n, n_queries, rng)
    size = min(_checks.integer("n_negatives", n_negatives, low=1), n - 1)
    s = q[rows] @ p.T  # (b, n)
    others = np.argpartition(rng.random((rows.size, n - 1)), size - 1, axis=1)[:, :size]
    others += others >= rows[:, None]  # skip the query's own positive
    own = s[np.arange(rows.size), rows][:, None]
    return ChoiceSets(
        np.concatenate([own, np.take_along_axis(s, others, axis=1)], axis=1),
        np.zeros(rows.size, dtype=np.int64),
    )


def view_choices(
    queries: Array,
    second_view: Array,
    corpus: Array,
    *,
    n_candidates: int = 64,
    exclude: Any = None,
    n_queries: int | None = 4000,
    seed: int = 0,
) -> ChoiceSets:
    """Let the candidate that a second view of the query likes best win, among those the first view likes best.

    Parameters
    ----------
    queries, second_view : array or tensor (n, d)
        Two views of the same items.
    corpus : array or tensor (m, d)
    n_candidates : int
        The most similar ones under the first view.
    exclude : int array (n,), optional
        Corpus row of each query's own item, which is no candidate.
    n_queries, seed
        As in `positive_choices`.

    Returns
    -------
    ChoiceSets
        Similarities under the first view.
    """
    q, c = _units(queries, corpus)
    v, _ = _units(second_view, corpus)
    _checks.same_rows(queries=q, second_view=v)
    rows = drawn(q.shape[0], n_queries, _checks.generator(seed))
    size = _checks.integer("n_candidates", n_candidates, low=2, high=c.shape[0] - 1)
    first, second = q[rows] @ c.T, v[rows] @ c.T
    if exclude is not None:
        own = np.asarray(exclude)
        if own.shape != (q.shape[0],) or own.dtype.kind not in "iu" or own.min() < 0 or own.max() >= c.shape[0]:
            raise _checks.InvalidInput(
                f"exclude has shape {own.shape} of {own.dtype}; needs ({q.shape[0]},) rows of the corpus, from 0 "
                f"to {c.shape[0] - 1}."
            )
        first[np.arange(rows.size), own[rows]] = -np.inf
    top = np.argpartition(first, -size, axis=1)[:, -size:]
    return ChoiceSets(
        np.take_along_axis(first, top, axis=1), np.take_along_axis(second, top, axis=1).argmax(axis=1)
    )


def _units(queries: Array, others: Array) -> tuple[FloatArray, FloatArray]:
    q, c = _checks.numpy_matrix("queries", queries), _checks.numpy_matrix("corpus", others)
    _checks.same_columns(queries=q, corpus=c)
    return normalize(np.asarray(q, dtype=np.float64)), normalize(np.asarray(c, dtype=np.float64))
