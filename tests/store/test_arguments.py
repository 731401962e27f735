"""What open_store and a store refuse: in one clear error, before anything has changed."""

import contextlib
import copy
import pickle
import sqlite3

import numpy as np
import pytest

import duramen as dm
from tests.store.support import files

SETTINGS = {"loss": dm.KMeansLoss(2), "size": 50, "n_outliers": 0.05, "random_state": 3}
X = np.random.default_rng(0).normal(size=(20, 2))
WAYS = {"open": {}, "create": {"create": True, **SETTINGS}, "read": {"read_only": True}}
every_way = pytest.mark.parametrize("how", WAYS.values(), ids=WAYS)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "data.duramen"


@pytest.fixture
def made(path):
    with dm.open_store(path, create=True, **SETTINGS) as store:
        store.insert(X)
    return path


def content(path):
    """Return the bytes of a file, except for the counter of writers."""
    data = path.read_bytes()
    return data[:24] + data[28:92] + data[96:]


def test_one_that_is_missing(path):
    with pytest.raises(
        FileNotFoundError, match=r"there is no store .*data.duramen; dm.open_store\(path, create=True"
    ):
        dm.open_store(path)
    with pytest.raises(FileNotFoundError, match="there is no store"):
        dm.open_store(str(path), read_only=True)
    assert files(path.parent) == []


def test_a_folder_that_is_missing_or_is_no_file(path):
    with pytest.raises(FileNotFoundError, match=r"there is no folder .*nowhere; create it first"):
        dm.open_store(path.parent / "nowhere" / "a.duramen", create=True, **SETTINGS)
    with pytest.raises(IsADirectoryError, match="is a folder; name a file in it, such as"):
        dm.open_store(path.parent, create=True, **SETTINGS)
    assert files(path.parent) == []


@pytest.mark.parametrize(
    "content", [b"age,weight\n", b"SQLite format 2\x00" + bytes(5000), b"\x00" * 4096, b"PAR1"]
)
@every_way
def test_a_file_of_something_else_is_left_alone(path, content, how):
    path.write_bytes(content)
    with pytest.raises(
        ValueError, match=r"data.duramen is not a store, or its first page is damaged; check the path"
    ):
        dm.open_store(path, **how)
    assert path.read_bytes() == content
    assert files(path.parent) == [path.name]


@every_way
def test_a_file_of_another_program_is_left_as_it_was(path, how):
    """It is not even switched to a log."""
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE t (a)")
    before = path.read_bytes()
    with pytest.raises(
        ValueError, match=r"data.duramen is a SQLite file, but not a duramen store; .* under another name"
    ):
        dm.open_store(path, **how)
    assert path.read_bytes() == before
    assert files(path.parent) == [path.name]


def test_an_empty_file_is_one_whose_making_was_cut_short(path):
    path.touch()
    with pytest.raises(
        ValueError, match=r"is empty: .* or its creation was interrupted; dm.open_store\(path, create=True"
    ):
        dm.open_store(path)
    with dm.open_store(path, create=True, **SETTINGS) as store:
        store.insert(X)


def test_settings_of_a_new_store(path):
    with pytest.raises(
        ValueError, match=r"a new store needs a loss; pass loss=, such as loss=dm.LogisticLoss\(\)"
    ):
        dm.open_store(path, create=True)
    with pytest.raises(TypeError, match="loss must be a Loss"):
        dm.open_store(path, create=True, loss="logistic")
    for wrong in ({"size": 0}, {"n_outliers": -1}, {"sampler": "best"}, {"engine": "fast"}, {"calibrate": 7}):
        with pytest.raises((ValueError, TypeError)) as caught:
            dm.DynamicCoreset(**{**SETTINGS, **wrong})
        with pytest.raises(type(caught.value)) as found:
            dm.open_store(path, create=True, **{**SETTINGS, **wrong})
        assert str(found.value) == str(caught.value)
    with pytest.raises(ValueError, match="synchronous='off' is unknown; pass 'full' or 'normal'"):
        dm.open_store(path, create=True, synchronous="off", **SETTINGS)
    with pytest.raises(ValueError, match="create and read_only contradict each other"):
        dm.open_store(path, create=True, read_only=True, **SETTINGS)
    assert files(path.parent) == []


@pytest.mark.parametrize(
    "name, other",
    [
        ("loss", dm.KMeansLoss(3)), ("loss", dm.LogisticLoss()), ("size", 51), ("n_outliers", 0.06),
        ("sampler", "uniform"), ("sampler", dm.UniformSampler()), ("engine", "tree"), ("suspects", 3.0),
        ("calibrate", False), ("random_state", 4), ("random_state", np.int64(4)), ("random_state", np.uint8(4)),
        ("anchor", np.zeros((2, 2))), ("audit", True),
    ],
    ids=str,
)  # fmt: skip
@pytest.mark.parametrize("how", [{"create": True}, {}, {"read_only": True}], ids=str)
def test_settings_that_contradict(made, name, other, how):
    before = content(made)
    with pytest.raises(ValueError, match=r"was made (with a different|for)") as caught:
        dm.open_store(made, **how, **{name: other})
    assert str(made) in str(caught.value)
    assert "leave" in str(caught.value)
    assert not isinstance(caught.value, dm.DamagedStoreError)
    assert f"{made.name}-lock" not in files(made.parent)
    assert content(made) == before


