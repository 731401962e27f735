"""Defects that were reported: each test failed before its mending."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from duramen.io import learn_encoding, open_table
from duramen.io.opening import is_table
from duramen.io.table import rows_in_memory
from tests.io.files import WRITERS, gathered, written

pd = pytest.importorskip("pandas")


def numbers(n=40):
    rng = np.random.default_rng(0)
    return pa.table(
        {"key": np.arange(n), "a": rng.normal(size=n), "b": rng.integers(0, 9, n), "y": np.ones(n)}
    )


@pytest.mark.parametrize("name", ["a.parquet", "a.arrow", "a.npz"])
def test_a_whole_number_beyond_what_floats_hold_is_named(tmp_path, name):
    path = written(tmp_path, name, pa.table({"a": [1.0, 2, 3], "k": [5, 2**60, 1]}))
    table = open_table(path)
    with pytest.raises(ValueError, match=rf"column 'k' holds {2**60}, beyond 2\*\*53.* in row 1 "):
        next(learn_encoding(table).read(table))


@pytest.mark.parametrize("missing", [None, 7])
def test_a_large_number_beside_a_missing_one(tmp_path, missing):
    path = written(tmp_path, "a.parquet", pa.table({"k": pa.array([missing, 2**60])}))
    with pytest.raises(ValueError, match=r"beyond.* in row 1 "):
        next(learn_encoding(open_table(path)).read(open_table(path)))


@pytest.mark.parametrize("name", [*WRITERS])
@pytest.mark.parametrize("skip", [0, 1, 11, 12, 39, 40, 400])
def test_rows_after_those_that_are_skipped(tmp_path, name, skip):
    table = open_table(written(tmp_path, name, numbers()))
    encoding = learn_encoding(table, label="y", id="key")
    found = list(encoding.read(table, 7, skip))
    assert [batch.first for batch, _ in found] == list(range(skip, 40, 7))
    whole = gathered(encoding, table)
    for batch, rows in found:
        np.testing.assert_array_equal(rows.X, whole.X[batch.first : batch.first + len(batch)])
        np.testing.assert_array_equal(rows.ids, whole.ids[batch.first : batch.first + len(batch)])
    if found:
        assert 0.9 < found[-1][0].done <= 1
        assert sum(len(batch) for batch, _ in found) == 40 - skip


def test_what_is_skipped_may_be_anything(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("a,b\n1,x\n,2\n3,4\n")
    table, encoding = (
        open_table(path),
        learn_encoding(open_table(written(tmp_path, "a.npz", numbers())), features=["a", "b"]),
    )
    with pytest.raises(ValueError, match="line 2"):
        list(encoding.read(table))
    with pytest.raises(ValueError, match="line 3"):
        list(encoding.read(table, None, 1))
    assert [rows.X.tolist() for _, rows in encoding.read(table, None, 2)] == [[[3.0, 4.0]]]


@pytest.mark.parametrize("skip", [-1, True, 1.0])
def test_a_skip_that_is_none(tmp_path, skip):
    with pytest.raises(ValueError, match="must be a number of rows, 0 or more"):
        open_table(written(tmp_path, "a.npz", numbers())).batches(skip=skip)


@pytest.mark.parametrize("width", [0, 1, 16, 17, 54, 1000, 10**6])
def test_a_batch_is_eight_megabytes_at_most(width):
    n = rows_in_memory(width)
    assert 256 <= n <= 65536
    assert n == 256 or 8 * width * n <= 8 << 20
    assert n == 65536 or 8 * width * 2 * n > 8 << 20


def test_a_batch_counts_the_columns_that_categories_become(tmp_path):
    n = 5000
    path = written(tmp_path, "a.parquet", pa.table({"c": [f"c{row % 1000}" for row in range(n)]}))
    table = open_table(path)
    encoding = learn_encoding(table, one_hot=["c"])
    assert [len(rows) for _, rows in encoding.read(table)] == [1024] * 4 + [904]
    assert [len(batch) for batch in table.batches()] == [n]


@pytest.mark.parametrize("suffix", ["parquet", "feather"])
def test_the_index_of_a_frame_is_no_feature_unless_it_is_named(tmp_path, suffix):
    path = tmp_path / f"a.{suffix}"
    frame = pd.DataFrame({"a": np.arange(9.0), "y": np.arange(9.0)})[2:].query("a != 4")
    if suffix == "parquet":
        frame.to_parquet(path)
    else:
        import pyarrow.feather

        pyarrow.feather.write_feather(pa.Table.from_pandas(frame), path)
    table = open_table(path)
    index = "__index_level_0__"
    assert index in table.columns
    with pytest.warns(UserWarning, match=f"{index}' was the index of a pandas frame, and is not used"):
        assert learn_encoding(table, label="y").features == ("a",)
    encoding = learn_encoding(table, label="y", id=index)  # and nothing is said
    assert encoding.features == ("a",)
    np.testing.assert_array_equal(gathered(encoding, table).ids, frame.index)
    assert learn_encoding(table, label="y", features=["a", index]).features == ("a", index)


@pytest.mark.parametrize(
    "said", [b"{", b"null", b"[]", b'{"index_columns": 3}', json.dumps({"index_columns": [{}, "z"]}).encode()]
)
def test_what_pandas_says_may_be_nonsense(tmp_path, said):
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"a": [1.0, 2.0]}).replace_schema_metadata({b"pandas": said}), path)
    assert open_table(path).index == ()


@pytest.mark.parametrize(
    ("text", "columns"),
    [
        ('id;"a, net";y\n1;2.5;0\n', ("id", "a, net", "y")),
        ('"a;b",y\n1,0\n', ("a;b", "y")),
        ("id;a, net;y\n1;2.5;0\n", ("id", "a, net", "y")),
        ("a|b,y\n1,0\n", ("a|b", "y")),
        ("a;b\n1,5;2\n", ("a", "b")),
        ("a,b\n", ("a", "b")),
        ("a\n1\n", ("a",)),
        ('"a\n,b";y\n1;0\n', ("a\n,b", "y")),
    ],
)
def test_the_delimiter_is_what_header_and_rows_agree_on(tmp_path, text, columns):
    path = tmp_path / "a.csv"
    path.write_text(text)
    assert open_table(path).columns == columns


def test_a_column_of_text_may_be_the_id(tmp_path):
    path = written(tmp_path, "a.parquet", pa.table({"who": ["x", "y"], "when": ["x", "y"], "a": [1.0, 2.0]}))
    with pytest.raises(ValueError, match=r"use it as the ids \(--id who\)"):
        learn_encoding(open_table(path))
    with pytest.raises(ValueError, match="column 'when' holds text") as error:
        learn_encoding(open_table(path), id="who")
    assert "--id" not in str(error.value)


def test_numbers_of_rows_are_no_quantity(tmp_path):
    table = open_table(written(tmp_path, "a.parquet", pa.table({"Id": [1, 2], "a": [1.0, 2.0]})))
    with pytest.warns(UserWarning, match=r"column 'Id' is used as a feature; .*\(--id Id\)"):
        learn_encoding(table)
    learn_encoding(table, features=["Id", "a"])  # it was asked for
    learn_encoding(table, id="Id")


def test_which_files_are_tables(tmp_path):
    for name in WRITERS:
        path = written(tmp_path, name, numbers())
        assert is_table(path)
    (tmp_path / "a.parquet").rename(tmp_path / "a.dat")
    assert is_table(tmp_path / "a.dat")
    (tmp_path / "a.txt").write_text("17\n")
    assert not is_table(tmp_path / "a.txt")


def test_codes_with_leading_zeros_are_no_numbers(tmp_path):
    codes = ["01234", "1234", "5"]
    (tmp_path / "a.csv").write_text("\n".join(["zip", *codes]) + "\n")
    write = written(tmp_path, "a.parquet", pa.table({"zip": codes}))
    encodings = [learn_encoding(open_table(path), one_hot=["zip"]) for path in (tmp_path / "a.csv", write)]
    assert encodings[0].names == encodings[1].names == ("zip=01234", "zip=1234", "zip=5")
    (tmp_path / "b.csv").write_text("n\n2\n2.0\n10\n0\n0.5\n-1\n")
    numbers = learn_encoding(open_table(tmp_path / "b.csv"), one_hot=["n"])
    assert numbers.names == ("n=-1", "n=0", "n=0.5", "n=2", "n=10")


@pytest.mark.parametrize("name", [*WRITERS])
@pytest.mark.parametrize("when", ["before", "between"])
def test_a_file_that_changes_is_not_read_on(tmp_path, name, when):
    path = written(tmp_path, name, numbers())
    table = open_table(path)
    assert sum(len(batch) for batch in table.batches(7)) == 40
    batches = table.batches(7)
    if when == "between":
        next(batches)
    other = tmp_path / "other"
    other.write_bytes(path.read_bytes())
    other.replace(path)
    with pytest.raises(ValueError, match=f"{name} changed while it was read"):
        list(batches)
    assert sum(len(batch) for batch in open_table(path).batches()) == 40


def test_one_of_several_files_that_changes_or_goes(tmp_path):
    for name in ("a.parquet", "b.parquet"):
        pq.write_table(numbers(), tmp_path / name)
    for table in (open_table(tmp_path), open_table(tmp_path / "*.parquet")):
        assert sum(len(batch) for batch in table.batches()) == 80
    (tmp_path / "b.parquet").unlink()
    with pytest.raises(ValueError, match=r"b\.parquet changed while it was read"):
        list(table.batches())
