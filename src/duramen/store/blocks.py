"""Blocks of rows in a store: how they are packed, and where points are put, found, changed and removed."""

from __future__ import annotations

import sqlite3
import zlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple, final

import numpy as np

from duramen.arrays import Array

__all__ = ["Block", "Blocks", "RowLayout", "seal"]


_BYTES = 1 << 16  # of rows in a block: a deletion rewrites one, and to read one takes microseconds
_MOST_ROWS = 4096
_PAGE, _HERE = 4096, 489  # bytes of a page, and the least that a record has outside of overflow pages
_FRONT = 496  # zeros before the points: that much, and a multiple of eight
_SIX, _SEAL_BYTES = 1 << 40, 6
_I8, _F8 = np.dtype("<i8"), np.dtype("<f8")


class Block(NamedTuple):
    """Points in columns, and in which epoch each came: how many anchors there had been."""

    ids: Array
    epochs: Array
    weights: Array
    labels: Array | None
    rows: Array

    @property
    def n(self) -> int:
        """How many points there are."""
        return len(self.ids)

    def take(self, which: Array | slice) -> Block:
        """Take some of them."""
        return Block(*(None if column is None else column[which] for column in self))  # type: ignore[arg-type]

    @staticmethod
    def joined(blocks: Sequence[Block]) -> Block:
        """Join blocks, one after the other."""
        columns = zip(*blocks, strict=True)
        return Block(*(None if column[0] is None else np.concatenate(column) for column in columns))  # type: ignore[arg-type]


