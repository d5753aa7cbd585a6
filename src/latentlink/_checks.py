"""Shapes, ranges, finite rows: every check of a user's input, and the wording of every error.

An error says four things: the argument, what it is, what is needed, and what to do.
Public functions check through this module; inner code may assume.
"""

from __future__ import annotations

import importlib
import importlib.util
import math
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from latentlink._arrays import Array, is_tensor, namespace, to_numpy

_LARGEST = 2**63 - 1


class InvalidInput(ValueError):
    """A value that cannot give a right answer. The message names the argument and the remedy."""


class InvalidType(TypeError):
    """An argument of a type that is not understood."""


class MissingExtra(ImportError):
    """A job whose optional dependency is not installed. The message names the extra."""


def need(module: str, *, extra: str, job: str) -> Any:
    """Import an optional dependency or say which extra brings it.

    >>> need("numpy", extra="search", job="arrays").__name__
    'numpy'
    >>> need("no_such_module", extra="search", job="Index")
    Traceback (most recent call last):
    ...
    latentlink._checks.MissingExtra: Index needs no_such_module: pip install "latentlink[search]".
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        package = module.split(".")[0]
        if error.name is not None and error.name.split(".")[0] == package:
            raise _missing(package, extra, job) from error
        raise


def look_for(module: str, *, extra: str, job: str) -> None:
    """Say which extra brings an optional dependency that is not there, without importing one that is."""
    if importlib.util.find_spec(module) is None:
        raise _missing(module, extra, job)


def _missing(package: str, extra: str, job: str) -> MissingExtra:
    return MissingExtra(f'{job} needs {package}: pip install "latentlink[{extra}]".')


def matrix(
    name: str, value: Any, *, columns: int | None = None, min_rows: int = 1, finite: bool = True
) -> Array:
    """Return `value` as a floating (n, d) array or tensor, or raise naming what is wrong.

    Half-precision and integer NumPy input is cast to float32, lists to float64; float32, float64 and tensors
    of any floating type stay as they are. Cost: one pass when `finite`.
    """
    array = _floating(name, value)
    if array.ndim != 2:
        hint = f" One vector? Use {name}[None]." if array.ndim == 1 else ""
        raise InvalidInput(f"{name} has shape {tuple(array.shape)}; needs (n, d).{hint}")
    if array.shape[0] < min_rows:
        raise InvalidInput(f"{name} has {_count(array.shape[0], 'row')}; needs at least {min_rows}.")
    if array.shape[1] < 1:
        raise InvalidInput(f"{name} has shape {tuple(array.shape)}; needs at least one column.")
    if columns is not None and array.shape[1] != columns:
        raise InvalidInput(f"{name} has {_count(array.shape[1], 'column')}; needs {columns}.")
    if finite:
        finite_rows(name, array)
    return array


def vector(name: str, value: Any, *, length: int | None = None, finite: bool = True) -> Array:
    """Return `value` as a floating (n,) array or tensor, or raise naming what is wrong."""
    array = _floating(name, value)
    if array.ndim != 1:
        raise InvalidInput(f"{name} has shape {tuple(array.shape)}; needs (n,).")
    if length is not None and array.shape[0] != length:
        raise InvalidInput(f"{name} has {_count(array.shape[0], 'value')}; needs {length}.")
    if finite:
        finite_rows(name, array[:, None], unit="value")
    return array


def numpy_matrix(
    name: str,
    value: Any,
    *,
    columns: int | None = None,
    min_rows: int = 1,
    finite: bool = True,
    dtype: Any = None,
) -> np.ndarray[Any, Any]:
    """Check as `matrix` does and return a NumPy array: a tensor without its graph, off its device."""
    checked = matrix(name, value, columns=columns, min_rows=min_rows, finite=finite)
    return np.asarray(to_numpy(checked), dtype=dtype)


def numpy_vector(
    name: str, value: Any, *, length: int | None = None, finite: bool = True, dtype: Any = None
) -> np.ndarray[Any, Any]:
    """Check as `vector` does and return a NumPy array: a tensor without its graph, off its device."""
    return np.asarray(to_numpy(vector(name, value, length=length, finite=finite)), dtype=dtype)


def finite_rows(name: str, array: Array, *, unit: str = "row") -> None:
    """Raise when a row of the (n, d) `array` holds NaN or infinity, naming the first such rows."""
    if isinstance(array, np.ndarray) and all_finite(array):
        return
    xp = namespace(array)
    good = xp.isfinite(array)
    if bool(xp.all(good)):
        return
    bad = ~xp.all(good, axis=1)
    rows = np.flatnonzero(np.asarray(bad.tolist()))
    kind = "NaN" if bool(xp.any(xp.isnan(array))) else "infinity"
    raise InvalidInput(f"{_some(unit, rows)} of {name} {_holds(rows)} {kind}; drop or mend {_them(rows)}.")


def all_finite(array: np.ndarray[Any, Any]) -> bool:
    """Tell whether every value of a floating NumPy array is finite, in one pass that stores nothing.

    >>> all_finite(np.ones((2, 2))), all_finite(np.array([1.0, np.inf]))
    (True, False)
    """
    if array.flags.c_contiguous:
        flat = array.reshape(-1)
        # Squares do not cancel: their sum is finite only if every value is. Where it overflows, each is looked at.
        with np.errstate(over="ignore", invalid="ignore"):
            if np.isfinite(np.vdot(flat, flat)):
                return True
    return bool(np.isfinite(array).all())


def varied(name: str, array: np.ndarray[Any, Any]) -> None:
    """Raise when the rows of an (n, d) array are all equal, or too large or too small for their squares.

    >>> varied("embeddings", np.ones((3, 2)))
    Traceback (most recent call last):
    ...
    latentlink._checks.InvalidInput: all 3 rows of embeddings are equal; needs rows that vary. Was one row repeated?
    """
    spread = float(np.ptp(array, axis=0).max())
    if spread == 0:
        raise InvalidInput(
            f"all {array.shape[0]} rows of {name} are equal; needs rows that vary. Was one row repeated?"
        )
    with np.errstate(over="ignore", under="ignore"):
        square = np.square(array.dtype.type(spread))
    if not (np.isfinite(square * array.size) and square >= np.finfo(array.dtype).tiny):
        raise InvalidInput(
            f"{name} spans {spread:.3g}, whose square {array.dtype} cannot hold; divide {name} by a constant."
        )


def nonzero_rows(name: str, norms: Array, *, skippable: bool = True) -> None:
    """Raise when one of the (n,) `norms` of the rows of `name` is zero; `skippable` when on_zero is offered."""
    rows = np.flatnonzero(np.asarray((norms == 0).tolist()))
    if rows.size:
        verb = "has" if rows.size == 1 else "have"
        raise InvalidInput(
            f"{_some('row', rows)} of {name} {verb} norm 0; cosine is undefined. "
            f"Drop {_them(rows)}" + (' or pass on_zero="skip".' if skippable else ".")
        )


def same_rows(**arrays: Array) -> None:
    """Raise when arrays given by name differ in their number of rows.

    >>> same_rows(queries=np.ones((3, 2)), positives=np.ones((2, 2)))
    Traceback (most recent call last):
    ...
    latentlink._checks.InvalidInput: queries and positives differ in rows: 3 and 2.
    """
    _same(arrays, axis=0, what="rows")


def same_columns(**arrays: Array) -> None:
    """Raise when arrays given by name differ in their number of columns."""
    _same(arrays, axis=1, what="columns")


def same_kind(**arrays: Array) -> None:
    """Raise when NumPy arrays and tensors are mixed: converting one would hide a device transfer."""
    kinds = {name: "a tensor" if is_tensor(array) else "a NumPy array" for name, array in arrays.items()}
    if len(set(kinds.values())) > 1:
        listing = ", ".join(f"{name} is {kind}" for name, kind in kinds.items())
        raise InvalidType(f"{listing}; needs one kind. Convert with torch.as_tensor or .numpy().")


def number(
    name: str,
    value: Any,
    *,
    low: float = -np.inf,
    high: float = np.inf,
    open_low: bool = False,
    infinite: bool = False,
) -> float:
    """Return `value` as a float in [low, high] (or (low, high] with `open_low`), finite unless `infinite`.

    >>> number("temperature", -0.1, low=0, open_low=True)
    Traceback (most recent call last):
    ...
    latentlink._checks.InvalidInput: temperature is -0.1; needs a number > 0.
    """
    if isinstance(value, bool) or not isinstance(value, (int, float, np.integer, np.floating)):
        raise InvalidType(f"{name} is {value!r} of type {type(value).__name__}; needs a number.")
    result = float(value)
    below = result <= low if open_low else result < low
    known = not math.isnan(result) if infinite else math.isfinite(result)
    if not known or below or result > high:
        raise InvalidInput(f"{name} is {value}; needs a number {_range(low, high, open_low)}.")
    return result


def integer(name: str, value: Any, *, low: int = 0, high: int | None = None) -> int:
    """Return `value` as an int in [low, high]."""
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
        raise InvalidType(f"{name} is {value!r} of type {type(value).__name__}; needs a whole number.")
    if value < low or value > (_LARGEST if high is None else high):
        needed = f">= {low}" if high is None and value < low else f"from {low} to {high or _LARGEST}"
        raise InvalidInput(f"{name} is {value}; needs a whole number {needed}.")
    return int(value)


def generator(seed: Any) -> np.random.Generator:
    """Make the generator of a seed."""
    return np.random.default_rng(integer("seed", seed))


def is_auto(value: Any) -> bool:
    """Tell whether a setting is the word "auto"; an array is not, and is no truth value either."""
    return isinstance(value, str) and value == "auto"


def one_of(name: str, value: Any, allowed: Iterable[str]) -> str:
    """Return `value` when it is one of `allowed`; otherwise name them all.

    >>> one_of("anchors", "kmean", ["random", "kmeans"])
    Traceback (most recent call last):
    ...
    latentlink._checks.InvalidInput: anchors is 'kmean'; needs one of 'random', 'kmeans'.
    """
    names = list(allowed)
    if not isinstance(value, str) or value not in names:
        raise InvalidInput(f"{name} is {value!r}; needs one of {', '.join(map(repr, names))}.")
    return str(value)


def instance(name: str, value: Any, kind: type | tuple[type, ...], needs: str) -> None:
    """Raise when `value` is not of the class `kind`; `needs` says what is, and what makes it.

    >>> instance("tail", [0.9], dict, "a Tail, as take_tail makes it")
    Traceback (most recent call last):
    ...
    latentlink._checks.InvalidType: tail is a list; needs a Tail, as take_tail makes it.
    """
    if not isinstance(value, kind):
        raise InvalidType(f"{name} is {_kind(value)}; needs {needs}.")


def flag(name: str, value: Any) -> bool:
    """Return `value` when it is True or False: anything else is more likely a misplaced argument."""
    instance(name, value, (bool, np.bool_), "True or False")
    return bool(value)


def sequence(name: str, value: Any) -> list[Any]:
    """Return the members of an iterable that is no text and no mapping.

    >>> sequence("ks", 3)
    Traceback (most recent call last):
    ...
    latentlink._checks.InvalidType: ks is an int; needs a sequence. Use [3]?
    """
    if isinstance(value, (str, bytes, os.PathLike, int, float)):
        raise InvalidType(f"{name} is {_kind(value)}; needs a sequence. Use [{value!r}]?")
    if isinstance(value, Mapping) or not isinstance(value, Iterable):
        raise InvalidType(f"{name} is {_kind(value)}; needs a sequence.")
    return list(value)


def path(name: str, value: Any) -> Path:
    """Return `value` as a path."""
    instance(name, value, (str, os.PathLike), "a path")
    return Path(value)


def paths(name: str, value: Any) -> list[Path]:
    """Return the paths of a sequence of them."""
    return [path(name, one) for one in sequence(name, value)]


def mapping(name: str, value: Any) -> dict[str, Any]:
    """Return a mapping of encoder names to their vectors, the names as text."""
    instance(name, value, Mapping, "a mapping of encoder name to (n, d) array")
    return {str(key): one for key, one in value.items()}


def real(name: str, value: Any) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Return numbers of any shape as a float64 array; NaN and infinity pass."""
    return np.asarray(to_numpy(_floating(name, value)), dtype=np.float64)


