"""A table is the same rows whatever its format and the size of batches."""

import json
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from duramen.io import learn_encoding, open_table
from duramen.io.tables import kind_named, rows_in_memory
from tests.io.files import WRITERS, arrow_table, gathered, some_numbers, written
from tests.support import assert_identical_array

REAL = st.floats(allow_nan=False, allow_infinity=False)
WORDS = st.text(
    st.characters(min_codepoint=97, max_codepoint=122) | st.sampled_from(' ,;"\n\t=éß'), min_size=1
)
WORD = WORDS.map(lambda text: f"w{text}w")  # no spelling of a missing value, number or date


@st.composite
def tables(draw):
    n = draw(st.integers(1, 40))
    column = lambda values: draw(st.lists(values, min_size=n, max_size=n))  # noqa: E731
    words = st.sampled_from(draw(st.lists(WORD, min_size=1, max_size=4)))
    return arrow_table(
        real=pa.array(column(REAL), pa.float64()),
        whole=pa.array(column(st.integers(-(2**53), 2**53)), pa.int64()),
        flag=pa.array(column(st.booleans())),
        word=pa.array(column(words)),
        key=pa.array(column(st.integers(-(2**63), 2**63 - 1)), pa.int64()),
        name=pa.array(column(WORD)),
        heavy=pa.array(column(st.floats(0, 1e300)), pa.float64()),
        cls=pa.array(column(words)),
    )


def expected(table, *, label, id):
    """The oracle: plain Python over the columns."""
    columns = table.to_pydict()
    words = sorted(set(columns["word"]))
    X = [
        [real, float(whole), float(flag), *(float(word == one) for one in words)]
        for real, whole, flag, word in zip(
            *(columns[c] for c in ("real", "whole", "flag", "word")), strict=True
        )
    ]
    classes = sorted(set(columns[label]))
    y = [float(classes.index(value)) for value in columns[label]] if label == "cls" else columns[label]
    return np.array(X), np.array(y), np.array(columns["heavy"]), columns[id]


@settings(max_examples=40)
@given(tables(), st.integers(1, 45), st.sampled_from(["key", "name"]), st.sampled_from(["cls", "real2"]))
def test_every_format_gives_the_same_rows(table, n_rows, id, label):
    table = table.append_column("real2", table["real"])
    X, y, weights, ids = expected(table, label=label, id=id)
    roles = {"label": label, "weight": "heavy", "id": id, "one_hot": ["word"]}
    learned = set()
    with tempfile.TemporaryDirectory() as folder:
        for name in WRITERS:
            opened = open_table(written(Path(folder), name, table))
            assert opened.columns == tuple(table.column_names)
            assert opened.n_rows in (None, len(table))
            encoding = learn_encoding(opened, features=["real", "whole", "flag", "word"], **roles)
            rows = gathered(encoding, opened, n_rows)
            np.testing.assert_array_equal(rows.X, X)
            np.testing.assert_array_equal(rows.y, y)
            np.testing.assert_array_equal(rows.weights, weights)
            assert list(rows.ids) == ids
            assert (rows.X.dtype, rows.y.dtype, rows.weights.dtype) == (np.float64,) * 3
            assert isinstance(rows.ids, list) if id == "name" else rows.ids.dtype == np.int64
            learned.add(encoding)
    assert len(learned) == 1  # of every format the same is learned


def test_columns_can_be_left_unread(tmp_path):
    table = arrow_table(a=[1.0, 2.0], b=["x", "y"], c=[3, 4])
    for name in WRITERS:
        opened = open_table(written(tmp_path, name, table))
        (batch,) = opened.batches(columns=["c"])
        assert batch.column("c").numbers().tolist() == [3, 4]
        with pytest.raises(ValueError, match="no column 'a'"):
            batch.column("a")
        with pytest.raises(ValueError, match="no column 'd'"):
            opened.batches(columns=["d"])
        for wrong, least in (({"n_rows": 0}, 1), ({"skip": -1}, 0), ({"skip": True}, 0), ({"skip": 1.0}, 0)):
            with pytest.raises(ValueError, match=f"must be a whole number, {least} or more"):
                opened.batches(**wrong)


@pytest.mark.parametrize("name", ["a.parquet", "a.arrow", "a.feather", "a.npz"])
def test_float32_alone_stays_float32(tmp_path, name):
    table = arrow_table(a=np.float32([0.1, 2]), b=np.float32([3, 4]), c=[5.0, 6.0], w=["u", "v"])
    opened = open_table(written(tmp_path, name, table))
    small = gathered(learn_encoding(opened, features=["a", "w", "b"], one_hot=["w"]), opened)
    assert small.X.dtype == np.float32
    assert small.X.tolist() == [[np.float32(0.1), 1, 0, 3], [2, 0, 1, 4]]
    assert gathered(learn_encoding(opened, features=["a", "c"]), opened).X.dtype == np.float64
    assert gathered(learn_encoding(opened, features=["w"], one_hot="auto"), opened).X.dtype == np.float64


def test_decimals_and_small_integers_are_numbers(tmp_path):
    table = arrow_table(
        a=pa.array(["1.25", "-3.5"]).cast(pa.decimal128(10, 2)),
        b=pa.array([1, 255], pa.uint8()),
        c=pa.array(np.array([1.5, 2.5], dtype=np.float16)),
        d=pa.array([1, 2]).dictionary_encode(),
    )
    opened = open_table(written(tmp_path, "a.arrow", table))
    rows = gathered(learn_encoding(opened, one_hot="auto"), opened)
    assert rows.X.tolist() == [[1.25, 1, 1.5, 1, 0], [-3.5, 255, 2.5, 0, 1]]


