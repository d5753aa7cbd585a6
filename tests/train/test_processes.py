"""Two processes and one: the same losses, whatever the loss, of images in one piece and in chunks, and of texts.

The learning rate is one at which rounding does not grow: near the endpoint WEINCE's gradient is steep, and at ten
times this rate two float32 runs of one process, with and without chunks, part by 0.01 within ten steps.
"""

import csv
import json
import os
import subprocess
import sys

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("lightning")

from latentlink.train import history  # noqa: E402

SCRIPT = """
import sys, warnings
warnings.simplefilter("ignore")
from latentlink.train import train_images, ImageSettings
settings = ImageSettings(
    backbone="small", width=8, norm="group", image_size=16, projection=16, epochs=1, batch_size=128, flip=0.0,
    log_every=5, optimizer="sgd", learning_rate=0.001, loss=sys.argv[3],
    chunk_size=int(sys.argv[4]) if len(sys.argv) > 4 else None,
)
devices = int(sys.argv[2])
train_images(
    "digits", sys.argv[1], settings, quiet=True, accelerator="cpu", devices=devices,
    strategy="ddp" if devices > 1 else "auto",
)
"""


def launched(processes, *command):
    """Run a command of Python's on some processes and return what it printed."""
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(processes)]
    command = [sys.executable, *(launcher if processes > 1 else []), *command]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=240, check=False)
    return done.returncode, done.stdout, done.stderr


def curve(tmp_path, processes, *options):
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    folder = tmp_path / f"on{processes}{''.join(options)}"
    # One is launched: Lightning starts the others itself.
    code, _, complaint = launched(1, str(script), str(folder), str(processes), *options)
    assert code == 0, complaint[-2000:]
    return list(history(folder)["loss"].values())


@pytest.mark.training
@pytest.mark.parametrize("options", [("infonce", "16"), ("weince",), ("weince-released",)])
def test_two_processes_have_the_loss_curve_of_one(tmp_path, options):
    one, two = (curve(tmp_path, processes, *options) for processes in (1, 2))
    assert len(one) == 14
    assert two == pytest.approx(one, abs=1e-4)


# Without dropout, whose draws differ from process to process.
TEXTS = """
import sys, warnings
warnings.simplefilter("ignore")
from latentlink.train import TextSettings, train_pairs, transformer
transformer._SCRATCH |= {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
settings = TextSettings(batch_size=32, max_length=12, learning_rate=1e-4, epochs=2, log_every=5, loss=sys.argv[3])
train_pairs(sys.argv[2], sys.argv[1], settings, quiet=True)
"""


@pytest.fixture(scope="module")
def pairs(tmp_path_factory):
    """Pairs of which some are about the same thing: 150 rows, 50 groups."""
    path = tmp_path_factory.mktemp("pairs") / "pairs.csv"
    words = ["red", "green", "blue", "small", "old", "wet", "loud", "soft", "round", "cold"]
    with open(path, "w", newline="", encoding="utf-8") as stream:
        writer = csv.writer(stream)
        writer.writerow(["a", "b", "group"])
        for i in range(150):
            thing = f"{words[i % 10]} {words[i // 10 % 5]}"
            writer.writerow([f"number {i} is a {thing} one", f"one {thing} thing, said {i}", i % 50])
    return path


@pytest.mark.training
@pytest.mark.parametrize("loss", ["infonce", "weince"])
def test_two_processes_of_texts_have_the_loss_curve_of_one(tmp_path, pairs, loss):
    pytest.importorskip("sentence_transformers")
    pytest.importorskip("datasets")
    script = tmp_path / "script.py"
    script.write_text(TEXTS)
    for processes in (1, 2):
        code, _, complaint = launched(processes, str(script), str(tmp_path / str(processes)), str(pairs), loss)
        assert code == 0, complaint[-2000:]
    one, two = (list(history(tmp_path / name)["loss"].values()) for name in ("1", "2"))
    assert len(one) == 8
    assert two == pytest.approx(one, abs=1e-4)
    assert [path.name for path in (tmp_path / "2" / "log").iterdir()] == ["0"]  # one process writes


@pytest.mark.training
def test_the_command_speaks_once_for_all_processes(tmp_path, pairs):
    pytest.importorskip("sentence_transformers")
    pytest.importorskip("datasets")
    command = ["-m", "latentlink", "train", "pairs", "--data", str(pairs), "--json", "--quiet"]
    sized = ["--batch-size", "32", "--set", "max_length=12"]
    code, shown, complaint = launched(2, *command, *sized, "--out", str(tmp_path / "texts"))
    assert code == 0, complaint[-2000:]
    assert json.loads(shown)["steps"] == 4
    again, _, complaint = launched(2, *command, *sized, "--out", str(tmp_path / "texts"))
    assert again != 0
    assert "holds a training run" in complaint
    odd, _, complaint = launched(2, *command, "--batch-size", "31", "--out", str(tmp_path / "odd"))
    assert odd != 0
    assert "needs a multiple of the 2 processes" in complaint

    command = ["-m", "latentlink", "train", "images", "--data", "digits", "--json", "--quiet", "--epochs", "1"]
    small = ["--backbone", "small", "--image-size", "16", "--accelerator", "cpu"]
    code, shown, complaint = launched(1, *command, *small, "--devices", "2", "--out", str(tmp_path / "images"))
    assert code == 0, complaint[-2000:]
    assert json.loads(shown)["steps"] == 7
    alone, _, complaint = launched(2, *command, *small, "--devices", "1", "--out", str(tmp_path / "alone"))
    assert alone != 0
    assert "2 processes were started but the trainer counts 1" in complaint
    code, _, complaint = launched(1, *command, *small, "--strategy", "nosuch", "--out", str(tmp_path / "wrong"))
    assert code == 2
    assert "Lightning refuses" in complaint
    assert "Traceback" not in complaint
