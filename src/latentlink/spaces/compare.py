"""Every way of making encoders comparable, side by side on pairs that no map was fitted on."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any, TypeAlias

import numpy as np

from latentlink import _checks
from latentlink._metrics import Interval, paired_ranks, proportion_interval, recall_at, reciprocal_rank
from latentlink.similarity import normalize, pairwise_similarity
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
_SHARED = {
    "random-cosine": {"anchors": "random", "similarity": "cosine"},
    "kmeans-wip": {"anchors": "kmeans"},
    "param-wip": {"anchors": "param"},
    "gcca": {"anchors": "gcca"},
    "shuffled": {"anchors": "gcca"},
}
# Maps whose result lies in the target's own coordinates, where a mean cosine means something.
_TRANSLATIONS = ("ridge", "low-rank", "procrustes")


@dataclass(frozen=True)
class MapScore:
    """How well queries of one encoder find the same items among vectors of another.

    Attributes
    ----------
    method, source, target : str
    n_queries : int
        Held-out items; all of them are the gallery.
    recall_at_1, recall_at_10, mrr : float
    recall_at_1_interval, recall_at_10_interval : Interval
        Wilson's 95 % interval over queries.
    mean_cosine : float
        Of a translated vector with the target's own, both around the target's fitted mean; NaN for methods
        that do not translate.
    seconds : float
        CPU time of the fit; a shared space is fitted once for all pairs.
    """

    method: str
    source: str
    target: str
    n_queries: int
    recall_at_1: float
    recall_at_1_interval: Interval
    recall_at_10: float
    recall_at_10_interval: Interval
    mrr: float
    mean_cosine: float
    seconds: float


@dataclass(frozen=True)
class MapComparison:
    """What `compare_maps` measured.

    Attributes
    ----------
    scores : tuple of MapScore
        One for each (method, source, target).
    n_fit, n_held_out : int
    notes : tuple of str
        What was left out and why.
    """

    scores: tuple[MapScore, ...]
    n_fit: int
    n_held_out: int
    notes: tuple[str, ...] = ()

    @property
    def methods(self) -> tuple[str, ...]:
        """The methods that ran, in order."""
        return tuple(dict.fromkeys(score.method for score in self.scores))

    def of(self, method: str, source: str, target: str) -> MapScore:
        """Return one score."""
        for score in self.scores:
            if (score.method, score.source, score.target) == (method, source, target):
                return score
        raise _checks.InvalidInput(f"no score of {method!r} from {source!r} to {target!r}; see .scores.")

    def mean(self, method: str, *, names: Sequence[str] | None = None, metric: str = "recall_at_1") -> float:
        """Return the mean of a metric over ordered pairs, of all encoders or of those named."""
        _checks.one_of("method", method, self.methods)
        _checks.one_of("metric", metric, ["recall_at_1", "recall_at_10", "mrr", "mean_cosine", "seconds"])
        values = [
            getattr(score, metric)
            for score in self.scores
            if score.method == method and (names is None or {score.source, score.target} <= set(names))
        ]
        if not values:
            raise _checks.InvalidInput(f"names is {names!r}; needs two encoders of the comparison.")
        return float(np.mean(values))

    def table(self) -> str:
        """Format the means over pairs, the best recall first, and the notes."""
        rows = sorted(self.methods, key=lambda method: -self.mean(method))
        lines = [f"{'method':14}{'R@1':>7}{'worst':>8}{'R@10':>8}{'MRR':>8}{'cosine':>8}{'CPU s':>8}"]
        for method in rows:
            worst = min(score.recall_at_1 for score in self.scores if score.method == method)
            cosine, tenth = self.mean(method, metric="mean_cosine"), self.mean(method, metric="recall_at_10")
            lines.append(
                f"{method:14}{self.mean(method):7.3f}{worst:8.3f}{tenth:8.3f}"
                f"{self.mean(method, metric='mrr'):8.3f}{'-' if np.isnan(cosine) else f'{cosine:.3f}':>8}"
                f"{self.seconds(method):8.2f}"
            )
        lines.append(f"means over ordered pairs; {self.n_fit} pairs fitted, {self.n_held_out} held out")
        return "\n".join([*lines, *self.notes])

    def seconds(self, method: str) -> float:
        """Return the CPU time of all fits of a method: once for a shared space, summed over pairs else."""
        times = [score.seconds for score in self.scores if score.method == method]
        return times[0] if method in _SHARED else float(sum(times))

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain values for JSON."""
        return asdict(self)


