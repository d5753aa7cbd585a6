"""Take the upper tail of similarities: the exceedances of each query, or of all pairs pooled."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from latentlink import _checks
from latentlink._arrays import Array, is_tensor, like, namespace, to_numpy
from latentlink.tails._source import IntArray, Source, check_endpoint

# Exceedances kept in all by a threshold or a pooled tail: 20 million float32 values with owners are 240 MB.
_KEPT_VALUES = 20_000_000
# Fewer exceedances than this say nothing about a tail.
_LEAST = 8


class Excluded(NamedTuple):
    """How many candidates were left out, over all queries."""

    positives: int
    duplicates: int


_NOTHING = Excluded(0, 0)


@dataclass(frozen=True, eq=False)
class Tail:
    """Hold the largest similarities of each query and what they were taken from.

    Make one by `take_tail`, or by `Tail.of` from exceedances at hand.

    Attributes
    ----------
    values : array or tensor (n, k)
        Exceedances, the largest first; NaN after the last one of a row. In the coordinate's units.
    threshold : array or tensor (n,)
    counts : int array (n,)
        Exceedances of each row; 0 for a row whose similarities held NaN.
    n_candidates : int array (n,)
        Similarities each row was taken from.
    rows : int array (n,)
        Which query each row is.
    endpoint : float or None
        Largest possible value, or None where it is not known.
    coordinate : {"similarity", "cap"}
        "cap" measures s by its cap on the sphere: s² with the sign of s, so that 1 − s² is the shortfall.
    excluded : Excluded
    owners : int array (k, 2) or None
        Query and candidate of each exceedance of a pooled tail.
    shared : bool
        Whether queries and candidates of a pooled tail are rows of one set.
    """

    values: Array
    threshold: Array
    counts: IntArray
    n_candidates: IntArray
    rows: IntArray
    endpoint: float | None = 1.0
    coordinate: str = "similarity"
    excluded: Excluded = _NOTHING
    owners: IntArray | None = None
    shared: bool = False

    @classmethod
    def of(cls, values: Any, threshold: Any, *, endpoint: float | None = 1.0, n_candidates: Any = None) -> Tail:
        """Make a tail from exceedances (n, k), NaN-padded where rows differ, and thresholds (n,).

        >>> Tail.of([[0.6, 0.9, 0.8]], threshold=[0.5]).values
        array([[0.9, 0.8, 0.6]])
        """
        x = _checks.matrix("values", values, finite=False)
        u = _checks.vector("threshold", threshold, length=int(x.shape[0]), finite=False)
        xp = namespace(x)
        if bool(xp.any(x < u[:, None])):
            raise _checks.InvalidInput(
                "values has exceedances below their threshold; needs values >= threshold."
            )
        check_endpoint(x, endpoint)
        lowest = xp.asarray(-np.inf, dtype=x.dtype)
        padded = xp.where(xp.isnan(x), lowest, x)
        padded = xp.sort(padded, axis=1, descending=True)
        counts = np.asarray(to_numpy(xp.sum(xp.astype(padded > lowest, xp.int64), axis=1)), dtype=np.int64)
        total = counts if n_candidates is None else np.broadcast_to(np.asarray(n_candidates), counts.shape)
        nan = xp.asarray(np.nan, dtype=x.dtype)
        return cls(
            values=xp.where(padded > lowest, padded, nan),
            threshold=u,
            counts=counts,
            n_candidates=np.asarray(total, dtype=np.int64),
            endpoint=endpoint,
            rows=np.arange(counts.size),
        )

    @property
    def excesses(self) -> Array:
        """Exceedances over their threshold, (n, k)."""
        return self.values - self.threshold[:, None]

    @property
    def rate(self) -> np.ndarray[Any, np.dtype[np.float64]]:
        """Share of each query's candidates above its threshold, (n,)."""
        with np.errstate(invalid="ignore", divide="ignore"):
            return np.asarray(self.counts / self.n_candidates)

    def top(self, tail_size: int) -> Tail:
        """Take the `tail_size` largest of each row, with the next one as threshold.

        Rows with fewer than `tail_size` + 1 exceedances become NaN.
        """
        size = _checks.integer("tail_size", tail_size, low=1, high=self.tail_size - 1)
        enough = self.counts > size
        xp = namespace(self.values)
        values = xp.where(
            like(enough, self.values)[:, None], self.values[:, :size], self.values[:, :size] * np.nan
        )
        return replace(
            self,
            values=values,
            threshold=self.values[:, size],
            counts=np.where(enough, size, 0),
            owners=None if self.owners is None else self.owners[:size],
        )

    @property
    def pooled(self) -> bool:
        """Whether the tail is one of all pairs."""
        return self.owners is not None

    @property
    def n_queries(self) -> int:
        """Number of rows."""
        return int(self.counts.size)

    @property
    def tail_size(self) -> int:
        """Largest number of exceedances of a row."""
        return int(self.values.shape[1])


