"""What was deleted or overwritten is nowhere any more: in no file of the store, in no table, in no array.

Rows, labels and weights are gone when delete() or update() returns; while a reader
reads, the log may keep them, until compact(). Names and ids are gone from the tables
at once; copies of them that SQLite left between records, when it moved those from
page to page, are gone after compact(). Every number of a row, its label, its weight,
its name and its id are eight random bytes or more, which are looked for everywhere.
"""

import contextlib
import os
import shutil
import signal
from pathlib import Path

import numpy as np
import pytest

import duramen as dm
from tests.store.support import (
    MARK,
    LeftError,
    X,
    files,
    found_in,
    ids_in_tables,
    left_in_arrays,
    left_in_files,
    run_script,
    sample,
)
from tests.support import quietly

TREE = {"engine": "tree", "bucket_size": 16, "sampler": "uniform"}


class Schedule:
    """Rows that come and go by chance, and the bytes of all that should be forgotten."""

    def __init__(self, folder, seed, **more):
        rng = self.rng = np.random.default_rng(seed)
        self.folder, self.path = folder, folder / "data.duramen"
        self.named, self.width = bool(rng.integers(2)), int(rng.choice([2, 4, 30, 600]))
        settings = {"loss": dm.SquaredLoss(), "size": int(rng.choice([20, 5000])), "n_outliers": 0.05}
        settings |= TREE if rng.random() < 0.3 else {}
        self.store = dm.open_store(
            self.path, create=True, random_state=1, synchronous="normal", **{**settings, **more}
        )
        self.here: dict[int, list[bytes]] = {}
        self.gone: list[bytes] = []
        self.ids: set[bytes] = set()

    def rows(self, n):
        rng = self.rng
        return rng.normal(size=(n, self.width)), rng.normal(size=n), rng.uniform(1, 2, size=n)

    def insert(self, n):
        X, y, weights = self.rows(n)
        if self.named:
            ids = [self.rng.bytes(int(self.rng.integers(6, 30))).hex() for _ in range(n)]
        else:
            ids = self.rng.integers(2**40, 2**62, size=n)
        numbers = quietly(self.store.insert, X, y, weights, ids).tolist()
        for row, number in enumerate(numbers):
            marks = [number.to_bytes(8, order, signed=True) for order in ("big", "little")]
            marks += [ids[row].encode()] if self.named else []
            self.ids.update(marks)
            self.here[number] = _marks(X[row], y[row], weights[row]) + marks

    def some(self, n):
        rng, here = self.rng, sorted(self.here)
        n = min(n if rng.random() < 0.8 else len(here), len(here))
        return np.array(here[:n]) if rng.random() < 0.3 else rng.choice(here, size=n, replace=False)

    def delete(self, ids):
        self.store.delete(ids)
        for one in ids.tolist():
            self.gone += self.here.pop(one)

    def update(self, ids):
        X, y, weights = self.rows(len(ids))
        quietly(self.store.update, ids, X, y, weights)
        for row, one in enumerate(ids.tolist()):
            self.gone += self.here[one][:4]
            self.here[one][:4] = _marks(X[row], y[row], weights[row])

    def step(self):
        rng = self.rng
        what, n = rng.integers(10), int(rng.choice([1, 1, 1, 3, 30, 100, 300]))
        n = min(n, 30) if self.width > 100 else n
        if what < 4 or not self.here:
            self.insert(n)
        elif what < 8:
            self.delete(self.some(n))
        elif what == 8:
            self.update(self.some(n))
        elif rng.random() < 0.5:
            self.store.close()
            self.store = dm.open_store(self.path, synchronous="normal")
        else:
            self.store.set_outliers(float(rng.choice([0, 0.02, 0.1])))

    def assert_forgotten(self, *, names=False):
        """Check that rows, labels and weights are nowhere; and names and ids, if asked."""
        content = [mark for mark in self.gone if mark not in self.ids]
        assert left_in_files(self.folder, self.gone if names else content) == []
        assert left_in_arrays(self.store, content) == []  # an anchor in memory has the ids of its sample


