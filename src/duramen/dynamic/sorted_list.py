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
_FEW_PER_CHUNK = 4  # new entries: for more, it takes less time to rebuild all chunks than to shift in each


def grown(column: Array, length: int) -> Array:
    """Return the column, or one with room for at least ``length`` entries; new ones are zero."""
    if length <= len(column):
        return column
    longer = np.zeros(length + length // 8 + 64, dtype=column.dtype)
    longer[: len(column)] = column
    return longer


def sorted_by(keys: Array, names: Array) -> Array:
    """Sort by key, and by id only where keys are equal: in a third of the time of sorting by both."""
    order = np.argsort(keys)
    near = keys[order]
    equal = near[1:] == near[:-1]
    if equal.any():
        tied = np.flatnonzero(np.append(equal, False) | np.append(False, equal))
        mine = order[tied]
        order[tied] = mine[np.lexsort((names[mine], keys[mine]))]
    return order


def among_equals(keys: Array, ids: Array, slots: Array, tied: Array, names: Array) -> Array:
    """Find where ids are among sorted entries of equal key: bisections in parallel, for thousands of ties."""
    low, high = keys.searchsorted(tied), keys.searchsorted(tied, "right")
    while (low < high).any():
        middle = (low + high) // 2
        below = (middle < high) & (ids[slots[np.minimum(middle, len(slots) - 1)]] < names)
        low, high = np.where(below, middle + 1, low), np.where(below, high, np.minimum(middle, high))
    return low


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
        self._clear()

    def _clear(self) -> None:
        self._keys: list[array[Any]] = []
        self._slots: list[array[int]] = []
        self._last_keys: array[Any] = array(self._type.char)  # one block of memory: in a list of tuples
        self._last_names = array("q")  # a bisection would wait for the cache at every step
        self._length = 0

    def __len__(self) -> int:
        return self._length

    # one entry at a time

    def add(self, key: Any, name: int, slot: int) -> None:
        """Add a slot, at its key and id."""
        if not self._slots:
            self._open(0, array(self._type.char), array("i"))
        chunk = min(self._chunk_of(key, name), len(self._slots) - 1)
        place, size = self._place(chunk, key, name), len(self._slots[chunk])
        if size == self._chunk:
            self._split(chunk, at_end=place == size)
            self.add(key, name, slot)
            return
        self._keys[chunk].insert(place, key)
        self._slots[chunk].insert(place, slot)
        self._length += 1
        if place == size:
            self._last_keys[chunk], self._last_names[chunk] = key, name

    def remove(self, key: Any, name: int) -> None:
        """Remove the entry with this key and id, which must be there."""
        chunk = self._chunk_of(key, name)
        place = self._place(chunk, key, name)
        columns: tuple[array[Any], ...] = (self._keys[chunk], self._slots[chunk])
        for column in columns:
            del column[place]
            column.append(0)  # overwrites what the last entry left when it moved up
            column.pop()
        self._length -= 1
        size = len(self._slots[chunk])
        if size and place == size:
            self._set_last(chunk)
        if size < self._chunk // 4 or not size:
            self._join(chunk)

    def find(self, key: Any, name: int) -> int:
        """Return the slot of the entry with this key and id, or -1."""
        chunk = self._chunk_of(key, name)
        if chunk == len(self._slots):
            return -1
        place = self._place(chunk, key, name)  # within the chunk, by its last entry
        slot = self._slots[chunk][place]
        return slot if self._keys[chunk][place] == key and self._named.ids[slot] == name else -1

    # many at a time

    def add_many(self, keys: Array, slots: Array) -> None:
        """Add slots; none may be there."""
        keys, names, slots = self._in_order(keys, slots)
        if len(keys) <= _FEW_PER_CHUNK * len(self._slots):
            for key, name, slot in zip(keys.tolist(), names.tolist(), slots.tolist(), strict=True):
                self.add(key, name, slot)
            return
        old_keys, old_slots = self.keys(), self.slots()
        places = self._places(old_keys, old_slots, keys, names)
        self._rebuild(np.insert(old_keys, places, keys), np.insert(old_slots, places, slots))

    def remove_many(self, keys: Array, slots: Array) -> None:
        """Remove slots, which must be there under these keys."""
        keys, names, slots = self._in_order(keys, slots)
        if len(keys) <= _FEW_PER_CHUNK * len(self._slots):
            for key, name in zip(keys.tolist(), names.tolist(), strict=True):
                self.remove(key, name)
            return
        old_keys, old_slots = self.keys(), self.slots()
        places = self._places(old_keys, old_slots, keys, names)
        self._rebuild(np.delete(old_keys, places), np.delete(old_slots, places))

    def _in_order(self, keys: Array, slots: Array) -> tuple[Array, Array, Array]:
        """Sort entries by (key, id); return their keys, ids and slots."""
        names = self._named.ids[slots]
        order = sorted_by(keys, names)
        return keys[order], names[order], slots[order].astype(np.int32)

    def find_many(self, keys: Array) -> Array:
        """Return the slots of entries with distinct keys, or -1; for keys that no two entries share."""
        found = np.full(len(keys), -1, dtype=np.int64)
        if not self._slots or not len(keys):
            return found
        order = np.argsort(keys, kind="stable")
        wanted = keys[order]
        chunks = np.searchsorted(np.asarray(self._last_keys), wanted)
        cuts = [0, *(np.flatnonzero(np.diff(chunks)) + 1).tolist(), len(wanted)]
        for first, end in pairwise(cuts):
            chunk = int(chunks[first])
            if chunk < len(self._slots):
                mine = np.frombuffer(self._keys[chunk], self._type)
                slots = np.frombuffer(self._slots[chunk], np.int32)
                places = mine.searchsorted(wanted[first:end])  # within the chunk, by its last key
                there = mine[places] == wanted[first:end]
                found[order[first:end]] = np.where(there, slots[places], -1)
        return found

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

    def parts(self) -> Iterator[Array]:
        """Yield all slots, a chunk at a time, the last chunk first."""
        yield from map(np.array, reversed(self._slots))

    def down_from(self, key: Any, name: int) -> Iterator[Array]:
        """Yield the slots of all entries below this key and id, downward, a chunk at a time."""
        chunk = self._chunk_of(key, name)
        if chunk < len(self._slots):
            place = self._place(chunk, key, name)
            if place:
                yield np.array(self._slots[chunk][:place])[::-1]
        for slots in reversed(self._slots[:chunk]):
            yield np.array(slots)[::-1]

    def up_from(self, key: Any, name: int) -> Iterator[Array]:
        """Yield the slots of all entries from this key and id on, upward, a chunk at a time."""
        chunk = self._chunk_of(key, name)
        if chunk < len(self._slots):
            yield np.array(self._slots[chunk][self._place(chunk, key, name) :])
        yield from map(np.array, self._slots[chunk + 1 :])

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

    # chunks

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

    def _places(self, keys: Array, slots: Array, new_keys: Array, names: Array) -> Array:
        """Find where in sorted entries others are, or would be."""
        places = keys.searchsorted(new_keys)
        if not len(keys):
            return places
        near = np.minimum(places, len(keys) - 1)
        # the first entry of equal key is most often the only one
        tied = np.flatnonzero((keys[near] == new_keys) & (self._named.ids[slots[near]] < names))
        if len(tied):
            places[tied] = among_equals(keys, self._named.ids, slots, new_keys[tied], names[tied])
        return places

    def _rebuild(self, keys: Array, slots: Array) -> None:
        """Cut sorted entries into chunks that have room for more."""
        self._clear()
        self._length = n = len(keys)
        pieces = -(-n // max(1, self._chunk * 3 // 4))
        for piece in range(pieces):
            part = slice(n * piece // pieces, n * (piece + 1) // pieces)
            mine = array(self._type.char, keys[part].tobytes()), array("i", slots[part].tobytes())
            self._open(piece, *mine)

    def _open(self, number: int, keys: array[Any], slots: array[int]) -> None:
        self._keys.insert(number, keys)
        self._slots.insert(number, slots)
        self._last_keys.insert(number, 0)
        self._last_names.insert(number, 0)
        if slots:
            self._set_last(number)

    def _close(self, number: int) -> tuple[array[Any], array[int]]:
        del self._last_keys[number], self._last_names[number]
        return self._keys.pop(number), self._slots.pop(number)

    def _set_last(self, chunk: int) -> None:
        self._last_keys[chunk] = self._keys[chunk][-1]
        self._last_names[chunk] = int(self._named.ids[self._slots[chunk][-1]])

    def _split(self, chunk: int, *, at_end: bool) -> None:
        """Split a full chunk."""
        keys, slots = self._close(chunk)
        # where entries come in order, a chunk stays full and the next begins: else all would be half empty
        half = len(slots) - max(1, len(slots) // 8) if at_end else len(slots) // 2
        self._open(chunk, keys[:half], slots[:half])
        self._open(chunk + 1, keys[half:], slots[half:])

    def _join(self, chunk: int) -> None:
        """Join a small chunk with a neighbour, if both fit into one with room to spare."""
        if not self._slots[chunk]:
            self._close(chunk)
            return
        for first in (chunk, chunk - 1):
            sizes = [len(slots) for slots in self._slots[max(first, 0) : first + 2]]
            if len(sizes) == 2 and sum(sizes) <= self._chunk * 3 // 4:
                keys, slots = self._close(first + 1)
                lower_keys, lower_slots = self._close(first)
                self._open(first, lower_keys + keys, lower_slots + slots)
                return
