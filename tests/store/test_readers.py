"""Readers beside a writer: they see committed states only, and do not keep it waiting."""

import os
import pickle
import signal
import tempfile
import time
from pathlib import Path

import pytest

import duramen as dm
from tests.store.life import Life, held, make, on_disk, perform
from tests.store.nursery import Nursery
from tests.store.support import MARK, X, files, left_in_files, start_script
from tests.support import run_together

N = 60


def written(kind, path):
    """A store, the operations to come, and all states that there will be."""
    make(path, kind).close()
    life, operations = Life.of(kind, 3), []
    states = [life.held()]
    for _ in range(N):
        operations.append(life.plan())
        life = life.took(operations[-1])
        states.append(life.held())
    return operations, states


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["ranked, names", "tree"])
def test_reading_processes_see_states_between_operations_in_their_order(kind, tmp_path):
    path, pickled = tmp_path / "a.duramen", tmp_path / "states"
    operations, states = written(kind, path)
    pickled.write_bytes(pickle.dumps(states))
    watchers = [Nursery(tmp_path) for _ in range(2)]
    for one in watchers:
        one.start(do="watch", path=str(path), states=str(pickled))
    for one in watchers:
        one.wait("open")
    with dm.open_store(path) as store:
        for steps in operations:
            perform(steps, store)
            time.sleep(0.002)
        for one in watchers:
            ended = one.end()
            assert ended.code == 0, one.errors()
            assert int(ended.said["looks"]) >= 1
            one.close()
        assert store.check()


def test_reading_threads_see_states_between_operations(tmp_path):
    """Each with its own store, and one that they share."""
    path = tmp_path / "a.duramen"
    operations, states = written("ranked", path)

    def look(reader):
        reader.refresh()
        if reader is not shared:
            assert held(reader) in states
        if len(reader):
            reader.coreset()

    shared = dm.open_store(path, read_only=True)
    mine = dm.open_store(path, read_only=True)
    with dm.open_store(path) as store:
        reads = [lambda reader=reader: look(reader) for reader in (shared, shared, mine)]
        run_together(lambda: [perform(steps, store) for steps in operations], *reads)
    for reader in (shared, mine):
        reader.refresh()
        assert held(reader) == states[-1]
        reader.close()


def test_a_reader_stays_where_it_is_until_it_looks_again(tmp_path):
    path = tmp_path / "a.duramen"
    with make(path, "tree") as store, dm.open_store(path, read_only=True) as reader:
        store.insert(X[:80])
        assert len(reader) == 0
        assert reader.refresh()
        assert len(reader) == 80
        assert not reader.refresh()
        before = reader.coreset()
        with store.transaction():
            store.delete(range(20))
            with store.transaction():
                store.delete(range(20, 30))
            assert not reader.refresh()  # not committed
            assert len(on_disk(path)[0]) == 80
        assert reader.coreset() is before
        assert reader.refresh()
        assert reader.ids.tolist() == store.ids.tolist() == list(range(30, 80))
        assert reader.check()


def test_a_reader_can_check_and_ask_while_a_writer_writes(tmp_path, monkeypatch):
    """What it compares is one state, whatever is committed in the middle of it."""
    path = tmp_path / "a.duramen"
    with make(path, "tree, names") as store:
        store.insert(X[:80], ids=[f"{one}" for one in range(80)])
        with dm.open_store(path, read_only=True) as reader:
            gone = iter(range(80))

            def after_a_commit(call):
                def then(*values):
                    store.delete(f"{next(gone)}")
                    return call(*values)

                return then

            with monkeypatch.context() as patch:
                for name in ("read", "check", "forgotten"):
                    patch.setattr(reader._file, name, after_a_commit(getattr(reader._file, name)))
                for _ in range(5):
                    assert reader.check()
            assert next(gone) >= 5  # it was disturbed
            known = reader.forgotten
            store.delete("70")
            assert reader.forgotten in (known, store.forgotten)
            reader.refresh()
            assert reader.forgotten == store.forgotten


def test_a_reader_does_not_keep_the_writer_waiting_but_keeps_traces_until_compact(
    tmp_path, nursery, monkeypatch
):
    """A deleted row is in the log as long as a reader that began before is not done; then compact() ends it."""
    path = tmp_path / "a.duramen"
    with make(path, "tree") as store:
        store.insert(X[:80])
        store.insert(MARK, ids=[900])
        pid = nursery.start(do="hold", path=str(path), read_only=True, reading=True)
        nursery.wait("open")
        start = time.perf_counter()
        store.delete(900)
        store.update(3, X[4])
        assert time.perf_counter() - start < 3  # it never waits for the reader: that would be 5 seconds
        assert left_in_files(tmp_path, [MARK.tobytes()])
        with monkeypatch.context() as patch:
            patch.setattr("duramen.store.file.WAIT", 50)
            with pytest.raises(dm.StoreLockedError, match="a reader is using it"):
                store.compact()
        os.kill(pid, signal.SIGKILL)
        nursery.end()
        store.compact()
        assert not left_in_files(tmp_path, [MARK.tobytes()])
        assert store.check()


def test_readers_leave_nothing_beside_the_file(path):
    """Neither readers of a store without a writer, nor readers that stay when the writer has gone."""
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


UNPRIVILEGED = """
import os, sys
import duramen as dm
from tests.store.life import held

os.setgid(65534)
os.setuid(65534)
reader = dm.open_store(sys.argv[1], read_only=True)
print(len(reader), flush=True)
for line in sys.stdin:
    seen = reader.refresh()
    print(seen, len(reader), reader.refresh(), bool(reader.check()), flush=True)
"""


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid(), reason="needs root, to be another user")
def test_a_reader_that_may_write_nothing_sees_later_commits():
    """It had opened a file without a writer, and assumed that it would never change."""
    with tempfile.TemporaryDirectory() as made:  # tmp_path is closed to other users
        folder = Path(made)
        path = folder / "a.duramen"
        folder.chmod(0o755)
        with make(path, "tree") as store:
            store.insert(X[:80])
        path.chmod(0o644)
        reader = start_script(folder, UNPRIVILEGED, path)

        def says(say=True):
            if say:
                reader.stdin.write("\n")
                reader.stdin.flush()
            return reader.stdout.readline().strip()

        try:
            assert says(say=False) == "80", reader.stderr.read()
            assert says() == "False 80 False True"
            with dm.open_store(path) as store:
                store.insert(X[80:180])
                assert says() == "True 180 False True"
                store.delete(range(150))
                store.compact()
                assert says() == "True 30 False True"
            for n in (29, 28):  # again without a writer
                with dm.open_store(path) as store:
                    store.delete(store.ids[0])
                assert says() == f"True {n} False True"
            assert says() == "False 28 False True"
        finally:
            reader.kill()
            reader.communicate()
