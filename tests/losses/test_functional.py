"""The dense functions against plain definitions, and the meaning of each option."""

import re

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tests.slow import info_nce_slow, nt_xent_slow

from latentlink import InvalidInput, InvalidType
from latentlink.losses.functional import info_nce, nt_xent, symmetric_info_nce, weince
from latentlink.tails.online import Gate

OPEN = Gate(pivot=0.5, margin=-5.0)  # acts on any data


def views(n, d, seed=0, dtype=torch.float64):
    g = torch.Generator().manual_seed(seed)
    z0 = torch.randn(n, d, generator=g, dtype=dtype)
    return z0, z0 + 0.5 * torch.randn(n, d, generator=g, dtype=dtype)


@given(n=st.integers(1, 9), d=st.integers(1, 6), tau=st.floats(0.05, 2), seed=st.integers(0, 99))
def test_equal_the_definitions(n, d, tau, seed):
    a, b = views(n, d, seed)
    close = {"rtol": 1e-9, "atol": 1e-12}
    np.testing.assert_allclose(nt_xent(a, b, temperature=tau), nt_xent_slow(a.numpy(), b.numpy(), tau), **close)
    there, back = info_nce_slow(a.numpy(), b.numpy(), tau), info_nce_slow(b.numpy(), a.numpy(), tau)
    np.testing.assert_allclose(info_nce(a, b, temperature=tau), there, **close)
    np.testing.assert_allclose(
        symmetric_info_nce(a, b, temperature=tau), np.concatenate([there, back]), **close
    )


