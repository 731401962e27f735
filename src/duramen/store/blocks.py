"""Blocks of rows in a store: how they are packed, and where points are added, found, changed and removed."""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator
from functools import lru_cache
from typing import Any, final

import numpy as np

from duramen.arrays import Array
from duramen.store.connection import Connection

_BYTES = 1 << 16  # of rows in a block: a deletion rewrites one, and reading one takes microseconds
_MOST_ROWS = 4096
_PAGE, _HERE = 4096, 489  # bytes of a page, and the fewest that a record has outside of overflow pages
_FRONT = 496  # zeros before the points: at least that many, and a multiple of eight
_SIX, _CHECKSUM_BYTES = 1 << 40, 6
_MASK = (1 << 62) - 1

Block = dict[str, Array]
"""Points in columns: ids, epochs (how many anchors preceded each), weights, labels if there are any, rows."""


@final
class RowLayout:
    """How points are laid out in a block: one column after the other.

    Examples
    --------
    >>> layout = RowLayout(2, np.dtype(np.float32), labelled=False)
    >>> one = {"ids": [7], "epochs": [3], "weights": [1.0], "rows": [[1.0, 2.0]]}
    >>> content = layout.pack(one)
    >>> layout.unpack(0, 1, block_checksum(0, content), content)["rows"]
    array([[1., 2.]], dtype=float32)
    """

    def __init__(self, n_columns: int, dtype: np.dtype[np.floating], labelled: bool) -> None:
        labels = [("labels", "<f8", ())] * labelled
        row = ("rows", np.dtype(dtype).newbyteorder("<"), (n_columns,))
        self._columns = (("ids", "<i8", ()), ("epochs", "<i8", ()), ("weights", "<f8", ()), *labels, row)
        self.row_bytes = _record(self._columns, 1).itemsize
        self.capacity = max(1, min(_MOST_ROWS, _BYTES // self.row_bytes))

    @classmethod
    def from_json(cls, layout: dict[str, Any]) -> RowLayout:
        """Read the layout from the metadata of a store."""
        return cls(layout["n_columns"], np.dtype(layout["dtype"]), layout["labelled"])

    def pack(self, block: Block) -> bytes:
        """Pack a block into bytes."""
        n = len(block["ids"])
        record = np.empty((), _record(self._columns, n))
        for name in record.dtype.names or ():
            record[name] = block[name]
        length = _FRONT + record.nbytes
        return b"".join([bytes(_FRONT), record.tobytes(), bytes(_padded_length(length, n) - length)])

    def unpack(self, number: int, n: int, checksum: int, content: bytes) -> Block:
        """Read a record of the table ``blocks`` as views of its bytes; raise ValueError if it was changed."""
        if checksum != block_checksum(number, content):
            raise ValueError(f"block {number} differs from what was written (checksum mismatch)")
        if n < 1 or len(content) != _padded_length(_FRONT + n * self.row_bytes, n):
            raise ValueError(f"{len(content)} bytes are not {n} rows of {self.row_bytes} bytes")
        record = np.frombuffer(content, _record(self._columns, n), 1, _FRONT)[0]
        return {name: record[name] for name in record.dtype.names or ()}

    def split(self, block: Block) -> Iterator[Block]:
        """Split points into blocks of at most the capacity."""
        for start in range(0, len(block["ids"]), self.capacity):
            yield take(block, slice(start, start + self.capacity))


@lru_cache
def _record(columns: tuple[tuple[str, Any, tuple[int, ...]], ...], n: int) -> np.dtype[np.void]:
    """Return the type of ``n`` points as one record."""
    return np.dtype([(name, kind, (n, *shape)) for name, kind, shape in columns])


def take(block: Block, which: Array | slice) -> Block:
    """Return some of the points."""
    return {name: column[which] for name, column in block.items()}


def _padded_length(length: int, n: int) -> int:
    """Return the length of a block padded so that its record fills overflow pages, and least of another page.

    A record of p bytes has 489 + (p - 489) mod 4092 of them, if that is no more than 4061,
    outside of overflow pages: 489 if nothing remains.
    """
    integer = 0 if n == 1 else 1 if n < 1 << 7 else 2  # bytes that SQLite uses for n
    padded = length
    for _ in range(2):  # the length of the record's head depends on the result
        head = 4 + -(-(12 + 2 * padded).bit_length() // 7)
        padded = length + (_HERE - length - head - integer - _CHECKSUM_BYTES) % (_PAGE - 4)
    return padded


def block_checksum(number: int, content: bytes) -> int:
    """Compute the checksum of a block under its number: always six bytes in SQLite."""
    return _SIX + zlib.crc32(content, zlib.crc32(number.to_bytes(8, "little", signed=True)))


AMONG = "IN (SELECT value FROM json_each(?))"
_BLOCKS = "SELECT number, n, seal, content FROM blocks"


def as_json(ids: Array) -> str:
    """Return ids as the parameter that :data:`AMONG` takes."""
    return json.dumps(ids.tolist())


@final
class Blocks:
    """The tables ``blocks`` and ``members``.

    Invariants
    ----------
    1. Every point is in one block, which ``members`` records.
    2. ``totals`` has the number of points and of blocks, the sum of all checksums, and the next number.
    3. ``_small`` has the blocks that are less than half full; together they would not fill one.
    """

    def __init__(self, connection: Connection, layout: RowLayout) -> None:
        self._connection, self.layout = connection, layout
        self.totals = {"n_points": 0, "n_blocks": 0, "digest": 0, "next_block": 0}
        self._small: dict[int, int] = {}

    # reading

    def read(self, totals: dict[str, int]) -> Iterator[Block]:
        """Read all blocks, once; raise ValueError, naming one that differs from what was written."""
        self.totals["next_block"] = totals["next_block"]
        for number, n, checksum, content in self._connection.execute(f"{_BLOCKS} ORDER BY number"):
            yield self.layout.unpack(number, n, checksum, content)
            self._count(number, n, checksum)
        for name, value in self.totals.items():
            if totals[name] != value:
                raise ValueError(f"the blocks have {name} {value}, but {totals[name]} was written")

    def _take_out(self, number: int) -> Block:
        """Read a block that is to be deleted or written again."""
        found = self._connection.run(f"{_BLOCKS} WHERE number = ?", number)
        if not found:
            raise ValueError(f"block {number} is missing")
        _, n, checksum, content = found[0]
        self._count(number, n, checksum, -1)
        return self.layout.unpack(number, n, checksum, content)

    def _find(self, ids: Array) -> Iterator[tuple[int, Block, Array, Array]]:
        """Take out the blocks of sorted ids: each one's number, the block, their rows in it, their places."""
        query, n = f"SELECT DISTINCT block FROM members WHERE id {AMONG}", 0
        for (number,) in self._connection.run(query, as_json(ids)):
            block = self._take_out(number)
            places = np.minimum(np.searchsorted(ids, block["ids"]), len(ids) - 1)
            rows = np.flatnonzero(ids[places] == block["ids"])
            n += len(rows)
            yield number, block, rows, places[rows]
        if n != len(ids):
            raise ValueError(f"{len(ids) - n} of {len(ids)} points are not in the block that members lists")

    def check(self) -> None:
        """Check that ``members`` agrees with the blocks; raise ValueError, naming a point, if not."""
        listed = set(self._connection.run("SELECT id, block FROM members"))
        for record in self._connection.execute(_BLOCKS):
            block = self.layout.unpack(*record)
            listed ^= {(one, record[0]) for one in block["ids"].tolist()}
        if listed:
            raise ValueError(f"id {min(listed)[0]} is not in the block that members lists")

    # changing

    def add(self, block: Block) -> None:
        """Add new points."""
        for part in self.layout.split(block):
            number = self.totals["next_block"]
            self.totals["next_block"] += 1
            self._write(number, part)
            members = ((one, number) for one in part["ids"].tolist())
            self._connection.run_many("INSERT OR REPLACE INTO members VALUES (?, ?)", members)
        self.join_small(at_least=self.layout.capacity)

    def remove(self, ids: Array) -> None:
        """Remove points, leaving no trace in the file's tables."""
        for number, block, rows, _ in self._find(np.sort(ids)):
            rest = np.delete(np.arange(len(block["ids"])), rows)
            if len(rest):
                self._write(number, take(block, rest))
            else:
                self._delete(number)
        self._connection.run(f"DELETE FROM members WHERE id {AMONG}", as_json(ids))
        self.join_small(at_least=self.layout.capacity)

    def replace(self, new: Block) -> None:
        """Replace the points with the same ids."""
        new = take(new, np.argsort(new["ids"]))
        for number, block, rows, places in self._find(new["ids"]):
            block = take(block, np.arange(len(block["ids"])))  # a copy
            for name, column in block.items():
                column[rows] = new[name][places]
            self._write(number, block)

    def join_small(self, at_least: int) -> None:
        """Join small blocks if they have at least this many points together."""
        if len(self._small) < 2 or sum(self._small.values()) < at_least:
            return
        parts = []
        for number in sorted(self._small):
            parts.append(self._take_out(number))
            self._delete(number)
        self.add({name: np.concatenate([part[name] for part in parts]) for name in parts[0]})

    def _write(self, number: int, block: Block) -> None:
        content = self.layout.pack(block)
        record = number, len(block["ids"]), block_checksum(number, content), content
        self._connection.run("INSERT OR REPLACE INTO blocks VALUES (?, ?, ?, ?)", *record)
        self._count(*record[:3])

    def _delete(self, number: int) -> None:
        self._connection.run("DELETE FROM blocks WHERE number = ?", number)

    def _count(self, number: int, n: int, checksum: int, sign: int = 1) -> None:
        self.totals["n_points"] += sign * n
        self.totals["n_blocks"] += sign
        self.totals["digest"] = (self.totals["digest"] + sign * checksum) & _MASK
        self._small.pop(number, None)
        if sign > 0 and n < self.layout.capacity // 2:
            self._small[number] = n
