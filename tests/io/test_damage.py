"""Files that are not what they seem: one clear ValueError that names the file."""

import sys

import numpy as np
import pyarrow as pa
import pyarrow.feather as feather
import pyarrow.parquet as pq
import pytest

from duramen.errors import RowError
from duramen.io import learn_encoding, open_table
from tests.io.files import WRITERS, arrow_table, gathered, some_numbers, written


def read(path):
    table = open_table(path)
    return gathered(learn_encoding(table, features=["a", "b"], one_hot=["b"], impute="mean"), table, 50)


@pytest.mark.parametrize("name", WRITERS)
def test_a_file_cut_short_or_changed_never_raises_anything_but_value_errors(tmp_path, name):
    rng = np.random.default_rng(7)
    path = written(tmp_path, name, arrow_table(a=rng.normal(size=200), b=[f"n{i % 5}" for i in range(200)]))
    whole = path.read_bytes()
    refusals = []
    for trial in range(60):
        if trial % 2:
            path.write_bytes(whole[: rng.integers(len(whole))])
        else:
            spoiled = bytearray(whole)
            for place in rng.integers(len(whole), size=3):
                spoiled[place] ^= int(rng.integers(1, 256))
            path.write_bytes(spoiled)
        try:
            read(path)
        except ValueError as error:
            refusals.append(error)
    assert len(refusals) >= 10
    assert all(type(error) in (ValueError, RowError) and path.name in str(error) for error in refusals)


@pytest.mark.parametrize("name", ["a.parquet", "a.csv", "a.csv.gz", "a.arrow", "a.feather", "a.npz"])
def test_nonsense_is_refused(tmp_path, name):
    path = tmp_path / name
    for content in (b"", b"\0" * 100, bytes(range(256)) * 5):
        path.write_bytes(content)
        with pytest.raises(ValueError, match=name):
            open_table(path)


def test_what_is_not_there_and_what_is_not_known(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"No such file .*none.csv"):
        open_table(tmp_path / "none.csv")
    (tmp_path / "data.xlsx").write_bytes(b"hello")
    with pytest.raises(ValueError, match=r"data.xlsx has no known suffix or content; .*Parquet.*npz"):
        open_table(tmp_path / "data.xlsx")
    with pytest.raises(FileNotFoundError, match=r"the folder .* has no files of a known format; .*Parquet"):
        open_table(tmp_path)
    twice = pa.Table.from_arrays([pa.array([1]), pa.array([2])], names=["a", "a"])
    with pytest.raises(ValueError, match=r"a.parquet: more than one column is called 'a'"):
        open_table(written(tmp_path, "a.parquet", twice))


@pytest.mark.parametrize(
    "arrays, message",
    [
        (
            {"X": np.zeros((3, 2)), "y": np.zeros(4)},
            r"arrays need one or two dimensions, and the same number of rows; found {'X': \(3, 2\), 'y': \(4,\)}",
        ),
        (
            {"X": np.zeros((3, 2, 1))},
            r"arrays need one or two dimensions, and the same number of rows; found {'X': \(3, 2, 1\)}",
        ),
        ({"X": np.zeros((3, 2)), "Z": np.zeros((3, 2))}, "more than one column is called 'x0', 'x1'"),
        ({"X": np.zeros((3, 1)), "x0": np.zeros(3)}, "more than one column is called 'x0'"),
        ({"X": np.array([[object()]])}, "objects are not unpickled"),
        ({"note": np.float64(1)}, "has no columns"),
    ],
)
def test_archives_that_are_not_tables(tmp_path, arrays, message):
    np.savez(tmp_path / "a.npz", **arrays)
    with pytest.raises(ValueError, match=message):
        open_table(tmp_path / "a.npz")


def test_without_pyarrow_only_npz_is_read(tmp_path, monkeypatch):
    table = arrow_table(a=[1.0, 2.0], b=["x", "y"])
    paths = {name: written(tmp_path, name, table) for name in WRITERS}
    for module in [name for name in sys.modules if name.split(".")[0] == "pyarrow"]:
        monkeypatch.setitem(sys.modules, module, None)
    for name, path in paths.items():
        if name == "a.npz":
            assert read(path).X.tolist() == [[1, 1, 0], [2, 0, 1]]
        else:
            with pytest.raises(ImportError, match=r"needs pyarrow; pip install 'duramen\[frames\]'"):
                open_table(path)


@pytest.mark.parametrize("name", ["a.parquet", "a.feather"])
def test_a_long_file_is_not_held_in_memory(tmp_path, name):
    n, columns = 200_000, 20
    X = np.random.default_rng(0).normal(size=(n, columns))
    table = pa.table({f"x{place}": X[:, place] for place in range(columns)})
    path = tmp_path / name
    if name == "a.parquet":
        pq.write_table(table, path, use_dictionary=False, data_page_size=64 << 10)  # one row group
    else:
        feather.write_feather(table, path, chunksize=10_000)
    del table
    opened = open_table(path)
    encoding = learn_encoding(opened)
    before = pa.total_allocated_bytes()
    for batch, rows in encoding.read(opened, 5_000):
        assert pa.total_allocated_bytes() - before < X.nbytes / 3
        np.testing.assert_array_equal(rows.X, X[batch.first : batch.first + len(batch)])


@pytest.mark.parametrize("name", [*WRITERS])
@pytest.mark.parametrize("when", ["before", "between"])
def test_a_file_that_changes_is_not_read_on(tmp_path, name, when):
    path = written(tmp_path, name, some_numbers())
    table = open_table(path)
    assert sum(len(batch) for batch in table.batches(7)) == 40
    batches = table.batches(7)
    if when == "between":
        next(batches)
    other = tmp_path / "other"
    other.write_bytes(path.read_bytes())
    other.replace(path)
    with pytest.raises(
        ValueError,
        match=f"{name} changed {'after it was opened' if when == 'before' else 'while it was read'}",
    ):
        list(batches)
    assert sum(len(batch) for batch in open_table(path).batches()) == 40


def test_one_of_several_files_that_changes_or_goes(tmp_path):
    for name in ("a.parquet", "b.parquet"):
        pq.write_table(some_numbers(), tmp_path / name)
    for table in (open_table(tmp_path), open_table(tmp_path / "*.parquet")):
        assert sum(len(batch) for batch in table.batches()) == 80
    (tmp_path / "b.parquet").unlink()
    with pytest.raises(ValueError, match=r"b\.parquet changed after it was opened"):
        list(table.batches())
