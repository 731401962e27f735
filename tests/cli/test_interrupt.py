"""Ctrl-C: no interrupt is lost; while rows are inserted, whole batches are, and one can continue."""

import os
import re
import signal
import subprocess
import time

import pytest

from duramen.cli import commands as read
from duramen.cli.output import check_interrupt, defer_interrupts, note_interrupts
from duramen.store import open_store
from tests.cli.conftest import LEARN, SMALL
from tests.cli.running import COMMAND, process, table
from tests.io.files import write

pytestmark = pytest.mark.skipif(os.name == "nt", reason="signals as on POSIX")
BATCH = 20


@pytest.fixture(autouse=True)
def _signals_as_on_a_terminal():
    """Let Ctrl-C interrupt, here and in child processes, also where the tests run in the background."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture
def empty(run, files, tmp_path):
    made = tmp_path / "s.duramen"
    assert run("store", "init", made, *LEARN, *SMALL, "--from", files / "rows.parquet").code == 0
    return made


def insertion(store, source, *more):
    """Start an insertion of many small batches."""
    command = [*COMMAND, "store", "insert", str(store), str(source), "--batch", str(BATCH), *more]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def wait_for_rows(child, store):
    """Wait until some batches are on disk."""
    log, deadline = store.with_name(f"{store.name}-wal"), time.monotonic() + 30
    while time.monotonic() < deadline and child.poll() is None:
        if log.exists() and log.stat().st_size > 50_000:
            return
        time.sleep(0.01)
    raise AssertionError(f"nothing was inserted: {child.communicate()}")


def interrupt(child):
    child.send_signal(signal.SIGINT)
    out, err = child.communicate(timeout=30)
    return child.returncode, out, err


@pytest.mark.slow
def test_whole_batches_are_inserted_and_one_can_continue(empty, run, tmp_path):
    source = write(table(40_000), tmp_path / "many.parquet")
    child = insertion(empty, source)
    wait_for_rows(child, empty)
    code, out, err = interrupt(child)
    assert (code, out) == (130, "")
    line = r"duramen: interrupted; ([\d,]+) rows were inserted before; continue with --skip (\d+)\n"
    found = re.fullmatch(line, err)
    n = int(found[2])
    assert int(found[1].replace(",", "")) == n
    assert 0 < n < 40_000
    assert n % BATCH == 0
    assert run("store", "check", empty).code == 0
    with open_store(empty) as store:
        assert store.n_points == n
        names = set(store.names_of(store.ids))
    assert names == {f"r{number}" for number in range(n)}
    assert process("store", "insert", empty, source, "--skip", n, cwd=tmp_path).code == 0
    with open_store(empty, read_only=True) as store:
        assert store.n_points == 40_000


@pytest.mark.slow
def test_all_or_none(empty, run, tmp_path):
    source = write(table(40_000), tmp_path / "many.parquet")
    child = insertion(empty, source, "--atomic")
    lock = empty.with_name(f"{empty.name}-lock")
    while not lock.exists() and child.poll() is None:
        time.sleep(0.01)
    time.sleep(0.8)
    code, out, err = interrupt(child)
    assert (code, out) == (130, "")
    assert "interrupted" in err
    assert err.count("\n") == 1
    assert run("store", "check", empty).code == 0
    with open_store(empty, read_only=True) as store:
        assert store.n_points == 0


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_an_interrupt_that_python_discards_is_not_lost(files, run, tmp_path, monkeypatch):
    def opened(path, usual=read.open_data):
        class Thing:
            def __del__(self):
                signal.raise_signal(signal.SIGINT)

        Thing()
        return usual(path)

    monkeypatch.setattr(read, "open_data", opened)
    done = run("build", files / "rows.parquet", "-o", tmp_path / "core.parquet", *LEARN, *SMALL)
    assert (done.code, done.out) == (130, "")
    assert not (tmp_path / "core.parquet").exists()
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    monkeypatch.undo()
    assert run("build", files / "rows.parquet", "-o", tmp_path / "core.parquet", *LEARN, *SMALL).code == 0


def test_the_first_interrupt_waits_for_a_check_and_the_second_does_not():
    with note_interrupts(), defer_interrupts():
        signal.raise_signal(signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            check_interrupt()
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
