"""Slots in sorted order, in chunks, and columns that grow."""

from __future__ import annotations

import sys
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from itertools import accumulate, pairwise
from typing import Any, Protocol

import numpy as np

from duramen.arrays import Array

CHUNK = 1024  # entries
_FEW_PER_CHUNK = 4  # entries to add or remove: for more, it takes less time to rebuild all chunks


def grown(column: Array, length: int) -> Array:
    """Return the column, or one with room for at least ``length`` entries; new ones are zero."""
    if length <= len(column):
        return column
    longer = np.zeros(length + length // 8 + 64, dtype=column.dtype)
    longer[: len(column)] = column
    return longer


def sorted_by(keys: Array, slots: Array, ids: Array) -> Array:
    """Sort slots by key, and by id only where keys are equal; sorted runs are merged."""
    order = np.argsort(keys, kind="stable")
    near = keys[order]
    equal = near[1:] == near[:-1]
    if equal.any():
        tied = np.flatnonzero(np.append(equal, False) | np.append(False, equal))
        mine = order[tied]
        order[tied] = mine[np.lexsort((ids[slots[mine]], keys[mine]))]
    return order


class Named(Protocol):
    """An object that has the id of every slot."""

    ids: Array


class Ordered:
    """Slots in the order of (key, id).

    Invariants
    ----------
    1. Entries ascend strictly in (key, id), within chunks and across them.
    2. Each chunk has at least one entry, at most ``chunk``, and as many keys as slots.
    3. ``_last_keys`` and ``_last_names`` hold the key and the id of each chunk's last entry.

    ``chunk`` is the largest number of entries of a chunk; it is small in tests, to reach every path.

    Notes
    -----
    Chunks are arrays of the standard library, which have room for a few more entries: one item
    is found, inserted and removed faster than in NumPy's.
    """

    def __init__(self, named: Named, dtype: Any = np.float64, chunk: int | None = None) -> None:
        self._named, self._type, self._chunk = named, np.dtype(dtype), chunk or CHUNK
        self._keys: list[array[Any]] = []
        self._slots: list[array[int]] = []
        self._last_keys: array[Any] = array(self._type.char)  # one block of memory: in a list of tuples
        self._last_names = array("q")  # a bisection would wait for the cache at every step
        self._length = 0

    def __len__(self) -> int:
        return self._length

    def add(self, keys: Array, slots: Array) -> None:
        """Add slots under keys; none may be there."""
        if len(slots) <= _FEW_PER_CHUNK * len(self._slots):
            for key, slot in zip(keys.tolist(), slots.tolist(), strict=True):
                self.add_one(key, int(self._named.ids[slot]), slot)
            return
        keys = np.concatenate([self.keys(), keys])
        slots = np.concatenate([self.slots(), slots.astype(np.int32)])
        order = sorted_by(keys, slots, self._named.ids)
        self._rebuild(keys[order], slots[order])

    def remove(self, keys: Array, slots: Array) -> None:
        """Remove slots, which must be there under these keys."""
        if len(slots) <= _FEW_PER_CHUNK * len(self._slots):
            for key, slot in zip(keys.tolist(), slots.tolist(), strict=True):
                self.remove_one(key, int(self._named.ids[slot]))
            return
        there, stays = self.slots(), np.ones(len(self._named.ids), dtype=bool)
        stays[slots] = False
        rest = stays[there]
        self._rebuild(self.keys()[rest], there[rest])

    def find(self, keys: Array) -> Array:
        """Return the slots of entries with these keys, or -1; for keys that no two entries share."""
        if len(keys) <= _FEW_PER_CHUNK * len(self._slots) or not self._slots:
            return np.array([self.find_one(key) for key in keys.tolist()], dtype=np.int64)
        mine, slots = self.keys(), self.slots()
        places = np.minimum(mine.searchsorted(keys), len(mine) - 1)
        return np.where(mine[places] == keys, slots[places], -1).astype(np.int64)

    def unlink(self) -> None:
        """Break the reference cycle with the owner; the list is unusable afterwards."""
        self._named = None  # type: ignore[assignment]

    def keys(self) -> Array:
        """Return all keys, in order."""
        return np.frombuffer(bytearray().join(self._keys), self._type)

    def slots(self) -> Array:
        """Return all slots, in order."""
        return np.frombuffer(bytearray().join(self._slots), np.int32)

    def first(self, count: int) -> Array:
        """Return the first ``count`` slots, or all."""
        n_chunks = bisect_left(list(accumulate(map(len, self._slots))), count) + 1
        return np.frombuffer(bytearray().join(self._slots[:n_chunks]), np.int32)[: max(count, 0)]

    def from_place(self, key: Any, name: int, *, up: bool) -> Iterator[Array]:
        """Yield slots, a chunk at a time: upward from this key and id on, or downward from below them."""
        chunk = self._chunk_of(key, name)
        here = self._slots[chunk : chunk + 1]
        place = self._place(chunk, key, name) if here else 0
        if up:
            yield from map(np.array, [*(part[place:] for part in here), *self._slots[chunk + 1 :]])
        else:
            for part in [*(part[:place] for part in here), *reversed(self._slots[:chunk])]:
                yield np.array(part)[::-1]

    @property
    def nbytes(self) -> int:
        """The bytes of its arrays, and about those of the lists."""
        return sum(map(sys.getsizeof, self._keys + self._slots)) + 100 * len(self._slots)

    def check(self) -> None:
        """Raise AssertionError, naming the invariant, if one is broken."""
        assert sum(map(len, self._slots)) == self._length, "2: the sizes of chunks do not add up"
        lasts = zip(self._last_keys, self._last_names, strict=True)
        for mine, old, last in zip(self._keys, self._slots, lasts, strict=True):
            assert 1 <= len(old) <= self._chunk, "2: a chunk is empty, or too large"
            assert len(old) == len(mine), "2: the arrays of a chunk differ in length"
            assert last == (mine[-1], self._named.ids[old[-1]]), "3: a chunk's last entry is wrong"
        keys, names = self.keys(), self._named.ids[self.slots()]
        up = (keys[1:] > keys[:-1]) | ((keys[1:] == keys[:-1]) & (names[1:] > names[:-1]))
        assert up.all(), "1: entries do not ascend in (key, id)"

    # one entry

    def add_one(self, key: Any, name: int, slot: int) -> None:
        """Add a slot under its key and id."""
        chunk = min(self._chunk_of(key, name), len(self._slots) - 1)
        place, size = self._place(chunk, key, name), len(self._slots[chunk])
        if size == self._chunk:
            # where entries come in order, a chunk stays full and the next begins: all would be half empty
            half = size - max(1, size // 8) if place == size else size // 2
            self._cut(chunk, chunk + 1, self._keys[chunk], self._slots[chunk], [half, size])
            self.add_one(key, name, slot)
            return
        self._keys[chunk].insert(place, key)
        self._slots[chunk].insert(place, slot)
        self._length += 1
        if place == size:
            self._last_keys[chunk], self._last_names[chunk] = key, name

    def remove_one(self, key: Any, name: int) -> None:
        """Remove the entry with this key and id, which must be there."""
        chunk = self._chunk_of(key, name)
        place = self._place(chunk, key, name)
        keys, slots = self._keys[chunk], self._slots[chunk]
        columns: tuple[array[Any], ...] = (keys, slots)
        for column in columns:
            del column[place]
            column.append(0)  # overwrites what the last entry left when it moved up
            column.pop()
        self._length -= 1
        size = len(slots)
        if size and place == size:
            self._last_keys[chunk], self._last_names[chunk] = keys[-1], int(self._named.ids[slots[-1]])
        if size < self._chunk // 4 or not size:
            self._join(chunk)

    def find_one(self, key: Any) -> int:
        """Return the slot of the entry with this key, or -1; for keys that no two entries share."""
        chunk = bisect_left(self._last_keys, key)
        if chunk == len(self._slots):
            return -1
        place = bisect_left(self._keys[chunk], key)  # within the chunk, by its last key
        return self._slots[chunk][place] if self._keys[chunk][place] == key else -1

    def _chunk_of(self, key: Any, name: int) -> int:
        """Find the first chunk that does not end below (key, id)."""
        keys = self._last_keys
        chunk = bisect_left(keys, key)
        if chunk < len(keys) and keys[chunk] == key and self._last_names[chunk] < name:
            chunk = bisect_left(self._last_names, name, chunk, bisect_right(keys, key, chunk))
        return chunk

    def _place(self, chunk: int, key: Any, name: int) -> int:
        """Find where in a chunk (key, id) is, or would be."""
        keys, slots, ids = self._keys[chunk], self._slots[chunk], self._named.ids
        place = bisect_left(keys, key)
        if place < len(keys) and keys[place] == key and ids[slots[place]] < name:  # else usually the only one
            return bisect_left(slots, name, place, bisect_right(keys, key, place), key=ids.__getitem__)
        return place

    # chunks

    def _rebuild(self, keys: Array, slots: Array) -> None:
        """Cut sorted entries into chunks that have room for more."""
        self._length = n = len(keys)
        pieces = -(-n // max(1, self._chunk * 3 // 4))
        ends = [n * piece // pieces for piece in range(1, pieces + 1)]
        mine = array(self._type.char, keys.tobytes()), array("i", slots.tobytes())
        self._cut(0, len(self._slots), *mine, ends)

    def _cut(self, first: int, stop: int, keys: array[Any], slots: array[int], ends: list[int]) -> None:
        """Replace the chunks from ``first`` to before ``stop`` by entries, cut at these ends."""
        parts = [slice(*ends) for ends in pairwise([0, *ends])]
        self._keys[first:stop] = [keys[part] for part in parts]
        self._slots[first:stop] = [slots[part] for part in parts]
        self._last_keys[first:stop] = array(self._type.char, [keys[end - 1] for end in ends])
        names = [int(self._named.ids[slots[end - 1]]) for end in ends]
        self._last_names[first:stop] = array("q", names)

    def _join(self, chunk: int) -> None:
        """Join a small chunk with a neighbour, if both fit into one with room to spare."""
        if not self._slots[chunk]:
            self._cut(chunk, chunk + 1, self._keys[chunk], self._slots[chunk], [])
            return
        for first in (chunk, max(chunk - 1, 0)):
            keys, slots = self._keys[first : first + 2], self._slots[first : first + 2]
            size = sum(map(len, slots))
            if len(slots) == 2 and size <= self._chunk * 3 // 4:
                self._cut(first, first + 2, keys[0] + keys[1], slots[0] + slots[1], [size])
                return