def _marks(row, label, weight):
    return [row[0].tobytes(), row[-1].tobytes(), label.tobytes(), weight.tobytes()]


def test_the_search_finds_what_is_there(tmp_path):
    life = Schedule(tmp_path, 0)
    life.insert(30)
    there = [mark for marks in life.here.values() for mark in marks if len(mark) == 8]
    rows = {marks[0] for marks in life.here.values()}
    assert rows <= {one for _, one in left_in_files(tmp_path, there)}
    assert rows <= set(left_in_arrays(life.store, there))
    assert found_in(b"123abcdefghij4", [b"abcdefghij"]) == [b"abcdefghij"]
    assert found_in(b"", [b"abcdefgh"]) == []


@pytest.mark.parametrize("seed", sample(0, 1, slow=range(2, 8)))
def test_rows_that_come_and_go_in_any_order(tmp_path, seed):
    life = Schedule(tmp_path, seed)
    for step in range(50):
        life.step()
        if step % 7 == 0:
            life.assert_forgotten()
    life.assert_forgotten()
    life.store.compact()
    life.assert_forgotten(names=True)
    life.store.close()
    assert left_in_files(tmp_path, life.gone) == []


@pytest.mark.parametrize("seed", sample(0, slow=range(1, 6)))
@pytest.mark.parametrize("when", ["at once", "after compact()"])
def test_pages_that_split_and_are_joined_keep_no_copies(tmp_path, seed, when):
    """Rows of many pages, taken out one by one and in batches: what moved from page to page is gone, too."""
    life = Schedule(tmp_path, 100 + seed, size=5000)
    life.named, life.width = bool(seed % 2), (4, 4, 60, 600)[seed % 4]
    for _ in range(6):
        with life.store.transaction():
            for _ in range(12):
                life.insert(int(life.rng.choice([1, 5, 60])))
        with life.store.transaction():
            for _ in range(15):
                life.delete(life.some(int(life.rng.choice([1, 5, 40]))))
                if not life.here:
                    break
        if when == "at once":
            life.assert_forgotten()
    life.store.compact()
    life.assert_forgotten(names=True)
    life.store.check()


@pytest.mark.parametrize("seed", sample(1, slow=(2174, 2198, 2254)))
def test_names_that_moved_between_pages(tmp_path, seed):
    """SQLite moves cells when it balances pages, and overwrites what is freed, but not where it was before."""
    life = Schedule(tmp_path, seed, size=50000)
    life.named, life.width = True, 2
    for _ in range(24):
        n = int(life.rng.choice([1, 5, 50, 400]))
        if life.rng.random() < 0.5 or not life.here:
            life.insert(n)
        else:
            life.delete(life.some(n))
    life.assert_forgotten()
    life.store.compact()
    life.assert_forgotten(names=True)


@pytest.mark.parametrize("more", [{}, TREE], ids=["ranked", "tree"])
@pytest.mark.parametrize("named", [False, True], ids=["numbers", "names"])
def test_no_table_has_the_id(tmp_path, more, named):
    life = Schedule(tmp_path, 1, size=20, **more)
    life.named = named
    life.insert(200)
    some = np.array(sorted(life.here)[5:60])
    for table in ("members", "sample", *(["places"] if more else []), *(["names"] if named else [])):
        assert set(some.tolist()) & ids_in_tables(life.path)[table]
    life.delete(some)
    for table, numbers in ids_in_tables(life.path).items():
        assert not set(some.tolist()) & numbers, table
    life.assert_forgotten()