@final
class RowLayout:
    """How points of one table stand in a block.

    Parameters
    ----------
    n_columns : int
    dtype : float32 or float64
    labelled : bool

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
        self._native = np.dtype(dtype).newbyteorder("=")
        self._dtype = self._native.newbyteorder("<")
        self._beside = 8 * (3 + labelled)
        self.row_bytes = self._beside + n_columns * self._dtype.itemsize
        self.capacity = max(1, min(_MOST_ROWS, _BYTES // self.row_bytes))

    def pack(self, block: Block) -> bytes:
        """Put a block into bytes."""
        kinds = (_I8, _I8, _F8, _F8, self._dtype)
        columns = [(column, kind) for column, kind in zip(block, kinds, strict=True) if column is not None]
        parts = [np.ascontiguousarray(column, dtype=kind).tobytes() for column, kind in columns]
        length = _FRONT + block.n * self.row_bytes
        return b"".join([bytes(_FRONT), *parts, bytes(_padded(length, block.n) - length)])

    def unpack(self, content: bytes, n: int) -> Block:
        """Read a block of ``n`` points; its arrays are views of the bytes.

        Raises
        ------
        ValueError
            If the bytes are not so many.
        """
        if n < 1 or len(content) != _padded(_FRONT + n * self.row_bytes, n):
            raise ValueError(f"{len(content)} bytes are no {n} rows of {self.row_bytes} bytes")
        starts = [_FRONT + 8 * n * column for column in range(4)]
        ids, epochs = (np.frombuffer(content, _I8, n, start) for start in starts[:2])
        weights = np.frombuffer(content, _F8, n, starts[2])
        labels = np.frombuffer(content, _F8, n, starts[3]) if self.labelled else None
        rows = np.frombuffer(content, self._dtype, n * self.n_columns, _FRONT + self._beside * n)
        return Block(ids, epochs, weights, labels, rows.reshape(n, self.n_columns))

    def cut(self, block: Block) -> Iterator[Block]:
        """Cut points into blocks of at most the capacity."""
        for start in range(0, block.n, self.capacity):
            yield block.take(slice(start, start + self.capacity))


def _padded(length: int, n: int) -> int:
    """Lengthen a block of ``n`` points so that its record fills overflow pages, and least of another page.

    A record of p bytes has 489 + (p - 489) mod 4092 of them, if that is no more than 4061,
    outside of overflow pages: 489 where that leaves no rest.
    """
    padded = length
    for _ in range(2):  # the length of the record's head depends on the result
        beside = 4 + _varint_bytes(12 + 2 * padded) + _integer_bytes(n) + _SEAL_BYTES
        padded = length + (_HERE - length - beside) % (_PAGE - 4)
    return padded


def _varint_bytes(number: int) -> int:
    return -(-number.bit_length() // 7)


def _integer_bytes(number: int) -> int:
    """Count the bytes that SQLite takes for a small positive integer."""
    return 0 if number == 1 else 1 if number < 1 << 7 else 2


def seal(number: int, content: bytes) -> int:
    """Compute the checksum of a block under its number: always of six bytes in SQLite."""
    return _SIX + zlib.crc32(content, zlib.crc32(number.to_bytes(8, "little", signed=True)))


_FEW = 500  # ids looked for by one statement
_MASK = (1 << 62) - 1


@final
class Blocks:
    """The tables ``blocks`` and ``members``.

    Invariants
    ----------
    1. Every point is in one block, and ``members`` says in which.
    2. ``n_points``, ``n_blocks`` and ``digest``, the sum of all checksums, are those of the blocks.
    3. ``small`` has the blocks that are less than half full, which together would not fill one.

    Parameters
    ----------
    connection : sqlite3.Connection
    layout : RowLayout
    """

    def __init__(self, connection: sqlite3.Connection, layout: RowLayout) -> None:
        self._connection, self.layout = connection, layout
        self.n_points = self.n_blocks = self.digest = self._next = 0
        self._small: dict[int, int] = {}

    def ledger(self) -> dict[str, int]:
        """Say what must be found when the blocks are read again."""
        return {
            "n_points": self.n_points,
            "n_blocks": self.n_blocks,
            "digest": self.digest,
            "next_block": self._next,
        }

    # reading

    def read(self, ledger: dict[str, Any]) -> Iterator[Block]:
        """Read all blocks, and check that they are what the ledger says.

        Raises
        ------
        ValueError
            Naming the block that is not what was written.
        """
        self.n_points = self.n_blocks = self.digest = 0
        self._small, self._next = {}, int(ledger["next_block"])
        expected = int(ledger["n_points"])
        query = "SELECT number, n, seal, content FROM blocks ORDER BY number"
        for number, n, mark, content in self._connection.execute(query):
            block = self._opened(number, n, mark, content)
            self._count(number, n, mark, 1)
            if self.n_points > expected or number >= self._next:
                raise ValueError(f"block {number} is one too many")
            yield block
        found = self.ledger()
        for what in ("n_points", "n_blocks", "digest"):
            if found[what] != ledger[what]:
                raise ValueError(f"the blocks have {what} {found[what]}, and {ledger[what]} were written")

    def _opened(self, number: Any, n: Any, mark: Any, content: Any) -> Block:
        if not (isinstance(content, bytes) and isinstance(n, int) and mark == seal(number, content)):
            raise ValueError(f"block {number} is not what was written (its checksum differs)")
        return self.layout.unpack(content, n)

    def _one(self, number: int) -> tuple[Block, int]:
        query = "SELECT n, seal, content FROM blocks WHERE number = ?"
        found = self._connection.execute(query, (number,)).fetchone()
        if found is None:
            raise ValueError(f"block {number} is missing")
        return self._opened(number, *found), found[1]

    # changing

    def add(self, block: Block) -> None:
        """Put new points in."""
        for part in self.layout.cut(block):
            self._write(part)
        self._join()

    def remove(self, ids: Array) -> None:
        """Take points out, and leave nothing of them in the file's tables."""
        for number, block, mark, rows in self._found(ids):
            left = np.ones(block.n, dtype=bool)
            left[rows] = False
            self._count(number, len(left), mark, -1)
            if left.any():
                self._rewrite(number, block.take(left))
            else:
                self._connection.execute("DELETE FROM blocks WHERE number = ?", (number,))
        self._connection.executemany("DELETE FROM members WHERE id = ?", ((one,) for one in ids.tolist()))
        self._join()

    def replace(self, new: Block) -> None:
        """Put points in the place of those of the same ids."""
        ids = new.ids
        order = np.argsort(ids)
        for number, block, mark, rows in self._found(ids):
            mine = order[np.searchsorted(ids[order], block.ids[rows])]
            self._count(number, block.n, mark, -1)
            self._rewrite(number, _with(block, rows, new.take(mine)))

    def _write(self, block: Block) -> None:
        number, self._next = self._next, self._next + 1
        self._rewrite(number, block)
        members = zip(block.ids.tolist(), [number] * block.n, strict=True)
        self._connection.executemany("INSERT OR REPLACE INTO members VALUES (?, ?)", members)

    def _rewrite(self, number: int, block: Block) -> None:
        content = self.layout.pack(block)
        n, mark = block.n, seal(number, content)
        self._connection.execute(
            "INSERT OR REPLACE INTO blocks VALUES (?, ?, ?, ?)", (number, n, mark, content)
        )
        self._count(number, n, mark, 1)

    def _count(self, number: int, n: int, mark: int, sign: int) -> None:
        self.n_points += sign * n
        self.n_blocks += sign
        self.digest = (self.digest + sign * mark) & _MASK
        if sign < 0:
            self._small.pop(number, None)
        elif n < self.layout.capacity // 2:
            self._small[number] = n

    def pack(self) -> None:
        """Join all small blocks."""
        if len(self._small) > 1:
            self._join(least=0)

    def _join(self, least: int | None = None) -> None:
        """Join small blocks, if they fill one."""
        if sum(self._small.values()) < (self.layout.capacity if least is None else least):
            return
        parts = []
        for number in sorted(self._small):
            block, mark = self._one(number)
            parts.append(block)
            self._count(number, block.n, mark, -1)
            self._connection.execute("DELETE FROM blocks WHERE number = ?", (number,))
        for part in self.layout.cut(Block.joined(parts)):
            self._write(part)

    # finding

    def _found(self, ids: Array) -> Iterator[tuple[int, Block, int, Array]]:
        """Find points: the number of each of their blocks, the block, its checksum, and their rows in it."""
        wanted, found = np.sort(ids), 0
        for number in self._numbers(wanted.tolist()):
            block, mark = self._one(number)
            there = block.ids
            near = np.minimum(np.searchsorted(wanted, there), len(wanted) - 1)
            rows = np.flatnonzero(wanted[near] == there)
            found += len(rows)
            yield number, block, mark, rows
        if found != len(ids):
            raise ValueError(
                f"{len(ids) - found} of {len(ids)} points are not in the block they are said to be in"
            )

    def _numbers(self, ids: list[int]) -> list[int]:
        """Find the blocks of points."""
        numbers: set[int] = set()
        found = 0
        for start in range(0, len(ids), _FEW):
            few = ids[start : start + _FEW]
            query = f"SELECT block FROM members WHERE id IN ({','.join('?' * len(few))})"
            blocks = self._connection.execute(query, few).fetchall()
            found += len(blocks)
            numbers.update(block for (block,) in blocks)
        if found != len(ids):
            raise ValueError(f"{len(ids) - found} of {len(ids)} points are in no block")
        return sorted(numbers)

    def check(self, blocks: Iterable[tuple[int, Array]]) -> None:
        """See that ``members`` says what the blocks say, given as their numbers and ids.

        Raises
        ------
        ValueError
            Naming a point that is said to be elsewhere.
        """
        said = np.array(self._connection.execute("SELECT id, block FROM members ORDER BY id").fetchall())
        said = said.reshape(-1, 2)
        pairs = [np.column_stack([ids, np.full(len(ids), number)]) for number, ids in blocks]
        there = np.concatenate(pairs) if pairs else said[:0]
        there = there[np.argsort(there[:, 0])]
        if len(said) != len(there):
            raise ValueError(f"{len(said)} points are said to be in blocks, and {len(there)} are")
        wrong = np.flatnonzero((said != there).any(axis=1))
        if wrong.size:
            one, block = said[wrong[0]].tolist()
            raise ValueError(f"id {one} is said to be in block {block}, and is not")


def _with(block: Block, rows: Array, new: Block) -> Block:
    """Put points in the place of some rows."""
    columns = [None if column is None else column.copy() for column in block]
    for column, other in zip(columns, new, strict=True):
        if column is not None:
            column[rows] = other
    return Block(*columns)  # type: ignore[arg-type]
