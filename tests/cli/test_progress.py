"""Every long verb draws a bar on a terminal's stderr, and none under --json, under --quiet or into a pipe."""

import json
import os
import subprocess
import sys
import termios
import threading

import numpy as np
import pytest

pytest.importorskip("pyarrow")
N = 40_000  # more than two batches of every verb


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """Two files of each encoder, a space, an index and a migration, all made without a terminal."""
    folder = tmp_path_factory.mktemp("bars")
    rng = np.random.default_rng(0)
    hidden = rng.standard_normal((N, 4)).astype(np.float32)
    arrays = {"old": hidden @ rng.standard_normal((4, 6)).astype(np.float32), "new": hidden[:, ::-1] + 1}
    for name, x in arrays.items():
        for i in range(2):
            np.save(folder / f"{name}-{i}.npy", x[i::2])
        np.save(folder / f"{name}.npy", x)
        np.save(folder / f"{name}-pairs.npy", x[:3000])
    np.save(folder / "rows.npy", np.arange(3000))
    return folder


@pytest.fixture
def verbs(place, tmp_path, run, monkeypatch):
    """The long verbs by name, with everything that they need made quietly."""
    monkeypatch.chdir(place)
    small = ["--n-anchors", 4]
    if not (place / "space").exists():
        assert run("align", "space", "old=old-pairs.npy", "new=new-pairs.npy", *small)[0] == 0
    named = ["old-pairs.npy", "new-pairs.npy", "--old", "old", "--new", "new", "--anchors", 4]
    assert run("migrate", "fit", tmp_path / "m", *named)[0] == 0
    out = tmp_path / "out"
    real = ["--queries", "new-pairs.npy", "--relevant", "rows.npy"]
    real += ["--corpus-old", "old-pairs.npy", "--corpus-new", "new-pairs.npy"]
    return {
        "align": ["align", out, "old=old-?.npy", "new=new-?.npy", *small],
        "encode": ["encode", "space", "old.npy", f"{out}.arrow", "--source", "old"],
        "translate": [
            "translate",
            "space",
            "old-0.npy",
            "old-1.npy",
            out,
            "--source",
            "old",
            "--target",
            "new",
        ],
        "index": ["index", "old.npy", out, "--source", "old"],
        "convert": ["migrate", "convert", tmp_path / "m", "old-0.npy", "old-1.npy"],
        "shadow": ["migrate", "shadow", tmp_path / "m", *real],
    }


@pytest.mark.medium
@pytest.mark.parametrize(
    ("verb", "counted"),
    [
        ("align", "tasks"),
        ("encode", "batches"),
        ("translate", "tasks"),
        ("index", "batches"),
        ("convert", "tasks"),
        ("shadow", "queries"),
    ],
)
@pytest.mark.parametrize("way", ["terminal", "pipe", "--json", "--quiet"])
def test_bars(verbs, run, monkeypatch, verb, counted, way):
    if way != "pipe":
        monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    code, (out, err) = run(*verbs[verb], *([way] if way.startswith("--") else []))
    assert code == 0
    assert (counted in err) == (way == "terminal")
    assert "\x1b" not in out
    if way != "terminal":
        assert err == ""


def on_terminal(*arguments):
    """Run the command with stderr on a terminal: what it wrote to stdout, and to the terminal."""
    here, there = os.openpty()
    termios.tcsetwinsize(here, (24, 120))
    seen = []

    def read():
        try:
            while part := os.read(here, 4096):
                seen.append(part)
        except OSError:  # all who wrote have gone
            pass

    reader = threading.Thread(target=read)
    reader.start()
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "TERM": "xterm"}
    command = [sys.executable, "-m", "latentlink", *map(str, arguments)]
    done = subprocess.run(
        command, stdout=subprocess.PIPE, stderr=there, env=environment, timeout=240, check=False
    )
    os.close(there)
    reader.join()
    os.close(here)
    assert done.returncode == 0, b"".join(seen)[-2000:]
    return done.stdout.decode(), b"".join(seen).decode(errors="replace")


@pytest.mark.training
@pytest.mark.parametrize("kind", ["images", "pairs"])
def test_training_draws_on_stderr_and_writes_results_to_stdout(tmp_path, kind):
    pytest.importorskip("lightning")
    pytest.importorskip("sentence_transformers")
    (tmp_path / "t.csv").write_text("a,b\n" + "\n".join(f"text {i},the text {i}" for i in range(64)))
    data = {"images": "digits", "pairs": tmp_path / "t.csv"}[kind]
    command = ["train", kind, "--data", data, "--batch-size", 16, "--epochs", 1]
    if kind == "images":
        command += ["--backbone", "small", "--image-size", 16, "--set", "width=8"]
    out, bar = on_terminal(*command, "--out", tmp_path / "plain")
    assert out.startswith("trained")
    steps = {"images": "112/112", "pairs": "4/4"}[kind]
    assert steps in bar
    for way in (["--json"], ["--json", "--quiet"]):
        out, bar = on_terminal(*command, "--out", tmp_path / "".join(way), *way)
        assert json.loads(out)["steps"] == int(steps.split("/")[0])
        assert bar == ""