@pytest.mark.parametrize("named", [False, True], ids=["numbers", "names"])
def test_the_audit_keeps_the_id_and_the_time_and_nothing_else(tmp_path, named):
    life = Schedule(tmp_path, 2, audit=True, size=20)
    life.named = named
    life.insert(100)
    some = np.array(sorted(life.here)[5:30])
    shown = life.store.names_of(some).tolist() if named else some.tolist()
    kept = [mark for one in some.tolist() for mark in life.here[one][6 if named else 4 :]]
    life.delete(some)
    forgotten = life.store.forgotten
    assert [one for one, _ in forgotten] == shown
    assert all(len(time) == len("2024-01-01T00:00:00+00:00") for _, time in forgotten)
    left = {one for _, one in left_in_files(tmp_path, life.gone)}
    assert left <= set(kept)
    if named:
        assert left == set(kept)
    tables = ids_in_tables(life.path)
    assert not any(set(some.tolist()) & numbers for table, numbers in tables.items() if table != "forgotten")
    life.store.compact()
    assert life.store.forgotten == forgotten


def test_a_weight_that_was_the_heaviest(tmp_path):
    path = tmp_path / "data.duramen"
    X = np.random.default_rng(0).normal(size=(30, 2))
    with dm.open_store(path, create=True, loss=dm.KMeansLoss(2), size=50) as store:
        store.insert(X)
        one = store.insert(X[0], sample_weight=1234.5678901)
        store.delete(one)
        assert b"1234.5678901" not in path.read_bytes()


def test_a_reader_in_between_leaves_nothing(tmp_path):
    life = Schedule(tmp_path, 4, size=20)
    life.insert(60)
    with dm.open_store(life.path, read_only=True) as reader:
        life.delete(life.some(20))
        assert reader.refresh()
        assert reader.ids.tolist() == life.store.ids.tolist()
        life.assert_forgotten()
        assert left_in_arrays(reader, life.gone) == []


@pytest.mark.parametrize("inner", [False, True])
def test_a_transaction_that_was_undone_leaves_nothing_in_the_log(path, monkeypatch, inner):
    """What does not fit into memory is in the log before it is committed; and it stayed there."""
    monkeypatch.setattr("duramen.store.connection._CACHE", 64)  # KiB
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


CRASH = """
import os, signal, sys
import numpy as np
import duramen as dm

store = dm.open_store(sys.argv[1])
store.insert(np.frombuffer(bytes.fromhex(sys.argv[2])), ids=[900])
store._file.empty_log()
store._file.clear_traces = lambda: os.kill(os.getpid(), signal.SIGKILL)
store.delete(900)
"""


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="needs SIGKILL")
def test_a_log_that_a_crash_left_is_emptied_at_opening(path, tmp_path_factory):
    """The row was deleted, and the process killed before the log was emptied: it stayed there."""
    scripts = tmp_path_factory.mktemp("scripts")
    code = run_script(scripts, CRASH, path, MARK.tobytes().hex())[1]
    assert code == -signal.SIGKILL
    assert left_in_files(path.parent, [MARK.tobytes()])
    copies = [Path(shutil.copytree(path.parent, scripts / f"copy-{k}")) for k in range(2)]
    with dm.open_store(path) as store:
        assert left_in_files(path.parent, [MARK.tobytes()]) == []
        assert len(store) == 80
        assert 900 not in store.ids
        assert store.check()
    with dm.open_store(copies[0] / path.name, read_only=True) as reader:  # which a reader need not do
        assert len(reader) == 80
        with dm.open_store(
            copies[0] / path.name
        ) as store:  # beside a reader that is not in the middle of reading
            assert left_in_files(copies[0], [MARK.tobytes()]) == []
            assert store.check()
    dm.open_store(copies[1] / path.name, read_only=True).close()
    assert left_in_files(copies[1], [MARK.tobytes()]) == []
    assert files(copies[1]) == ["a.duramen", "a.duramen-lock"]


def test_a_checkpoint_that_fails_leaves_the_time_to_wait_as_it_was(path, monkeypatch):
    with dm.open_store(path) as store:
        connection = store._file._connection

        def fail(statement):
            raise OSError("the disk is full")

        monkeypatch.setattr(connection, "number", fail)
        with pytest.raises(OSError, match="full"):
            store._file.empty_log(wait=False)
        assert connection.run("PRAGMA busy_timeout") == [(5000,)]
