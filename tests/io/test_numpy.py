import zipfile

import numpy as np
import pytest

from latentlink import InvalidInput, InvalidType
from latentlink.io import read_vectors


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize("order", ["C", "F"])
def test_npy_reads_what_numpy_wrote(tmp_path, rng, dtype, order):
    x = np.asarray(rng.standard_normal((7, 3)), dtype=dtype, order=order)
    np.save(tmp_path / "x.npy", x)
    vectors, ids = read_vectors(tmp_path / "x.npy")
    assert ids is None
    assert vectors.dtype == (np.float64 if dtype == "float64" else np.float32)
    np.testing.assert_array_equal(vectors, x)


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_npz_keeps_ids(tmp_path, rng, save):
    x = rng.standard_normal((4, 3)).astype(np.float32)
    save(tmp_path / "x.npz", vectors=x, ids=np.array(["a", "b", "é", "d"]))
    vectors, ids = read_vectors(tmp_path / "x.npz")
    np.testing.assert_array_equal(vectors, x)
    assert ids.tolist() == ["a", "b", "é", "d"]


def test_npz_with_one_array(tmp_path, rng):
    x = np.asfortranarray(rng.standard_normal((4, 3)))
    np.savez(tmp_path / "x.npz", x)
    vectors, ids = read_vectors(tmp_path / "x.npz")
    np.testing.assert_array_equal(vectors, x)
    assert ids is None


def test_npz_with_other_names(tmp_path):
    np.savez(tmp_path / "x.npz", a=np.ones((2, 2)), b=np.ones(2))
    with pytest.raises(
        InvalidInput, match=r"x.npz holds a, b; needs vectors under 'vectors' or 'embeddings', or its name"
    ):
        read_vectors(tmp_path / "x.npz")


def test_a_cut_file_is_named(tmp_path):
    np.save(tmp_path / "x.npy", np.ones((100, 4), np.float32))
    data = (tmp_path / "x.npy").read_bytes()
    (tmp_path / "x.npy").write_bytes(data[:-4])
    with pytest.raises(InvalidInput) as error:
        read_vectors(tmp_path / "x.npy")
    assert str(error.value) == (
        f"{tmp_path / 'x.npy'} claims shape (100, 4) of float32, 1600 bytes, but holds 1596; "
        "it is cut off or its header is wrong. Write it again."
    )


def test_an_absurd_header_allocates_nothing(tmp_path):
    with open(tmp_path / "x.npy", "wb") as stream:
        header = {"descr": "<f4", "fortran_order": False, "shape": (10**9, 10**9)}
        np.lib.format.write_array_header_2_0(stream, header)
    with pytest.raises(InvalidInput, match="claims shape"):
        read_vectors(tmp_path / "x.npy")


def test_objects_are_never_unpickled(tmp_path):
    np.save(tmp_path / "x.npy", np.array([[object()]]), allow_pickle=True)
    with pytest.raises(InvalidInput, match="Objects are never unpickled"):
        read_vectors(tmp_path / "x.npy")


def test_a_bomb_is_refused_before_it_inflates(tmp_path):
    np.savez_compressed(tmp_path / "x.npz", vectors=np.zeros((70_000, 256), np.float32))
    with pytest.raises(
        InvalidInput, match=r"x.npz:vectors.npy inflates \d+-fold to \d+ bytes; needs at most 100"
    ):
        read_vectors(tmp_path / "x.npz")


def test_not_a_numpy_file(tmp_path):
    for name in ["x.npy", "x.npz"]:
        (tmp_path / name).write_bytes(b"hello, this is text")
        with pytest.raises(InvalidInput, match=f"is not a {name[2:]} file"):
            read_vectors(tmp_path / name)
    with zipfile.ZipFile(tmp_path / "x.npz", "w") as archive:
        archive.writestr("vectors.npy", b"text")
    with pytest.raises(InvalidInput, match=r"x.npz:vectors.npy is not a npy file"):
        read_vectors(tmp_path / "x.npz")


def test_bad_rows_and_ids_are_named(tmp_path):
    x = np.ones((3, 2))
    x[1, 0] = np.nan
    np.save(tmp_path / "x.npy", x)
    with pytest.raises(InvalidInput) as error:
        read_vectors(tmp_path / "x.npy")
    assert str(error.value) == (
        f"row 1 (id 1) of {tmp_path / 'x.npy'} holds NaN; drop or mend, or pass quarantine= a file that "
        "will list what was left out."
    )
    np.savez(tmp_path / "x.npz", vectors=np.ones((2, 2)), ids=["a", "a"])
    with pytest.raises(
        InvalidInput, match=r"ids of x.npz has 1 repeated ids, a among them; needs distinct ids."
    ):
        read_vectors(tmp_path / "x.npz")
    np.save(tmp_path / "x.npy", np.array([["a"]]))
    with pytest.raises(InvalidType, match=r"x.npy has type <U1; needs real numbers."):
        read_vectors(tmp_path / "x.npy")
