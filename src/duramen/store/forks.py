"""Files that were open when this process was forked: SQLite must not open them again here.

Its record of open files and their locks is copied by a fork, and then says that
locks are held which are the parent's alone: a commit may go into a log that
the parent has deleted.
"""

from __future__ import annotations

import os
import threading
from collections import Counter
from pathlib import Path

__all__ = ["closed", "is_at", "is_open", "opened", "refuse_inherited"]

_lock = threading.Lock()
_open: Counter[tuple[int, int]] = Counter()
_inherited: set[tuple[int, int]] = set()


def refuse_inherited(path: Path) -> None:
    """Raise RuntimeError if a file was open in the process that this one was forked from."""
    if path.exists() and _key(path) in _inherited:
        raise RuntimeError(
            f"{path} was open when this process was forked, so SQLite cannot open it here; start the process "
            "by spawn or forkserver, or fork before the store is opened"
        )


def opened(path: Path) -> tuple[int, int]:
    """Note that a file is open; give what :func:`closed` takes."""
    key = _key(path)
    with _lock:
        _open[key] += 1
    return key


def closed(key: tuple[int, int]) -> None:
    """Note that a file was closed."""
    with _lock:
        _open[key] -= 1
        if _open[key] <= 0:
            del _open[key]


def is_open(path: Path) -> bool:
    """Tell whether a file is open in this process."""
    return _key(path) in _open


def is_at(key: tuple[int, int], path: Path) -> bool:
    """Tell whether a file is still where it was opened."""
    try:
        return _key(path) == key
    except FileNotFoundError:
        return False


def _key(path: Path) -> tuple[int, int]:
    found = path.stat()
    return found.st_dev, found.st_ino


def _after_fork() -> None:
    global _lock
    _lock = threading.Lock()  # a thread of the parent may have held it
    _inherited.update(_open)
    _open.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
