"""Losses by labels: the walk equals a double loop, the dense form and the peer, in memory of the rows."""

import subprocess
import sys

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from latentlink.integrations.metric_learning import InfoNCELoss
from latentlink.losses import functional
from latentlink.losses._choices import labelled_choice
from latentlink.losses._labelled import labelled_loss

DENOMINATORS = ["own", "all"]


def slow(x, labels, tau, denominator, ref=None, ref_labels=None):
    """The definition, pair by pair: the mean over pairs of a row and a positive, or over rows of that mean."""
    alone = ref is None
    y, others = (x, labels) if alone else (ref, ref_labels)
    x, y = (z / np.linalg.norm(z, axis=1, keepdims=True) for z in (x, y))
    terms, rows = [], []
    for i in range(len(x)):
        logits = y @ x[i] / tau
        positives = [j for j in range(len(y)) if labels[i] == others[j] and not (alone and i == j)]
        negatives = [j for j in range(len(y)) if labels[i] != others[j]]
        every = [logits[j] for j in negatives + positives]
        own = [
            np.log(sum(np.exp(logits[k] - logits[j]) for k in negatives) + 1)
            if denominator == "own"
            else np.log(np.sum(np.exp(every))) - logits[j]
            for j in positives
        ]
        terms += own
        rows += [np.mean(own)] if own else []
    values = terms if denominator == "own" else rows
    return np.mean(values) if values else 0.0


def dense(x, labels, ref, ref_labels, tau, denominator, *, normalize):
    choice = labelled_choice(x, labels, None, ref, ref_labels, normalize)
    each = functional.choice_losses(choice.similarities / tau, choice, denominator)
    count = choice.positive.sum(dim=1)
    share = count if denominator == "own" else (count > 0).int()
    return (each * share).sum() / share.sum().clamp(min=1)


def batch(n, m, classes, seed, dtype=torch.float64):
    g = torch.Generator().manual_seed(seed)
    x, y = torch.randn(n, 6, generator=g, dtype=dtype), torch.randn(m, 6, generator=g, dtype=dtype)
    labels = torch.randint(0, classes, (n + m,), generator=g)
    return x, y, labels[:n], labels[n:]


