"""Blocks of rows in a store: how they are packed, and where points are added, found, changed and removed."""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator, Sequence
from typing import Any, final

import numpy as np

from duramen.arrays import Array
from duramen.store.connection import AMONG, Connection, damaged, store_errors

_BYTES = 1 << 16  # of rows in a block: a deletion rewrites one, and reading one takes microseconds
_MOST_ROWS = 4096
# A record of p bytes has 489 + (p - 489) mod 4092 of them outside of overflow pages, or 489 if that is more
# than 4061; 12 to 15 come before the content. If its length is 474 mod 4092, these are 489, within the zeros.
_FRONT, _PER_PAGE, _LENGTH = 496, 4092, 474  # zeros before the points, a multiple of eight
_SIX_BYTES = 1 << 40  # a number that SQLite stores in six bytes
_MASK = (1 << 62) - 1

Block = dict[str, Array]
"""Points in columns: ids, epochs (how many anchors preceded each), weights, y if they have labels, X."""


@final
class RowLayout:
    """How points are laid out in a block: one column after the other."""

    def __init__(self, n_columns: int, dtype: Any, labelled: bool) -> None:
        labels = [("y", "<f8", ())] * labelled
        X = "X", np.dtype(dtype).newbyteorder("<"), (n_columns,)
        self._columns = [("ids", "<i8", ()), ("epochs", "<i8", ()), ("weights", "<f8", ()), *labels, X]
        self._row_bytes = self._record(1).itemsize
        self.capacity = max(1, min(_MOST_ROWS, _BYTES // self._row_bytes))

    def _record(self, n: int) -> np.dtype[np.void]:
        """Return the type of ``n`` points as one record."""
        return np.dtype([(name, kind, (n, *shape)) for name, kind, shape in self._columns])

    def pack(self, block: Block) -> bytes:
        record = np.empty((), self._record(len(block["ids"])))
        for name, column in block.items():
            record[name] = column
        rest = (_LENGTH - _FRONT - record.nbytes) % _PER_PAGE
        return b"".join([bytes(_FRONT), record.tobytes(), bytes(rest)])

    def unpack(self, number: int, n: int, checksum: int, content: bytes) -> Block:
        """Read a record of the table ``blocks`` as views of its bytes; raise ValueError if it was changed."""
        if checksum != block_checksum(number, content):
            raise ValueError(f"block {number} differs from what was written (checksum mismatch)")
        length, size = len(content), n * self._row_bytes
        padded = 0 <= length - _FRONT - size < _PER_PAGE and (length - _LENGTH) % _PER_PAGE < 4
        if n < 1 or not padded:  # older versions have up to three bytes more
            raise ValueError(f"{length} bytes are not {n} rows, which take {size} bytes")
        record = np.frombuffer(content, self._record(n), 1, _FRONT)[0]
        return {name: record[name] for name, *_ in self._columns}

    def split(self, block: Block) -> Iterator[Block]:
        """Split points into blocks of at most the capacity."""
        for start in range(0, len(block["ids"]), self.capacity):
            yield take(block, slice(start, start + self.capacity))


def take(block: Block, which: Array | slice) -> Block:
    """Return some of the points."""
    return {name: column[which] for name, column in block.items()}


def join(blocks: Sequence[Block]) -> Block:
    """Return the points of several blocks."""
    return {name: np.concatenate([block[name] for block in blocks]) for name in blocks[0]}


def block_checksum(number: int, content: bytes) -> int:
    """Compute the checksum of a block under its number: always six bytes in SQLite."""
    return _SIX_BYTES + zlib.crc32(content, zlib.crc32(number.to_bytes(8, "little", signed=True)))


_BLOCKS = "SELECT number, n, seal, content FROM blocks"


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

    def read(self, totals: dict[str, int]) -> Iterator[Block]:
        """Read all blocks, once; raise ValueError, naming one that differs from what was written."""
        self.totals["next_block"] = totals["next_block"]
        for record in self._connection.execute(f"{_BLOCKS} ORDER BY number"):
            yield self.layout.unpack(*record)
            self._count(record)
        if self.totals != totals:
            raise ValueError(f"the blocks have {self.totals}, but {totals} was written")

    def _take_out(self, number: int) -> Block:
        found = self._connection.run(f"{_BLOCKS} WHERE number = ?", number)
        with store_errors(self._connection.path):
            if not found:
                raise ValueError(f"block {number} is missing")
            self._connection.run("DELETE FROM blocks WHERE number = ?", number)
            self._count(found[0], -1)
            return self.layout.unpack(*found[0])

    def _find(self, ids: Array) -> Iterator[tuple[int, Block, Array]]:
        """Take out the blocks of sorted ids: the number of each, the block, and which points they are."""
        query, missing = f"SELECT DISTINCT block FROM members WHERE id {AMONG}", len(ids)
        for (number,) in self._connection.run(query, json.dumps(ids.tolist())):
            block = self._take_out(number)
            found = ids.take(np.searchsorted(ids, block["ids"]), mode="clip") == block["ids"]
            missing -= np.count_nonzero(found)
            yield number, block, found
        if missing:
            raise damaged(self._connection.path, f"{missing} points are not in the block that members lists")

    def check(self) -> None:
        """Check that ``members`` agrees with the blocks; raise ValueError, naming a point, if not."""
        listed = set(self._connection.run("SELECT id, block FROM members"))
        for record in self._connection.execute(_BLOCKS):
            listed ^= {(one, record[0]) for one in self.layout.unpack(*record)["ids"].tolist()}
        if listed:
            raise ValueError(f"id {min(listed)[0]} is not in the block that members lists")

    def add(self, block: Block) -> None:
        for part in self.layout.split(block):
            number = self.totals["next_block"]
            self.totals["next_block"] += 1
            self._write(number, part)
            members = ((one, number) for one in part["ids"].tolist())
            self._connection.run_many("INSERT OR REPLACE INTO members VALUES (?, ?)", members)
        self.join_small(at_least=self.layout.capacity)

    def remove(self, ids: Array) -> None:
        """Remove points, leaving no trace in the file's tables."""
        for number, block, found in self._find(np.sort(ids)):
            if not found.all():
                self._write(number, take(block, ~found))
        self._connection.delete("members", ids)
        self.join_small(at_least=self.layout.capacity)

    def replace(self, new: Block) -> None:
        new = take(new, np.argsort(new["ids"]))
        for number, block, found in self._find(new["ids"]):
            mine = take(new, np.searchsorted(new["ids"], block["ids"][found]))
            self._write(number, join([take(block, ~found), mine]))

    def join_small(self, at_least: int) -> None:
        """Join small blocks if they have at least this many points together."""
        if len(self._small) < 2 or sum(self._small.values()) < at_least:
            return
        self.add(join([self._take_out(number) for number in sorted(self._small)]))

    def _write(self, number: int, block: Block) -> None:
        content = self.layout.pack(block)
        record = number, len(block["ids"]), block_checksum(number, content), content
        self._connection.run("INSERT INTO blocks VALUES (?, ?, ?, ?)", *record)
        self._count(record)

    def _count(self, record: tuple[Any, ...], sign: int = 1) -> None:
        number, n, checksum, _ = record
        for name, more in (("n_points", n), ("n_blocks", 1), ("digest", checksum)):
            self.totals[name] = (self.totals[name] + sign * more) & _MASK
        self._small.pop(number, None)
        if sign > 0 and n < self.layout.capacity // 2:
            self._small[number] = n
