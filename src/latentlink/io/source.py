"""One door to every format: what a file holds, and its rows."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np

from latentlink import _checks
from latentlink.io._numpy import read_npy, read_npz


def read_vectors(path: str | os.PathLike[str]) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any] | None]:
    """Read all vectors of a file and their ids.

    Parameters
    ----------
    path : path
        A ``.npy`` file of shape (n, d), or a ``.npz`` file holding ``vectors`` and optionally ``ids``, or one
        single array.

    Returns
    -------
    vectors : array (n, d)
        float32, or float64 when the file holds that.
    ids : array (n,) or None

    Raises
    ------
    InvalidInput
        The file is cut off, claims more than it holds, inflates beyond reason, holds Python objects, has rows
        that are not finite, or repeats an id.

    Examples
    --------
    >>> import tempfile
    >>> folder = tempfile.mkdtemp()
    >>> np.savez(f"{folder}/a.npz", vectors=np.eye(2, dtype=np.float32), ids=["x", "y"])
    >>> read_vectors(f"{folder}/a.npz")
    (array([[1., 0.],
           [0., 1.]], dtype=float32), array(['x', 'y'], dtype='<U1'))
    """
    file = Path(path)
    ids = None
    suffix = file.suffix.lower()
    _checks.one_of("the suffix of path", suffix, [".npy", ".npz"])
    if suffix == ".npy":
        vectors = read_npy(file)
    else:
        arrays = read_npz(file)
        if len(arrays) == 1:
            vectors = next(iter(arrays.values()))
        elif "vectors" in arrays:
            vectors, ids = arrays["vectors"], arrays.get("ids")
        else:
            raise _checks.InvalidInput(
                f"{file} holds {', '.join(sorted(arrays))}; needs `vectors` and optionally `ids`, or one array."
            )
    name = f"{file.name}"
    checked = np.array(_checks.matrix(name, vectors))  # a copy: the file may change behind a map
    if ids is not None:
        ids = _checks.unique_ids(f"ids of {name}", ids, rows=checked.shape[0])
    return checked, ids
