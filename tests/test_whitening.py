import warnings

import numpy as np
import pytest

from latentlink import InvalidInput, Whitener
from latentlink.moments import collect


def correlated(rng, n, d, offset=0.0):
    return rng.normal(size=(n, d)) @ rng.normal(size=(d, d)) + offset


def test_whitened_data_have_unit_covariance(rng):
    z = Whitener(shrinkage=0).fit(x := correlated(rng, 400, 6, 5.0)).transform(x)
    assert np.allclose(np.cov(z, rowvar=False), np.eye(6), atol=1e-10)
    assert np.allclose(z.mean(axis=0), 0, atol=1e-10)


def test_similarity_is_the_inverse_covariance_form(rng):
    x = correlated(rng, 300, 4)
    whitener = Whitener(shrinkage=0).fit(x)
    centred = x - x.mean(axis=0)
    expected = centred[:5] @ np.linalg.inv(np.cov(x, rowvar=False)) @ centred[5:8].T
    assert np.allclose(whitener.similarity(x[:5], x[5:8]), expected, rtol=1e-9)


def test_affine_invariance_is_exact_without_shrinkage(rng):
    x = correlated(rng, 500, 8, 3.0)
    assert Whitener(shrinkage=0).invariance_error(x) < 1e-9
    assert Whitener(shrinkage=0.3).invariance_error(x) > 0.01


def test_a_tall_map_changes_nothing(rng):
    x = rng.normal(size=(500, 5))
    tall = x @ rng.normal(size=(5, 9)) + 1.0
    a, b = Whitener(shrinkage=0).fit(x), Whitener(shrinkage=0).fit(tall)
    assert np.allclose(a.similarity(x[:9], x[:9]), b.similarity(tall[:9], tall[:9]), atol=1e-9)


@pytest.mark.parametrize("amount", ["auto", 0.2])
def test_units_of_columns_never_matter(rng, amount):
    x = correlated(rng, 300, 5)
    moved = x * [1e-6, 1.0, 1e6, 3.0, 1e-3]
    kernels = [Whitener(shrinkage=amount).fit(y).similarity(y[:9], y[:9]) for y in (x, moved)]
    assert np.allclose(*kernels, rtol=1e-8)


@pytest.mark.parametrize("n", [60, 128])
def test_few_rows_stay_usable_by_automatic_shrinkage(rng, n):
    x = rng.normal(size=(n, 128))
    whitener = Whitener().fit(x)
    assert whitener.shrinkage_ > 0.3
    assert np.isfinite(whitener.transform(x)).all()
    assert whitener.condition_number_ < 100


def test_too_few_rows_without_shrinkage_are_refused(rng):
    with pytest.raises(InvalidInput) as error:
        Whitener(shrinkage=0).fit(rng.normal(size=(15, 8)))
    assert str(error.value) == (
        "shrinkage is 0 with 15 rows of 8 columns; unregularised whitening needs at least 16 rows. "
        'Add rows or pass shrinkage="auto".'
    )


def test_few_rows_with_little_shrinkage_warn(rng):
    x = rng.normal(size=(30, 8))
    with pytest.warns(UserWarning, match="unstable below 5 rows a column"):
        Whitener(shrinkage=0.01).fit(x)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Whitener().fit(x)


def test_constant_columns_get_no_weight(rng):
    x = rng.normal(size=(100, 3))
    with_constant = np.column_stack([x, np.full(100, 7.0)])
    whitener = Whitener(shrinkage=0).fit(with_constant)
    assert not whitener.matrix_[3].any()
    plain = Whitener(shrinkage=0).fit(x).similarity(x[:4], x[:4])
    assert np.allclose(whitener.similarity(with_constant[:4], with_constant[:4]), plain)


def test_nan_is_named(rng):
    x = rng.normal(size=(20, 2))
    x[4, 1] = np.nan
    with pytest.raises(InvalidInput, match="row 4 of embeddings holds NaN; drop or mend it"):
        Whitener().fit(x)


def test_half_precision_input_is_cast_up_first(rng):
    x = (rng.normal(size=(400, 16)) + 1).astype(np.float16)
    full = Whitener(shrinkage=0).fit(x.astype(np.float64))
    assert np.allclose(Whitener(shrinkage=0).fit(x).matrix_, full.matrix_)


def test_a_far_mean_costs_no_precision_in_float32(rng):
    x = rng.normal(size=(400, 8)) + 300.0
    whitener = Whitener(shrinkage=0).fit(x)
    single = x[:20].astype(np.float32)
    assert np.abs(whitener.transform(single) - whitener.transform(x[:20])).max() < 1e-3


def test_moments_give_the_same_whitening(rng):
    x = correlated(rng, 800, 6, 2.0)
    direct, merged = Whitener(shrinkage=0.1).fit(x), Whitener(shrinkage=0.1).fit_moments(collect("a", [x]))
    assert np.allclose(direct.matrix_, merged.matrix_, rtol=1e-8)
    assert 0 < Whitener().fit_moments(collect("a", [x])).shrinkage_ < 0.05
    few = Whitener().fit_moments(collect("a", [rng.normal(size=(20, 30))]))
    assert few.shrinkage_ > 0.5


def test_an_unfitted_whitener_says_so(rng):
    with pytest.raises(InvalidInput, match=r"this Whitener is not fitted; call fit\(embeddings\) first."):
        Whitener().transform(rng.normal(size=(2, 2)))
