"""Training on real images: it learns, it goes on after a kill to the same weights, chunks change nothing."""

import dataclasses
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("lightning")
pytest.importorskip("timm")

from latentlink import InvalidInput, InvalidType  # noqa: E402
from latentlink.evaluate import knn_accuracy  # noqa: E402
from latentlink.train import (  # noqa: E402
    Collapsed,
    ImageSettings,
    history,
    load_image_encoder,
    load_settings,
    train_images,
)
from latentlink.train.batches import Batches, array_images, load_images  # noqa: E402
from latentlink.train.settings import save_settings  # noqa: E402

TINY = ImageSettings(
    backbone="small",
    width=8,
    norm="group",
    image_size=16,
    projection=16,
    epochs=1,
    batch_size=64,
    flip=0.0,
    log_every=5,
    checkpoint_every=4,
    learning_rate=3e-3,
)


@pytest.fixture(scope="module")
def digits():
    return load_images("digits", 16)


def trained(folder, digits, **changes):
    settings = dataclasses.replace(TINY, **changes)
    return train_images(digits, folder, settings, quiet=True, accelerator="cpu")


def weights(encoder):
    return torch.cat([value.flatten() for value in encoder.state_dict().values()])


@pytest.mark.medium
@pytest.mark.parametrize("loss", ["infonce", "weince-script"])
def test_features_of_digits_beat_untrained_ones(tmp_path, digits, loss):
    encoder = trained(tmp_path / "run", digits, loss=loss, epochs=8, smallest_crop=0.3)
    torch.manual_seed(1)
    untrained = type(encoder)(TINY, 1)
    y = digits.labels
    scores = []
    for model in (encoder, untrained):
        x = model.encode(digits)
        scores.append(knn_accuracy(x[:1000], y[:1000], x[1000:], y[1000:], k=10).accuracy)
    assert scores[0] > scores[1] + 0.02
    assert scores[0] > 0.7
    seen = history(tmp_path / "run")
    assert list(seen["loss"]) == list(range(224))
    assert list(seen["alignment"]) == list(range(0, 224, 5))
    assert sum(seen[f"gradient_decile_{i}"][220] for i in range(1, 11)) == pytest.approx(1, abs=1e-5)
    assert (loss == "infonce") == ("blend" not in seen)


@pytest.mark.medium
def test_what_is_saved_is_what_was_trained(tmp_path, digits):
    encoder = trained(tmp_path / "run", digits)
    again = load_image_encoder(tmp_path / "run")
    assert np.array_equal(encoder.encode(digits), again.encode(digits))
    assert load_settings(tmp_path / "run") == TINY
    assert (tmp_path / "run" / "tensorboard").is_dir()


SCRIPT = """
import dataclasses, sys
from latentlink.train import train_images, ImageSettings
settings = None if sys.argv[2] == "resume" else ImageSettings(**eval(sys.argv[3]))
train_images("digits", sys.argv[1], settings, resume=sys.argv[2] == "resume", quiet=True, accelerator="cpu")
"""


@pytest.mark.medium
def test_a_killed_run_goes_on_to_the_same_weights(tmp_path, digits):
    settings = dataclasses.replace(TINY, epochs=10, norm="batch", loss="weince-script")
    whole = train_images(digits, tmp_path / "whole", settings, quiet=True, accelerator="cpu")
    folder = tmp_path / "killed"
    arguments = [sys.executable, "-c", SCRIPT, str(folder), "new", repr(dataclasses.asdict(settings))]
    process = subprocess.Popen(arguments, env={**os.environ, "OMP_NUM_THREADS": "1"})
    deadline = time.monotonic() + 120
    while not (folder / "last.ckpt").exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert not (folder / "encoder.safetensors").exists()
    with pytest.raises(InvalidInput, match=r"the run has not ended\. Take it up with resume\."):
        load_image_encoder(folder)
    resumed = train_images(digits, folder, resume=True, quiet=True, accelerator="cpu")
    assert torch.equal(weights(resumed), weights(whole))
    before, after = history(tmp_path / "whole")["loss"], history(folder)["loss"]
    assert all(before[step] == after[step] for step in after)
    assert max(after) == max(before)


@pytest.mark.medium
def test_chunks_give_the_losses_of_one_piece(tmp_path, digits):
    """At a rate at which rounding does not grow; at three times this rate runs part by 0.01 on some machines."""
    curves = []
    for name, chunk_size in [("whole", None), ("chunked", 17)]:
        trained(tmp_path / name, digits, optimizer="sgd", learning_rate=0.003, chunk_size=chunk_size)
        curves.append(list(history(tmp_path / name)["loss"].values()))
    assert curves[0] == pytest.approx(curves[1], abs=1e-4)


@pytest.mark.medium
def test_bfloat16_follows_float32(tmp_path, digits):
    trained(tmp_path / "half", digits, precision="bf16-mixed")
    trained(tmp_path / "full", digits)
    half, full = (np.array(list(history(tmp_path / name)["loss"].values())) for name in ("half", "full"))
    assert np.abs(half - full).max() < 0.1


@pytest.mark.medium
def test_a_diverging_run_stops_with_a_reason(tmp_path, digits):
    with pytest.raises(Collapsed, match=r"^the embeddings are not finite at step \d+; lower the learning rate"):
        trained(tmp_path / "run", digits, optimizer="sgd", learning_rate=1e20, clip_norm=None, epochs=2)


