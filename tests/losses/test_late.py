"""Rows that are not finite on a GPU: what can be shown without one.

The order of events, the error and the gradient are tested on CPU tensors that are told to be looked at late, and
the devices of the tensors on fake ones of a CUDA device. No GPU ran this.
"""

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from latentlink import InvalidInput
from latentlink.losses import InfoNCELoss, NTXentLoss, SymmetricInfoNCELoss, WEINCELoss, _inputs, _late
from latentlink.losses.functional import nt_xent

LOSSES = [NTXentLoss(0.1), InfoNCELoss(0.1), SymmetricInfoNCELoss(0.1), WEINCELoss(0.1), nt_xent]


class Event:
    """Stands for a mark in a device's queue, and writes down when it is set and waited for."""

    def __init__(self, log):
        self.log = log
        log.append("mark")

    def synchronize(self):
        self.log.append("wait")


@pytest.fixture
def log(monkeypatch):
    """Treat the CPU as a device whose values are not to be asked for, and return what happens."""
    events = []
    monkeypatch.setattr(_inputs, "_at_once", lambda x: False)
    monkeypatch.setattr(_late, "applies", lambda x: x.requires_grad and torch.is_grad_enabled())
    monkeypatch.setattr(_late, "_mark", lambda device: Event(events))
    return events


def views(n=12, d=5):
    g = torch.Generator().manual_seed(0)
    z0 = torch.randn(n, d, generator=g)
    return z0, z0 + 0.3 * torch.randn(n, d, generator=g)


@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: getattr(loss, "__name__", type(loss).__name__))
@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_the_backward_pass_names_the_row(log, loss, bad):
    z0, z1 = views()
    z1[4, 2] = bad
    value = loss(z0.requires_grad_(), z1.requires_grad_()).sum()
    assert bool(value.isnan())
    assert log == ["mark", "mark"]  # nothing is waited for on the way
    kind = "NaN" if bad != bad else "infinity"
    with pytest.raises(InvalidInput, match=rf"^row 4 of (z1|b|positives) holds {kind}; drop or mend it\.$"):
        value.backward()
    assert "wait" in log
    assert z0.grad is None or not bool(z0.grad.isfinite().all())


@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: getattr(loss, "__name__", type(loss).__name__))
def test_finite_rows_keep_their_gradient(log, monkeypatch, loss):
    z0, z1 = (z.requires_grad_() for z in views())
    late = torch.autograd.grad(loss(z0, z1).sum(), (z0, z1))
    assert log == ["mark", "mark", "wait", "wait"]
    monkeypatch.undo()
    torch.testing.assert_close(late, torch.autograd.grad(loss(z0, z1).sum(), (z0, z1)))


def test_without_a_gradient_the_loss_is_nan(log):
    z0, z1 = views()
    z1[4, 2] = torch.nan
    assert bool(NTXentLoss()(z0, z1).isnan())
    assert log == []


def test_only_a_gpu_is_looked_at_late(monkeypatch):
    z0, _ = views()
    assert not _late.applies(z0.requires_grad_())
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
    with FakeTensorMode():
        far = torch.empty(3, 4, device="cuda", requires_grad=True)
        assert _late.applies(far)
        assert not _late.applies(far.detach())
        with torch.no_grad():
            assert not _late.applies(far)


def test_devices_on_a_fake_gpu(monkeypatch):
    """The rows stay where they are and only the answer travels."""
    events, asked = [], []
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
    monkeypatch.setattr(_late, "_mark", lambda device: events.append(device))
    real = torch.Tensor.to
    monkeypatch.setattr(
        torch.Tensor, "to", lambda x, *a, **k: (asked.append((x.shape, a, k)), real(x, *a, **k))[1]
    )
    with FakeTensorMode():
        far = torch.empty(3, 4, device="cuda", dtype=torch.float16, requires_grad=True)
        unit = _inputs.unit_rows("z0", far, torch.float32)
    assert (unit.device.type, unit.dtype, unit.shape) == ("cuda", torch.float32, (3, 4))
    assert [device.type for device in events] == ["cuda"]
    assert [(shape, k) for shape, a, k in asked if a and a[0] == "cpu"] == [
        (torch.Size([]), {"non_blocking": True})
    ]
