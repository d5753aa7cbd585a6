"""The parts of a recipe: views, chunks, what the monitor sees, the authors' script, settings."""

import copy
import dataclasses
import json

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from tests import released_loss  # noqa: E402

from latentlink import InvalidInput  # noqa: E402
from latentlink.losses import InfoNCELoss, NTXentLoss, WEINCELoss  # noqa: E402
from latentlink.train import Collapsed, ImageSettings, TailMonitor, TextSettings, load_settings  # noqa: E402
from latentlink.train.augment import apply_views, draw_views  # noqa: E402
from latentlink.train.chunked import chunked_backward  # noqa: E402
from latentlink.train.monitor import observe  # noqa: E402
from latentlink.train.objective import ScriptLoss, make_loss  # noqa: E402
from latentlink.train.settings import LOSSES, save_settings  # noqa: E402


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def pictures(n=40, channels=3, size=12):
    return torch.randint(0, 256, (n, channels, size, size), dtype=torch.uint8, generator=generator())


# --- views -------------------------------------------------------------------------------------------------


def test_no_augmentation_is_the_image():
    settings = ImageSettings(smallest_crop=1.0, flip=0.0, color=0.0, gray=0.0)
    draw = draw_views(40, settings, generator())
    draw = dataclasses.replace(draw, crop=torch.eye(2, 3).repeat(40, 1, 1))  # also without the change of shape
    x = pictures()
    assert torch.allclose(apply_views(x, draw, 12), x.float() / 255, atol=1e-5)


def test_crop_and_mirror_are_those_of_torchvision():
    functional = pytest.importorskip("torchvision.transforms.v2.functional")
    x = pictures(1, 3, 32)
    settings = ImageSettings(color=0.0, gray=0.0, flip=1.0)
    draw = draw_views(1, settings, generator(1))
    width, height = -draw.crop[0, 0, 0], draw.crop[0, 1, 1]
    left, top = (draw.crop[0, 0, 2] - width + 1) * 16, (draw.crop[0, 1, 2] - height + 1) * 16
    # Round the crop to whole pixels, which is all torchvision can do.
    box = [round(float(v)) for v in (top, left, height * 32, width * 32)]
    exact = torch.tensor(
        [[[-box[3] / 32, 0, (2 * box[1] + box[3]) / 32 - 1], [0, box[2] / 32, (2 * box[0] + box[2]) / 32 - 1]]]
    )
    ours = apply_views(x, dataclasses.replace(draw, crop=exact), 32)
    theirs = functional.hflip(functional.resized_crop(x.float() / 255, *box, [32, 32], antialias=False))
    inside = (slice(None), slice(None), slice(4, -4), slice(4, -4))  # borders: neighbours against reflection
    assert torch.allclose(ours[inside], theirs[inside], atol=1e-4)


def test_brightness_contrast_and_saturation_are_those_of_torchvision():
    functional = pytest.importorskip("torchvision.transforms.v2.functional")
    x = pictures(1)
    settings = ImageSettings(smallest_crop=1.0, flip=0.0, gray=0.0)
    draw = draw_views(1, settings, generator())
    from latentlink.train.augment import _color_map

    one = torch.ones(1)
    draw = dataclasses.replace(
        draw,
        crop=torch.eye(2, 3)[None],
        color=_color_map(0.7 * one, 0 * one),
        brightness=0.8 * one,
        contrast=0.6 * one,
    )
    theirs = x.float() / 255 * 0.8
    theirs = functional.adjust_saturation(functional.adjust_contrast(theirs, 0.6), 0.7)
    assert torch.allclose(apply_views(x, draw, 12), theirs, atol=2e-3)  # their luma has four digits


def test_gray_images_have_three_equal_channels_and_hue_keeps_gray():
    draw = draw_views(40, ImageSettings(gray=1.0), generator())
    view = apply_views(pictures(), draw, 12)
    assert torch.allclose(view[:, 0], view[:, 1], atol=1e-5)
    gray = pictures(40, 1).repeat(1, 3, 1, 1)
    view = apply_views(gray, draw_views(40, ImageSettings(), generator()), 12)
    assert torch.allclose(view[:, 0], view[:, 2], atol=2e-4)


def test_each_image_has_its_own_draw_and_shares_do_not_change_it():
    settings = ImageSettings()
    whole = draw_views(40, settings, generator())
    x = pictures(1).repeat(40, 1, 1, 1)
    views = apply_views(x, whole, 12)
    assert len({tuple(view.flatten().tolist()) for view in views}) == 40
    part = apply_views(x[10:20], whole.rows(slice(10, 20), x.device), 12)
    assert torch.allclose(part, views[10:20], atol=1e-6)
    assert views.min() >= 0
    assert views.max() <= 1


