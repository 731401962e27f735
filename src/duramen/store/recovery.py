"""What can be saved of a damaged store, put into a new one."""

from __future__ import annotations

import os
import shutil
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from duramen.coreset.save import anchor_of
from duramen.dynamic.ids import numbers_of
from duramen.store.blocks import Block, RowLayout, seal
from duramen.store.carving import carved
from duramen.store.file import StoreFile, read_fact, row_seal, unpacked
from duramen.store.lock import WriterLock, is_open, now
from duramen.store.opening import resolved
from duramen.store.store import Store

__all__ = ["Recovered", "recover"]


@dataclass(frozen=True)
class Recovered:
    """What was saved.

    Attributes
    ----------
    n_points : int
        How many points are in the new store.
    n_lost : int or None
        How many are not; None if that is not known.
    problems : tuple of str
        What was found wrong.
    """

    n_points: int
    n_lost: int | None
    problems: tuple[str, ...]


@dataclass
class _Found:
    """What pages still hold."""

    facts: dict[str, Any] = field(default_factory=dict)
    blocks: dict[int, tuple[int, bytes]] = field(default_factory=dict)
    names: dict[int, Any] = field(default_factory=dict)
    forgotten: dict[int, tuple[Any, str]] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)


def recover(
    path: str | os.PathLike[str], target: str | os.PathLike[str], *, loss: Any = None, sampler: Any = None
) -> Recovered:
    """Save what can be saved of a damaged store: a new store with every point whose checksum is right.

    The damaged file is only read. The new store has the same settings, the
    anchor, the number of outliers and the notes, where they could be read.

    Parameters
    ----------
    path, target : str or path
        The damaged store, and the new one; nothing may be there yet.
    loss, sampler
        Of your own, where the store was made with such.

    Raises
    ------
    FileExistsError
        If the target is there already.
    ValueError
        If the settings are lost: then points cannot be read.
    """
    source, new = resolved(path), resolved(target)
    if not source.exists():
        raise FileNotFoundError(f"there is no file {source}")
    if is_open(source):
        raise ValueError(f"{source} is open in this process; close it first")
    lock = WriterLock(new)
    try:
        _claim(new)
        return _recovered(source, new, lock, loss, sampler)
    finally:
        lock.release()


def _recovered(source: Path, new: Path, lock: WriterLock, loss: Any, sampler: Any) -> Recovered:
    """Read the source and write the new store, or remove what was made of it."""
    try:
        return _saved(_found(_bytes_of(source, new)), source, new, lock, loss, sampler)
    except BaseException:
        for file in (new, *(new.with_name(new.name + end) for end in ("-wal", "-shm"))):
            file.unlink(missing_ok=True)
        raise


def _saved(found: _Found, source: Path, new: Path, lock: WriterLock, loss: Any, sampler: Any) -> Recovered:
    for name in ("settings", "state"):
        if name not in found.facts and f"spare-{name}" in found.facts:
            found.facts[name] = found.facts[f"spare-{name}"]
            if name == "state":
                found.facts[name]["named"] = bool(found.names)
            found.problems.append(f"what it says of its {name} is lost; an older copy of that was taken")
        if name not in found.facts:
            raise ValueError(
                f"{source}: what it says of its {name} is lost, without which points cannot be read; "
                "restore a backup"
            )
    saved = _written(found, new, lock, loss, sampler)
    expected = (found.facts.get("ledger") or {}).get("blocks") or {}
    total = expected.get("n_points")
    lost = None if total is None else max(0, int(total) - saved)
    if lost:
        found.problems.append(f"{lost:,} points of {total:,} could not be read")
    return Recovered(saved, lost, tuple(found.problems))


def _claim(new: Path) -> None:
    """Make an empty file, which is ours from here on."""
    try:
        new.touch(exist_ok=False)
    except FileExistsError:
        raise FileExistsError(f"{new} is there already; name a file that is not") from None


