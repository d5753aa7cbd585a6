"""Choose anchors: one row-stochastic matrix P over shared items, the same for every encoder.

The anchors of encoder i are P X_i, weighted means of its own vectors of the shared items, so the r-th anchor
means the same thing in every space. All choices look at vectors in *frame* coordinates Z_i (centred and, for
the whitened similarities, whitened); the rows of every P sum to 1, so P Z_i are the anchors in that frame.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from latentlink import _checks

FloatArray = np.ndarray[Any, np.dtype[np.floating[Any]]]


def random_anchors(n_items: int, n_anchors: int, *, seed: int = 0) -> Any:
    """Draw `n_anchors` distinct items: a sparse one-hot P (k, m).

    >>> random_anchors(5, 2).toarray().sum(axis=1)
    array([1., 1.])
    """
    _enough(n_items, n_anchors)
    return one_hot(np.random.default_rng(seed).choice(n_items, n_anchors, replace=False), n_items)


def farthest_anchors(frames: Sequence[FloatArray], n_anchors: int, *, seed: int = 0) -> Any:
    """Pick items one by one, each farthest from those picked: a sparse one-hot P (k, m).

    Parameters
    ----------
    frames : sequence of (m, d_i) arrays
        Distances add over encoders, each divided by its dimension. Cost: k m sum(d_i).

    References
    ----------
    Gonzalez 1985, Theoretical Computer Science 38.
    """
    together = _together(frames)  # (m, sum d_i)
    _enough(together.shape[0], n_anchors)
    norms = (together**2).sum(axis=1)
    picked = [int(np.random.default_rng(seed).integers(together.shape[0]))]
    nearest = np.full(together.shape[0], np.inf)
    for _ in range(n_anchors - 1):
        last = picked[-1]
        nearest = np.minimum(nearest, norms + norms[last] - 2 * together @ together[last])
        nearest[picked] = -np.inf
        picked.append(int(nearest.argmax()))
    return one_hot(np.asarray(picked), together.shape[0])


def kmeans_anchors(frames: Sequence[FloatArray], n_anchors: int, *, seed: int = 0) -> Any:
    """Average the items of each k-means cluster of all encoders' frames together: a sparse P (k, m)."""
    together = _together(frames).astype(np.float32)
    _enough(together.shape[0], n_anchors)
    labels = cluster(together, n_anchors, seed=seed)
    counts = np.bincount(labels, minlength=n_anchors)
    from scipy.sparse import csr_array

    m = together.shape[0]
    return csr_array((1.0 / counts[labels], (labels, np.arange(m))), shape=(n_anchors, m))


def gcca_anchors(
    frames: Sequence[FloatArray],
    n_anchors: int,
    *,
    weight: float = 1.0,
    places: Sequence[np.ndarray[Any, Any]] | None = None,
) -> FloatArray:
    """Find the anchors on which all encoders agree most, in closed form: a dense P (k, m).

    Parameters
    ----------
    frames : sequence of (m, d_i) arrays
        Whitened vectors of the same items, one array for each encoder.
    n_anchors : int
        At most the rank of the stacked frames.
    weight : float
        A relative coordinate weighs as its agreement to this power. The agreement is its eigenvalue minus 1:
        0 where encoders are unrelated, their number minus 1 where they agree fully.
    places : sequence of int arrays (m_i,), optional
        Which items each encoder has seen; frames are then as `latentlink.spaces.missing.balanced` makes them.

    Notes
    -----
    MAXVAR generalised canonical correlation: the leading eigenvectors v of S'S, S the horizontally stacked
    frames, give the shared coordinates g = S v. Under the whitened inner product only P − 1/m matters, so
    P = 1/m + eps g' with eps small enough for P >= 0 is a row-stochastic matrix whose relative coordinates are
    the canonical ones. Cost: m D² + D³ with D = sum(d_i), or m² D + m³ when m < D.

    With `places` each encoder predicts g on the items it has seen only, and an item weighs as the number c of
    encoders that have seen it: the solutions of ``sum_i H_i g = lambda diag(c) g``, H_i the regression on
    encoder i, constant included. Eigenvalues are brought to the scale of the complete problem by the mean
    number of encoders that a seen row has.

    References
    ----------
    Kettenring 1971, Biometrika 58 (MAXVAR); van de Velden and Takane 2012, Computational Statistics 27 (missing
    rows, after Carroll).
    """
    m = frames[0].shape[0]
    root: FloatArray = np.ones(m)
    if places is None or all(seen.size == m for seen in places):
        stacked = np.hstack([frame - frame.mean(axis=0) for frame in frames])  # (m, D)
    else:
        stacked, root = _with_gaps(frames, places)
    width = sum(frame.shape[1] for frame in frames)
    eigenvalues, shared = _leading(stacked, n_anchors)
    if eigenvalues.size < n_anchors:
        raise _checks.InvalidInput(
            f"n_anchors is {n_anchors} but {m} shared items of {width} columns in all span only "
            f"{eigenvalues.size} directions; lower n_anchors or add items."
        )
    agreement = np.maximum(eigenvalues - 1, 1e-6) ** weight  # (k,)
    deviation = shared * agreement / np.sqrt(eigenvalues) / root[:, None]  # (m, k); S'g = sqrt(eigenvalue) v
    deviation -= deviation.mean(axis=0)
    return row_stochastic(deviation.T)


