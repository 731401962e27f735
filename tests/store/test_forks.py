"""Forks and started processes: which of them may use a store that the parent has open."""

import os

import pytest

import duramen as dm
from tests.store.support import run_script, sample

forking = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs os.fork")


FORK = """
import os, sys
import numpy as np
import duramen as dm
from tests.store.life import make

path, mode, free = sys.argv[1], sys.argv[2], sys.argv[1] + "-free"
make(free, "tree").close()
X = np.ones((3, 6))
store = dm.open_store(path, read_only=mode == "reader")
if mode == "one of two":
    dm.open_store(path, read_only=True).close()


def tried(**how):
    try:
        dm.open_store(path, **how).close()
    except (RuntimeError, dm.StoreLockedError) as error:
        return type(error).__name__ + (" spawn" if "spawn" in str(error) else "")
    return "opened"


def child():
    print(tried(read_only=True), flush=True)
    print(tried(), flush=True)
    with dm.open_store(free) as other:  # which was not open
        other.insert(X)
        print(len(other), flush=True)


r, w = os.pipe()
pid = os.fork()
if not pid:
    try:
        os.read(r, 1)
        child()
        below = os.fork()
        if not below:
            child()
            os._exit(0)
        os._exit(os.waitstatus_to_exitcode(os.waitpid(below, 0)[1]))
    finally:
        os._exit(9)
if mode == "closed since":
    store.close()
os.write(w, b"x")
assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
if mode in ("writer", "one of two"):
    store.insert(X)
store.close()
pid = os.fork()  # now that it is closed
if not pid:
    with dm.open_store(path) as store:
        store.insert(X)
        store.check()
    os._exit(0)
assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
"""


@forking
@pytest.mark.parametrize("mode", sample("writer", slow=("reader", "one of two", "closed since")))
def test_a_forked_process_cannot_open_what_was_open(mode, path):
    """SQLite believed in locks that were the parent's: rows that had been acknowledged were lost."""
    printed, code, errors = run_script(path.parent, FORK, path, mode)
    assert code == 0, errors
    refused = ["RuntimeError spawn"] * 2
    assert printed == [*refused, "3", *refused, "6"]
    with dm.open_store(path) as store:
        assert len(store) == 80 + (6 if mode in ("writer", "one of two") else 3)
        assert store.check()


SPAWN = """
import multiprocessing, sys
import numpy as np
import duramen as dm


def work(path, inserted, closed):
    with dm.open_store(path) as store:
        store.insert(np.ones((100, 6)))
        inserted.set()
        assert closed.wait(30)
        store.insert(np.ones((1000, 6)))


if __name__ == "__main__":
    context = multiprocessing.get_context(sys.argv[2])
    reader = dm.open_store(sys.argv[1], read_only=True)
    inserted, closed = context.Event(), context.Event()
    child = context.Process(target=work, args=(sys.argv[1], inserted, closed))
    child.start()
    assert inserted.wait(30)
    print(reader.refresh(), len(reader))
    reader.close()
    closed.set()
    child.join(30)
    print(child.exitcode)
"""


@forking
@pytest.mark.parametrize("way", sample("spawn", slow=("forkserver",)))
def test_a_process_that_was_spawned_can(way, path):
    printed, code, errors = run_script(path.parent, SPAWN, path, way)
    assert (printed, code) == (["True 180", "0"], 0), errors
    with dm.open_store(path) as store:
        assert len(store) == 1180
        assert store.check()


USE = """
import gc, os, sys
import numpy as np
import duramen as dm

path, X = sys.argv[1], np.ones((3, 6))
store = dm.open_store(path)
reader = dm.open_store(path, read_only=True)
pid = os.fork()
if not pid:
    for what in (lambda: store.insert(X), lambda: len(store), lambda: store.coreset(), lambda: store.delete(0),
                 lambda: store.transaction().__enter__(), lambda: store.check(), lambda: store.compact(),
                 lambda: store.refresh(), lambda: reader.refresh(), lambda: store.notes):
        try:
            what()
        except RuntimeError as error:
            assert "before this process was forked" in str(error)
        else:
            os._exit(3)
    store.close()
    del store, reader
    gc.collect()
    sys.exit(0)  # with all that Python does at the end
assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
for one in range(5):
    store.insert(X)
    store.delete(one)
assert reader.refresh() and len(reader) == 90
store.check()
try:
    dm.open_store(path)
except dm.StoreLockedError:
    print("kept")
reader.close()
store.close()
"""


@forking
def test_a_fork_can_neither_use_nor_unlock_the_store_of_its_parent(path):
    printed, code, errors = run_script(path.parent, USE, path)
    assert (printed, code) == (["kept"], 0), errors
    with dm.open_store(path) as store:
        assert len(store) == 90
        assert store.check()
