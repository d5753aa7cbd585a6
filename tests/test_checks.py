import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from latentlink import _checks
from latentlink._checks import InvalidInput, InvalidType


def message(function, *args, **kwargs):
    with pytest.raises((InvalidInput, InvalidType)) as caught:
        function(*args, **kwargs)
    return str(caught.value)


NAN = np.ones((6, 2))
NAN[[1, 3, 4, 5], 0] = np.nan
INF = np.ones((2, 2))
INF[1, 1] = np.inf


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (np.ones(512), "queries has shape (512,); needs (n, d). One vector? Use queries[None]."),
        (np.ones((2, 2, 2)), "queries has shape (2, 2, 2); needs (n, d)."),
        (np.ones((0, 2)), "queries has 0 rows; needs at least 1."),
        (np.ones((2, 0)), "queries has shape (2, 0); needs at least one column."),
        (NAN, "rows 1, 3, 4 and 1 more of queries hold NaN; drop or mend them."),
        (INF, "row 1 of queries holds infinity; drop or mend it."),
        ([[1.0], [1.0, 2.0]], "queries is not a rectangular array; needs rows of equal length."),
        (np.array([["a"]]), "queries has type <U1; needs real numbers."),
        (np.ones((2, 2), dtype=complex), "queries has type complex128; needs real numbers."),
    ],
)
def test_matrix_says_what_is_wrong(value, text):
    assert message(_checks.matrix, "queries", value) == text


def test_matrix_columns_and_rows():
    assert message(_checks.matrix, "x", np.ones((2, 3)), columns=4) == "x has 3 columns; needs 4."
    assert message(_checks.matrix, "x", np.ones((1, 3)), min_rows=2) == "x has 1 row; needs at least 2."


@pytest.mark.parametrize(
    ("dtype", "becomes"),
    [
        ("float16", "float32"),
        ("float32", "float32"),
        ("float64", "float64"),
        ("int8", "float32"),
        ("int64", "float64"),
    ],
)
def test_matrix_casts_up_only_what_is_too_small(dtype, becomes):
    assert _checks.matrix("x", np.ones((2, 2), dtype=dtype)).dtype == becomes


def test_an_integer_tensor_is_refused():
    torch = pytest.importorskip("torch")
    text = message(_checks.matrix, "x", torch.ones(2, 2, dtype=torch.int64))
    assert text == "x is a tensor of torch.int64; needs a floating type. Use .float()."
    with pytest.raises(InvalidInput, match=r"row 0 of x holds NaN; drop or mend it\."):
        _checks.matrix("x", torch.tensor([[float("nan"), 1.0]]))


@pytest.mark.parametrize(
    ("value", "bounds", "text"),
    [
        (-0.1, {"low": 0, "open_low": True}, "temperature is -0.1; needs a number > 0."),
        (0, {"low": 0, "open_low": True}, "temperature is 0; needs a number > 0."),
        (float("nan"), {}, "temperature is nan; needs a number that is finite."),
        (2, {"low": 0, "high": 1}, "temperature is 2; needs a number in [0, 1]."),
        ("a", {}, "temperature is 'a' of type str; needs a number."),
        (True, {}, "temperature is True of type bool; needs a number."),
    ],
)
def test_number(value, bounds, text):
    assert message(_checks.number, "temperature", value, **bounds) == text


def test_integer_and_ids():
    assert message(_checks.integer, "k", 1.5) == "k is 1.5 of type float; needs a whole number."
    assert message(_checks.integer, "k", 0, low=1) == "k is 0; needs a whole number >= 1."
    assert message(_checks.unique_ids, "ids", ["a", "b", "a"], rows=3) == (
        "ids has 1 repeated ids, a among them; needs distinct ids."
    )
    assert (
        message(_checks.unique_ids, "ids", ["a"], rows=3)
        == "ids has shape (1,); needs (3,), one id for each row."
    )


def test_vector():
    assert message(_checks.vector, "x", np.array([1.0, np.nan])) == "value 1 of x holds NaN; drop or mend it."
    assert message(_checks.vector, "x", np.ones((2, 1))) == "x has shape (2, 1); needs (n,)."
    assert message(_checks.vector, "x", np.ones(2), length=3) == "x has 2 values; needs 3."


def test_a_broken_import_inside_an_extra_is_not_hidden(tmp_path, monkeypatch):
    (tmp_path / "breaks_inside.py").write_text("import missing_elsewhere\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ModuleNotFoundError, match="missing_elsewhere") as caught:
        _checks.need("breaks_inside", extra="search", job="Index")
    assert not isinstance(caught.value, _checks.MissingExtra)


@given(
    arrays(
        st.sampled_from(["f4", "f8"]),
        array_shapes(min_dims=1, max_dims=2, min_side=0),
        elements=st.sampled_from([0.0, -1.0, 1e-38, 3e38, np.inf, -np.inf, np.nan]),
    ),
    st.booleans(),
)
def test_all_finite_is_what_each_value_says(x, turned):
    """Squares of 3e38 overflow in float32, which is no reason to refuse them."""
    y = x.T if turned else x
    assert _checks.all_finite(y) == all(np.isfinite(value) for value in y.ravel())
