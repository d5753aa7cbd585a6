import numpy as np
import pytest

from latentlink import RelativeSpace
from latentlink.io import read_vectors, write_vectors
from latentlink.spaces import encode_file, file_moments, fit_files


@pytest.fixture
def files(rng, tmp_path):
    shared = rng.normal(size=(600, 6))
    made = {}
    for name, d in (("a", 10), ("b", 8)):
        x = (shared @ rng.normal(size=(6, d)) + 0.1 * rng.normal(size=(600, d))).astype(np.float32)
        made[name] = (x, [tmp_path / f"{name}{i}.npy" for i in range(3)])
        for i, path in enumerate(made[name][1]):
            write_vectors(path, x[200 * i : 200 * (i + 1)])
    return made


def test_files_give_the_moments_of_all_rows(files):
    x, paths = files["a"]
    state = file_moments("a", paths, support_size=100)
    assert state.count == 600
    assert np.allclose(state.covariance, np.cov(x, rowvar=False), atol=1e-4)
    rows = state.support_ids.astype(int)  # rows are numbered through all files
    assert np.array_equal(state.support_vectors, x[rows])


def test_a_space_of_files_searches_and_encodes_files(files, tmp_path):
    space = fit_files(RelativeSpace(6), {name: paths for name, (_, paths) in files.items()}, support_size=300)
    assert space.ids_.size == 300
    assert space.evaluate({name: x for name, (x, _) in files.items()}).mean("space") > 0.9
    pytest.importorskip("pyarrow")
    x, paths = files["a"]
    assert encode_file(space, paths[1], tmp_path / "out.arrow", source="a") == 200
    assert np.allclose(read_vectors(tmp_path / "out.arrow")[0], space.encode(x[200:400], source="a"), atol=1e-5)
    encode_file(space, paths[1], tmp_path / "out.npy", source="a", target="b")
    assert read_vectors(tmp_path / "out.npy")[0].shape == (200, 8)
