"""Contrasts of an encoder's law: brute force over all signs, refits without each row, and what cannot be seen."""

import itertools
import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import load_file, save_file

from latentlink import RelativeSpace, Whitener, load_space
from latentlink._files import sha256
from latentlink.spaces import doctor
from latentlink.spaces.contrast import contrasts, left_out, limits, signature


def energy(x, mean, whitening):
    return np.sum(((x - mean) @ whitening) ** 2, axis=-1)


def test_contrasts_are_those_of_all_signs(rng):
    x, mean, whitening = rng.normal(size=(7, 5)) + 1, rng.normal(size=5), rng.normal(size=(5, 5))
    signs = np.array(list(itertools.product([-1, 1], repeat=5)))  # (32, 5)
    own = energy(x, mean, whitening)
    found = contrasts(x, mean, whitening)
    np.testing.assert_allclose(found[:, 0], np.log(own / energy(-x, mean, whitening)), rtol=1e-12)
    altered = energy(x[:, None, :] * signs, mean, whitening).mean(axis=1)
    np.testing.assert_allclose(found[:, 1], np.log(own / altered), rtol=1e-12)


@pytest.mark.parametrize(("shrinkage", "tolerance"), [(0.0, 1e-9), (0.3, 0.1)])
@pytest.mark.parametrize("n", [42, 80])
def test_left_out_is_a_fit_without_the_row(rng, shrinkage, tolerance, n):
    x = rng.normal(size=(n, 8)) @ rng.normal(size=(8, 8)) + 2
    whole = Whitener(shrinkage=shrinkage).fit(x)
    energies, found = left_out(x, whole.mean_, whole.matrix_, n_rows=n, shrinkage=shrinkage)
    for i in range(n):
        rest = Whitener(shrinkage=shrinkage).fit(np.delete(x, i, axis=0))
        expected = contrasts(x[i : i + 1], rest.mean_, rest.matrix_)[0]
        np.testing.assert_allclose(found[i], expected, atol=tolerance)
        # The covariance of n - 1 rows is divided by n - 2: a factor up to (n - 1) / (n - 2) is left.
        alone = energy(x[i], rest.mean_, rest.matrix_) / 8
        assert abs(energies[i] / alone - 1) < 1.5 / (n - 2) + tolerance


def test_left_out_holds_with_fewer_rows_than_columns(rng):
    law = rng.normal(size=(40, 40)) / 6
    x, fresh = (rng.normal(size=(m, 40)) @ law + 0.3 for m in (30, 4000))
    fitted = Whitener().fit(x)
    _, found = left_out(x, fitted.mean_, fitted.matrix_, n_rows=30, shrinkage=fitted.shrinkage_)
    truth = contrasts(fresh, fitted.mean_, fitted.matrix_)
    naive = contrasts(x, fitted.mean_, fitted.matrix_)
    for column in (0, 1):
        error = abs(found[:, column].mean() - truth[:, column].mean())
        assert error < 4 * truth[:, column].std() / np.sqrt(30)
        assert error < 0.5 * abs(naive[:, column].mean() - truth[:, column].mean())


@given(st.lists(st.floats(0.01, 100), min_size=4, max_size=4))
def test_units_of_the_columns_do_not_matter(units):
    rng = np.random.default_rng(0)
    x, mean, whitening = rng.normal(size=(6, 4)), rng.normal(size=4), rng.normal(size=(4, 4))
    u = np.array(units)
    moved = contrasts(x * u, mean * u, whitening / u[:, None])
    np.testing.assert_allclose(moved, contrasts(x, mean, whitening), atol=1e-9)


def test_the_limit_stands_between_home_and_altered_copies():
    at_most, telling = limits(np.array([[-1.0, 0.8], [-2.0, 0.8], [-0.1, 0.4], [-0.2, 0.4]]), 16)
    assert telling.all()
    assert at_most[0] == 0
    lowest, highest = -0.2 - 2.5 * 0.1, -2.0 + 3 * 0.2
    assert at_most[1] == pytest.approx(lowest + 0.1 * (highest - lowest))
    blind, telling = limits(np.array([[0.0, 0.8], [-0.1, 0.8], [0.0, 0.4], [0.0, 0.4]]), 16)
    assert not telling.any()
    np.testing.assert_allclose(blind, [0.6, 0.5])


def test_a_signature_knows_its_altered_copies(rng):
    x = rng.normal(size=(300, 30)) @ rng.normal(size=(30, 30)) + 2
    fitted = Whitener(shrinkage=0).fit(x)
    found = contrasts(x, fitted.mean_, fitted.matrix_)
    kept = signature(x, found, fitted.mean_, fitted.matrix_)
    np.testing.assert_allclose(kept[:2], np.stack([found.mean(axis=0), found.std(axis=0)], axis=1))
    draws = [
        contrasts(x * rng.choice([-1, 1], 30), fitted.mean_, fitted.matrix_)[:, 1].mean() for _ in range(64)
    ]
    assert kept[2, 0] == pytest.approx(min(draws), abs=3 * np.std(draws))
    assert kept[1, 0] < kept[2, 0]


def test_what_a_symmetric_law_cannot_show_is_said_and_not_refused():
    rng = np.random.default_rng(1)
    sets = {name: rng.normal(size=(2000, 10)) for name in "ab"}
    space = RelativeSpace(5).fit({name: x[:1000] for name, x in sets.items()})
    verdicts = []
    for _ in range(200):
        batch = sets["a"][1000 + rng.choice(1000, 32, replace=False)]
        found = doctor(space, batch, source="a")
        assert found.blind == ("negated", "altered")
        verdicts.append(found.verdict)
    assert np.mean(np.array(verdicts) != "same") <= 0.01


def test_a_space_saved_without_signatures_makes_them_of_its_probes(rng, tmp_path):
    shared = rng.normal(size=(600, 6))
    views = {name: shared @ rng.normal(size=(6, 9)) + 1 for name in "ab"}
    space = RelativeSpace(5).fit({name: x[:500] for name, x in views.items()})
    space.save(tmp_path / "space")
    arrays = tmp_path / "space" / "space.safetensors"
    tensors = {name: x for name, x in load_file(arrays).items() if not name.endswith("signature")}
    save_file(tensors, arrays)
    record = json.loads((tmp_path / "space" / "space.json").read_text())
    record["files"][arrays.name] = sha256(arrays)
    (tmp_path / "space" / "space.json").write_text(json.dumps(record))
    old = load_space(tmp_path / "space")
    new, remade = (s.encoders_["a"].profile.signature for s in (space, old))
    np.testing.assert_allclose(remade[:2, 0], new[:2, 0], atol=0.5)
    batch = views["a"][500:]
    assert doctor(old, batch, source="a").verdict == "same"
    assert doctor(old, -batch, source="a").verdict == "sign-flipped"
    assert doctor(old, batch[:, rng.permutation(9)], source="a").verdict == "other"
