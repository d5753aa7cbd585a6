"""Take a space's maps elsewhere: NumPy, ONNX, sentence-transformers, FAISS, SQL for pgvector."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import numpy as np

from latentlink import _checks
from latentlink._files import replacing
from latentlink.spaces.relative import RelativeSpace

FloatArray = np.ndarray[Any, np.dtype[np.floating[Any]]]


def affine(
    space: RelativeSpace, *, source: str, target: str | None = None
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return (mean (d,), map (d, e), offset (e,)): a result is ``(x - mean) @ map + offset``.

    Without `target` the result is the relative vector and the offset is zero; with it, a vector of that
    encoder. Every other export starts here.

    Raises
    ------
    InvalidInput
        The space's similarity or normalisation is not affine.
    """
    if space.similarity != "wip" or space.normalisation in ("l2", "zscore"):
        raise _checks.InvalidInput(
            f"similarity is {space.similarity!r} with normalisation {space.normalisation!r}; an export needs an "
            'affine encode: similarity="wip" and normalisation "none" or "gram".'
        )
    _checks.one_of("source", source, space.names)
    first = space.encoders_[source]
    if target is None:
        return first.mean, first.map, np.zeros(first.map.shape[1])
    _checks.one_of("target", target, space.names)
    second = space.encoders_[target]
    return first.mean, first.map @ second.decode, second.mean


def to_faiss(space: RelativeSpace, *, source: str, target: str | None = None) -> Any:
    """Make a `faiss.LinearTransform`, to put before an index in `faiss.IndexPreTransform`."""
    faiss = _checks.need("faiss", extra="search", job="to_faiss")
    mean, matrix, offset = affine(space, source=source, target=target)
    transform = faiss.LinearTransform(matrix.shape[0], matrix.shape[1], True)
    faiss.copy_array_to_vector(np.ascontiguousarray(matrix.T, dtype=np.float32).ravel(), transform.A)
    faiss.copy_array_to_vector(_bias(mean, matrix, offset), transform.b)
    transform.is_trained = True
    return transform


def to_dense(space: RelativeSpace, *, source: str, target: str | None = None) -> Any:
    """Make a sentence-transformers `Dense` module; append it to a model and `model.encode` speaks the space.

    The model's own output must be what the space was fitted on: append it after its `Normalize`, if any.
    """
    _checks.need("sentence_transformers", extra="text", job="to_dense")
    import torch
    from sentence_transformers.models import Dense

    mean, matrix, offset = affine(space, source=source, target=target)
    return Dense(
        matrix.shape[0],
        matrix.shape[1],
        bias=True,
        activation_function=torch.nn.Identity(),
        init_weight=torch.as_tensor(matrix.T.copy(), dtype=torch.float32),
        init_bias=torch.as_tensor(_bias(mean, matrix, offset)),
    )


def to_onnx(
    space: RelativeSpace, path: str | os.PathLike[str], *, source: str, target: str | None = None
) -> None:
    """Write an ONNX model: input `embeddings` (n, d) float32, output `result` (n, e); centred first."""
    onnx = _checks.need("onnx", extra="onnx", job="to_onnx")
    mean, matrix, offset = affine(space, source=source, target=target)
    helper, numpy_helper = onnx.helper, onnx.numpy_helper
    constants = [
        numpy_helper.from_array(value.astype(np.float32), name)
        for name, value in (("mean", mean), ("map", matrix), ("offset", offset))
    ]
    steps = [
        helper.make_node("Sub", ["embeddings", "mean"], ["centred"]),
        helper.make_node("MatMul", ["centred", "map"], ["mapped"]),
        helper.make_node("Add", ["mapped", "offset"], ["result"]),
    ]
    kind = onnx.TensorProto.FLOAT
    graph = helper.make_graph(
        steps,
        "latentlink",
        [helper.make_tensor_value_info("embeddings", kind, ["n", matrix.shape[0]])],
        [helper.make_tensor_value_info("result", kind, ["n", matrix.shape[1]])],
        constants,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)])
    onnx.checker.check_model(model)
    with replacing(path) as temporary:
        temporary.write_bytes(model.SerializeToString())


def to_sql(
    space: RelativeSpace, *, source: str, target: str | None = None, function: str = "latentlink_map"
) -> Iterator[str]:
    """Yield SQL statements that create a pgvector function ``function(vector) returns vector``.

    The map's columns are stored in a table of vectors beside it and read by inner product.
    """
    if not function.isidentifier():
        raise _checks.InvalidInput(f"function is {function!r}; needs a plain SQL name.")
    mean, matrix, offset = affine(space, source=source, target=target)
    d, e = matrix.shape
    yield f"CREATE TABLE {function}_columns (place int PRIMARY KEY, weights vector({d}), constant float8);"
    for place in range(e):
        constant = float(offset[place])
        yield (
            f"INSERT INTO {function}_columns VALUES ({place}, '{_literal(matrix[:, place])}', {constant!r});"
        )
    yield (
        f"CREATE FUNCTION {function}(x vector) RETURNS vector LANGUAGE sql STABLE AS $$ "
        f"SELECT array_agg(constant - ((x - '{_literal(mean)}'::vector) <#> weights) ORDER BY place)::vector({e}) "
        f"FROM {function}_columns $$;"
    )


def _bias(mean: FloatArray, matrix: FloatArray, offset: FloatArray) -> FloatArray:
    return np.asarray(offset - mean @ matrix, dtype=np.float32)


def _literal(values: FloatArray) -> str:
    return "[" + ",".join(f"{value:.9g}" for value in values.tolist()) + "]"
