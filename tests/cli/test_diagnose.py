import json

import numpy as np
import pytest

from latentlink import _files
from latentlink.tails import diagnose


@pytest.fixture
def files(tmp_path):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(300, 6)).astype(np.float32)
    arrays = {"x": x, "positives": x + 0.5 * rng.normal(size=x.shape).astype(np.float32)}
    for name, array in arrays.items():
        np.save(tmp_path / f"{name}.npy", array)
    return arrays, [str(tmp_path / f"{name}.npy") for name in arrays]


def test_json_is_the_functions_record(files, run):
    arrays, (x, _) = files
    code, streams = run("diagnose", x, "--json", "--tail-size", "32")
    assert code == 0
    found = json.loads(streams.out)
    assert found == json.loads(json.dumps(_files.plain(diagnose(arrays["x"], tail_size=32).record())))
    assert found["verdict"]["call"] == "bounded"
    assert "link" not in found


def test_positives_choose_a_link(files, run):
    _, (x, positives) = files
    code, streams = run("diagnose", x, "--positives", positives, "--json")
    assert code == 0
    link = json.loads(streams.out)["link"]
    assert link["n_choices"] == 300
    assert 0 <= link["blend_interval"][0] <= link["blend"] <= link["blend_interval"][1] <= 1


@pytest.mark.medium
def test_text_and_report(files, run, tmp_path):
    pytest.importorskip("matplotlib")
    _, (x, positives) = files
    page = tmp_path / "tails.html"
    code, streams = run("diagnose", x, "--positives", positives, "--report", str(page))
    assert code == 0
    assert "verdict: bounded" in streams.out
    text = page.read_text(encoding="utf-8")
    assert text.count("<svg") == 6
    assert "Link the positives ask for" in text


def test_mistakes_are_one_line(files, run, tmp_path):
    _, (x, _) = files
    np.save(tmp_path / "short.npy", np.ones((3, 6), dtype=np.float32))
    code, streams = run("diagnose", x, "--positives", str(tmp_path / "short.npy"))
    assert code == 2
    assert streams.err == "latentlink: embeddings and positives differ in rows: 300 and 3.\n"
