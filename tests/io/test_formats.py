"""Every format gives the same rows, whatever the batches; every guard says what is wrong."""

import json
import struct

import numpy as np
import pytest

from latentlink import InvalidInput
from latentlink.io import open_vectors, read_vectors, write_vectors

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")
h5py = pytest.importorskip("h5py")

N, D = 53, 6
IDS = np.array([f"id {i}" for i in range(N)])


@pytest.fixture
def x(rng):
    return rng.standard_normal((N, D)).astype(np.float32)


def parquet(kind):
    def write(path, x):
        if kind == "binary":
            column = pa.array([row.tobytes() for row in x], pa.binary(4 * D))
        elif kind == "loose binary":
            column = pa.array([row.tobytes() for row in x], pa.binary())
        elif kind == "fixed":
            column = pa.FixedSizeListArray.from_arrays(pa.array(x.reshape(-1)), D)
        else:
            column = pa.array(
                x.tolist(), pa.list_(pa.float32()) if kind == "list" else pa.large_list(pa.float64())
            )
        pq.write_table(pa.table({"id": pa.array(IDS.tolist()), "embedding": column}), path, row_group_size=10)

    return write


def arrow(path, x):
    column = pa.FixedSizeListArray.from_arrays(pa.array(x.reshape(-1)), D)
    table = pa.table({"ids": pa.array(IDS.tolist()), "vectors": column})
    with pa.OSFile(str(path), "wb") as stream, pa.ipc.new_file(stream, table.schema) as writer:
        writer.write_table(table, max_chunksize=7)


def hdf5(path, x):
    with h5py.File(path, "w") as file:
        file["train"], file["test"] = x, x[:3]
        file["neighbors"], file["distances"] = np.zeros((3, 2), int), np.zeros((3, 2))


def hdf5_ids(path, x):
    with h5py.File(path, "w") as file:
        file["vectors"], file["ids"] = x, IDS.astype("S")


def jsonl(path, x):
    lines = [json.dumps({"id": name, "vector": row.tolist()}) for name, row in zip(IDS, x, strict=True)]
    path.write_text("\n".join(lines) + "\n\n")


def fbin(path, x):
    path.write_bytes(struct.pack("<II", N, D) + x.tobytes())


def fvecs(path, x):
    path.write_bytes(b"".join(struct.pack("<i", D) + row.tobytes() for row in x))


FORMATS = {
    "list.parquet": (parquet("list"), True),
    "large.parquet": (parquet("large"), True),
    "fixed.parquet": (parquet("fixed"), True),
    "binary.parquet": (parquet("binary"), True),
    "loose.parquet": (parquet("loose binary"), True),
    "x.arrow": (arrow, True),
    "x.h5": (hdf5, False),
    "ids.h5": (hdf5_ids, True),
    "x.jsonl": (jsonl, True),
    "x.fbin": (fbin, False),
    "x.fvecs": (fvecs, False),
    "x.npy": (lambda path, x: np.save(path, x), False),
    "f.npy": (lambda path, x: np.save(path, np.asfortranarray(x)), False),
    "x.npz": (lambda path, x: np.savez(path, vectors=x, ids=IDS), True),
    "x.safetensors": (lambda path, x: write_vectors(path, x), False),
}


@pytest.mark.parametrize("name", FORMATS)
def test_rows_and_ids_come_back(tmp_path, x, name):
    write, has_ids = FORMATS[name]
    write(tmp_path / name, x)
    file = open_vectors(tmp_path / name)
    assert (file.rows, file.dimension, file.has_ids) == (N, D, has_ids)
    vectors, ids = read_vectors(tmp_path / name)
    np.testing.assert_array_equal(vectors, x)
    assert (ids is None) != has_ids
    if has_ids:
        np.testing.assert_array_equal(ids, IDS)


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize(("start", "stop", "size"), [(0, None, 8), (11, 42, 9), (20, 30, 100), (5, 5, 3)])
def test_batches_are_cut_by_start_alone(tmp_path, x, name, start, stop, size):
    FORMATS[name][0](tmp_path / name, x)
    batches = list(open_vectors(tmp_path / name).batches(batch_rows=size, start=start, stop=stop))
    end = N if stop is None else stop
    assert [len(batch.vectors) for batch in batches] == [
        min(size, end - low) for low in range(start, end, size)
    ]
    if batches:
        np.testing.assert_array_equal(np.concatenate([batch.vectors for batch in batches]), x[start:end])
        np.testing.assert_array_equal(np.concatenate([batch.rows for batch in batches]), np.arange(start, end))


