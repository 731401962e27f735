"""One writer per store: a lock that the system releases when its process ends, also across forks."""

from __future__ import annotations

import errno
import os
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

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


_handles: set[int] = set()  # of the locks that this process holds


@contextmanager
def writer_lock(store: Path) -> Iterator[None]:
    """Hold the right to write, by a file beside the store, until the end of the block or of the process."""
    path = store.with_name(f"{store.name}-lock")
    holder = f"process {os.getpid()} on {socket.gethostname()},"
    handle = _acquire(store, path, holder)
    _handles.add(handle)
    with suppress(OSError):  # a full disk: the lock works without the text, too
        os.ftruncate(handle, 0)
        os.write(handle, f"{holder} since {now()},".encode())
    try:
        yield
    finally:
        if handle in _handles:  # in a process that was forked it is not
            _handles.remove(handle)
            if sys.platform == "win32":  # pragma: no cover  (where an open file cannot be removed)
                os.close(handle)
            with suppress(OSError):
                path.unlink()
            if sys.platform != "win32":
                os.close(handle)


def _acquire(store: Path, path: Path, holder: str) -> int:
    """Open the file of a lock and lock it; retry if its last holder removed it in between."""
    while True:
        handle = _open_file(store, path)
        try:
            _lock_file(handle)
        except OSError as error:
            os.close(handle)
            reason = (
                f"{_other_holder(path, holder)} has it open for writing; close it there first, or open it "
                "with read_only=True"
            )
            raise StoreLockedError(errno.EAGAIN, reason, str(store)) from error
        with suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(handle), path.stat()):
                return handle
        os.close(handle)


def _open_file(store: Path, path: Path) -> int:
    """Open the file of a lock; one left behind by another user can be locked, though not written to."""
    try:
        return os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
    except PermissionError as error:
        with suppress(OSError):
            return os.open(path, os.O_RDONLY)
        advice = "its folder is not writable; change its permissions, or open it with read_only=True"
        raise PermissionError(errno.EACCES, advice, str(store)) from error


def _other_holder(path: Path, holder: str) -> str:
    with suppress(OSError, ValueError):
        text = path.read_text()
        if text.startswith("process "):
            return f"this {text}" if text.startswith(holder) else text
    return "another process"


def _after_fork() -> None:
    """Mark open files as inherited in a forked process, and leave the locks to the parent."""
    for file in open_files:
        file.inherited = True
        _inherited.add(file.inode)
    open_files.clear()
    while _handles:
        os.close(_handles.pop())


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
