"""Metadata come back as they were."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from duramen.store.file import METADATA, StoreFile, create_tables

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
    made = StoreFile(tmp_path_factory.mktemp("facts") / "a", read_only=False, synchronous="off")
    create_tables(made._connection)
    yield made
    made.close()


@given(name=st.text(st.characters(exclude_categories=["Cs"])), value=VALUES, other=VALUES)
def test_values_come_back(file, name, value, other):
    file._connection.run("DELETE FROM facts")
    for needed in METADATA:
        file.put(needed, None)
    file.put(name, other)
    file.put(name, value)
    found = file.metadata()[name]
    assert found == value
    assert json.dumps(found, sort_keys=True) == json.dumps(value, sort_keys=True)
