"""RelativeSpace: encoders that never met, expressed by their similarities to shared anchors."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from latentlink import _checks
from latentlink.spaces import anchors as choice
from latentlink.whitening import Whitener

FloatArray = np.ndarray[Any, np.dtype[np.floating[Any]]]

ANCHORS = ("random", "farthest", "kmeans", "gcca", "param", "auto")
SIMILARITIES = ("cosine", "centred", "whitened", "wip", "mahalanobis")
NORMALISATIONS = ("none", "l2", "zscore", "gram")


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


class RelativeSpace:
    """Express vectors of several encoders by similarities to anchors that all of them have seen.

    Parameters
    ----------
    n_anchors : int
        k, the dimension of the shared space.
    anchors : {"gcca", "param", "kmeans", "farthest", "random", "auto"}
        How the anchors are chosen: the closed form of largest agreement, learned (needs torch), cluster means,
        spread-out items, random items, or the best of them on held-out pairs.
    similarity : {"wip", "whitened", "centred", "cosine", "mahalanobis"}
        Of a vector to an anchor. The whitened inner product "wip" does not change under affine maps of an
        encoder's coordinates, and its encode is one affine map.
    normalisation : {"none", "gram", "zscore", "l2"}
        Of relative vectors: none, decorrelated anchors, unit variance on the fitted items, unit length.
    shrinkage : "auto" or float in [0, 1]
        Of the covariance; see `latentlink.Whitener`.
    seed : int

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> old = rng.normal(size=(400, 8))
    >>> new = old @ rng.normal(size=(8, 6)) + 1.0
    >>> space = RelativeSpace(n_anchors=5).fit({"old": old, "new": new})
    >>> space.encode(new[:3], source="new").shape
    (3, 5)
    >>> space.translate(new[:3], source="new", target="old").shape
    (3, 8)
    """

    def __init__(
        self,
        n_anchors: int = 256,
        anchors: str = "gcca",
        similarity: str = "wip",
        normalisation: str = "none",
        shrinkage: str | float = "auto",
        seed: int = 0,
    ) -> None:
        self.n_anchors = n_anchors
        self.anchors = anchors
        self.similarity = similarity
        self.normalisation = normalisation
        self.shrinkage = shrinkage
        self.seed = seed

    @property
    def names(self) -> tuple[str, ...]:
        """The encoders' names, in the order they came."""
        return tuple(self._encoders())

    def dimension(self, name: str) -> int:
        """Return the dimension of an encoder's own vectors."""
        return int(self._encoder(name, "name").mean.shape[0])

    def fingerprint(self, name: str | None = None) -> str:
        """Return a short digest of one encoder's map, or of the shared frame (which `add` does not change)."""
        if name is None:
            self._encoders()
            settings = f"{self.n_anchors} {self.similarity} {self.normalisation}"
            return _digest(settings, self.consensus_)
        encoder = self._encoder(name, "name")
        return _digest(name, encoder.mean, encoder.map)

    def fit(self, spaces: Mapping[str, Any], ids: Any = None) -> RelativeSpace:
        """Fit the shared frame on items that the encoders have in common.

        Parameters
        ----------
        spaces : mapping of name to (n, d_i) array
        ids : None, (n,) array, or mapping of name to (n_i,) array
            Names of the rows. None: row j is the same item in every array. A mapping is joined; the items
            that every encoder has are fitted.
        """
        self._check()
        arrays: dict[str, FloatArray] = {str(name): _double(name, value) for name, value in spaces.items()}
        if len(arrays) < 2:
            raise _checks.InvalidInput(f"spaces has {len(arrays)} encoder; a shared space needs at least 2.")
        rows, self.ids_ = join(arrays, ids)
        self.matched_ = {name: (rows[name].size, arrays[name].shape[0]) for name in arrays}
        data = {name: arrays[name][rows[name]] for name in arrays}
        frames = {name: self._frame(x) for name, x in data.items()}
        coordinates = [(data[name] - mean) @ matrix for name, (mean, matrix, _) in frames.items()]
        self.weights_ = self._choose(coordinates)
        prepared = {
            name: self._relative_map(data[name], frames[name], self.weights_ @ z)
            for name, z in zip(data, coordinates, strict=True)
        }
        if self.normalisation == "gram":
            gram = _gram_root([self.weights_ @ z for z in coordinates])
            prepared = {name: {**parts, "map": parts["map"] @ gram} for name, parts in prepared.items()}
            self.gram_ = gram
        self.encoders_: dict[str, Encoder] = {}
        relative = {name: _raw(self.similarity, data[name], prepared[name]) for name in data}
        self.consensus_ = np.mean(list(relative.values()), axis=0).astype(np.float32)
        for name in data:
            others = [relative[other] for other in data if other != name]
            self.encoders_[name] = self._finish(data[name], prepared[name], relative[name], others)
        return self

    def add(self, name: str, embeddings: Any, *, ids: Any = None) -> RelativeSpace:
        """Add an encoder from its vectors of the support items only; nothing else of the space changes.

        Parameters
        ----------
        name : str
        embeddings : array (n, d)
        ids : (n,) array, optional
            Names of the rows; they must hold every support item. None: the rows are the support, in order.
        """
        encoders = self._encoders()
        if name in encoders:
            raise _checks.InvalidInput(f"name is {name!r}, which the space has already; pick another.")
        x = _double("embeddings", embeddings)
        given: Any = self.ids_ if ids is None and x.shape[0] == self.ids_.size else ids
        if given is None:
            raise _checks.InvalidInput(
                f"embeddings has {x.shape[0]} rows; the support has {self.ids_.size} items. Pass ids."
            )
        given = _checks.unique_ids("ids", given, rows=x.shape[0])
        support = _positions(given, self.ids_)
        frame = self._frame(x)
        z = (x[support] - frame[0]) @ frame[1]
        parts = self._relative_map(x, frame, self.weights_ @ z)
        if self.normalisation == "gram":
            parts = {**parts, "map": parts["map"] @ self.gram_}
        relative = _raw(self.similarity, x[support], parts)
        self.encoders_[name] = self._finish(x[support], parts, relative, [self.consensus_.astype(np.float64)])
        self.matched_[name] = (support.size, x.shape[0])
        return self

    def encode(self, embeddings: Any, *, source: str) -> FloatArray:
        """Turn vectors (n, d) of the encoder `source` into relative vectors (n, k).

        float32 in, float32 out. Cost: one n x d x k product.
        """
        encoder = self._encoder(source, "source")
        x = np.asarray(_checks.matrix("embeddings", embeddings, columns=encoder.mean.shape[0]))
        dtype = x.dtype
        centred = x - encoder.cast("mean", dtype)
        r = centred @ encoder.cast("map", dtype)  # (n, k)
        if self.similarity != "wip":
            r = _shaped(self.similarity, centred, r, encoder, dtype)
        if self.normalisation == "zscore":
            r = (r - encoder.cast("offset", dtype)) / encoder.cast("spread", dtype)
        if self.normalisation == "l2":
            from latentlink.similarity import normalize

            r = normalize(r, on_zero="skip")
        return np.asarray(r)

    def translate(self, embeddings: Any, *, source: str, target: str) -> FloatArray:
        """Turn vectors (n, d_source) of one encoder into vectors (n, d_target) of another.

        The target's vectors are the least-squares prediction from the shared coordinates, fitted on the
        coordinates that the other encoders give the fitted items.
        """
        if self.similarity == "mahalanobis":
            raise _checks.InvalidInput('similarity is "mahalanobis"; translate needs one that is linear.')
        first, second = self._encoder(source, "source"), self._encoder(target, "target")
        x = np.asarray(_checks.matrix("embeddings", embeddings, columns=first.mean.shape[0]))
        centred = x - first.cast("mean", x.dtype)
        r = centred @ first.cast("map", x.dtype)
        if self.similarity != "wip":
            r = _shaped(self.similarity, centred, r, first, x.dtype)
        return np.asarray(second.cast("mean", x.dtype) + r @ second.cast("decode", x.dtype))

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Write the space to a folder, atomically; see `latentlink.load_space`."""
        from latentlink.spaces.artefact import save_space

        save_space(self, folder)

    def _check(self) -> None:
        _checks.integer("n_anchors", self.n_anchors, low=1)
        _checks.one_of("anchors", self.anchors, ANCHORS)
        _checks.one_of("similarity", self.similarity, SIMILARITIES)
        _checks.one_of("normalisation", self.normalisation, NORMALISATIONS)

    def _encoders(self) -> dict[str, Encoder]:
        if not hasattr(self, "encoders_"):
            raise _checks.InvalidInput("this RelativeSpace is not fitted; call fit({name: embeddings}) first.")
        return self.encoders_

    def _encoder(self, name: str, argument: str) -> Encoder:
        encoders = self._encoders()
        _checks.one_of(argument, name, encoders)
        return encoders[name]

    def _frame(self, x: FloatArray) -> tuple[FloatArray, FloatArray, float]:
        """Mean, matrix and shrinkage of the frame in which anchors are chosen and compared."""
        d = x.shape[1]
        if self.similarity == "cosine":
            return np.zeros(d), np.eye(d), 0.0
        if self.similarity == "centred":
            return x.mean(axis=0), np.eye(d), 0.0
        whitener = Whitener(shrinkage=self.shrinkage).fit(x)
        return whitener.mean_, whitener.matrix_, whitener.shrinkage_

    def _choose(self, frames: Sequence[FloatArray]) -> Any:
        k, seed = self.n_anchors, self.seed
        if self.anchors == "random":
            return choice.random_anchors(frames[0].shape[0], k, seed=seed)
        if self.anchors == "farthest":
            return choice.farthest_anchors(frames, k, seed=seed)
        if self.anchors == "kmeans":
            return choice.kmeans_anchors(frames, k, seed=seed)
        if self.anchors == "gcca":
            return choice.gcca_anchors(frames, k)
        _checks.need("torch", extra="torch", job='RelativeSpace(anchors="param")')
        from latentlink.spaces.learned import learn_anchors

        members = choice.kmeans_anchors(frames, k, seed=seed).toarray() > 0
        return learn_anchors(frames, 4.0 * members, seed=seed)

    def _relative_map(
        self, x: FloatArray, frame: tuple[FloatArray, FloatArray, float], b: FloatArray
    ) -> dict[str, Any]:
        """Map of vectors to similarities with the anchors b (k, d), given in frame coordinates."""
        mean, matrix, shrinkage = frame
        unit = b / np.linalg.norm(b, axis=1, keepdims=True)
        direct = self.similarity in ("wip", "mahalanobis")
        return {
            "mean": mean,
            "map": matrix @ (b if direct else unit).T,
            "frame": matrix if self.similarity in ("whitened", "mahalanobis") else None,
            "anchor_norms": (b**2).sum(axis=1) if self.similarity == "mahalanobis" else None,
            "shrinkage": shrinkage,
            "n_rows": x.shape[0],
        }

    def _finish(
        self, x: FloatArray, parts: dict[str, Any], own: FloatArray, others: list[FloatArray]
    ) -> Encoder:
        k = own.shape[1]
        offset, spread = np.zeros(k), np.ones(k)
        if self.normalisation == "zscore":
            offset, spread = own.mean(axis=0), own.std(axis=0)
        decode = _decoder(others, x - parts["mean"])
        return Encoder(decode=decode, offset=offset, spread=spread, **parts)


def join(arrays: Mapping[str, FloatArray], ids: Any) -> tuple[dict[str, np.ndarray[Any, Any]], Any]:
    """Rows of each array that hold the items common to all, and those items' ids."""
    if not isinstance(ids, Mapping):
        _checks.same_rows(**arrays)
        n = next(iter(arrays.values())).shape[0]
        named = np.arange(n) if ids is None else _checks.unique_ids("ids", ids, rows=n)
        return {name: np.arange(n) for name in arrays}, named
    missing = [name for name in arrays if name not in ids]
    if missing:
        raise _checks.InvalidInput(f"ids has no entry for {missing[0]!r}; needs one for each encoder.")
    checked = {
        name: _checks.unique_ids(f"ids[{name!r}]", ids[name], rows=x.shape[0]) for name, x in arrays.items()
    }
    names = list(arrays)
    common = set(checked[names[0]].tolist()).intersection(*(checked[name].tolist() for name in names[1:]))
    if not common:
        raise _checks.InvalidInput("the encoders have no id in common; needs shared items.")
    kept = np.asarray([value for value in checked[names[0]].tolist() if value in common])
    return {name: _positions(checked[name], kept) for name in names}, kept


