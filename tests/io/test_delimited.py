"""Text files: what is odd is handled, what is broken is named with its line."""

import gzip

import numpy as np
import pytest

from duramen.io import learn_encoding, open_table
from tests.io.files import gathered

LONG = 150_000  # lines, more than one block of a file


def table_of(folder, content, name="data.csv"):
    path = folder / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return open_table(path)


def read(folder, content, n_rows=65536, name="data.csv", **roles):
    table = table_of(folder, content, name)
    return gathered(learn_encoding(table, **roles), table, n_rows)


@pytest.mark.parametrize(
    "content",
    [
        "a,b\n1,2\n3,4\n",
        "a,b\n1,2\n3,4",
        "a,b\r\n1,2\r\n3,4\r\n",
        "a,b\r1,2\r3,4\r",
        "\ufeffa,b\n1,2\n3,4\n",
        "\n\na,b\n\n1,2\n\n\n3,4\n\n",
        'a,"b"\n"1","2"\n3,"4"\n',
        "a;b\n1;2\n3;4\n",
        "a\tb\n1\t2\n3\t4\n",
        "a|b\n1|2\n3|4\n",
        "a,b\n 1,+2 \n3.0,4e0\n",
        gzip.compress(b"a,b\n1,2\n", mtime=0) + gzip.compress(b"3,4\n", mtime=0),
    ],
)
def test_spellings_of_the_same_table(tmp_path, content):
    assert table_of(tmp_path, content).columns == ("a", "b")
    assert read(tmp_path, content).X.tolist() == [[1, 2], [3, 4]]


BROKEN = {
    "too many": ("a,b\n1,2\n3,4,5\n6,7\n", r"line 3, has 3 values, the header has 2: '3,4,5'"),
    "too few": ("a,b\n1,2\n\n3\n", r"line 4, has 1 value, the header has 2: '3'"),
    "after a quoted newline": ('a,b\n1,"x\ny"\n3\n', r"line 4, has 1 value"),
    "open quote": (
        'a,b\n1,2\n3,"4\n5,6\n7,8\n',
        r"line 3, cannot be read \(.*\); a quote that opens there may never be closed",
    ),
    "open quote, other columns": (
        'a,b,c\n1,2,3\n4,"5,6\n7,8,9\n',
        r"line 3, .* a quote that opens there may never be closed",
    ),
    "not UTF-8": (b"a,b\n1,2\n3,\xff4\n", r"line 3, is not UTF-8 text"),
    "UTF-16": (
        "a,b\n1,2\n".encode("utf-16"),
        "line 1: every column needs a name, in UTF-8; found .* save the file as UTF-8",
    ),
    "text": ("a,b\n1,2\n3,4\n5,six\n7,8\n", r"column 'b' holds numbers and text \('six' in line 4 \(row 2,"),
    "no bytes": ("", "is empty"),
    "no header": ("\n\n", "line 1: every column needs a name"),
    "header only": ("a,b\n", "has no rows"),
    "header without end": ("a,b", "has no rows"),
    "twice": ("a,b,a\n1,2,3\n", "more than one column is called 'a'"),
    "unnamed": (",b\n1,2\n", "line 1: every column needs a name, in UTF-8; found '', 'b'; add the names"),
    "date": ("a,b\n1,2024-01-31\n", "column 'b' holds dates or times"),
    "missing": ("a,b\n1,2\n\n3,\n", r"column 'b' has no value in line 4 \(row 1, counting from 0\); fill it"),
    "NaN": ("a,b\n1,2\nnan,4\n", r"column 'a' has no value in line 3"),
    "infinite": ("a,b\n1,2\n3,-inf\n", r"column 'b' is infinite.* in line 3"),
    "large": ("a,b\n1,2\n9007199254740993,4\n", r"column 'a' holds 9007199254740993, beyond 2\*\*53"),
}


@pytest.mark.parametrize("case", BROKEN)
def test_the_broken_line_is_named(tmp_path, case):
    content, message = BROKEN[case]
    with pytest.raises(ValueError, match=message) as caught:
        read(tmp_path, content)
    assert "data.csv" in str(caught.value)


def long_lines():
    return ["id,a,b", *(f"{row},{row},some text to fill {row}" for row in range(LONG))]


