"""Backups: copies of a store that are equal to it, made while it is open and written to."""

import os
import pickle
import stat

import pytest

import duramen as dm
from tests.store.life import Life, assert_alike, held, make
from tests.store.nursery import Nursery
from tests.store.support import X, files
from tests.support import run_together


def assert_equal(path, store):
    """Open a copy, and check that it holds what the store does."""
    with dm.open_store(path) as copy:
        assert copy.check()
        assert held(copy) == held(store)
        assert copy.history == store.history
        assert copy.forgotten == store.forgotten
        assert_alike(copy, store)


@pytest.mark.parametrize("read_only", [False, True])
def test_a_backup_leaves_one_file(path, read_only):
    with dm.open_store(path, read_only=read_only) as store:
        copy = store.backup(path.with_name("copy"))
        assert not any(name.startswith(("copy-", ".")) for name in files(path.parent))
        assert_equal(copy, store)
    assert files(path.parent) == ["a.duramen", "copy"]


def test_a_reader_backs_up_what_was_committed_last(path):
    """Also what it has not read yet; nothing of a transaction that is not committed."""
    with dm.open_store(path) as store, dm.open_store(path, read_only=True) as reader:
        store.delete(range(10))
        with store.transaction():
            store.delete(range(10, 20))
            copy = reader.backup(path.with_name("copy"))
        with dm.open_store(copy) as found:
            assert found.ids.tolist() == list(range(10, 80))
        assert len(reader) == 80


def test_backups_while_another_process_writes(tmp_path):
    """Each is one of the states that there were, and later ones are later states."""
    path, pickled, life = tmp_path / "a.duramen", tmp_path / "life", Life.of("ranked, names", 3)
    make(path, "ranked, names").close()
    pickled.write_bytes(pickle.dumps(life))
    states = [life.held()]
    for _ in range(60):
        life = life.took(life.plan())
        states.append(life.held())
    nursery, at = Nursery(tmp_path), 0
    nursery.start(do="live", path=str(path), life=str(pickled), most=60)
    nursery.wait("open")
    with dm.open_store(path, read_only=True) as reader:
        for n in range(6):
            with dm.open_store(reader.backup(tmp_path / f"copy-{n}")) as copy:
                assert copy.check()
                there = held(copy)
                at = next(k for k in range(at, len(states)) if states[k] == there)
    nursery.close()


def test_backups_while_a_thread_writes(path):
    """Through the same store: a transaction is in the copy, or is not, as a whole."""
    sizes = []
    with dm.open_store(path) as store:

        def write():
            for one in range(40):
                with store.transaction():
                    store.insert(X[[one, one]])

        def back_up():
            with dm.open_store(store.backup(path.with_name(f"copy-{len(sizes)}"))) as copy:
                sizes.append(len(copy))

        run_together(write, back_up)
        assert sizes == sorted(sizes)
        assert all(size % 2 == 0 for size in sizes)
        assert_equal(store.backup(path.with_name("last")), store)


def test_what_is_there_is_never_replaced(path):
    other = path.with_name("other")
    other.write_bytes(b"mine")
    with dm.open_store(path) as store:
        for target in (other, path, path.parent):
            with pytest.raises(FileExistsError, match="already exists; choose another path"):
                store.backup(target)
        with pytest.raises(FileNotFoundError, match="there is no folder"):
            store.backup(path.parent / "nowhere" / "copy")
        assert store.check()
    assert other.read_bytes() == b"mine"
    assert files(path.parent) == ["a.duramen", "other"]


def test_a_file_that_appears_during_a_backup_stays(path, monkeypatch):
    target, plain = path.with_name("copy"), dm.store.file.sqlite3.connect

    def connect(*arguments, **options):
        target.write_bytes(b"mine")
        return plain(*arguments, **options)

    with dm.open_store(path) as store:
        monkeypatch.setattr(dm.store.file.sqlite3, "connect", connect)
        with pytest.raises(FileExistsError):
            store.backup(target)
        monkeypatch.undo()
    assert target.read_bytes() == b"mine"
    assert files(path.parent) == ["a.duramen", "copy"]


@pytest.mark.skipif(os.name != "posix", reason="needs permission bits")
@pytest.mark.parametrize("bits", [0o600, 0o640, 0o444])
def test_a_backup_has_the_permissions_of_the_original(path, bits):
    path.chmod(bits)
    before = os.umask(0)
    try:
        with dm.open_store(path, read_only=True) as store:
            copy = store.backup(path.with_name("copy"))
    finally:
        os.umask(before)
    assert stat.S_IMODE(copy.stat().st_mode) == bits


def test_a_backup_of_an_empty_store_is_one(tmp_path):
    with make(tmp_path / "a", "tree") as store:
        assert_equal(store.backup(tmp_path / "b"), store)
