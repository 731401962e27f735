"""Errors that know their row."""

import copy
import pickle

import pytest

from duramen.errors import HINTS, RowError, rows_from

TWICE = "{name!r} of {earlier} occurs again in {row}"


def test_rows_are_numbered_and_placed_without_touching_the_rest():
    error = RowError(TWICE, 5, earlier=2, name="row 7 {row}")
    assert str(error) == "'row 7 {row}' of row 2 occurs again in row 5"
    assert str(error.moved(10)) == "'row 7 {row}' of row 12 occurs again in row 15"
    placed = error.at(lambda row: f"line {row + 2}").inside("a.csv: ")
    assert str(placed) == "a.csv: 'row 7 {row}' of line 14 occurs again in line 17"
    assert placed.row == 15


def test_errors_survive_pickling(monkeypatch):
    monkeypatch.setitem(HINTS, "drop", "leave {column!r} out")
    error = RowError(TWICE, 5, earlier=2, column="age", hint="drop", name="x").at(str).inside("p: ")
    for other in (pickle.loads(pickle.dumps(error)), copy.copy(error)):
        assert str(other) == str(error) == "p: 'x' of 2 occurs again in 5; leave 'age' out"
        assert (other.row, other.column, other.hint) == (5, "age", "leave 'age' out")
    assert error.message({"drop": "use --drop {column}"}).endswith("; use --drop age")


def test_other_errors_pass():
    with pytest.raises(ValueError, match=r"^row 3$"), rows_from(10):
        raise ValueError("row 3")
    with pytest.raises(RowError, match=r"^no {row}: row 13$"), rows_from(10):
        raise RowError("no {{row}}: {row}", 3)
