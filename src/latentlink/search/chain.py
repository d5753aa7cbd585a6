"""FAISS pre-transforms: a shared space's affine map in front of an index, so that FAISS takes raw vectors."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from latentlink import _checks
from latentlink.search.engines import need_faiss
from latentlink.search.gate import FloatArray, Space


def affine_map(space: Space, source: str) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return mean (d,), map (d, r) and offset (r,) with encode(x) = (x - mean) @ map + offset.

    The map is read off by encoding the unit vectors; a space whose encode is not affine is refused. The offset
    is rounding where the map has a mean that it sends to zero.
    """
    d = space.dimension(source)
    zero = np.asarray(space.encode(np.zeros((1, d)), source=source))  # (1, r)
    matrix = np.asarray(space.encode(np.eye(d), source=source)) - zero
    probe = np.random.default_rng(0).standard_normal((8, d))
    expected = np.asarray(space.encode(probe, source=source))
    if not np.allclose(probe @ matrix + zero, expected, rtol=0, atol=1e-6 * np.abs(expected).max()):
        raise _checks.InvalidInput(
            f'encode of {source!r} is not an affine map in this space; only similarity "wip" or "centred" '
            "without l2 normalisation has one."
        )
    mean = np.linalg.lstsq(matrix.T, -zero[0], rcond=None)[0]  # (d,)
    return mean, matrix, zero[0] + mean @ matrix


@contextmanager
def with_transforms(index: Any, space: Space, source: str) -> Iterator[Any]:
    """Yield `index` behind centring, the encoder's map and normalisation; several chains may share one index.

    The chain is valid inside the context only: FAISS keeps pointers to the transforms, not references.
    """
    faiss = need_faiss()
    mean, matrix, offset = affine_map(space, source)
    d, r = matrix.shape
    centre = faiss.CenteringTransform(d)
    faiss.copy_array_to_vector(mean.astype(np.float32), centre.mean)
    centre.is_trained = True
    linear = faiss.LinearTransform(d, r, True)
    faiss.copy_array_to_vector(np.ascontiguousarray(matrix.T, np.float32).ravel(), linear.A)
    faiss.copy_array_to_vector(offset.astype(np.float32), linear.b)
    linear.is_trained = True
    unit = faiss.NormalizationTransform(r, 2.0)
    chain = faiss.IndexPreTransform(index)
    for transform in [unit, linear, centre]:
        chain.prepend_transform(transform)
    chain.ntotal = index.ntotal  # FAISS leaves it 0
    yield chain
