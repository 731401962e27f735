"""One writer per store: a lock that the system releases when its process ends, also across forks."""

from __future__ import annotations

import errno
import os
import socket
import sys
import weakref
from contextlib import suppress
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, final

from duramen.store.connection import StoreLockedError

open_files: set[Any] = set()  # each with its ``inode``, and whether it is ``inherited``
_inherited: set[Any] = set()  # files that were open in the parent at a fork


def refuse_inherited(path: Path) -> None:
    """Raise RuntimeError if a file was open in the process that this one was forked from."""
    if inode(path) in _inherited:
        raise RuntimeError(f"{path} was open when this process was forked; start it by spawn or forkserver")


def inode(path: Path) -> tuple[int, int] | None:
    """Return what identifies a file to the system, whatever its name; None if it does not exist."""
    with suppress(FileNotFoundError):
        found = path.stat()
        return found.st_dev, found.st_ino
    return None


if sys.platform == "win32":  # pragma: no cover
    import msvcrt

    _FAR = 1 << 30  # Windows prevents reading locked bytes, so one beyond the text is locked

    def _lock_file(handle: int) -> None:
        os.lseek(handle, _FAR, os.SEEK_SET)
        msvcrt.locking(handle, msvcrt.LK_NBLCK, 1)
else:
    import fcntl

    def _lock_file(handle: int) -> None:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)


def now() -> str:
    """Return the time in UTC, to the second."""
    return datetime.now(timezone.utc).isoformat(timespec="seconds")


@final
class WriterLock:
    """The right to write, by a file beside the store, until :meth:`release` or the end of the process."""

    def __init__(self, path: Path) -> None:
        self._store, self._path = path, path.with_name(f"{path.name}-lock")
        self._holder = f"process {os.getpid()} on {socket.gethostname()},"
        self._handle: int | None = self._acquire()
        with suppress(OSError):  # a full disk: the lock works without the text, too
            self._path.write_text(f"{self._holder} since {now()},")
        _locks.add(self)

    def _acquire(self) -> int:
        """Open the file and lock it; retry if its last holder removed it in between."""
        while True:
            handle = self._open_file()
            try:
                _lock_file(handle)
            except OSError as error:
                os.close(handle)
                reason = (
                    f"{self._other_holder()} has it open for writing; close it there first, or open it with "
                    "read_only=True"
                )
                raise StoreLockedError(errno.EAGAIN, reason, str(self._store)) from error
            with suppress(FileNotFoundError):
                if os.path.samestat(os.fstat(handle), self._path.stat()):
                    return handle
            os.close(handle)

    def _open_file(self) -> int:
        """Open the file; one left behind by another user can be locked, though not written to."""
        try:
            return os.open(self._path, os.O_RDWR | os.O_CREAT, 0o666)
        except PermissionError as error:
            with suppress(OSError):
                return os.open(self._path, os.O_RDONLY)
            advice = "its folder is not writable; change its permissions, or open it with read_only=True"
            raise PermissionError(errno.EACCES, advice, str(self._store)) from error

    def _other_holder(self) -> str:
        with suppress(OSError, ValueError):
            text = self._path.read_text()
            if text.startswith("process "):
                return f"this {text}" if text.startswith(self._holder) else text
        return "another process"

    def release(self) -> None:
        if self._handle is not None:
            if sys.platform == "win32":  # pragma: no cover  (where an open file cannot be removed)
                self._close()
            with suppress(OSError):
                self._path.unlink()
            self._close()

    def _close(self) -> None:
        if self._handle is not None:
            os.close(self._handle)
            self._handle = None


_locks: weakref.WeakSet[WriterLock] = weakref.WeakSet()


def _after_fork() -> None:
    """Mark open files as inherited in a forked process, and leave the locks to the parent."""
    for file in open_files:
        file.inherited = True
        _inherited.add(file.inode)
    open_files.clear()
    for lock in list(_locks):
        lock._close()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
