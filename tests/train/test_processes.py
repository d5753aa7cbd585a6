"""Two processes and one: the same losses, whatever the loss, in one piece and in chunks.

The learning rate is one at which rounding does not grow: near the endpoint WEINCE's gradient is steep, and at ten
times this rate two float32 runs of one process, with and without chunks, part by 0.01 within ten steps.
"""

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


def curve(tmp_path, processes, *options):
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    folder = tmp_path / f"on{processes}{''.join(options)}"
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, str(script), str(folder), str(processes), *options]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return list(history(folder)["loss"].values())


@pytest.mark.training
@pytest.mark.parametrize("options", [("infonce", "16"), ("weince",), ("weince-released",)])
def test_two_processes_have_the_loss_curve_of_one(tmp_path, options):
    one, two = (curve(tmp_path, processes, *options) for processes in (1, 2))
    assert len(one) == 14
    assert two == pytest.approx(one, abs=1e-4)
