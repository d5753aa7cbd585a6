"""Semantic textual similarity: whether similarities of sentence pairs rise with what people say."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from latentlink import _checks
from latentlink._arrays import to_numpy
from latentlink._metrics import FloatArray, Interval
from latentlink.similarity import normalize


@dataclass(frozen=True, eq=False)
class Agreement:
    """Rank agreement of similarities with given scores.

    Attributes
    ----------
    spearman : float
        Rank correlation in [−1, 1], ties by average ranks.
    similarities, scores : array (n,)
        Of each pair.
    """

    spearman: float
    similarities: FloatArray
    scores: FloatArray

    def interval(self, level: float = 0.95, *, n_resamples: int = 1000, seed: int = 0) -> Interval:
        """Return the percentile bootstrap interval over pairs."""
        rng = np.random.default_rng(seed)
        n = self.scores.size
        draws = [
            spearman(self.similarities[rows], self.scores[rows])
            for rows in rng.integers(0, n, size=(n_resamples, n))
        ]
        low, high = np.nanquantile(draws, [(1 - level) / 2, (1 + level) / 2])
        return Interval(float(low), float(high))

    def record(self) -> dict[str, Any]:
        """Return the result as plain values for JSON."""
        return {"spearman": self.spearman, "interval": list(self.interval()), "n": int(self.scores.size)}


def sts_spearman(a: Any, b: Any, scores: Any, *, on_zero: str = "error") -> Agreement:
    """Correlate the cosines of sentence pairs with their scores by rank.

    Parameters
    ----------
    a, b : array or tensor (n, d)
        Embeddings of the first and the second sentence of each pair.
    scores : array (n,)
        Larger means closer in meaning, on any scale.
    on_zero : {"error", "skip"}
        What to do with an embedding of norm 0; "skip" gives its pair the cosine 0.

    Returns
    -------
    Agreement
        With `spearman` and `interval(level)`.

    Raises
    ------
    InvalidInput
        All scores are equal, or all cosines: a correlation is then undefined.

    References
    ----------
    Reimers et al. 2016, "Task-Oriented Intrinsic Evaluation of Semantic Textual Similarity" (why by rank).

    Examples
    --------
    >>> a = np.array([[1.0, 0.0], [1.0, 0.0], [1.0, 0.0]])
    >>> b = np.array([[0.9, 0.1], [0.5, 0.5], [0.0, 1.0]])
    >>> sts_spearman(a, b, [5.0, 2.0, 1.0]).spearman
    1.0
    """
    x, y = _checks.matrix("a", a, min_rows=3), _checks.matrix("b", b)
    _checks.same_rows(a=x, b=y)
    _checks.same_columns(a=x, b=y)
    given = _checks.numpy_vector("scores", scores, length=int(x.shape[0])).astype(np.float64)
    x, y = (to_numpy(normalize(side, on_zero=on_zero)) for side in (x, y))
    cosines = np.einsum("nd,nd->n", x, y).astype(np.float64)
    for name, values in [("scores", given), ("the cosines of a and b", cosines)]:
        if np.ptp(values) == 0:
            verb = "is" if name == "scores" else "are"
            raise _checks.InvalidInput(
                f"{name} {verb} {values[0]:g} for every pair; a correlation is undefined."
            )
    return Agreement(spearman(cosines, given), cosines, given)


def spearman(x: FloatArray, y: FloatArray) -> float:
    """Compute the rank correlation of two (n,) arrays, ties by average ranks; NaN when one is constant.

    >>> spearman(np.array([1.0, 2.0, 3.0]), np.array([1.0, 4.0, 2.0]))
    0.5
    """
    from scipy.stats import rankdata

    ranks = rankdata(np.stack([x, y]), axis=1)
    ranks -= ranks.mean(axis=1, keepdims=True)
    with np.errstate(invalid="ignore"):
        return float(ranks[0] @ ranks[1] / np.sqrt((ranks[0] @ ranks[0]) * (ranks[1] @ ranks[1])))
