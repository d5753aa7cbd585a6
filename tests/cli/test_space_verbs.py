import json

import numpy as np
import pytest
import typer

from latentlink import RelativeSpace, load_space
from latentlink.cli import _frame
from latentlink.io import read_vectors


@pytest.fixture
def files(rng, tmp_path):
    shared = rng.normal(size=(300, 6))
    made = {}
    for name, d in (("old", 10), ("new", 8)):
        made[name] = tmp_path / f"{name}.npy"
        np.save(
            made[name],
            (shared @ rng.normal(size=(6, d)) + 0.1 * rng.normal(size=(300, d)) + 1).astype(np.float32),
        )
    return made


@pytest.fixture
def space(run, files, tmp_path):
    code, (out, _) = run(
        "align", tmp_path / "space", *[f"{n}={p}" for n, p in files.items()], "--n-anchors", 6, "--json"
    )
    assert code == 0
    assert json.loads(out)["encoders"]["old"] == {"dimension": 10, "matched": 300, "of": 300}
    return tmp_path / "space"


@pytest.mark.parametrize(("given", "amount"), [("0.25", 0.25), ("0", 0.0), ("auto", "auto")])
def test_shrinkage_reaches_the_space(run, files, tmp_path, given, amount):
    named = [f"{n}={p}" for n, p in files.items()]
    assert run("align", tmp_path / "s", *named, "--n-anchors", 6, "--shrinkage", given)[0] == 0
    plain = RelativeSpace(6, shrinkage=amount).fit({n: np.load(p) for n, p in files.items()})
    assert load_space(tmp_path / "s").fingerprint("new") == plain.fingerprint("new")


@pytest.mark.parametrize("given", ["1.5", "-0.1", "nan", "some"])
def test_a_wrong_shrinkage_is_one_line(run, files, tmp_path, given):
    named = [f"{n}={p}" for n, p in files.items()]
    code, (_, err) = run("align", tmp_path / "s", *named, f"--shrinkage={given}")
    message = f"latentlink: shrinkage is {given!r}; needs 'auto' or a number in [0, 1].\n"
    assert (code, err) == (2, message)
    assert not (tmp_path / "s").exists()


def test_items_that_some_encoder_lacks_are_fitted_too(run, files, tmp_path):
    first, second = (np.load(files[name]) for name in ("old", "new"))
    rows = {"a": np.arange(200), "b": np.arange(100, 300), "c": np.r_[200:300, 0:100]}
    named = []
    for name, x in (("a", first), ("b", second), ("c", first)):
        np.savez(tmp_path / f"{name}.npz", vectors=x[rows[name]], ids=rows[name])
        named.append(f"{name}={tmp_path / name}.npz")
    code, (out, _) = run("align", tmp_path / "s", *named, "--n-anchors", 6)
    assert code == 0
    assert "6 anchors on 300 items" in out
    assert "c: 10 dimensions, 200 of 200 rows matched" in out
    code, (_, err) = run("align", tmp_path / "s", *named, "--n-anchors", 6, "--seen-by", "all")
    assert (code, err) == (2, "latentlink: the encoders have no id in common; needs shared items.\n")
    code, (_, err) = run("align", tmp_path / "s", *named, "--n-anchors", 6, "--seen-by", "some")
    assert (code, err) == (2, "latentlink: seen_by is 'some'; needs \"all\" or a whole number from 2 to 3.\n")
    code, (_, err) = run("align", tmp_path / "s", *named, "--seen-by", "3", "--streaming")
    assert (code, err) == (2, "latentlink: --seen-by is for files held in memory; leave it out.\n")


def test_encode_and_translate(run, files, space, tmp_path):
    assert run("encode", space, files["new"], tmp_path / "r.npy", "--source", "new")[0] == 0
    assert read_vectors(tmp_path / "r.npy")[0].shape == (300, 6)
    assert (
        run("translate", space, files["new"], tmp_path / "v.npy", "--source", "new", "--target", "old")[0] == 0
    )
    assert read_vectors(tmp_path / "v.npy")[0].shape == (300, 10)


def test_doctor_and_audit_fail_on_a_foreign_file(run, files, space, tmp_path, rng):
    assert run("doctor", space, files["old"], "--source", "old")[0] == 0
    np.save(tmp_path / "odd.npy", 5 * rng.normal(size=(300, 10)))
    code, (_, err) = run("doctor", space, tmp_path / "odd.npy", "--source", "old")
    assert code == 1
    assert "is not of 'old' as fitted" in err
    assert run("audit", files["old"], "--space", space, "--source", "old")[0] == 0
    broken = np.load(files["old"])
    broken[3, 0] = np.nan
    np.save(tmp_path / "broken.npy", broken)
    code, (out, err) = run("audit", tmp_path / "broken.npy")
    assert (code, "rows with NaN: 1 (3)" in out) == (1, True)


def test_a_wrong_pair_is_one_line(run, tmp_path):
    code, (_, err) = run("align", tmp_path / "s", "old.npy")
    assert (code, err) == (2, "latentlink: 'old.npy' is not NAME=FILE; write for example old=old.npy.\n")


@pytest.mark.medium
def test_compare_prints_a_table_and_writes_a_report(run, files, tmp_path):
    pytest.importorskip("matplotlib")
    code, (out, _) = run(
        "compare",
        *[f"{n}={p}" for n, p in files.items()],
        *("--n-anchors", 6, "--certify-at", 500, "--report", tmp_path / "r.html"),
    )
    assert code == 0
    assert "shuffled" in out
    assert "certified loss among 500 candidates at temperature 0.1" in out
    assert "<svg" in (tmp_path / "r.html").read_text()


def test_verbs_are_functions():
    verbs = ["align", "encode", "translate", "compare", "audit", "doctor"]
    assert isinstance(_frame.build(verbs), typer.Typer)
