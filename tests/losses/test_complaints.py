"""What users of other contrastive losses have complained of, each as a small test of the right behaviour.

The number after each name is the thread where it was reported. Where the 48 complaints that were collected are
tested (here, unless a file is named):

1-4    test_labelled: test_memory_is_that_of_rows_and_tiles
5      test_peak_memory_of_forward_and_backward
6      test_blockwise: test_plain_losses_in_float64 (the memory allowed does not change the value)
7      test_gather: test_texts_queue_and_culprit_on_two_processes counts the messages, encoded in parts or not
8      test_gather: test_processes_equal_one, "local"; test_texts_queue_and_culprit_on_two_processes, "work"
9      test_low_temperature_does_not_overflow
10     test_functional: test_equal_the_definitions
11     test_no_positive_is_zero_not_nan
12     test_equal_features_give_log_of_the_candidates
13     test_unnormalised_inputs_stay_finite
14, 21 test_half_types_compute_in_float32
15     test_zero_rows_have_no_gradient
16     an optimizer's step on half weights, no loss; a loss can name the row: test_the_culprit_row_is_named,
       test_late: test_the_backward_pass_names_the_row, test_gather: test_texts_queue_and_culprit_on_two_processes
17     test_logit_scale_is_clamped_and_says_so
18     test_masked_negatives_leave_the_temperature_gradient_finite
19     test_a_row_without_candidates_is_zero
20     test_sweep_is_finite; the record of each step it asks for is a trainer's, no loss's
22     test_loss_beyond_87_nats_keeps_its_gradient
23-28  test_gather: test_processes_equal_one (25, nothing gathered: test_one_process_is_the_loss_itself)
29     test_gather: test_processes_equal_one, "hard"; test_texts_queue_and_culprit_on_two_processes, "texts"
30     test_gather: test_texts_queue_and_culprit_on_two_processes, "queue"
31     test_autocast_does_not_change_the_value; train/test_parts: test_chunks_give_the_gradient_of_one_piece
32     test_gather: test_processes_equal_one (negatives of all processes)
33, 39 test_duplicates_are_no_negatives_by_id
34, 44 test_encoding_in_parts_changes_nothing (34 is of a guide model, which no loss here has)
35     test_queue_never_holds_a_querys_own_copy_against_it
36     test_arguments: test_ref_labels_may_be_the_same_object;
       test_labelled: test_a_reference_may_be_the_rows_once_more
37     test_no_negative_is_finite, test_no_positive_is_zero_not_nan;
       test_arguments: test_rows_without_a_positive_are_named
38     test_gather: test_queue_wraps_without_losing_a_row
40     test_arguments: test_negatives_and_positives_of_a_querys_own_in_one_call;
       test_functional: test_several_positives_and_the_three_denominators
41     test_any_batch_size_after_any_other
42     test_batches_of_one_and_none
43     test_no_grad_runs_forward_only
45     test_arguments: test_indices_suffice_without_labels
46     test_modules_compile_without_a_graph_break; test_functional: test_compile_without_a_graph_break
47     test_arguments: test_bad_temperatures_fail_in_the_constructor,
       test_foreign_and_mistyped_options_fail_in_the_constructor
48     test_arguments: test_temperature_and_scale_are_both_printed
"""

import re
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from latentlink import InvalidInput
from latentlink.integrations import sentence_transformers as st
from latentlink.integrations.metric_learning import InfoNCELoss as LabelledLoss
from latentlink.losses import InfoNCELoss, LogitScale, NTXentLoss, SymmetricInfoNCELoss, WEINCELoss
from latentlink.losses.functional import info_nce, nt_xent, symmetric_info_nce
from latentlink.losses.queue import Queue
from latentlink.tails.online import Gate

OPEN = Gate(pivot=0.5, margin=-5.0)
OF_ONE = pytest.mark.filterwarnings("ignore:a batch of one item")
PLAIN = ("nt_xent", "one_way", "symmetric")
ALL = {
    "nt_xent": NTXentLoss(0.1),
    "one_way": InfoNCELoss(0.1),
    "symmetric": SymmetricInfoNCELoss(0.1),
    "weince": WEINCELoss(0.1, gate=OPEN),
    "released": WEINCELoss.released(0.1),
}


def views(n=12, d=6, seed=0, dtype=torch.float32):
    g = torch.Generator().manual_seed(seed)
    z0 = torch.randn(n, d, generator=g).to(dtype)
    return z0.requires_grad_(), (z0.detach() + 0.3 * torch.randn(n, d, generator=g)).to(dtype).requires_grad_()


