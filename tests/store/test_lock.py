"""One writer: how it is named, the error that others get, and that the lock ends with its holder."""

import contextlib
import gc
import os
import signal
import socket
import subprocess
import sys

import pytest

import duramen as dm
from tests.store.support import ROOT, X, sample
from tests.support import run_together


def test_a_second_writer_in_this_process_is_refused_by_name(path):
    with dm.open_store(path), pytest.raises(dm.StoreLockedError) as caught:
        dm.open_store(path)
    for word in (str(os.getpid()), socket.gethostname(), "this process", "read_only=True", path.name):
        assert word in str(caught.value)
    dm.open_store(path).close()


def test_a_second_writer_in_another_process_is_refused_until_the_first_is_killed(path, nursery):
    pid = nursery.start(do="hold", path=str(path))
    assert nursery.wait("open") == "80"
    for _ in range(2):
        with pytest.raises(dm.StoreLockedError, match=f"process {pid} on {socket.gethostname()}, since 20"):
            dm.open_store(path)
    with dm.open_store(path, read_only=True) as reader:
        assert len(reader) == 80
    os.kill(pid, signal.SIGKILL)
    assert nursery.end().code == -signal.SIGKILL
    assert (path.parent / "a.duramen-lock").exists()  # left behind, and harmless
    with dm.open_store(path) as store:
        store.delete(0)
        assert store.check()


def test_a_store_that_was_not_closed_is_closed_with_its_last_reference(path):
    store = dm.open_store(path)
    del store
    gc.collect()
    dm.open_store(path).close()


@pytest.mark.parametrize("text", ["", '{"pid": 7}', "\x00\xff" * 50])
def test_a_lock_file_that_cannot_be_read_is_harmless(path, text):
    lock = path.parent / "a.duramen-lock"
    lock.write_text(text)
    with dm.open_store(path) as store:
        assert lock.read_text().startswith(f"process {os.getpid()} on ")
        lock.write_text(text)
        with pytest.raises(dm.StoreLockedError, match="another process has it open"):
            dm.open_store(path)
        assert store.check()


def test_a_store_that_cannot_be_opened_leaves_no_lock(path):
    with pytest.raises(ValueError, match="size"):
        dm.open_store(path, size=99)
    path.write_bytes(path.read_bytes()[:5000])
    with pytest.raises(dm.DamagedStoreError):
        dm.open_store(path)
    assert not (path.parent / "a.duramen-lock").exists()


@pytest.mark.parametrize("place", ["_acquire", "write"])
def test_a_lock_that_cannot_be_written_is_not_kept(path, monkeypatch, place):
    """A full disk: the text does not fit."""
    from duramen.store import lock

    def fails(*_):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(lock.os if place == "write" else lock, place, fails)
        try:
            dm.open_store(path).close()
        except OSError as error:
            assert error.errno == 28  # noqa: PT017
    dm.open_store(path).close()


def test_of_many_writers_one_may_write(path):
    """Threads open at once, again and again: never two succeed, and never none forever."""
    inside, most = [], []

    def want():
        for _ in range(10):
            with contextlib.suppress(dm.StoreLockedError), dm.open_store(path):
                inside.append(1)
                most.append(len(inside))
                inside.pop()

    run_together(want, want, want, want)
    assert max(most) == 1  # and there was one


LOOK = "import sys; import duramen as dm; print(len(dm.open_store(sys.argv[1], read_only=True)))"


def again(path):
    with dm.open_store(path, read_only=True) as reader:
        reader.check()


def refused(path):
    with pytest.raises(dm.StoreLockedError):
        dm.open_store(path)


@pytest.mark.parametrize("what", sample(again, slow=(refused,)))
def test_what_this_process_does_with_an_open_file_lifts_no_lock_of_it(path, what):
    """A handle that is closed takes the locks of the process on its file with it.

    Another process that came and went then deleted the log, and rows went on being committed to it.
    """

    def looked():
        done = subprocess.run(
            [sys.executable, "-c", LOOK, path], cwd=ROOT, capture_output=True, text=True, timeout=60
        )
        return done.stdout, done.stderr

    with dm.open_store(path) as store:
        store.insert(X[80:90])
        what(path)
        log = path.with_name("a.duramen-wal").stat().st_ino
        assert looked() == ("90\n", "")
        assert path.with_name("a.duramen-wal").stat().st_ino == log
        store.insert(X[90:100])
        assert looked() == ("100\n", "")
