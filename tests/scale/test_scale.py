import warnings
from functools import partial

import numpy as np
import pytest

from latentlink import InvalidInput
from latentlink.io import write_vectors
from latentlink.moments import collect
from latentlink.scale import engine
from latentlink.search import convert
from latentlink.spaces import RelativeSpace, file_moments, fit_files

pytest.importorskip("pyarrow")
SIZES = {"shard_rows": 256, "batch_rows": 64}


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """(folder, old, new, ids): each encoder's vectors in two files, and as arrays."""
    rng = np.random.default_rng(0)
    folder = tmp_path_factory.mktemp("files")
    hidden = rng.standard_normal((2500, 8))
    arrays = {
        "old": (hidden @ rng.standard_normal((8, 12)) + 3).astype(np.float32),
        "new": (hidden @ rng.standard_normal((8, 16))).astype(np.float32),
    }
    ids = np.array([f"doc {i}" for i in range(2500)])
    for name, x in arrays.items():
        write_vectors(folder / f"{name}-a.arrow", x[:1500], ids=ids[:1500])
        write_vectors(folder / f"{name}-b.parquet", x[1500:], ids=ids[1500:])
    return {name: [folder / f"{name}-a.arrow", folder / f"{name}-b.parquet"] for name in arrays}, arrays, ids


@pytest.fixture(scope="module")
def space(files):
    _, arrays, _ = files
    return RelativeSpace(n_anchors=8).fit({name: x[:500] for name, x in arrays.items()})


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
    paths, arrays, ids = files
    state = file_moments("old", paths["old"], support_size=50, **SIZES)
    whole = collect("old", [(arrays["old"], ids)], shift=state.shift, support_size=50)
    np.testing.assert_allclose(state.mean, whole.mean, rtol=1e-6)
    np.testing.assert_allclose(state.covariance, whole.covariance, rtol=1e-5, atol=1e-5)
    np.testing.assert_array_equal(state.support_ids, whole.support_ids)


def test_tasks_may_end_in_any_order(files):
    """An engine that runs the last task first gives the same bits, since it returns results in order."""
    paths, _, _ = files

    def backwards(tasks):
        return reversed([task() for task in reversed(tasks)])

    same(file_moments("old", paths["old"], run=backwards, **SIZES), file_moments("old", paths["old"], **SIZES))


@pytest.mark.medium
def test_processes_give_the_same_bits(files, space, tmp_path):
    paths, _, _ = files
    two = engine("local", workers=2)
    same(file_moments("old", paths["old"], **SIZES), file_moments("old", paths["old"], run=two, **SIZES))
    convert(paths["old"], tmp_path / "two", space=space, source="old", run=two, **SIZES)
    convert(paths["old"], tmp_path / "one", space=space, source="old", **SIZES)
    assert contents(tmp_path / "one") == contents(tmp_path / "two")


@pytest.mark.ray
def test_an_address_without_a_cluster_is_refused():
    pytest.importorskip("ray")
    with pytest.raises(InvalidInput, match="no Ray cluster answers at 'auto'"):
        list(engine("ray", address="auto")([lambda: b""]))


@pytest.mark.ray
@pytest.mark.filterwarnings("ignore")
def test_ray_gives_the_same_moments(files, cluster):
    paths, _, _ = files
    local = file_moments("old", paths["old"], n_folds=3, **SIZES)
    far = file_moments("old", paths["old"], n_folds=3, run=engine("ray"), **SIZES)
    np.testing.assert_allclose(far.covariance, local.covariance, rtol=1e-10)
    same(local, far)


@pytest.mark.ray
@pytest.mark.filterwarnings("ignore")
def test_ray_fits_the_same_space(files, cluster):
    paths, arrays, _ = files
    here = fit_files(RelativeSpace(8), paths, **SIZES)
    far = fit_files(RelativeSpace(8), paths, run=engine("ray"), **SIZES)
    for name in ["old", "new"]:
        np.testing.assert_allclose(far.encoders_[name].map, here.encoders_[name].map, rtol=1e-10)
        assert far.fingerprint(name) == here.fingerprint(name)
    assert here.evaluate({name: x[2000:] for name, x in arrays.items()}).mean("space") > 0.9


@pytest.mark.ray
@pytest.mark.filterwarnings("ignore")
def test_ray_writes_the_same_shards_and_resumes(files, space, cluster, tmp_path):
    paths, _, _ = files
    job = partial(convert, paths["old"], space=space, source="old", target="new", **SIZES)
    job(tmp_path / "here")
    done = job(tmp_path / "ray", run=engine("ray"))
    expected = contents(tmp_path / "here")
    assert done.rows == 2500
    assert contents(tmp_path / "ray") == expected
    (tmp_path / "ray" / "part-00002.arrow").unlink()
    (tmp_path / "ray" / "manifest.json").unlink()
    job(tmp_path / "ray", run=engine("ray"))
    assert contents(tmp_path / "ray") == expected


@pytest.mark.ray
@pytest.mark.filterwarnings("ignore")
def test_a_mistake_on_ray_is_the_same_error_as_here(files, space, cluster, tmp_path, capfd):
    """And Ray says nothing of its own meanwhile."""
    x = files[1]["old"][:300].copy()
    x[277] = np.nan
    np.save(tmp_path / "bad.npy", x)
    job = partial(convert, [tmp_path / "bad.npy"], space=space, source="old", shard_rows=100, batch_rows=50)
    said = []
    for place, run in [("here", engine("local")), ("far", engine("ray"))]:
        with pytest.raises(InvalidInput, match=r"row 277 \(id 277\) of .*bad.npy holds NaN") as caught:
            job(tmp_path / place, run=run)
        said.append(str(caught.value))
    assert said[0] == said[1]
    assert "Dataset" not in capfd.readouterr().err


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"name": "spark"}, "engine is 'spark'; needs one of 'local', 'ray'"),
        ({"workers": 0}, "workers is 0; needs a whole number >= 1"),
        ({"address": "auto"}, 'address is of a Ray cluster, but engine is "local"; pass engine="ray"'),
        ({"name": "ray", "workers": 2}, 'workers are of the local engine; engine="ray" takes what its cluster'),
    ],
)
def test_an_engine_that_makes_no_sense_is_refused(options, message):
    with pytest.raises(InvalidInput, match=message):
        engine(**options)