def compare_maps(
    spaces: Mapping[str, Any],
    *,
    holdout: float | Any = 0.2,
    methods: Sequence[str] = METHODS,
    n_anchors: int = 256,
    csls: bool = False,
    seed: int = 0,
) -> MapComparison:
    """Fit every map on some pairs and search with it on the others.

    Parameters
    ----------
    spaces : mapping of name to (n, d_i) array
        Row j of every array is the same item.
    holdout : float in (0, 1) or int array
        Share of the items to hold out at random, or the held-out row numbers.
    methods : sequence of str
        Among `METHODS`, or "low-rank". "shuffled" is the control: the closed form fitted on broken pairs, at
        chance level.
    n_anchors : int
        Lowered, with a note, where the fitted items allow fewer.
    csls : bool
        Subtract from each similarity the hubness of the gallery item: its mean similarity to the 10 nearest
        fitted queries. Only fitted items enter (Conneau et al. 2018, with statistics that hold in service).
    seed : int

    Returns
    -------
    MapComparison

    Notes
    -----
    Queries come from `source`, the gallery is `target`, both held-out rows only; cosine of mapped vectors, and
    a tie counts against the search. Shared-space methods are fitted once over all encoders, the others for
    each ordered pair.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> x = rng.normal(size=(300, 8))
    >>> spaces = {"a": x, "b": x @ rng.normal(size=(8, 8))}
    >>> result = compare_maps(spaces, methods=["ridge", "shuffled"], n_anchors=8)
    >>> result.mean("ridge")
    1.0
    >>> result.mean("shuffled") < 0.2
    True
    """
    data = {str(name): np.asarray(_checks.matrix(str(name), x, min_rows=4)) for name, x in spaces.items()}
    if len(data) < 2:
        raise _checks.InvalidInput(f"spaces has {len(data)} encoder; a comparison needs at least 2.")
    _checks.same_rows(**data)
    for method in methods:
        _checks.one_of("methods", method, (*METHODS, *EXTRA_METHODS))
    n = next(iter(data.values())).shape[0]
    held = _held_out(holdout, n, seed)
    kept = np.setdiff1d(np.arange(n), held)
    fit = {name: x[kept].astype(np.float64) for name, x in data.items()}
    test = {name: x[held].astype(np.float64) for name, x in data.items()}
    largest = min(kept.size - 1, sum(x.shape[1] for x in data.values()))
    notes = []
    if n_anchors > largest:
        notes.append(f"n_anchors lowered from {n_anchors} to {largest}: {kept.size} fitted items allow no more")
    scores: list[MapScore] = []
    for method in methods:
        if method == "param-wip" and not _has_torch():
            notes.append('param-wip left out: it needs torch (pip install "latentlink[torch]")')
            continue
        scores.extend(_score(method, fit, test, min(n_anchors, largest), csls, seed))
    return MapComparison(tuple(scores), kept.size, held.size, tuple(notes))


def evaluate_space(
    space: RelativeSpace, spaces: Mapping[str, Any], *, csls: Mapping[str, Any] | None = None
) -> MapComparison:
    """Do `RelativeSpace.evaluate`."""
    test = {name: np.asarray(_checks.matrix(str(name), x)) for name, x in spaces.items()}
    _checks.same_rows(**test)
    fit = None if csls is None else {name: np.asarray(_checks.matrix(str(name), x)) for name, x in csls.items()}
    scores = _search("space", _encoders(space), fit, test, float("nan"))
    rows = next(iter(test.values())).shape[0]
    return MapComparison(tuple(scores), int(space.ids_.size), rows)


def learning_curve(
    spaces: Mapping[str, Any],
    *,
    sizes: Sequence[int],
    holdout: float | Any = 0.2,
    methods: Sequence[str] = METHODS,
    n_anchors: int = 256,
    csls: bool = False,
    seed: int = 0,
) -> tuple[MapComparison, ...]:
    """Compare maps fitted on growing numbers of pairs, always on the same held-out ones.

    Parameters
    ----------
    sizes : sequence of int
        Numbers of fitted pairs: nested random subsets of those not held out.
    spaces, holdout, methods, n_anchors, csls, seed
        See `compare_maps`.

    Returns
    -------
    tuple of MapComparison, one for each size
    """
    n = next(iter(spaces.values())).shape[0]
    held = _held_out(holdout, n, seed)
    kept = np.random.default_rng(seed).permutation(np.setdiff1d(np.arange(n), held))
    results = []
    for size in sizes:
        _checks.integer("sizes", size, low=4, high=kept.size)
        rows = np.concatenate([kept[:size], held])
        part = {name: x[rows] for name, x in spaces.items()}
        at = np.arange(size, rows.size)
        results.append(
            compare_maps(part, holdout=at, methods=methods, n_anchors=n_anchors, csls=csls, seed=seed)
        )
    return tuple(results)


