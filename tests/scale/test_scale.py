import warnings

import numpy as np
import pytest

from latentlink import InvalidInput
from latentlink.io import write_vectors
from latentlink.moments import collect
from latentlink.scale import convert, gather_moments
from latentlink.search import convert as convert_here
from latentlink.spaces import RelativeSpace

pytest.importorskip("pyarrow")
SIZES = {"shard_rows": 256, "batch_rows": 64}


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    rng = np.random.default_rng(0)
    folder = tmp_path_factory.mktemp("files")
    hidden = rng.standard_normal((2500, 8))
    old = (hidden @ rng.standard_normal((8, 12)) + 3).astype(np.float32)
    new = (hidden @ rng.standard_normal((8, 16))).astype(np.float32)
    ids = np.array([f"doc {i}" for i in range(2500)])
    write_vectors(folder / "a.arrow", old[:1500], ids=ids[:1500])
    write_vectors(folder / "b.parquet", old[1500:], ids=ids[1500:])
    space = RelativeSpace(n_anchors=8).fit({"old": old[:500], "new": new[:500]})
    return [folder / "a.arrow", folder / "b.parquet"], old, ids, space


@pytest.fixture(scope="module")
def cluster():
    ray = pytest.importorskip("ray")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
        yield
        ray.shutdown()


def same(a, b):
    for name, value in vars(a).items():
        np.testing.assert_array_equal(value, getattr(b, name), err_msg=name)


def contents(folder):
    return {file.name: file.read_bytes() for file in folder.iterdir() if file.suffix != ".lock"}


def test_shards_add_up_to_one_pass(files):
    paths, old, ids, _ = files
    state = gather_moments("old", paths, support_size=50, **SIZES)
    whole = collect("old", [(old, ids)], shift=state.shift, support_size=50)
    np.testing.assert_allclose(state.mean, whole.mean, rtol=1e-6)
    np.testing.assert_allclose(state.covariance, whole.covariance, rtol=1e-5, atol=1e-5)
    np.testing.assert_array_equal(state.support_ids, whole.support_ids)


@pytest.mark.medium
def test_processes_give_the_same_bits(files, tmp_path):
    paths, _, _, space = files
    same(gather_moments("old", paths, **SIZES), gather_moments("old", paths, workers=2, **SIZES))
    convert(paths, tmp_path / "two", space=space, source="old", workers=2, **SIZES)
    convert(paths, tmp_path / "one", space=space, source="old", **SIZES)
    assert contents(tmp_path / "one") == contents(tmp_path / "two")


@pytest.mark.ray
@pytest.mark.filterwarnings("ignore")
def test_ray_gives_the_same_moments(files, cluster):
    paths, _, _, _ = files
    local = gather_moments("old", paths, n_folds=3, **SIZES)
    far = gather_moments("old", paths, n_folds=3, engine="ray", **SIZES)
    np.testing.assert_allclose(far.covariance, local.covariance, rtol=1e-10)
    same(local, far)


@pytest.mark.ray
@pytest.mark.filterwarnings("ignore")
def test_ray_writes_the_same_shards_and_resumes(files, cluster, tmp_path):
    paths, _, _, space = files
    convert_here(paths, tmp_path / "here", space=space, source="old", target="new", **SIZES)
    done = convert(paths, tmp_path / "ray", space=space, source="old", target="new", engine="ray", **SIZES)
    expected = contents(tmp_path / "here")
    assert done.rows == 2500
    for name in [name for name in expected if name.endswith(".arrow")]:
        assert (tmp_path / "ray" / name).read_bytes() == expected[name]
    (tmp_path / "ray" / "part-00002.arrow").unlink()
    (tmp_path / "ray" / "manifest.json").unlink()
    convert(paths, tmp_path / "ray", space=space, source="old", target="new", engine="ray", **SIZES)
    assert (tmp_path / "ray" / "part-00002.arrow").read_bytes() == expected["part-00002.arrow"]


def test_an_unknown_engine_is_refused(files):
    paths, _, _, _ = files
    with pytest.raises(InvalidInput, match="engine is 'spark'; needs one of 'local', 'ray'"):
        gather_moments("old", paths, engine="spark")
