"""No space left, or no right to write: a clear error, nothing changed, and all is well once there is some."""

import errno
import json
import os
import sqlite3
from pathlib import Path

import numpy as np
import pytest

import duramen as dm
from duramen.store.connection import store_errors
from tests.store.life import assert_alike, held, make, opened, order, scripts_of

X = np.random.default_rng(0).normal(size=(4000, 6))


@pytest.fixture(scope="module")
def scripts(tmp_path_factory):
    return scripts_of("ranked, names", tmp_path_factory.mktemp("scripts"))


@pytest.mark.slow
@pytest.mark.parametrize("which", ["begun", "later"])
def test_a_disk_that_is_full_from_any_write_on_loses_nothing(which, scripts, weak, tmp_path):
    """Until an operation has failed: it changed nothing; then there is space, and it is done again."""
    script, failed, wrong = scripts[1][which], set(), []
    calls = weak.run(**order(scripts, which, tmp_path / "whole")).said["calls"]
    writes = [n for n, call in enumerate(calls, 1) if call == "w"]
    for n in [*writes[:10], *writes[10::6]]:
        task = order(scripts, which, tmp_path / str(n), n=n, do="full")
        ended = weak.run(**task)
        if ended.code:
            wrong.append(f"at call {n}: {weak.errors()[-600:]}")
            continue
        failed.add(ended.said["failed"])
        with opened(task["path"], script, which) as store:
            assert store.check()
            assert held(store) == script.lives[-1].held()
            assert_alike(store, script.cores[-1])
    assert not wrong, f"{len(wrong)} wrong, {wrong[0]}"
    assert failed >= ({"open", "insert"} if which == "begun" else {"insert", "delete", "update"})


def no_space(call):
    """Call it, and see that it says that the disk is full."""
    with pytest.raises(OSError, match="disk is full, and nothing was changed; free some space") as caught:
        call()
    assert caught.value.errno == errno.ENOSPC


@pytest.mark.parametrize("has_code", [True, False], ids=["code", "text"])  # Python 3.10 has no codes
@pytest.mark.parametrize(
    ("text", "code", "kind", "number"),
    [
        ("database is locked", 517, dm.StoreLockedError, errno.EAGAIN),  # the last: SQLITE_BUSY_SNAPSHOT
        ("database table is locked", 6, dm.StoreLockedError, errno.EAGAIN),
        ("attempt to write a readonly database", 1032, PermissionError, errno.EACCES),
        ("unable to open database file", 14, PermissionError, errno.EACCES),
        ("disk I/O error", 522, OSError, errno.EIO),
        ("database or disk is full", 13, OSError, errno.ENOSPC),
        ("file is not a database", 26, dm.DamagedStoreError, None),
        ("database disk image is malformed", 11, dm.DamagedStoreError, None),
    ],
)
def test_errors_of_sqlite_are_recognised_by_their_codes(text, code, kind, number, has_code):
    error = sqlite3.OperationalError(
        text if not has_code else "the table 'disk is full, locked' is read-only"
    )
    if has_code:
        error.sqlite_errorcode = code
    with pytest.raises(kind) as caught, store_errors(Path("a.duramen")):
        raise error
    assert getattr(caught.value, "errno", None) == number
    assert "a.duramen" in str(caught.value)


def in_a_transaction(store):
    with store.transaction():
        store.delete(range(5))
        store.insert(X)


CHANGES = {
    "insert": lambda store: store.insert(X),
    "transaction": in_a_transaction,
    "note": lambda store: store.note("long", "x" * 300_000),
}


@pytest.mark.parametrize("what", CHANGES)
def test_a_file_that_may_not_grow_refuses_and_goes_on(what, tmp_path):
    path = tmp_path / "a.duramen"
    with make(path, "tree") as store:
        store.insert(X[:60])
        before = held(store)
        pages = store._file._connection.execute("PRAGMA page_count").fetchone()[0]
        store._file._connection.execute(f"PRAGMA max_page_count = {pages + 1}").fetchone()
        no_space(lambda: CHANGES[what](store))
        assert held(store) == before
        assert store.check()
        store._file._connection.execute("PRAGMA max_page_count = 1000000").fetchone()
        CHANGES[what](store)
        assert store.check()
        now = held(store)
    with dm.open_store(path) as store:
        assert held(store) == now != before


@pytest.fixture
def public(tmp_path):
    """A folder that others may look into."""
    tmp_path.chmod(0o755)
    if not os.access(tmp_path.parent, os.X_OK) or tmp_path.parent.stat().st_mode & 5 != 5:
        pytest.skip("no folder that everybody sees")
    folder = tmp_path / "public"
    folder.mkdir()
    return folder


@pytest.mark.parametrize("folder, file", [(0o555, 0o666), (0o555, 0o444), (0o777, 0o444)])
def test_where_nothing_may_be_written_it_can_be_read(folder, file, public, nursery):
    path = public / "a.duramen"
    with make(path, "tree") as store:
        store.insert(X[:60])
    path.chmod(file)
    public.chmod(folder)
    ended = nursery.run(do="powerless", path=str(path))
    assert ended.code == 0, nursery.errors()
    found = json.loads(bytes.fromhex(ended.said["found"]))
    assert found["read"] == 60
    assert found["write"][0] == "PermissionError"
    assert "read_only=True" in found["write"][1]
    if folder == 0o555:
        assert found["make"][0] == "PermissionError"
        assert found["backup"][0] == "PermissionError"
        assert "is not writable; choose another" in found["backup"][1]
        assert found["files"] == ["a.duramen"]
    public.chmod(0o755)
    with dm.open_store(path) as store:
        assert len(store) == 60
        assert store.check()
