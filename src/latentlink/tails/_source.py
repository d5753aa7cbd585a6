"""Similarities of queries to candidates, block by block, with non-candidates taken out and counted."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from latentlink import _checks
from latentlink._arrays import Array, like, namespace, to_numpy
from latentlink.similarity import normalize

# Similarities held at a time: 25 million float32 values are 100 MB.
_BLOCK_VALUES = 25_000_000
# Rounding of a float32 cosine; anything farther beyond the endpoint is a mistake of the caller.
_TOLERANCE = 1e-4

IntArray = np.ndarray[Any, np.dtype[np.int64]]


def drawn(n: int, n_queries: int | None, rng: np.random.Generator) -> IntArray:
    """Draw `n_queries` of n rows, in order; all of them where there are no more, or where None is asked for."""
    size = n if n_queries is None else _checks.integer("n_queries", n_queries, low=1)
    return np.arange(n) if size >= n else np.sort(rng.choice(n, size, replace=False))


@dataclass
class Source:
    """Similarities by blocks of queries, with non-candidates at −inf; counts what it leaves out."""

    queries: Array
    corpus: Array | None  # None: `queries` are rows of ready similarities
    rows: IntArray
    own: bool
    labels: tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]] | None
    excluded_columns: dict[int, IntArray]
    duplicate_above: float
    endpoint: float | None
    n_rows: int
    positives: int = 0
    duplicates: int = 0

    @classmethod
    def make(
        cls,
        embeddings: Array | None,
        corpus: Array | None,
        similarities: Array | None,
        similarity: str,
        same: Any,
        exclude: Any,
        duplicate_gap: float,
        endpoint: float | None,
        n_queries: int | None,
        seed: int,
    ) -> Source:
        _checks.one_of("similarity", similarity, ["cosine", "dot"])
        gap = _checks.number("duplicate_gap", duplicate_gap, low=0)
        if endpoint is not None:
            endpoint = _checks.number("endpoint", endpoint)
        if (embeddings is None) == (similarities is None):
            given = "neither" if embeddings is None else "both"
            raise _checks.InvalidInput(f"{given} of embeddings and similarities given; needs exactly one.")
        if similarities is not None:
            queries = _checks.matrix("similarities", similarities, finite=False)
            if corpus is not None:
                raise _checks.InvalidInput("corpus given with similarities; needs embeddings. Drop one.")
            candidates, width, own = None, int(queries.shape[1]), False
        else:
            queries = _checks.matrix("embeddings", embeddings, min_rows=1)
            own = corpus is None
            candidates = queries if corpus is None else _checks.matrix("corpus", corpus)
            if not own:
                _checks.same_kind(embeddings=queries, corpus=candidates)
                _checks.same_columns(embeddings=queries, corpus=candidates)
            if similarity == "cosine":
                queries = normalize(queries)
                candidates = queries if own else normalize(candidates)
            width = int(candidates.shape[0])
        n = int(queries.shape[0])
        return cls(
            queries=queries,
            corpus=candidates,
            rows=drawn(n, n_queries, _checks.generator(seed)),
            own=own,
            labels=_labels(same, n, width, own),
            excluded_columns=_columns_by_row(exclude, n, width),
            duplicate_above=np.inf if endpoint is None or gap == 0 else endpoint - gap,
            endpoint=endpoint,
            n_rows=n,
        )

    @property
    def width(self) -> int:
        return int(self.queries.shape[1] if self.corpus is None else self.corpus.shape[0])

    @property
    def n_candidates(self) -> int:
        return self.width - int(self.own)

    def blocks(self) -> Iterator[tuple[IntArray, Array, IntArray]]:
        """Yield (query rows (b,), similarities (b, m), candidates counted (b,))."""
        size = max(1, _BLOCK_VALUES // self.width)
        for start in range(0, self.rows.size, size):
            rows = self.rows[start : start + size]
            block = self._block(rows)
            yield rows, block, self._leave_out(rows, block)

    def _block(self, rows: IntArray) -> Array:
        picked = self.queries[like(rows, self.queries)]  # a copy: what follows writes into it
        return picked if self.corpus is None else picked @ self.corpus.T

    def _leave_out(self, rows: IntArray, block: Array) -> IntArray:
        xp = namespace(block)
        check_endpoint(block, self.endpoint)
        if self.own:
            block[like(np.arange(rows.size), block), like(rows, block)] = -np.inf
        if self.labels is not None or self.excluded_columns:
            positive = self._positives(rows)
            mask = like(positive, block) & (block > -np.inf)
            self.positives += int(xp.sum(xp.astype(mask, xp.int64)))
            block[mask] = -np.inf
        if np.isfinite(self.duplicate_above):
            mask = block > self.duplicate_above
            self.duplicates += int(xp.sum(xp.astype(mask, xp.int64)))
            block[mask] = -np.inf
        return np.asarray(to_numpy(xp.sum(xp.astype(block > -np.inf, xp.int64), axis=1)), dtype=np.int64)

    def _positives(self, rows: IntArray) -> np.ndarray[Any, np.dtype[np.bool_]]:
        if self.labels is None:
            mask = np.zeros((rows.size, self.width), dtype=bool)
        else:
            mask = self.labels[0][rows][:, None] == self.labels[1][None, :]
        for place, row in enumerate(rows.tolist()):
            if row in self.excluded_columns:
                mask[place, self.excluded_columns[row]] = True
        return mask


def check_endpoint(block: Array, endpoint: float | None) -> None:
    if endpoint is None:
        return
    xp = namespace(block)
    beyond = block > endpoint + _TOLERANCE
    if bool(xp.any(beyond)):
        raise _checks.InvalidInput(
            f"similarity {float(xp.max(block[beyond])):g} exceeds the endpoint {endpoint:g} beyond rounding "
            f"(tolerance {_TOLERANCE:g}); are the rows normalised? Similarities without a largest value need "
            "endpoint=None."
        )


def _labels(
    same: Any, n: int, width: int, own: bool
) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]] | None:
    if same is None:
        return None
    pair = same if isinstance(same, tuple) else (same, same)
    if len(pair) != 2:
        raise _checks.InvalidInput(
            f"same has {len(pair)} members; needs labels, or a pair: of the queries and of the candidates."
        )
    queries, candidates = to_numpy(pair[0]), to_numpy(pair[1])
    if queries.shape != (n,) or candidates.shape != (width,):
        both = f"({n},)" if own else f"a pair of shapes ({n},) and ({width},)"
        raise _checks.InvalidInput(
            f"same has shapes {queries.shape} and {candidates.shape}; needs {both}, one label for each row."
        )
    return queries, candidates


def _columns_by_row(exclude: Any, n: int, width: int) -> dict[int, IntArray]:
    if exclude is None:
        return {}
    pairs = to_numpy(exclude)
    if pairs.ndim != 2 or pairs.shape[1] != 2 or pairs.dtype.kind not in "iu":
        raise _checks.InvalidInput(
            f"exclude has shape {pairs.shape} and type {pairs.dtype}; "
            "needs whole numbers (p, 2): query row, candidate row."
        )
    if pairs.size and (pairs.min() < 0 or pairs[:, 0].max() >= n or pairs[:, 1].max() >= width):
        raise _checks.InvalidInput(f"exclude names a pair outside ({n}, {width}); needs rows from 0.")
    order = np.argsort(pairs[:, 0], kind="stable")
    rows, starts = np.unique(pairs[order, 0], return_index=True)
    groups = np.split(pairs[order, 1], starts[1:])
    return {int(row): columns for row, columns in zip(rows, groups, strict=True)}
