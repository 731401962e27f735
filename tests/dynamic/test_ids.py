"""Ids: ours, and the users' own numbers, strings and UUIDs; and the number of a name."""

import sys
from hashlib import blake2b
from uuid import UUID

import hypothesis
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import strategies as st

import duramen as dm
from duramen.dynamic.ids import Ids
from duramen.dynamic.rows import Slots
from duramen.points import is_names, numbers_of
from tests.dynamic.model import (
    LATE,
    LOGISTIC,
    NAMES,
    ROW,
    assert_same,
    both_phases,
    every_engine,
    everywhere,
    live,
    refused,
    rows,
)


def names(n):
    return [f"row {number}" for number in range(n)]


# numbers


@everywhere
def test_ours_follow_the_largest_that_ever_was(engine, n):
    dyn = live(n, engine=engine)
    assert dyn.ids.tolist() == list(range(n))
    dyn.delete([n - 1, n - 2])
    assert dyn.insert(ROW, 1).tolist() == [n]
    assert dyn.insert(ROW, 1, ids=1000).tolist() == [1000]
    assert dyn.insert(*rows(2)).tolist() == [1001, 1002]
    assert dyn.insert(*rows(2), ids=[500, -7]).tolist() == [500, -7]
    dyn.delete(dyn.ids)
    assert dyn.insert(ROW, 1).tolist() == [1003]
    assert dyn.insert(ROW, 1, ids=n).tolist() == [n]  # one that was, and is gone
    assert_same(dyn, dyn)


@everywhere
def test_the_largest_number_can_be_an_id_and_then_ours_are_used_up(engine, n):
    most, least = np.iinfo(np.int64).max, np.iinfo(np.int64).min
    dyn = live(n, engine=engine)
    for ids in (most - 1, [least, least + 1], np.array([most])):
        dyn.insert(rows(np.size(ids))[0], rows(np.size(ids))[1], ids=ids)
    assert (dyn.ids[0], dyn.ids[-1]) == (least, most)
    for X, y in (rows(2), (ROW, 1)):
        with refused(dyn, ValueError, f"the ids after {most} do not fit in int64; pass ids"):
            dyn.insert(X, y)
    dyn.update([least, most], rows(2)[0])
    dyn.delete([most, least])
    dyn.check_invariants()


@pytest.mark.parametrize(
    "form", [np.int8, np.uint8, np.int32, np.uint64, np.array, list, pd.Series, pd.Index, pl.Series, range]
)
def test_numbers_may_come_in_any_type(form):
    ids = np.arange(5, 105)
    given = range(5, 105) if form is range else form(ids)
    dyn = live(0)
    dyn.insert(*rows(100), ids=given)
    assert dyn.ids.tolist() == ids.tolist()
    dyn.update(given[3:5], rows(2)[0])
    dyn.delete(given[:50])
    assert dyn.ids.tolist() == ids[50:].tolist()


# names

FORMS = {
    "list": list,
    "tuple": tuple,
    "numpy": np.array,
    "object": lambda given: np.array(given, dtype=object),
    "series": pd.Series,
    "strings": lambda given: pd.Series(given, dtype="string"),
    "categorical": lambda given: pd.Series(given, dtype="category"),
    "arrow series": lambda given: pd.Series(given, dtype=pd.ArrowDtype(pa.string())),
    "index": pd.Index,
    "arrow dictionary": lambda given: pa.array(given).dictionary_encode(),
    "polars": pl.Series,
    "arrow": pa.array,
    "arrow chunks": lambda given: pa.chunked_array([given[:2], given[2:]]),
}


@pytest.mark.parametrize("form", FORMS)
def test_strings_may_come_in_any_column(form):
    given = names(100)
    dyn, plain = live(0), live(0)
    ids = dyn.insert(*rows(100), ids=FORMS[form](given))
    plain.insert(*rows(100), ids=given)
    np.testing.assert_array_equal(ids, numbers_of(given))
    assert_same(dyn, plain)
    assert dyn.names_of(ids).tolist() == given
    assert all(type(name) is str for name in dyn.names_of(ids))
    dyn.update(FORMS[form](given[:4]), rows(4, seed=1)[0])
    assert dyn.points(FORMS[form](given[:4])).ids.tolist() == ids[:4].tolist()
    dyn.delete(FORMS[form](given[:4]))
    assert len(dyn) == 96
    assert given[4] in dyn
    assert given[3] not in dyn


@everywhere
def test_one_name_at_a_time(engine, n):
    X, y = rows(n)
    dyn, other = live(n, ids=names(n), engine=engine), live(n, ids=names(n), engine=engine)
    number = dyn.insert(ROW, 1, ids="ann")
    other.insert(ROW[None], [1], ids=["ann"])
    assert "ann" in dyn
    assert dyn.names_of("ann").tolist() == dyn.names_of(number).tolist() == ["ann"]
    dyn.update("ann", X[0], y[0])
    other.update(["ann"], X[:1], y[:1])
    assert_same(dyn, other)
    assert int(number[0]) in dyn
    dyn.delete("ann")
    other.delete(["ann"])
    assert_same(dyn, other)
    with pytest.raises(KeyError, match="id 'ann' is not here; it was deleted or never inserted"):
        dyn.delete("ann")


