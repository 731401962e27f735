"""Recovery of a damaged store through SQL, block by block, into a new one."""

from __future__ import annotations

import os
import shutil
import sqlite3
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from duramen.coreset.save import anchor_of
from duramen.points import numbers_of
from duramen.store.blocks import Block, RowLayout
from duramen.store.errors import DamagedStoreError, sqlite_recover
from duramen.store.file import (
    METADATA,
    StoreFile,
    connect,
    deletion_checksum,
    has_log,
    log_of,
    parse_metadata,
    resolve,
    unpack_name,
)
from duramen.store.lock import WriterLock, is_open, now
from duramen.store.store import Store

_UNREADABLE = (sqlite3.DatabaseError, ValueError, TypeError, OverflowError)


@dataclass(frozen=True)
class Recovered:
    """What was saved.

    Attributes
    ----------
    n_points : int
        How many points are in the new store.
    n_lost : int or None
        How many were lost; None if unknown.
    problems : tuple of str
        The problems found.
    """

    n_points: int
    n_lost: int | None
    problems: tuple[str, ...]


def recover(
    path: str | os.PathLike[str], target: str | os.PathLike[str], *, loss: Any = None, sampler: Any = None
) -> Recovered:
    """Save what can be read of a damaged store: a new store with every point whose checksum matches.

    The damaged file is only read. The new store has the same settings,
    anchor, number of outliers and notes, as far as they could be read.

    Parameters
    ----------
    path, target : str or path
        The damaged store, and the new one, which must not exist yet.
    loss, sampler
        A custom loss or sampler, if the store was made with one.

    Raises
    ------
    FileExistsError
        If the target already exists.
    DamagedStoreError
        If SQLite cannot open the file at all, or none of its points can be read.
    ValueError
        If the settings are lost: points cannot be read without them.
    """
    source, new = resolve(path), resolve(target)
    if not source.exists():
        raise FileNotFoundError(f"there is no file {source}")
    if is_open(source):
        raise ValueError(f"{source} is open in this process; close it first")
    lock = WriterLock(new)
    try:
        try:
            new.touch(exist_ok=False)  # claims the name
        except FileExistsError:
            raise FileExistsError(f"{new} already exists; choose another path") from None
        try:
            with _open_damaged(source, new.parent) as connection:
                return _Salvage(source, connection).write(new, lock, loss, sampler)
        except BaseException:
            for end in ("", "-wal", "-shm"):
                new.with_name(new.name + end).unlink(missing_ok=True)
            raise
    finally:
        lock.release()


@contextmanager
def _open_damaged(source: Path, folder: Path) -> Iterator[sqlite3.Connection]:
    """Open a file without changing it: if it has a log, a copy of both."""
    with tempfile.TemporaryDirectory(dir=folder) as copies:
        options = "mode=ro&immutable=1"
        file = source
        if has_log(source):
            file, options = Path(copies) / "copy", "mode=rw"
            shutil.copyfile(source, file)
            shutil.copyfile(log_of(source), log_of(file))
        try:
            connection = connect(file, options, "writable_schema = ON")  # reads on if the file was cut short
        except sqlite3.DatabaseError as error:
            raise DamagedStoreError(
                f"SQLite cannot open {source} ({error}); {sqlite_recover(source)}"
            ) from error
        with closing(connection):
            yield connection


