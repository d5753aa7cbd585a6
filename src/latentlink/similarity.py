"""Compare vectors: normalised rows, cosine, inner product, and exact top-k without the full matrix."""

from __future__ import annotations

from typing import Any

import numpy as np

from latentlink import _checks
from latentlink._arrays import Array, is_tensor, namespace

# Rows of queries compared at a time: 256 x 100,000 float32 similarities are 100 MB.
_BLOCK_VALUES = 25_000_000


def normalize(embeddings: Array, *, on_zero: str = "error") -> Array:
    """Divide each row by its Euclidean norm.

    Parameters
    ----------
    embeddings : array or tensor (n, d)
        Finite rows.
    on_zero : {"error", "skip"}
        What to do with a row of norm 0, whose direction is undefined: refuse it, or leave it zero (its
        similarity to everything is then 0).

    Returns
    -------
    array or tensor (n, d)
        Rows of norm 1, in the kind and floating type of the input.

    Raises
    ------
    InvalidInput
        A row is not finite, or has norm 0 under ``on_zero="error"``.

    Notes
    -----
    Each row is first divided by its largest absolute value, so neither 1e-30 nor 1e30 under- or overflows.

    Examples
    --------
    >>> normalize(np.array([[3.0, 4.0]]))
    array([[0.6, 0.8]])
    """
    x = _checks.matrix("embeddings", embeddings)
    _checks.one_of("on_zero", on_zero, ["error", "skip"])
    return _unit_rows(x, name="embeddings", on_zero=on_zero)


def cosine(queries: Array, corpus: Array, *, on_zero: str = "error") -> Array:
    """Compute all cosine similarities.

    Parameters
    ----------
    queries : array or tensor (n, d)
    corpus : array or tensor (m, d)
    on_zero : {"error", "skip"}
        See `normalize`.

    Returns
    -------
    array or tensor (n, m)
        In [-1, 1] up to rounding; larger is closer.

    Examples
    --------
    >>> cosine(np.array([[1.0, 0.0]]), np.array([[2.0, 0.0], [0.0, 1.0], [-1.0, 0.0]]))
    array([[ 1.,  0., -1.]])
    """
    q, c = _pair(queries, corpus)
    _checks.one_of("on_zero", on_zero, ["error", "skip"])
    q = _unit_rows(q, name="queries", on_zero=on_zero)
    return q @ _unit_rows(c, name="corpus", on_zero=on_zero).T


def dot(queries: Array, corpus: Array) -> Array:
    """Compute all inner products.

    Parameters
    ----------
    queries : array or tensor (n, d)
    corpus : array or tensor (m, d)

    Returns
    -------
    array or tensor (n, m)

    Examples
    --------
    >>> dot(np.array([[1.0, 2.0]]), np.array([[3.0, 4.0]]))
    array([[11.]])
    """
    q, c = _pair(queries, corpus)
    return q @ c.T