# --- chunks ------------------------------------------------------------------------------------------------


def gradients(model):
    return torch.cat([p.grad.flatten() for p in model.parameters()])


@pytest.mark.parametrize("loss", [NTXentLoss(0.1), WEINCELoss(0.5), InfoNCELoss(0.05)])
@pytest.mark.parametrize("chunk_size", [1, 7, 64])
def test_chunks_give_the_gradient_of_one_piece(loss, chunk_size):
    model = torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.Tanh(), torch.nn.Linear(8, 5)).double()
    views = [torch.randn(32, 6, generator=generator(i), dtype=torch.float64) for i in (0, 1)]
    whole = copy.deepcopy(model)
    value = loss(*(whole(view) for view in views))
    value.backward()
    found, embeddings = chunked_backward(model, views, loss, chunk_size=chunk_size, model=model)
    assert float(found) == pytest.approx(float(value.detach()), rel=1e-12)
    assert torch.allclose(gradients(model), gradients(whole), rtol=1e-9, atol=1e-12)
    assert [z.shape for z in embeddings] == [(32, 5)] * 2


def test_chunks_repeat_dropout_and_count_batch_statistics_once():
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Linear(6, 8), torch.nn.BatchNorm1d(8), torch.nn.Dropout(0.5), torch.nn.Linear(8, 5)
    )
    other = copy.deepcopy(model)
    views = [torch.randn(32, 6, generator=generator(i)) for i in (0, 1)]
    chunked_backward(model, views, NTXentLoss(), chunk_size=16, model=model)
    torch.manual_seed(0)
    torch.randn(0)
    chunks = [chunk for view in views for chunk in torch.split(view, 16)]
    for chunk in chunks:
        other(chunk)
    assert model[1].num_batches_tracked == 4
    assert torch.allclose(model[1].running_mean, other[1].running_mean)


# --- what the monitor sees ---------------------------------------------------------------------------------


def two_views(n=64, d=8, noise=0.3):
    z = torch.randn(n, d, generator=generator())
    return z, z + noise * torch.randn(n, d, generator=generator(1))


@pytest.mark.parametrize("temperature", [0.1, 0.5])
def test_gradient_by_decile_is_that_of_autograd(temperature):
    z0, z1 = two_views()
    u = torch.nn.functional.normalize(torch.cat([z0, z1]).double(), dim=1)
    s = (u @ u.T).requires_grad_(True)
    n = len(z0)
    logits = (s / temperature).masked_fill(torch.eye(2 * n, dtype=torch.bool), -torch.inf)
    partner = (torch.arange(2 * n) + n) % (2 * n)
    torch.nn.functional.cross_entropy(logits, partner, reduction="sum").backward()
    shares = np.zeros(10)
    for i in range(2 * n):
        columns = [j for j in range(2 * n) if j not in (i, int(partner[i]))]
        columns.sort(key=lambda j: float(s[i, j].detach()))
        force = s.grad[i, columns].abs().numpy()
        shares += [part.sum() / force.sum() for part in np.array_split(force, 10)]
    seen = observe(z0, z1, NTXentLoss(temperature))
    assert [seen[f"gradient_decile_{k}"] for k in range(1, 11)] == pytest.approx(shares / (2 * n), abs=1e-5)


def test_weince_puts_more_of_the_gradient_on_the_most_similar():
    z0, z1 = two_views(256, 4, 0.1)
    plain, bent = (
        observe(z0, z1, loss)["gradient_decile_10"] for loss in (NTXentLoss(0.5), WEINCELoss.released(0.5))
    )
    assert bent > plain


def test_known_geometry():
    z = torch.eye(16)
    seen = observe(z, z)
    assert seen["uniformity"] == pytest.approx(-4.0, abs=1e-5)  # all at squared distance 2
    assert seen["cosine_other"] == pytest.approx(0, abs=1e-6)
    flat = torch.ones(16, 4) + 0.0
    assert observe(flat, flat)["effective_rank"] == pytest.approx(1, abs=1e-3)
    assert observe(flat, -flat)["alignment"] == pytest.approx(4, abs=1e-5)


def test_pooled_xi_of_a_uniform_sphere():
    """Shortfalls of uniform points on a sphere have the exponent (d − 1) / 2 at the top."""
    z = torch.randn(2000, 3, generator=generator())
    assert observe(z, torch.randn(2000, 3, generator=generator(1)))["beta_pooled"] == pytest.approx(1, abs=0.05)


