"""Defects that were reported of stores, in one process: each test failed before its mending."""

import contextlib
import dataclasses
import os
import shutil
import threading

import numpy as np
import pytest

import duramen as dm
from duramen.store import Store, recover, recovery
from tests.store.life import held, make
from tests.store.traces import left_in_files

X = np.random.default_rng(0).normal(size=(300, 6))
MARK = np.random.default_rng(1).normal(size=6)  # its bytes are nobody else's


class LeftError(Exception):
    """Leaves a block."""


@pytest.fixture
def path(tmp_path):
    with make(tmp_path / "a.duramen", "tree") as store:
        store.insert(X[:80])
    return tmp_path / "a.duramen"


def left(store, rows):
    with store.transaction():
        store.insert(rows)
        raise LeftError


def files(folder):
    return sorted(file.name for file in folder.iterdir())


# names of a file


def test_a_symbolic_link_leads_to_the_same_lock(path):
    """There were two writers, by two names, and a file that was damaged for good."""
    other = path.parent / "b.duramen"
    other.symlink_to(path.name)
    with dm.open_store(path) as store:
        assert files(path.parent) == [
            "a.duramen",
            "a.duramen-lock",
            "a.duramen-shm",
            "a.duramen-wal",
            other.name,
        ]
        with pytest.raises(dm.StoreLockedError):
            dm.open_store(other)
        store.delete(0)
    with dm.open_store(other) as store:
        with pytest.raises(dm.StoreLockedError):
            dm.open_store(path)
        store.delete(1)
        with dm.open_store(other, read_only=True) as reader:
            assert len(reader) == 78
        assert store.path == path.resolve()
        assert store.check()
    assert other.is_symlink()
    assert files(path.parent) == ["a.duramen", "b.duramen"]


def test_what_is_saved_from_a_link_is_the_file_that_it_leads_to(path):
    """With the log that is beside the file, and not beside the link."""
    left, links, target = (path.parent / name for name in ("left", "links", "target"))
    for folder in (left, links):
        folder.mkdir()
    with dm.open_store(path) as store:
        store.insert(X[80:90])
        for end in ("", "-wal"):  # as after a crash
            shutil.copyfile(f"{path}{end}", left / f"a{end}")
    (links / "old").symlink_to(left / "a")
    (links / "new").symlink_to(target)
    assert recover(links / "old", links / "new").n_points == 90
    assert files(links) == ["new", "old"]
    with dm.open_store(target) as store:
        assert len(store) == 90


def test_a_file_with_two_names_is_refused_for_writing(path):
    """SQLite has a log for each name: the file was damaged."""
    other = path.parent / "b.duramen"
    os.link(path, other)
    before = path.read_bytes()
    for one in (path, other):
        with pytest.raises(ValueError, match="several names"):
            dm.open_store(one)
    assert path.read_bytes() == before
    assert files(path.parent) == ["a.duramen", "b.duramen"]
    other.unlink()
    with dm.open_store(path) as store:
        store.delete(0)
        assert store.check()


def test_a_relative_path_means_the_same_file_wherever_the_process_goes(tmp_path, monkeypatch):
    """The lock of a store of the same name, in another folder, was removed by close()."""
    here, there = tmp_path / "here", tmp_path / "there"
    for folder in (here, there):
        folder.mkdir()
        monkeypatch.chdir(folder)
        make("x", "tree").close()
    monkeypatch.chdir(here)
    store, reader = dm.open_store("x"), dm.open_store("x", read_only=True)
    monkeypatch.chdir(there)
    with dm.open_store("x") as other:
        store.insert(X[:20])
        assert reader.refresh()
        assert len(reader) == 20
        reader.close()
        store.close()
        assert files(here) == ["x"]
        assert "x-lock" in files(there)
        with pytest.raises(dm.StoreLockedError):
            dm.open_store(there / "x")
        assert len(other) == 0
    monkeypatch.chdir(tmp_path)
    with dm.open_store(here / "x") as store:
        assert len(store) == 20


# anchors


