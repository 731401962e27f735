"""The blocks of a store: where points are put, found, changed and taken out, block by block.

Blocks that are less than half full are kept count of, and joined as soon as
they would fill one. So a table that grew by single rows, or lost most of them,
is in as few blocks as any other, and no deletion leaves a trace of its row: the
block is written anew without it.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator
from typing import Any, final

import numpy as np

from duramen.rows import Array
from duramen.store.block import Block, Layout, seal

__all__ = ["Blocks"]

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
    layout : Layout
    """

    def __init__(self, connection: sqlite3.Connection, layout: Layout) -> None:
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
