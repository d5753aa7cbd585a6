import numpy as np
import pytest

from latentlink import InvalidInput, RelativeSpace
from latentlink.spaces import export


@pytest.fixture
def fitted(rng):
    shared = rng.normal(size=(200, 6))
    views = {
        n: (shared @ rng.normal(size=(6, d)) + 0.1 * rng.normal(size=(200, d)) + 1)
        for n, d in (("a", 7), ("b", 5))
    }
    return RelativeSpace(4, normalisation="gram").fit(views), views["a"].astype(np.float32)


def expected(space, x, target):
    return space.encode(x, source="a") if target is None else space.translate(x, source="a", target=target)


@pytest.mark.parametrize("target", [None, "b"])
def test_arrays_and_faiss_and_dense_agree(fitted, target):
    space, x = fitted
    want = expected(space, x, target)
    mean, matrix, offset = export.affine(space, source="a", target=target)
    assert np.allclose((x - mean) @ matrix + offset, want, atol=1e-4)
    pytest.importorskip("faiss")
    assert np.allclose(export.to_faiss(space, source="a", target=target).apply(x), want, atol=1e-4)


@pytest.mark.medium
@pytest.mark.parametrize("target", [None, "b"])
@pytest.mark.filterwarnings("ignore")  # the library's own, at import
def test_sentence_transformers_dense(fitted, target):
    pytest.importorskip("sentence_transformers")
    import torch

    space, x = fitted
    dense = export.to_dense(space, source="a", target=target)
    got = dense({"sentence_embedding": torch.as_tensor(x)})["sentence_embedding"].detach().numpy()
    assert np.allclose(got, expected(space, x, target), atol=1e-4)


@pytest.mark.parametrize("target", [None, "b"])
def test_onnx(fitted, target, tmp_path):
    onnx = pytest.importorskip("onnx")
    from onnx.reference import ReferenceEvaluator

    space, x = fitted
    export.to_onnx(space, tmp_path / "map.onnx", source="a", target=target)
    run = ReferenceEvaluator(onnx.load(tmp_path / "map.onnx"))
    assert np.allclose(run.run(None, {"embeddings": x})[0], expected(space, x, target), atol=1e-4)


def test_sql_holds_every_column(fitted):
    space, _ = fitted
    statements = list(export.to_sql(space, source="a", target="b"))
    assert statements[0].startswith(
        "CREATE TABLE latentlink_map_columns (place int PRIMARY KEY, weights vector(7)"
    )
    assert len(statements) == 1 + 5 + 1
    with pytest.raises(InvalidInput, match=r"function is 'a; drop'; needs a plain SQL name."):
        next(export.to_sql(space, source="a", function="a; drop"))


def test_only_affine_spaces_are_exported(rng):
    views = {n: rng.normal(size=(50, 3)) for n in "ab"}
    space = RelativeSpace(2, similarity="cosine").fit(views)
    with pytest.raises(InvalidInput, match="an export needs an affine encode"):
        export.affine(space, source="a")