@pytest.mark.parametrize("denominator", DENOMINATORS)
@given(n=st.integers(2, 9), m=st.integers(1, 7), classes=st.integers(1, 6), seed=st.integers(0, 99))
def test_equal_the_definition(denominator, n, m, classes, seed):
    x, y, labels, ref_labels = batch(n, m, classes, seed)
    found = labelled_loss(x, labels, None, None, 0.2, denominator, normalize=True)
    wanted = slow(x.numpy(), labels, 0.2, denominator)
    np.testing.assert_allclose(found, wanted, rtol=1e-9, atol=1e-12)
    found = labelled_loss(x, labels, y, ref_labels, 0.2, denominator, normalize=True)
    wanted = slow(x.numpy(), labels, 0.2, denominator, y.numpy(), ref_labels)
    np.testing.assert_allclose(found, wanted, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("denominator", DENOMINATORS)
@pytest.mark.parametrize("referenced", [False, True])
@pytest.mark.parametrize("normalize", [False, True])
@pytest.mark.parametrize("classes", [1, 10, 400])
def test_equal_the_dense_form(denominator, referenced, normalize, classes):
    """Several tiles, the last uneven; loss and gradients of rows, references and temperature."""
    x, y, labels, ref_labels = batch(700, 600, classes, 0)
    for tau in (0.5, 0.05, 0.01):
        found = []
        for function in (labelled_loss, dense):
            a, b = x.clone().requires_grad_(), y.clone().requires_grad_()
            t = torch.tensor(tau, dtype=torch.float64, requires_grad=True)
            extra = (b, ref_labels) if referenced else (None, None)
            value = function(a, labels, *extra, t, denominator, normalize=normalize)
            inputs = (a, b, t) if referenced else (a, t)
            found.append((value.detach(), *torch.autograd.grad(value, inputs, materialize_grads=True)))
        for mine, other in zip(*found, strict=True):
            size = max(1e-12, float(other.abs().max()))
            np.testing.assert_allclose(mine / size, other / size, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("denominator", DENOMINATORS)
def test_float32_against_float64(denominator):
    x, _, labels, _ = batch(700, 1, 30, 1)
    exact = labelled_loss(x, labels, None, None, 0.1, denominator, normalize=True)
    single = labelled_loss(x.float(), labels, None, None, 0.1, denominator, normalize=True)
    assert single.dtype == torch.float32
    np.testing.assert_allclose(single, exact, rtol=2e-6)
    half = labelled_loss(x.bfloat16(), labels, None, None, 0.1, denominator, normalize=True)
    again = labelled_loss(x.bfloat16().double(), labels, None, None, 0.1, denominator, normalize=True)
    np.testing.assert_allclose(half, again, rtol=2e-6)


def test_a_reference_may_be_the_rows_once_more():
    """Then each row meets itself; no identity of tensors or labels says otherwise."""
    x, _, labels, _ = batch(30, 1, 5, 0)
    for normalize in (True, False):
        loss = InfoNCELoss(0.5, normalize=normalize)
        same = loss(x, labels, ref_emb=x, ref_labels=labels)
        assert torch.equal(same, loss(x, labels, ref_emb=x.clone(), ref_labels=labels.clone()))
        assert float(same) != pytest.approx(float(loss(x, labels)), rel=1e-3)


def test_labels_of_any_type():
    x, _, labels, _ = batch(40, 1, 6, 0)
    loss = InfoNCELoss(0.2)
    wanted = loss(x, labels)
    for other in (labels[:, None], labels.double(), labels.to(torch.uint8), -labels, labels + 2**60):
        torch.testing.assert_close(loss(x, other), wanted)
    torch.testing.assert_close(loss(x, labels > 2), loss(x, (labels > 2).int()))


def test_no_rows():
    x, y, labels, ref_labels = batch(4, 3, 2, 0)
    z = x[:0].requires_grad_()
    for extra in ((None, None), (y, ref_labels)):
        value = labelled_loss(z, labels[:0], *extra, 0.1, "own", normalize=True)
        assert float(value.detach()) == 0
        (gradient,) = torch.autograd.grad(value, z)
        assert gradient.shape == (0, 6)
    assert float(labelled_loss(x, labels, y[:0], ref_labels[:0], 0.1, "all", normalize=True)) == 0


PEAK = """
import resource
import torch
from latentlink.integrations.metric_learning import InfoNCELoss

torch.set_num_threads(1)
n = 6000
for denominator in (False, True):
    loss = InfoNCELoss(0.1, positives_in_denominator=denominator)
    x = torch.randn(n, 8, requires_grad=True)
    loss(x[:300], torch.arange(300) % 9).backward()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for classes in (1, 10, n // 2, n):
        loss(x, torch.arange(n) % classes).backward()
    loss(x[:900], torch.arange(900), ref_emb=x, ref_labels=torch.arange(n) % 900).backward()  # a queue
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


@pytest.mark.medium
def test_memory_is_that_of_rows_and_tiles():
    """The peak over forward and backward, of one class, ten, pairs, and none of equal label."""
    done = subprocess.run([sys.executable, "-c", PEAK], capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    matrix = 6000 * 6000 * 4 / 1024  # KiB of one matrix of all pairs; the dense form holds several
    assert max(int(line) for line in done.stdout.split()) < matrix / 4, done.stdout


@pytest.mark.peers
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("n", "classes"), [(300, 10), (300, 150), (40, 4)])
def test_pytorch_metric_learning(n, classes):
    """Their NTXentLoss makes a matrix of all positive pairs by all negative pairs: 40 rows are its size."""
    from pytorch_metric_learning.losses import NTXentLoss, SupConLoss

    x, y, labels, ref_labels = batch(n, n - 7, classes, 0)
    peers = [(SupConLoss(0.1), InfoNCELoss(0.1, positives_in_denominator=True))]
    peers += [(NTXentLoss(0.1), InfoNCELoss(0.1))] if n <= 40 else []
    for theirs, ours in peers:
        for extra in ({}, {"ref_emb": y, "ref_labels": ref_labels}):
            found = []
            for loss in (ours, theirs):
                a = x.clone().requires_grad_()
                value = loss(a, labels, **extra)
                found.append((value.detach(), torch.autograd.grad(value, a)[0]))
            for mine, other in zip(*found, strict=True):
                np.testing.assert_allclose(mine, other, rtol=1e-6, atol=1e-9)
