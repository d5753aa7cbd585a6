"""Which rows of which encoder are the same item."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from latentlink import _checks

FloatArray = np.ndarray[Any, np.dtype[np.floating[Any]]]


def join(arrays: Mapping[str, FloatArray], ids: Any) -> tuple[dict[str, np.ndarray[Any, Any]], Any]:
    """Find the rows of each array that hold the items common to all, and those items' ids."""
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
    return {name: positions(checked[name], kept) for name in names}, kept


def positions(ids: np.ndarray[Any, Any], wanted: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Find the row of each wanted id, or raise naming how many are missing."""
    place = {value: row for row, value in enumerate(ids.tolist())}
    lost = [value for value in wanted.tolist() if value not in place]
    if lost:
        raise _checks.InvalidInput(f"ids lacks {len(lost)} support items, {lost[0]!s} among them; add them.")
    return np.asarray([place[value] for value in wanted.tolist()])
