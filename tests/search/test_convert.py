import subprocess
import sys
import time

import numpy as np
import pytest

from latentlink import InvalidInput
from latentlink.io import read_vectors, write_vectors
from latentlink.scale import engine
from latentlink.search import Index, convert, read_conversion
from latentlink.spaces import RelativeSpace, load_space

pytest.importorskip("pyarrow")


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    """(folder, space): two files of the old encoder's vectors with ids, and the space of old and new."""
    rng = np.random.default_rng(0)
    folder = tmp_path_factory.mktemp("corpus")
    hidden = rng.standard_normal((3000, 8))
    old, new = hidden @ rng.standard_normal((8, 12)), hidden @ rng.standard_normal((8, 16))
    space = RelativeSpace(n_anchors=8).fit({"old": old[:500], "new": new[:500]})
    space.save(folder / "space")
    ids = np.array([f"doc {i}" for i in range(3000)])
    write_vectors(folder / "a.parquet", old[:2000].astype(np.float32), ids=ids[:2000])
    write_vectors(folder / "b.arrow", old[2000:].astype(np.float32), ids=ids[2000:])
    return folder, space


def run(corpus, out, **options):
    folder, space = corpus
    settings = {"space": space, "source": "old", "target": "new", "shard_rows": 128, "batch_rows": 64} | options
    return convert([folder / "a.parquet", folder / "b.arrow"], out, **settings)


def contents(folder):
    return {file.name: file.read_bytes() for file in folder.iterdir() if file.suffix != ".lock"}


def test_rows_and_ids_arrive(corpus, tmp_path):
    folder, space = corpus
    done = run(corpus, tmp_path / "out")
    assert done.rows == 3000
    assert len(done.shards) == 16 + 8
    parts = [read_vectors(path) for path in done.paths]
    ids = np.concatenate([ids for _, ids in parts])
    np.testing.assert_array_equal(ids, [f"doc {i}" for i in range(3000)])
    old = np.concatenate([read_vectors(folder / name)[0] for name in ["a.parquet", "b.arrow"]])
    expected = space.translate(old, source="old", target="new")
    np.testing.assert_allclose(np.concatenate([x for x, _ in parts]), expected, atol=1e-4)
    assert read_conversion(tmp_path / "out") == done


@pytest.mark.medium
def test_workers_and_reruns_write_the_same_bytes(corpus, tmp_path):
    run(corpus, tmp_path / "one")
    before = contents(tmp_path / "one")
    run(corpus, tmp_path / "one")
    run(corpus, tmp_path / "two", run=engine("local", workers=2))
    assert contents(tmp_path / "one") == before == contents(tmp_path / "two")


def test_a_damaged_shard_is_written_again(corpus, tmp_path):
    run(corpus, tmp_path / "out")
    before = contents(tmp_path / "out")
    shard = tmp_path / "out" / "part-00003.arrow"
    shard.write_bytes(shard.read_bytes()[:-9])
    with pytest.raises(InvalidInput, match=r"part-00003.arrow differs from its checksum; convert again."):
        read_conversion(tmp_path / "out")
    run(corpus, tmp_path / "out")
    assert contents(tmp_path / "out") == before


def test_another_conversion_is_never_overwritten(corpus, tmp_path):
    run(corpus, tmp_path / "out")
    with pytest.raises(
        InvalidInput, match=r"holds another conversion \(target, fingerprints differ\); give the same"
    ):
        run(corpus, tmp_path / "out", target=None)
    with pytest.raises(InvalidInput, match="holds no finished conversion; run convert again to finish it"):
        read_conversion(tmp_path)
    with pytest.raises(
        InvalidInput, match="has 12 columns but 'new' in this space has 16; is it of another encoder"
    ):
        run(corpus, tmp_path / "x", source="new", target="old")


def test_bad_rows_are_errors_or_go_to_quarantine(corpus, tmp_path):
    folder, space = corpus
    x, ids = read_vectors(folder / "b.arrow")
    x[77] = np.nan
    np.savez(tmp_path / "bad.npz", vectors=x, ids=ids)
    options = {"space": space, "source": "old", "shard_rows": 500, "batch_rows": 64}
    with pytest.raises(InvalidInput, match=r"row 77 \(id doc 2077\) of"):
        convert([tmp_path / "bad.npz"], tmp_path / "strict", **options)
    done = convert([tmp_path / "bad.npz"], tmp_path / "loose", quarantine=True, **options)
    assert done.rows == 999
    assert '"id": "doc 2077"' in (tmp_path / "loose" / "part-00000.bad.jsonl").read_text()
    assert not (tmp_path / "loose" / "part-00001.bad.jsonl").exists()


def test_rows_without_ids_are_numbered_through_all_files(corpus, tmp_path):
    folder, space = corpus
    old, _ = read_vectors(folder / "b.arrow")
    for name, part in [("one", old[:300]), ("two", old[300:700])]:
        np.save(tmp_path / f"{name}.npy", part)
    files = [tmp_path / "one.npy", tmp_path / "two.npy"]
    done = convert(files, tmp_path / "out", space=space, source="old", shard_rows=128, batch_rows=64)
    np.testing.assert_array_equal(
        np.concatenate([read_vectors(path)[1] for path in done.paths]), np.arange(700)
    )
    with pytest.raises(InvalidInput, match=r"b.arrow has ids and .*two.npy has none; give all"):
        convert([*files, folder / "b.arrow"], tmp_path / "mixed", space=space, source="old")


def test_a_converted_corpus_is_searched(corpus, tmp_path):
    folder, space = corpus
    done = run(corpus, tmp_path / "out", target=None)
    parts = [read_vectors(path) for path in done.paths]
    index = Index.build(
        np.concatenate([x for x, _ in parts]), source="shared", ids=np.concatenate([i for _, i in parts])
    )
    old, ids = read_vectors(folder / "b.arrow")
    _, found = index.search(space.encode(old, source="old"), source="shared", k=1)
    np.testing.assert_array_equal(found[:, 0], ids)


WORK = """
import sys
from latentlink.search import convert
from latentlink.spaces import load_space
folder, out = sys.argv[1:]
space = load_space(folder + "/space")
print("ready", flush=True)
convert([folder + "/a.parquet", folder + "/b.arrow"], out, space=space, source="old", target="new",
        shard_rows=128, batch_rows=64)
"""


@pytest.mark.medium
def test_kill_9_at_20_random_points_and_a_rerun_give_the_same_bytes(corpus, tmp_path):
    folder, _ = corpus
    space = load_space(folder / "space")
    started = time.perf_counter()
    run((folder, space), tmp_path / "whole")
    length = time.perf_counter() - started
    expected = contents(tmp_path / "whole")
    rng = np.random.default_rng(0)
    interrupted = 0
    for trial in range(20):
        out = tmp_path / f"out{trial}"
        command = [sys.executable, "-c", WORK, str(folder), str(out)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout.readline() == "ready\n"
            time.sleep(rng.uniform(0, 1.2 * length))
            process.kill()
        interrupted += not (out / "manifest.json").exists()
        run((folder, space), out)
        assert contents(out) == expected, f"trial {trial}"
    assert interrupted >= 5, "the kills came too late to test anything"
