"""The file of a store: one SQLite database, changed in transactions, read whole and checked."""

from __future__ import annotations

import json
import os
import sqlite3
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final
from urllib.parse import quote
from uuid import UUID

import numpy as np

from duramen.arrays import Array
from duramen.dynamic.ids import numbers_of
from duramen.store.blocks import Block, Blocks, RowLayout
from duramen.store.errors import DamagedStoreError, damaged, told, told_of_damage
from duramen.store.lock import closed, is_at, now, opened, refuse_inherited

__all__ = [
    "FORMAT",
    "WAIT",
    "Content",
    "Facts",
    "StoreFile",
    "check_format",
    "create",
    "has_log",
    "is_blank",
    "log_of",
    "migrate",
    "peeked",
    "read_fact",
    "reader",
    "rebuild",
    "refuse_foreign",
    "row_seal",
    "state_of",
    "unpacked",
    "writer",
]


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


@final
class Facts:
    """JSON values by name in a table; one is written only if it is another than before."""

    def __init__(self, connection: sqlite3.Connection, path: Path, table: str = "facts") -> None:
        self._connection, self._path = connection, path
        self._select = f"SELECT value, seal FROM {table} WHERE name = ?"
        self._insert = (
            f"INSERT INTO {table} VALUES (?, ?, ?) "
            "ON CONFLICT (name) DO UPDATE SET value = excluded.value, seal = excluded.seal"
        )
        self._written: dict[str, str] = {}

    def get(self, name: str, default: Any = ...) -> Any:
        """Read a fact.

        Raises
        ------
        DamagedStoreError
            If it is not there, and there is no default, or is not what was written.
        """
        with told(self._path):
            found = self._connection.execute(self._select, (name,)).fetchone()
        if found is None:
            if default is ...:
                raise damaged(self._path, f"the fact {name!r} is missing")
            return default
        text, mark = found
        fact = read_fact(name, text, mark)
        if fact is None:
            raise damaged(self._path, f"the fact {name!r} is not what was written (its checksum differs)")
        self._written[name] = text
        return fact[0]

    def put(self, name: str, value: Any) -> None:
        """Write a fact."""
        text = json.dumps(value, sort_keys=True, allow_nan=False)
        if self._written.get(name) != text:
            with told(self._path):
                self._connection.execute(self._insert, (name, text, _seal(name, text)))
            self._written[name] = text

    def forget(self) -> None:
        """Take nothing for written: a transaction was rolled back."""
        self._written.clear()


def read_fact(name: str, text: Any, mark: Any) -> tuple[Any] | None:
    """Read a fact as it stands in the table; None if it is not what was written."""
    if not isinstance(text, str) or mark != _seal(name, text):
        return None
    return (json.loads(text),)


def _seal(name: str, text: str) -> int:
    return zlib.crc32(text.encode(), zlib.crc32(name.encode()))


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


_NAMES = ("anchor", "audit", "given", "history", "ledger", "notes", "settings", "state")
_WHOLE = (1 << 62) - 1
_MIX = np.uint64(0x9E3779B97F4A7C15)  # odd: a change of one bit shows in the product


@dataclass(frozen=True)
class Content:
    """What a file holds; the points come last, block by block, and are checked as they come."""

    facts: dict[str, Any]
    n_points: int
    epoch: int
    names: dict[int, Any] | None
    sample: Array
    places: Array | None
    blocks: Iterator[Block]


