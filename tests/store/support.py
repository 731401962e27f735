"""What tests of the store share: rows, processes that run a script, and the search for what was deleted."""

from __future__ import annotations

import gc
import os
import sqlite3
import subprocess
import sys
import types
from pathlib import Path

import numpy as np
import pytest

import duramen as dm


def sample(*quick, slow=()):
    """Return parameters of a test: a few for every run, and those of the second tier."""
    return [*quick, *(pytest.param(one, marks=pytest.mark.slow) for one in slow)]


ROOT = Path(__file__).resolve().parents[2]
X = np.random.default_rng(0).normal(size=(300, 6))
MARK = np.random.default_rng(1).normal(size=6)  # a row whose bytes are unique


class LeftError(Exception):
    """Leaves a block."""


def files(folder):
    return sorted(file.name for file in folder.iterdir())


def start_script(folder, text, *arguments):
    """Start a process that runs a script, with a pipe both ways."""
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


def run_script(folder, text, *arguments):
    """Return what a script prints, line by line, its exit code and its errors."""
    process = start_script(folder, text, *arguments)
    try:
        printed, errors = process.communicate(timeout=60)
    except subprocess.TimeoutExpired:
        process.kill()
        raise
    return printed.splitlines(), process.returncode, errors


_PASSED_BY = (
    type,
    types.ModuleType,
    types.FunctionType,
    types.BuiltinFunctionType,
    types.CodeType,
    types.FrameType,
)


def found_in(data, patterns, step=1):
    """Return those of the patterns, of eight bytes or more, whose beginning is somewhere in the data: 16 bytes of it."""
    by_start = {int.from_bytes(one[:8], "little"): one for one in patterns}
    likely, found = np.zeros(1 << 16, dtype=bool), []
    likely[np.array(list(by_start), dtype=np.uint64) & np.uint64(0xFFFF)] = True
    for shift in range(0, min(8, len(data)), step):
        words = np.frombuffer(data, "<u8", (len(data) - shift) // 8, shift)
        for word in np.flatnonzero(likely[words & np.uint64(0xFFFF)]).tolist():
            one = by_start.get(int(words[word]))
            if one is not None and data.startswith(one[:16], shift + 8 * word):
                found.append(one)
    return found


def left_in_files(folder, patterns):
    """Return what is left in any file: pairs of the file's name and the pattern."""
    return [
        (path.name, one) for path in sorted(folder.iterdir()) for one in found_in(path.read_bytes(), patterns)
    ]


def left_in_arrays(root, patterns):
    """Return what is left in the buffer of any array that can be reached from an object; numbers stand aligned."""
    arrays = list(_arrays(root))
    assert len(arrays) > 2
    return [one for array in arrays for one in found_in(array.tobytes(), patterns, 8)]


def _arrays(root):
    seen, waiting = set(), [root]
    while waiting:
        one = waiting.pop()
        if id(one) in seen or isinstance(one, _PASSED_BY):
            continue
        seen.add(id(one))
        if isinstance(one, np.ndarray):
            if one.base is None:
                yield one
            else:
                waiting.append(one.base)
        waiting.extend(gc.get_referents(one))


def ids_in_tables(path):
    """Return all whole numbers in all tables, by table."""
    with sqlite3.connect(f"file:{path}?mode=ro", uri=True) as connection:
        tables = [
            name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
        ]
        rows = {name: connection.execute(f"SELECT * FROM {name}").fetchall() for name in tables}
    connection.close()
    return {name: {one for row in some for one in row if isinstance(one, int)} for name, some in rows.items()}