def finite(loss, z0, z1):
    value = loss(z0, z1)
    gradients = torch.autograd.grad(value, (z0, z1))
    assert bool(value.isfinite())
    assert all(bool(g.isfinite().all()) for g in gradients)
    return value.detach(), gradients


def test_the_table_names_tests_that_exist():
    folder = Path(__file__).parents[1]
    there = "".join(path.read_text(encoding="utf-8") for path in folder.rglob("test_*.py"))
    numbers = re.findall(r"^(\d+)(?:-(\d+)|((?:, \d+)+))? ", __doc__, flags=re.MULTILINE)
    told = set()
    for first, last, more in numbers:
        told |= set(range(int(first), int(last or first) + 1)) | {int(x) for x in re.findall(r"\d+", more)}
    assert told == set(range(1, 49))
    for name in re.findall(r"\btest_\w+(?!\w*:)\b", __doc__):
        assert f"def {name}(" in there, name


@pytest.mark.parametrize("name", ALL)
def test_low_temperature_does_not_overflow(name):  # lightning-bolts 811, 609, 320
    z = views()
    finite({**ALL, "nt_xent": NTXentLoss(0.01), "weince": WEINCELoss(0.01, gate=OPEN)}[name], *z)


def test_loss_beyond_87_nats_keeps_its_gradient():  # pytorch-metric-learning: log(x + tiny) caps it
    a = torch.tensor([[1.0, 0.0], [-1.0, 0.0]], requires_grad=True)
    value = InfoNCELoss(0.01)(a, -a.detach())
    assert float(value.detach()) == pytest.approx(200, rel=1e-5)
    b = torch.tensor([[1.0, 0.1], [-1.0, 0.1]], requires_grad=True)
    (g,) = torch.autograd.grad(InfoNCELoss(0.01)(b, -b.detach()), b)
    assert float(g.abs().max()) > 1


def test_no_positive_is_zero_not_nan():  # SupContrast 141, 50; pytorch-metric-learning 744
    z = views(3)[0]
    loss = LabelledLoss(0.1, positives_in_denominator=True)(z, torch.arange(3))
    loss.backward()
    assert float(loss.detach()) == 0
    assert float(z.grad.abs().max()) == 0


def test_no_negative_is_finite():  # pytorch-metric-learning 272
    z = views(6)[0]
    labels = torch.zeros(6, dtype=torch.int64)
    assert float(LabelledLoss(0.1)(z, labels).detach()) == 0
    assert float(LabelledLoss(0.1, positives_in_denominator=True)(z, labels).detach()) > 0.1


def test_equal_features_give_log_of_the_candidates():  # SupContrast 106
    z = torch.ones(5, 3)
    for tau in (0.07, 0.5):
        assert float(NTXentLoss(tau)(z, z)) == pytest.approx(np.log(9), rel=1e-6)
        assert float(InfoNCELoss(tau)(z, z)) == pytest.approx(np.log(5), rel=1e-6)


def test_unnormalised_inputs_stay_finite():  # SupContrast 100
    z0, z1 = (11 * x.detach() for x in views())
    finite(NTXentLoss(0.07, normalize=False), z0.requires_grad_(), z1.requires_grad_())


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_types_compute_in_float32(name, dtype):  # lightly 1259; pytorch-metric-learning 121, 161
    z0, z1 = views(dtype=dtype)
    value, gradients = finite(ALL[name], z0, z1)
    assert value.dtype == torch.float32
    assert gradients[0].dtype == dtype
    assert float(value) == pytest.approx(float(ALL[name](z0.detach().float(), z1.detach().float())), rel=1e-5)


@pytest.mark.parametrize("name", ALL)
def test_autocast_does_not_change_the_value(name):  # GradCache 17
    z0, z1 = views()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        value = ALL[name](z0, z1)
        gradient = torch.autograd.grad(value, z0)[0]
    wanted = ALL[name](z0, z1)
    assert torch.equal(value, wanted)
    assert torch.equal(gradient, torch.autograd.grad(wanted, z0)[0])


@pytest.mark.parametrize("name", ALL)
def test_zero_rows_have_no_gradient(name):  # optax 946
    z0, z1 = (x.detach() for x in views())
    z0[3] = 0
    _value, gradients = finite(ALL[name], z0.requires_grad_(), z1.requires_grad_())
    assert float(gradients[0][3].abs().max()) == 0


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_the_culprit_row_is_named(bad):  # CLIP 40
    z0, z1 = (x.detach() for x in views())
    z1[4, 2] = bad
    kind = "NaN" if bad != bad else "infinity"
    with pytest.raises(InvalidInput, match=f"^row 4 of z1 holds {kind}; drop or mend it.$"):
        NTXentLoss()(z0, z1)


