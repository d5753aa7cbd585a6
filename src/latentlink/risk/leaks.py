"""Pairs that are also in the pool: found by id or as exact duplicates, and refused by name."""

from __future__ import annotations

from typing import Any

import numpy as np

from latentlink import _checks
from latentlink.risk._measure import _CHUNK_ROWS, Vectors

BoolArray = np.ndarray[Any, np.dtype[np.bool_]]


def leaked_rows(
    pool: Vectors, pairs: list[Vectors], *, pool_ids: Any = None, pair_ids: Any = None
) -> tuple[BoolArray, str]:
    """Find the pool rows that are also in the pairs.

    Parameters
    ----------
    pool : Vectors
    pairs : list of Vectors
        Both sides of the pairs.
    pool_ids, pair_ids : array, optional
        Names of the pool's rows and of the pairs; both or none.

    Returns
    -------
    leaked : bool array (N,)
    message : str
        What was found first, in words; empty when nothing leaked.
    """
    leaked = np.zeros(pool.n, dtype=bool)
    message = ""
    if (pool_ids is None) != (pair_ids is None):
        have, lack = ("pool_ids", "pair_ids") if pair_ids is None else ("pair_ids", "pool_ids")
        raise _checks.InvalidInput(f"{have} is given without {lack}; needs both, or none.")
    if pool_ids is not None:
        names = _checks.unique_ids("pool_ids", pool_ids, rows=pool.n)
        wanted = np.asarray(pair_ids)
        if wanted.ndim not in (1, 2) or wanted.shape[0] != pairs[0].n:
            raise _checks.InvalidInput(
                f"pair_ids has shape {wanted.shape}; needs ({pairs[0].n},) or ({pairs[0].n}, 2)."
            )
        leaked = np.isin(names, wanted)
        if leaked.any():
            first = int(np.flatnonzero(leaked)[0])
            message = f"id {names[first]!s} (row {first}) of the pool is also among the pairs"
    codes = _codes(pool)
    for side in pairs:
        own = _codes(side)
        for row in np.flatnonzero(np.isin(codes, own)):
            same = np.flatnonzero(own == codes[row])
            twins = side.rows[same] == pool.rows[row]
            if not twins.all(axis=1).any():
                continue
            leaked[row] = True
            if not message:
                twin = int(same[twins.all(axis=1)][0])
                message = f"row {row} of the pool is an exact duplicate of row {twin} of {side.name}"
    return leaked, message


def _codes(vectors: Vectors) -> np.ndarray[Any, np.dtype[np.uint64]]:
    """Hash the rows: equal rows have equal codes; different rows nearly always different ones."""
    weights = np.random.default_rng(0).integers(
        1, 2**63, size=vectors.rows.shape[1], dtype=np.uint64
    ) | np.uint64(1)
    codes = np.empty(vectors.n, dtype=np.uint64)
    for start in range(0, vectors.n, _CHUNK_ROWS):
        chunk = np.asarray(vectors.rows[start : start + _CHUNK_ROWS], dtype=np.float64) + 0.0  # −0 becomes 0
        codes[start : start + _CHUNK_ROWS] = (chunk.view(np.uint64) * weights).sum(axis=1, dtype=np.uint64)
    return codes