def unique_ids(name: str, ids: Sequence[Any] | np.ndarray[Any, Any], *, rows: int) -> np.ndarray[Any, Any]:
    """Return `ids` as an (n,) array of distinct values, one for each row."""
    array = np.asarray(ids)
    if array.shape != (rows,):
        raise InvalidInput(f"{name} has shape {array.shape}; needs ({rows},), one id for each row.")
    values, counts = np.unique(array, return_counts=True)
    if (counts > 1).any():
        first = values[counts > 1][0]
        raise InvalidInput(
            f"{name} has {int((counts > 1).sum())} repeated ids, {first!s} among them; needs distinct ids."
        )
    return array


def _floating(name: str, value: Any) -> Array:
    if is_tensor(value):
        if not value.is_floating_point():
            raise InvalidType(f"{name} is a tensor of {value.dtype}; needs a floating type. Use .float().")
        return value
    if np.ma.is_masked(value):
        raise InvalidInput(f"{name} has masked values; fill them or drop their rows.")
    try:
        array = np.asarray(value)
    except ValueError as error:
        raise InvalidInput(f"{name} is not a rectangular array; needs rows of equal length.") from error
    if array.dtype == np.float32 or array.dtype == np.float64:
        return array
    if array.dtype == np.float16:
        return array.astype(np.float32)
    if array.dtype.kind in "iub":
        return array.astype(np.float64 if array.dtype.itemsize > 2 else np.float32)
    if array.dtype.kind == "f":
        return array.astype(np.float64)
    raise InvalidType(f"{name} has type {array.dtype}; needs real numbers.")