def test_logit_scale_is_clamped_and_says_so():  # CLIP 530, kornia 3481
    scale = LogitScale(0.07)
    assert not bool(scale.clamped)
    with torch.no_grad():
        scale.log_scale.fill_(50.0)
    assert float(scale().detach()) == pytest.approx(0.01)
    assert bool(scale.clamped)
    finite(SymmetricInfoNCELoss(scale), *views())


def test_masked_negatives_leave_the_temperature_gradient_finite():  # Automodel 3850
    z0, z1 = views()
    labels = torch.zeros(12, dtype=torch.int64)
    for function in (info_nce, nt_xent, symmetric_info_nce):
        t = torch.tensor(0.1, requires_grad=True)
        function(z0, z1, temperature=t, labels=labels).sum().backward()
        assert float(t.grad) == 0
    for make in (NTXentLoss, InfoNCELoss, SymmetricInfoNCELoss, lambda t: WEINCELoss(t, gate=OPEN)):
        for ids, zero in ((labels, True), (torch.arange(12) % 5, False)):
            scale = LogitScale(0.1)
            make(scale)(z0, z1, labels=ids).backward()
            assert bool(scale.log_scale.grad.isfinite())
            assert (float(scale.log_scale.grad) == 0) is zero


@OF_ONE
def test_a_row_without_candidates_is_zero():  # pytorch 31829, 49724
    z0, z1 = views(1)
    for loss in ALL.values():
        value, gradients = finite(loss, z0, z1)
        assert float(value) == 0 or loss is ALL["nt_xent"]
        assert float(gradients[0].abs().max()) == 0


def test_duplicates_are_no_negatives_by_id():  # sentence-transformers 3189, 608, 2870; OpenAI-CLIP 11, 16
    z0, z1 = (x.detach() for x in views(4))
    z0[3], z1[3] = z0[0], z1[0]
    ids = torch.tensor([7, 8, 9, 7])
    masked = SymmetricInfoNCELoss(0.1, reduction="none")(z0, z1, labels=ids)
    three = SymmetricInfoNCELoss(0.1, reduction="none")(z0[:3], z1[:3])
    np.testing.assert_allclose(masked[0], three[0], rtol=1e-5)


def test_queue_never_holds_a_querys_own_copy_against_it():  # pytorch-metric-learning 24, 141; lightly 1018
    z0, z1 = views()
    ids = torch.arange(12)
    queue = Queue(30, 6)
    queue.append(z1, ids)
    loss = InfoNCELoss(0.1, in_batch=True)
    with_queue = loss(z0, z1, queue.rows, labels=ids, negative_labels=queue.labels)
    each = info_nce(z0, z1, labels=ids)
    assert float(with_queue.detach()) > float(each.mean().detach())  # the others' copies count
    alone = info_nce(
        z0[:1], z1[:1], queue.rows[:1], labels=ids[:1], negative_labels=queue.labels[:1], in_batch=True
    )
    assert float(alone.detach()) == 0


@pytest.mark.parametrize("name", ALL)
def test_any_batch_size_after_any_other(name):  # SimCLR 41
    for n in (8, 3, 12, 2):
        finite(ALL[name], *views(n))


@pytest.mark.parametrize("name", ALL)
def test_batches_of_one_and_none(name):  # CLIP 83
    for n in (1, 0):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("default")
            for _step in range(3):
                value, gradients = finite(ALL[name], *views(n))
                assert float(value) == 0
                assert all(float(g.abs().sum()) == 0 for g in gradients)
        texts = [str(warning.message) for warning in caught]
        assert len(texts) == n  # one for all steps; none where there is nothing to warn of
        assert all(text.startswith("a batch of one item has no negatives: its loss and") for text in texts)


def counting():
    """Count multiplications, those of products that are added in place, too."""
    added = {torch.ops.aten.addmm_: lambda out, a, b, **_: 2 * a[0] * a[1] * b[1]}
    return FlopCounterMode(display=False, custom_mapping=added)


@pytest.mark.parametrize("name", ALL)
def test_no_grad_runs_forward_only(name):  # sentence-transformers 2667
    z0, z1 = views()
    with torch.no_grad(), counting() as forward:
        value = ALL[name](z0, z1)
    assert not value.requires_grad
    with counting() as both:
        again = ALL[name](z0, z1)
        again.backward()
    torch.testing.assert_close(value, again.detach())
    assert 0 < forward.get_total_flops() <= both.get_total_flops() * (1 / 2 if name in PLAIN else 4 / 5)


