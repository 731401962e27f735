"""Blocks of rows in a store: how they are packed, and where points are added, found, changed and removed."""

from __future__ import annotations

import json
import sqlite3
import zlib
from collections.abc import Iterator, Sequence
from itertools import groupby
from operator import itemgetter
from typing import Any, NamedTuple, final

import numpy as np

from duramen.arrays import Array

_BYTES = 1 << 16  # of rows in a block: a deletion rewrites one, and reading one takes microseconds
_MOST_ROWS = 4096
_PAGE, _HERE = 4096, 489  # bytes of a page, and the fewest that a record has outside of overflow pages
_FRONT = 496  # zeros before the points: at least that many, and a multiple of eight
_SIX, _CHECKSUM_BYTES = 1 << 40, 6
_I8, _F8 = np.dtype("<i8"), np.dtype("<f8")


class Block(NamedTuple):
    """Points in columns, and each one's epoch: how many anchors preceded it."""

    ids: Array
    epochs: Array
    weights: Array
    labels: Array | None
    rows: Array

    @property
    def n(self) -> int:
        """The number of points."""
        return len(self.ids)

    def take(self, which: Array | slice) -> Block:
        """Return some of the points."""
        return Block(*(None if column is None else column[which] for column in self))  # type: ignore[arg-type]

    @staticmethod
    def concatenate(blocks: Sequence[Block]) -> Block:
        """Concatenate blocks."""
        columns = zip(*blocks, strict=True)
        return Block(*(None if column[0] is None else np.concatenate(column) for column in columns))  # type: ignore[arg-type]


