"""Slots in sorted order, in chunks, and columns that grow."""

from __future__ import annotations

import sys
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from itertools import accumulate, pairwise
from typing import Any

import numpy as np

from duramen.arrays import Array

CHUNK = 1024  # entries; few in tests, to reach every path
_FEW_PER_CHUNK = 4  # entries to add or remove: for more, it takes less time to rebuild all chunks


class Ordered:
    """Slots in the order of (key, id); ``named.ids`` has the id of every slot.

    Invariants
    ----------
    1. Entries ascend strictly in (key, id), within chunks and across them.
    2. Each chunk has at least one entry, at most ``CHUNK``, and as many keys as slots.
    3. ``_last_keys`` holds the key of each chunk's last entry.

    Notes
    -----
    Chunks are arrays of the standard library, which have room for a few more entries: one item
    is found, inserted and removed faster than in NumPy's.
    """

    def __init__(self, named: Any, dtype: Any = np.float64) -> None:
        self._named, self._type, self._chunk = named, np.dtype(dtype), CHUNK
        self._keys: list[array[Any]] = []
        self._slots: list[array[int]] = []
        self._last_keys: array[Any] = array(self._type.char)  # one block of memory, for the bisection
        self._length = 0

    def __len__(self) -> int:
        return self._length

    def add(self, keys: Array, slots: Array) -> None:
        """Add slots under keys; none may be there."""
        if self._are_few(slots):
            for key, slot in zip(keys.tolist(), slots.tolist(), strict=True):
                self._add_one(key, slot)
            return
        order, ids = np.argsort(keys), self._named.ids
        keys, slots = keys[order], slots[order]
        equal = keys[1:] == keys[:-1]
        if equal.any():
            tied = np.append(equal, False) | np.append(False, equal)
            mine = slots[tied]
            slots[tied] = mine[np.lexsort((ids[mine], keys[tied]))]
        there, here = self.keys(), self.slots()
        low, high = there.searchsorted(keys), there.searchsorted(keys, "right")
        while (low < high).any():  # among equal keys, bisect by id
            middle = (low + high) // 2
            below = (low < high) & (ids[here.take(middle, mode="clip")] < ids[slots])
            low, high = np.where(below, middle + 1, low), np.where(below, high, middle)
        self._rebuild(np.insert(there, low, keys), np.insert(here, low, slots))

    def remove(self, keys: Array, slots: Array) -> None:
        """Remove slots, which must be there under these keys."""
        if len(slots) == 1:  # so it is with most, and numbers are faster
            self._remove_one(keys.item(), slots.item())
            return
        if self._are_few(slots):
            for key, slot in zip(keys.tolist(), slots.tolist(), strict=True):
                self._remove_one(key, slot)
            return
        there = self.slots()
        rest = np.isin(there, slots, invert=True, kind="table")
        self._rebuild(self.keys()[rest], there[rest])

    def _are_few(self, entries: Array) -> bool:
        """Return whether it takes less time to handle entries one by one."""
        return len(entries) <= _FEW_PER_CHUNK * len(self._slots)

    def find(self, keys: Array) -> Array:
        """Return the slots of entries with these keys, or -1; for keys that no two entries share."""
        if self._are_few(keys) or not self._slots:
            return np.array([self.find_one(key) for key in keys.tolist()], dtype=np.int64)
        mine, slots = self.keys(), self.slots()
        places = np.minimum(mine.searchsorted(keys), len(mine) - 1)
        return np.where(mine[places] == keys, slots[places], -1).astype(np.int64)

    def find_one(self, key: Any) -> int:
        """Return the slot of the entry with this key, or -1; for keys that no two entries share."""
        chunk = bisect_left(self._last_keys, key)
        if chunk == len(self._slots):
            return -1
        place = bisect_left(self._keys[chunk], key)  # within the chunk, by its last key
        return self._slots[chunk][place] if self._keys[chunk][place] == key else -1

    @property
    def last_key(self) -> Any:
        """The largest key."""
        return self._last_keys[-1]

    def keys(self) -> Array:
        """Return all keys, in order."""
        return np.frombuffer(bytearray().join(self._keys), self._type)

    def slots(self, count: int | None = None) -> Array:
        """Return the first ``count`` slots, or all, in order."""
        parts = self._slots
        if count is not None:
            parts = parts[: bisect_left(list(accumulate(map(len, parts))), count) + 1]
        return np.frombuffer(bytearray().join(parts), np.int32)[:count]

    def from_place(self, key: Any, name: int, *, up: bool) -> Iterator[Array]:
        """Yield slots, a chunk at a time: upward from this key and id on, or downward from below them."""
        if not self._slots:
            return
        chunk, place = self._locate(key, name)
        here = self._slots[chunk]
        if up:
            yield from map(np.array, [here[place:], *self._slots[chunk + 1 :]])
        else:
            for part in [here[:place], *reversed(self._slots[:chunk])]:
                yield np.array(part)[::-1]

    @property
    def nbytes(self) -> int:
        """The bytes of its arrays."""
        return sum(map(sys.getsizeof, self._keys + self._slots))

    def check(self) -> None:
        assert sum(map(len, self._slots)) == self._length, "2: the sizes of chunks do not add up"
        for mine, slots, last in zip(self._keys, self._slots, self._last_keys, strict=True):
            assert 1 <= len(slots) == len(mine) <= self._chunk, "2: a chunk has a wrong length"
            assert mine[-1] == last, "3: the key of a chunk's last entry is wrong"
        keys, names = self.keys(), self._named.ids[self.slots()]
        order = np.lexsort((names, keys))
        assert np.array_equal(order, np.arange(len(keys))), "1: entries do not ascend in (key, id)"

    # one entry

    def _add_one(self, key: Any, slot: int) -> None:
        chunk, place = self._locate(key, self._named.ids[slot])
        keys, slots = self._keys[chunk], self._slots[chunk]
        size = len(slots)
        keys.insert(place, key)
        slots.insert(place, slot)
        self._length += 1
        if place == size:
            self._last_keys[chunk] = key
        if size == self._chunk:
            # where entries come in order, a chunk stays full and the next begins: all would be half empty
            half = size - size // 8 if place == size else size // 2
            self._cut(slice(chunk, chunk + 1), keys, slots, [half, size + 1])

    def _remove_one(self, key: Any, slot: int) -> None:
        chunk, place = self._locate(key, self._named.ids[slot])
        keys, slots = self._keys[chunk], self._slots[chunk]
        columns: tuple[array[Any], ...] = (keys, slots)
        for column in columns:
            del column[place]
            column.append(0)  # overwrites what the last entry left when it moved up
            column.pop()
        self._length -= 1
        if not slots:
            self._cut(slice(chunk, chunk + 1), keys, slots, [])
        elif place == len(slots):
            self._last_keys[chunk] = keys[-1]

    def _locate(self, key: Any, name: int) -> tuple[int, int]:
        """Find the chunk, and the place in it, where (key, id) is or would be."""
        lasts, chunks, ids = self._last_keys, self._slots, self._named.ids
        chunk = bisect_left(lasts, key)  # ids are compared only where keys are equal, which is rare
        if chunk < len(chunks) and lasts[chunk] == key:
            end = bisect_right(lasts, key, chunk)
            chunk = bisect_left(chunks, name, chunk, end, key=lambda slots: ids[slots[-1]])
        if chunk == len(chunks):
            chunk -= 1
        keys, slots = self._keys[chunk], chunks[chunk]
        place = bisect_left(keys, key)
        if place < len(keys) and keys[place] == key and ids[slots[place]] < name:
            place = bisect_left(slots, name, place, bisect_right(keys, key, place), key=ids.__getitem__)
        return chunk, place

    # chunks

    def _rebuild(self, keys: Array, slots: Array) -> None:
        """Cut sorted entries into chunks that have room for more."""
        self._keys, self._slots = [], []  # their memory is used again
        self._length = n = len(keys)
        pieces = -(-n // max(1, self._chunk * 3 // 4))
        ends = [n * piece // pieces for piece in range(1, pieces + 1)]
        self._cut(slice(None), array(self._type.char, keys.tobytes()), array("i", slots.tobytes()), ends)

    def _cut(self, chunks: slice, keys: array[Any], slots: array[int], ends: list[int]) -> None:
        """Put entries, cut at these ends, in the place of chunks."""
        parts = [slice(*pair) for pair in pairwise([0, *ends])]
        self._keys[chunks] = [keys[part] for part in parts]
        self._slots[chunks] = [slots[part] for part in parts]
        self._last_keys[chunks] = array(self._type.char, [keys[end - 1] for end in ends])
