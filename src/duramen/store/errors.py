"""What can go wrong with a file, in the user's words.

ValueError
    DamagedStoreError    the file is not what was written
OSError
    StoreLockedError     somebody else is writing
"""

from __future__ import annotations

import errno
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn

__all__ = ["DamagedStoreError", "StoreLockedError", "damaged", "told", "told_of_damage"]


class DamagedStoreError(ValueError):
    """The file is not what was written: bytes were changed or lost outside of this library."""


class StoreLockedError(OSError):
    """Another process, or another part of this one, has the store open for writing."""


def damaged(path: Path, why: str) -> DamagedStoreError:
    """Make the error for a damaged file, with the way out."""
    return DamagedStoreError(
        f"{path} is damaged: {why}; restore a backup, or save what can be saved with "
        f"`duramen store recover {path.name} -o new.duramen`"
    )


@contextmanager
def told(path: Path) -> Iterator[None]:
    """Turn what SQLite raises into errors that say what to do."""
    try:
        yield
    except sqlite3.Error as error:
        _retell(path, error)
    except UnicodeDecodeError as error:  # of what SQLite found in the file
        raise damaged(path, "it holds text that is none") from error


@contextmanager
def told_of_damage(path: Path) -> Iterator[None]:
    """Turn only what SQLite finds wrong with the file into errors that say what to do."""
    try:
        yield
    except sqlite3.OperationalError:
        raise
    except (sqlite3.Error, UnicodeDecodeError):
        with told(path):
            raise


def _retell(path: Path, error: sqlite3.Error) -> NoReturn:
    text, kind = str(error), getattr(error, "sqlite_errorname", "")
    if "disk is full" in text or kind == "SQLITE_IOERR_SHMSIZE":
        raise OSError(
            errno.ENOSPC,
            "the disk is full, and nothing was changed; free some space and try again",
            str(path),
        ) from error
    if "readonly" in text or "read-only" in text or "unable to open" in text:
        raise PermissionError(
            errno.EACCES,
            "it cannot be written to, or its folder cannot, and nothing was changed; change the permissions, "
            "or open it with read_only=True",
            str(path),
        ) from error
    if "locked" in text or "busy" in text:
        raise StoreLockedError(
            errno.EAGAIN, "another program is writing to the file; wait for it, or stop it", str(path)
        ) from error
    if "disk I/O" in text:
        raise OSError(
            errno.EIO, f"the disk failed ({text}), and nothing was changed; try again", str(path)
        ) from error
    if "not a database" in text:
        raise DamagedStoreError(
            f"{path} is no store, or its first page is damaged: it does not begin as one; name another file, "
            f"or save what can be saved with `duramen store recover {path.name} -o new.duramen`"
        ) from error
    raise damaged(path, text) from error