class Encoder(torch.nn.Module):
    """What sentence-transformers calls a model: a column of inputs to its embeddings."""

    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(6, 4)

    def forward(self, column):
        return {"sentence_embedding": self.linear(column["x"])}


@pytest.mark.parametrize("part", [1, 5, 12])
def test_encoding_in_parts_changes_nothing(part):  # sentence-transformers 2932, 3854, 3862
    columns = [{"x": x.detach()} for x in (*views(), views(seed=1)[0])]
    torch.manual_seed(0)
    model = Encoder().double()
    columns = [{"x": column["x"].double()} for column in columns]

    def both(size):  # two losses on one model, one backward pass
        options = {"mini_batch_size": size}
        value = st.InfoNCELoss(model, **options)(columns) + st.WEINCELoss(model, gate=OPEN, **options)(columns)
        return value.detach(), torch.autograd.grad(value, tuple(model.parameters()))

    torch.testing.assert_close(both(part), both(None), rtol=1e-9, atol=1e-12)


@pytest.mark.medium
@pytest.mark.parametrize("name", ALL)
def test_modules_compile_without_a_graph_break(name):  # contrastors 83, 84
    z0, z1 = views()
    compiled = torch.compile(ALL[name], fullgraph=True, backend="eager")
    torch.testing.assert_close(compiled(z0, z1), ALL[name](z0, z1))


@OF_ONE
def test_one_query_with_no_negative_in_the_adaptive_loss():  # the released code: IndexError
    for n in (1, 2, 3):
        finite(WEINCELoss.released(), *views(n))
        finite(WEINCELoss.paper(), *views(n))


PEAK = """
import resource
import torch
from latentlink.losses import InfoNCELoss, NTXentLoss, SymmetricInfoNCELoss, WEINCELoss

torch.set_num_threads(1)
z0, z1 = torch.randn(2, 4000, 8, requires_grad=True)
for loss in (InfoNCELoss(), SymmetricInfoNCELoss(), NTXentLoss(), WEINCELoss(), WEINCELoss(pivot=0.9, margin=-5)):
    loss(z0[:300], z1[:300]).backward()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    loss(z0, z1).backward()
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


@pytest.mark.medium
def test_peak_memory_of_forward_and_backward():  # open_clip 1145, 1214
    done = subprocess.run([sys.executable, "-c", PEAK], capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    matrix = 4000 * 4000 * 4 / 1024  # KiB of queries by candidates in one direction; NT-Xent has four of them
    peaks = [int(line) for line in done.stdout.split()]
    assert len(peaks) == 5
    assert max(peaks[:2]) < matrix, peaks
    assert max(peaks[2:]) < 2 * matrix, peaks


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("tau", [0.01, 0.1, 10.0])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float64])
def test_sweep_is_finite(name, tau, dtype):  # lightly 1633
    make = {
        "nt_xent": NTXentLoss,
        "one_way": InfoNCELoss,
        "symmetric": SymmetricInfoNCELoss,
        "weince": lambda tau: WEINCELoss(tau, gate=OPEN),
        "released": WEINCELoss.released,
    }[name]
    base = torch.randn(40, 6, generator=torch.Generator().manual_seed(0))
    batches = {
        "views": (base, base + 0.1),
        "equal views": (base, base),
        "opposite views": (base, -base),
        "collapsed": (torch.ones(40, 6), torch.ones(40, 6)),
        "near duplicates": (base[:1] + 1e-3 * base, base[:1] + 1e-3 * base.flip(0)),
        "exact duplicates": (base[:4].repeat(10, 1), base[:4].repeat(10, 1)),
        "batch of two": (base[:2], base[2:4]),
        "width one": (base[:, :1], base[:, 1:2]),
        "large": (1e3 * base, 1e3 * base),
        "small": (0.1 * base, 0.1 * base.flip(0)),
    }
    for z0, z1 in batches.values():
        finite(make(tau), z0.to(dtype).requires_grad_(), z1.to(dtype).requires_grad_())


def test_float32_shortfalls_do_not_cancel():
    """Near duplicates, shortfalls of 1e-6: 1 − s in float32 is off by a third, half a squared distance is not."""
    base = torch.randn(1, 16, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    noise = torch.randn(2, 200, 16, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    z0, z1 = base + 1e-3 * noise
    exact = WEINCELoss(0.5, gate=OPEN, reduction="none")(z0, z1)
    single = WEINCELoss(0.5, gate=OPEN, reduction="none")(z0.float(), z1.float())
    np.testing.assert_allclose(single, exact, rtol=1e-4)
