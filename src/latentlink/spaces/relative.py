"""RelativeSpace: encoders that never met, expressed by their similarities to shared anchors."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from latentlink import _checks
from latentlink.moments import Moments
from latentlink.spaces import anchors as choice
from latentlink.spaces.encoder import N_PROBES, Encoder, profile_of, raw, shaped
from latentlink.spaces.items import join, positions
from latentlink.whitening import Whitener

FloatArray = np.ndarray[Any, np.dtype[np.floating[Any]]]

ANCHORS = ("random", "farthest", "kmeans", "gcca", "param", "auto")
SIMILARITIES = ("cosine", "centred", "whitened", "wip", "mahalanobis")
NORMALISATIONS = ("none", "l2", "zscore", "gram")


class RelativeSpace:
    """Express vectors of several encoders by similarities to anchors that all of them have seen.

    Parameters
    ----------
    n_anchors : int
        k, the dimension of the shared space.
    anchors : {"gcca", "param", "kmeans", "farthest", "random", "auto"} or array (k, m)
        How the anchors are chosen: the closed form of largest agreement, learned (needs torch), cluster means,
        spread-out items, random items, or the best of them on held-out pairs; or the weights of the m fitted
        items themselves, each row with sum 1.
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
        anchors: str | FloatArray = "gcca",
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

    @property
    def probe_ids(self) -> np.ndarray[Any, Any]:
        """Ids of the items whose vectors are kept to recognise a changed runtime."""
        self._encoders()
        return np.asarray(self.ids_[: min(N_PROBES, self.ids_.size)])

    def dimension(self, name: str) -> int:
        """Return the dimension of an encoder's own vectors."""
        return int(self._encoder(name, "name").mean.shape[0])

    def fingerprint(self, name: str | None = None) -> str:
        """Return a short digest of one encoder's map, or of the shared frame (which `add` does not change)."""
        if name is None:
            self._encoders()
            settings = f"{self.similarity} {self.normalisation}"
            return _digest(settings, self.consensus_)
        encoder = self._encoder(name, "name")
        return _digest(name, encoder.mean, encoder.map)

    def fit(self, spaces: Mapping[str, Any], ids: Any = None) -> RelativeSpace:
        """Fit the shared frame on items that the encoders have in common.

        Parameters
        ----------
        spaces : mapping of name to (n, d_i) array, or to `latentlink.moments.Moments`
            Moments (one pass over any number of rows, with a support sample) give mean and covariance; the
            anchors come from their support items.
        ids : None, (n,) array, or mapping of name to (n_i,) array
            Names of the rows. None: row j is the same item in every array. A mapping is joined; the items
            that every encoder has are fitted, and `matched_` says how many of each encoder's rows these are.
        """
        self._check()
        states = {str(name): value for name, value in spaces.items() if isinstance(value, Moments)}
        if states:
            spaces, ids = _supports(spaces, states)
        arrays: dict[str, FloatArray] = {str(name): _double(name, value) for name, value in spaces.items()}
        if len(arrays) < 2:
            raise _checks.InvalidInput(f"spaces has {len(arrays)} encoder; a shared space needs at least 2.")
        rows, self.ids_ = join(arrays, ids)
        self.matched_ = {name: (rows[name].size, arrays[name].shape[0]) for name in arrays}
        data = {name: arrays[name][rows[name]] for name in arrays}
        whiteners = {name: self._whitener(x, states.get(name)) for name, x in data.items()}
        frames = {name: self._frame(whitener) for name, whitener in whiteners.items()}
        coordinates = [(data[name] - mean) @ matrix for name, (mean, matrix) in frames.items()]
        kind = self.anchors if isinstance(self.anchors, str) else "given"
        self.reason_ = f"anchors are {kind!r} as asked"
        self.weights_ = self._choose(coordinates, data)
        prepared = {
            name: self._relative_map(whiteners[name], self.weights_ @ z)
            for name, z in zip(data, coordinates, strict=True)
        }
        if self.normalisation == "gram":
            gram = _gram_root([self.weights_ @ z for z in coordinates])
            prepared = {name: {**parts, "map": parts["map"] @ gram} for name, parts in prepared.items()}
            self.gram_ = gram
        self.encoders_: dict[str, Encoder] = {}
        relative = {name: raw(self.similarity, data[name], prepared[name]) for name in data}
        self.consensus_ = np.mean(list(relative.values()), axis=0).astype(np.float32)
        for name in data:
            prepared[name]["profile"] = profile_of(data[name], whiteners[name])
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
        support = positions(given, self.ids_)
        whitener = self._whitener(x, None)
        mean, matrix = self._frame(whitener)
        parts = self._relative_map(whitener, self.weights_ @ ((x[support] - mean) @ matrix))
        if self.normalisation == "gram":
            parts = {**parts, "map": parts["map"] @ self.gram_}
        relative = raw(self.similarity, x[support], parts)
        parts["profile"] = profile_of(x[support], whitener)
        self.encoders_[name] = self._finish(x[support], parts, relative, [self.consensus_.astype(np.float64)])
        self.matched_[name] = (support.size, x.shape[0])
        return self

    def encode(self, embeddings: Any, *, source: str) -> FloatArray:
        """Turn vectors (n, d) of the encoder `source` into relative vectors (n, k).

        float32 in, float32 out. Cost: one n x d x k product.
        """
        encoder = self._encoder(source, "source")
        x: FloatArray = np.asarray(_checks.matrix("embeddings", embeddings, columns=encoder.mean.shape[0]))
        dtype = x.dtype
        centred = x - encoder.cast("mean", dtype)
        r: FloatArray = centred @ encoder.cast("map", dtype)  # (n, k)
        if self.similarity != "wip":
            r = shaped(self.similarity, centred, r, encoder, dtype)
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
        x: FloatArray = np.asarray(_checks.matrix("embeddings", embeddings, columns=first.mean.shape[0]))
        centred = x - first.cast("mean", x.dtype)
        r: FloatArray = centred @ first.cast("map", x.dtype)
        if self.similarity != "wip":
            r = shaped(self.similarity, centred, r, first, x.dtype)
        return np.asarray(second.cast("mean", x.dtype) + r @ second.cast("decode", x.dtype))

    def evaluate(self, spaces: Mapping[str, Any], *, csls: Mapping[str, Any] | None = None) -> Any:
        """Search between all pairs of encoders on paired rows that were not fitted.

        Parameters
        ----------
        spaces : mapping of name to (n, d_i) array
            Row j is the same item in each.
        csls : mapping of name to (m, d_i) array, optional
            Fitted rows, from which the hubness of a gallery item is estimated and subtracted.

        Returns
        -------
        MapComparison
            With the one method "space".
        """
        from latentlink.spaces.compare import evaluate_space

        return evaluate_space(self, spaces, csls=csls)

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Write the space to a folder, atomically; see `latentlink.load_space`."""
        from latentlink.spaces.artefact import save_space

        save_space(self, folder)

    def _check(self) -> None:
        _checks.integer("n_anchors", self.n_anchors, low=1)
        if isinstance(self.anchors, str):
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

    def _whitener(self, x: FloatArray, moments: Moments | None) -> Whitener:
        whitener = Whitener(shrinkage=self.shrinkage)
        return whitener.fit(x) if moments is None else whitener.fit_moments(moments)

    def _frame(self, whitener: Whitener) -> tuple[FloatArray, FloatArray]:
        """Mean and matrix of the frame in which anchors are chosen and compared."""
        d = whitener.mean_.size
        if self.similarity == "cosine":
            return np.zeros(d), np.eye(d)
        return whitener.mean_, np.eye(d) if self.similarity == "centred" else whitener.matrix_

    def _choose(self, frames: Sequence[FloatArray], data: Mapping[str, FloatArray]) -> Any:
        k, seed = self.n_anchors, self.seed
        if not isinstance(self.anchors, str):
            return _given(self.anchors, frames[0].shape[0])
        kind = self.anchors
        if kind == "auto":
            from latentlink.spaces.compare import best_anchors

            kind, self.reason_ = best_anchors(self, data)
        if kind == "random":
            return choice.random_anchors(frames[0].shape[0], k, seed=seed)
        if kind == "farthest":
            return choice.farthest_anchors(frames, k, seed=seed)
        if kind == "kmeans":
            return choice.kmeans_anchors(frames, k, seed=seed)
        if kind == "gcca":
            return choice.gcca_anchors(frames, k)
        _checks.need("torch", extra="torch", job='RelativeSpace(anchors="param")')
        from latentlink.spaces.learned import learn_anchors

        return learn_anchors(frames, k, seed=seed).weights

    def _relative_map(self, whitener: Whitener, b: FloatArray) -> dict[str, Any]:
        """Map of vectors to similarities with the anchors b (k, d), given in frame coordinates."""
        mean, matrix = self._frame(whitener)
        direct = self.similarity in ("wip", "mahalanobis")
        anchors = b if direct else b / np.linalg.norm(b, axis=1, keepdims=True)
        return {
            "mean": mean,
            "map": matrix @ anchors.T,
            "frame": matrix if self.similarity in ("whitened", "mahalanobis") else None,
            "anchor_norms": (b**2).sum(axis=1) if self.similarity == "mahalanobis" else None,
            "shrinkage": whitener.shrinkage_,
            "n_rows": whitener.n_rows_,
            "profile": None,
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


def _supports(
    spaces: Mapping[str, Any], states: Mapping[str, Moments]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Support vectors and ids of moments, which must be given for all encoders."""
    lacking = [name for name in spaces if name not in states]
    if lacking:
        raise _checks.InvalidInput(f"spaces[{lacking[0]!r}] is an array beside moments; needs moments for all.")
    empty = [name for name, state in states.items() if not state.support_ids.size]
    if empty:
        raise _checks.InvalidInput(
            f"the moments of {empty[0]!r} hold no support; gather with support_size > 0."
        )
    return (
        {name: state.support_vectors for name, state in states.items()},
        {name: state.support_ids for name, state in states.items()},
    )


def _given(weights: Any, n_items: int) -> FloatArray:
    w = np.asarray(_checks.matrix("anchors", weights, columns=n_items), dtype=np.float64)
    if not np.allclose(w.sum(axis=1), 1):
        raise _checks.InvalidInput("anchors has rows that do not sum to 1; divide each row by its sum.")
    return w


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
