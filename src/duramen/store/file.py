"""The file of a store: one SQLite database, changed in transactions, read whole and checked.

The write-ahead log is what makes an operation durable: it is synced before a
commit returns. What is deleted is overwritten in the tables (``secure_delete``),
and the log, which still has it, is emptied after the commit.
"""

from __future__ import annotations

import sqlite3
import zlib
from collections.abc import Iterable, Iterator
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final
from uuid import UUID

import numpy as np

from duramen.dynamic.names import numbers_of
from duramen.rows import Array
from duramen.store.block import Block, Layout
from duramen.store.blocks import Blocks
from duramen.store.connection import WAIT, has_log, log_of, peeked, reader, state_of, writer
from duramen.store.errors import DamagedStoreError, damaged, told, told_of_damage
from duramen.store.facts import Facts
from duramen.store.forks import closed, is_at, opened, refuse_inherited
from duramen.store.schema import FORMAT, check_format, create, is_blank, migrate, rebuild

__all__ = ["Content", "StoreFile", "refuse_foreign", "row_seal", "unpacked"]

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

    def begin_table(self, layout: Layout) -> None:
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
                self.begin_table(Layout(gate["n_columns"], np.dtype(gate["dtype"]), gate["labelled"]))
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
