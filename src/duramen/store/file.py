"""The file of a store: one SQLite database, changed in transactions, read as a whole and checked."""

from __future__ import annotations

import errno
import json
import os
import sqlite3
import stat
import zlib
from collections.abc import Iterable, Iterator
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final
from urllib.parse import quote
from uuid import UUID

import numpy as np

from duramen.arrays import Array
from duramen.files import replacing
from duramen.points import numbers_of, tagged
from duramen.store.blocks import AMONG, Block, Blocks, RowLayout, as_json
from duramen.store.errors import DamagedStoreError, damage_errors, damaged, sqlite_errors
from duramen.store.lock import inode, now, open_files, refuse_inherited

_WAIT = 5.0  # seconds for a reader, or for another program
_CACHE = 16 << 10  # KiB of pages
_LOG = 64 << 20  # bytes of the log that are kept for the next transactions


# connections


def resolve(path: str | os.PathLike[str]) -> Path:
    """Return the canonical path of a file, independent of links and of the working directory."""
    return Path(os.path.realpath(os.fsdecode(path)))


def connect(path: Path, options: str, *pragmas: str) -> sqlite3.Connection:
    """Open a file by its address, with options such as ``mode=ro``."""
    address = f"file://{quote(os.fsencode(path.absolute()))}?{options}"
    connection = sqlite3.connect(
        address, uri=True, timeout=_WAIT, isolation_level=None, check_same_thread=False
    )
    try:
        for pragma in pragmas:
            connection.execute(f"PRAGMA {pragma}")
        is_blank(connection)  # reads its first page
    except BaseException:
        connection.close()
        raise
    return connection


def _connect_writer(path: Path, synchronous: str) -> sqlite3.Connection:
    """Open for writing, with a log that every commit is synced to; deleted content is overwritten."""
    is_new = not (path.exists() and path.stat().st_size)
    layout = ("page_size = 4096", "auto_vacuum = INCREMENTAL") if is_new else ()
    log = ("journal_mode = WAL", f"synchronous = {synchronous}", f"journal_size_limit = {_LOG}")
    return connect(path, "mode=rwc", *layout, *log, "secure_delete = ON", *_common_pragmas())


def _connect_reader(path: Path) -> tuple[sqlite3.Connection, bool]:
    """Open for reading; also return whether it was opened as a file that does not change.

    It is if its folder is not writable. Otherwise it is opened as if for writing, so that SQLite
    cleans up after the last user.
    """
    pragmas = ("query_only = ON", *_common_pragmas())
    with suppress(sqlite3.OperationalError):
        return connect(path, "mode=rw", *pragmas), False
    try:
        return connect(path, "mode=ro", *pragmas), False
    except sqlite3.OperationalError:
        if has_log(path):
            raise
    return connect(path, "mode=ro&immutable=1", *pragmas), True


def _common_pragmas() -> tuple[str, ...]:
    no_files = "temp_store = MEMORY"  # keeps rows out of temporary files
    return f"cache_size = {-_CACHE}", no_files, "trusted_schema = OFF", "cell_size_check = ON"


def log_of(path: Path) -> Path:
    """Return the path of a file's log."""
    return path.with_name(f"{path.name}-wal")


def has_log(path: Path) -> bool:
    """Return whether there is a log with content: the file is in use, or a writer crashed."""
    return log_of(path).exists() and log_of(path).stat().st_size > 0


def _fingerprint(path: Path) -> tuple[int, ...]:
    """Return numbers that change when the file does."""
    if not path.exists():
        return ()
    found = path.stat()
    return found.st_ino, found.st_size, found.st_mtime_ns


# tables

APPLICATION = 0x6475726D  # "durm": marks a SQLite file as a store
FORMAT = 2

_METADATA = "name TEXT PRIMARY KEY, value TEXT NOT NULL, seal INTEGER NOT NULL"  # seal: a checksum
_TABLES = {
    "facts": _METADATA,
    "spare": _METADATA,
    "blocks": "number INTEGER PRIMARY KEY, n INTEGER NOT NULL, seal INTEGER NOT NULL, content BLOB NOT NULL",
    "members": "id INTEGER PRIMARY KEY, block INTEGER NOT NULL",
    "names": "id INTEGER PRIMARY KEY, name BLOB NOT NULL",
    "sample": "id INTEGER PRIMARY KEY",
    "places": "place INTEGER PRIMARY KEY, id INTEGER NOT NULL, seal INTEGER NOT NULL",
    "forgotten": "number INTEGER PRIMARY KEY, id, time TEXT NOT NULL, seal INTEGER NOT NULL",
}


