import json
import subprocess
import sys

import numpy as np
import pytest

from latentlink.cli import main
from latentlink.demo import digits
from latentlink.demo.part import Part
from latentlink.demo.sentences import FIRST_GERMAN_ROW, load_sentences
from latentlink.report.page import Table


def test_the_sentences_are_whole():
    data = load_sentences()
    assert {name: x.shape for name, x in data.english_by.items()} == {
        "minilm": (2400, 384),
        "use": (2400, 512),
        "e5": (2400, 384),
        "glove50": (2400, 50),
    }
    assert len(set(data.english)) == 2400
    assert len(data.german) == 400 == len(data.german_by["e5"]) == len(data.english) - FIRST_GERMAN_ROW
    unit = [data.english_by[name] for name in ("minilm", "use", "e5")]
    for x in [*unit, *data.german_by.values()]:
        np.testing.assert_allclose(np.linalg.norm(x, axis=1), 1, atol=2e-3)


def test_a_part_is_readable_in_a_terminal():
    part = Part("Heading", "Text.", {}, [Table(["name", "value"], [["[b]raw[/b]", 0.123456]], "Caption")])
    shown = part.terminal(60)
    assert shown.startswith("── Heading ───")
    assert "Caption" in shown
    assert "[b]raw[/b]  0.1235" in shown.replace("   ", "  ")
    assert max(map(len, shown.splitlines())) <= 60


def test_the_same_seed_gives_the_same_encoder():
    pytest.importorskip("torch")
    from latentlink.losses import NTXentLoss

    images, _ = digits.load_digits()
    one, two = (digits.train_encoder(images, NTXentLoss(0.5), epochs=1, seed=3) for _ in range(2))
    np.testing.assert_array_equal(one, two)
    assert one.shape == (1797, 128)


@pytest.mark.medium
@pytest.mark.timeout(900)
def test_the_main_job_holds_its_figures(tmp_path, capsys):
    """The whole demo, as a user runs it."""
    pytest.importorskip("torch")
    with pytest.raises(SystemExit) as caught:
        main(["demo", "--json", "--out", str(tmp_path / "out")])
    assert caught.value.code == 0
    output = capsys.readouterr()
    found = json.loads(output.out)
    assert found["strong_mean_recall_at_1"] >= 0.98
    assert found["param_strong_mean_recall_at_1"] >= 0.95
    assert found["german_to_english_recall_at_1"] >= 0.88
    assert found["shuffled_recall_at_1"] <= 0.01
    for tail in found["diagnose"]["tails"].values():
        low, high = tail["xi_end_at_1_interval"]
        assert low < tail["xi_end_at_1"] < high < 0
        assert tail["xi_interval"][0] < tail["xi"] < tail["xi_interval"][1]
    assert set(found["train"]) == {"k-NN", "linear probe"}
    assert "4/5 searching" in output.err
    html = (tmp_path / "out" / "report.html").read_text()
    assert html.count("<svg") >= 2
    assert "Könnte ich eine Frage stellen?" in html


WITHOUT_TORCH = """
import importlib.machinery
found = importlib.machinery.PathFinder.find_spec
def find_spec(name, path=None, target=None):
    return None if name == "torch" else found(name, path, target)
importlib.machinery.PathFinder.find_spec = find_spec
from latentlink.cli import main
main(["demo", "--json", "--quiet", "--out", "OUT"])
"""


@pytest.mark.medium
@pytest.mark.timeout(900)
def test_without_torch_the_rest_runs_and_what_is_left_out_is_said(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_TORCH.replace("OUT", str(tmp_path))],
        capture_output=True,
        text=True,
        check=True,
    )
    found = json.loads(done.stdout)
    assert found["train"] == {"left_out": True}
    assert found["param_strong_mean_recall_at_1"] is None
    assert any("param-wip left out" in note for note in found["align"]["notes"])
    assert found["strong_mean_recall_at_1"] >= 0.98
    assert "training needs torch" in (tmp_path / "report.html").read_text()
    assert done.stderr == ""
