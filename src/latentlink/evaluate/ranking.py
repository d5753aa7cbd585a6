"""Retrieval metrics of embeddings, from the order of similarities alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from latentlink import _checks
from latentlink._metrics import (
    FloatArray,
    IntArray,
    Interval,
    bootstrap_interval,
    ndcg_at,
    reciprocal_rank,
)
from latentlink.similarity import normalize

# Similarities held at a time: 25 million float32 are 100 MB.
_BLOCK_VALUES = 25_000_000


@dataclass(frozen=True, eq=False)
class Retrieval:
    """How early each query's relevant items come.

    Attributes
    ----------
    values : dict of str to array (n,)
        Per query: "hit@k" (is any relevant item among the first k), "recall@k" (which share of them is),
        "ndcg@k", and "mrr" (1 / rank of the first one).
    first_rank : int array (n,)
        Rank, from 1, of the first relevant item.
    """

    values: dict[str, FloatArray]
    first_rank: IntArray

    def mean(self, metric: str) -> float:
        """Return the mean over queries of one of `values`."""
        return float(self.values[_checks.one_of("metric", metric, self.values)].mean())

    def interval(self, metric: str, level: float = 0.95, *, seed: int = 0) -> Interval:
        """Return the bootstrap interval of that mean over queries."""
        values = self.values[_checks.one_of("metric", metric, self.values)]
        return bootstrap_interval(values, level=level, seed=seed)

    def record(self) -> dict[str, Any]:
        """Return means and intervals as plain values for JSON."""
        return {
            name: {"mean": self.mean(name), "interval": list(self.interval(name)), "n": int(values.size)}
            for name, values in self.values.items()
        }


def retrieval(
    queries: Any,
    corpus: Any,
    relevant: Any,
    *,
    ks: Sequence[int] = (1, 5, 10),
    similarity: str = "cosine",
    on_zero: str = "error",
) -> Retrieval:
    """Rank the corpus for each query and say how early its relevant items come.

    Parameters
    ----------
    queries, corpus : array or tensor (n, d), (m, d)
    relevant : int array (n,), or a sequence of n collections of corpus rows, or of n mappings row → gain
        One relevant row for each query; or several of gain 1; or several of gains > 0. Each query needs one.
    ks : sequence of int
        Depths, each at least 1.
    similarity : {"cosine", "dot"}
        Negative similarities are as good as positive ones: only their order counts. A tie counts against the
        search: among equal similarities, items of smaller gain are taken first.
    on_zero : {"error", "skip"}
        See `latentlink.normalize`; for cosine only.

    Returns
    -------
    Retrieval

    Notes
    -----
    Exact. Cost: n m d multiply-adds and n sorts of m numbers, in blocks of queries.

    Examples
    --------
    >>> corpus = np.array([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0]])
    >>> result = retrieval([[1.0, 0.2], [0.3, 1.0]], corpus, [1, 1], ks=(1, 2))
    >>> result.mean("hit@1"), result.mean("hit@2"), result.mean("mrr")
    (0.5, 1.0, 0.75)
    """
    q, c = (_checks.numpy_matrix(name, x) for name, x in [("queries", queries), ("corpus", corpus)])
    _checks.same_columns(queries=q, corpus=c)
    depths = [_checks.integer("ks", k, low=1) for k in _checks.sequence("ks", ks)]
    if not depths:
        raise _checks.InvalidInput("ks is empty; needs at least one depth.")
    gains = _gains(relevant, len(q), len(c))
    if _checks.one_of("similarity", similarity, ["cosine", "dot"]) == "cosine":
        q, c = normalize(q, on_zero=on_zero), normalize(c, on_zero=on_zero)
    step = max(1, _BLOCK_VALUES // len(c))
    ranked: list[tuple[IntArray, FloatArray]] = []
    for start in range(0, len(q), step):
        block = q[start : start + step] @ c.T  # (b, m)
        ranked.extend(_ranked(row, *gains[start + i]) for i, row in enumerate(block))
    return _measured(ranked, depths)


def _measured(ranked: list[tuple[IntArray, FloatArray]], depths: list[int]) -> Retrieval:
    first = np.array([ranks[0] for ranks, _ in ranked])
    values = {}
    for k in depths:
        found = np.array([float((ranks <= k).sum()) for ranks, _ in ranked])
        values[f"hit@{k}"] = (found > 0).astype(np.float64)
        values[f"recall@{k}"] = found / np.array([ranks.size for ranks, _ in ranked])
        values[f"ndcg@{k}"] = np.concatenate([ndcg_at(_places(*one, k), k) for one in ranked])
    values["mrr"] = reciprocal_rank(first)
    return Retrieval(values, first)


def _ranked(row: FloatArray, columns: IntArray, gains: FloatArray) -> tuple[IntArray, FloatArray]:
    """Rank the relevant `columns` in one row of similarities: ranks ascending, and their gains.

    Equal similarities: the irrelevant first, then the relevant by rising gain.
    """
    own = row[columns]  # (r,)
    order = np.lexsort((gains, -own))
    own, gains = own[order], gains[order]
    at_least = row.size - np.searchsorted(np.sort(row), own, side="left")  # corpus items at least as similar
    relevant_at_least = np.searchsorted(-own, -own, side="right")
    return at_least - relevant_at_least + np.arange(1, own.size + 1), gains


def _places(ranks: IntArray, gains: FloatArray, k: int) -> FloatArray:
    """Lay gains out by place for `ndcg_at`: the first k places, then all that came later (1, k + r)."""
    places = np.zeros((1, k + gains.size))
    shown = ranks <= k
    places[0, ranks[shown] - 1] = gains[shown]
    places[0, k + np.flatnonzero(~shown)] = gains[~shown]
    return places


def _gains(relevant: Any, n: int, m: int) -> list[tuple[IntArray, FloatArray]]:
    """Turn any form of `relevant` into (corpus rows, gains) for each query."""
    relevant = _checks.sequence("relevant", relevant)
    if len(relevant) != n:
        raise _checks.InvalidInput(f"relevant has {len(relevant)} entries; needs {n}, one for each query.")
    found = []
    for i, entry in enumerate(relevant):
        if isinstance(entry, Mapping):
            rows, gains = np.asarray(list(entry.keys())), np.asarray(list(entry.values()), dtype=np.float64)
        else:
            whole = entry if np.ndim(entry) == 0 and not isinstance(entry, (set, frozenset)) else list(entry)
            rows = np.unique(np.asarray(whole))
            gains = np.ones(rows.size)
        if rows.size == 0:
            raise _checks.InvalidInput(
                f"relevant of query {i} is empty; drop the query: it has no right answer."
            )
        if rows.dtype.kind not in "iu" or rows.min() < 0 or rows.max() >= m:
            raise _checks.InvalidInput(
                f"relevant of query {i} is {rows.tolist()}; needs corpus rows, whole numbers from 0 to {m - 1}."
            )
        if not (np.isfinite(gains).all() and (gains > 0).all()):
            raise _checks.InvalidInput(
                f"relevant of query {i} has a gain that is not > 0; leave such rows out."
            )
        found.append((rows.astype(np.int64), gains))
    return found
