"""The tables of a store, the number of their format, and how an older format is brought up to date."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path

from duramen.store.errors import damaged
from duramen.store.facts import Facts
from duramen.store.lock import now

__all__ = ["FORMAT", "check_format", "create", "is_blank", "migrate", "rebuild"]

APPLICATION = 0x6475726D  # "durm": which program a SQLite file is of
FORMAT = 2

_FACTS = "name TEXT PRIMARY KEY, value TEXT NOT NULL, seal INTEGER NOT NULL"
_TABLES = {
    "facts": _FACTS,
    "spare": _FACTS,
    "blocks": "number INTEGER PRIMARY KEY, n INTEGER NOT NULL, seal INTEGER NOT NULL, content BLOB NOT NULL",
    "members": "id INTEGER PRIMARY KEY, block INTEGER NOT NULL",
    "names": "id INTEGER PRIMARY KEY, name BLOB NOT NULL",
    "sample": "id INTEGER PRIMARY KEY",
    "places": "place INTEGER PRIMARY KEY, id INTEGER NOT NULL, seal INTEGER NOT NULL",
    "forgotten": "number INTEGER PRIMARY KEY, id, time TEXT NOT NULL, seal INTEGER NOT NULL",
}


def create(connection: sqlite3.Connection) -> None:
    """Make the tables; inside a transaction."""
    for table, columns in _TABLES.items():
        connection.execute(f"CREATE TABLE {table} ({columns})")
    connection.execute(f"PRAGMA application_id = {APPLICATION}")
    connection.execute(f"PRAGMA user_version = {FORMAT}")


def rebuild(connection: sqlite3.Connection) -> None:
    """Write all tables but the blocks anew, in order; inside a transaction.

    In the gaps of old pages may be copies of records that were deleted since;
    they are overwritten when the old tables are dropped.
    """
    for table, columns in _TABLES.items():
        if table != "blocks":
            connection.execute(f"CREATE TABLE anew ({columns})")
            connection.execute(f"INSERT INTO anew SELECT * FROM {table} ORDER BY 1")
            connection.execute(f"DROP TABLE {table}")
            connection.execute(f"ALTER TABLE anew RENAME TO {table}")


def is_blank(connection: sqlite3.Connection) -> bool:
    """Tell whether there is nothing in the file: none was made, or its making was cut short."""
    return connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0] == 0


def check_format(connection: sqlite3.Connection, path: Path, *, writing: bool) -> int:
    """Give the number of the file's format, if this library can open it.

    Raises
    ------
    ValueError
        If it is none of ours, newer, or older and only to be read.
    """
    if not writing and is_blank(connection):
        raise ValueError(f"{path} is empty: it is being made, or its making was cut short")
    application = connection.execute("PRAGMA application_id").fetchone()[0]
    form = connection.execute("PRAGMA user_version").fetchone()[0]
    if application != APPLICATION:
        raise ValueError(
            f"{path} is a SQLite file, but no store of duramen; dm.open_store(path, create=True, loss=...) "
            "makes one under another name"
        )
    if form > FORMAT:
        raise ValueError(
            f"{path}: format {form} is newer than this library reads ({FORMAT}); upgrade duramen"
        )
    if form < 1:
        raise damaged(path, f"format {form} never was")
    if form < FORMAT and not writing:
        raise ValueError(
            f"{path} has the older format {form}; open it once for writing, dm.open_store(path), which "
            f"brings it to format {FORMAT}"
        )
    return int(form)


def migrate(connection: sqlite3.Connection, path: Path, form: int) -> None:
    """Bring tables of an older format up to date; inside a transaction."""
    for step in range(form, FORMAT):
        _STEPS[step](connection, path)
    connection.execute(f"PRAGMA user_version = {FORMAT}")


def _with_history(connection: sqlite3.Connection, path: Path) -> None:
    """From format 1, which kept neither the history of the anchor nor a second copy of the settings."""
    connection.execute(f"CREATE TABLE IF NOT EXISTS spare ({_FACTS})")
    facts = Facts(connection, path)
    Facts(connection, path, "spare").put("spare-settings", facts.get("settings"))
    anchor = facts.get("anchor")
    began = [] if anchor is None else [[now(), "kept by an older version", None, anchor["radius"], None]]
    facts.put("history", began)


_STEPS: dict[int, Callable[[sqlite3.Connection, Path], None]] = {1: _with_history}
