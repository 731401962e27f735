"""Defects that were reported of stores, among several processes: each test failed before its mending."""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pytest

import duramen as dm
from tests.store.life import make
from tests.store.nursery import ROOT
from tests.store.traces import left_in_files

X = np.random.default_rng(0).normal(size=(300, 6))
MARK = np.random.default_rng(1).normal(size=6)
forking = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs os.fork")


@pytest.fixture
def path(tmp_path):
    with make(tmp_path / "a.duramen", "tree") as store:
        store.insert(X[:80])
    return tmp_path / "a.duramen"


def files(folder):
    return sorted(file.name for file in folder.iterdir())


def started(folder, text, *arguments):
    """A process that runs a script, with a pipe both ways."""
    script = folder / f"script-{os.urandom(4).hex()}.py"
    script.write_text(text)
    where = os.pathsep.join((str(ROOT), str(Path(dm.__file__).parents[1])))
    single = dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "DURAMEN_NUM_THREADS"), "1")
    return subprocess.Popen(
        [sys.executable, str(script), *map(str, arguments)],
        cwd=ROOT,
        env={**os.environ, **single, "PYTHONPATH": where},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def run(folder, text, *arguments):
    """What a script prints, line by line, and how it ends."""
    process = started(folder, text, *arguments)
    try:
        printed, errors = process.communicate(timeout=60)
    except subprocess.TimeoutExpired:
        process.kill()
        raise
    return printed.splitlines(), process.returncode, errors


# a forked process

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
    with dm.open_store(free) as other:  # which nobody had open
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
pid = os.fork()  # now that nobody has it open
if not pid:
    with dm.open_store(path) as store:
        store.insert(X)
        store.check()
    os._exit(0)
assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
"""


@forking
@pytest.mark.parametrize("mode", ["reader", "writer", "one of two", "closed since"])
def test_a_forked_process_cannot_open_what_was_open(mode, path):
    """SQLite believed in locks that were the parent's: rows that had been acknowledged were lost."""
    printed, code, errors = run(path.parent, FORK, path, mode)
    assert code == 0, errors
    assert printed == [
        "RuntimeError spawn",
        "RuntimeError spawn",
        "3",
        "RuntimeError spawn",
        "RuntimeError spawn",
        "6",
    ]
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
@pytest.mark.parametrize("way", ["spawn", "forkserver"])
def test_a_process_that_was_started_anew_can(way, path):
    printed, code, errors = run(path.parent, SPAWN, path, way)
    assert (printed, code) == (["True 180", "0"], 0), errors
    with dm.open_store(path) as store:
        assert len(store) == 1180
        assert store.check()


# a reader without rights

NOBODY = """
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
    """It had opened a file that nobody changed, and took that for good."""
    with tempfile.TemporaryDirectory() as made:  # tmp_path is closed to other users
        folder = Path(made)
        path = folder / "a.duramen"
        folder.chmod(0o755)
        with make(path, "tree") as store:
            store.insert(X[:80])
        path.chmod(0o644)
        reader = started(folder, NOBODY, path)

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
            for n in (29, 28):  # now from nobody's file again
                with dm.open_store(path) as store:
                    store.delete(store.ids[0])
                assert says() == f"True {n} False True"
            assert says() == "False 28 False True"
        finally:
            reader.kill()
            reader.communicate()


# the log after a crash

CRASH = """
import os, signal, sys
import numpy as np
import duramen as dm

store = dm.open_store(sys.argv[1])
store.insert(np.frombuffer(bytes.fromhex(sys.argv[2])), ids=[900])
store._file.empty_log()
store._file.sweep = lambda: os.kill(os.getpid(), signal.SIGKILL)
store.delete(900)
"""


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="needs SIGKILL")
def test_a_log_that_a_crash_left_is_emptied_at_opening(path, tmp_path_factory):
    """The row was deleted, and the process killed before the log was emptied: it stayed there."""
    scripts = tmp_path_factory.mktemp("scripts")
    code = run(scripts, CRASH, path, MARK.tobytes().hex())[1]
    assert code == -signal.SIGKILL
    assert left_in_files(path.parent, [MARK.tobytes()])
    copies = [Path(shutil.copytree(path.parent, path.parent.with_name(f"copy-{k}"))) for k in range(2)]
    with dm.open_store(path) as store:
        assert left_in_files(path.parent, [MARK.tobytes()]) == []
        assert len(store) == 80
        assert 900 not in store.ids
        assert store.check()
    with dm.open_store(copies[0] / path.name, read_only=True) as reader:  # which a reader need not do
        assert len(reader) == 80
        with dm.open_store(
            copies[0] / path.name
        ) as store:  # while somebody reads, but is not in the middle of it
            assert left_in_files(copies[0], [MARK.tobytes()]) == []
            assert store.check()
    dm.open_store(copies[1] / path.name, read_only=True).close()
    assert left_in_files(copies[1], [MARK.tobytes()]) == []
    assert files(copies[1]) == ["a.duramen", "a.duramen-lock"]
