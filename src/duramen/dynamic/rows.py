"""Slots: storage for the rows of a changing table.

A point keeps its slot as long as it exists: its row in a block of rows, its
label, weight and id in flat columns. A free slot is overwritten with zeros at
once, and reused by a later point. Blocks never move, so that a table grows
without a copy of its rows; columns are a few bytes per point and grow by an
eighth.
"""

from __future__ import annotations

import itertools
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
        self._mask = (1 << self._shift) - 1
        self._blocks: list[Array] = []
        self.ids = np.zeros(0, dtype=np.int64)
        self.weights = np.zeros(0)
        self.y = np.zeros(0) if labelled else None
        self.index = Ordered(self, np.int64)
        self._free = array("i")
        self.extent = 0  # one more than the largest slot ever taken

    def __len__(self) -> int:
        return len(self.index)

    def __getstate__(self) -> dict[str, Any]:
        state = self.__dict__.copy()
        if self._blocks:  # the last as far as it is used
            used = self.extent - ((len(self._blocks) - 1) << self._shift)
            state["_blocks"] = [*self._blocks[:-1], self._blocks[-1][:used]]
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        if self._blocks:
            whole = np.zeros((self._mask + 1, self.n_columns), dtype=self.dtype)
            whole[: len(self._blocks[-1])] = self._blocks[-1]
            self._blocks = [*self._blocks[:-1], whole]

    def _add_one(self, row: Array, label: float | None, weight: float, name: int) -> int:
        if self._free:
            slot = self._free.pop()
        else:
            slot = self.extent
            self._extend(slot + 1)
        self._blocks[slot >> self._shift][slot & self._mask] = row
        self.ids[slot], self.weights[slot] = name, weight
        if self.y is not None:
            self.y[slot] = label
        self.index.add(name, name, slot)
        return slot

    def _remove_one(self, slot: int) -> None:
        name = int(self.ids[slot])
        self.index.remove(name, name)
        self._blocks[slot >> self._shift][slot & self._mask] = 0
        for column in self._columns():
            column[slot] = 0
        self._free.append(slot)

    def find(self, name: int) -> int:
        """Return the slot of an id, or -1."""
        return self.index.find(name, name)

    def find_many(self, names: Array) -> Array:
        """Return the slots of distinct ids; -1 where one is not here."""
        return np.array([self.find(int(names[0]))]) if len(names) == 1 else self.index.find_many(names)

    def first_of(self, names: Array) -> int:
        """Return the position of the first id that is here, or -1."""
        if len(names) == 1:
            return 0 if self.find(int(names[0])) >= 0 else -1
        here = np.flatnonzero(self.index.find_many(names) >= 0)
        return int(here[0]) if len(here) else -1

    def row(self, slot: int) -> Array:
        """View one row."""
        return self._blocks[slot >> self._shift][slot & self._mask]

    def add_many(self, rows: Array, labels: Array | None, weights: Array, names: Array) -> Array:
        """Take slots for valid points; return them."""
        if len(rows) == 1:
            label = None if labels is None else labels[0]
            return np.array([self._add_one(rows[0], label, weights[0], int(names[0]))])
        again = min(len(rows), len(self._free))
        slots = np.arange(self.extent - again, self.extent - again + len(rows))
        if again:
            slots[:again] = self._free[-again:][::-1]
            del self._free[-again:]
        self._extend(self.extent + len(rows) - again)
        self._write(slots, names, weights, labels, rows)
        self.index.add_many(names, slots)
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
        self.index.add_many(self.ids[:n], np.arange(n))

    def _write(self, slots: Array, ids: Array, weights: Array, labels: Any, rows: Array) -> None:
        for block, inside, mine in self._by_block(slots):
            self._blocks[block][inside] = rows[mine]
        for column, values in zip(self._columns(), (ids, weights, labels), strict=False):
            column[slots] = values

    def remove_many(self, slots: Array) -> None:
        """Free slots, and overwrite what they held."""
        if len(slots) == 1:
            self._remove_one(int(slots[0]))
            return
        slots = np.sort(slots)  # in memory order
        self.index.remove_many(self.ids[slots], slots)
        for block, inside, _ in self._by_block(slots):
            self._blocks[block][inside] = 0
        for column in self._columns():
            column[slots] = 0
        self._free.frombytes(slots.astype(np.int32).tobytes())

    def rows(self, slots: Array) -> Array:
        """Copy rows."""
        if len(slots) == 1:
            return self.row(int(slots[0]))[None].copy()
        rows = np.empty((len(slots), self.n_columns), dtype=self.dtype)
        for block, inside, part in self._by_block(slots):
            mine = self._blocks[block]
            rows[part] = mine[inside] if isinstance(inside, slice) else mine.take(inside, axis=0)
        return rows

    def points(self, slots: Array) -> WeightedPoints:
        """Copy points."""
        y = None if self.y is None else self.y[slots]
        return WeightedPoints._from_parts(self.rows(slots), y, self.weights[slots], self.ids[slots])

    def repacked(self) -> Slots:
        """Copy the points into slots without gaps."""
        slots = Slots(self.n_columns, self.dtype, self.y is not None)
        there = self.in_use()
        for start in range(0, len(there), _COPIED):
            points = self.points(there[start : start + _COPIED])
            slots.add_many(points.X, points.y, points.weights, points.ids)
        return slots

    def in_use(self) -> Array:
        """Return the slots of all points, in the order of their ids."""
        return self.index.slots()

    def _columns(self) -> list[Array]:
        return [self.ids, self.weights] if self.y is None else [self.ids, self.weights, self.y]

    @property
    def nbytes(self) -> int:
        """The bytes of everything but the rows, labels and weights in use."""
        columns = self._columns()
        used = sum(column.itemsize for column in columns[1:]) * len(self)
        idle = (self.extent - len(self)) * self.n_columns * self.dtype.itemsize
        own = sum(column.nbytes for column in columns) - used
        return own + idle + self.index.nbytes + 4 * len(self._free)

    def check(self) -> None:
        """Raise AssertionError, naming the invariant, if one is broken."""
        self.index.check()
        used, free = self.in_use(), np.array(self._free, dtype=np.int64)
        assert np.array_equal(self.index.keys(), self.ids[used]), "1: the index holds a wrong id"
        everything = np.sort(np.concatenate([used, free]))
        assert np.array_equal(everything, np.arange(self.extent)), "2: slots in use and free do not add up"
        assert not self.rows(free).any(), "3: a free slot still holds a row"
        for name, column in zip(("id", "weight", "label"), self._columns(), strict=False):
            assert not column[free].any(), f"3: a free slot still holds a {name}"

    def _extend(self, taken: int) -> None:
        self.extent = taken
        self.ids, self.weights = grown(self.ids, taken), grown(self.weights, taken)
        if self.y is not None:
            self.y = grown(self.y, taken)
        while len(self._blocks) << self._shift < taken:
            # zeros: reused memory could expose deleted rows
            self._blocks.append(np.zeros((self._mask + 1, self.n_columns), dtype=self.dtype))

    def _by_block(self, slots: Array) -> Iterator[tuple[int, Any, Any]]:
        """Yield the blocks of slots: which places in each, and which of the slots they are."""
        blocks = slots >> self._shift
        if not (blocks[1:] >= blocks[:-1]).all():
            order = np.argsort(blocks, kind="stable")
            for block, places, part in self._by_block(slots[order]):
                yield block, places, order[part]
            return
        cuts = (np.flatnonzero(blocks[1:] != blocks[:-1]) + 1).tolist()
        for first, end in itertools.pairwise([0, *cuts, len(slots)] if len(slots) else ()):
            inside: Any = slots[first:end] & self._mask
            if (inside[1:] - inside[:-1] == 1).all():  # most often: a slice is copied faster
                inside = slice(int(inside[0]), int(inside[-1]) + 1)
            yield int(blocks[first]), inside, slice(first, end)


def moderate(dtype: Any) -> float:
    """Return a size below which numbers can be multiplied with each other, and squared, without overflow."""
    return float(np.finfo(dtype).max ** 0.3)