@final
class Metadata:
    """JSON values by name in a table; one is written only if it differs from before."""

    def __init__(self, connection: sqlite3.Connection, path: Path, table: str = "facts") -> None:
        self._connection, self._path = connection, path
        self._select = f"SELECT value, seal FROM {table} WHERE name = ?"
        self._insert = (
            f"INSERT INTO {table} VALUES (?, ?, ?) "
            "ON CONFLICT (name) DO UPDATE SET value = excluded.value, seal = excluded.seal"
        )
        self._written: dict[str, str] = {}

    def get(self, name: str) -> Any:
        """Read a value; raise DamagedStoreError if it is missing or differs from what was written."""
        with damage_errors(self._path):
            found = self._connection.execute(self._select, (name,)).fetchone()
            if found is None:
                raise ValueError(f"the metadata {name!r} is missing")
            value = parse_metadata(name, *found)
        self._written[name] = found[0]
        return value

    def put(self, name: str, value: Any) -> None:
        """Write a value."""
        text = json.dumps(value, sort_keys=True, allow_nan=False)
        if self._written.get(name) != text:
            with sqlite_errors(self._path):
                self._connection.execute(self._insert, (name, text, _text_checksum(name, text)))
            self._written[name] = text

    def forget(self) -> None:
        """Forget what was written: a transaction was rolled back."""
        self._written.clear()


def parse_metadata(name: str, text: Any, checksum: Any) -> Any:
    """Parse a value as stored in the table; raise ValueError if it differs from what was written."""
    if not isinstance(text, str) or checksum != _text_checksum(name, text):
        raise ValueError(f"the metadata {name!r} differs from what was written (checksum mismatch)")
    return json.loads(text)


def _text_checksum(name: str, text: str) -> int:
    return zlib.crc32(text.encode(), zlib.crc32(name.encode()))


def create_tables(connection: sqlite3.Connection) -> None:
    """Create the tables; inside a transaction."""
    for table, columns in _TABLES.items():
        connection.execute(f"CREATE TABLE {table} ({columns})")
    connection.execute(f"PRAGMA application_id = {APPLICATION}")
    connection.execute(f"PRAGMA user_version = {FORMAT}")


def _rebuild_tables(connection: sqlite3.Connection) -> None:
    """Write all tables but the blocks again, in order; inside a transaction.

    Gaps in old pages may hold copies of records deleted since; they are
    overwritten when the old tables are dropped.
    """
    for table, columns in _TABLES.items():
        if table != "blocks":
            connection.execute(f"CREATE TABLE rebuilt ({columns})")
            connection.execute(f"INSERT INTO rebuilt SELECT * FROM {table} ORDER BY 1")
            connection.execute(f"DROP TABLE {table}")
            connection.execute(f"ALTER TABLE rebuilt RENAME TO {table}")


def is_blank(connection: sqlite3.Connection) -> bool:
    """Return whether the file is empty: it was never filled, or its creation was interrupted."""
    return bool(connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0] == 0)


def check_format(connection: sqlite3.Connection, path: Path, *, writing: bool) -> int:
    """Return the number of the file's format; raise ValueError if this library cannot open it."""
    if not writing and is_blank(connection):
        raise ValueError(f"{path} is empty: it is being created, or its creation was interrupted")
    application = connection.execute("PRAGMA application_id").fetchone()[0]
    form = connection.execute("PRAGMA user_version").fetchone()[0]
    if application != APPLICATION:
        raise ValueError(
            f"{path} is a SQLite file, but not a duramen store; dm.open_store(path, create=True, "
            "loss=...) creates one under another name"
        )
    if form > FORMAT:
        raise ValueError(
            f"{path}: format {form} is newer than this library reads ({FORMAT}); upgrade duramen"
        )
    if form < 1:
        raise damaged(path, f"unknown format {form}")
    if form < FORMAT and not writing:
        raise ValueError(
            f"{path} has the older format {form}; open it once for writing, dm.open_store(path), which "
            f"brings it to format {FORMAT}"
        )
    return int(form)


def refuse_foreign(path: Path) -> None:
    """Raise ValueError if a file is not a store, without changing it.

    The file is only opened through SQLite: if it is already open in this process, closing another
    handle would make the system release SQLite's locks.
    """
    with (
        suppress(OSError),
        sqlite_errors(path),
        closing(connect(path, "mode=rw", "query_only = ON")) as connection,
    ):
        if not is_blank(connection):
            check_format(connection, path, writing=True)


