"""Which rows of which encoder are the same item, and which items an encoder has not seen."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from latentlink import _checks

FloatArray = np.ndarray[Any, np.dtype[np.floating[Any]]]
IntArray = np.ndarray[Any, np.dtype[np.int64]]


@dataclass(frozen=True)
class Support:
    """The m items that a space is fitted on, those that every encoder has seen first.

    Attributes
    ----------
    ids : array (m,)
    rows : dict of name to int array (m_i,)
        Rows of the encoder's array that hold support items.
    places : dict of name to int array (m_i,)
        Which items those are, ascending.
    n_common : int
        Items that every encoder has seen: the first of `ids`.
    """

    ids: np.ndarray[Any, Any]
    rows: dict[str, IntArray]
    places: dict[str, IntArray]
    n_common: int


def gather(arrays: Mapping[str, FloatArray], ids: Any, *, seen_by: int | str = "all") -> Support:
    """Find the items that at least `seen_by` of the encoders have seen, and their rows.

    Parameters
    ----------
    arrays : mapping of name to (n_i, d_i) array
    ids : None, (n,) array, or mapping of name to (n_i,) array
        See `RelativeSpace.fit`.
    seen_by : int from 2 or "all"

    Returns
    -------
    Support

    Raises
    ------
    InvalidInput
        Rows and ids do not fit, or the encoders fall into groups that share no item.

    Examples
    --------
    >>> x = np.zeros((2, 1))
    >>> gather({"a": x, "b": x, "c": x}, {"a": [1, 2], "b": [2, 3], "c": [3, 1]}, seen_by=2).ids
    array([1, 2, 3])
    """
    names = list(arrays)
    if len(names) < 2:
        raise _checks.InvalidInput(f"spaces has {len(names)} encoder; a shared space needs at least 2.")
    least = len(names) if seen_by == "all" else seen_by
    if not isinstance(least, int) or not 2 <= least <= len(names):
        raise _checks.InvalidInput(
            f'seen_by is {seen_by!r}; needs "all" or a whole number from 2 to {len(names)}.'
        )
    if not isinstance(ids, Mapping):
        _checks.same_rows(**arrays)
        n = next(iter(arrays.values())).shape[0]
        named = np.arange(n) if ids is None else _checks.unique_ids("ids", ids, rows=n)
        every = {name: np.arange(n) for name in names}
        return Support(named, every, every, n)
    missing = [name for name in names if name not in ids]
    if missing:
        raise _checks.InvalidInput(f"ids has no entry for {missing[0]!r}; needs one for each encoder.")
    values = {
        name: _checks.unique_ids(f"ids[{name!r}]", ids[name], rows=x.shape[0]).tolist()
        for name, x in arrays.items()
    }
    counts = Counter(value for name in names for value in values[name])  # in order of first appearance
    common = [value for value, count in counts.items() if count == len(names)]
    kept = common + [value for value, count in counts.items() if least <= count < len(names)]
    if not kept:
        raise _checks.InvalidInput("the encoders have no id in common; needs shared items.")
    rows, places = {}, {}
    for name in names:
        rows[name], places[name] = matched(values[name], kept)
    _connected(places, len(kept))
    return Support(np.asarray(kept), rows, places, len(common))


def join(arrays: Mapping[str, FloatArray], ids: Any) -> tuple[dict[str, IntArray], Any]:
    """Find the rows of each array that hold the items common to all, and those items' ids."""
    support = gather(arrays, ids)
    return support.rows, support.ids


def matched(ids: Sequence[Any], wanted: Sequence[Any]) -> tuple[IntArray, IntArray]:
    """Find the wanted items that are among ids: their rows, and their places among the wanted, ascending."""
    at = {value: row for row, value in enumerate(ids)}
    found = [(at[value], place) for place, value in enumerate(wanted) if value in at]
    pairs = np.asarray(found, dtype=np.int64).reshape(-1, 2)
    return pairs[:, 0], pairs[:, 1]


def _connected(places: Mapping[str, IntArray], m: int) -> None:
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import connected_components

    names = list(places)
    columns = np.concatenate([places[name] for name in names])
    owners = np.repeat(np.arange(len(names)), [places[name].size for name in names])
    seen = csr_array((np.ones(columns.size), (owners, columns)), shape=(len(names), m))
    _, group = connected_components(seen @ seen.T, directed=False)
    apart = [name for name, label in zip(names, group, strict=True) if label != group[0]]
    if apart:
        raise _checks.InvalidInput(
            f"{apart[0]!r} shares no item with {names[0]!r}, directly or through other encoders; "
            "add items that link them."
        )