def top_k(
    queries: Array,
    corpus: Array,
    k: int,
    *,
    similarity: str = "cosine",
    exclude_self: bool = False,
    on_zero: str = "error",
) -> tuple[Array, Array]:
    """Find the k most similar corpus rows of each query, exactly and in blocks.

    Parameters
    ----------
    queries : array or tensor (n, d)
    corpus : array or tensor (m, d)
    k : int
        From 1 to m (to m - 1 with `exclude_self`).
    similarity : {"cosine", "dot"}
    exclude_self : bool
        Skip corpus row i for query i, for a set searched against itself.
    on_zero : {"error", "skip"}
        See `normalize`; for cosine only.

    Returns
    -------
    similarities, rows : (n, k) each
        Sorted by decreasing similarity; equal similarities in order of corpus row.

    Notes
    -----
    Cost: n m d multiply-adds; memory: at most 25 million similarities at a time.

    Examples
    --------
    >>> corpus = np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
    >>> top_k(np.array([[1.0, 0.1]]), corpus, k=2)[1]
    array([[0, 2]])
    """
    q, c = _pair(queries, corpus)
    _checks.one_of("similarity", similarity, ["cosine", "dot"])
    _checks.one_of("on_zero", on_zero, ["error", "skip"])
    _checks.flag("exclude_self", exclude_self)
    k = _checks.integer("k", k, low=1, high=int(c.shape[0]) - int(exclude_self))
    if similarity == "cosine":
        q = _unit_rows(q, name="queries", on_zero=on_zero)
        c = _unit_rows(c, name="corpus", on_zero=on_zero)
    rows = max(1, _BLOCK_VALUES // int(c.shape[0]))
    parts = []
    for start in range(0, int(q.shape[0]), rows):
        block = q[start : start + rows] @ c.T  # (b, m)
        if exclude_self:
            span = range(int(block.shape[0]))
            block[list(span), [start + i for i in span]] = -np.inf
        parts.append(_largest(block, k))
    xp = namespace(q)
    return xp.concat([values for values, _ in parts]), xp.concat([rows for _, rows in parts])


def hubness(items: Array, crowd: Array, *, k: int = 10, skip_best: bool = False) -> Array:
    """Measure how near each item is to a crowd of queries: the mean inner product with its k nearest of them.

    Ranking by 2 similarity - hubness keeps items that are near to everything from crowding out the right ones
    (CSLS, whose term of the query is the same for all items).

    Parameters
    ----------
    items : array or tensor (n, d)
        Rows of length 1 for cosine.
    crowd : array or tensor (m, d)
    k : int
        All of the crowd when it has fewer.
    skip_best : bool
        Leave each item's nearest out of its k: it may be the item itself, which says nothing of other queries.

    Returns
    -------
    array or tensor (n,)

    Notes
    -----
    Cost: n m d multiply-adds.

    References
    ----------
    Conneau et al. 2018, Word translation without parallel data (ICLR).

    Examples
    --------
    >>> hubness(np.array([[1.0, 0.0], [0.0, 1.0]]), np.array([[1.0, 0.0], [0.8, 0.6]]), k=1)
    array([1. , 0.6])
    """
    crowd = _checks.matrix("crowd", crowd)
    _checks.flag("skip_best", skip_best)
    first = int(skip_best)
    values, _ = top_k(items, crowd, min(_checks.integer("k", k, low=1) + first, len(crowd)), similarity="dot")
    return values[:, min(first, len(crowd) - 1) :].mean(axis=1)


def _pair(queries: Array, corpus: Array) -> tuple[Array, Array]:
    q = _checks.matrix("queries", queries)
    c = _checks.matrix("corpus", corpus)
    _checks.same_kind(queries=q, corpus=c)
    _checks.same_columns(queries=q, corpus=c)
    return q, c


def _unit_rows(x: Array, *, name: str, on_zero: str) -> Array:
    xp = namespace(x)
    largest = xp.max(xp.abs(x), axis=1, keepdims=True)  # (n, 1)
    if on_zero == "error":
        _checks.nonzero_rows(name, largest[:, 0])
    safe = xp.where(largest > 0, largest, xp.ones_like(largest))
    x = x / safe
    norm = xp.sqrt(xp.sum(x * x, axis=1, keepdims=True))  # (n, 1), in [1, sqrt d] for nonzero rows
    return x / xp.where(norm > 0, norm, xp.ones_like(norm))


def _largest(block: Array, k: int) -> tuple[Array, Array]:
    """Take the k largest of each row, ties in column order: (b, m) to (b, k) twice."""
    if is_tensor(block):
        values, rows = block.topk(k, dim=1)
        rows, order = rows.sort(dim=1)  # column order first, then a stable sort by value
        values = values.gather(1, order)
        values, order = values.sort(dim=1, descending=True, stable=True)
        return values, rows.gather(1, order)
    m = block.shape[1]
    rows = np.sort(np.argpartition(block, m - k, axis=1)[:, m - k :], axis=1)
    values = np.take_along_axis(block, rows, axis=1)
    order = np.argsort(-values, axis=1, kind="stable")
    return np.take_along_axis(values, order, axis=1), np.take_along_axis(rows, order, axis=1)


def pairwise_similarity(a: Array, b: Array) -> Any:
    """Compute the cosine similarity of each row of `a` with the same row of `b`.

    Parameters
    ----------
    a, b : array or tensor (n, d)

    Returns
    -------
    array or tensor (n,)

    Examples
    --------
    >>> pairwise_similarity(np.array([[1.0, 0.0]]), np.array([[0.0, 2.0]]))
    array([0.])
    """
    x = _checks.matrix("a", a)
    y = _checks.matrix("b", b)
    _checks.same_kind(a=x, b=y)
    _checks.same_rows(a=x, b=y)
    _checks.same_columns(a=x, b=y)
    xp = namespace(x)
    x, y = _unit_rows(x, name="a", on_zero="error"), _unit_rows(y, name="b", on_zero="error")
    return xp.sum(x * y, axis=1)
