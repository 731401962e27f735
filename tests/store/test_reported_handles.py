"""Defects that were reported of stores, and of files that are handled twice: each test failed before its mending."""

import contextlib
import subprocess
import sys

import numpy as np
import pytest

import duramen as dm
from duramen.store import recover, recovery
from tests.store.life import make
from tests.store.nursery import ROOT

X = np.random.default_rng(0).normal(size=(300, 6))
LOOK = "import sys; import duramen as dm; print(len(dm.open_store(sys.argv[1], read_only=True)))"


@pytest.fixture
def path(tmp_path):
    with make(tmp_path / "a.duramen", "tree") as store:
        store.insert(X[:80])
    return tmp_path / "a.duramen"


def again(path):
    with dm.open_store(path, read_only=True) as reader:
        reader.check()


def refused(path):
    with pytest.raises(dm.StoreLockedError):
        dm.open_store(path)


def saved(path):
    with contextlib.suppress(ValueError):  # it may be refused, as it is
        assert recover(path, path.with_name("saved")).n_points == 90


@pytest.mark.parametrize("what", [again, refused, saved])
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


@pytest.mark.parametrize("kind", ["text", "copy"])
def test_a_file_that_somebody_puts_where_one_is_being_saved_stays(path, monkeypatch, kind):
    target, plain = path.with_name("new.duramen"), recovery._found

    def meanwhile(content):
        try:
            with target.open("xb") as file:
                file.write(b"mine" if kind == "text" else path.read_bytes())
        except FileExistsError:
            return plain(content)  # it is taken, as everybody can see
        made.append(target.read_bytes())
        return plain(content)

    made = []
    monkeypatch.setattr(recovery, "_found", meanwhile)
    try:
        recover(path, target)
    except (OSError, ValueError):
        assert made
    assert target.exists()
    assert not made or target.read_bytes() == made[0]