def test_a_name_keeps_its_number_and_the_coreset_its_rows_in_any_order():
    X, y = rows()
    given = np.array(names(LATE))
    dyn = dm.DynamicCoreset(LOGISTIC, 40, n_outliers=0.05, random_state=0)
    ids = dyn.insert(X, y, ids=given)
    order = np.random.default_rng(2).permutation(LATE)
    other = dm.DynamicCoreset(LOGISTIC, 40, n_outliers=0.05, random_state=0, anchor=dyn.anchor)
    for part in np.array_split(order, 7):
        other.insert(X[part], y[part], ids=given[part])
    assert_same(dyn, other)
    other.delete(given[::2])
    assert other.insert(X[::2], y[::2], ids=given[::2]).tolist() == ids[::2].tolist()
    assert_same(dyn, other)


@everywhere
def test_bad_names_change_nothing(engine, n):
    dyn = live(n, ids=names(n), engine=engine)
    X, y = rows(2)
    for ids, kind, message in [
        (["ann", "row 5"], ValueError, "id 'row 5' of row 1 is here already"),
        (np.array(["ann", "row 5"]), ValueError, "id 'row 5' of row 1 is here already"),
        (["ann", "ann"], ValueError, "ids must be distinct; 'ann' of row 0 occurs again in row 1"),
        (["ann"], ValueError, "ids has 1 values for 2 rows"),
        (["ann", None], TypeError, "names must be strings or UUIDs; row 1 has None"),
        (pd.Series(["ann", np.nan]), TypeError, "names must be strings or UUIDs; row 1 has nan"),
        ([1, 2], TypeError, "the points here have names, and so must new ones; found 1"),
        ([1, "ann"], TypeError, "ids"),
        (None, ValueError, "the points here have names; pass ids, one name per row"),
    ]:
        with refused(dyn, kind, message):
            dyn.insert(X, y, ids=ids)
    with refused(dyn, ValueError, "the points here have names; pass ids"):
        dyn.insert(ROW, 1)
    for gone in ("ann", ["row 1", "ann"], UUID(int=3)):
        for ask in (dyn.delete, dyn.names_of):
            with refused(dyn, KeyError, r"id (UUID\()?'.*'\)? is not here"):
                ask(gone)
    with refused(dyn, ValueError, "'row 1' of row 0 occurs again in row 1"):
        dyn.delete(["row 1", "row 1"])


@every_engine
def test_once_the_last_name_is_gone_numbers_may_come(engine):
    dyn = live(LATE, ids=names(LATE), engine=engine)
    dyn.delete(names(LATE))
    dyn.insert(*rows(5), ids=range(5))
    assert dyn._state.ids.names == {}
    dyn.check_invariants()
    dyn.delete(dyn.ids)
    assert len(dyn.insert(*rows(5))) == 5
    dyn.delete(dyn.ids)
    dyn.insert(*rows(5), ids=names(5))
    dyn.check_invariants()
    assert dyn.names_of(names(5)[2]).tolist() == ["row 2"]


@both_phases
def test_names_are_merged(n):
    X, y = rows(n)
    given, whole = names(n), live(n, ids=names(n))
    half = n // 2
    one, other = (live(0, **({} if n < LATE else {"anchor": whole.anchor})) for _ in range(2))
    one.insert(X[:half], y[:half], ids=given[:half])
    other.insert(X[half:], y[half:], ids=given[half:])
    one.merge(other)
    assert_same(one, whole)
    assert one.names_of(given).tolist() == given
    numbers = live(40)
    for mine, its in ((numbers, one), (one, numbers)):
        with refused(mine, (TypeError, ValueError), r"names|integer ids|anchors differ", its):
            mine.merge(its)


UUIDS = [UUID(int=number) for number in range(LATE)]


@pytest.mark.parametrize("names", [None, NAMES, UUIDS], ids=["numbers", "strings", "UUIDs"])
@everywhere
def test_points_are_found_by_any_collection(names, n, engine):
    names = list(range(n)) if names is None else names[:n]
    dyn, plain = (live(n, engine=engine, ids=names) for _ in range(2))
    assert len(dyn.points(set(names[:9]))) == len(dyn.points(iter(names[:9]))) == 9
    few = ({names[3]}, frozenset(names[4:6]), (name for name in names[6:9]))
    for gone in (*few, np.array([names[9]]), [names[10]], names[11], set()):
        dyn.delete(gone)
    plain.delete(names[3:12])
    for given in (names[3], [names[4]], np.array([names[5]])):
        dyn.insert(ROW, 1, ids=given)
    plain.insert(np.array([ROW] * 3), np.ones(3), ids=names[3:6])
    if engine == "ranked":
        assert_same(dyn, plain)
    dyn.delete(names[3])
    for gone in ({names[3]}, iter([names[0], names[3]]), [names[3]], np.array([names[3]]), names[3]):
        with refused(dyn, KeyError, "is not here"):
            dyn.delete(gone)
    for ids in ({"a", "b"}, {900, 901}, frozenset({900, 901})):  # whose rows would be anyone's
        with refused(dyn, (TypeError, ValueError), "ids"):
            dyn.insert(*rows(2), ids=ids)


# a name's number

ONE = UUID(int=1)
NAME = st.one_of(st.text(max_size=5), st.uuids())
EMPTY = Slots(1, np.float64, False)


@pytest.fixture
def few_hashes(monkeypatch):
    """Let the hash be the length of the name, so that names collide."""
    monkeypatch.setattr(
        sys.modules["duramen.points"], "_digest", lambda tagged: len(tagged).to_bytes(8, "little")
    )


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


@hypothesis.given(st.lists(NAME, max_size=10))
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


@pytest.mark.parametrize(("names", "text"), [({7: "ann"}, "wrong number"), ({8: "ann"}, "other points")])
def test_a_broken_invariant_is_named(names, text):
    ids = Ids(8)
    ids.names = names
    with pytest.raises(AssertionError, match=text):
        ids.check(np.array([7]))