def _migrate(connection: sqlite3.Connection, path: Path) -> None:
    """Bring format 1, which had neither a history of the anchor nor a copy of the settings, up to date."""
    connection.execute(f"CREATE TABLE IF NOT EXISTS spare ({_METADATA})")
    metadata = Metadata(connection, path)
    Metadata(connection, path, "spare").put("spare-settings", metadata.get("settings"))
    anchor = metadata.get("anchor")
    events = [] if anchor is None else [[now(), "kept by an older version", None, anchor["radius"], None]]
    metadata.put("history", events)
    connection.execute(f"PRAGMA user_version = {FORMAT}")


def pack_name(name: Any) -> Any:
    """Convert an id to a SQLite type: a string or UUID to bytes."""
    return tagged(name) if isinstance(name, (str, UUID)) else int(name)


def unpack_name(packed: Any) -> Any:
    """Undo :func:`pack_name`."""
    if not isinstance(packed, bytes):
        return packed
    if packed[:1] == b"s":
        return packed[1:].decode("utf-8", "surrogatepass")
    return UUID(bytes=packed[1:])


_MIX = np.uint64(0x9E3779B97F4A7C15)  # odd, so that a change of one bit changes the product
_MASK = (1 << 62) - 1


def _place_checksums(places: Array, ids: Array) -> Array:
    mixed = (places.astype(np.uint64) + np.uint64(1)) * _MIX ^ ids.astype(np.uint64)
    return (mixed * _MIX >> np.uint64(1)).astype(np.int64)


def deletion_checksum(number: int, packed: Any, time: str) -> int:
    """Compute the checksum of a deletion record."""
    return zlib.crc32(repr((number, packed, time)).encode())


# the file

METADATA = ("anchor", "audit", "given", "history", "ledger", "notes", "settings", "state")


@dataclass(frozen=True)
class Content:
    """What a file holds; the points come last, block by block, and are checked while they are read."""

    metadata: dict[str, Any]
    n_points: int
    names: dict[int, Any] | None
    sample: Array
    places: Array
    blocks: Iterator[Block]


