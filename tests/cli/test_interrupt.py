"""Ctrl-C while rows go in: the batch is finished, the store is intact, and one can go on."""

import os
import re
import signal
import subprocess
import time

import pytest

from duramen.store import open_store
from tests.cli.conftest import LEARN, SMALL
from tests.cli.running import COMMAND, process, table, write

pytestmark = pytest.mark.skipif(os.name == "nt", reason="signals as on POSIX")
BATCH = 20


@pytest.fixture
def empty(run, files, tmp_path):
    made = tmp_path / "s.duramen"
    assert run("store", "init", made, *LEARN, *SMALL, "--from", files / "rows.parquet").code == 0
    return made


def begun(store, source, *more):
    """Start an insertion of many small batches, and wait until some of them are in."""
    command = [*COMMAND, "store", "insert", str(store), str(source), "--batch", str(BATCH), *more]
    child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    log, deadline = store.with_name(f"{store.name}-wal"), time.monotonic() + 30
    while time.monotonic() < deadline and child.poll() is None:
        if log.exists() and log.stat().st_size > 50_000:
            return child
        time.sleep(0.01)
    raise AssertionError(f"nothing was inserted: {child.communicate()}")


def stopped(child):
    child.send_signal(signal.SIGINT)
    out, err = child.communicate(timeout=30)
    return child.returncode, out, err


def test_whole_batches_are_in_and_one_can_go_on(empty, run, tmp_path):
    source = write(table(40_000), tmp_path / "many.parquet")
    code, out, err = stopped(begun(empty, source))
    assert (code, out) == (130, "")
    told = re.fullmatch(
        r"duramen: interrupted; ([\d,]+) rows were inserted before; to go on: --skip (\d+)\n", err
    )
    n = int(told[2])
    assert int(told[1].replace(",", "")) == n
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


def test_all_or_none(empty, run, tmp_path):
    source = write(table(40_000), tmp_path / "many.parquet")
    child = subprocess.Popen(
        [*COMMAND, "store", "insert", str(empty), str(source), "--batch", str(BATCH), "--atomic"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    lock = empty.with_name(f"{empty.name}-lock")
    while not lock.exists() and child.poll() is None:
        time.sleep(0.01)
    time.sleep(0.8)
    code, out, err = stopped(child)
    assert (code, out) == (130, "")
    assert "interrupted" in err
    assert err.count("\n") == 1
    assert run("store", "check", empty).code == 0
    with open_store(empty, read_only=True) as store:
        assert store.n_points == 0
