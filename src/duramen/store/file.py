"""The file of a store: one SQLite database, changed in transactions, read as a whole and checked."""

from __future__ import annotations

import errno
import json
import shutil
import sqlite3
import zlib
from collections.abc import Collection, Iterable, Iterator
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from typing import Any, final
from uuid import UUID

import numpy as np

from duramen.arrays import Array
from duramen.files import replacing
from duramen.points import numbers_of, tagged
from duramen.store.blocks import Block, Blocks, RowLayout
from duramen.store.connection import (
    APPLICATION,
    FORMAT,
    WAIT,
    Connection,
    DamagedStoreError,
    connect,
    store_errors,
)
from duramen.store.lock import inode, now, open_files, refuse_inherited, writer_lock

Values = dict[str, Any]  # by name

_LAYOUT = ("page_size = 4096", "auto_vacuum = INCREMENTAL")  # of a new file
# of a writer: deleted content is overwritten, and 64 MB of the log are kept for the next transactions
_WRITER = ("journal_mode = WAL", f"journal_size_limit = {64 << 20}", "secure_delete = ON")


def _connect_reader(path: Path) -> Connection:
    """Open for reading; in a folder that is not writable, as a file that does not change."""
    with suppress(OSError):
        return connect(path, "mode=rw", "query_only = ON")  # SQLite cleans up after the last user
    try:
        return connect(path, "mode=ro")
    except OSError:
        log = path.with_name(f"{path.name}-wal")
        if log.exists() and log.stat().st_size:  # the file is in use, or a writer crashed
            raise
    connection = connect(path, "mode=ro&immutable=1")
    connection.immutable = True
    return connection


_TABLES = {  # seal: a checksum
    "facts": "name TEXT PRIMARY KEY, value TEXT NOT NULL, seal INTEGER NOT NULL",
    "blocks": "number INTEGER PRIMARY KEY, n INTEGER NOT NULL, seal INTEGER NOT NULL, content BLOB NOT NULL",
    "members": "id INTEGER PRIMARY KEY, block INTEGER NOT NULL",
    "names": "id INTEGER PRIMARY KEY, name BLOB NOT NULL",
    "sample": "id INTEGER PRIMARY KEY",
    "places": "place INTEGER PRIMARY KEY, id INTEGER NOT NULL, seal INTEGER NOT NULL",
    "forgotten": "number INTEGER PRIMARY KEY, id, time TEXT NOT NULL, seal INTEGER NOT NULL",
}
_PUT = (
    "INSERT INTO facts VALUES (?, ?, ?) "
    "ON CONFLICT (name) DO UPDATE SET value = excluded.value, seal = excluded.seal"
)
METADATA = {"anchor", "audit", "given", "history", "ledger", "notes", "settings", "state"}
_NO_ROWS = RowLayout(0, float, labelled=False)


def create_tables(connection: Connection) -> None:
    """Create the tables; inside a transaction."""
    for table, columns in _TABLES.items():
        connection.run(f"CREATE TABLE {table} ({columns})")
    connection.set(f"application_id = {APPLICATION}", f"user_version = {FORMAT}")


def pack_name(name: Any) -> Any:
    """Convert an id to a SQLite type: a string or UUID to bytes."""
    return tagged(name) if isinstance(name, (str, UUID)) else name


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


def _text_checksum(name: str, text: str) -> int:
    return zlib.crc32(text.encode(), zlib.crc32(name.encode()))


def _deletion_checksum(*record: Any) -> int:
    return zlib.crc32(repr(record).encode())


def _count_and_sum(ids: Collection[int]) -> list[int]:
    return [len(ids), sum(ids) & _MASK]


def _require(sound: bool, reason: str) -> None:
    if not sound:
        raise ValueError(reason)


