"""One encoder's part of a shared space: its affine map, and what its own vectors look like."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from latentlink import _checks
from latentlink.spaces.contrast import left_out, signature
from latentlink.whitening import Whitener

FloatArray = np.ndarray[Any, np.dtype[np.floating[Any]]]

N_PROBES = 64
LEVELS = (0.001, 0.01, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99, 0.999)


@dataclass(frozen=True)
class Profile:
    """The look of an encoder's fitted vectors.

    Attributes
    ----------
    mean : array (d,)
    whitening : array (d, d)
    energies, norms : arrays (9,)
        Quantiles at `LEVELS` of the whitened energy (mean square of a whitened vector, leave-one-out) and of
        the Euclidean norm.
    probes : array (p, d)
        Vectors of the first support items, kept to recognise a changed runtime; NaN where the encoder has not
        seen the item.
    signature : array (4, 2)
        How much better the law explains its own vectors than altered ones; see `latentlink.spaces.contrast`.
    """

    mean: FloatArray
    whitening: FloatArray
    energies: FloatArray
    norms: FloatArray
    probes: FloatArray
    signature: FloatArray

    def energy(self, embeddings: FloatArray) -> FloatArray:
        """Compute the whitened energy (n,) of vectors (n, d); about 1 on average at home."""
        z = (embeddings - self.mean) @ self.whitening
        return np.asarray((z * z).mean(axis=1))


def profile_of(x: FloatArray, whitener: Whitener, probes: FloatArray) -> Profile:
    """Describe fitted vectors (n, d): each energy as if its vector had not been fitted."""
    mean, matrix = whitener.mean_, whitener.matrix_
    alone, found = left_out(x, mean, matrix, n_rows=whitener.n_rows_, shrinkage=whitener.shrinkage_)
    return Profile(
        mean=mean,
        whitening=matrix,
        energies=np.quantile(alone, LEVELS),
        norms=np.quantile(np.linalg.norm(x, axis=1), LEVELS),
        probes=probes,
        signature=signature(x, found, mean, matrix),
    )


@dataclass(frozen=True)
class Encoder:
    """One encoder's part of a space: everything that `encode` and `translate` need.

    Attributes
    ----------
    mean : array (d,)
    map : array (d, k)
        A relative vector is ``(x - mean) @ map``, for every similarity but the ones below.
    decode : array (k, d)
        ``mean + r @ decode`` is the vector of this encoder for a relative vector r.
    frame : array (d, d) or None
        Whitening matrix, where the similarity divides by a whitened norm or is a distance.
    profile : Profile
        What the fitted vectors look like, to recognise foreign ones.
    anchor_norms : array (k,) or None
        Squared norms of the anchors in the frame (mahalanobis).
    offset, spread : arrays (k,)
        What the zscore normalisation subtracts and divides by; 0 and 1 where that is folded into the map.
    n_rows : int
        Fitted rows.
    shrinkage : float
    """

    mean: FloatArray
    map: FloatArray
    decode: FloatArray
    frame: FloatArray | None
    profile: Profile
    anchor_norms: FloatArray | None
    offset: FloatArray
    spread: FloatArray
    n_rows: int
    shrinkage: float
    _single: dict[str, FloatArray] = field(default_factory=dict, repr=False, compare=False)

    def cast(self, name: str, dtype: np.dtype[Any]) -> FloatArray:
        """Return an array in the floating type of the data, converted once."""
        array: FloatArray = getattr(self, name)
        if array.dtype == dtype:
            return array
        if name not in self._single:
            self._single[name] = array.astype(dtype)
        return self._single[name]


def raw(similarity: str, x: FloatArray, parts: dict[str, Any]) -> FloatArray:
    """Compute relative vectors (n, k) before normalisation from the parts of an encoder."""
    centred = x - parts["mean"]
    r = centred @ parts["map"]
    if similarity == "wip":
        return np.asarray(r)
    k = r.shape[1]
    encoder = Encoder(decode=np.zeros((0, 0)), offset=np.zeros(k), spread=np.ones(k), **parts)
    return shaped(similarity, centred, r, encoder, centred.dtype)


def shaped(
    similarity: str, centred: FloatArray, r: FloatArray, encoder: Encoder, dtype: np.dtype[Any]
) -> FloatArray:
    """Finish the similarities that are not linear, from centred vectors (n, d) and products (n, k)."""
    z = centred if encoder.frame is None else centred @ encoder.cast("frame", dtype)
    squared = (z * z).sum(axis=1, keepdims=True)  # (n, 1)
    if similarity == "mahalanobis":
        distance = squared - 2 * r + encoder.cast("anchor_norms", dtype)
        return np.asarray(-np.sqrt(np.maximum(distance, 0)))
    _checks.nonzero_rows("embeddings", squared[:, 0])
    return np.asarray(r / np.sqrt(squared))
