"""Metadata come back as they were, and are written only if they differ."""

import json
import sqlite3
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from duramen.store.file import Metadata, create_tables

PATH = Path("data.duramen")
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=8,
)


@pytest.fixture
def connection():
    made = sqlite3.connect(":memory:", isolation_level=None)
    create_tables(made)
    yield made
    made.close()


@given(name=st.text(st.characters(exclude_categories=["Cs"])), value=VALUES, other=VALUES)
def test_values_come_back(name, value, other):
    made = sqlite3.connect(":memory:", isolation_level=None)
    create_tables(made)
    metadata = Metadata(made, PATH)
    metadata.put(name, other)
    metadata.put(name, value)
    for reader in (metadata, Metadata(made, PATH)):
        found = reader.get(name)
        assert found == value
        assert json.dumps(found, sort_keys=True) == json.dumps(value, sort_keys=True)
    made.close()


def test_a_value_is_written_only_if_it_differs(connection):
    metadata = Metadata(connection, PATH)
    metadata.put("a", {"b": 1, "c": 2})
    before = connection.total_changes
    metadata.put("a", {"c": 2, "b": 1})
    assert connection.total_changes == before
    metadata.put("a", {"b": 1})
    assert connection.total_changes == before + 1
    connection.execute("DELETE FROM facts")
    metadata.put("a", {"b": 1})
    assert connection.execute("SELECT count(*) FROM facts").fetchone() == (0,)
    metadata.forget()  # what was written was undone
    metadata.put("a", {"b": 1})
    assert metadata.get("a") == {"b": 1}
