"""Defects that were reported of stores, of smaller things: each test failed before its mending."""

import contextlib
import gc
import os
import sqlite3
import tracemalloc

import numpy as np
import pytest

import duramen as dm
from duramen.store import recover
from tests.store.life import make

X = np.random.default_rng(0).normal(size=(300, 6))


@pytest.fixture
def path(tmp_path):
    with make(tmp_path / "a.duramen", "tree") as store:
        store.insert(X[:80])
    return tmp_path / "a.duramen"


def test_a_file_of_another_program_is_left_as_it_was(tmp_path):
    """It was switched to a log, for good, before it was refused."""
    path = tmp_path / "other.db"
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE t (a)")
    before = path.read_bytes()
    for how in ({}, {"read_only": True}, {"create": True, "loss": dm.KMeansLoss(2)}):
        with pytest.raises(ValueError, match="no store of duramen"):
            dm.open_store(path, **how)
        assert path.read_bytes() == before
        assert list(tmp_path.iterdir()) == [path]


def test_what_was_forgotten_and_a_given_anchor_are_saved_too(tmp_path):
    old, new = tmp_path / "old", tmp_path / "new"
    with make(old, "tree, names", anchor=np.zeros((2, 6))) as store:
        store.insert(X[:10], ids=[f"{one}" for one in range(10)])
        store.delete(["3", "4"])
        forgotten, given = store.forgotten, store._settings.given
    assert recover(old, new).n_points == 8
    with dm.open_store(new) as store:
        assert [name for name, _ in forgotten] == ["3", "4"]
        assert store.forgotten == forgotten
        theta = store._settings.given if store.anchor is None else store.anchor
        assert given is not None
        assert np.array_equal(getattr(theta, "theta", theta), np.zeros((2, 6)))
        assert store.check()


@pytest.mark.parametrize("seed", [np.int64(77), np.uint8(77), 77])
def test_a_seed_that_contradicts_is_refused_whatever_its_type(path, seed):
    with pytest.raises(ValueError, match="random_state"):
        dm.open_store(path, random_state=seed)
    dm.open_store(path, random_state=type(seed)(5)).close()


def test_an_anchor_that_contradicts_is_refused(tmp_path):
    make(tmp_path / "a", "tree", anchor=np.zeros((2, 6))).close()
    with pytest.raises(ValueError, match="another anchor"):
        make(tmp_path / "a", "tree", anchor=np.ones((2, 6)))
    make(tmp_path / "a", "tree", anchor=np.zeros((2, 6))).close()


@pytest.mark.skipif(os.name != "posix", reason="needs names of any bytes")
def test_a_store_is_read_at_odd_paths(path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    content = path.read_bytes()
    for odd in (f"/{path}", ":memory:", "a?b#c%20&mode=memory", "a\nb", os.fsdecode(b"a\xff")):
        if "a.duramen" not in odd:
            (tmp_path / odd).write_bytes(content)
        with dm.open_store(odd, read_only=True) as reader:
            assert len(reader) == 80


def test_a_note_is_a_copy_of_what_was_given_as_it_will_be_read(path):
    value = {"a": [1]}
    with dm.open_store(path) as store:
        store.note("k", value)
        value["a"].append(2)
        store.notes["k"]["a"].append(3)
        assert store.notes == {"k": {"a": [1]}}
        store.note("t", (1, {1: 2}))
        notes = store.notes
        assert notes == {"k": {"a": [1]}, "t": [1, {"1": 2}]}
        assert store.check()
    with dm.open_store(path) as store:
        assert store.notes == notes


def test_a_checkpoint_that_fails_leaves_the_time_to_wait_as_it_was(path):
    with dm.open_store(path) as store:
        file, connection = store._file, store._file._connection

        class Failing:
            def execute(self, text, *values):
                if "checkpoint" in text:
                    raise sqlite3.OperationalError("database or disk is full")
                return connection.execute(text, *values)

        file._connection = Failing()
        with pytest.raises(OSError, match="full"):
            file.empty_log(wait=False)
        file._connection = connection
        assert connection.execute("PRAGMA busy_timeout").fetchone() == (5000,)


@pytest.mark.skipif(os.name != "posix", reason="needs files that can be moved while they are open")
def test_a_store_that_was_moved_takes_nothing_more(path):
    """It acknowledged rows that nobody would find."""
    away = path.with_name("b.duramen")
    with dm.open_store(path) as store:
        path.rename(away)
        for _ in range(2):
            with pytest.raises(OSError, match="moved or removed"):
                store.insert(X[:3])
            assert len(store) == 80
        away.rename(path)
        store.insert(X[:3])
    with dm.open_store(path) as store:
        assert len(store) == 83
        assert store.check()


@pytest.mark.parametrize("how", ["refresh", "undo", "close"])
def test_the_memory_of_a_state_that_is_no_more_is_free_at_once(tmp_path, how):
    """It was a circle of references: all of the old table stayed until the cycle collector came by chance."""
    path = tmp_path / "a"
    with make(path, "tree") as store:
        store.insert(np.random.default_rng(0).normal(size=(20000, 6)))
    size = 20000 * 6 * 8

    def again(store):
        if how == "undo":
            with contextlib.suppress(KeyError), store.transaction():
                store.delete(0)
                store.delete(-1)
            assert len(store) == 20000
        elif how == "refresh":
            with dm.open_store(path) as writer:
                writer.note("a", writer.notes.get("a", 0) + 1)
            assert store.refresh()

    store = None if how == "close" else dm.open_store(path, read_only=how == "refresh")
    gc.collect()
    gc.disable()
    tracemalloc.start()
    try:
        for turn in range(4):
            if store is None:
                dm.open_store(path, read_only=True).close()
            else:
                again(store)
            if turn == 0:
                before = tracemalloc.get_traced_memory()[0]
        assert tracemalloc.get_traced_memory()[0] - before < size
    finally:
        tracemalloc.stop()
        gc.enable()
        if store is not None:
            store.close()