@final
class StoreFile:
    """An open file.

    Parameters
    ----------
    path : Path
    read_only : bool
    synchronous : "full" or "normal"
        Whether each commit waits for the disk; else a power cut may take the latest ones, but no more.
    """

    def __init__(self, path: Path, *, read_only: bool = False, synchronous: str = "full") -> None:
        self.path, self.read_only = path, read_only
        self.has_traces = not read_only and has_log(path)  # in the log, of what was deleted
        refuse_inherited(path)
        with told(path):
            self._connection, self._is_fixed = (
                reader(path) if read_only else (writer(path, synchronous), False)
            )
        self._key: tuple[int, int] | None = opened(path)
        self.facts, self.spare = Facts(self._connection, path), Facts(self._connection, path, "spare")
        self.blocks: Blocks | None = None
        self.epoch = 0
        self._sample, self._n_places, self._n_forgotten = [0, 0], 0, 0

    # transactions

    @property
    def is_blank(self) -> bool:
        """Whether nothing was ever written."""
        with told(self.path):
            return is_blank(self._connection)

    def create(self, facts: dict[str, Any]) -> None:
        """Make the tables, and write the first facts."""
        with told(self.path):
            self.begin()
            create(self._connection)
            for name, value in facts.items():
                self.facts.put(name, value)
            self.spare.put("spare-settings", facts["settings"])
            self.commit()

    def open(self) -> None:
        """Check that this is a store, and bring an older format up to date."""
        with told(self.path):
            form = check_format(self._connection, self.path, writing=not self.read_only)
            if form < FORMAT:
                self.begin()
                migrate(self._connection, self.path, form)
                self.commit_only()
        self.sweep()  # after a crash

    def begin(self) -> None:
        """Begin a transaction; one that was cut short before it could be used is given up."""
        self.rollback()
        if self._key is not None and not is_at(self._key, self.path):
            raise FileNotFoundError(
                f"{self.path} was moved or removed while it was open; put it back with its log, and open it "
                "again"
            )
        with told(self.path):
            self._connection.execute("BEGIN" if self.read_only else "BEGIN IMMEDIATE")

    def commit(self) -> None:
        """Write the ledger, and end the transaction: what was done is on the disk when this returns."""
        ledger = {
            "epoch": self.epoch,
            "sample": self._sample,
            "n_places": self._n_places,
            "n_forgotten": self._n_forgotten,
            "blocks": None if self.blocks is None else self.blocks.ledger(),
        }
        with told(self.path):
            self.facts.put("ledger", ledger)
        self.commit_only()

    def commit_only(self) -> None:
        """End the transaction."""
        with told(self.path):
            self._connection.execute("COMMIT")

    def rollback(self) -> None:
        """Undo the transaction, if SQLite did not do so already."""
        self.facts.forget()
        self.spare.forget()
        with told(self.path):
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")

    def empty_log(self, *, wait: bool = True) -> bool:
        """Bring the log into the tables and empty it; False if a reader holds it."""
        with told(self.path):
            self._connection.execute(f"PRAGMA busy_timeout = {int(1000 * WAIT * wait)}")
            try:
                busy = self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]
            finally:
                self._connection.execute(f"PRAGMA busy_timeout = {int(1000 * WAIT)}")
        self.has_traces = self.has_traces and bool(busy)
        return not busy

    def sweep(self) -> None:
        """Empty the log of what was deleted, if that is possible now; else it is tried again later."""
        if self.has_traces:
            with suppress(OSError, DamagedStoreError):
                self.empty_log(wait=False)

    @property
    def version(self) -> int:
        """A number that changes when somebody else commits."""
        if self._is_fixed:
            return hash((state_of(self.path), state_of(log_of(self.path))))
        with told(self.path):
            return int(self._connection.execute("PRAGMA data_version").fetchone()[0])

    def look_again(self) -> None:
        """Open the file anew, if it was opened as one that nobody changes."""
        if self._is_fixed:
            with told(self.path):
                self._connection.close()
                self._connection, self._is_fixed = reader(self.path)
            self.facts = Facts(self._connection, self.path)

    def pack(self) -> None:
        """Put points into as few blocks as they need, and leave no trace of what else was deleted."""
        with told(self.path), self._as_damage():
            if self.blocks is not None:
                self.blocks.pack()
            rebuild(self._connection)

    def shrink(self) -> None:
        """Give free pages back to the file system."""
        with told(self.path):
            self._connection.executescript("PRAGMA incremental_vacuum")  # execute would take one step: a page

    def close(self) -> None:
        """Close the file; the last one to do so leaves no log behind."""
        with told(self.path):
            self._connection.close()
        if self._key is not None:
            closed(self._key)
            self._key = None

    # points

    def begin_table(self, layout: RowLayout) -> None:
        """Say what points look like, before the first come."""
        self.blocks = Blocks(self._connection, layout)

    def add(self, block: Block, names: Any = None) -> None:
        """Put new points in, with their names."""
        with told(self.path), self._as_damage():
            assert self.blocks is not None
            self.blocks.add(block)
            if names is not None:
                pairs = zip(block.ids.tolist(), map(_packed, names), strict=True)
                self._connection.executemany("INSERT INTO names VALUES (?, ?)", pairs)

    def replace(self, block: Block) -> None:
        """Put points in the place of those with the same ids."""
        with told(self.path), self._as_damage():
            assert self.blocks is not None
            self.blocks.replace(block)
            self._leave_sample(block.ids)
            self.has_traces = True

    def remove(self, ids: Array) -> None:
        """Take points out, with their names."""
        with told(self.path), self._as_damage():
            assert self.blocks is not None
            self.blocks.remove(ids)
            each = [(one,) for one in ids.tolist()]
            self._connection.executemany("DELETE FROM names WHERE id = ?", each)
            self._leave_sample(ids)
            self.has_traces = True

    def _leave_sample(self, ids: Array) -> None:
        if not self._sample[0]:
            return
        for one in ids.tolist():
            if self._connection.execute("DELETE FROM sample WHERE id = ?", (one,)).rowcount:
                self._sample = [self._sample[0] - 1, (self._sample[1] - one) & _WHOLE]

    def set_sample(self, ids: Iterable[int]) -> None:
        """Say from which points the anchor was made."""
        with told(self.path):
            mine = list(ids)
            self._connection.execute("DELETE FROM sample")
            self._connection.executemany("INSERT INTO sample VALUES (?)", ((one,) for one in mine))
            self._sample = [len(mine), sum(mine) & _WHOLE]

    def set_places(self, places: Array, ids: Array, n: int, *, anew: bool) -> None:
        """Say where points stand in a tree of ``n``: some, or all anew."""
        with told(self.path):
            if anew:
                self._connection.execute("DELETE FROM places")
            self._connection.execute("DELETE FROM places WHERE place >= ?", (n,))
            rows = zip(places.tolist(), ids.tolist(), _seals(places, ids).tolist(), strict=True)
            self._connection.executemany("INSERT OR REPLACE INTO places VALUES (?, ?, ?)", rows)
            self._n_places = n

    def note_forgotten(self, ids: Iterable[Any], time: str) -> None:
        """Note who was deleted, and when."""
        with told(self.path):
            for one in ids:
                kept = _packed(one) if isinstance(one, (str, UUID)) else int(one)
                row = (self._n_forgotten, kept, time, row_seal(self._n_forgotten, kept, time))
                self._connection.execute("INSERT INTO forgotten VALUES (?, ?, ?, ?)", row)
                self._n_forgotten += 1

    def forgotten(self) -> list[tuple[Any, str]]:
        """Read who was deleted, and when."""
        with told(self.path), self._as_damage():
            query = "SELECT * FROM forgotten WHERE number < ? ORDER BY number"  # a reader may be behind
            rows = self._connection.execute(query, (self._n_forgotten,)).fetchall()
            if [row[0] for row in rows] != list(range(self._n_forgotten)):
                raise ValueError(f"{len(rows)} deletions are noted, and {self._n_forgotten} were")
            for number, one, time, mark in rows:
                if mark != row_seal(number, one, time):
                    raise ValueError(f"the note of deletion {number} is not what was written")
            return [(unpacked(one) if isinstance(one, bytes) else one, time) for _, one, time, _ in rows]

    # reading

    def read(self) -> Content:
        """Read everything but the points, which are read on demand; in one transaction, where they are many.

        Raises
        ------
        DamagedStoreError
        """
        with told(self.path), self._as_damage():
            names = {name for (name,) in self._connection.execute("SELECT name FROM facts")}
            if names != set(_NAMES):
                raise ValueError(f"it should have the facts {', '.join(_NAMES)}, and has {_few(names)}")
            facts = {name: self.facts.get(name) for name in _NAMES}
            ledger, gate = self.facts.get("ledger"), self.facts.get("state")["gate"]
            self.epoch, self._sample = int(ledger["epoch"]), list(ledger["sample"])
            self._n_places, self._n_forgotten = int(ledger["n_places"]), int(ledger["n_forgotten"])
            self.blocks = None
            if gate is not None:
                self.begin_table(RowLayout(gate["n_columns"], np.dtype(gate["dtype"]), gate["labelled"]))
            n = 0 if self.blocks is None else int(ledger["blocks"]["n_points"])
            return Content(
                facts, n, self.epoch, self._names(), self._read_sample(), self._places(), self._parts(ledger)
            )

    def _parts(self, ledger: dict[str, Any]) -> Iterator[Block]:
        if self.blocks is not None:
            with told(self.path), self._as_damage():
                yield from self.blocks.read(ledger["blocks"])

    def _names(self) -> dict[int, Any] | None:
        rows = self._connection.execute("SELECT id, name FROM names").fetchall()
        if not rows:
            return None
        names = [unpacked(name) for _, name in rows]
        ids = [one for one, _ in rows]
        if numbers_of(names).tolist() != ids:
            raise ValueError("a name is not what was written")
        return dict(zip(ids, names, strict=True))

    def _read_sample(self) -> Array:
        ids = [one for (one,) in self._connection.execute("SELECT id FROM sample")]
        if [len(ids), sum(ids) & _WHOLE] != self._sample:
            raise ValueError("the anchor's sample is not what was written")
        return np.array(ids, dtype=np.int64)

    def _places(self) -> Array | None:
        rows = self._connection.execute("SELECT place, id, seal FROM places ORDER BY place").fetchall()
        places, ids, marks = np.array(rows, dtype=np.int64).reshape(-1, 3).T
        if len(rows) != self._n_places or not np.array_equal(places, np.arange(len(rows))):
            raise ValueError("places in the tree are missing")
        if not np.array_equal(marks, _seals(places, ids)):
            raise ValueError("a place in the tree is not what was written")
        return ids

    def problems(self) -> list[str]:
        """Have SQLite check every page and every index: what it finds."""
        with told(self.path):
            found = self._connection.execute("PRAGMA integrity_check(10)").fetchall()
        return [text for (text,) in found if text != "ok"]

    def numbered(self) -> Iterator[tuple[int, Array]]:
        """Give the number and the ids of each block."""
        if self.blocks is not None:
            layout = self.blocks.layout
            for number, n, content in self._connection.execute("SELECT number, n, content FROM blocks"):
                yield number, layout.unpack(content, n).ids

    def check_members(self) -> None:
        """See that each point is where it is said to be."""
        with told(self.path), self._as_damage():
            if self.blocks is not None:
                self.blocks.check(self.numbered())

    def _as_damage(self) -> Any:
        return _Damage(self.path)