@pytest.mark.parametrize("kind", ["tree", "ranked, names", "fraction"])
def test_the_same_anchor_once_more_is_written_down(kind, tmp_path):
    """Nobody is late any more, and the sample is another: the file kept what was before."""
    path, y = tmp_path / "a.duramen", None if kind == "tree" else (X[:, 0] > 0) * 1.0
    names = [f"{one}" for one in range(300)] if "names" in kind else None

    def insert(store, some):
        labels = None if y is None else y[some]
        store.insert(X[some], labels, ids=None if names is None else names[some])

    def seen(store):
        state, core = store._state, store.coreset()
        late = state.candidates.are_changed(state.slots.in_use())
        return int(late.sum()), sorted(state.sample), core.ids.tolist(), core.weights.tolist()

    with make(path, kind) as store:
        for some in (slice(0, 200), slice(200, 300)):
            insert(store, some)
        late = seen(store)[0]
        assert late > 0
        for again in (store.anchor, store.coreset().anchor):
            store.reanchor(again)
            assert store.check()
        after = seen(store)
        assert after[0] < late
        n_events = len(store.history)
        assert [event.what for event in store.history[-2:]] == ["given", "given"]
    with dm.open_store(path) as store:
        assert seen(store) == after
        assert len(store.history) == n_events
        assert store.check()


# threads