def test_batches_are_taken_up_where_they_stood(digits):
    whole = Batches(digits, 100, seed=3)
    first = list(whole) + list(whole)
    assert [batch.step for batch in first] == list(range(34))
    resumed = Batches(digits, 100, seed=3)
    resumed.load_state_dict({"step": 20})
    rest = list(resumed)
    assert [batch.step for batch in rest] == list(range(20, 34))
    assert all(torch.equal(a.images, b.images) for a, b in zip(first[20:], rest, strict=True))
    assert not torch.equal(first[0].images, first[17].images)


def test_two_processes_share_the_same_batches(digits):
    whole = next(iter(Batches(digits, 100, seed=0)))
    halves = [next(iter(Batches(digits, 100, seed=0, rank=rank, world=2))) for rank in (0, 1)]
    assert torch.equal(torch.cat([half.images for half in halves]), whole.images)
    assert [half.start for half in halves] == [0, 50]


def test_folders_and_arrays_of_images(tmp_path, rng):
    image = pytest.importorskip("PIL.Image")
    pixels = rng.integers(0, 256, (4, 20, 30, 3), dtype=np.uint8)
    for i, name in enumerate(["cat/a.png", "cat/b.png", "dog/a.png", "dog/c.png"]):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        image.fromarray(pixels[i]).save(tmp_path / name)
    found = load_images(tmp_path, 16)
    assert found.ids.tolist() == ["cat/a.png", "cat/b.png", "dog/a.png", "dog/c.png"]
    assert found.classes == ["cat", "dog"]
    assert found.labels.tolist() == [0, 0, 1, 1]
    assert next(found.batches(3)).shape == (3, 3, 16, 16)
    gray = array_images(pixels[..., 0][:, :20, :20], [0, 1, 1, 0])
    assert next(gray.batches(4)).shape == (4, 1, 20, 20)


def test_arrays_are_taken_as_they_are(tmp_path, rng):
    pixels = rng.integers(0, 256, (16, 8, 8), dtype=np.uint8)
    settings = ImageSettings(backbone="small", width=4, image_size=8, batch_size=8, epochs=1)
    options = {"quiet": True, "accelerator": "cpu"}
    first = train_images(pixels, tmp_path / "array", settings, **options)
    again = train_images(array_images(pixels), tmp_path / "images", settings, **options)
    assert np.array_equal(first.encode(pixels), again.encode(array_images(pixels)))
    with pytest.raises(InvalidType, match=r"^settings is a dict; needs ImageSettings\.$"):
        train_images(pixels, tmp_path / "x", {"epochs": 1}, **options)
    with pytest.raises(InvalidType, match=r"^data is a list; needs a path\.$"):
        train_images([1, 2], tmp_path / "x", settings, **options)


@pytest.mark.medium
@pytest.mark.parametrize(("backbone", "size"), [("resnet18", 32), ("vit_tiny_patch16_224", 32)])
def test_backbones_of_timm_take_small_images(backbone, size):
    from latentlink.train import ImageEncoder

    encoder = ImageEncoder(ImageSettings(backbone=backbone, image_size=size), 3)
    assert encoder(torch.rand(2, 3, size, size)).shape == (2, 64)
    if backbone == "resnet18":
        assert encoder.backbone.conv1.stride == (1, 1)


def test_mistakes_are_named(tmp_path, digits):
    with pytest.raises(InvalidInput, match=r"^batch_size is 5000, but there are 1797 images; lower it\.$"):
        Batches(digits, 5000, 0)
    with pytest.raises(InvalidInput, match=r"^batch_size is 64; needs a multiple of the 3 processes\.$"):
        Batches(digits, 64, 0, world=3)
    with pytest.raises(InvalidInput, match=r"^images has type float64 and shape \(3, 4\); needs uint8"):
        array_images(np.ones((3, 4)))
    with pytest.raises(InvalidInput, match=r"^images are 5 x 5, image_size is 4; needs the same\.$"):
        array_images(np.ones((3, 5, 5), dtype=np.uint8), size=4)
    with pytest.raises(InvalidInput, match=r"needs 'digits', an \.npz file or a folder of images\.$"):
        load_images(tmp_path / "x.csv", 8)
    with pytest.raises(InvalidInput, match=r"holds no image files"):
        load_images(tmp_path, 8)
    with pytest.raises(InvalidInput, match=r"^loss is 'info_nce'; needs one of 'infonce', 'weince',"):
        ImageSettings(loss="info_nce")
    with pytest.raises(InvalidInput, match=r"holds no settings\.json; needs the folder of a training run\.$"):
        train_images(digits, tmp_path, resume=True)
    with pytest.raises(
        InvalidInput, match=r"^backbone is 'resnet19'; needs 'small' or a name of timm\.list_models\(\)\.$"
    ):
        trained(tmp_path / "bad", digits, backbone="resnet19")
    assert not (tmp_path / "bad" / "settings.json").exists()  # a mistake leaves the folder free
    save_settings(TINY, tmp_path / "taken")
    with pytest.raises(InvalidInput, match=r"holds a training run; resume it or name another folder\.$"):
        trained(tmp_path / "taken", digits)
