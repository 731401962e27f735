"""Connections to SQLite, set up so that what is committed stays, and what is deleted does not."""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path
from urllib.parse import quote

__all__ = ["WAIT", "has_log", "log_of", "peeked", "reader", "state_of", "writer"]

WAIT = 5.0
"""Seconds to wait for a reader, or for another program."""

_CACHE = 16 << 10  # KiB of pages
_LOG = 64 << 20  # bytes of the log that are kept for the next transactions


def writer(path: Path, synchronous: str) -> sqlite3.Connection:
    """Open for writing, with a log that every commit is synced to, and nothing left of what is deleted."""
    connection = sqlite3.connect(path, timeout=WAIT, isolation_level=None, check_same_thread=False)
    try:
        if not path.stat().st_size:
            connection.execute("PRAGMA page_size = 4096")
            connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute(f"PRAGMA synchronous = {synchronous}")
        connection.execute("PRAGMA secure_delete = ON")
        connection.execute(f"PRAGMA journal_size_limit = {_LOG}")
        _prepare(connection)
    except BaseException:
        connection.close()
        raise
    return connection


def reader(path: Path) -> tuple[sqlite3.Connection, bool]:
    """Open for reading; where nothing can be written beside the file, as one that nobody changes.

    Elsewhere as one that might be written to: SQLite then tidies up after the last of its users. Tells, too,
    whether it was opened as one that nobody changes.
    """
    for how in ("mode=rw", "mode=ro", "mode=ro&immutable=1"):
        connection = _by_address(path, how)
        try:
            connection.execute("PRAGMA query_only = ON")
            connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
            _prepare(connection)
        except sqlite3.OperationalError:
            connection.close()
            if "immutable" in how or (how == "mode=ro" and has_log(path)):
                raise
        except BaseException:
            connection.close()
            raise
        else:
            return connection, "immutable" in how
    raise AssertionError("one of the two has returned or raised")


def peeked(path: Path) -> sqlite3.Connection:
    """Open for a glance, which changes nothing, and leaves nothing behind."""
    connection = _by_address(path, "mode=rw")
    connection.execute("PRAGMA query_only = ON")
    return connection


def _by_address(path: Path, how: str) -> sqlite3.Connection:
    address = f"file://{quote(os.fsencode(path.absolute()))}?{how}"
    return sqlite3.connect(address, uri=True, timeout=WAIT, isolation_level=None, check_same_thread=False)


def has_log(path: Path) -> bool:
    """Tell whether a log with something in it is beside the file: it is in use, or its user crashed."""
    log = log_of(path)
    return log.exists() and log.stat().st_size > 0


def log_of(path: Path) -> Path:
    """Say where the log of a file is."""
    return path.with_name(f"{path.name}-wal")


def state_of(path: Path) -> tuple[int, ...]:
    """Tell apart a file before and after it was changed."""
    if not path.exists():
        return ()
    found = path.stat()
    return found.st_ino, found.st_size, found.st_mtime_ns


def _prepare(connection: sqlite3.Connection) -> None:
    connection.execute(f"PRAGMA cache_size = {-_CACHE}")
    connection.execute("PRAGMA temp_store = MEMORY")  # no rows in temporary files
    connection.execute("PRAGMA trusted_schema = OFF")
    connection.execute("PRAGMA cell_size_check = ON")