@pytest.mark.parametrize("suffix", ["npz", "arrow", "parquet", "jsonl"])
def test_what_we_write_we_read_with_ids(tmp_path, x, suffix):
    write_vectors(tmp_path / f"x.{suffix}", x, ids=IDS)
    vectors, ids = read_vectors(tmp_path / f"x.{suffix}")
    np.testing.assert_array_equal(vectors, x)
    np.testing.assert_array_equal(ids, IDS)


@pytest.mark.parametrize("suffix", ["npy", "fvecs", "fbin", "safetensors"])
def test_what_we_write_we_read_without_ids(tmp_path, x, suffix):
    write_vectors(tmp_path / f"x.{suffix}", x)
    np.testing.assert_array_equal(read_vectors(tmp_path / f"x.{suffix}")[0], x)
    with pytest.raises(InvalidInput, match=rf"x.{suffix} cannot hold (text )?ids; write .arrow"):
        write_vectors(tmp_path / f"x.{suffix}", x, ids=IDS)


def test_the_other_raw_types(tmp_path, rng):
    bytes_ = rng.integers(0, 100, (N, D))
    for suffix, dtype in [("u8bin", "u1"), ("i8bin", "i1"), ("f16bin", "<f2")]:
        (tmp_path / f"x.{suffix}").write_bytes(struct.pack("<II", N, D) + bytes_.astype(dtype).tobytes())
        np.testing.assert_array_equal(read_vectors(tmp_path / f"x.{suffix}")[0], bytes_)
    rows = [struct.pack("<i", D) + row.astype("u1").tobytes() for row in bytes_]
    (tmp_path / "x.bvecs").write_bytes(b"".join(rows))
    np.testing.assert_array_equal(read_vectors(tmp_path / "x.bvecs")[0], bytes_)


def test_hdf5_queries_by_name(tmp_path, x):
    hdf5(tmp_path / "x.h5", x)
    np.testing.assert_array_equal(read_vectors(tmp_path / "x.h5", vector_column="test")[0], x[:3])
    with pytest.raises(InvalidInput, match="has no column 'base'; it has distances, neighbors, test, train"):
        read_vectors(tmp_path / "x.h5", vector_column="base")


@pytest.mark.parametrize("name", FORMATS)
def test_a_cut_file_is_refused(tmp_path, x, name):
    FORMATS[name][0](tmp_path / name, x)
    data = (tmp_path / name).read_bytes()
    for share in [0.3, 0.95]:
        (tmp_path / name).write_bytes(data[: int(share * len(data))])
        with pytest.raises(InvalidInput):
            assert len(read_vectors(tmp_path / name)[0]) == N


@pytest.mark.parametrize("name", FORMATS)
def test_garbage_is_refused(tmp_path, rng, name):
    (tmp_path / name).write_bytes(rng.integers(0, 256, 999, dtype=np.uint8).tobytes())
    with pytest.raises(InvalidInput):
        read_vectors(tmp_path / name)


def test_absurd_headers_allocate_nothing(tmp_path):
    (tmp_path / "x.fbin").write_bytes(struct.pack("<II", 2**31, 2**31))
    with pytest.raises(InvalidInput, match="claims 2147483648 rows of 2147483648"):
        read_vectors(tmp_path / "x.fbin")
    (tmp_path / "x.fvecs").write_bytes(struct.pack("<i", 2**30) + b"0" * 100)
    with pytest.raises(InvalidInput, match="begins with a row of 1073741824 columns; needs 1 to 1048576"):
        read_vectors(tmp_path / "x.fvecs")


