"""What a loss may be told, and what it says to what it does not know; the numbers as in `test_complaints`."""

import io

import numpy as np
import pytest
import torch

from latentlink import InvalidInput, InvalidType
from latentlink.integrations import open_clip
from latentlink.integrations.metric_learning import InfoNCELoss as LabelledLoss
from latentlink.integrations.metric_learning import unpaired
from latentlink.losses import InfoNCELoss, LogitScale, NTXentLoss, SymmetricInfoNCELoss, WEINCELoss
from latentlink.losses.functional import weince
from latentlink.losses.queue import Queue


def views(n=12, d=6, seed=0, dtype=torch.float32):
    g = torch.Generator().manual_seed(seed)
    z0 = torch.randn(n, d, generator=g).to(dtype)
    return z0.requires_grad_(), (z0.detach() + 0.3 * torch.randn(n, d, generator=g)).to(dtype).requires_grad_()


def test_ref_labels_may_be_the_same_object():  # pytorch-metric-learning 496
    z0, z1 = views(6)
    labels = torch.arange(6)
    loss = LabelledLoss(0.1)
    shared = loss(z0, labels, ref_emb=z1, ref_labels=labels)
    assert float(shared.detach()) > 0
    assert torch.equal(shared, loss(z0, labels, ref_emb=z1, ref_labels=labels.clone()))


def test_indices_suffice_without_labels():  # pytorch-metric-learning 412, 531
    z = views(4)[0]
    triplets = tuple(torch.tensor(x) for x in ([0, 2], [1, 3], [2, 0]))
    assert float(LabelledLoss(0.1)(z, indices_tuple=triplets).detach()) > 0
    with pytest.raises(InvalidInput, match=r"^labels is None; needs labels \(n,\), or indices_tuple\.$"):
        LabelledLoss(0.1)(z)


@pytest.mark.parametrize("temperature", [0.0, -1.0, float("nan")])
def test_bad_temperatures_fail_in_the_constructor(temperature):  # torchmetrics 3378
    for module in (NTXentLoss, InfoNCELoss, SymmetricInfoNCELoss, WEINCELoss):
        with pytest.raises(InvalidInput, match=r"^temperature is .*; needs a number > 0\.$"):
            module(temperature)


def test_foreign_and_mistyped_options_fail_in_the_constructor():  # torchmetrics 3378
    with pytest.raises(
        InvalidType, match=r"^temp is no option of NTXentLoss\. Options are labels, negative_labels,"
    ):
        NTXentLoss(temp=0.1)
    with pytest.raises(
        InvalidType, match=r"^pivott is no option of WEINCELoss\..* endpoint, evidence, beta, pivot,"
    ):
        WEINCELoss(pivott=0.2)
    with pytest.raises(
        InvalidType, match=r"Give InfoNCELoss the rows of a latentlink.losses.queue.Queue as neg"
    ):
        NTXentLoss(memory_bank_size=4096)
    with pytest.raises(InvalidType, match=r"Wrap the loss in latentlink.losses.gather.DistributedLoss"):
        NTXentLoss(gather_distributed=True)
    with pytest.raises(
        InvalidType, match=r"local_loss is no option .* Leave it out: other processes are found"
    ):
        open_clip.InfoNCELoss(local_loss=True)
    with pytest.raises(InvalidType, match=r"^label is no option of NTXentLoss\."):
        NTXentLoss()(*views(), label=torch.arange(12))
    z0, z1 = views()
    single = WEINCELoss(0.5, denominator="none", pivot=0.5)
    assert single.gate.pivot == 0.5
    torch.testing.assert_close(single(z0, z1), WEINCELoss(0.5, pivot=0.5)(z0, z1, denominator="none"))


def test_labels_of_another_library_are_named():
    for labels in (np.arange(12), list(range(12))):
        wanted = (
            f"^labels is {type(labels).__name__}; needs a torch tensor\\. Use torch\\.as_tensor\\(labels\\)\\.$"
        )
        for call in (
            lambda labels: NTXentLoss()(*views(), labels=labels),
            lambda labels: LabelledLoss()(views()[0], labels),
            lambda labels: Queue(4, 6).append(views()[0], labels),
        ):
            with pytest.raises(InvalidType, match=wanted):
                call(labels)


