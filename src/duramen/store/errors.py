"""Errors of a store file, in terms that users know.

ValueError
    DamagedStoreError    the file differs from what was written
OSError
    StoreLockedError     another process is writing
"""

from __future__ import annotations

import errno
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_INCONSISTENT = (AssertionError, AttributeError, IndexError, KeyError, OverflowError, TypeError, ValueError)


class DamagedStoreError(ValueError):
    """The file differs from what was written: bytes were changed or lost outside of this library."""


class StoreLockedError(OSError):
    """Another process, or another part of this one, has the store open for writing."""


def damaged(path: Path, reason: str) -> DamagedStoreError:
    """Return the error for a damaged file, with what to do."""
    return DamagedStoreError(f"{path} is damaged: {reason}; {_way_out(path)}")


def _way_out(path: Path) -> str:
    return (
        f'restore a backup, or try `sqlite3 {path.name} ".recover" | sqlite3 saved.duramen` and then '
        "`duramen store check saved.duramen`"
    )


@contextmanager
def sqlite_errors(path: Path) -> Iterator[None]:
    """Turn SQLite's errors into errors that say what to do."""
    try:
        yield
    except sqlite3.Error as error:
        raise _translate(path, error) from error
    except UnicodeDecodeError as error:  # of text in the file
        raise damaged(path, "it holds text that is not valid UTF-8") from error


@contextmanager
def damage_errors(path: Path) -> Iterator[None]:
    """Turn SQLite's errors, and any that reveal inconsistent content, into such errors."""
    try:
        with sqlite_errors(path):
            yield
    except DamagedStoreError:
        raise
    except _INCONSISTENT as error:
        raise damaged(path, str(error)) from error


_KNOWN = (  # words of SQLite's message, the error raised instead, its number and message
    (
        ("disk is full",),
        OSError,
        errno.ENOSPC,
        "the disk is full, and nothing was changed; free some space and try again",
    ),
    (
        ("readonly", "read-only", "unable to open"),
        PermissionError,
        errno.EACCES,
        "the file or its folder is not writable, and nothing was changed; change the permissions, or open it "
        "with read_only=True",
    ),
    (
        ("locked", "busy"),
        StoreLockedError,
        errno.EAGAIN,
        "another program is writing to the file; wait for it, or stop it",
    ),
    (
        ("disk I/O",),
        OSError,
        errno.EIO,
        "the disk failed (disk I/O error), and nothing was changed; try again",
    ),
)


def _translate(path: Path, error: sqlite3.Error) -> OSError | ValueError:
    no_space = getattr(error, "sqlite_errorname", "") == "SQLITE_IOERR_SHMSIZE"
    text = "disk is full" if no_space else str(error)
    for words, kind, number, message in _KNOWN:
        if any(word in text for word in words):
            return kind(number, message, str(path))
    if "not a database" in text:
        return DamagedStoreError(
            f"{path} is not a store, or its first page is damaged; check the path, {_way_out(path)}"
        )
    return damaged(path, text)
