"""Connections to a store's file, whose errors say what to do."""

from __future__ import annotations

import errno
import json
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

from duramen.arrays import Array

APPLICATION = 0x6475726D  # "durm": marks a SQLite file as a store
FORMAT = 2
AMONG = "IN (SELECT value FROM json_each(?))"

WAIT = 5000  # milliseconds for a reader, or for another program
_CACHE = 16 << 10  # KiB of pages


class DamagedStoreError(ValueError):
    """The file differs from what was written: bytes were changed or lost outside of this library."""


class StoreLockedError(OSError):
    """Another process, or another part of this one, has the store open for writing."""


def damaged(path: Path, reason: object, problem: str = "is damaged:") -> DamagedStoreError:
    """Return the error for a damaged file, with what to do."""
    return DamagedStoreError(
        f'{path} {problem} {reason}; restore a backup, or try `sqlite3 {path.name} ".recover" | sqlite3 '
        "saved.duramen` and then `duramen store check saved.duramen`"
    )


_LOCKED = (StoreLockedError, errno.EAGAIN, "another program is writing to the file; wait for it")
_NOT_WRITABLE = (
    PermissionError,
    errno.EACCES,
    "the file or its folder is not writable; change the permissions, or open it with read_only=True",
)
_FAILED = (OSError, errno.EIO, "the disk failed (disk I/O error), and nothing was changed; try again")
_FULL = (OSError, errno.ENOSPC, "the disk is full, and nothing was changed; free some space")
# by SQLite's code: busy, locked, read-only, cannot open, I/O error, full, no room for shared memory
_KNOWN = {5: _LOCKED, 6: _LOCKED, 8: _NOT_WRITABLE, 14: _NOT_WRITABLE, 10: _FAILED, 13: _FULL, 4874: _FULL}
_NOT_A_DATABASE = 26
_TEXTS = {  # errors have no code before Python 3.11
    "database is locked": 5,
    "database table is locked": 6,
    "attempt to write a readonly database": 8,
    "disk I/O error": 10,
    "database or disk is full": 13,
    "unable to open database file": 14,
    "file is not a database": _NOT_A_DATABASE,
}
_UNREADABLE = (sqlite3.Error, UnicodeDecodeError)


def _translate(path: Path, error: Exception) -> OSError | ValueError:
    code = getattr(error, "sqlite_errorcode", None) or _TEXTS.get(str(error), 0)
    known = _KNOWN.get(code) or _KNOWN.get(code & 0xFF)  # without the details
    if known is not None:
        kind, number, message = known
        return kind(number, message, str(path))
    if code == _NOT_A_DATABASE:
        return damaged(path, "check the path", "is not a store, or its first page is damaged;")
    return damaged(path, error)


_INCONSISTENT = (AssertionError, AttributeError, LookupError, OverflowError, TypeError, ValueError)


@contextmanager
def store_errors(path: Path) -> Iterator[None]:
    """Turn SQLite's errors, and any that reveal inconsistent content, into errors that say what to do."""
    try:
        yield
    except DamagedStoreError:
        raise
    except _UNREADABLE as error:
        raise _translate(path, error) from error
    except _INCONSISTENT as error:
        raise damaged(path, error) from error


class Connection(sqlite3.Connection):
    """An open file; its own methods translate SQLite's errors."""

    path: Path
    immutable = False  # opened as a file that does not change

    def run(self, statement: str, *values: Any) -> list[tuple[Any, ...]]:
        try:  # no context manager: this runs many times for a row
            return self.execute(statement, values).fetchall()
        except _UNREADABLE as error:
            raise _translate(self.path, error) from error

    def run_many(self, statement: str, rows: Iterable[tuple[Any, ...]]) -> None:
        with store_errors(self.path):
            self.executemany(statement, rows)

    def delete(self, table: str, ids: Array) -> None:
        self.run(f"DELETE FROM {table} WHERE id {AMONG}", json.dumps(ids.tolist()))

    def set(self, *pragmas: str) -> None:
        for pragma in pragmas:
            self.run(f"PRAGMA {pragma}")

    def number(self, statement: str) -> int:
        return int(self.run(statement)[0][0])

    @property
    def is_blank(self) -> bool:
        """Whether the file is empty: it was never filled, or its creation was interrupted."""
        return not self.number("SELECT count(*) FROM sqlite_master")


def _check_format(connection: Connection) -> None:
    """Raise ValueError if this library cannot open the file."""
    path, form = connection.path, connection.number("PRAGMA user_version")
    if connection.number("PRAGMA application_id") != APPLICATION:
        raise ValueError(f"{path} is a SQLite file, but not a duramen store; create one under another name")
    if form > FORMAT:
        raise ValueError(
            f"{path}: format {form} is newer than this library reads ({FORMAT}); upgrade duramen"
        )
    if form < 1:
        raise damaged(path, f"unknown format {form}")


def connect(path: Path, options: str, *pragmas: str, new: tuple[str, ...] = ()) -> Connection:
    """Open a store or an empty file, with options such as ``mode=ro``; ``new`` are pragmas for an empty one.

    Nothing is changed in a file that is not a store.
    """
    address = f"file://{quote(bytes(path.absolute()))}?{options}"
    with store_errors(path):
        connection = sqlite3.connect(
            address, WAIT / 1000, isolation_level=None, check_same_thread=False, factory=Connection, uri=True
        )
    connection.path = path
    no_files = "temp_store = MEMORY"  # keeps rows out of temporary files
    try:
        connection.set(f"cache_size = {-_CACHE}", no_files, "trusted_schema = OFF", "cell_size_check = ON")
        if connection.is_blank:  # reads its first page
            connection.set(*new)
        else:
            _check_format(connection)
        connection.set(*pragmas)
    except BaseException:
        connection.close()
        raise
    return connection