def best_anchors(space: RelativeSpace, data: Spaces) -> tuple[str, str]:
    """Pick the anchors of the best mean R@1 on a fifth of the items, and say why."""
    n = next(iter(data.values())).shape[0]
    held = _held_out(0.2, n, space.seed)
    kept = np.setdiff1d(np.arange(n), held)
    candidates = [kind for kind in ("gcca", "param", "kmeans", "random") if kind != "param" or _has_torch()]
    found = {}
    for kind in candidates:
        trial = RelativeSpace(
            min(space.n_anchors, kept.size - 1),
            kind,
            space.similarity,
            space.normalisation,
            space.shrinkage,
            space.seed,
        ).fit({name: x[kept] for name, x in data.items()})
        found[kind] = trial.evaluate({name: x[held] for name, x in data.items()}).mean("space")
    best = max(found, key=lambda kind: found[kind])
    listing = ", ".join(f"{kind} {value:.3f}" for kind, value in sorted(found.items(), key=lambda p: -p[1]))
    return best, f"anchors are {best!r}: mean R@1 on {held.size} held-out items was {listing}"


def _score(method: str, fit: Spaces, test: Spaces, n_anchors: int, csls: bool, seed: int) -> list[MapScore]:
    started = time.process_time()
    route = _ROUTES.get(method, _shared_route)(method, fit, n_anchors, seed)
    return _search(method, route, fit if csls else None, test, time.process_time() - started)


def _search(
    method: str, route: Route, fit: Spaces | None, test: Spaces, shared_seconds: float
) -> list[MapScore]:
    scores = []
    n_pairs = len(test) * (len(test) - 1)
    for source, target in itertools.permutations(test, 2):
        started = time.process_time()
        first, second = route(source, target)
        own_seconds = time.process_time() - started
        mapped, own = first(test[source]), second(test[target])
        queries, gallery = normalize(mapped, on_zero="skip"), normalize(own, on_zero="skip")
        if fit is not None:
            # Ranks by 2 s(q, c) - hubness(c): the query's own term of CSLS is the same for all items.
            crowd = normalize(first(fit[source]), on_zero="skip")
            queries = np.hstack([2 * queries, np.ones((queries.shape[0], 1))])
            gallery = np.hstack([gallery, -_hubness(gallery, crowd)[:, None]])
        rank = paired_ranks(queries, gallery)
        top, ten = recall_at(rank, 1), recall_at(rank, 10)
        translates = method in _TRANSLATIONS
        scores.append(
            MapScore(
                method=method,
                source=source,
                target=target,
                n_queries=rank.size,
                recall_at_1=float(top.mean()),
                recall_at_1_interval=proportion_interval(top),
                recall_at_10=float(ten.mean()),
                recall_at_10_interval=proportion_interval(ten),
                mrr=float(reciprocal_rank(rank).mean()),
                mean_cosine=float(pairwise_similarity(mapped, own).mean()) if translates else float("nan"),
                seconds=shared_seconds if method in _SHARED else own_seconds + shared_seconds / n_pairs,
            )
        )
    return scores


def _hubness(gallery: FloatArray, crowd: FloatArray, *, k: int = 10) -> FloatArray:
    """Mean similarity (m,) of each gallery item to its k nearest fitted queries."""
    similarities = gallery @ crowd.T  # (m, n)
    k = min(k, similarities.shape[1])
    return np.asarray(np.partition(similarities, -k, axis=1)[:, -k:].mean(axis=1))


def _encoders(space: RelativeSpace) -> Route:
    return lambda source, target: (partial(space.encode, source=source), partial(space.encode, source=target))


def _shared_route(method: str, fit: Spaces, n_anchors: int, seed: int) -> Route:
    if method == "shuffled":
        rng = np.random.default_rng(seed)
        fit = {name: x[rng.permutation(x.shape[0])] for name, x in fit.items()}
    return _encoders(RelativeSpace(n_anchors, seed=seed, **_SHARED[method]).fit(fit))


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


def _held_out(holdout: Any, n: int, seed: int) -> np.ndarray[Any, Any]:
    if np.ndim(holdout) == 0:
        share = _checks.number("holdout", holdout, low=0, high=1, open_low=True)
        count = round(share * n)
        if not 2 <= count <= n - 2:
            raise _checks.InvalidInput(
                f"holdout is {holdout} of {n} items; needs at least 2 held out and 2 fitted."
            )
        return np.sort(np.random.default_rng(seed).choice(n, count, replace=False))
    held = np.unique(np.asarray(holdout))
    if held.dtype.kind not in "iu" or held[0] < 0 or held[-1] >= n or not 2 <= held.size <= n - 2:
        raise _checks.InvalidInput(
            f"holdout must hold row numbers from 0 to {n - 1}, at least 2, and leave at least 2 to fit."
        )
    return held


def _has_torch() -> bool:
    import importlib.util

    return importlib.util.find_spec("torch") is not None