def _bytes_of(source: Path, new: Path) -> bytes:
    """Read the file, with its log brought in where SQLite still can; on a copy."""
    log = source.with_name(f"{source.name}-wal")
    if not log.exists() or not log.stat().st_size:
        return source.read_bytes()
    with tempfile.TemporaryDirectory(dir=new.parent) as folder:
        copy = Path(folder) / "copy"
        shutil.copyfile(source, copy)
        shutil.copyfile(log, copy.with_name("copy-wal"))
        try:
            with closing(sqlite3.connect(copy, isolation_level=None)) as connection:
                connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        except sqlite3.Error:
            return source.read_bytes()
        return copy.read_bytes()


def _found(content: bytes) -> _Found:
    """Sort records into the tables that they must be of: their checksums tell."""
    found = _Found()
    for rowid, values in carved(content):
        match values:
            case (None, int(n), int(mark), bytes(block)) if mark == seal(rowid, block):
                found.blocks[rowid] = (n, block)
            case (str(name), str(text), int(mark)):
                fact = read_fact(name, text, mark)
                if fact is not None:
                    found.facts[name] = fact[0]
            case (None, int() | bytes() as one, str(time), int(mark)) if mark == row_seal(rowid, one, time):
                found.forgotten[rowid] = (unpacked(one) if isinstance(one, bytes) else one, time)
            case (None, bytes(packed)):
                _take_name(found, rowid, packed)
    return found


def _take_name(found: _Found, rowid: int, packed: bytes) -> None:
    try:
        name = unpacked(packed)
        if int(numbers_of([name])[0]) == rowid:
            found.names[rowid] = name
    except (ValueError, TypeError):
        return


def _written(found: _Found, new: Path, lock: WriterLock, loss: Any, sampler: Any) -> int:
    """Make the new store, and put the points in."""
    state, file = found.facts["state"], StoreFile(new)
    try:
        file.create(_first_facts(found))
        store = Store(file, lock, loss, sampler)
    except BaseException:
        file.close()
        raise
    with store:
        with store.transaction():
            for block, names in _blocks(found, state):
                ids = block.ids if names is None else names
                store.insert(block.rows, block.labels, block.weights, ids)
            store._as_before(state)
            for number in sorted(found.forgotten):
                one, time = found.forgotten[number]
                file.note_forgotten([one], time)
        return len(store)


def _first_facts(found: _Found) -> dict[str, Any]:
    facts = found.facts
    said = facts.get("anchor")
    if said is None:
        found.problems.append("the anchor is lost, or there was none: a new one is made of the points")
    given = facts.get("given") if said is None else {**said, "ids": [], "kind": "anchor"}
    if given is not None:
        anchor_of(given)
    state = facts["state"]
    return {
        "settings": facts["settings"],
        "given": given,
        "state": {"n_outliers": state["n_outliers"], "next_id": 0, "gate": None},
        "anchor": None,
        "audit": facts.get("audit", False),
        "notes": facts.get("notes", {}),
        "history": [*facts.get("history", []), [now(), "recovered from a damaged store", None, 0.0, None]],
    }


def _blocks(found: _Found, state: dict[str, Any]) -> Iterator[tuple[Block, Any]]:
    """Give the points of blocks: those that have a name, where names are asked for, and none twice."""
    gate = state["gate"]
    if gate is None:
        return
    layout = RowLayout(gate["n_columns"], np.dtype(gate["dtype"]), gate["labelled"])
    taken: set[int] = set()
    for number in sorted(found.blocks):
        n, content = found.blocks[number]
        block = layout.unpack(content, n)
        fresh = np.array([one not in taken for one in block.ids.tolist()])
        if state.get("named"):
            fresh &= np.array([one in found.names for one in block.ids.tolist()])
        if fresh.any():
            block = block.take(fresh)
            taken.update(block.ids.tolist())
            yield block, [found.names[one] for one in block.ids.tolist()] if state.get("named") else None