def known_tail(tail: Any) -> None:
    """Raise when `tail` is no Tail."""
    _checks.instance("tail", tail, Tail, "a Tail, as take_tail makes it")


def take_tail(
    embeddings: Array | None = None,
    *,
    corpus: Array | None = None,
    similarities: Array | None = None,
    tail_size: int | None = None,
    threshold: float | None = None,
    fraction: float | None = None,
    pooled: bool = False,
    same: Any = None,
    exclude: Any = None,
    duplicate_gap: float = 1e-6,
    n_queries: int | None = None,
    seed: int = 0,
    similarity: str = "cosine",
    endpoint: float | None = 1.0,
    coordinate: str = "similarity",
) -> Tail:
    """Take the largest similarities of each query, or of all pairs.

    Parameters
    ----------
    embeddings : array or tensor (n, d)
        Queries. Without `corpus` each row is compared with all the others, itself excluded.
    corpus : array or tensor (m, d), optional
        Candidates, when they are another set.
    similarities : array or tensor (n, m), in place of `embeddings`
        −inf marks what is no candidate. A row that holds NaN gives a row of NaN.
    tail_size : int
        Exceedances of each query: the `tail_size` largest, with the next one as threshold. 64 when none of
        `tail_size`, `threshold` and `fraction` is given. With `pooled` the exceedances of all pairs.
    threshold : float
        Take everything above a fixed similarity instead; rows then differ in length.
    fraction : float
        In (0, 1): take this share of the candidates (of all pairs with `pooled`).
    pooled : bool
        Make one tail of all pairs; a pair of one set counts once.
    same : array (n,), or a pair of arrays (n,) and (m,) with `corpus`
        Labels: candidates with the label of the query are known positives and are left out.
    exclude : int array (p, 2)
        Known positives by (query row, candidate row).
    duplicate_gap : float
        Candidates this close to the endpoint are duplicates of the query and are left out; 0 keeps them.
    n_queries : int
        Take this many queries, drawn without replacement by `seed`; all where there are no more.
    similarity : {"cosine", "dot"}
    endpoint : float or None
        Largest possible similarity; None where there is none (inner products).
    coordinate : {"similarity", "cap"}
        See `Tail`.

    Returns
    -------
    Tail

    Raises
    ------
    InvalidInput
        A row has too few candidates, the threshold leaves fewer than 8 exceedances, or a similarity lies
        beyond the endpoint.

    Notes
    -----
    Cost: n m d multiply-adds and one partial sort of each row; never more than 25 million similarities are
    held. With the (k+1)-th largest value as threshold the k excesses of a generalised Pareto tail are again a
    sample of that law (Rényi 1953), so the tests of `judge` stay exact.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> tail = take_tail(rng.normal(size=(200, 8)), tail_size=16)
    >>> tail.values.shape, bool((tail.values > tail.threshold[:, None]).all())
    ((200, 16), True)
    """
    source = Source.make(
        embeddings, corpus, similarities, similarity, same, exclude, duplicate_gap, endpoint, n_queries, seed
    )
    _checks.one_of("coordinate", coordinate, ["similarity", "cap"])
    if coordinate == "cap" and endpoint != 1.0:
        raise _checks.InvalidInput(f'coordinate is "cap" with endpoint {endpoint}; needs endpoint 1.')
    size = _tail_size(source, tail_size, threshold, fraction, pooled)
    if pooled:
        tail = _pooled(source, size, threshold)
    elif size is None:
        assert threshold is not None
        tail = _above(source, _checks.number("threshold", threshold))
    else:
        tail = _largest(source, size)
    return _in_coordinate(tail, coordinate)


