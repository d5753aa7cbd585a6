"""The authors' numbers: tests/oracles/weince_oracle.json, float64, from the released loss at commit 49485f3."""

import dataclasses
import json

import numpy as np
import pytest
import torch
from tests.released_loss import CASES, tolerance, views

from latentlink.losses import NTXentLoss, WEINCELoss

ALT = {"margin": 6.0, "gap_sharpness": 20.0, "evidence_sharpness": 0.5}
LOSSES = {
    "pl": lambda tau: NTXentLoss(tau, reduction="none"),
    "tl": lambda tau: WEINCELoss.released(tau, reduction="none"),
    "tl_alt": lambda tau: WEINCELoss.released(tau, reduction="none", **ALT),
    "tl_rho": lambda tau: WEINCELoss.released(tau, reduction="none", evidence="gap"),
    "paper_beta": lambda tau: WEINCELoss.paper(tau, reduction="none"),
}


@pytest.fixture(scope="module")
def oracle(oracles):
    return json.loads((oracles / "weince_oracle.json").read_text())


@pytest.mark.parametrize("tau", [0.5, 0.1])
@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("case", CASES)
def test_loss_and_gradient(oracle, case, name, tau):
    expected = oracle[case]["loss"][f"tau={tau}"][name]
    z0, z1 = views(oracle, case)
    each = LOSSES[name](tau)(z0, z1)
    each.mean().backward()
    gradient = torch.cat([z0.grad, z1.grad])
    close = {"rel": tolerance(case), "abs": 0.0}
    each = each.detach()
    assert float(each.mean()) == pytest.approx(expected["loss"], **close)
    assert float(gradient.norm()) == pytest.approx(expected["grad_norm"], **close)
    if "per_anchor" in expected:
        np.testing.assert_allclose(each, expected["per_anchor"], rtol=tolerance(case), atol=tolerance(case))
    if "grad" in expected:
        np.testing.assert_allclose(gradient.ravel(), expected["grad"], rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("case", CASES)
def test_statistics(oracle, case):
    expected = oracle[case]["stats"]
    z0, z1 = views(oracle, case)
    loss = WEINCELoss.paper()
    unclipped = loss.statistics(z0, z1)
    alt = WEINCELoss.released(**ALT).statistics(z0, z1)
    rtol = 2e-4 if case in ("neardup_N32_d8", "exactdup_N16_d8") else 1e-9
    assert float(unclipped.pivot) == pytest.approx(expected["rho0"], rel=rtol)
    if case == "trig_N256_d64":
        mine = {"rho": unclipped.gap, "dAIC": unclipped.evidence, "lambda": unclipped.blend}
        mine["lambda_alt"] = alt.blend
        for key, value in mine.items():
            summary = expected["summary"][key]
            np.testing.assert_allclose(value[:8], summary["first8"], rtol=1e-9)
            assert float(value.mean()) == pytest.approx(summary["mean"], rel=1e-9)
        return
    np.testing.assert_allclose(unclipped.gap, expected["rho"], rtol=rtol)
    np.testing.assert_allclose(unclipped.beta, np.clip(expected["beta_hat"], 0.5, 16), rtol=rtol)
    np.testing.assert_allclose(unclipped.evidence, expected["dAIC"], rtol=rtol, atol=1e-8)
    np.testing.assert_allclose(unclipped.blend, expected["lambda"], rtol=rtol, atol=1e-9)
    np.testing.assert_allclose(alt.blend, expected["lambda_alt"], rtol=rtol, atol=1e-9)
    assert dataclasses.fields(unclipped)[0].name == "gap"
