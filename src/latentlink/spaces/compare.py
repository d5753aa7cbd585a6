"""Every way of making encoders comparable, side by side on pairs that no map was fitted on."""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from latentlink import _checks
from latentlink._metrics import Interval, paired_ranks, proportion_interval, recall_at, reciprocal_rank
from latentlink.similarity import hubness, normalize, pairwise_similarity
from latentlink.spaces.relative import RelativeSpace
from latentlink.spaces.routes import (
    EXTRA_METHODS,
    METHODS,
    SHARED,
    TRANSLATIONS,
    FloatArray,
    Route,
    Spaces,
    encoder_route,
    route_of,
)
from latentlink.spaces.scores import CertifiedSearch, MapComparison, MapScore


def compare_maps(
    spaces: Mapping[str, Any],
    *,
    holdout: float | Any = 0.2,
    methods: Sequence[str] = METHODS,
    n_anchors: int = 256,
    csls: bool = False,
    certify_at: int | None = None,
    temperature: float = 0.1,
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
    certify_at : int, optional
        Also certify each search, by cosine, as one among this many candidates: held-out pairs, each the others'
        negatives, and the predicted bias of so many. Not with `csls`, whose scores are no cosines.
    temperature : float
        Of the certificate's softmax.
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
    data = _paired(spaces, min_rows=4)
    if certify_at is not None:
        _checks.integer("certify_at", certify_at, low=2)
        if csls:
            raise _checks.InvalidInput(
                "csls is True with certify_at: only plain cosine is certified. Pass one."
            )
    wanted = [
        _checks.one_of("methods", method, (*METHODS, *EXTRA_METHODS))
        for method in _checks.sequence("methods", methods)
    ]
    _checks.integer("n_anchors", n_anchors, low=1)
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
    for method in wanted:
        if method == "param-wip" and not _has_torch():
            notes.append('param-wip left out: it needs torch (pip install "latentlink[torch]")')
            continue
        started = time.process_time()
        route = route_of(method, fit, min(n_anchors, largest), seed)
        spent = time.process_time() - started
        found = _search(method, route, fit if csls else None, test, spent, (certify_at, temperature))
        scores.extend(found)
    return MapComparison(tuple(scores), kept.size, held.size, tuple(notes))


def _paired(spaces: Mapping[str, Any], min_rows: int) -> dict[str, FloatArray]:
    """Check the arrays of two encoders or more, row j the same item in each."""
    given = _checks.mapping("spaces", spaces)
    if len(given) < 2:
        raise _checks.InvalidInput(f"spaces has {len(given)} encoder; a comparison needs at least 2.")
    data = {name: _checks.numpy_matrix(name, x, min_rows=min_rows) for name, x in given.items()}
    _checks.same_rows(**data)
    return data


def evaluate_space(
    space: RelativeSpace, spaces: Mapping[str, Any], *, csls: Mapping[str, Any] | None = None
) -> MapComparison:
    """Do `RelativeSpace.evaluate`."""
    test = _paired(spaces, min_rows=1)
    fit = None
    if csls is not None:
        fit = {name: _checks.numpy_matrix(name, x) for name, x in _checks.mapping("csls", csls).items()}
        missing = sorted(test.keys() - fit.keys())
        if missing:
            raise _checks.InvalidInput(
                f"csls lacks {', '.join(map(repr, missing))}; needs rows of every encoder."
            )
    scores = _search("space", encoder_route(space), fit, test, float("nan"))
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
    data = _paired(spaces, min_rows=4)
    n = next(iter(data.values())).shape[0]
    held = _held_out(holdout, n, seed)
    kept = np.random.default_rng(seed).permutation(np.setdiff1d(np.arange(n), held))
    results = []
    for size in _checks.sequence("sizes", sizes):
        _checks.integer("sizes", size, low=4, high=kept.size)
        rows = np.concatenate([kept[:size], held])
        part = {name: x[rows] for name, x in data.items()}
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


def _search(
    method: str,
    route: Route,
    fit: Spaces | None,
    test: Spaces,
    shared_seconds: float,
    certify: tuple[int | None, float] = (None, 0.1),
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
            gallery = np.hstack([gallery, -hubness(gallery, crowd)[:, None]])
        rank = paired_ranks(queries, gallery)
        top, ten = recall_at(rank, 1), recall_at(rank, 10)
        translates = method in TRANSLATIONS
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
                seconds=shared_seconds if method in SHARED else own_seconds + shared_seconds / n_pairs,
                certified=None if certify[0] is None else _certified(mapped, own, certify[0], certify[1]),
            )
        )
    return scores


def _certified(
    queries: FloatArray, gallery: FloatArray, n_candidates: int, temperature: float
) -> CertifiedSearch:
    from latentlink.risk import certify, predict_bias

    found = certify(queries, gallery, temperature=temperature, design="in_batch", progress=False)
    rows = found.rows
    bias = predict_bias(rows.variance, rows.ratio, n_candidates - 1, variant="corpus", third=rows.third).bias
    shift = math.log(n_candidates) + bias
    low, high = found.interval(0.95)
    return CertifiedSearch(
        n_candidates,
        temperature,
        found.cross_entropy + shift,
        Interval(low + shift, high + shift),
        found.verdict,
    )


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