def _largest(source: Source, size: int) -> Tail:
    """Take the `size` largest of each row and the next as threshold."""
    parts, counts = [], []
    for rows, block, n_candidates in source.blocks():
        xp = namespace(block)
        missing = np.asarray(to_numpy(xp.any(xp.isnan(block), axis=1)), dtype=bool)
        short = np.flatnonzero((n_candidates < size + 1) & ~missing)
        if short.size:
            raise _checks.InvalidInput(
                f"tail_size is {size} but row {rows[short[0]]} has {n_candidates[short[0]]} finite "
                "similarities; lower tail_size or add candidates."
            )
        if size >= source.width:  # and so all rows are missing
            raise _checks.InvalidInput(
                f"tail_size is {size} but there are {source.width} candidates; lower tail_size or add candidates."
            )
        top = _top(block, size + 1)  # (b, k + 1)
        if missing.any():
            top[like(missing, top)] = np.nan
        parts.append(top)
        counts.append(np.where(missing, 0, n_candidates))
    xp = namespace(source.queries)
    top = xp.concat(parts)
    n_candidates = np.concatenate(counts)
    return Tail(
        values=top[:, :size],
        threshold=top[:, size],
        counts=np.where(n_candidates > 0, size, 0),
        n_candidates=n_candidates,
        endpoint=source.endpoint,
        rows=source.rows,
        excluded=Excluded(source.positives, source.duplicates),
    )


def _above(source: Source, threshold: float) -> Tail:
    """Take what lies above a fixed threshold, NaN-padded to the longest row."""
    parts: list[Array] = []
    counts, totals, kept = [], [], 0
    for _, block, n_candidates in source.blocks():
        xp = namespace(block)
        missing = np.asarray(to_numpy(xp.any(xp.isnan(block), axis=1)), dtype=bool)
        above = np.asarray(to_numpy(xp.sum(xp.astype(block > threshold, xp.int64), axis=1)))
        above = np.where(missing, 0, above)
        longest = max(1, int(above.max(initial=0)))
        kept += longest * above.size
        _check_kept(kept)
        top = _top(block, longest)
        inside = np.arange(longest) < above[:, None]
        top[like(~inside, top)] = np.nan
        parts.append(top)
        counts.append(above)
        totals.append(np.where(missing, 0, n_candidates))
    above = np.concatenate(counts)
    if above.max(initial=0) < _LEAST:
        raise _too_few(threshold, int(above.max(initial=0)), source.n_candidates)
    longest = int(above.max())
    _check_kept(longest * above.size)
    xp = namespace(source.queries)
    values = xp.concat([_padded(part, longest) for part in parts])
    return Tail(
        values=values,
        threshold=xp.ones_like(values[:, 0]) * threshold,
        counts=above,
        n_candidates=np.concatenate(totals),
        endpoint=source.endpoint,
        rows=source.rows,
        excluded=Excluded(source.positives, source.duplicates),
    )


