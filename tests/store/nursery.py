"""A process that forks others, so that one that is to be killed starts in milliseconds; and how it is led.

Run as a program, it reads orders, one a line, and forks a child for each, which says what it has done as
soon as it has. It has one thread itself, and no store open: so there is nothing that a fork would cut off.

A script is run hundreds of times, up to one moment after another. What a run spends most of its time on is the
search for anchors, which touches no file and is a function of its arguments: so the nursery rehearses each script
once, and children find its anchors remembered.
"""

from __future__ import annotations

import ctypes
import errno
import json
import os
import pickle
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
import traceback
from pathlib import Path
from typing import NamedTuple

import duramen as dm
from duramen.dynamic import state
from tests.store.life import held, make, perform
from tests.store.support import ROOT


def say(*words):
    os.write(1, (" ".join(map(str, words)) + "\n").encode())


def live(order):
    """Do operations for ever, or ``most`` of them, and acknowledge each."""
    life = pickle.loads(Path(order["life"]).read_bytes())
    store = dm.open_store(order["path"], synchronous=order.get("synchronous", "full"))
    say("open", life.k)
    while life.k < order.get("most", 10**9):
        steps = life.plan()
        perform(steps, store)
        life = life.took(steps)
        say("ack", life.k)
    say("done", 0)
    signal.pause()


def armed(order, n, mode):
    """Make the disk fail at its n-th call from now on."""
    disk = ctypes.CDLL(None)
    disk.power_kinds.restype = ctypes.c_char_p
    disk.power_arm(
        order["path"].encode(), ctypes.c_long(n), ctypes.c_int(mode), ctypes.c_ulong(order["seed"])
    )
    return disk


def tried(order):
    """Check whether SQLite's calls can be intercepted."""
    disk = armed(order, -1, 0)
    connection = sqlite3.connect(order["path"])
    connection.execute("CREATE TABLE a (b)")
    connection.close()
    say("calls", disk.power_kinds().decode() or "-")


def begun(order):
    """Make the store, or open the one that is there."""
    more = {"synchronous": order.get("synchronous", "full")}
    if order["create"]:
        return make(order["path"], order["kind"], **more)
    return dm.open_store(order["path"], **more)


def script(order):
    """Do given operations on a disk that fails at a given call, and acknowledge each."""
    steps = pickle.loads(Path(order["script"]).read_bytes())
    disk = armed(order, order["n"], order["mode"])
    store = begun(order)
    say("ack", 0)
    for k, step in enumerate(steps):
        perform(step, store)
        say("ack", k + 1)
    store.close()
    say("calls", disk.power_kinds().decode())


def remember_anchors():
    """Search for an anchor once for each problem and each set of points."""
    search, found = state.find_view, {}

    def find_view(settings, sample, *numbers):
        data = (sample.X, sample.y, sample.weights, sample.ids)
        problem = pickle.dumps((repr(settings), data, settings.given, numbers))
        if problem not in found:
            found[problem] = search(settings, sample, *numbers)
        return found[problem]

    state.find_view = find_view


def rehearse(order):
    """Do the operations of a script on a copy of the files that it begins with, on a disk that does not fail."""
    with tempfile.TemporaryDirectory() as folder:
        here = shutil.copytree(Path(order["path"]).parent, Path(folder) / "here")
        store = begun({**order, "path": str(here / Path(order["path"]).name)})
        for step in pickle.loads(Path(order["script"]).read_bytes()):
            perform(step, store)
        store.close()


def full(order):
    """Do given operations on a disk that is full from a given call on, until one has failed; then go on."""
    steps, failed, store = pickle.loads(Path(order["script"]).read_bytes()), [], None
    armed(order, order["n"], 5)

    def expect_no_space(what, error):
        assert isinstance(error, OSError), repr(error)
        assert error.errno == errno.ENOSPC or (what, error.errno) == ("open", errno.EIO), repr(error)
        failed.append(what)
        armed(order, -1, 0)

    try:
        store = begun(order)
    except Exception as error:
        expect_no_space("open", error)
        store = begun(order)
    for step in steps:
        before, error = held(store), None
        try:
            perform(step, store)
        except Exception as raised:
            error = raised
        if error is not None:
            expect_no_space(step[0].what, error)
            assert held(store) == before, f"{step[0].what} raised {error!r}, and changed something"
            store.check()
            perform(step, store)
    try:
        store.close()
    except Exception as error:
        expect_no_space("close", error)
    store.close()
    say("failed", "".join(failed) or "-")


def hold(order):
    """Open a store, and wait to be killed."""
    store = dm.open_store(order["path"], read_only=order.get("read_only", False))
    if order.get("reading"):
        store._file.begin()
        assert not store._file._connection.is_blank
    say("open", len(store))
    signal.pause()


