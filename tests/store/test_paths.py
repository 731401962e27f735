"""Paths: links, several names, relative and odd ones, and files that were moved."""

import os

import pytest

import duramen as dm
from tests.store.life import make
from tests.store.support import X, files


def test_a_symbolic_link_leads_to_the_same_lock(path):
    """There were two writers, by two names, and a file that was damaged beyond repair."""
    other = path.parent / "b.duramen"
    other.symlink_to(path.name)
    with dm.open_store(path) as store:
        beside = [f"a.duramen{end}" for end in ("", "-lock", "-shm", "-wal")]
        assert files(path.parent) == [*beside, other.name]
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


@pytest.mark.skipif(os.name != "posix", reason="needs names of any bytes")
def test_a_store_is_read_at_odd_paths(path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    content = path.read_bytes()
    for odd in (f"/{path}", ":memory:", "a?b#c%20&mode=memory", "a\nb", os.fsdecode(b"a\xff")):
        if "a.duramen" not in odd:
            (tmp_path / odd).write_bytes(content)
        with dm.open_store(odd, read_only=True) as reader:
            assert len(reader) == 80


@pytest.mark.skipif(os.name != "posix", reason="needs files that can be moved while they are open")
def test_a_store_that_was_moved_takes_nothing_more(path):
    """It acknowledged rows that would never be found."""
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
