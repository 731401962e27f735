"""One writer per store: a lock that the system lifts when its holder ends, also across forks."""

from __future__ import annotations

import errno
import json
import os
import socket
import sys
import threading
import weakref
from collections import Counter
from contextlib import suppress
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, final

from duramen.store.errors import StoreLockedError

__all__ = ["WriterLock", "closed", "is_at", "is_open", "now", "opened", "refuse_inherited"]


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


if sys.platform == "win32":  # pragma: no cover
    import msvcrt

    _FAR = 1 << 30  # Windows keeps others from reading what is locked: so lock a byte beyond the text

    def _take(handle: int) -> None:
        os.lseek(handle, _FAR, os.SEEK_SET)
        msvcrt.locking(handle, msvcrt.LK_NBLCK, 1)
else:
    import fcntl

    def _take(handle: int) -> None:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)


def now() -> str:
    """Say when it is: in UTC, to the second."""
    return datetime.now(timezone.utc).isoformat(timespec="seconds")


@final
class WriterLock:
    """The right to write, held until :meth:`release` or the end of the process, be it ``kill -9``.

    Parameters
    ----------
    path : Path
        Of the store; the lock is a file of that name and ``-lock``, removed at the end.

    Raises
    ------
    StoreLockedError
        Naming the holder.
    """

    def __init__(self, path: Path) -> None:
        self._store = path
        self._path = path.with_name(f"{path.name}-lock")
        self._handle: int | None = self._taken()
        text = json.dumps({"pid": os.getpid(), "host": socket.gethostname(), "since": now()})
        with suppress(OSError):  # a full disk: the lock holds without a name, too
            os.ftruncate(self._handle, 0)
            os.lseek(self._handle, 0, os.SEEK_SET)
            os.write(self._handle, text.encode())
        _held.add(self)

    def _taken(self) -> int:
        """Open the file and lock it; again, if its last holder removed it in between."""
        while True:
            handle = self._opened()
            try:
                _take(handle)
            except OSError as error:
                holder = self._holder()
                os.close(handle)
                raise StoreLockedError(
                    errno.EAGAIN,
                    f"{holder} has it open for writing; close it there first, or open it with read_only=True",
                    str(self._store),
                ) from error
            if self._is_there(handle):
                return handle
            os.close(handle)

    def _opened(self) -> int:
        """Open the file; one that another user left behind can be locked, if not written to."""
        try:
            return os.open(self._path, os.O_RDWR | os.O_CREAT, 0o666)
        except PermissionError as error:
            with suppress(OSError):
                return os.open(self._path, os.O_RDONLY)
            raise PermissionError(
                errno.EACCES,
                "nothing can be written beside it; change the permissions of its folder, or open it with "
                "read_only=True",
                str(self._store),
            ) from error

    def _is_there(self, handle: int) -> bool:
        try:
            return os.path.samestat(os.fstat(handle), self._path.stat())
        except FileNotFoundError:
            return False

    def _holder(self) -> str:
        try:
            said: Any = json.loads(self._path.read_text())
            pid, host, since = int(said["pid"]), str(said["host"]), str(said["since"])
        except (OSError, ValueError, KeyError, TypeError):
            return "another process"
        mine = pid == os.getpid() and host == socket.gethostname()
        return f"{'this process' if mine else 'process'} {pid} on {host}, since {since},"

    def release(self) -> None:
        """Let others write."""
        if self._handle is not None:
            if sys.platform == "win32":  # pragma: no cover  (where what is open cannot be removed)
                self._let_go()
            with suppress(OSError):
                self._path.unlink(missing_ok=True)
            self._let_go()

    def _let_go(self) -> None:
        """Close the file only: in a forked process, where the lock is the parent's."""
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None


_held: weakref.WeakSet[WriterLock] = weakref.WeakSet()


def _after_fork_lock() -> None:
    for lock in list(_held):
        lock._let_go()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork_lock)
