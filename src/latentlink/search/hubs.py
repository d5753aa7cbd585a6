"""Items that are near to everything, and searches that do not let them crowd out the right ones."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from latentlink.search.gate import FloatArray
from latentlink.similarity import hubness

_CANDIDATES = 64  # beside the k asked for


class Hubs:
    """The hubness of every item of an index, measured with vectors of a crowd of queries.

    Parameters
    ----------
    crowd : array (m, r)
        Unit rows in the index's coordinates.
    values : array (n,), optional
        Hubness of the items so far.
    """

    def __init__(self, crowd: FloatArray, values: FloatArray | None = None) -> None:
        self.crowd = crowd
        self.values = np.zeros(0, np.float32) if values is None else values

    def add(self, vectors: FloatArray) -> None:
        """Measure the next items, unit rows (b, r)."""
        found = hubness(vectors, self.crowd, skip_best=True).astype(np.float32)
        self.values = np.concatenate([self.values, found])

    def width(self, k: int) -> int:
        """Return how many candidates a search for k must look at."""
        return int(min(4 * k + _CANDIDATES, len(self.values)))

    def rank(self, similarities: FloatArray, rows: FloatArray, k: int) -> tuple[FloatArray, FloatArray]:
        """Return the k of the candidates (n, c) with the largest 2 similarity - hubness, best first."""
        order = np.argsort(self.values[rows] - 2 * similarities, axis=1, kind="stable")[:, :k]
        return np.take_along_axis(similarities, order, axis=1), np.take_along_axis(rows, order, axis=1)

    def write(self, folder: Path) -> None:
        """Write into a folder."""
        np.savez(folder / "hubs.npz", allow_pickle=False, crowd=self.crowd, values=self.values)

    @classmethod
    def read(cls, folder: Path) -> Hubs | None:
        """Read what `write` wrote, or None."""
        if not (folder / "hubs.npz").exists():
            return None
        with np.load(folder / "hubs.npz", allow_pickle=False) as file:
            return cls(file["crowd"], file["values"])