@final
class StoreFile:
    """An open file; ``synchronous`` is "full" or "normal", as for :func:`duramen.open_store`."""

    def __init__(self, path: Path, *, read_only: bool = False, synchronous: str = "full") -> None:
        self.path, self.read_only = path, read_only
        self.log_has_traces = not read_only and has_log(path)  # of what was deleted
        refuse_inherited(path)
        with sqlite_errors(path):
            if read_only:
                self._connection, self._immutable = _connect_reader(path)
            else:
                self._connection, self._immutable = _connect_writer(path, synchronous), False
        self.inode = inode(path)
        open_files.add(self)
        self.metadata = Metadata(self._connection, path)
        self.spare = Metadata(self._connection, path, "spare")
        self.blocks = Blocks(self._connection, RowLayout.from_json(None))
        self.totals: dict[str, Any] = {"epoch": 0, "sample": [0, 0], "n_places": 0, "n_forgotten": 0}

    # transactions

    @property
    def is_blank(self) -> bool:
        """Whether nothing was ever written."""
        with sqlite_errors(self.path):
            return is_blank(self._connection)

    def create(self, metadata: dict[str, Any]) -> None:
        """Create the tables, and write the first metadata."""
        with sqlite_errors(self.path):
            self.begin()
            create_tables(self._connection)
            for name, value in metadata.items():
                self.metadata.put(name, value)
            self.spare.put("spare-settings", metadata["settings"])
            self.commit()

    def open(self) -> None:
        """Check that this is a store, and migrate an older format."""
        with sqlite_errors(self.path):
            if check_format(self._connection, self.path, writing=not self.read_only) < FORMAT:
                self.begin()
                _migrate(self._connection, self.path)
                self._connection.execute("COMMIT")
        self.clear_traces()  # after a crash

    def begin(self) -> None:
        """Begin a transaction; one that was interrupted before use is rolled back."""
        self.rollback()
        self._refuse_moved()
        with sqlite_errors(self.path):
            self._connection.execute("BEGIN" if self.read_only else "BEGIN IMMEDIATE")

    def _refuse_moved(self) -> None:
        if not (self.path.exists() and inode(self.path) == self.inode):
            raise FileNotFoundError(
                f"{self.path} was moved or removed while it was open; put it back with its log, and open "
                "it again"
            )

    def commit(self) -> None:
        """Write the totals, and end the transaction: what was done is on the disk when this returns."""
        with sqlite_errors(self.path):
            self.metadata.put("ledger", {**self.totals, "blocks": self.blocks.totals()})
            self._connection.execute("COMMIT")

    def rollback(self) -> None:
        """Undo the transaction, if SQLite did not do so already."""
        self.metadata.forget()
        self.spare.forget()
        with sqlite_errors(self.path):
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")

    def empty_log(self, *, wait: bool = True) -> bool:
        """Merge the log into the tables and empty it; return False if a reader prevents that."""
        with sqlite_errors(self.path):
            self._connection.execute(f"PRAGMA busy_timeout = {int(1000 * _WAIT * wait)}")
            try:
                busy = self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]
            finally:
                self._connection.execute(f"PRAGMA busy_timeout = {int(1000 * _WAIT)}")
        self.log_has_traces = self.log_has_traces and bool(busy)
        return not busy

    def clear_traces(self) -> None:
        """Empty the log of deleted content if possible now; otherwise try again later."""
        if self.log_has_traces:
            with suppress(OSError, DamagedStoreError):
                self.empty_log(wait=False)

    @property
    def version(self) -> int:
        """A number that changes when another process commits."""
        if self._immutable:
            return hash((_fingerprint(self.path), _fingerprint(log_of(self.path))))
        with sqlite_errors(self.path):
            return int(self._connection.execute("PRAGMA data_version").fetchone()[0])

    def reconnect(self) -> None:
        """Open the file again, if it was opened as one that does not change."""
        if self._immutable:
            with sqlite_errors(self.path):
                self._connection.close()
                self._connection, self._immutable = _connect_reader(self.path)
            self.metadata = Metadata(self._connection, self.path)

    def pack(self) -> None:
        """Put points into as few blocks as possible, and erase all traces of deleted records."""
        with damage_errors(self.path):
            self.blocks.pack()
            _rebuild_tables(self._connection)

    def shrink(self) -> None:
        """Return free pages to the file system."""
        with sqlite_errors(self.path):
            self._connection.executescript("PRAGMA incremental_vacuum")  # execute would free one page only

    def backup(self, target: Path) -> None:
        """Copy the last committed state into a new file, which appears once it is complete.

        A separate connection reads one state, whatever is written or undone here in the meantime.
        """
        self._refuse_moved()
        _refuse_existing(target)
        with sqlite_errors(self.path):
            source, _ = _connect_reader(self.path)
        try:
            with closing(source), replacing(target) as file, sqlite_errors(target):
                Path(file.name).chmod(stat.S_IMODE(self.path.stat().st_mode))
                with closing(sqlite3.connect(file.name)) as copy:
                    source.backup(copy)
                _refuse_existing(target)
        except PermissionError as error:
            reason = f"the folder {target.parent} is not writable; choose another, or change its permissions"
            raise PermissionError(errno.EACCES, reason, str(target)) from error

    def close(self) -> None:
        """Close the file; the last connection to close removes the log."""
        with sqlite_errors(self.path):
            self._connection.close()
        open_files.discard(self)

    # points

    def add(self, layout: RowLayout, block: Block, names: Any = None) -> None:
        """Add new points, with their names."""
        with damage_errors(self.path):
            self.blocks.layout = layout
            self.blocks.add(block)
            if names is not None:
                pairs = zip(block.ids.tolist(), map(pack_name, names), strict=True)
                self._connection.executemany("INSERT INTO names VALUES (?, ?)", pairs)

    def replace(self, block: Block) -> None:
        """Replace the points with the same ids."""
        with damage_errors(self.path):
            self.blocks.replace(block)
            self._remove_from_sample(block.ids)
            self.log_has_traces = True

    def remove(self, ids: Array) -> None:
        """Remove points, with their names."""
        with damage_errors(self.path):
            self.blocks.remove(ids)
            self._connection.execute(f"DELETE FROM names WHERE id {AMONG}", as_json(ids))
            self._remove_from_sample(ids)
            self.log_has_traces = True

    def _remove_from_sample(self, ids: Array) -> None:
        rows = self._connection.execute(f"SELECT id FROM sample WHERE id {AMONG}", as_json(ids)).fetchall()
        self._connection.execute(f"DELETE FROM sample WHERE id {AMONG}", as_json(ids))
        n, total = self.totals["sample"]
        self.totals["sample"] = [n - len(rows), (total - sum(one for (one,) in rows)) & _MASK]

    def set_sample(self, ids: list[int]) -> None:
        """Write which points the anchor was found on."""
        with sqlite_errors(self.path):
            self._connection.execute("DELETE FROM sample")
            self._connection.executemany("INSERT INTO sample VALUES (?)", ((one,) for one in ids))
            self.totals["sample"] = [len(ids), sum(ids) & _MASK]

    def set_places(self, places: Array, ids: Array, n: int, *, all_places: bool) -> None:
        """Write the places of points in a tree of ``n`` points: some, or all."""
        with sqlite_errors(self.path):
            self._connection.execute("DELETE FROM places WHERE place >= ?", (0 if all_places else n,))
            rows = zip(places.tolist(), ids.tolist(), _place_checksums(places, ids).tolist(), strict=True)
            self._connection.executemany("INSERT OR REPLACE INTO places VALUES (?, ?, ?)", rows)
            self.totals["n_places"] = n

    def note_forgotten(self, ids: Iterable[Any], time: str) -> None:
        """Record which points were deleted, and when."""
        with sqlite_errors(self.path):
            for number, packed in enumerate(map(pack_name, ids), self.totals["n_forgotten"]):
                row = (number, packed, time, deletion_checksum(number, packed, time))
                self._connection.execute("INSERT INTO forgotten VALUES (?, ?, ?, ?)", row)
                self.totals["n_forgotten"] = number + 1

    def forgotten(self) -> list[tuple[Any, str]]:
        """Read which points were deleted, and when."""
        with damage_errors(self.path):
            n = self.totals["n_forgotten"]
            query = "SELECT * FROM forgotten WHERE number < ? ORDER BY number"  # a reader may lag behind
            rows = self._connection.execute(query, (n,)).fetchall()
            intact = [row for row in rows if row[3] == deletion_checksum(*row[:3])]
            if [row[0] for row in intact] != list(range(n)):
                raise ValueError(f"{len(intact)} intact deletion records instead of {n}")
            return [(unpack_name(packed), time) for _, packed, time, _ in rows]

    # reading

    def read(self) -> Content:
        """Read everything but the points, which are read on demand; inside a transaction."""
        with damage_errors(self.path):
            metadata = {name: self.metadata.get(name) for name in METADATA}
            self.totals = metadata["ledger"]
            self.blocks = Blocks(self._connection, RowLayout.from_json(metadata["state"]["gate"]))
            totals = self.totals["blocks"] or self.blocks.totals()  # older versions wrote none without rows
            others = self._read_names(), self._read_sample(), self._read_places()
            return Content(metadata, int(totals["n_points"]), *others, self.blocks.read(totals))

    def _read_names(self) -> dict[int, Any] | None:
        rows = self._connection.execute("SELECT id, name FROM names").fetchall()
        if not rows:
            return None
        names = {one: unpack_name(packed) for one, packed in rows}
        if numbers_of(list(names.values())).tolist() != list(names):
            raise ValueError("a name differs from what was written")
        return names

    def _read_sample(self) -> Array:
        ids = [one for (one,) in self._connection.execute("SELECT id FROM sample")]
        if [len(ids), sum(ids) & _MASK] != self.totals["sample"]:
            raise ValueError("the anchor's sample differs from what was written")
        return np.array(ids, dtype=np.int64)

    def _read_places(self) -> Array:
        rows = self._connection.execute("SELECT place, id, seal FROM places ORDER BY place").fetchall()
        places, ids, checksums = np.array(rows, dtype=np.int64).reshape(-1, 3).T
        if len(rows) != self.totals["n_places"] or not np.array_equal(places, np.arange(len(rows))):
            raise ValueError("places in the tree are missing")
        if not np.array_equal(checksums, _place_checksums(places, ids)):
            raise ValueError("a place in the tree differs from what was written")
        return ids

    def check(self) -> None:
        """Check every page and every index, where points are, and the deletion records."""
        with damage_errors(self.path):
            found = self._connection.execute("PRAGMA integrity_check(10)").fetchall()
            problems = [" ".join(text.split()) for (text,) in found if text != "ok"]
            if problems:
                raise ValueError("; ".join(problems[:3]))
            self.blocks.check()
        self.forgotten()


def _refuse_existing(target: Path) -> None:
    if target.exists():
        raise FileExistsError(errno.EEXIST, "the file already exists; choose another path", str(target))
