"""Buckets of equal size, of which the last has room: where the points of the tree stand (paper, appendix C).

They are one dense array, ``order``, cut every ``size`` places. The last bucket
is the paper's hot bucket, its shuttle: a point that comes goes to its end, and
a point that leaves is replaced by the one from its end. So no list of buckets
is needed, and ``position``, the paper's x.position, is one number a slot.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from typing import final

import numpy as np

from duramen.rows import Array

__all__ = ["Buckets"]

_ABSENT = array("i", [-1])


@final
class Buckets:
    """Slots in buckets of equal size.

    Parameters
    ----------
    size : int
        How many slots a bucket holds.
    height : int or None
        How many levels a binary tree on the buckets is to have. If given, the
        size is n / 2^(height - 1), rounded up, and is chosen again whenever n
        has doubled or halved since it was; in between there may be a level more
        or fewer.

    Notes
    -----
    ``order`` and ``position`` are int32 arrays of the standard library: one item
    of them is read and written faster than one of NumPy's. Invariants 1 to 3 of
    :class:`~duramen.dynamic.tree.Tree` are about them.
    """

    def __init__(self, size: int, height: int | None = None) -> None:
        self.size = size if height is None else 1
        self.order = array("i")
        self.position = array("i")
        self._height = height
        self.measured = 0  # the number of points that the size was chosen for
        self.touched: set[int] | None = None  # places that changed, while somebody wants to know

    def __len__(self) -> int:
        return len(self.order)

    @property
    def count(self) -> int:
        """How many buckets there are."""
        return -(-len(self.order) // self.size)

    @property
    def nbytes(self) -> int:
        """How many bytes both arrays take."""
        return 4 * (len(self.order) + len(self.position))

    def slots(self, first: int = 0, stop: int | None = None) -> Array:
        """Copy the slots in the buckets from ``first`` to before ``stop``; in all of them by default."""
        end = None if stop is None else stop * self.size
        return np.array(self.order[first * self.size : end], dtype=np.int32)

    def add(self, slot: int) -> int:
        """Put a slot into the hot bucket, or into a new one where that is full; return its position."""
        position = self.position
        if slot >= len(position):
            position.extend(_ABSENT * (slot + 1 - len(position)))
        elif slot < 0 or position[slot] >= 0:
            self._refuse([slot])
        place = len(self.order)
        self.order.append(slot)
        position[slot] = place
        if self.touched is not None:
            self.touched.add(place)
        return place

    def add_many(self, slots: Array) -> None:
        """Put one slot or more in, in the order given; none, if one cannot be."""
        self._refuse(slots[slots < 0])
        self.position.extend(_ABSENT * max(0, int(slots.max()) + 1 - len(self.position)))
        position = np.frombuffer(self.position, np.int32)
        self._refuse(slots[position[slots] >= 0])
        places = np.arange(len(self), len(self) + len(slots), dtype=np.int32)
        position[slots] = places
        if not np.array_equal(position[slots], places):
            position[slots] = -1
            raise ValueError("slots to add must be distinct; one of them is given twice")
        self.order.frombytes(slots.astype(np.int32).tobytes())
        if self.touched is not None:
            self.touched.update(places.tolist())

    def restore(self, slots: Array, size: int, measured: int) -> None:
        """Put the same slots in another order, with the size that was chosen for it."""
        self.order, self.position = array("i"), array("i")
        if len(slots):
            self.add_many(slots)
        self.size, self.measured = size, measured

    def remove(self, slot: int) -> int:
        """Take a slot out, and fill its place with the last one of the hot bucket; return that place."""
        position = self.position
        place = position[slot] if 0 <= slot < len(position) else -1
        if place < 0:
            raise KeyError(f"slot {slot} is not here; it was removed or never added")
        last = self.order.pop()
        if last != slot:
            self.order[place] = last
            position[last] = place
        position[slot] = -1
        if self.touched is not None:
            self.touched.update((place, len(self.order)))
        return place

    def resize(self) -> bool:
        """Choose the size again if it is due; say whether it was. To be called after each update."""
        if self._height is None:
            return False
        n, then = len(self.order), self.measured
        while n >= 2 * then:  # once for each time that it doubled, if many came
            then = max(1, 2 * then)
        if 2 * n <= then:
            then = n
        due = then != self.measured
        self.measured, self.size = then, self._asked(then)
        return due

    def verdicts(self) -> Iterator[tuple[bool, str]]:
        """Say of each invariant whether it holds; a later one may rely on those before it."""
        yield (
            self._are_inverse(),
            "position and order are inverse to each other, and any other slot has position -1",
        )
        yield self._are_full(), "every bucket but the hot one is full, and the hot one has a point at least"
        yield self._height is None or self._is_measured(), "the bucket size is what the height asks for"

    def _asked(self, n: int) -> int:
        assert self._height is not None
        return max(1, -(-n // 2 ** (self._height - 1)))

    @staticmethod
    def _refuse(slots: Array | list[int]) -> None:
        if len(slots):
            raise ValueError(f"slot {slots[0]} cannot be added; it is negative, or here already")

    def _are_inverse(self) -> bool:
        position, order = np.array(self.position, dtype=np.int32), self.slots()
        if len(order) and not (order.min() >= 0 and order.max() < len(position)):
            return False
        expected = np.full(len(position), -1)
        expected[order] = np.arange(len(order))
        return np.array_equal(position, expected) and np.count_nonzero(position >= 0) == len(order)

    def _are_full(self) -> bool:
        n, size = len(self), self.size
        if size < 1:
            return False
        sizes = [len(self.slots(index, index + 1)) for index in range(self.count)]
        return sum(sizes) == n and all(full == size for full in sizes[:-1]) and all(sizes[-1:])

    def _is_measured(self) -> bool:
        n, then = len(self), self.measured
        return self.size == self._asked(then) and (then < 2 * n < 4 * then or n == then == 0)
