"""The verbs on files, here and on Ray: the same spaces and the same shards."""

import json

import numpy as np
import pytest

from latentlink import load_space
from latentlink.io import read_vectors, write_vectors
from latentlink.search import read_conversion
from latentlink.spaces import RelativeSpace

pytest.importorskip("pyarrow")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A space, and each encoder's 300 vectors in two files with ids."""
    rng = np.random.default_rng(0)
    hidden = rng.standard_normal((300, 8))
    ids = np.array([f"doc {i}" for i in range(300)])
    arrays = {"old": hidden @ rng.standard_normal((8, 12)), "new": hidden @ rng.standard_normal((8, 16))}
    for name, x in arrays.items():
        write_vectors(tmp_path / f"{name}-0.arrow", x[:200].astype(np.float32), ids=ids[:200])
        write_vectors(tmp_path / f"{name}-1.arrow", x[200:].astype(np.float32), ids=ids[200:])
    RelativeSpace(n_anchors=8).fit(arrays).save(tmp_path / "space")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def ray_here():
    ray = pytest.importorskip("ray")
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False)
    yield
    ray.shutdown()


def shards(folder):
    return {file.name: file.read_bytes() for file in folder.iterdir() if file.suffix != ".lock"}


def test_a_result_without_a_suffix_is_a_folder_of_shards(folder, run):
    files = ["old-0.arrow", "old-1.arrow"]
    code, (out, _) = run("encode", "space", *files, "shared", "--source", "old", "--json")
    assert (code, json.loads(out)) == (0, {"rows": 300, "out": "shared", "shards": 2})
    before = shards(folder / "shared")
    assert (
        run("encode", "space", *files, "shared", "--source", "old")[1].out == "shared: 300 rows in 2 shards\n"
    )
    assert shards(folder / "shared") == before
    code, (out, _) = run("translate", "space", *files, "there", "--source", "old", "--target", "new")
    assert (code, out) == (0, "there: 300 rows in 2 shards\n")
    x, ids = read_vectors(read_conversion(folder / "there").paths[1])
    assert x.shape == (100, 16)
    assert ids[0] == "doc 200"


@pytest.mark.parametrize("more", [["old-1.arrow", "out.arrow"], ["out.arrow", "--workers", "2"]])
def test_one_file_is_written_by_one_process_from_one_file(folder, run, more):
    code, (_, err) = run("encode", "space", "old-0.arrow", *more, "--source", "old")
    message = (
        "latentlink: out.arrow is one file, which this process writes from one file; for several files or an "
        "engine name a folder, without a suffix.\n"
    )
    assert (code, err) == (2, message)
    assert not (folder / "out.arrow").exists()


def test_a_pattern_stands_for_an_encoders_files(folder, run):
    assert run("align", "s", "old=old-*.arrow", "new=new-*.arrow", "--n-anchors", 8)[0] == 0
    both = {
        name: np.concatenate([read_vectors(f"{name}-{i}.arrow")[0] for i in range(2)])
        for name in ["old", "new"]
    }
    assert load_space("s").evaluate(both).mean("space") > 0.9
    code, (_, err) = run("align", "t", "old=odd-*.arrow", "new=new-*.arrow")
    assert (code, err) == (2, "latentlink: odd-*.arrow matches no file; check the path.\n")


@pytest.mark.medium
def test_workers_fit_the_same_space(folder, run):
    named = ["old=old-*.arrow", "new=new-*.arrow", "--n-anchors", 8]
    assert run("align", "one", *named, "--streaming")[0] == 0
    assert run("align", "two", *named, "--workers", 2)[0] == 0
    assert shards(folder / "one") == shards(folder / "two")


@pytest.mark.ray
@pytest.mark.filterwarnings("ignore")
def test_ray_aligns_and_encodes_as_here(folder, run, ray_here):
    named = ["old=old-*.arrow", "new=new-*.arrow", "--n-anchors", 8]
    assert run("align", "here", *named, "--streaming")[0] == 0
    assert run("align", "far", *named, "--engine", "ray")[0] == 0
    spaces = [load_space(place) for place in ["here", "far"]]
    for name in ["old", "new"]:
        maps = [space.encoders_[name].map for space in spaces]
        np.testing.assert_allclose(maps[1], maps[0], rtol=1e-10)
    job = ["encode", "far", "old-0.arrow", "old-1.arrow"]
    assert run(*job, "a", "--source", "old")[0] == 0
    assert run(*job, "b", "--source", "old", "--engine", "ray")[0] == 0
    assert shards(folder / "a") == shards(folder / "b")
    (folder / "b" / "manifest.json").unlink()
    (folder / "b" / "part-00001.json").unlink()
    assert run(*job, "b", "--source", "old", "--engine", "ray")[0] == 0
    assert shards(folder / "a") == shards(folder / "b")