LATE = {
    "too many": ("7,1,2,3", "line 140001, has 4 values"),
    "text": ("7,abc,z", r"column 'a' holds 'abc', which is not a number in line 140001 \(row 139999"),
    "id": ("7.5,1,z", r"column 'id' holds '7.5', which is not a plain whole number in line 140001"),
    "leading zero": ("07,1,z", r"column 'id' holds '07', which is not a plain whole number in line 140001"),
    "id missing": (",1,z", "column 'id' has no value in line 140001"),
}


@pytest.mark.parametrize("case", LATE)
@pytest.mark.parametrize("name", ["data.csv", pytest.param("data.csv.gz", marks=pytest.mark.slow)])
def test_a_line_far_down_is_named(tmp_path, case, name):
    line, message = LATE[case]
    lines = long_lines()
    lines[140_000] = line
    content = "\n".join(lines).encode()
    if name.endswith("gz"):
        content = gzip.compress(content, 1)
    with pytest.raises(ValueError, match=message):
        read(tmp_path, content, name=name, features=["a"], id="id")


def test_an_open_quote_far_down_swallows_nothing(tmp_path):
    lines = long_lines()
    for number in (100, LONG - 50):
        lines[number] = '7,1,"open'
        with pytest.raises(ValueError, match=f"line {number + 1}, "):
            read(tmp_path, "\n".join(lines) + "\n", features=["a"])
        lines[number] = "7,1,closed"


def test_whole_numbers_may_go_on_as_fractions(tmp_path):
    lines = long_lines()
    lines[-1] = f"{LONG - 1},0.5,z"
    rows = read(tmp_path, "\n".join(lines), features=["a"], id="id")
    assert rows.X[-1] == 0.5
    np.testing.assert_array_equal(rows.X[:-1, 0], np.arange(LONG - 1))
    np.testing.assert_array_equal(rows.ids, np.arange(LONG))


def test_numbers_as_categories_may_go_on_as_text(tmp_path):
    lines = ["a,b", *("1,2" for _ in range(LONG * 9)), "1,x"]
    table = table_of(tmp_path, "\n".join(lines))
    assert table.path.stat().st_size > 4 << 20
    encoding = learn_encoding(table, one_hot=["b"])
    assert encoding.names == ("a", "b=2", "b=x")
    numbers = learn_encoding(table_of(tmp_path, "a,b\n1,2\n1,2.0\n1,3\n"), one_hot=["b"])
    assert numbers.names == ("a", "b=2", "b=3")


def test_a_pass_may_be_left_early(tmp_path):
    table = table_of(tmp_path, "\n".join(long_lines()))
    for _ in range(20):
        batches = table.batches(100)
        assert len(next(batches)) == 100
        batches.close()


def test_ids_with_leading_zeros_are_text(tmp_path):
    assert read(tmp_path, "k,a\n007,1\n7,2\n", id="k").ids == ["007", "7"]
    assert read(tmp_path, "k,a\n9007199254740993,1\n", id="k").ids.tolist() == [9007199254740993]
    with pytest.raises(ValueError, match="column 'k' holds numbers; ids are whole numbers or text"):
        read(tmp_path, "k,a\n1.0,1\n", id="k")


def test_a_label_with_a_typo_is_not_a_class(tmp_path):
    with pytest.raises(ValueError, match=r"column 'y' holds numbers and text \('O' in line 4"):
        read(tmp_path, "a,y\n1,0\n2,1\n3,O\n", label="y")


@pytest.mark.parametrize("cut", [0.3, 0.9, 0.9999])
def test_a_gzip_file_cut_short_is_refused(tmp_path, cut):
    whole = gzip.compress("\n".join(long_lines()[:50_000]).encode())
    with pytest.raises(ValueError, match=r"data.csv.gz is damaged, cut short"):
        read(tmp_path, whole[: int(len(whole) * cut)], name="data.csv.gz", features=["a"])


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
        ('"a,b","c\n""d"""\n1,2\n', ("a,b", 'c\n"d"')),
    ],
)
def test_the_delimiter_is_what_header_and_rows_agree_on(tmp_path, text, columns):
    assert table_of(tmp_path, text).columns == columns
