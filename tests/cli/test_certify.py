import json

import numpy as np
import pytest

from latentlink.risk import certify


@pytest.fixture
def files(tmp_path):
    rng = np.random.default_rng(0)
    items = rng.normal(size=(60, 8)).astype(np.float32)
    arrays = {
        "queries": items + 0.5 * rng.normal(size=items.shape).astype(np.float32),
        "positives": items,
        "pool": rng.normal(size=(256, 8)).astype(np.float32),
    }
    for name, array in arrays.items():
        np.save(tmp_path / f"{name}.npy", array)
    return arrays, [str(tmp_path / f"{name}.npy") for name in arrays]


def test_json_holds_the_certificate(files, run):
    arrays, paths = files
    code, output = run("certify", *paths, "--temperature", "0.5", "--json")
    record = json.loads(output.out)
    c = certify(*arrays.values(), temperature=0.5)
    assert code == 0
    assert record["cross_entropy"] == pytest.approx(c.cross_entropy)
    assert record["interval"] == pytest.approx(list(c.interval()))
    assert record["verdict"] == c.verdict
    assert record["negatives_needed"] > 0


def test_text_and_report(files, run, tmp_path):
    pytest.importorskip("matplotlib")
    code, output = run("certify", *files[1], "--temperature", "0.5", "--report", str(tmp_path / "page.html"))
    assert code == 0
    assert output.out.startswith("cross-entropy")
    html = (tmp_path / "page.html").read_text()
    assert "Verdict:" in html
    assert html.count("<svg") == 2


def test_a_leak_is_one_line(files, run, tmp_path):
    arrays, paths = files
    np.save(tmp_path / "pool.npy", np.concatenate([arrays["pool"], arrays["positives"][:1]]))
    code, output = run("certify", *paths)
    assert code == 2
    assert output.err.startswith("latentlink: row 256 of the pool is an exact duplicate of row 0 of positives")
    assert run("certify", *paths, "--leaks", "exclude")[0] == 0


def test_ids_of_the_files_are_compared(files, run, tmp_path):
    arrays, _ = files
    paths = []
    for name, array in arrays.items():
        first = 0 if name == "pool" else 200
        ids = np.array([f"i{first + i}" for i in range(len(array))])
        np.savez(tmp_path / f"{name}.npz", vectors=array, ids=ids)
        paths.append(str(tmp_path / f"{name}.npz"))
    code, output = run("certify", *paths)
    assert code == 2
    assert output.err.startswith(
        "latentlink: id i200 (row 200) of the pool is also among the pairs (56 such rows"
    )