def test_two_that_merge_each_other_in_two_threads_end(tmp_path, monkeypatch):
    """Each had its own lock, and waited for the other's."""
    one, other = make(tmp_path / "a", "tree"), make(tmp_path / "b", "tree")
    one.insert(X[:10])
    other.insert(X[10:20], ids=range(10, 20))
    plain, both, began, results = Store.transaction, threading.Barrier(2), set(), []

    @contextlib.contextmanager
    def transaction(self):
        with plain(self):
            if threading.get_ident() not in began:
                began.add(threading.get_ident())
                with contextlib.suppress(threading.BrokenBarrierError):
                    both.wait(0.5)  # both have begun; or else one waits for the other, as it should
            yield

    def merge(mine, theirs):
        try:
            results.append(len(mine.merge(theirs)))
        except ValueError:  # an id is in both, as the other was the first
            results.append(0)

    monkeypatch.setattr(Store, "transaction", transaction)
    pairs = ((one, other), (other, one))
    threads = [threading.Thread(target=merge, args=pair, daemon=True) for pair in pairs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(5)
    assert not any(thread.is_alive() for thread in threads)
    assert sorted(results) == [0, 20]
    monkeypatch.undo()
    for store in (one, other):
        assert store.check()
        store.close()


def test_what_is_no_dynamic_coreset_is_not_merged(path):
    with (
        dm.open_store(path) as store,
        pytest.raises(TypeError, match="merge takes a DynamicCoreset; found list"),
    ):
        store.merge([1])


ASKED = {
    "len": len,
    "n_points": lambda store: store.n_points,
    "ids": lambda store: len(store.ids),
    "in": lambda store: 79 + (79 in store),
    "points": lambda store: len(store.points()),
    "anchor": lambda store: 80 if store.anchor is not None else 0,
    "coreset": lambda store: 80 if len(store.coreset()) else 0,
}


class Asked:
    """Other threads that ask a store while it reads its blocks anew."""

    def __init__(self, store, monkeypatch):
        self.store, self.answers, self.threads = store, {}, []
        self._plain = store._file.read
        monkeypatch.setattr(store._file, "read", self._read)

    def _read(self):
        content = self._plain()
        return dataclasses.replace(content, blocks=self._blocks(content.blocks))

    def _blocks(self, blocks):
        for at, block in enumerate(blocks):
            if at == 0 and not self.threads:
                self.threads = [threading.Thread(target=self._ask, args=(name,)) for name in ASKED]
                for one in self.threads:
                    one.start()
                for one in self.threads:
                    one.join(0.1)  # who does not wait for the end of it has answered by then
            yield block

    def _ask(self, name):
        try:
            self.answers[name] = ASKED[name](self.store)
        except BaseException as error:
            self.answers[name] = error

    def end(self):
        for one in self.threads:
            one.join()
        assert len(self.answers) == len(ASKED)
        return self.answers


def test_threads_never_see_a_transaction_half_undone(path, monkeypatch):
    """They were told that the store is empty, or got an AttributeError."""
    with dm.open_store(path) as store:
        asked, before = Asked(store, monkeypatch), held(store)
        with pytest.raises(LeftError):
            left(store, X[80:90])
        assert asked.end() == dict.fromkeys(ASKED, 80)
        assert held(store) == before


def test_threads_never_see_a_reader_half_refreshed(path, monkeypatch):
    with dm.open_store(path, read_only=True) as reader, dm.open_store(path) as store:
        store.update(3, X[4])
        asked = Asked(reader, monkeypatch)
        assert reader.refresh()
        assert asked.end() == dict.fromkeys(ASKED, 80)
        assert held(reader) == held(store)


def test_the_lock_that_threads_wait_for_is_never_another(path, monkeypatch):
    """Not even for an instant, in which somebody would be let in."""
    seen, plain = [], dm.DynamicCoreset.__init__

    def init(self, *values, **named):
        plain(self, *values, **named)
        seen.append(self is not reader or self._lock is lock)

    with dm.open_store(path, read_only=True) as reader, dm.open_store(path) as store:
        lock = reader._lock
        store.delete(0)
        monkeypatch.setattr(dm.DynamicCoreset, "__init__", init)
        assert reader.refresh()
        assert len(reader) == 79
        assert reader._lock is lock
        assert all(seen)


# files of others


def test_whoever_makes_a_store_where_one_is_being_saved_keeps_it(path, monkeypatch):
    """It was removed while it was open."""
    target, plain, made = path.parent / "new.duramen", recovery._found, []

    def meanwhile(content):
        with contextlib.suppress(dm.StoreLockedError):
            made.append(make(target, "tree"))
            made[0].insert(X[:50])
        return plain(content)

    monkeypatch.setattr(recovery, "_found", meanwhile)
    with contextlib.suppress(OSError):
        recover(path, target)
        assert not made
    for one in made:
        one.insert(X[50:60])
        one.close()
    with dm.open_store(target) as store:
        assert len(store) == (60 if made else 80)
        assert store.check()
    assert files(path.parent) == ["a.duramen", "new.duramen"]


def test_a_target_that_is_there_or_in_use_stays_as_it_is(path):
    target = path.parent / "b.duramen"
    with make(target, "tree") as other:
        other.insert(X[:50])
        there = files(path.parent)
        with pytest.raises(OSError, match=r"b\.duramen"):
            recover(path, target)
        assert files(path.parent) == there
        other.insert(X[50:60])
        assert other.check()
    before = shutil.copyfile(target, path.parent / "copy").read_bytes()
    with pytest.raises(FileExistsError, match="is there already"):
        recover(path, target)
    assert target.read_bytes() == before
    assert files(path.parent) == ["a.duramen", "b.duramen", "copy"]
    with pytest.raises(FileExistsError, match="is there already"):
        recover(path, path)
    assert files(path.parent) == ["a.duramen", "b.duramen", "copy"]


# the log


@pytest.mark.parametrize("inner", [False, True])
def test_a_transaction_that_was_undone_leaves_nothing_in_the_log(path, monkeypatch, inner):
    """What does not fit into memory is in the log before it is committed; and it stayed there."""
    monkeypatch.setattr("duramen.store.file._CACHE", 64)  # KiB
    rows = np.vstack([X] * 20)
    rows[5] = MARK

    def block(store):
        with store.transaction():
            store.insert(rows)
            assert left_in_files(path.parent, [MARK.tobytes()])
            raise LeftError

    with dm.open_store(path) as store:
        with pytest.raises(LeftError), store.transaction() if inner else contextlib.nullcontext():
            block(store)
        assert len(store) == 80
        assert left_in_files(path.parent, [MARK.tobytes()]) == []
        assert store.check()


@pytest.mark.parametrize("value", [None, "another"])
def test_a_note_that_was_taken_back_is_nowhere(path, value):
    secret = os.urandom(3000).hex()
    with dm.open_store(path) as store:
        store.note("a", secret)
        assert left_in_files(path.parent, [secret.encode()])
        store.note("a", value)
        assert left_in_files(path.parent, [secret.encode()]) == []
        assert store.notes == ({} if value is None else {"a": value})


def test_readers_leave_nothing_beside_the_file(path):
    """Neither those of a store that nobody writes to, nor those that stay when the writer has gone."""
    for _ in range(2):
        with dm.open_store(path, read_only=True), dm.open_store(path, read_only=True) as reader:
            assert reader.check()
        assert files(path.parent) == ["a.duramen"]
    store = dm.open_store(path)
    with dm.open_store(path, read_only=True) as reader:
        store.delete(0)
        store.close()
        assert reader.refresh()
        assert len(reader) == 79
    assert files(path.parent) == ["a.duramen"]