def test_a_parquet_bomb_is_refused_before_decoding(tmp_path, monkeypatch):
    monkeypatch.setattr("latentlink.io._columns._MOST_VALUES", 1 << 20)
    column = pa.FixedSizeListArray.from_arrays(pa.array(np.zeros(3 << 20, np.float32)), 1024)
    pq.write_table(pa.table({"vectors": column}), tmp_path / "x.parquet", row_group_size=1 << 30)
    assert (tmp_path / "x.parquet").stat().st_size < 1 << 16
    with pytest.raises(InvalidInput, match=r"row group 0 of .* holds 3145728 values; needs at most 1048576"):
        open_vectors(tmp_path / "x.parquet")


def test_ragged_and_missing_rows_are_named(tmp_path):
    table = pa.table({"vectors": pa.array([[1.0, 2.0], [1.0], [3.0, 4.0]])})
    pq.write_table(table, tmp_path / "x.parquet")
    with pytest.raises(
        InvalidInput, match=r"row 1 of .* has 1 columns but row 0 has 2; needs rows of equal length"
    ):
        read_vectors(tmp_path / "x.parquet")
    pq.write_table(pa.table({"vectors": pa.array([[1.0], None])}), tmp_path / "x.parquet")
    with pytest.raises(InvalidInput, match=r"row 1 of .* has no vector; drop it or mend it."):
        read_vectors(tmp_path / "x.parquet")
    pq.write_table(pa.table({"vectors": pa.array([[1.0, 2.0], [None, 2.0]])}), tmp_path / "x.parquet")
    with pytest.raises(InvalidInput, match=r"row 1 of .* holds a missing value; drop it or mend it."):
        read_vectors(tmp_path / "x.parquet")
    (tmp_path / "x.jsonl").write_text('{"vector": [1, 2]}\n{"vector": [1]}\n')
    with pytest.raises(InvalidInput, match=r"row 1 of .* has 1 columns but row 0 has 2"):
        read_vectors(tmp_path / "x.jsonl")


def test_bad_rows_go_to_quarantine_with_their_ids(tmp_path, x):
    x[3], x[40, 1] = np.nan, np.inf
    jsonl(tmp_path / "x.jsonl", x)
    with pytest.raises(InvalidInput, match=r"row 3 \(id id 3\), row 40 \(id id 40\) of .* hold NaN"):
        read_vectors(tmp_path / "x.jsonl")
    vectors, ids = read_vectors(tmp_path / "x.jsonl", quarantine=tmp_path / "bad.jsonl")
    keep = np.setdiff1d(np.arange(N), [3, 40])
    np.testing.assert_array_equal(vectors, x[keep])
    np.testing.assert_array_equal(ids, IDS[keep])
    assert [json.loads(line) for line in (tmp_path / "bad.jsonl").read_text().splitlines()] == [
        {"file": "x.jsonl", "row": 3, "id": "id 3", "reason": "NaN"},
        {"file": "x.jsonl", "row": 40, "id": "id 40", "reason": "infinity"},
    ]


def test_a_finite_batch_whose_sum_overflows_is_fine(tmp_path):
    x = np.full((4, 2), 3e38, np.float32)
    np.save(tmp_path / "x.npy", x)
    np.testing.assert_array_equal(read_vectors(tmp_path / "x.npy")[0], x)


def test_an_unknown_suffix_lists_the_known_ones(tmp_path):
    with pytest.raises(
        InvalidInput, match=r"the suffix of x.csv is '.csv'; needs one of '.npy', '.npz', '.parquet'"
    ):
        open_vectors(tmp_path / "x.csv")


@pytest.mark.parametrize("name", FORMATS)
def test_a_missing_file_is_a_missing_file(tmp_path, name):
    with pytest.raises(FileNotFoundError):
        open_vectors(tmp_path / name)