def _pooled(source: Source, size: int | None, threshold: float | None) -> Tail:
    """Take the largest of all pairs: keep what may still be among them, and prune when it doubles."""
    keep = np.inf if size is None else size + 1
    bound = -np.inf if threshold is None else _checks.number("threshold", threshold)
    values, owners, n_pairs = np.zeros(0), np.zeros((0, 2), dtype=np.int64), 0
    for rows, tensor, _ in source.blocks():
        block = to_numpy(tensor)
        if source.own:  # the pair (i, j) of one set counts once
            is_query = np.zeros(source.width, dtype=bool)
            is_query[source.rows] = True
            block = np.where(is_query[None, :] & (np.arange(source.width) < rows[:, None]), -np.inf, block)
        n_pairs += int(np.count_nonzero(block > -np.inf))
        place, column = np.nonzero(block > bound)
        values = np.concatenate([values, block[place, column]])
        owners = np.concatenate([owners, np.stack([rows[place], column], axis=1)])
        if values.size > 2 * keep:
            kept = np.argpartition(values, values.size - int(keep))[values.size - int(keep) :]
            values, owners = values[kept], owners[kept]
            bound = values.min()
        _check_kept(values.size)
    order = np.argsort(-values, kind="stable")
    values, owners = values[order], owners[order]
    if size is not None:
        if values.size < size + 1:
            raise _checks.InvalidInput(
                f"tail_size is {size} but there are {values.size} pairs; lower tail_size or add candidates."
            )
        bound = values[size]
        values, owners = values[:size], owners[:size]
    if values.size < _LEAST:
        raise _too_few(bound, values.size, n_pairs)
    return Tail(
        values=like(values[None, :], source.queries),
        threshold=like(np.asarray([bound], dtype=values.dtype), source.queries),
        counts=np.asarray([values.size]),
        n_candidates=np.asarray([n_pairs]),
        endpoint=source.endpoint,
        rows=source.rows,
        excluded=Excluded(source.positives, source.duplicates),
        owners=owners,
        shared=source.own,
    )


def _tail_size(
    source: Source, tail_size: int | None, threshold: float | None, fraction: float | None, pooled: bool
) -> int | None:
    given = [
        name
        for name, value in (("tail_size", tail_size), ("threshold", threshold), ("fraction", fraction))
        if value is not None
    ]
    if len(given) > 1:
        raise _checks.InvalidInput(f"{' and '.join(given)} given; needs at most one of them.")
    if threshold is not None:
        return None
    if fraction is not None:
        share = _checks.number("fraction", fraction, low=0, high=1, open_low=True)
        of = source.n_candidates * source.rows.size // (2 if pooled and source.own else 1)
        return max(1, round(share * (of if pooled else source.n_candidates)))
    return _checks.integer("tail_size", 64 if tail_size is None else tail_size, low=1)


def _in_coordinate(tail: Tail, coordinate: str) -> Tail:
    if coordinate == "similarity":
        return tail
    xp = namespace(tail.values)
    squared = {name: getattr(tail, name) * xp.abs(getattr(tail, name)) for name in ("values", "threshold")}
    return replace(tail, coordinate=coordinate, **squared)


def _top(block: Array, size: int) -> Array:
    """Return the `size` largest of each row, the largest first, NaN counted as largest: (b, m) to (b, size)."""
    if is_tensor(block):
        return block.topk(size, dim=1).values
    m = block.shape[1]
    if size < m:
        block = np.partition(block, m - size, axis=1)[:, m - size :]
    return np.sort(block, axis=1)[:, ::-1].copy()


def _padded(part: Array, width: int) -> Array:
    xp = namespace(part)
    if part.shape[1] == width:
        return part
    filler = xp.ones_like(part[:, :1]) * np.nan
    return xp.concat([part] + [filler] * (width - int(part.shape[1])), axis=1)


def _check_kept(n: int) -> None:
    if n > _KEPT_VALUES:
        raise _checks.InvalidInput(
            f"the tail would hold {n} similarities; needs at most {_KEPT_VALUES}. "
            "Raise the threshold, lower the fraction or sample queries by n_queries."
        )


def _too_few(threshold: float, found: int, of: int) -> _checks.InvalidInput:
    return _checks.InvalidInput(
        f"threshold {threshold:g} leaves {found} of {of} similarities; needs at least {_LEAST}. "
        "Lower the threshold or take a fraction."
    )