@final
class RowLayout:
    """How points of one table are laid out in a block.

    Examples
    --------
    >>> layout = RowLayout(2, np.dtype(np.float32), labelled=False)
    >>> one = Block(np.array([7]), np.array([3]), np.ones(1), None, np.array([[1.0, 2.0]]))
    >>> content = layout.pack(one)
    >>> layout.unpack(content, 1).ids, layout.unpack(content, 1).epochs
    (array([7]), array([3]))
    """

    def __init__(self, n_columns: int, dtype: np.dtype[np.floating], labelled: bool) -> None:
        self.n_columns, self.labelled = n_columns, labelled
        self._dtype = np.dtype(dtype).newbyteorder("<")
        self._kinds = (_I8, _I8, _F8, *[_F8] * labelled, self._dtype)
        self._beside = 8 * (3 + labelled)
        self.row_bytes = self._beside + n_columns * self._dtype.itemsize
        self.capacity = max(1, min(_MOST_ROWS, _BYTES // self.row_bytes))

    @classmethod
    def from_json(cls, layout: dict[str, Any] | None) -> RowLayout:
        """Read the layout from the metadata of a store, None before the first rows."""
        layout = layout or {"n_columns": 0, "dtype": "f8", "labelled": False}
        return cls(layout["n_columns"], np.dtype(layout["dtype"]), layout["labelled"])

    def pack(self, block: Block) -> bytes:
        """Pack a block into bytes."""
        columns = [column for column in block if column is not None]
        parts = [
            np.ascontiguousarray(column, dtype=kind).tobytes()
            for column, kind in zip(columns, self._kinds, strict=True)
        ]
        length = _FRONT + block.n * self.row_bytes
        return b"".join([bytes(_FRONT), *parts, bytes(_padded_length(length, block.n) - length)])

    def unpack(self, content: bytes, n: int) -> Block:
        """Read a block of ``n`` points as views of its bytes; raise ValueError if the length is wrong."""
        if n < 1 or len(content) != _padded_length(_FRONT + n * self.row_bytes, n):
            raise ValueError(f"{len(content)} bytes are not {n} rows of {self.row_bytes} bytes")
        ids, epochs, weights, *labels = (
            np.frombuffer(content, kind, n, _FRONT + 8 * n * column)
            for column, kind in enumerate(self._kinds[:-1])
        )
        rows = np.frombuffer(content, self._dtype, n * self.n_columns, _FRONT + self._beside * n)
        return Block(ids, epochs, weights, labels[0] if labels else None, rows.reshape(n, self.n_columns))

    def unpack_checked(self, number: int, n: Any, checksum: Any, content: Any) -> Block:
        """Read a record of the table ``blocks``; raise ValueError on a checksum mismatch."""
        if not isinstance(content, bytes) or checksum != block_checksum(number, content):
            raise ValueError(f"block {number} differs from what was written (checksum mismatch)")
        return self.unpack(content, n)

    def split(self, block: Block) -> Iterator[Block]:
        """Split points into blocks of at most the capacity."""
        for start in range(0, block.n, self.capacity):
            yield block.take(slice(start, start + self.capacity))


def _padded_length(length: int, n: int) -> int:
    """Return the length of a block padded so that its record fills overflow pages, and least of another page.

    A record of p bytes has 489 + (p - 489) mod 4092 of them, if that is no more than 4061,
    outside of overflow pages: 489 if nothing remains.
    """
    padded = length
    for _ in range(2):  # the length of the record's head depends on the result
        beside = 4 + _varint_bytes(12 + 2 * padded) + _integer_bytes(n) + _CHECKSUM_BYTES
        padded = length + (_HERE - length - beside) % (_PAGE - 4)
    return padded


def _varint_bytes(number: int) -> int:
    return -(-number.bit_length() // 7)


def _integer_bytes(number: int) -> int:
    """Return how many bytes SQLite uses for a small positive integer."""
    return 0 if number == 1 else 1 if number < 1 << 7 else 2


def block_checksum(number: int, content: bytes) -> int:
    """Compute the checksum of a block under its number: always six bytes in SQLite."""
    return _SIX + zlib.crc32(content, zlib.crc32(number.to_bytes(8, "little", signed=True)))


AMONG = "IN (SELECT value FROM json_each(?))"
_MASK = (1 << 62) - 1


def as_json(ids: Array) -> tuple[str]:
    """Return ids as the parameter that :data:`AMONG` takes."""
    return (json.dumps(ids.tolist()),)


@final
class Blocks:
    """The tables ``blocks`` and ``members``.

    Invariants
    ----------
    1. Every point is in one block, which ``members`` records.
    2. ``n_points``, ``n_blocks`` and ``digest``, the sum of all checksums, are those of the blocks.
    3. ``_small`` has the blocks that are less than half full; together they would not fill one.
    """

    def __init__(self, connection: sqlite3.Connection, layout: RowLayout) -> None:
        self._connection, self.layout = connection, layout
        self.n_points = self.n_blocks = self.digest = self._next = 0
        self._small: dict[int, int] = {}

    def totals(self) -> dict[str, int]:
        """Return the totals to check when the blocks are read again."""
        return {
            "n_points": self.n_points,
            "n_blocks": self.n_blocks,
            "digest": self.digest,
            "next_block": self._next,
        }

    # reading

    def read(self, totals: dict[str, Any]) -> Iterator[Block]:
        """Read all blocks; raise ValueError, naming the block, if one differs from what was written."""
        self.n_points = self.n_blocks = self.digest = 0
        self._small, self._next = {}, int(totals["next_block"])
        expected = int(totals["n_points"])
        query = "SELECT number, n, seal, content FROM blocks ORDER BY number"
        for number, n, checksum, content in self._connection.execute(query):
            block = self.layout.unpack_checked(number, n, checksum, content)
            self._count(number, n, checksum, 1)
            if self.n_points > expected or number >= self._next:
                raise ValueError(f"block {number} is unexpected")
            yield block
        found = self.totals()
        for name in ("n_points", "n_blocks", "digest"):
            if found[name] != totals[name]:
                raise ValueError(f"the blocks have {name} {found[name]}, but {totals[name]} was written")

    def _get(self, number: int) -> tuple[Block, int]:
        query = "SELECT n, seal, content FROM blocks WHERE number = ?"
        found = self._connection.execute(query, (number,)).fetchone()
        if found is None:
            raise ValueError(f"block {number} is missing")
        return self.layout.unpack_checked(number, *found), found[1]

    def _find(self, ids: Array) -> Iterator[tuple[int, Block, int, Array]]:
        """Find points: the number of each of their blocks, the block, its checksum, and their rows in it."""
        query = f"SELECT block, id FROM members WHERE id {AMONG} ORDER BY block"
        found = self._connection.execute(query, as_json(ids)).fetchall()
        if len(found) != len(ids):
            raise ValueError(f"{len(ids) - len(found)} of {len(ids)} points are not in any block")
        for number, members in groupby(found, key=itemgetter(0)):
            wanted = [one for _, one in members]
            block, checksum = self._get(number)
            rows = np.flatnonzero(np.isin(block.ids, wanted, kind="sort"))
            if len(rows) != len(wanted):
                raise ValueError(f"points are missing from block {number}, which members lists")
            yield number, block, checksum, rows

    def check(self) -> None:
        """Check that ``members`` agrees with the blocks; raise ValueError, naming a point, if not."""
        members = dict(self._connection.execute("SELECT id, block FROM members"))
        for number, n, content in self._connection.execute("SELECT number, n, content FROM blocks"):
            for one in self.layout.unpack(content, n).ids.tolist():
                if members.pop(one, None) != number:
                    raise ValueError(f"id {one} is in block {number}, but members lists another")
        if members:
            raise ValueError(f"id {min(members)} is not in any block, but members lists one")

    # changing

    def add(self, block: Block) -> None:
        """Add new points."""
        for part in self.layout.split(block):
            self._append(part)
        self._join_small(at_least=self.layout.capacity)

    def remove(self, ids: Array) -> None:
        """Remove points, leaving no trace in the file's tables."""
        for number, block, checksum, rows in self._find(ids):
            self._count(number, block.n, checksum, -1)
            if len(rows) < block.n:
                self._write(number, block.take(np.delete(np.arange(block.n), rows)))
            else:
                self._connection.execute("DELETE FROM blocks WHERE number = ?", (number,))
        self._connection.execute(f"DELETE FROM members WHERE id {AMONG}", as_json(ids))
        self._join_small(at_least=self.layout.capacity)

    def replace(self, new: Block) -> None:
        """Replace the points with the same ids."""
        order = np.argsort(new.ids)
        for number, block, checksum, rows in self._find(new.ids):
            mine = new.take(order[np.searchsorted(new.ids, block.ids[rows], sorter=order)])
            columns = [None if column is None else column.copy() for column in block]
            for column, other in zip(columns, mine, strict=True):
                if column is not None:
                    column[rows] = other
            self._count(number, block.n, checksum, -1)
            self._write(number, Block(*columns))  # type: ignore[arg-type]

    def pack(self) -> None:
        """Join all small blocks."""
        self._join_small(at_least=0)

    def _append(self, block: Block) -> None:
        number, self._next = self._next, self._next + 1
        self._write(number, block)
        members = ((one, number) for one in block.ids.tolist())
        self._connection.executemany("INSERT OR REPLACE INTO members VALUES (?, ?)", members)

    def _write(self, number: int, block: Block) -> None:
        content = self.layout.pack(block)
        record = (number, block.n, block_checksum(number, content), content)
        self._connection.execute("INSERT OR REPLACE INTO blocks VALUES (?, ?, ?, ?)", record)
        self._count(*record[:3], 1)

    def _count(self, number: int, n: int, checksum: int, sign: int) -> None:
        self.n_points += sign * n
        self.n_blocks += sign
        self.digest = (self.digest + sign * checksum) & _MASK
        if sign < 0:
            self._small.pop(number, None)
        elif n < self.layout.capacity // 2:
            self._small[number] = n

    def _join_small(self, at_least: int) -> None:
        """Join small blocks if they have at least this many points together."""
        if len(self._small) < 2 or sum(self._small.values()) < at_least:
            return
        parts = []
        for number in sorted(self._small):
            block, checksum = self._get(number)
            parts.append(block)
            self._count(number, block.n, checksum, -1)
            self._connection.execute("DELETE FROM blocks WHERE number = ?", (number,))
        for part in self.layout.split(Block.concatenate(parts)):
            self._append(part)