def watch(order):
    """Read again and again while another process writes, and say what is seen."""
    seen = pickle.loads(Path(order["states"]).read_bytes())
    store, at, n = dm.open_store(order["path"], read_only=True), 0, 0
    say("open", 0)
    while at < len(seen) - 1:
        store.refresh()
        now = held(store)
        store.check_invariants()
        later = [k for k in range(at, len(seen)) if seen[k] == now]
        assert later, f"what is seen is not a state after {at}"
        at, n = later[0], n + 1
    store.close()
    say("looks", n)


def powerless(order):
    """As a user who may write nothing: what opening a store says, and reading it."""
    if not os.geteuid():
        os.setgid(65534)
        os.setuid(65534)

    def outcome(call):
        try:
            return call()
        except Exception as error:
            return [type(error).__name__, str(error)]

    def read():
        with dm.open_store(order["path"], read_only=True) as store:
            store.check()
            return len(store)

    def write():
        with dm.open_store(order["path"]) as store:
            store.delete(0)

    def back_up():
        with dm.open_store(order["path"], read_only=True) as store:
            store.backup(order["path"] + "-copy")

    found = {
        "write": outcome(write),
        "make": outcome(lambda: make(order["path"] + "-new", "tree").close()),
        "read": outcome(read),
        "backup": outcome(back_up),
        "files": sorted(file.name for file in Path(order["path"]).parent.iterdir()),
    }
    say("found", json.dumps(found).encode().hex())


ORDERS = {one.__name__: one for one in (live, tried, script, full, hold, watch, powerless)}


def main():
    remember_anchors()
    rehearsed = set()
    say("ready")
    for line in sys.stdin:
        order = json.loads(line)
        if "script" in order and order["script"] not in rehearsed:
            rehearse(order)
            rehearsed.add(order["script"])
        pid = os.fork()
        if not pid:
            code = 1
            try:
                ORDERS[order["do"]](order)
                code = 0
            except BaseException:
                traceback.print_exc()
                sys.stderr.flush()
            finally:
                os._exit(code)
        say("pid", pid)
        _, status = os.waitpid(pid, 0)
        say("end", os.waitstatus_to_exitcode(status))


class Ended(NamedTuple):
    """What a child said, by its first word the last that followed, and how it ended."""

    said: dict[str, str]
    code: int

    @property
    def acknowledged(self):
        return int(self.said.get("ack", -1))


class Nursery:
    """Leads such a process."""

    def __init__(self, folder, **environment):
        self._said = {}
        self._errors = (folder / f"errors-{os.urandom(4).hex()}").open("w+b")
        single = dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "DURAMEN_NUM_THREADS"), "1")
        where = os.pathsep.join((str(ROOT), str(Path(dm.__file__).parents[1])))  # this duramen, no other
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.store.nursery"],
            cwd=ROOT,
            env={**os.environ, **single, "PYTHONPATH": where, **environment},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
        )
        assert self._heard()[0] == "ready", self.errors()

    def _heard(self):
        return [*self._process.stdout.readline().decode().split(), "", ""][:2]

    def errors(self):
        self._errors.seek(0)
        return self._errors.read().decode()

    def start(self, **order):
        """Start a child; returns its process id."""
        self._process.stdin.write(json.dumps(order).encode() + b"\n")
        self._process.stdin.flush()
        self._said = {}
        return int(self.wait("pid"))

    def wait(self, word):
        """Wait until a child says a word; returns the one after it."""
        while word not in self._said:
            what, value = self._heard()
            assert what, f"the child has ended: {self.errors()}"
            self._said[what] = value
            assert what != "end" or word == "end", f"the child has ended: {self.errors()}"
        return self._said[word]

    def end(self):
        """Wait for the child's end."""
        code = int(self.wait("end"))
        return Ended(self._said, code)

    def run(self, **order):
        self.start(**order)
        return self.end()

    def killed(self, heard, after, **order):
        """Run a child, and kill it so many seconds after it has said so many words."""
        pid = self.start(**order)
        for _ in range(heard):
            what, value = self._heard()
            assert what != "end", f"the child has ended: {self.errors()}"
            self._said[what] = value
        time.sleep(after)
        os.kill(pid, signal.SIGKILL)
        return self.end()

    def close(self):
        if "pid" in self._said and "end" not in self._said:  # a test failed, and left a child
            os.kill(int(self._said["pid"]), signal.SIGKILL)
        self._process.stdin.close()
        self._process.wait(30)
        self._process.stdout.close()
        self._errors.close()


if __name__ == "__main__":
    main()
