"""Threads that share a store: they never see an operation half done, nor wait for each other for ever."""

import contextlib
import threading

import pytest

import duramen as dm
from duramen.store import Store
from tests.store.life import held, make
from tests.store.support import LeftError, X


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
    """Other threads that query a store while it reads its blocks again."""

    def __init__(self, store, monkeypatch):
        self.store, self.answers, self.threads = store, {}, []
        self._plain = store._file.read
        monkeypatch.setattr(store._file, "read", self._read)

    def _read(self):
        *content, blocks = self._plain()
        return *content, self._blocks(blocks)

    def _blocks(self, blocks):
        for at, block in enumerate(blocks):
            if at == 0 and not self.threads:
                self.threads = [threading.Thread(target=self._ask, args=(name,)) for name in ASKED]
                for one in self.threads:
                    one.start()
                for one in self.threads:
                    one.join(0.1)  # a thread that does not wait for the end has answered by then
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


def leave_after_insert(store):
    with store.transaction():
        store.insert(X[80:90])
        raise LeftError


def test_threads_never_see_a_transaction_half_undone(path, monkeypatch):
    """They used to find the store empty, or got an AttributeError."""
    with dm.open_store(path) as store:
        asked, before = Asked(store, monkeypatch), held(store)
        with pytest.raises(LeftError):
            leave_after_insert(store)
        assert asked.end() == dict.fromkeys(ASKED, 80)
        assert held(store) == before


def test_threads_never_see_a_reader_half_refreshed(path, monkeypatch):
    with dm.open_store(path, read_only=True) as reader, dm.open_store(path) as store:
        store.update(3, X[4])
        asked = Asked(reader, monkeypatch)
        assert reader.refresh()
        assert asked.end() == dict.fromkeys(ASKED, 80)
        assert held(reader) == held(store)
