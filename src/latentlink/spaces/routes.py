"""How each method of a comparison maps vectors into coordinates in which they can be compared."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, TypeAlias

import numpy as np

from latentlink.spaces.relative import RelativeSpace
from latentlink.spaces.translate import AffineMap, cca_from, fit_low_rank, fit_procrustes, fit_ridge
from latentlink.whitening import Whitener

FloatArray = np.ndarray[Any, np.dtype[np.floating[Any]]]
Spaces: TypeAlias = Mapping[str, FloatArray]
Map: TypeAlias = Callable[[FloatArray], FloatArray]
# Given a source and a target: the maps of queries and of the gallery into coordinates they can be compared in.
Route: TypeAlias = Callable[[str, str], tuple[Map, Map]]

METHODS = (
    "random-cosine",
    "kmeans-wip",
    "param-wip",
    "gcca",
    "cca",
    "ridge",
    "procrustes",
    "shuffled",
)
# Known, but run only when asked for: beside ridge it costs time and seldom says more.
EXTRA_METHODS = ("low-rank",)
SHARED = {
    "random-cosine": {"anchors": "random", "similarity": "cosine"},
    "kmeans-wip": {"anchors": "kmeans"},
    "param-wip": {"anchors": "param"},
    "gcca": {"anchors": "gcca"},
    "shuffled": {"anchors": "gcca"},
}
# Maps whose result lies in the target's own coordinates, where a mean cosine means something.
TRANSLATIONS = ("ridge", "low-rank", "procrustes")


def route_of(method: str, fit: Spaces, n_anchors: int, seed: int) -> Route:
    """Fit a method; shared-space methods once over all encoders, the others when a pair is asked for."""
    return _ROUTES.get(method, _shared_route)(method, fit, n_anchors, seed)


def encoder_route(space: RelativeSpace) -> Route:
    """Take a fitted space's own encoders."""
    return lambda source, target: (partial(space.encode, source=source), partial(space.encode, source=target))


def _shared_route(method: str, fit: Spaces, n_anchors: int, seed: int) -> Route:
    if method == "shuffled":
        rng = np.random.default_rng(seed)
        fit = {name: x[rng.permutation(x.shape[0])] for name, x in fit.items()}
    return encoder_route(RelativeSpace(n_anchors, seed=seed, **SHARED[method]).fit(fit))


def _ridge_route(method: str, fit: Spaces, n_anchors: int, seed: int) -> Route:
    fitter = fit_low_rank if method == "low-rank" else fit_ridge
    return lambda source, target: _centred(fitter(fit[source], fit[target], seed=seed))


def _procrustes_route(method: str, fit: Spaces, n_anchors: int, seed: int) -> Route:
    return lambda source, target: _centred(fit_procrustes(fit[source], fit[target]))


def _centred(fitted: AffineMap) -> tuple[Map, Map]:
    """Compare around the target's fitted mean: by raw cosine these rivals would look far worse."""
    return (lambda x: fitted(x) - fitted.target_mean), (lambda y: y - fitted.target_mean)


def _cca_route(method: str, fit: Spaces, n_anchors: int, seed: int) -> Route:
    whiteners = {name: Whitener().fit(x) for name, x in fit.items()}
    whitened = {name: whiteners[name].transform(x) for name, x in fit.items()}
    return lambda source, target: cca_from(
        whiteners[source], whiteners[target], whitened[source], whitened[target], n_components=n_anchors
    )


_ROUTES: dict[str, Callable[[str, Spaces, int, int], Route]] = {
    "ridge": _ridge_route,
    "low-rank": _ridge_route,
    "procrustes": _procrustes_route,
    "cca": _cca_route,
}
