"""No space left, or no right to write: a clear error, nothing changed, and all is well once there is some."""

import errno
import json
import os
import shutil
import subprocess
import sys

import numpy as np
import pytest

import duramen as dm
from tests.store.life import assert_equivalent, held, make, opened, order, scripts_of

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
            assert_equivalent(store, script.cores[-1])
    assert not wrong, f"{len(wrong)} wrong, {wrong[0]}"
    assert failed >= ({"open", "insert"} if which == "begun" else {"insert", "delete", "update"})


def no_space(call):
    """Call it, and see that it says that the disk is full."""
    with pytest.raises(OSError, match="disk is full, and nothing was changed; free some space") as caught:
        call()
    assert caught.value.errno == errno.ENOSPC


def in_a_transaction(store):
    with store.transaction():
        store.delete(range(5))
        store.insert(X)


CHANGES = {
    "insert": lambda store: store.insert(X),
    "update": lambda store: store.update(range(60), X[100:160]),
    "delete": lambda store: store.delete(range(40)),
    "transaction": in_a_transaction,
    "note": lambda store: store.note("long", "x" * 300_000),
}


@pytest.mark.parametrize("what", ["insert", "transaction", "note"])
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
def small(tmp_path):
    """A disk of 600 KB."""
    folder = tmp_path / "small"
    folder.mkdir()
    mounts = sys.platform.startswith("linux") and not os.geteuid() and shutil.which("mount")
    if (
        not mounts
        or subprocess.run(
            ["mount", "-t", "tmpfs", "-o", "size=600k", "tmpfs", folder], capture_output=True
        ).returncode
    ):
        pytest.skip("no file system can be mounted here")
    yield folder
    subprocess.run(["umount", folder], check=True)


@pytest.mark.parametrize("what", CHANGES)
def test_a_small_disk_that_fills_up_and_is_freed(what, small):
    path, filler = small / "a.duramen", small / "filler"
    store = make(path, "tree")
    store.insert(X[:60])
    filler.write_bytes(bytes(200_000))
    before = held(store)
    if what in ("update", "delete"):  # the file does not grow, but its log does
        filler.write_bytes(bytes(200_000 + space_left(small) - 8192))
    no_space(lambda: CHANGES[what](store))
    assert held(store) == before
    filler.unlink()
    assert store.check()
    store.insert(X[60:100])
    store.delete(range(10))
    store.compact()
    assert store.check()
    now = held(store)
    store.close()
    with dm.open_store(path) as store:
        assert held(store) == now


def space_left(folder):
    free = os.statvfs(folder)
    return free.f_bavail * free.f_bsize


@pytest.mark.parametrize("left", [0, 4096, 8192, 16384, 40960])
def test_a_store_is_opened_and_made_on_a_full_disk_or_not_at_all(left, small):
    """Once there is space, the same process opens it."""
    path, filler = small / "a.duramen", small / "filler"
    with make(path, "tree") as store:
        store.insert(X[:60])
    filler.write_bytes(bytes(space_left(small) - left))
    for place, opens in (
        (path, lambda: dm.open_store(path)),
        (small / "b", lambda: make(small / "b", "tree")),
    ):
        try:
            opens().close()
        except OSError as error:
            assert error.errno in (errno.ENOSPC, errno.EIO)  # noqa: PT017
        space = filler.read_bytes()
        filler.unlink()
        with opens() as store:
            assert store.check()
            assert len(store) == (60 if place == path else 0)
        filler.write_bytes(space[: space_left(small) - left])


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