@pytest.mark.parametrize("function", [nt_xent, info_nce, symmetric_info_nce])
@pytest.mark.parametrize("denominator", ["own", "all", "none"])
@pytest.mark.parametrize("tau", [0.01, 0.5])
def test_gradients(function, denominator, tau):
    a, b = (x.requires_grad_() for x in views(4, 3))
    t = torch.tensor(tau, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(
        lambda a, b, t: function(a, b, temperature=t, denominator=denominator), (a, b, t), eps=1e-7, atol=1e-4
    )


@pytest.mark.parametrize("layout", ["nt_xent", "one_way", "symmetric"])
def test_gradients_of_weince_with_statistics_held_constant(layout):
    a, b = (x.requires_grad_() for x in views(24, 5))
    from latentlink.losses import WEINCELoss

    held = WEINCELoss(layout=layout, gate=OPEN).statistics(a, b)
    assert held.share_blended > 0.5
    assert torch.autograd.gradcheck(
        lambda a, b: weince(a, b, layout=layout, gate=OPEN, statistics=held)[:6], (a, b), atol=1e-5
    )


def test_gradients_at_both_ends_and_with_one_negative():
    a = torch.tensor([[1.0, 0.0], [-1.0, 0.0]], dtype=torch.float64, requires_grad=True)  # s = 1 and s = −1
    assert torch.autograd.gradcheck(lambda a: info_nce(a, a.detach(), temperature=0.3), (a,))
    assert torch.autograd.gradcheck(lambda a: nt_xent(a, a.detach(), temperature=0.3), (a,))


@pytest.mark.parametrize("layout", ["nt_xent", "one_way", "symmetric"])
def test_blend_0_is_infonce_to_the_last_bit(layout):
    a, b = views(40, 8, dtype=torch.float32)
    plain = {"nt_xent": nt_xent, "one_way": info_nce, "symmetric": symmetric_info_nce}[layout]
    assert torch.equal(
        weince(a, b, layout=layout, temperature=0.2, gate=Gate(pivot=1e-9)), plain(a, b, temperature=0.2)
    )


def test_labels_and_same_take_duplicates_out_of_the_negatives():
    a, b = views(6, 4)
    labels = torch.tensor([0, 1, 2, 0, 3, 4])
    kept = torch.tensor([0, 1, 2, 4, 5])
    by_labels = symmetric_info_nce(a, b, labels=labels)
    np.testing.assert_allclose(by_labels[0], symmetric_info_nce(a[kept], b[kept])[0])  # item 3 is not there
    assert torch.equal(by_labels, symmetric_info_nce(a, b, same=labels[:, None] == labels[None, :]))
    assert torch.equal(nt_xent(a, b, labels=labels), nt_xent(a, b, same=labels[:, None] == labels))
    far = torch.tensor([2**53 + 1, 2**53, 1, 2, 3, 4])  # one number in float64
    assert torch.equal(info_nce(a, b, labels=far), info_nce(a, b))


def test_negatives_shared_own_and_beside_the_batch():
    q, p = views(5, 4)
    shared = views(7, 4, seed=1)[0]
    own = shared.expand(5, 7, 4)
    alone = info_nce(q, p, shared)
    np.testing.assert_allclose(alone, info_nce(q, p, own))
    unit = torch.nn.functional.normalize
    s = torch.cat([(unit(q) * unit(p)).sum(1, keepdim=True), unit(q) @ unit(shared).T], dim=1) / 0.1
    np.testing.assert_allclose(alone, s.logsumexp(1) - s[:, 0])
    both = info_nce(q, p, shared, in_batch=True)
    np.testing.assert_allclose(both, info_nce(q, torch.cat([p, shared])[:5], shared, in_batch=True))
    assert (both > alone).all()
    masked = info_nce(
        q, p, shared, labels=torch.arange(5), negative_labels=torch.tensor([0] * 7), in_batch=True
    )
    np.testing.assert_allclose(masked[0], info_nce(q, p)[0])
    np.testing.assert_allclose(masked[1:], both[1:])


def test_several_positives_and_the_three_denominators():
    q, p = views(4, 3)
    two = torch.stack([p, p.roll(1, 1)], dim=1)  # (n, 2, d)
    negatives = views(6, 3, seed=2)[0]
    unit = torch.nn.functional.normalize
    pos = (unit(q)[:, None] * unit(two, dim=2)).sum(2) / 0.1
    neg = (unit(q) @ unit(negatives).T / 0.1).logsumexp(1, keepdim=True)
    own = (torch.logaddexp(neg, pos) - pos).mean(1)
    every = (torch.cat([pos, neg], 1).logsumexp(1, keepdim=True) - pos).mean(1)
    np.testing.assert_allclose(info_nce(q, two, negatives), own)
    np.testing.assert_allclose(info_nce(q, two, negatives, denominator="all"), every)
    np.testing.assert_allclose(info_nce(q, two, negatives, denominator="none"), (neg - pos).mean(1))
    assert info_nce(q, two).shape == (4,)


def test_weights_multiply():
    a, b = views(3, 4)
    w = torch.tensor([0.0, 1.0, 2.0], dtype=torch.float64)
    assert torch.equal(info_nce(a, b, weights=w), w * info_nce(a, b))


@pytest.mark.parametrize("name", ["nt_xent", "info_nce", "symmetric_info_nce", "weince"])
@pytest.mark.medium
def test_compile_without_a_graph_break(name):
    function = {
        "nt_xent": nt_xent,
        "info_nce": info_nce,
        "symmetric_info_nce": symmetric_info_nce,
        "weince": weince,
    }[name]
    a, b = (x.requires_grad_() for x in views(32, 8, dtype=torch.float32))
    compiled = torch.compile(
        lambda a, b: function(a, b, temperature=0.3).mean(), fullgraph=True, backend="aot_eager"
    )
    torch.testing.assert_close(compiled(a, b), function(a, b, temperature=0.3).mean())
    (there,) = torch.autograd.grad(compiled(a, b), a)
    (here,) = torch.autograd.grad(function(a, b, temperature=0.3).mean(), a)
    torch.testing.assert_close(there, here)


ERRORS = [
    (lambda a, b: nt_xent(a, b, temperature=-0.1), InvalidInput, "temperature is -0.1; needs a number > 0."),
    (lambda a, b: nt_xent(a, b[:2]), InvalidInput, "z0 and z1 differ in rows: 3 and 2."),
    (
        lambda a, b: info_nce(a[0], b),
        InvalidInput,
        "queries has shape (4,); needs (n, d). One vector? Use queries[None].",
    ),
    (
        lambda a, b: info_nce(a.numpy(), b),
        InvalidType,
        "queries is ndarray; needs a torch tensor. Use torch.as_tensor(queries).",
    ),
    (
        lambda a, b: symmetric_info_nce(a, b * float("nan")),
        InvalidInput,
        "rows 0, 1, 2 of b hold NaN; drop or mend them.",
    ),
    (
        lambda a, b: nt_xent(a, b, same=torch.ones(3, 3)),
        InvalidType,
        "same is a tensor of torch.float32; needs booleans. Use .bool().",
    ),
    (
        lambda a, b: nt_xent(a, b, same=torch.ones(2, 3).bool()),
        InvalidInput,
        "same has shape (2, 3); needs (3, 3) or (6, 6).",
    ),
    (lambda a, b: nt_xent(a, b, labels=torch.ones(2)), InvalidInput, "labels has shape (2,); needs (3,)."),
    (
        lambda a, b: info_nce(a, b, denominator="some"),
        InvalidInput,
        "denominator is 'some'; needs one of 'own', 'all', 'none'.",
    ),
    (
        lambda a, b: info_nce(a, b, weights=torch.ones(2)),
        InvalidInput,
        "weights has shape (2,); needs (3,), one value for each query.",
    ),
    (lambda a, b: info_nce(a, b, a[:, :2]), InvalidInput, "negatives has 2 columns; needs 4."),
    (
        lambda a, b: weince(a, b, a),
        InvalidInput,
        "negatives are given with layout 'nt_xent'; needs layout=\"one_way\".",
    ),
    (lambda a, b: weince(3 * a, 3 * b, normalize=False), InvalidInput, None),
]


@pytest.mark.parametrize("case", range(len(ERRORS)))
def test_errors(case):
    call, kind, text = ERRORS[case]
    a, b = views(3, 4)
    with pytest.raises(kind, match=None if text is None else f"^{re.escape(text)}$"):
        call(a, b)