def test_settings_that_agree(made):
    for how in ({"create": True}, {}, {"read_only": True}):
        dm.open_store(made, **how, random_state=np.uint8(3)).close()
        with dm.open_store(made, **how, **SETTINGS, engine="auto", sampler="auto", audit=False) as store:
            assert len(store) == 20
        with dm.open_store(made, **how, engine="ranked", loss=dm.KMeansLoss(2)) as store:
            assert len(store) == 20
    with dm.open_store(made) as store:
        store.set_outliers(0.2)
    with dm.open_store(made, **SETTINGS) as store:  # what it was made with, not what it is now
        assert store._state.n_outliers == 0.2


CALLS = {
    "insert": lambda store: store.insert(X),
    "delete": lambda store: store.delete(0),
    "update": lambda store: store.update(0, X[1]),
    "set_outliers": lambda store: store.set_outliers(0.1),
    "reanchor": lambda store: store.reanchor(),
    "merge": lambda store: store.merge(dm.DynamicCoreset(**SETTINGS)),
    "note": lambda store: store.note("a", 1),
    "compact": lambda store: store.compact(),
    "transaction": lambda store: store.transaction().__enter__(),
}
QUESTIONS = {
    "ids": lambda store: store.ids,
    "len": len,
    "coreset": lambda store: store.coreset(),
    "points": lambda store: store.points(),
    "threshold": lambda store: store.threshold,
    "anchor": lambda store: store.anchor,
    "history": lambda store: store.history,
    "notes": lambda store: store.notes,
    "forgotten": lambda store: store.forgotten,
    "audit": lambda store: store.audit,
    "check": lambda store: store.check(),
    "refresh": lambda store: store.refresh(),
    "fit": lambda store: store.fit(),
}


@pytest.mark.parametrize("what", [*CALLS, *QUESTIONS])
def test_one_that_is_closed(made, what):
    store = dm.open_store(made)
    store.close()
    store.close()  # not an error
    with pytest.raises(ValueError, match=r"the store .*data.duramen is closed; open it again"):
        {**CALLS, **QUESTIONS}[what](store)
    assert "closed" in repr(store)
    assert store.path == made


@pytest.mark.parametrize("what", CALLS)
def test_one_that_is_only_read(made, what):
    before = made.read_bytes()
    with dm.open_store(made, read_only=True) as store:
        with pytest.raises(PermissionError, match="was opened with read_only=True; open it without"):
            CALLS[what](store)
        assert store.read_only
        assert len(store) == 20
    assert made.read_bytes() == before


def test_questions_to_one_that_is_only_read(made):
    with dm.open_store(made, read_only=True) as store:
        for ask in QUESTIONS.values():
            ask(store)


def test_a_store_is_not_copied(made):
    with dm.open_store(made) as store:
        for copied in (copy.copy, copy.deepcopy, pickle.dumps):
            with pytest.raises(
                TypeError, match=r"a store is a file; open it where it is needed: dm.open_store"
            ):
                copied(store)
        assert repr(store).startswith(f"Store: {made}\n")


def test_what_cannot_be_part_of_a_transaction(made):
    with dm.open_store(made) as store:
        for what in ("check", "compact", "close", "backup"):
            with (
                store.transaction(),
                pytest.raises(ValueError, match=rf"{what}.* cannot be part of a transaction; end the block"),
            ):
                getattr(store, what)(*[made.with_name("copy")] * (what == "backup"))
        assert len(store) == 20


@pytest.mark.parametrize(
    ("name", "value", "error", "message"),
    [
        ("a", float("nan"), ValueError, r"JSON cannot hold the note 'a' .*; pass finite numbers"),
        ("a", {1, 2}, TypeError, r"JSON cannot hold the note 'a' \(Object of type set"),
        ("a", X, TypeError, r"JSON cannot hold the note 'a' \(Object of type ndarray"),
        ("a", object(), TypeError, r"JSON cannot hold the note 'a' \(Object of type object"),
        (3, 1, TypeError, "the name of a note must be a string; found 3"),
    ],
)
def test_notes_that_no_file_can_hold(made, name, value, error, message):
    with dm.open_store(made) as store:
        store.note("a", [1])
        with pytest.raises(error, match=message):
            store.note(name, value)
        assert store.notes == {"a": [1]}
        assert store.check()
    with dm.open_store(made) as store:
        assert store.notes == {"a": [1]}


def test_an_anchor_that_agrees(path):
    for _ in range(2):
        dm.open_store(path, create=True, anchor=np.zeros((2, 2)), **SETTINGS).close()
    with pytest.raises(ValueError, match="a different anchor"):
        dm.open_store(path, anchor=np.ones((2, 2)))


def test_a_note_is_a_copy_of_what_was_given_as_it_will_be_read(made):
    value = {"a": [1, 2.5, "c", None, True]}
    with dm.open_store(made) as store:
        store.note("k", value)
        value["a"].append(2)
        store.notes["k"]["a"].append(3)
        store.note("t", (1, {1: 2}))
        notes = store.notes
        assert notes == {"k": {"a": [1, 2.5, "c", None, True]}, "t": [1, {"1": 2}]}
        assert store.check()
    with dm.open_store(made) as store:
        assert store.notes == notes
        store.note("k", None)
        assert store.notes == {"t": [1, {"1": 2}]}