def _positions(ids: np.ndarray[Any, Any], wanted: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    place = {value: row for row, value in enumerate(ids.tolist())}
    lost = [value for value in wanted.tolist() if value not in place]
    if lost:
        raise _checks.InvalidInput(f"ids lacks {len(lost)} support items, {lost[0]!s} among them; add them.")
    return np.asarray([place[value] for value in wanted.tolist()])


def _raw(similarity: str, x: FloatArray, parts: dict[str, Any]) -> FloatArray:
    centred = x - parts["mean"]
    r = centred @ parts["map"]
    if similarity == "wip":
        return np.asarray(r)
    k = r.shape[1]
    encoder = Encoder(decode=np.zeros((0, 0)), offset=np.zeros(k), spread=np.ones(k), **parts)
    return _shaped(similarity, centred, r, encoder, centred.dtype)


def _shaped(
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


def _gram_root(anchors: Sequence[FloatArray], *, share: float = 0.01) -> FloatArray:
    """(B B' + lambda I)^(-1/2) of all encoders' anchors side by side."""
    gram = sum(b @ b.T / b.shape[1] for b in anchors)
    values, vectors = np.linalg.eigh(np.asarray(gram))
    return np.asarray((vectors / np.sqrt(np.maximum(values, 0) + share * values.mean())) @ vectors.T)


def _decoder(relative: Sequence[FloatArray], centred: FloatArray) -> FloatArray:
    """Least squares (k, d) from other encoders' relative vectors to centred vectors, with a light ridge."""
    gram = sum(r.T @ r for r in relative)
    cross = sum(r.T @ centred for r in relative)
    gram = np.asarray(gram)
    ridge = 1e-6 * np.trace(gram) / gram.shape[0]
    return np.asarray(np.linalg.solve(gram + ridge * np.eye(gram.shape[0]), np.asarray(cross)))


def _double(name: str, value: Any) -> FloatArray:
    from latentlink._arrays import to_numpy

    return to_numpy(_checks.matrix(str(name), value, min_rows=2)).astype(np.float64)


def _digest(text: str, *arrays: FloatArray) -> str:
    digest = hashlib.sha256(text.encode())
    for array in arrays:
        digest.update(np.ascontiguousarray(array, dtype=np.float64).tobytes())
    return digest.hexdigest()[:16]
