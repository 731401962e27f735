"""Transactions: all or nothing, in memory and in the file, however the block ends."""

import contextlib
import gc
import sys
import tempfile
import tracemalloc
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

import duramen as dm
from tests.store.life import Step, held, left, make, on_disk
from tests.store.support import LeftError, X, sample
from tests.support import run_together

WHERE = (str(Path(dm.__file__).parent), contextlib.__file__)


def grown(path, kind="tree", n=60):
    """A store with an anchor."""
    store = make(path, kind)
    names = [f"{one}" for one in range(n)] if "names" in kind else None
    store.insert(X[:n], None if "tree" in kind else (X[:n, 0] > 0) * 1.0, ids=names)
    return store


def test_an_operation_that_is_refused_inside_may_be_caught(tmp_path):
    """It changed nothing, and so the rest of the transaction goes on."""
    with grown(tmp_path / "a.duramen") as store:
        with store.transaction():
            store.delete(0)
            with pytest.raises(KeyError):
                store.delete([1, 999])
            with pytest.raises(ValueError, match="6"):
                store.insert(np.ones((2, 5)))
            with pytest.raises(ValueError, match="id 5"):
                store.insert(X[:2], ids=[300, 5])
            with pytest.raises(TypeError):
                store.note("a", object())
            store.insert(X[0], ids=[77])
        assert store.ids.tolist() == [*range(1, 60), 77]
        assert on_disk(store.path) == held(store)


def test_an_inner_block_that_fails_halfway_undoes_the_whole(tmp_path):
    """There are no half transactions: after that, whatever follows in the outer block is refused."""
    with grown(tmp_path / "a.duramen") as store:
        before = held(store)

        def block():
            with store.transaction():
                store.delete(0)
                with pytest.raises(LeftError):
                    left(store, [Step("delete", ids=[1])])
                assert held(store) == before
                with pytest.raises(RuntimeError, match="was undone"):
                    store.delete(2)

        with pytest.raises(RuntimeError, match="was undone"):
            block()
        assert held(store) == before == on_disk(store.path)
        store.delete(2)
        assert on_disk(store.path) == held(store)


class Interrupt:
    """Ctrl-C at the n-th of the moments where Python looks for it: a function begins, or one in C returned.

    In the library's own code, and in that of ``with``.
    """

    def __init__(self, n):
        self.left = n

    def __enter__(self):
        sys.setprofile(self._happened)

    def __exit__(self, *_):
        sys.setprofile(None)

    def _happened(self, frame, event, _):
        if event in ("call", "c_return") and frame.f_code.co_filename.startswith(WHERE):
            self.left -= 1
            if self.left == 0:
                self.where = f"{event} {Path(frame.f_code.co_filename).name}:{frame.f_lineno}"
                raise KeyboardInterrupt


OPERATIONS = {
    "insert": lambda store: store.insert(X[100], ids=["new"]),
    "insert many": lambda store: store.insert(X[100:110], ids=[f"new {one}" for one in range(10)]),
    "delete": lambda store: store.delete(["3", "4"]),
    "update": lambda store: store.update("3", X[111]),
    "note": lambda store: store.note("a", 1),
    "set_outliers": lambda store: store.set_outliers(4),
    "compact": lambda store: store.compact(),
    "check": lambda store: store.check(),
}


@pytest.mark.filterwarnings(
    "ignore::pytest.PytestUnraisableExceptionWarning"
)  # one that a generator's end takes
@pytest.mark.parametrize("what", sample("delete", slow=[one for one in OPERATIONS if one != "delete"]))
def test_an_interrupt_at_any_moment_leaves_all_or_nothing(what, tmp_path):
    """And a store that either goes on, with the file as it is in memory, or says that it cannot."""
    path, n, wrong = tmp_path / "a.duramen", 0, []
    store = begun(path)
    before = held(store)
    store.close()
    copy = path.read_bytes()
    while True:
        n += 1 + n // 8
        store.close()
        path.write_bytes(copy)
        store = dm.open_store(path)
        trace = Interrupt(n)
        try:
            with trace:
                OPERATIONS[what](store)
        except KeyboardInterrupt:
            pass
        if trace.left > 0:
            break  # it was done before
        where = f"{n}: {getattr(trace, 'where', '')}"
        try:
            there = on_disk(path)
            whole = there == before or there == after(what, before)
            try:
                alike = held(store) == there
                store.check()
                store.insert(X[120], ids=["later"])
                alike = alike and on_disk(path) == held(store)
            except RuntimeError as error:
                alike = "close it and open it again" in str(error)
            if not (whole and alike):
                wrong.append(f"{where}: whole {whole}, memory and file alike {alike}")
        except Exception as error:
            wrong.append(f"{where}: {error!r}")
    store.close()
    assert n > 20
    assert not wrong, "\n".join(wrong)


def begun(path):
    """Make a store with small blocks, for compact() to join."""
    store = grown(path, "tree, names")
    for one in range(60, 66):
        store.insert(X[one], ids=[f"{one}"])
    return store


def after(what, before, known={}):  # noqa: B006
    """What a store holds after the operation."""
    if what not in known:
        with tempfile.TemporaryDirectory() as folder, begun(Path(folder) / "a.duramen") as store:
            OPERATIONS[what](store)
            known[what] = held(store)
    return known[what]


def test_threads_take_turns(tmp_path):
    """Four write in transactions of two operations, one reads: at no time is there half of one."""
    path = tmp_path / "a.duramen"
    store = grown(path)

    def write(start):
        for one in range(start, start + 15):
            with store.transaction():
                store.insert(X[[one, one]], ids=[1000 + 2 * one, 1001 + 2 * one])
                store.delete(1000 + 2 * one)

    def write_all():
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(write, range(60, 120, 15)))

    def read():
        ids = store.ids
        assert not (ids[ids >= 1000] % 2 == 0).any()
        store.coreset()

    run_together(write_all, read)
    assert store.ids.tolist() == [*range(60), *range(1121, 1241, 2)]
    assert store.check()
    there = held(store)
    store.close()
    assert on_disk(path) == there


@pytest.mark.parametrize("how", sample("close", slow=("refresh", "undo")))
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
