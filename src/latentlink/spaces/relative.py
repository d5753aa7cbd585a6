"""RelativeSpace: encoders that never met, expressed by their similarities to shared anchors."""

from __future__ import annotations

import hashlib
import os
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from latentlink import _checks
from latentlink.moments import Moments
from latentlink.spaces import anchors as choice
from latentlink.spaces.encoder import N_PROBES, Encoder, Profile, profile_of, raw, shaped
from latentlink.spaces.items import Support, gather, matched
from latentlink.spaces.missing import (
    balanced,
    consensus,
    decoder,
    moved_mean,
    predicted_anchors,
    shared_rows,
)
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
    anchors : {"gcca", "param", "kmeans", "farthest", "random", "auto"} or array (k, m), dense or sparse
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
        if not hasattr(self, "ids_"):
            self._encoders()
        return np.asarray(self.ids_[:N_PROBES])

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

    def fit(self, spaces: Mapping[str, Any], ids: Any = None, *, seen_by: int | str = "auto") -> RelativeSpace:
        """Fit the shared frame on items that the encoders have in common.

        Parameters
        ----------
        spaces : mapping of name to (n, d_i) array, or to `latentlink.moments.Moments`
            Moments (one pass over any number of rows, with a support sample) give mean and covariance; the
            anchors come from their support items.
        ids : None, (n,) array, or mapping of name to (n_i,) array
            Names of the rows. None: row j is the same item in every array. A mapping is joined; `matched_` says
            how many of each encoder's rows are used.
        seen_by : "auto", "all" or int from 2
            With a mapping of ids: an item is fitted when at least this many encoders have seen it. "auto" is 2 for
            the anchors "gcca", whose closed form can leave out what an encoder has not seen, and "all" for others.

        Raises
        ------
        InvalidInput
            Rows and ids do not fit, encoders share no items, or there are too few for so many anchors.
        """
        self._check()
        self.kind_ = self.anchors if isinstance(self.anchors, str) else "given"
        spaces = _checks.mapping("spaces", spaces)
        states = {name: value for name, value in spaces.items() if isinstance(value, Moments)}
        if states:
            spaces, ids = _supports(spaces, states)
        arrays: dict[str, FloatArray] = {name: _double(name, value) for name, value in spaces.items()}
        support = gather(arrays, ids, seen_by=self._seen_by(seen_by))
        places, self.ids_ = support.places, support.ids
        self.matched_ = {name: (places[name].size, x.shape[0]) for name, x in arrays.items()}
        data = {name: x[support.rows[name]] for name, x in arrays.items()}
        whiteners = {name: self._whitener(x, states.get(name)) for name, x in data.items()}
        frames = {name: self._frame(whitener) for name, whitener in whiteners.items()}
        coordinates = {name: (data[name] - mean) @ matrix for name, (mean, matrix) in frames.items()}
        self.reason_ = f"anchors are {self.kind_!r} as asked"
        self.weights_ = self._choose(coordinates, data, support)
        b = {name: self._own_anchors(z, places[name]) for name, z in coordinates.items()}
        prepared = {name: self._relative_map(whiteners[name], b[name]) for name in data}
        for name in data:
            if name not in states:
                prepared[name]["mean"] = self._mean(prepared[name]["mean"], data[name], places[name])
        if self.normalisation == "gram":
            self.gram_ = choice.gram_root(list(b.values()))
            prepared = {name: {**parts, "map": parts["map"] @ self.gram_} for name, parts in prepared.items()}
        self.encoders_: dict[str, Encoder] = {}
        relative = {name: raw(self.similarity, data[name], prepared[name]) for name in data}
        self.consensus_ = consensus(relative, support).astype(np.float32)
        for name, x in data.items():
            prepared[name]["profile"] = self._profile(x, places[name], whiteners[name])
            pairs = [
                shared_rows(relative[other], places[other], x - prepared[name]["mean"], places[name])
                for other in data
                if other != name
            ]
            self.encoders_[name] = self._finish(prepared[name], relative[name], pairs)
        return self

    def add(self, name: str, embeddings: Any, *, ids: Any = None) -> RelativeSpace:
        """Add an encoder from its vectors of the support items only; nothing else of the space changes.

        Parameters
        ----------
        name : str
        embeddings : array (n, d)
        ids : (n,) array, optional
            Names of the rows. None: the rows are the support, in order. With the anchors "gcca" support items may
            be missing: `matched_` says how many are used, and below half of them a warning is given.
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
        rows, places = matched(given.tolist(), self.ids_.tolist())
        self._enough(name, rows.size)
        own = x[rows]
        whitener = self._whitener(x, None)
        mean, matrix = self._frame(whitener)
        parts = self._relative_map(whitener, self._own_anchors((own - mean) @ matrix, places))
        if rows.size == x.shape[0]:
            parts["mean"] = self._mean(parts["mean"], own, places)
        if self.normalisation == "gram":
            parts = {**parts, "map": parts["map"] @ self.gram_}
        relative = raw(self.similarity, own, parts)
        parts["profile"] = self._profile(own, places, whitener)
        pairs = [(self.consensus_[places].astype(np.float64), own - parts["mean"])]
        self.encoders_[name] = self._finish(parts, relative, pairs)
        self.matched_[name] = (rows.size, x.shape[0])
        return self

    def encode(self, embeddings: Any, *, source: str) -> FloatArray:
        """Turn vectors (n, d) of the encoder `source` into relative vectors (n, k).

        float32 in, float32 out. Cost: one n x d x k product.
        """
        encoder = self._encoder(source, "source")
        x: FloatArray = _checks.numpy_matrix("embeddings", embeddings, columns=encoder.mean.shape[0])
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
        x: FloatArray = _checks.numpy_matrix("embeddings", embeddings, columns=first.mean.shape[0])
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

        save_space(self, _checks.path("folder", folder))

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

    def _choose(
        self, coordinates: Mapping[str, FloatArray], data: Mapping[str, FloatArray], support: Support
    ) -> Any:
        k, seed = self.n_anchors, self.seed
        frames = list(balanced(support, coordinates).values())
        if not isinstance(self.anchors, str):
            return choice.given_anchors(self.anchors, support.ids.size)
        if self.kind_ == "auto":
            from latentlink.spaces.compare import best_anchors

            self.kind_, self.reason_ = best_anchors(self, data)
        if self.kind_ == "random":
            return choice.random_anchors(support.ids.size, k, seed=seed)
        if self.kind_ == "farthest":
            return choice.farthest_anchors(frames, k, seed=seed)
        if self.kind_ == "kmeans":
            return choice.kmeans_anchors(frames, k, seed=seed)
        if self.kind_ == "gcca":
            return choice.gcca_anchors(frames, k, places=list(support.places.values()))
        _checks.need("torch", extra="torch", job='RelativeSpace(anchors="param")')
        from latentlink.spaces.learned import learn_anchors

        return learn_anchors(frames, k, seed=seed).weights

    def _seen_by(self, seen_by: int | str) -> int | str:
        if seen_by == "auto":
            return 2 if self.kind_ == "gcca" else "all"
        if seen_by != "all" and self.kind_ != "gcca":
            raise _checks.InvalidInput(
                f"seen_by is {seen_by!r} with anchors {self.kind_!r}; items that some encoder has not seen need "
                'anchors="gcca". Pass seen_by="all".'
            )
        return seen_by

    def _enough(self, name: str, n_seen: int) -> None:
        of = f"ids has {n_seen} of the {self.ids_.size} support items"
        if n_seen < (4 if self.kind_ == "gcca" else self.ids_.size):
            needed = "4, better all" if self.kind_ == "gcca" else f"all, as the anchors are {self.kind_!r}"
            raise _checks.InvalidInput(f"{of}; needs {needed}. Add their rows.")
        if 2 * n_seen < self.ids_.size:
            warnings.warn(f"{of}: the map of {name!r} will be rough.", stacklevel=3)

    def _own_anchors(self, frame: FloatArray, places: Any) -> FloatArray:
        if places.size == self.ids_.size:
            return np.asarray(self.weights_ @ frame)
        return predicted_anchors(self.weights_, frame, places)

    def _mean(self, mean: FloatArray, x: FloatArray, places: Any) -> FloatArray:
        if places.size == self.ids_.size or self.similarity == "cosine":
            return mean
        return moved_mean(mean, x, self.weights_, places, self.shrinkage)

    def _profile(self, x: FloatArray, places: Any, whitener: Whitener) -> Profile:
        """Describe the fitted vectors, with NaN for a probe item that was not seen."""
        probes = np.full((self.probe_ids.size, x.shape[1]), np.nan)
        seen = places < probes.shape[0]
        probes[places[seen]] = x[seen]
        return profile_of(x, whitener, probes)

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
        self, parts: dict[str, Any], own: FloatArray, pairs: Sequence[tuple[FloatArray, FloatArray]]
    ) -> Encoder:
        k = own.shape[1]
        offset, spread = np.zeros(k), np.ones(k)
        if self.normalisation == "zscore":
            offset, spread = own.mean(axis=0), own.std(axis=0)
        return Encoder(decode=decoder(pairs), offset=offset, spread=spread, **parts)


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


def known_space(space: Any) -> None:
    """Raise when `space` is no RelativeSpace."""
    _checks.instance("space", space, RelativeSpace, "a RelativeSpace: fit one, or load_space")


def _double(name: str, value: Any) -> FloatArray:
    x = _checks.numpy_matrix(str(name), value, min_rows=2).astype(np.float64)
    _checks.varied(str(name), x)
    return x


def _digest(text: str, *arrays: FloatArray) -> str:
    digest = hashlib.sha256(text.encode())
    for array in arrays:
        digest.update(np.ascontiguousarray(array, dtype=np.float64).tobytes())
    return digest.hexdigest()[:16]