def test_a_collapse_is_told_after_three_looks_and_not_before():
    monitor = TailMonitor(NTXentLoss(), every=2)
    flat = torch.ones(8, 4)
    healthy, _ = two_views(8)
    assert monitor.look(0, flat, flat, 1.0)
    assert monitor.look(1, flat, flat, 1.0) is None
    assert monitor.look(2, healthy, healthy, 1.0)
    assert monitor.look(4, flat, flat, 1.0)
    assert monitor.look(6, flat, flat, 1.0)
    with pytest.raises(
        Collapsed,
        match=r"collapsed: at step 8 different items have a mean cosine of 1\.0000 "
        r"\(effective rank 1\.0\), 3 looks in a row\.",
    ):
        monitor.look(8, flat, flat, 1.0)
    with pytest.raises(Collapsed, match=r"^the loss is nan at step 1; lower the learning rate"):
        monitor.look(1, healthy, healthy, float("nan"))


# --- the authors' script -----------------------------------------------------------------------------------


@pytest.mark.parametrize("case", ["gauss_N64_d16", "gauss_N8_d4", "cluster_N32_d8"])
@pytest.mark.parametrize("temperature", [0.5, 0.1])
def test_the_script_has_the_value_of_the_released_code(oracles, case, temperature):
    stored = json.loads((oracles / "weince_oracle.json").read_text())[case]
    z0, z1 = (torch.tensor(stored[name], dtype=torch.float64).float() for name in ("z1", "z2"))
    expected = stored["loss"][f"tau={temperature}"]["tl_slurm"]
    loss = ScriptLoss(temperature).train()
    assert float(loss(z0, z1)) == pytest.approx(expected["loss"], rel=2e-5)
    assert float(loss.exponent) == pytest.approx(expected["beta_t"], rel=1e-4)


@pytest.mark.parametrize("case", released_loss.CASES)
@pytest.mark.parametrize("temperature", [0.5, 0.1])
def test_the_script_in_float64_to_the_digits_of_the_released_code(oracles, case, temperature):
    oracle = json.loads((oracles / "weince_oracle.json").read_text())
    z0, z1 = released_loss.views(oracle, case)
    expected = oracle[case]["loss"][f"tau={temperature}"]["tl_slurm"]
    loss = ScriptLoss(temperature).double().train()  # a first call: the exponent starts from 4.0
    value = loss(z0, z1)
    value.backward()
    close = {"rel": released_loss.tolerance(case), "abs": 0.0}
    assert float(value.detach()) == pytest.approx(expected["loss"], **close)
    assert float(torch.cat([z0.grad, z1.grad]).norm()) == pytest.approx(expected["grad_norm"], **close)
    assert float(loss.exponent) == pytest.approx(expected["beta_t"], **close)


def test_the_script_keeps_its_exponent_with_its_weights():
    loss = ScriptLoss(0.5).train()
    loss(*two_views(256, 16))
    other = ScriptLoss(0.5)
    other.load_state_dict(loss.state_dict())
    assert other.exponent == loss.exponent != 4.0


# --- settings ----------------------------------------------------------------------------------------------


def test_settings_come_back(tmp_path):
    numpy = ImageSettings(epochs=np.int64(3), learning_rate=np.float32(0.1), constant_rate=np.True_)
    for settings in (ImageSettings(clip_norm=None), TextSettings(loss="weince-paper"), numpy):
        save_settings(settings, tmp_path)
        assert load_settings(tmp_path) == settings


def test_loss_of_each_name():
    assert type(make_loss(TextSettings(), two_views=False)) is InfoNCELoss
    assert type(make_loss(ImageSettings(), two_views=True)) is NTXentLoss
    released = make_loss(TextSettings(loss="weince-released"), two_views=False)
    assert (released.gate.evidence, released.layout) == ("regression", "one_way")
    assert make_loss(ImageSettings(loss="weince-paper"), two_views=True).gate.beta == "estimated"
    gates = {name: make_loss(ImageSettings(loss=name), two_views=True).gate for name in LOSSES[1:4]}
    assert {name: (gate.pivot, gate.beta) for name, gate in gates.items()} == {
        "weince": (0.05, "estimated"),
        "weince-wide": (0.2, "estimated"),
        "weince-unit": (0.05, "unit"),
    }


def test_mistakes_are_named(tmp_path):
    with pytest.raises(InvalidInput, match=r"^loss is 'weince-script'; it is defined for two views\."):
        TextSettings(loss="weince-script")
    with pytest.raises(InvalidInput, match=r"^warmup is 2; needs a number in \[0, 1\]\.$"):
        ImageSettings(warmup=2)
    (tmp_path / "settings.json").write_text('{"kind": "images", "colour": 1}')
    with pytest.raises(
        InvalidInput, match=r"has unknown settings \['colour'\]; was it written by another version\?$"
    ):
        load_settings(tmp_path)
    (tmp_path / "settings.json").write_text('{"kind": "sound"}')
    with pytest.raises(InvalidInput, match=r"is of kind 'sound'; needs one of 'images', 'text'\.$"):
        load_settings(tmp_path)