def test_temperature_and_scale_are_both_printed():  # sentence-transformers 3054, 2770
    assert repr(NTXentLoss(0.05)) == "NTXentLoss(temperature=0.05 (scale 20), reduction='mean')"


def test_negatives_and_positives_of_a_querys_own_in_one_call():
    """pytorch-metric-learning 686, 549, 179; info-nce-pytorch 6, 11: (n, m, d) negatives, (n, p, d) positives."""
    z0, z1 = (x.detach() for x in views(4))
    own = torch.randn(4, 5, 6, generator=torch.Generator().manual_seed(3))
    unit = torch.nn.functional.normalize
    positive = (unit(z0) * unit(z1)).sum(1) / 0.1
    negative = torch.einsum("nd,nmd->nm", unit(z0), unit(own, dim=2)) / 0.1
    wanted = (torch.cat([positive[:, None], negative], dim=1).logsumexp(1) - positive).mean()
    paired = InfoNCELoss(0.1, negative_mode="paired")
    torch.testing.assert_close(paired(z0, z1, own), wanted)
    twice = torch.stack([z1, z1], dim=1)
    torch.testing.assert_close(paired(z0, twice, own), wanted)
    with pytest.raises(InvalidInput, match=r"^negative_keys has shape \(4, 5, 6\); needs \(m, d\) for"):
        InfoNCELoss(0.1)(z0, z1, own)


def test_rows_without_a_positive_are_named():  # pytorch-metric-learning 272, 744
    labels = torch.tensor([7, 8, 7, 9, 2**60])
    assert unpaired(labels).tolist() == [1, 3, 4]
    assert unpaired(labels, torch.tensor([9, 8, 2**60 + 1])).tolist() == [0, 2, 4]
    z = views(5)[0]
    kept = torch.tensor([0, 2])
    loss = LabelledLoss(0.1, positives_in_denominator=True)
    assert float(loss(z, labels).detach()) > float(loss(z[kept], labels[kept]).detach())  # others are negatives


def test_integer_labels_never_pass_through_float():  # found by reading: ids above 2**24
    z = views(6)[0]
    ids = 2**60 + torch.arange(6)
    pairs = torch.tensor([0, 0, 1, 1, 2, 2])
    a, b = LabelledLoss(0.1)(z, ids[pairs]), LabelledLoss(0.1)(z, pairs)
    assert torch.equal(a, b)


def test_labels_of_one_column_and_booleans():
    z0, z1 = views(4)
    ids = torch.tensor([0, 1, 2, 0])
    torch.testing.assert_close(NTXentLoss()(z0, z1, labels=ids[:, None]), NTXentLoss()(z0, z1, labels=ids))
    torch.testing.assert_close(
        NTXentLoss()(z0, z1, labels=ids > 0), NTXentLoss()(z0, z1, labels=(ids > 0).int())
    )


def test_state_is_settings_only():  # lightly's bank lives in the loss; ours keeps nothing
    assert not NTXentLoss().state_dict()
    assert not WEINCELoss().state_dict()
    stream = io.BytesIO()
    torch.save(SymmetricInfoNCELoss(LogitScale()).state_dict(), stream)
    assert stream.tell() > 0


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"weights": [1.0] * 8}, "weights is list; needs a torch tensor. Use torch.as_tensor(weights)."),
        ({"same": np.zeros((4, 4), bool)}, "same is ndarray; needs a torch tensor. Use torch.as_tensor(same)."),
        ({"gate": 0.1}, "gate is a float; needs a latentlink.tails.online.Gate."),
        ({"statistics": torch.ones(8)},
         "statistics is a Tensor; needs QueryStatistics, as WEINCELoss.statistics gives them."),
        ({"z1": torch.zeros(4, 6, device="meta")},
         "z0 is on cpu and z1 is on meta; needs one device. Move one with .to(device)."),
        ({"z1": torch.zeros(4, 6).to_sparse()}, "z1 is a sparse tensor; needs a dense one. Use z1.to_dense()."),
    ],
)  # fmt: skip
def test_things_of_another_kind(settings, message):
    z0, z1 = views(4)
    with pytest.raises((InvalidInput, InvalidType)) as caught:
        weince(**{"z0": z0, "z1": z1, **settings})
    assert str(caught.value) == message
