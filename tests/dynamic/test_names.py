"""Names: which ids are names, a name's number, and the table of names with its collisions."""

from hashlib import blake2b
from uuid import UUID

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from duramen.dynamic import ids as module
from duramen.dynamic.ids import Ids, is_names, numbers_of
from duramen.dynamic.rows import Slots

ONE = UUID(int=1)
NAME = st.one_of(st.text(max_size=5), st.uuids())


EMPTY = Slots(1, np.float64, False)


@pytest.fixture
def few_hashes(monkeypatch):
    """Let the hash be the length of the name, so that names collide."""
    monkeypatch.setattr(module, "_digest", lambda tagged: len(tagged).to_bytes(8, "little"))


def test_single_names_and_uuids_are_names():
    assert is_names("ann")
    assert is_names(np.str_("ann"))
    assert is_names(ONE)
    assert is_names([ONE, "ann"])
    assert is_names(np.array([ONE], dtype=object))
    assert is_names(np.array([], dtype="U3"))
    assert numbers_of("ann").tolist() == numbers_of(["ann"]).tolist()
    assert numbers_of(ONE).tolist() == numbers_of([ONE]).tolist()
    assert len(numbers_of([])) == 0


@given(st.lists(NAME, max_size=10))
def test_a_number_is_the_hash_of_the_name_alone(names):
    expected = []
    for name in names:
        tagged = b"u" + name.bytes if isinstance(name, UUID) else b"s" + name.encode()
        digest = blake2b(tagged, digest_size=8).digest()
        expected.append(int.from_bytes(digest, "little") % 2**63)
    numbers = numbers_of(names)
    assert numbers.dtype == np.int64
    assert numbers.tolist() == expected


def test_numbers_are_those_of_other_days():
    """What is stored under these numbers must be found again: unlike hash(), they may never change."""
    assert numbers_of(["ann", "", "Zoë", ONE]).tolist() == [
        6685440548919807615,
        6804604419335014886,
        5727258984720416194,
        487996814569814534,
    ]


def test_a_uuid_and_its_text_are_two_names_and_odd_text_is_a_name():
    numbers = numbers_of([ONE, str(ONE), "a\0b", "a", "\ud800", "x" * 10**6])
    assert len(set(numbers.tolist())) == 6
    assert (numbers >= 0).all()


@pytest.mark.parametrize("odd", [7, None, np.nan, b"bob", pd.NA, ["bob"]])
def test_other_entries_are_refused_with_their_row(odd):
    with pytest.raises(TypeError, match=r"row 2 has .* of type .*; give every row a name"):
        numbers_of(["ann", ONE, odd, 8])


@pytest.mark.parametrize(
    "column",
    [
        pd.Series(["ann", None]),
        pd.Series(["ann", None], dtype="string"),
        pl.Series(["ann", None]),
        pa.array(["ann", None]),
        np.ma.array(["ann", "bob"], mask=[False, True]),
    ],
)
def test_gaps_are_refused(column):
    assert is_names(column)
    with pytest.raises(TypeError, match="names must be strings or UUIDs; row 1 has"):
        numbers_of(column)


def test_names_that_collide_are_refused_with_what_to_do(few_hashes):
    ids = Ids()
    ids.admit(*ids.new(["ann"], 1, EMPTY))
    ids.new(["ann", "anna"], 2, EMPTY)
    with pytest.raises(ValueError, match="'ann' and 'bob' have the same number, 4, by chance; rename one"):
        ids.new(["anna", "bob"], 2, EMPTY)
    with pytest.raises(ValueError, match="'carl' and 'dora' have the same number, 5"):
        ids.new(["carl", "ann", "dora"], 3, EMPTY)
    with pytest.raises(ValueError, match=r"'0123456789abcdef' and UUID\('.*1'\) have the same number, 17"):
        ids.new(["0123456789abcdef", ONE], 2, EMPTY)
    assert ids.names == {4: "ann"}
    ids.forget(numbers_of("ann"))
    ids.new(["bob"], 1, EMPTY)


@pytest.mark.parametrize(("names", "text"), [({7: "ann"}, "another number"), ({}, "other points")])
def test_a_broken_invariant_is_named(names, text):
    ids = Ids(8)
    ids.names = names
    with pytest.raises(AssertionError, match=text):
        ids.check(np.array([7]))
