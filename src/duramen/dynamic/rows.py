"""Slots: storage for the rows of a changing table.

A point keeps its slot: its row in a block of rows, which never moves, its label, weight and id in columns,
which grow by an eighth. A free slot is overwritten with zeros at once, and reused by a later point.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from duramen.arrays import Array
from duramen.dynamic.sorted_list import Ordered
from duramen.points import WeightedPoints

_BLOCK_BYTES = 8 << 20  # of rows; what is not used of the last block is never touched, so it takes no memory
_LEAST_ROWS = 16


class Columns:
    """Arrays by slot, each also an attribute, that grow together; a free slot holds zeros."""

    def __init__(self, types: dict[str, Any]) -> None:
        self.columns = {name: np.zeros(0, dtype) for name, dtype in types.items()}
        vars(self).update(self.columns)

    def extend(self, extent: int) -> None:
        """Make room for at least so many slots, which are more than there are."""
        for name, column in self.columns.items():
            more = np.zeros(extent + extent // 8 + 64 - len(column), column.dtype)
            self.columns[name] = np.append(column, more)
        vars(self).update(self.columns)

    @property
    def size(self) -> int:
        """The bytes of the arrays."""
        return sum(column.nbytes for column in self.columns.values())

    def clear(self, slots: Array) -> None:
        """Overwrite slots with zeros."""
        where = slots.item() if len(slots) == 1 else slots  # a number is faster
        for column in self.columns.values():
            column[where] = 0


class Slots(Columns):
    """Rows, labels, weights and ids by slot, and the slot of each id.

    Invariants
    ----------
    1. The index holds each id once, with the slot that has this id.
    2. Slots in use and free ones are all that were ever taken, and none is both.
    3. A free slot holds zeros.
    """

    ids: Array
    weights: Array
    changed: Array  # since the anchor was found
    y: Array | None = None

    def __init__(self, n_columns: int, dtype: Any, labelled: bool) -> None:
        types = {"ids": np.int64, "weights": float, "changed": bool}
        super().__init__({**types, "y": float} if labelled else types)
        self.n_columns, self.dtype = n_columns, np.dtype(dtype)
        row_bytes = max(1, n_columns * self.dtype.itemsize)
        self._shift = max(_LEAST_ROWS, _BLOCK_BYTES // row_bytes).bit_length() - 1
        self._blocks: list[Array] = []
        self.index = Ordered(self, np.int64)
        self._free = array("q")
        self.extent = 0  # one more than the largest slot ever taken

    def __len__(self) -> int:
        return len(self.index)

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_blocks": self.rows(np.arange(self.extent))}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state, _blocks=[])
        self._extend(self.extent)
        self._put_rows(np.arange(self.extent), state["_blocks"])

    def find(self, ids: Array) -> Array:
        """Return the slots of distinct ids; -1 where one is not here."""
        return self.index.find(ids)

    def add(self, points: Any, changed: bool) -> Array:
        """Take slots for points, or for valid rows with their ids; return them."""
        n = len(points.ids)
        again = self._free[-n:]
        del self._free[-n:]
        if len(again) < n:
            fresh = np.arange(self.extent, self.extent + n - len(again))
            slots = np.append(again, fresh) if again else fresh
            self._extend(self.extent + len(fresh))
        else:
            slots = np.frombuffer(again, np.int64)  # by int32, indexing is slower
        self._write(slots, points.X, points.weights, points.ids, changed, points.y)
        self.index.add(points.ids, slots)
        return slots

    def block(self, slots: Array) -> dict[str, Array]:
        """Copy points in columns: X, weights, ids, y if they have labels, and epochs: if they changed."""
        columns = {**vars(self.points(slots)), "epochs": self.changed[slots]}
        return {name: column for name, column in columns.items() if column is not None}

    def load(self, n: int, blocks: Iterable[dict[str, Array]]) -> None:
        """Take the first ``n`` slots for the points of such blocks, and no others."""
        self._extend(n)
        start = 0
        for block in blocks:
            slots = np.arange(start, start + len(block["ids"]))
            self._write(slots, **block)
            start += len(slots)
        self.index.add(self.ids[:n], np.arange(n))

    def remove(self, slots: Array) -> None:
        """Free slots, and overwrite what they held."""
        self.index.remove(self.ids[slots], slots)
        self._free.frombytes(slots.astype(np.int64, copy=False).tobytes())
        self._put_rows(slots, None)
        self.clear(slots)

    def rows(self, slots: Array) -> Array:
        """Copy rows."""
        if len(slots) == 1:
            return self._row(slots.item()).copy()
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
        slots = Slots(self.n_columns, self.dtype, self.y is not None)
        slots.load(len(self), [self.block(self.in_use())])
        return slots

    def in_use(self) -> Array:
        """Return the slots of all points, in the order of their ids."""
        return self.index.slots()

    @property
    def nbytes(self) -> int:
        """The bytes of everything but the rows, labels and weights in use."""
        used = 8 * len(self) * (1 if self.y is None else 2)  # weights and labels
        idle = (self.extent - len(self)) * self.n_columns * self.dtype.itemsize
        return self.size - used + idle + self.index.nbytes + 8 * len(self._free)

    def check(self) -> None:
        self.index.check()
        used, free = self.in_use(), np.array(self._free, dtype=np.int64)
        assert np.array_equal(self.index.keys(), self.ids[used]), "1: the index holds a wrong id"
        everything = np.sort(np.concatenate([used, free]))
        assert np.array_equal(everything, np.arange(self.extent)), "2: slots in use and free do not add up"
        left = [self.rows(free), *(column[free] for column in self.columns.values())]
        assert not any(map(np.any, left)), "3: a free slot still holds something"

    def _extend(self, extent: int) -> None:
        self.extent = extent
        if extent > len(self.ids):
            self.extend(extent)
        while len(self._blocks) << self._shift < extent:
            self._blocks.append(np.zeros((1 << self._shift, self.n_columns), dtype=self.dtype))

    def _write(self, slots: Array, X: Array, weights: Array, ids: Array, epochs: Any, y: Any = None) -> None:
        self._put_rows(slots, X)
        self.ids[slots], self.weights[slots], self.changed[slots] = ids, weights, epochs
        if self.y is not None:
            self.y[slots] = y

    def _put_rows(self, slots: Array, rows: Array | None) -> None:
        """Write rows; zeros without them."""
        if len(slots) == 1:
            self._row(slots.item())[:] = 0 if rows is None else rows
            return
        for block, inside, part in self._by_block(slots):
            block[inside] = 0 if rows is None else rows.take(part, axis=0)

    def _row(self, slot: int) -> Array:
        """View one row, (1, d)."""
        block, place = divmod(slot, 1 << self._shift)
        return self._blocks[block][place : place + 1]

    def _by_block(self, slots: Array) -> Iterator[tuple[Array, Any, Any]]:
        """Yield the blocks that have some of the slots, their places there, and which of them these are."""
        numbers = slots >> self._shift
        for number in np.unique(numbers).tolist():
            part = np.flatnonzero(numbers == number)
            yield self._blocks[number], slots[part] - (number << self._shift), part


def moderate(dtype: Any) -> float:
    """Return a size below which numbers can be multiplied with each other, and squared, without overflow."""
    return float(np.finfo(dtype).max ** 0.3)
