"""Shadow evaluation: the migrated search beside the new encoder's own, on the same queries and items."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from latentlink import _checks
from latentlink._metrics import Interval, bootstrap_interval, ndcg_at, recall_at
from latentlink._progress import track
from latentlink.search.gate import FloatArray, shared
from latentlink.similarity import hubness, normalize, top_k

DIRECTIONS = ["corpus", "query", "shared"]
_QUERY_ROWS = 1024  # searched at a time


@dataclass(frozen=True)
class Shadow:
    """The migrated search against the new encoder's own, on known items.

    Attributes
    ----------
    direction : {"corpus", "query", "shared"}
    k, n_queries, n_items : int
    native_recall, migrated_recall : float
        Share of queries whose item is among the first k.
    native_ndcg, migrated_ndcg : float
        nDCG at k.
    retention, ndcg_retention : float
        Migrated over native.
    retention_interval, ndcg_interval : Interval
        95 %, paired bootstrap over queries.
    overlap : float
        Share of the native k nearest that the migrated search also finds.
    encoder_overlap : float
        The same between the two encoders' own searches: how alike they are without any migration. NaN when the
        queries were not embedded by the old encoder.
    old_recall : float
        Of the old encoder's own search; NaN likewise.
    tenants : dict of str to (int, float, Interval)
        Queries, retention and its interval of each tenant.
    cross_entropy, cross_entropy_high, recall_at_1 : float
        Of `certify` on the migrated space at temperature 0.1: how well the *new* search will do, with the upper
        end of the 95 % interval. NaN with fewer than 20 queries.
    verdict : str
        Of the same certificate: "trust" or why not. "none" with fewer than 20 queries.
    """

    direction: str
    k: int
    n_queries: int
    n_items: int
    native_recall: float
    migrated_recall: float
    native_ndcg: float
    migrated_ndcg: float
    retention: float
    retention_interval: Interval
    ndcg_retention: float
    ndcg_interval: Interval
    overlap: float
    encoder_overlap: float
    old_recall: float
    tenants: dict[str, tuple[int, float, Interval]]
    cross_entropy: float
    cross_entropy_high: float
    recall_at_1: float
    verdict: str

    def __str__(self) -> str:
        low, high = self.retention_interval
        known = not np.isnan(self.old_recall)  # the queries were embedded by the old encoder too
        old = f", old encoder {self.old_recall:.3f}" if known else ""
        shared = f"; the two encoders themselves share {self.encoder_overlap:.3f}" if known else ""
        lines = [
            f"{self.direction} side, {self.n_queries} queries, {self.n_items} items",
            f"recall@{self.k}       new encoder {self.native_recall:.3f}, migrated {self.migrated_recall:.3f}{old}",
            f"retention       {self.retention:.3f} [{low:.3f}, {high:.3f}]",
            f"nDCG@{self.k}         new encoder {self.native_ndcg:.3f}, migrated {self.migrated_ndcg:.3f}, "
            f"retention {self.ndcg_retention:.3f} [{self.ndcg_interval.low:.3f}, {self.ndcg_interval.high:.3f}]",
            f"same neighbours {self.overlap:.3f}{shared}",
            "certified       nothing: fewer than 20 queries"
            if self.verdict == "none"
            else f"certified       cross-entropy {self.cross_entropy:+.3f} nats (at most "
            f"{self.cross_entropy_high:+.3f}), recall@1 {self.recall_at_1:.3f}, verdict {self.verdict}",
        ]
        lines += [
            f"  {name}: {value:.3f} [{span.low:.3f}, {span.high:.3f}] ({count} queries)"
            for name, (count, value, span) in self.tenants.items()
        ]
        return "\n".join(lines)


def shadow(
    space: Any,
    *,
    old: str,
    new: str,
    direction: str,
    corpus_old: Any,
    corpus_new: Any,
    queries_new: Any,
    relevant: Any,
    queries_old: Any = None,
    tenants: Any = None,
    crowd: Any = None,
    k: int = 10,
    progress: bool = True,
) -> Shadow:
    """Search a sample both ways and compare.

    Parameters
    ----------
    space : RelativeSpace
        Fitted without the items and queries below.
    old, new : str
        The two encoders.
    direction : {"corpus", "query", "shared"}
        Old vectors translated into the new space; new queries translated into the old space; or both encoded
        into the shared space.
    corpus_old, corpus_new : array (m, d_old), (m, d_new)
        The same items by both encoders: the second is the re-embedded truth.
    queries_new : array (n, d_new)
    relevant : int array (n,)
        Row of the item that each query should find.
    queries_old : array (n, d_old), optional
    tenants : array (n,), optional
        A name for each query; retention is given for each.
    crowd : array (m, d_new), optional
        Vectors by the new encoder, such as those of the fitted items: the migrated search then ranks by
        2 similarity - hubness, as `Index.build` does with it.
    k : int
    progress : bool
        Draw a bar on stderr, if that is a terminal.

    Returns
    -------
    Shadow
    """
    _checks.one_of("direction", direction, DIRECTIONS)
    items_old, items_new = _checks.matrix("corpus_old", corpus_old), _checks.matrix("corpus_new", corpus_new)
    _checks.same_rows(corpus_old=items_old, corpus_new=items_new)
    q = _checks.matrix("queries_new", queries_new)
    rows = np.asarray(relevant)
    if rows.shape != (len(q),) or rows.dtype.kind not in "iu" or rows.min() < 0 or rows.max() >= len(items_old):
        raise _checks.InvalidInput(
            f"relevant has shape {rows.shape} and type {rows.dtype}; needs {len(q)} row numbers of the corpus "
            f"sample, from 0 to {len(items_old) - 1}."
        )
    k = _checks.integer("k", k, low=1, high=len(items_old))
    sides = mapped(space, old, new, direction, items_old, q)
    native = _known_item(q, items_new, rows, k, progress)
    measured = None
    if crowd is not None:
        people = mapped(
            space, old, new, direction, items_old[:1], _checks.matrix("crowd", crowd, columns=q.shape[1])
        )[0]
        measured = hubness(normalize(sides[1]), normalize(people), skip_best=True)
    migrated = _known_item(*sides, rows, k, progress, measured)
    own = None if queries_old is None else _known_item(queries_old, items_old, rows, k, progress)
    pairs = np.stack([migrated.hits, native.hits], axis=1)
    gains = np.stack([migrated.gains, native.gains], axis=1)
    names = np.asarray([""] * len(q) if tenants is None else tenants).astype(str)
    if names.shape != (len(q),):
        raise _checks.InvalidInput(
            f"tenants has shape {names.shape}; needs ({len(q)},), a name for each query."
        )
    split = {}
    for name in [] if tenants is None else np.unique(names):
        mine = pairs[names == name]
        split[str(name)] = (len(mine), _ratio(mine), bootstrap_interval(mine, statistic=_ratio))
    certificate = _certified(sides, rows, progress)
    return Shadow(
        direction=direction,
        k=k,
        n_queries=len(q),
        n_items=len(items_old),
        native_recall=float(native.hits.mean()),
        migrated_recall=float(migrated.hits.mean()),
        native_ndcg=float(native.gains.mean()),
        migrated_ndcg=float(migrated.gains.mean()),
        retention=_ratio(pairs),
        retention_interval=bootstrap_interval(pairs, statistic=_ratio),
        ndcg_retention=_ratio(gains),
        ndcg_interval=bootstrap_interval(gains, statistic=_ratio),
        overlap=_overlap(migrated.found, native.found),
        encoder_overlap=float("nan") if own is None else _overlap(own.found, native.found),
        old_recall=float("nan") if own is None else float(own.hits.mean()),
        tenants=split,
        **certificate,
    )


def mapped(
    space: Any, old: str, new: str, direction: str, corpus_old: Any, queries_new: Any
) -> tuple[FloatArray, FloatArray]:
    """Return the queries and items that a migrated search compares."""
    if direction == "corpus":
        return queries_new, space.translate(corpus_old, source=old, target=new)
    if direction == "query":
        return space.translate(queries_new, source=new, target=old), corpus_old
    return space.encode(queries_new, source=new), space.encode(corpus_old, source=old)


def learning_curve(
    pairs: Mapping[str, Any],
    sizes: Sequence[int] = (100, 200, 500, 1000, 2000, 5000),
    *,
    n_anchors: int = 256,
    seed: int = 0,
    **task: Any,
) -> list[tuple[int, float, Interval]]:
    """Fit on more and more pairs and return (pairs, retention, interval) of each: how many are worth embedding.

    Parameters
    ----------
    pairs : mapping of the two names to arrays (n, d)
        Row j is the same item by both encoders.
    sizes : sequence of int
        Those below n are taken, then n itself.
    n_anchors : int
    seed : int
    **task
        What `shadow` takes, without the space.
    """
    from latentlink.spaces import RelativeSpace

    data = {
        name: _checks.numpy_matrix(name, x, min_rows=4) for name, x in _checks.mapping("pairs", pairs).items()
    }
    _checks.same_rows(**data)
    asked = [_checks.integer("sizes", size, low=4) for size in _checks.sequence("sizes", sizes)]
    _checks.integer("n_anchors", n_anchors, low=1)
    n = len(next(iter(data.values()), ()))
    order = _checks.generator(seed).permutation(n)
    curve = []
    for size in [*(size for size in asked if size < n), n]:
        rows = order[:size]
        anchors = max(1, min(n_anchors, size // 2))
        space = RelativeSpace(n_anchors=anchors, seed=seed).fit({name: x[rows] for name, x in data.items()})
        found = shadow(space, **task)
        curve.append((size, found.retention, found.retention_interval))
    return curve


def uncertainty(space: Any, vectors: Any, *, source: str, target: str) -> FloatArray:
    """Return how little the map can be trusted for each vector: the largest are best embedded again first.

    It is the share of a vector (relative to the encoder's mean) that is lost on the way into the shared space
    and back. Cost: two products.

    Parameters
    ----------
    space : RelativeSpace
    vectors : array (n, d)
    source, target : str

    Returns
    -------
    array (n,)
        0 means nothing is lost.
    """
    shared(space)
    _checks.one_of("target", target, space.names)
    x = _checks.numpy_matrix("vectors", vectors)
    back = space.translate(x, source=source, target=source)
    return np.asarray(np.linalg.norm(x - back, axis=1) / np.linalg.norm(x, axis=1))


def recalibrate(old_similarities: Any, new_similarities: Any, threshold: float) -> float:
    """Return the threshold that accepts as many pairs in the new search as `threshold` did in the old one.

    Parameters
    ----------
    old_similarities, new_similarities : array (n,)
        Of the same pairs, drawn as the application draws them.
    threshold : float

    Examples
    --------
    >>> old = np.linspace(0.5, 0.9, 101)
    >>> round(recalibrate(old, 0.3 + old / 2, threshold=0.7), 2)
    0.65
    """
    a = _checks.numpy_vector("old_similarities", old_similarities)
    b = _checks.numpy_vector("new_similarities", new_similarities, length=len(a))
    level = _checks.number("threshold", threshold)
    share = float((a >= level).mean())
    if share in (0.0, 1.0):
        verb = "none" if share == 0 else "all"
        raise _checks.InvalidInput(
            f"threshold is {threshold}, which {verb} of the {len(a)} pairs pass; needs some."
        )
    return float(np.quantile(b, 1 - share))


@dataclass(frozen=True)
class _Found:
    hits: FloatArray  # (n,)
    gains: FloatArray  # (n,)
    found: FloatArray  # (n, k)


def _known_item(
    queries: Any, items: Any, relevant: FloatArray, k: int, progress: bool, hubs: FloatArray | None = None
) -> _Found:
    q, c = normalize(np.asarray(queries)), normalize(np.asarray(items))
    if hubs is not None:  # 2 similarity - hubness as one inner product
        q, c = np.hstack([2 * q, np.ones_like(q[:, :1])]), np.hstack([c, -hubs[:, None]])
    starts = range(0, len(q), _QUERY_ROWS)
    parts = [
        top_k(q[start : start + _QUERY_ROWS], c, k, similarity="dot")[1]
        for start in track(starts, total=len(starts), what="queries", show=progress)
    ]
    found = np.concatenate(parts)
    at = found == relevant[:, None]  # (n, k)
    place = np.where(at.any(axis=1), at.argmax(axis=1) + 1, k + 1)
    gains = np.hstack([at, ~at.any(axis=1, keepdims=True)])  # the missed item last, so that the ideal is 1
    return _Found(recall_at(place, k), ndcg_at(gains, k), found)


def _ratio(pairs: FloatArray) -> float:
    below = pairs[:, 1].mean()
    return float(pairs[:, 0].mean() / below) if below > 0 else float("nan")


def _overlap(a: FloatArray, b: FloatArray) -> float:
    return float((a[:, :, None] == b[:, None, :]).any(axis=2).mean())


def _certified(sides: tuple[FloatArray, FloatArray], relevant: FloatArray, progress: bool) -> dict[str, Any]:
    from latentlink.risk import certify

    if len(relevant) < 20:
        unknown = dict.fromkeys(["cross_entropy", "cross_entropy_high", "recall_at_1"], float("nan"))
        return {**unknown, "verdict": "none"}
    queries, items = sides
    _, first = np.unique(relevant, return_index=True)  # one query an item: pairs must not repeat
    rest = np.setdiff1d(np.arange(len(items)), relevant)
    few = len(rest) < 20
    found = certify(
        queries[first],
        items[relevant[first]],
        None if few else items[rest],
        temperature=0.1,
        design="in_batch" if few else "pool",
        leaks="exclude",
        progress=progress,
    )
    return {
        "cross_entropy": float(found.cross_entropy),
        "cross_entropy_high": float(found.interval().high),
        "recall_at_1": float(found.recall_at_1),
        "verdict": found.verdict,
    }