def _same(arrays: dict[str, Array], *, axis: int, what: str) -> None:
    sizes = {name: int(array.shape[axis]) for name, array in arrays.items()}
    if len(set(sizes.values())) > 1:
        raise InvalidInput(f"{_join(sizes)} differ in {what}: {_join(map(str, sizes.values()))}.")


def _kind(value: Any) -> str:
    word = type(value).__name__
    return "None" if value is None else f"{'an' if word[0] in 'aeiouAEIOU' else 'a'} {word}"


def _range(low: float, high: float, open_low: bool) -> str:
    if np.isinf(high):
        return "that is finite" if np.isinf(low) else f"{'>' if open_low else '>='} {low:g}"
    return f"in {'(' if open_low else '['}{low:g}, {high:g}]"


def _join(words: Iterable[str]) -> str:
    items = list(words)
    return items[0] if len(items) == 1 else f"{', '.join(items[:-1])} and {items[-1]}"


def _some(unit: str, rows: np.ndarray[Any, Any]) -> str:
    if rows.size == 1:
        return f"{unit} {rows[0]}"
    shown = ", ".join(str(row) for row in rows[:3])
    more = f" and {rows.size - 3} more" if rows.size > 3 else ""
    return f"{unit}s {shown}{more}"


def _holds(rows: np.ndarray[Any, Any]) -> str:
    return "holds" if rows.size == 1 else "hold"


def _them(rows: np.ndarray[Any, Any]) -> str:
    return "it" if rows.size == 1 else "them"


def _count(n: int, unit: str) -> str:
    return f"{n} {unit}" if n == 1 else f"{n} {unit}s"