def test_without_a_known_suffix_the_content_decides(tmp_path):
    table = arrow_table(a=[1.0, 2.0, 3.0])
    for name in ("a.parquet", "a.arrow", "a.arrows", "a.npz"):
        moved = written(tmp_path, name, table).rename(tmp_path / f"data-{name.replace('.', '-')}")
        opened = open_table(moved)
        assert gathered(learn_encoding(opened), opened).X.ravel().tolist() == [1, 2, 3]


def test_the_columns_of_a_matrix_are_numbered(tmp_path):
    X = np.arange(6.0).reshape(3, 2)
    np.savez_compressed(tmp_path / "plain.npz", X=X, y=[1, 0, 1], note=np.float64(3))
    opened = open_table(tmp_path / "plain.npz")
    assert opened.columns == ("x0", "x1", "y")
    rows = gathered(learn_encoding(opened, label="y"), opened, 2)
    assert rows.X.tolist() == X.tolist()
    assert rows.y.tolist() == [1, 0, 1]


def test_several_parquet_files_are_one_table(tmp_path):
    whole = arrow_table(a=np.arange(20.0), b=[f"n{i % 3}" for i in range(20)])
    one = open_table(written(tmp_path, "a.parquet", whole))
    encoding = learn_encoding(one, one_hot=["b"])
    parts = tmp_path / "parts"
    parts.mkdir()
    for number, (start, length) in enumerate([(0, 7), (7, 1), (8, 12)]):
        part = whole.slice(start, length)
        pq.write_table(part if number else part.select(["b", "a"]), parts / f"p{number}.parquet")
    for path in (parts, parts / "p*.parquet"):
        opened = open_table(path)
        assert opened.n_rows == 20
        assert learn_encoding(opened, features=["a", "b"], one_hot=["b"]) == encoding
        assert_identical_array(gathered(encoding, opened, 6).X, gathered(encoding, one).X)
    pq.write_table(arrow_table(a=[float("inf")], b=["n1"]), parts / "p3.parquet")
    opened = open_table(parts)
    with pytest.raises(ValueError, match=r"'a' is infinite.* in p3.parquet, row 0"):
        gathered(encoding, opened)
    pq.write_table(arrow_table(a=[1], b=["n1"]), parts / "p3.parquet")
    with pytest.raises(ValueError, match=r"p3.parquet: column 'a' is int64, .* double"):
        open_table(parts)
    with pytest.raises(FileNotFoundError, match=r"no files match .*q\*\.parquet"):
        open_table(parts / "q*.parquet")


@pytest.mark.parametrize("name", [*WRITERS])
@pytest.mark.parametrize("skip", [0, 1, 11, 12, 39, 40, 400])
def test_rows_after_those_that_are_skipped(tmp_path, name, skip):
    table = open_table(written(tmp_path, name, some_numbers()))
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
    table, other = open_table(path), open_table(written(tmp_path, "a.npz", some_numbers()))
    encoding = learn_encoding(other, features=["a", "b"])
    with pytest.raises(ValueError, match=r"line [23]"):
        list(encoding.read(table))
    with pytest.raises(ValueError, match="line 3"):
        list(encoding.read(table, None, 1))
    assert [rows.X.tolist() for _, rows in encoding.read(table, None, 2)] == [[[3.0, 4.0]]]


@pytest.mark.parametrize("width", [0, 1, 16, 17, 54, 1000, 10**6])
def test_a_batch_is_eight_megabytes_at_most(width):
    n = rows_in_memory(width)
    assert 256 <= n <= 65536
    assert n == 256 or 8 * width * n <= 8 << 20
    assert n == 65536 or 8 * width * 2 * n > 8 << 20


@pytest.mark.parametrize(
    "said", [b"{", b"null", b"[]", b'{"index_columns": 3}', json.dumps({"index_columns": [{}, "z"]}).encode()]
)
def test_pandas_metadata_may_be_nonsense(tmp_path, said):
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"a": [1.0, 2.0]}).replace_schema_metadata({b"pandas": said}), path)
    assert open_table(path).index == ()


@pytest.mark.parametrize(
    "kind, types",
    [
        ("EMPTY", [pa.null()]),
        ("FLAG", [pa.bool_(), np.dtype("?")]),
        ("WHOLE", [pa.int8(), pa.uint64(), np.dtype("u1"), np.dtype(">i8")]),
        ("REAL", [pa.float64(), pa.decimal128(9, 2), pa.decimal256(9, 2), np.dtype("f8"), np.dtype("g")]),
        ("SINGLE", [pa.float16(), pa.float32(), np.dtype("f2"), np.dtype("f4")]),
        ("TEXT", [pa.string(), pa.large_string(), np.dtype("U"), np.dtype("U7")]),
        ("TIME", [pa.date32(), pa.date64(), pa.time32("s"), pa.timestamp("ns", "UTC"), pa.duration("s")]),
        ("TIME", [pa.month_day_nano_interval(), np.dtype("M8[D]"), np.dtype("m8[s]")]),
        ("OTHER", [pa.binary(), pa.list_(pa.int8()), pa.struct([("a", pa.int8())]), pa.binary(4)]),
        ("OTHER", [pa.map_(pa.string(), pa.int8()), np.dtype("c16"), np.dtype("S3"), np.dtype("O")]),
    ],
)
def test_what_a_column_of_each_type_holds(kind, types):
    names = [one.name if isinstance(one, np.dtype) else str(one) for one in types]
    assert {kind_named(name).name for name in names} == {kind}