class _Salvage:
    """What can still be read of a file; each piece by a separate query, to limit what damage costs."""

    def __init__(self, source: Path, connection: sqlite3.Connection) -> None:
        self._source, self._connection = source, connection
        self._problems: list[str] = []
        self._metadata = dict(self._read_metadata("facts", METADATA))
        for name in ("settings", "state"):
            if name not in self._metadata:
                self._metadata[name] = self._read_copy(name)
        self._state, self._totals = self._metadata["state"], self._metadata.get("ledger", {})
        self._block_totals = self._totals.get("blocks") or {}

    def _read_copy(self, name: str) -> Any:
        """Read the older copy of the settings or the state."""
        copies = [value for _, value in self._read_metadata("spare", [f"spare-{name}"])]
        if not copies:
            raise ValueError(
                f"{self._source}: its {name} cannot be read, so no points can be either; restore a backup"
            )
        self._problems.append(f"its {name} cannot be read; an older copy was used")
        if name == "state":  # points may have been given names since
            names = self._records("SELECT 1 FROM names WHERE id >= ? LIMIT 1", [-(1 << 63)])
            copies[0]["named"] = any(names)
        return copies[0]

    def _read_metadata(self, table: str, names: Iterable[str]) -> Iterator[tuple[str, Any]]:
        """Read values by their names: through the index, and by scans from both ends of the table."""
        queries = (
            f"SELECT value, seal FROM {table} WHERE name = ?",
            f"SELECT value, seal FROM {table} NOT INDEXED WHERE name = ? ORDER BY rowid",
            f"SELECT value, seal FROM {table} NOT INDEXED WHERE name = ? ORDER BY rowid DESC",
        )
        for name in names:
            for query in queries:
                with suppress(*_UNREADABLE):
                    found = self._connection.execute(query, (name,)).fetchone()
                    if found is not None:
                        yield name, parse_metadata(name, *found)
                        break

    def _records(self, query: str, keys: Iterable[int]) -> Iterator[tuple[Any, ...]]:
        """Read records one by one, and skip what cannot be read."""
        for key in keys:
            with suppress(sqlite3.DatabaseError):
                found = self._connection.execute(query, (key,)).fetchone()
                if found is not None:
                    yield found

    def _keys(self, table: str, n: int | None) -> Iterable[int]:
        """Return the keys of a table: all possible ones, or those that scans from both ends reach."""
        if n is not None:
            return range(n)
        keys: set[int] = set()
        for order in ("ASC", "DESC"):
            with suppress(sqlite3.DatabaseError):
                for (key,) in self._connection.execute(f"SELECT number FROM {table} ORDER BY number {order}"):
                    keys.add(key)
        return sorted(keys)

    def write(self, new: Path, lock: WriterLock, loss: Any, sampler: Any) -> Recovered:
        """Create the new store, and insert the points."""
        file = StoreFile(new)
        try:
            file.create(self._first_metadata())
            store = Store(file, lock, loss, sampler)
        except BaseException:
            file.close()
            raise
        with store:
            with store.transaction():
                for block, names in self._blocks():
                    store.insert(
                        block.rows, block.labels, block.weights, block.ids if names is None else names
                    )
                store._continue_from(self._state)
                for one, time in self._forgotten():
                    file.note_forgotten([one], time)
            n = len(store)
        total = self._block_totals.get("n_points")
        lost = None if total is None else max(0, int(total) - n)
        if lost:
            if not n:
                raise DamagedStoreError(f"{self._source}: no point can be read; restore a backup")
            self._problems.append(f"{lost:,} points of {total:,} could not be read")
        return Recovered(n, lost, tuple(self._problems))

    def _first_metadata(self) -> dict[str, Any]:
        known = self._metadata
        given = known.get("given")
        if known.get("anchor") is not None:
            given = {**known["anchor"], "ids": [], "kind": "anchor"}
            anchor_of(given)
        elif "anchor" not in known:
            self._problems.append("its anchor cannot be read; a new one is found from the points")
        event = [now(), "recovered from a damaged store", None, 0.0, None]
        return {
            "settings": known["settings"],
            "given": given,
            "state": {"n_outliers": self._state["n_outliers"], "next_id": 0, "gate": None},
            "anchor": None,
            "audit": known.get("audit", False),
            "notes": known.get("notes", {}),
            "history": [*known.get("history", []), event],
        }

    def _blocks(self) -> Iterator[tuple[Block, list[Any] | None]]:
        """Read the points of intact blocks, with their names if they have any, and none twice."""
        if self._state["gate"] is None:
            return
        layout, named = RowLayout.from_json(self._state["gate"]), self._state.get("named", False)
        query = "SELECT number, n, seal, content FROM blocks WHERE number = ?"
        saved: set[int] = set()
        for record in self._records(query, self._keys("blocks", self._block_totals.get("next_block"))):
            try:
                block = layout.unpack_checked(*record)
            except _UNREADABLE:
                continue
            ids = block.ids.tolist()
            names = dict(self._names(ids)) if named else {}
            keep = np.array([one not in saved and (one in names or not named) for one in ids])
            if keep.any():
                block = block.take(keep)
                saved.update(block.ids.tolist())
                yield block, [names[one] for one in block.ids.tolist()] if named else None

    def _names(self, ids: list[int]) -> Iterator[tuple[int, Any]]:
        for one, packed in self._records("SELECT id, name FROM names WHERE id = ?", ids):
            with suppress(*_UNREADABLE):
                name = unpack_name(packed)
                if int(numbers_of([name])[0]) == one:
                    yield one, name

    def _forgotten(self) -> Iterator[tuple[Any, str]]:
        keys = self._keys("forgotten", self._totals.get("n_forgotten"))
        for number, packed, time, checksum in self._records("SELECT * FROM forgotten WHERE number = ?", keys):
            if checksum == deletion_checksum(number, packed, time):
                yield unpack_name(packed), time
