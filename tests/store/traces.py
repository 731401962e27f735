"""Looking for what was deleted: in all files of a folder, in the tables, and in the arrays of a process."""

from __future__ import annotations

import gc
import sqlite3
import types

import numpy as np

_PASSED_BY = (
    type,
    types.ModuleType,
    types.FunctionType,
    types.BuiltinFunctionType,
    types.CodeType,
    types.FrameType,
)


def found_in(data, patterns, step=1):
    """Give those of the patterns, of eight bytes or more, whose first eight bytes are somewhere in the data."""
    by_start = {int.from_bytes(one[:8], "little"): one for one in patterns}
    keys, found = np.array(list(by_start), dtype=np.uint64), []
    likely = np.zeros(1 << 16, dtype=bool)
    likely[keys & np.uint64(0xFFFF)] = True
    for shift in range(0, min(8, len(data)), step):
        words = np.frombuffer(data, "<u8", (len(data) - shift) // 8, shift)
        words = words[likely[words & np.uint64(0xFFFF)]]
        found += [by_start[word] for word in words.tolist() if word in by_start]
    return found


def left_in_files(folder, patterns):
    """Give what is left in any file: pairs of the file's name and the pattern."""
    return [
        (path.name, one) for path in sorted(folder.iterdir()) for one in found_in(path.read_bytes(), patterns)
    ]


def left_in_arrays(root, patterns):
    """Give what is left in the buffer of any array that can be reached from an object; numbers stand aligned."""
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
    """Give all whole numbers in all tables, by table."""
    with sqlite3.connect(f"file:{path}?mode=ro", uri=True) as connection:
        tables = [
            name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
        ]
        rows = {name: connection.execute(f"SELECT * FROM {name}").fetchall() for name in tables}
    connection.close()
    return {name: {one for row in some for one in row if isinstance(one, int)} for name, some in rows.items()}
