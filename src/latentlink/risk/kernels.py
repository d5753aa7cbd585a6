"""The softmax search kernel, its empirical version, and what a search costs on a corpus of any size.

An encoder with a link is a random search: candidate y is chosen with probability proportional to
exp(logit(x, y)) under the data law. Its empirical version chooses among the points at hand.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from latentlink import _checks
from latentlink.links import Link, known_link
from latentlink.risk._measure import Vectors, against_pool, check_pairs, similarity_blocks
from latentlink.risk.estimators import FloatArray
from latentlink.risk.expansion import bias_curve, ruled_from


class SearchCost(NamedTuple):
    """Cross-entropy of a search on a corpus of a given size, a bound on its error, and whether 1/k rules there."""

    value: float
    bound: float
    trusted: bool


def search_kernel(queries: Any, pool: Any, *, link: Link) -> FloatArray:
    """Compute the empirical search kernel: the probability that each query's search returns each candidate.

    Parameters
    ----------
    queries : array or tensor (n, d)
    pool : array or tensor (N, d)
    link : Link

    Returns
    -------
    array (n, N)
        Rows sum to 1. N times it estimates the density of the search law relative to the data law.

    Notes
    -----
    Memory: the whole (n, N) matrix; `certify` needs none of it.

    Examples
    --------
    >>> search_kernel(np.eye(2), np.eye(2), link=Link.softmax(1.0)).round(3)
    array([[0.731, 0.269],
           [0.269, 0.731]])
    """
    known_link(link)
    q, candidates = Vectors.of("queries", queries), Vectors.of("pool", pool)
    _checks.same_columns(queries=q.rows, pool=candidates.rows)
    parts = []
    for _, block in similarity_blocks(q, candidates, show=False):
        logits = np.asarray(link.logits(block))
        weights = np.exp(logits - logits.max(axis=1, keepdims=True))
        parts.append(weights / weights.sum(axis=1, keepdims=True))
    return np.concatenate(parts)


def search_cross_entropies(queries: Any, positives: Any, pool: Any, *, link: Link) -> FloatArray:
    """Compute what the search of each query costs on the corpus of the pool and its own positive.

    Parameters
    ----------
    queries, positives : array or tensor (n, d)
    pool : array, memory map or tensor (k, d)
    link : Link

    Returns
    -------
    array (n,)
        −log((k + 1) Q(positive)), nats relative to a blind choice among the k + 1 points. Its mean is an
        unbiased estimate of the cross-entropy of searching k + 1 unseen points: InfoNCE with k negatives less
        log(k + 1) *is* that number, without error of order 1/k.

    Notes
    -----
    In blocks; a million candidates need no more memory than a thousand.

    Examples
    --------
    >>> search_cross_entropies(np.eye(2), np.eye(2), -np.eye(2), link=Link.softmax(1.0)).round(3)
    array([-0.691, -0.691])
    """
    known_link(link)
    q, p = check_pairs(queries, positives)
    candidates = Vectors.of("pool", pool)
    _checks.same_columns(queries=q.rows, pool=candidates.rows)
    rows = against_pool(q, p, candidates, link).rows
    return np.asarray(rows.loss_inside - np.log(rows.n_negatives + 1))


def extrapolate_corpus(
    cost: float, n_negatives: int, corpus: int, *, variance: Any, ratio: Any, temperature: float | None = None
) -> SearchCost:
    """Carry the cost of searching k + 1 points over to a corpus of another size.

    Parameters
    ----------
    cost : float
        Mean of `search_cross_entropies` at k = `n_negatives`.
    n_negatives : int
    corpus : int
        Number of points m ≥ 2 of the other corpus, the positive among them.
    variance, ratio : array (n,)
        V and r of each query (`RowStatistics.variance`, `.ratio`).
    temperature : float, optional
        Of a softmax of cosines, for the universal bound e^(2/τ)(1/k + 1/(m − 1)); without it the bound is inf.

    Returns
    -------
    SearchCost
        `trusted` is False where 1/k is not the leading law at either size.

    Examples
    --------
    >>> value, bound, _ = extrapolate_corpus(-1.02848, 31, 1024, variance=[2.2], ratio=[2.2], temperature=0.2)
    >>> value < -1.02848, bound > 100
    (True, True)
    """
    measured = _checks.number("cost", cost)
    k = _checks.integer("n_negatives", n_negatives, low=1)
    m = _checks.integer("corpus", corpus, low=2)
    v = _checks.numpy_vector("variance", variance, dtype=np.float64)
    r = _checks.numpy_vector("ratio", ratio, length=v.size, dtype=np.float64)
    there, here = bias_curve(v, r, np.array([m - 1.0, float(k)]), variant="corpus")
    bound = np.inf
    if temperature is not None:
        tau = _checks.number("temperature", temperature, low=0, open_low=True)
        bound = 0.0 if m == k + 1 else float(np.exp(min(2 / tau, 700.0))) * (1 / k + 1 / (m - 1))
    trusted = min(k, m - 1) >= ruled_from(v, r, variant="corpus")
    return SearchCost(float(measured + there - here), bound, trusted)


def self_normalised_error(temperature: float, chi2: float, corpus: int) -> float:
    """Bound the error of the ideal kernel with self-normalised weights ρ_i / Σρ on m points.

    Parameters
    ----------
    temperature : float
        τ > 0 of a softmax of cosines.
    chi2 : float
        Mean over queries of χ²(positive law ‖ data law), ≥ 0: finite only when positives spread over the data
        law. For augmentations of one item it is not; use `search_cross_entropies` then.
    corpus : int
        m ≥ 1.

    Returns
    -------
    float
        (2/(τm))(4χ² + 1), nats, beside the "outside" bias at m. About 70 times too large in our small worlds.

    Examples
    --------
    >>> round(self_normalised_error(0.5, 4.0, 256), 3)
    0.266
    """
    tau = _checks.number("temperature", temperature, low=0, open_low=True)
    spread = _checks.number("chi2", chi2, low=0)
    return 2 / (tau * _checks.integer("corpus", corpus, low=1)) * (4 * spread + 1)