class _Damage:
    """Turns what does not fit together into :class:`DamagedStoreError`."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: Any, error: Any, traceback: Any) -> None:
        if isinstance(error, (ValueError, TypeError, KeyError, IndexError, AttributeError, OverflowError)):
            raise damaged(self._path, str(error)) from error


def _packed(name: Any) -> bytes:
    return b"s" + name.encode("utf-8", "surrogatepass") if isinstance(name, str) else b"u" + name.bytes


def unpacked(packed: bytes) -> Any:
    """Read a name as it stands in the table."""
    if packed[:1] == b"s":
        return packed[1:].decode("utf-8", "surrogatepass")
    return UUID(bytes=packed[1:])


def refuse_foreign(path: Path) -> None:
    """Raise ValueError if a file is no store, without a change to it.

    The file is only opened through SQLite: if it is open here already, the system would lift SQLite's
    locks as soon as another handle of it is closed.
    """
    with suppress(sqlite3.OperationalError), told_of_damage(path), closing(peeked(path)) as connection:
        if not is_blank(connection):
            check_format(connection, path, writing=True)


def _few(names: Iterable[Any]) -> str:
    return ", ".join(sorted(map(str, names))[:10]) or "none"


def _seals(places: Array, ids: Array) -> Array:
    mixed = (places.astype(np.uint64) + np.uint64(1)) * _MIX ^ ids.astype(np.uint64)
    return (mixed * _MIX >> np.uint64(1)).astype(np.int64)


def row_seal(number: int, one: Any, time: str) -> int:
    """Compute the checksum of a note that a point was deleted."""
    return zlib.crc32(repr((number, one, time)).encode())
