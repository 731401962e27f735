"""Slots: storage for the rows of a changing table.

A point keeps its slot as long as it exists: its row in a block of rows, its
label, weight and id in flat columns. A free slot is overwritten with zeros at
once, and reused by a later point. Blocks never move, so that a table grows
without a copy of its rows; columns are a few bytes per point and grow by an
eighth.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from duramen.arrays import Array
from duramen.dynamic.sorted_list import Ordered, grown
from duramen.points import WeightedPoints

_BLOCK_BYTES = 8 << 20  # of rows; what is not used of the last block is never touched, so it takes no memory
_LEAST_ROWS = 16
_COPIED = 1 << 16  # points copied together


class Slots:
    """Rows, labels, weights and ids by slot, and the slot of each id.

    Invariants
    ----------
    1. The index holds each id once, with the slot that has this id.
    2. Slots in use and free ones are all that were ever taken, and none is both.
    3. A free slot holds zeros.
    """

    def __init__(self, n_columns: int, dtype: Any, labelled: bool) -> None:
        self.n_columns, self.dtype = n_columns, np.dtype(dtype)
        row_bytes = max(1, n_columns * self.dtype.itemsize)
        self._shift = max(_LEAST_ROWS, _BLOCK_BYTES // row_bytes).bit_length() - 1
        self._blocks: list[Array] = []
        self.ids = np.zeros(0, dtype=np.int64)
        self.weights = np.zeros(0)
        self.y = np.zeros(0) if labelled else None
        self.changed = np.zeros(0, dtype=bool)  # since the anchor was found
        self.index = Ordered(self, np.int64)
        self._free = array("i")
        self.extent = 0  # one more than the largest slot ever taken

    def __len__(self) -> int:
        return len(self.index)

    def __getstate__(self) -> dict[str, Any]:
        ends = (self.extent - (number << self._shift) for number in range(len(self._blocks)))
        used = [block[: max(end, 0)] for block, end in zip(self._blocks, ends, strict=True)]
        return {**self.__dict__, "_blocks": used}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._blocks = [self._block_of(rows) for rows in self._blocks]

    def find(self, ids: Array) -> Array:
        """Return the slots of distinct ids; -1 where one is not here."""
        return self.index.find(ids)

    def add(self, points: Any) -> Array:
        """Take slots for points, or for valid rows with their ids; return them."""
        n = len(points.ids)
        if n == 1 and len(self):
            return np.array([self._add_one(points)])
        again = min(n, len(self._free))
        slots = np.arange(self.extent - again, self.extent - again + n)
        if again:
            slots[:again] = self._free[-again:][::-1]
            del self._free[-again:]
        self._extend(self.extent + n - again)
        self._write(slots, points.ids, points.weights, points.y, points.X)
        self.index.add(points.ids, slots)
        return slots

    def load(self, n: int, parts: Iterable[tuple[Any, ...]]) -> None:
        """Take the first ``n`` slots for valid points, and no others.

        They come in parts: ids, weights, labels and rows.
        """
        self._extend(n)
        start = 0
        for part in parts:
            end = start + len(part[0])
            self._write(np.arange(start, end), *part)
            start = end
        self.index.add(self.ids[:n], np.arange(n))

    def remove(self, slots: Array) -> None:
        """Free slots, and overwrite what they held."""
        if len(slots) == 1:
            self._remove_one(int(slots[0]))
            return
        slots = np.sort(slots)  # in memory order
        self.index.remove(self.ids[slots], slots)
        for block, inside, _ in self._by_block(slots):
            block[inside] = 0
        for column in self._columns().values():
            column[slots] = 0
        self._free.frombytes(slots.astype(np.int32).tobytes())

    def _add_one(self, points: Any) -> int:
        slot = self._free.pop() if self._free else self.extent
        if slot == self.extent:
            self._extend(slot + 1)
        name = int(points.ids[0])
        self.row(slot)[:] = points.X[0]
        self.ids[slot], self.weights[slot] = name, points.weights[0]
        if self.y is not None:
            self.y[slot] = points.y[0]
        self.index.add_one(name, name, slot)
        return slot

    def _remove_one(self, slot: int) -> None:
        name = int(self.ids[slot])
        self.index.remove_one(name, name)
        self.row(slot)[:] = 0
        self.ids[slot] = self.weights[slot] = self.changed[slot] = 0
        if self.y is not None:
            self.y[slot] = 0.0
        self._free.append(slot)

    def row(self, slot: int) -> Array:
        """View one row."""
        return self._blocks[slot >> self._shift][slot & ((1 << self._shift) - 1)]

    def rows(self, slots: Array) -> Array:
        """Copy rows."""
        rows = np.empty((len(slots), self.n_columns), dtype=self.dtype)
        for block, inside, part in self._by_block(slots):
            rows[part] = block.take(inside, axis=0)
        return rows

    def points(self, slots: Array) -> WeightedPoints:
        """Copy points."""
        y = None if self.y is None else self.y[slots]
        return WeightedPoints._from_parts(self.rows(slots), y, self.weights[slots], self.ids[slots])

    def repacked(self) -> Slots:
        """Copy the points into slots without gaps."""
        slots, there = Slots(self.n_columns, self.dtype, self.y is not None), self.in_use()
        for start in range(0, len(there), _COPIED):
            slots.add(self.points(there[start : start + _COPIED]))
        slots.changed[slots.in_use()] = self.changed[there]
        return slots

    def in_use(self) -> Array:
        """Return the slots of all points, in the order of their ids."""
        return self.index.slots()

    def _columns(self) -> dict[str, Array]:
        columns = {"ids": self.ids, "weights": self.weights, "y": self.y, "changed": self.changed}
        return {name: column for name, column in columns.items() if column is not None}

    @property
    def nbytes(self) -> int:
        """The bytes of everything but the rows, labels and weights in use."""
        columns = sum(column.nbytes for column in self._columns().values())
        used = 8 * len(self) * (1 if self.y is None else 2)  # weights and labels
        idle = (self.extent - len(self)) * self.n_columns * self.dtype.itemsize
        return columns - used + idle + self.index.nbytes + 4 * len(self._free)

    def check(self) -> None:
        """Raise AssertionError, naming the invariant, if one is broken."""
        self.index.check()
        used, free = self.in_use(), np.array(self._free, dtype=np.int64)
        assert np.array_equal(self.index.keys(), self.ids[used]), "1: the index holds a wrong id"
        everything = np.sort(np.concatenate([used, free]))
        assert np.array_equal(everything, np.arange(self.extent)), "2: slots in use and free do not add up"
        assert not self.rows(free).any(), "3: a free slot still holds a row"
        for name, column in self._columns().items():
            assert not column[free].any(), f"3: a free slot still has something in {name}"

    def _extend(self, taken: int) -> None:
        self.extent = taken
        if taken > len(self.ids):
            for name, column in self._columns().items():
                setattr(self, name, grown(column, taken))
        while len(self._blocks) << self._shift < taken:
            self._blocks.append(self._block_of())

    def _block_of(self, rows: Array | None = None) -> Array:
        """Make a block that begins with these rows; zeros follow: reused memory could expose deleted rows."""
        block = np.zeros((1 << self._shift, self.n_columns), dtype=self.dtype)
        if rows is not None:
            block[: len(rows)] = rows
        return block

    def _write(self, slots: Array, ids: Array, weights: Array, labels: Any, rows: Array) -> None:
        for block, inside, part in self._by_block(slots):
            block[inside] = rows[part]
        self.ids[slots], self.weights[slots] = ids, weights
        if self.y is not None:
            self.y[slots] = labels

    def _by_block(self, slots: Array) -> Iterator[tuple[Array, Array, Any]]:
        """Yield the blocks that have some of the slots, their places there, and which of them these are."""
        mask = (1 << self._shift) - 1
        if len(slots) < 2:
            yield from (
                (self._blocks[slot >> self._shift], slots & mask, slice(None)) for slot in slots.tolist()
            )
            return
        numbers = slots >> self._shift
        order = np.argsort(numbers, kind="stable")
        for part in np.split(order, np.flatnonzero(np.diff(numbers[order])) + 1):
            yield self._blocks[numbers[part[0]]], slots[part] & mask, part


def moderate(dtype: Any) -> float:
    """Return a size below which numbers can be multiplied with each other, and squared, without overflow."""
    return float(np.finfo(dtype).max ** 0.3)