def row_stochastic(deviation: FloatArray) -> FloatArray:
    """Make 1/m + eps D of rows D (k, m) of mean 0, with the largest eps that leaves nothing below 0."""
    return np.asarray((1 + deviation / np.abs(deviation).max()) / deviation.shape[1])


def given_anchors(weights: Any, n_items: int) -> Any:
    """Check weights (k, m) that a user gives, dense or a SciPy sparse array, which stays sparse."""
    if hasattr(weights, "tocsr"):
        from scipy.sparse import csr_array

        w: Any = csr_array(weights, dtype=np.float64)
        _checks.vector("anchors", w.data)
        if w.shape[1] != n_items:
            raise _checks.InvalidInput(f"anchors has {w.shape[1]} columns; needs {n_items}.")
    else:
        w = _checks.numpy_matrix("anchors", weights, columns=n_items, dtype=np.float64)
    if not np.allclose(w.sum(axis=1), 1):
        raise _checks.InvalidInput("anchors has rows that do not sum to 1; divide each row by its sum.")
    return w


def gram_root(anchors: Sequence[FloatArray], *, share: float = 0.01) -> FloatArray:
    """(B B' + lambda I)^(-1/2) of all encoders' anchors side by side."""
    gram = sum(b @ b.T / b.shape[1] for b in anchors)
    values, vectors = np.linalg.eigh(np.asarray(gram))
    return np.asarray((vectors / np.sqrt(np.maximum(values, 0) + share * values.mean())) @ vectors.T)


def one_hot(items: np.ndarray[Any, Any], n_items: int) -> Any:
    """Make the sparse P (k, m) that takes one item for each anchor."""
    from scipy.sparse import csr_array

    return csr_array((np.ones(items.size), (np.arange(items.size), items)), shape=(items.size, n_items))


def cluster(points: np.ndarray[Any, Any], n_clusters: int, *, seed: int) -> np.ndarray[Any, Any]:
    """Label (m, d) points by k-means; every cluster holds at least one point."""
    from sklearn.cluster import KMeans

    labels = KMeans(n_clusters, n_init=1, max_iter=30, random_state=seed).fit_predict(points)
    found = np.unique(labels)
    if found.size < n_clusters:
        raise _checks.InvalidInput(
            f"n_anchors is {n_clusters} but the shared items form only {found.size} distinct clusters; "
            "lower n_anchors or drop duplicates."
        )
    return np.asarray(labels)


def _with_gaps(
    frames: Sequence[FloatArray], places: Sequence[np.ndarray[Any, Any]]
) -> tuple[FloatArray, FloatArray]:
    """Stack S with SS'/(m − 1) = C^(-1/2) (sum of H_i) C^(-1/2), less the constant solution, and C^(1/2) (m,)."""
    m = frames[0].shape[0]
    counts = np.zeros(m)
    blocks = []
    for frame, seen in zip(frames, places, strict=True):
        counts[seen] += 1
        block = np.zeros((m, frame.shape[1] + 1))
        block[seen, :-1] = frame[seen] - frame[seen].mean(axis=0)
        block[seen, -1] = np.sqrt((m - 1) / seen.size)
        blocks.append(block)
    root = np.sqrt(counts * counts.sum() / (counts**2).sum())
    stacked = np.hstack(blocks) / root[:, None]
    constant = root / np.linalg.norm(root)
    return stacked - np.outer(constant, constant @ stacked), root


def _leading(stacked: FloatArray, k: int) -> tuple[FloatArray, FloatArray]:
    """Take the k largest eigenvalues of S'S / (m − 1) and S's unit left singular vectors (m, k)."""
    m, width = stacked.shape
    small = stacked.T @ stacked if width <= m else stacked @ stacked.T
    from scipy.linalg import eigh

    take = min(k, small.shape[0])
    values, vectors = eigh(small, subset_by_index=[small.shape[0] - take, small.shape[0] - 1])
    values, vectors = values[::-1], vectors[:, ::-1]
    good = values > 1e-12 * values[0]
    values, vectors = values[good], vectors[:, good]
    shared = stacked @ vectors / np.sqrt(values) if width <= m else vectors
    largest = np.take_along_axis(shared, np.abs(shared).argmax(axis=0)[None], axis=0)  # (1, k)
    return values / (m - 1), shared * np.sign(largest)  # one sign on every machine


def _together(frames: Sequence[FloatArray]) -> FloatArray:
    return np.hstack([frame / np.sqrt(frame.shape[1]) for frame in frames])


def _enough(n_items: int, n_anchors: int) -> None:
    if n_anchors > n_items:
        raise _checks.InvalidInput(
            f"n_anchors is {n_anchors} but there are {n_items} shared items; lower n_anchors or add items."
        )
