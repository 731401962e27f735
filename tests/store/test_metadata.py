"""Metadata come back as they were, and are written only if they differ."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from duramen.store.file import StoreFile, create_tables

VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=8,
)


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    made = StoreFile(tmp_path_factory.mktemp("facts") / "a", synchronous="off")
    create_tables(made._connection)
    yield made
    made.close()


@given(name=st.text(st.characters(exclude_categories=["Cs"])), value=VALUES, other=VALUES)
def test_values_come_back(file, name, value, other):
    file._connection.run("DELETE FROM facts")
    file.rollback()
    file.put(name, other)
    file.put(name, value)
    found = file._read_metadata()[name]
    assert found == value
    assert json.dumps(found, sort_keys=True) == json.dumps(value, sort_keys=True)


def test_a_value_is_written_only_if_it_differs(file):
    file.put("a", {"b": 1, "c": 2})
    before = file._connection.total_changes
    file.put("a", {"c": 2, "b": 1})
    assert file._connection.total_changes == before
    file.put("a", {"b": 1})
    assert file._connection.total_changes == before + 1
    file._connection.run("DELETE FROM facts")
    file.put("a", {"b": 1})
    assert not file._read_metadata()
    file.rollback()  # what was written was undone
    file.put("a", {"b": 1})
    assert file._read_metadata() == {"a": {"b": 1}}