@final
class StoreFile:
    """An open file; ``synchronous`` is "full" or "normal", as for :func:`duramen.open_store`.

    Metadata are JSON values by name. ``totals``, one of them, has what there must be in other tables.
    """

    inherited = False  # from the process that this one was forked from

    def __init__(self, path: Path, *, read_only: bool, synchronous: str) -> None:
        self.path, self.read_only = path, read_only
        refuse_inherited(path)
        with ExitStack() as stack:
            if read_only:
                self._connection = _connect_reader(path)
            else:
                stack.enter_context(writer_lock(path))
                self._connection = connect(
                    path, "mode=rwc", *_WRITER, f"synchronous = {synchronous}", new=_LAYOUT
                )
            self._release = stack.pop_all().close
        self.inode, self.log_has_traces = inode(path), not read_only  # of what was deleted before a crash
        open_files.add(self)
        self.blocks = Blocks(self._connection, _NO_ROWS)
        self.totals: Values = {"epoch": 0, "sample": [0, 0], "n_places": 0, "n_forgotten": 0}

    def open(self, fresh: Values | None) -> None:
        """Bring an older format up to date, or write the first metadata of a new store."""
        if self._connection.is_blank:
            if fresh is None:
                raise ValueError(
                    f"{self.path} is empty: it is being created, or its creation was interrupted; "
                    "dm.open_store(path, create=True, loss=...), or duramen store init, completes it"
                )
            self.begin()
            create_tables(self._connection)
            for name, value in fresh.items():
                self.put(name, value)
            self.commit(set())
        if self._connection.number("PRAGMA user_version") < FORMAT:
            if self.read_only:
                raise ValueError(
                    f"{self.path} has an older format; open it once for writing, dm.open_store(path) or "
                    f"duramen store compact, which brings it to format {FORMAT}"
                )
            self.begin()
            self._migrate()
            self._connection.run("COMMIT")
        if not self.read_only:
            self._connection.run("DROP TABLE IF EXISTS spare")  # copies of metadata, by version 0.1
        self.clear_traces()

    def _migrate(self) -> None:
        """Bring format 1, which had no history of the anchor, up to date."""
        self.put("history", [])
        anchor = self.metadata()["anchor"]
        if anchor:
            self.put("history", [(now(), "kept by an older version", None, anchor["radius"], None)])
        self._connection.set(f"user_version = {FORMAT}")

    def begin(self) -> None:
        """Begin a transaction; one that was interrupted before use is rolled back."""
        self.rollback()
        self._refuse_moved()
        self._connection.run("BEGIN" if self.read_only else "BEGIN IMMEDIATE")

    def _refuse_moved(self) -> None:
        if inode(self.path) != self.inode:
            raise FileNotFoundError(
                f"{self.path} was moved or removed while it was open; put it back with its log, and open it "
                "again"
            )

    def commit(self, sample: set[int]) -> None:
        """Write the totals, and end the transaction: what was done is on the disk when this returns."""
        if len(sample) != self.totals["sample"][0]:  # else it is the same: between anchors it only shrinks
            self.totals["sample"] = _count_and_sum(sample)
        self.put("ledger", {**self.totals, "blocks": self.blocks.totals})
        self._connection.run("COMMIT")

    def rollback(self) -> None:
        if self._connection.in_transaction:  # SQLite may have undone it already
            self._connection.run("ROLLBACK")

    def empty_log(self, *, wait: bool = True) -> bool:
        """Merge the log into the tables and empty it; return False if a reader prevents that."""
        self._connection.set(f"busy_timeout = {WAIT * wait}")
        try:
            busy = self._connection.number("PRAGMA wal_checkpoint(TRUNCATE)")
        finally:
            self._connection.set(f"busy_timeout = {WAIT}")
        self.log_has_traces &= bool(busy)
        return not busy

    def clear_traces(self) -> None:
        """Empty the log of deleted content if possible now; otherwise try again later."""
        if self.log_has_traces:
            with suppress(OSError, DamagedStoreError):
                self.empty_log(wait=False)

    @property
    def n_changes(self) -> int:
        """How many records were written so far, also those of transactions that were undone."""
        return self._connection.total_changes

    @property
    def version(self) -> Any:
        """A value that differs between any two committed states: the checksums of all metadata."""
        return self._connection.run("SELECT seal FROM facts")

    def reconnect(self) -> None:
        """Open the file again, if it was opened as one that does not change."""
        if self._connection.immutable:
            self._connection.close()
            self._connection = _connect_reader(self.path)

    def pack(self) -> None:
        """Put points into as few blocks as possible, and erase all traces of deleted records."""
        self.blocks.join_small(at_least=0)
        run = self._connection.run
        for table, columns in _TABLES.items():  # a dropped table is overwritten, with the gaps in its pages
            if table != "blocks":
                run(f"CREATE TABLE rebuilt ({columns})")
                run(f"INSERT INTO rebuilt SELECT * FROM {table} ORDER BY 1")
                run(f"DROP TABLE {table}")
                run(f"ALTER TABLE rebuilt RENAME TO {table}")

    def shrink(self) -> None:
        with store_errors(self.path):
            self._connection.executescript("PRAGMA incremental_vacuum")  # execute would free one page only

    def backup(self, target: Path) -> None:
        """Copy the last committed state into a new file, which appears once it is complete."""
        self._refuse_moved()
        _refuse_existing(target)
        source = _connect_reader(self.path)  # reads one state, whatever is written here in the meantime
        try:
            with closing(source), replacing(target) as file, store_errors(target):
                shutil.copymode(self.path, file.name)
                with closing(sqlite3.connect(file.name)) as copy:
                    source.backup(copy)
                _refuse_existing(target)
        except PermissionError as error:
            reason = f"the folder {target.parent} is not writable; choose another, or change its permissions"
            raise PermissionError(errno.EACCES, reason, str(target)) from error

    def close(self) -> None:
        """Close the file, unless it is inherited, and release the lock; the last to close removes the log."""
        if self.inherited:
            return
        self.clear_traces()
        try:
            with store_errors(self.path):
                self._connection.close()
            open_files.discard(self)
        finally:
            self._release()

    def put(self, name: str, value: Any) -> None:
        text = json.dumps(value, sort_keys=True, allow_nan=False)
        self._connection.run(_PUT, name, text, _text_checksum(name, text))

    def add(self, block: Block, names: dict[int, Any]) -> None:
        self.blocks.add(self._dated(block))
        if names:
            pairs = ((one, pack_name(names[one])) for one in block["ids"].tolist())
            self._connection.run_many("INSERT INTO names VALUES (?, ?)", pairs)

    def _dated(self, block: Block) -> Block:
        """Return points with the number of anchors that preceded each."""
        return {**block, "epochs": block["epochs"] + (self.totals["epoch"] - 1)}

    def replace(self, block: Block) -> None:
        self.blocks.replace(self._dated(block))
        self._connection.delete("sample", block["ids"])
        self.log_has_traces = True

    def remove(self, ids: Array) -> None:
        self.blocks.remove(ids)
        for table in ("sample", "names"):
            self._connection.delete(table, ids)
        self.log_has_traces = True

    def begin_epoch(self, ids: set[int]) -> None:
        """Write that there is a new anchor, and which points it was found on."""
        self.totals["epoch"] += 1
        self._connection.run("DELETE FROM sample")
        self._connection.run_many("INSERT INTO sample VALUES (?)", ((one,) for one in sorted(ids)))
        self.totals["sample"] = _count_and_sum(ids)

    def set_places(self, places: Array, ids: Array, n: int) -> None:
        """Write some places of points in a tree of ``n`` points."""
        self._connection.run("DELETE FROM places WHERE place >= ?", n)
        rows = zip(places.tolist(), ids.tolist(), _place_checksums(places, ids).tolist(), strict=True)
        self._connection.run_many("INSERT OR REPLACE INTO places VALUES (?, ?, ?)", rows)
        self.totals["n_places"] = n

    def note_forgotten(self, ids: Iterable[Any]) -> None:
        """Record which points were deleted, and when."""
        time, rows = now(), [*enumerate(map(pack_name, ids), self.totals["n_forgotten"])]
        self.totals["n_forgotten"] += len(rows)
        sealed = ((*row, time, _deletion_checksum(*row, time)) for row in rows)
        self._connection.run_many("INSERT INTO forgotten VALUES (?, ?, ?, ?)", sealed)

    def forgotten(self) -> list[tuple[Any, str]]:
        """Read which points were deleted, and when."""
        n = self.totals["n_forgotten"]
        query = "SELECT * FROM forgotten WHERE number < ? ORDER BY number"  # a reader may lag behind
        rows = self._connection.run(query, n)
        with store_errors(self.path):
            n_sound = sum(seal == _deletion_checksum(*row) for *row, seal in rows)
            _require(n_sound == n, f"{n_sound} intact deletion records instead of {n}")
            return [(unpack_name(packed), time) for _, packed, time, _ in rows]

    def read(self) -> tuple[Values, int, Iterator[Block]]:
        """Read metadata, the number of points, and points; ``epochs``: changed since the anchor or not."""
        metadata = self.metadata()
        self.totals, gate = metadata["ledger"], metadata["state"]["gate"]
        layout = RowLayout(gate["n_columns"], gate["dtype"], gate["labelled"]) if gate else _NO_ROWS
        self.blocks = Blocks(self._connection, layout)
        totals = self.totals["blocks"] or self.blocks.totals  # older versions wrote none without rows
        epoch = self.totals["epoch"]
        blocks = ({**block, "epochs": block["epochs"] == epoch} for block in self.blocks.read(totals))
        return metadata, totals["n_points"], blocks

    def metadata(self) -> Values:
        """Read all metadata; raise DamagedStoreError if they differ from what was written."""
        metadata: Values = {}
        with store_errors(self.path):
            for name, text, seal in self._connection.run("SELECT name, value, seal FROM facts"):
                reason = f"the metadata {name!r} differ from what was written (checksum mismatch)"
                _require(name not in metadata and seal == _text_checksum(name, text), reason)
                metadata[name] = json.loads(text)
            missing = METADATA - metadata.keys()
            _require(not missing, f"its metadata lack {sorted(missing)}")
        return metadata

    def beside(self) -> Values:
        """Read what there is beside points: names by id, the anchor's sample, and the order of a tree."""
        run, totals = self._connection.run, self.totals
        names = {one: unpack_name(name) for one, name in run("SELECT id, name FROM names")}
        sound = numbers_of([*names.values()]).tolist() == [*names]
        _require(sound, "a name differs from what was written")
        sample = [one for (one,) in run("SELECT id FROM sample ORDER BY id")]
        _require(_count_and_sum(sample) == totals["sample"], "the anchor's sample is incomplete")
        rows = run("SELECT place, id, seal FROM places ORDER BY place")
        places, order, checksums = np.array(rows, dtype=np.int64).reshape(-1, 3).T
        sound = np.array_equal(places, np.arange(totals["n_places"]))
        sound = sound and np.array_equal(checksums, _place_checksums(places, order))
        _require(sound, "places in the tree are missing, or differ from what was written")
        return {"names": names, "sample": np.array(sample, dtype=np.int64), "order": order}

    def check(self) -> None:
        """Check every page and every index, where points are, and the deletion records."""
        problems = [text for (text,) in self._connection.run("PRAGMA integrity_check(3)") if text != "ok"]
        _require(not problems, "; ".join(problems))
        self.blocks.check()
        self.forgotten()


def _refuse_existing(target: Path) -> None:
    if target.exists():
        raise FileExistsError(errno.EEXIST, "the file already exists; choose another path", str(target))
