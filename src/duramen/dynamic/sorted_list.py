"""Slots in sorted order, in chunks, and columns that grow."""

from __future__ import annotations

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
    """Sort by key, and only where keys are equal by id: a third of the time of sorting by both."""
    order = np.argsort(keys)
    near = keys[order]
    equal = near[1:] == near[:-1]
    if equal.any():
        tied = np.flatnonzero(np.append(equal, False) | np.append(False, equal))
        mine = order[tied]
        order[tied] = mine[np.lexsort((names[mine], keys[mine]))]
    return order


def roomy(values: Array, room: int) -> Array:
    """Copy values into an array of ``room`` entries, or as many as they are; the others are zero."""
    roomy = np.empty(max(room, len(values)), dtype=values.dtype)
    roomy[: len(values)] = values
    roomy[len(values) :] = 0  # memory that was used before may show what was deleted
    return roomy


def among_equals(keys: Array, ids: Array, slots: Array, tied: Array, names: Array) -> Array:
    """Find where ids are among sorted entries of equal key: bisections abreast, for thousands of ties."""
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
    1. Entries go up strictly in (key, id), within chunks and across them.
    2. Each chunk has at least one entry, at most ``chunk``, and arrays with room for them.
    3. ``_last_keys`` and ``_last_names`` hold the key and the id of each chunk's last entry.

    ``chunk`` is the largest number of entries of a chunk; it is small in tests, to reach every path.
    """

    def __init__(self, named: Named, dtype: Any = np.float64, chunk: int | None = None) -> None:
        self._named, self._type, self._chunk = named, np.dtype(dtype), chunk or CHUNK
        self._clear()

    def _clear(self) -> None:
        self._keys: list[Array] = []
        self._slots: list[Array] = []
        self._sizes: list[int] = []
        self._last_keys: Any = array("d" if self._type.kind == "f" else "q")  # one block of memory: in a list
        self._last_names = array("q")  # of tuples a bisection would wait for the cache at every step
        self._length = 0

    def __len__(self) -> int:
        return self._length

    # one entry at a time

    def add(self, key: Any, name: int, slot: int) -> None:
        """Add a slot, at its key and id."""
        if not self._sizes:
            self._length = 1
            self._open(0, np.array([key], dtype=self._type), np.array([slot], dtype=np.int32))
            return
        chunk = self._chunk_of(key, name)
        at_end = chunk == len(self._sizes)
        if at_end:
            chunk -= 1
            place = self._sizes[chunk]
        else:
            place = self._place(chunk, key, name)
        size, keys, slots = self._sizes[chunk], self._keys[chunk], self._slots[chunk]
        if size == len(keys):
            self._make_room(chunk, at_end)
            self.add(key, name, slot)
            return
        if place < size:
            keys[place + 1 : size + 1] = keys[place:size]
            slots[place + 1 : size + 1] = slots[place:size]
        else:
            self._last_keys[chunk], self._last_names[chunk] = key, name
        keys[place] = key
        slots[place] = slot
        self._sizes[chunk] = size + 1
        self._length += 1

    def remove(self, key: Any, name: int) -> None:
        """Remove the entry with this key and id, which must be there."""
        chunk = self._chunk_of(key, name)
        place, size = self._place(chunk, key, name), self._sizes[chunk] - 1
        keys, slots = self._keys[chunk], self._slots[chunk]
        if place < size:
            keys[place:size] = keys[place + 1 : size + 1]
            slots[place:size] = slots[place + 1 : size + 1]
        keys[size] = slots[size] = 0
        self._sizes[chunk] = size
        self._length -= 1
        if size and place == size:
            self._set_last(chunk)
        if size < self._chunk // 4 or not size:
            self._join(chunk)

    def find(self, key: Any, name: int) -> int:
        """Return the slot of the entry with this key and id, or -1."""
        chunk = self._chunk_of(key, name)
        if chunk == len(self._sizes):
            return -1
        place = self._place(chunk, key, name)
        if place >= self._sizes[chunk] or self._keys[chunk][place] != key:
            return -1
        slot = int(self._slots[chunk][place])
        return slot if self._named.ids[slot] == name else -1

    # many at a time

    def add_many(self, keys: Array, slots: Array) -> None:
        """Add slots; none may be there."""
        keys, names, slots = self._in_order(keys, slots)
        if len(keys) <= _FEW_PER_CHUNK * len(self._sizes):
            for key, name, slot in zip(keys.tolist(), names.tolist(), slots.tolist(), strict=True):
                self.add(key, name, slot)
            return
        old_keys, old_slots = self.keys(), self.slots()
        places = self._places(old_keys, old_slots, keys, names)
        self._rebuild(np.insert(old_keys, places, keys), np.insert(old_slots, places, slots))

    def remove_many(self, keys: Array, slots: Array) -> None:
        """Remove slots, which must be there under these keys."""
        keys, names, slots = self._in_order(keys, slots)
        if len(keys) <= _FEW_PER_CHUNK * len(self._sizes):
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
        if not self._sizes or not len(keys):
            return found
        order = np.argsort(keys, kind="stable")
        wanted = keys[order]
        chunks = np.searchsorted(np.asarray(self._last_keys), wanted)
        cuts = [0, *(np.flatnonzero(np.diff(chunks)) + 1).tolist(), len(wanted)]
        for first, end in pairwise(cuts):
            chunk = int(chunks[first])
            if chunk < len(self._sizes):
                mine = self._keys[chunk][: self._sizes[chunk]]
                places = mine.searchsorted(wanted[first:end])  # within the chunk, by its last key
                there = mine[places] == wanted[first:end]
                found[order[first:end]] = np.where(there, self._slots[chunk][places], -1)
        return found

    def unlink(self) -> None:
        """Break the reference cycle with the owner; the list is unusable afterwards."""
        self._named = None  # type: ignore[assignment]

    def keys(self) -> Array:
        """Return all keys, in order."""
        return _joined(self._keys, self._sizes, self._type)

    def slots(self) -> Array:
        """Return all slots, in order."""
        return _joined(self._slots, self._sizes, np.int32)

    def first(self, count: int) -> Array:
        """Return the first ``count`` slots, or all."""
        n_chunks = bisect_left(list(accumulate(self._sizes)), count) + 1
        return _joined(self._slots[:n_chunks], self._sizes[:n_chunks], np.int32)[: max(count, 0)]

    def parts(self) -> Iterator[Array]:
        """Yield all slots, a chunk at a time, the last chunk first."""
        for slots, size in zip(reversed(self._slots), reversed(self._sizes), strict=True):
            yield slots[:size]

    def down_from(self, key: Any, name: int) -> Iterator[Array]:
        """Yield the slots of all entries below this key and id, downward, a chunk at a time."""
        chunk = self._chunk_of(key, name)
        if chunk < len(self._sizes):
            place = self._place(chunk, key, name)
            if place:
                yield self._slots[chunk][:place][::-1]
        for number in range(chunk - 1, -1, -1):
            yield self._slots[number][: self._sizes[number]][::-1]

    def up_from(self, key: Any, name: int) -> Iterator[Array]:
        """Yield the slots of all entries from this key and id on, upward, a chunk at a time."""
        chunk = self._chunk_of(key, name)
        if chunk < len(self._sizes):
            yield self._slots[chunk][self._place(chunk, key, name) : self._sizes[chunk]]
        for number in range(chunk + 1, len(self._sizes)):
            yield self._slots[number][: self._sizes[number]]

    @property
    def nbytes(self) -> int:
        """The bytes of its arrays, and about those of the lists."""
        arrays = sum(keys.nbytes + slots.nbytes for keys, slots in zip(self._keys, self._slots, strict=True))
        return arrays + 400 * len(self._sizes)

    def check(self) -> None:
        """Raise AssertionError, naming the invariant, if one is broken."""
        assert sum(self._sizes) == self._length, "2: the sizes of chunks do not add up"
        keys, slots = self.keys(), self.slots()
        names = self._named.ids[slots]
        up = (keys[1:] > keys[:-1]) | ((keys[1:] == keys[:-1]) & (names[1:] > names[:-1]))
        assert up.all(), "1: entries do not go up in (key, id)"
        lasts = zip(self._last_keys, self._last_names, strict=True)
        for mine, old, size, last in zip(self._keys, self._slots, self._sizes, lasts, strict=True):
            assert 1 <= size <= min(self._chunk, len(mine)), "2: a chunk is empty, or over-full"
            assert len(old) == len(mine), "2: the arrays of a chunk differ in length"
            there = (mine[size - 1], self._named.ids[old[size - 1]])
            assert last == there, "3: a chunk's last entry is another"

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
        size = self._sizes[chunk]
        keys = self._keys[chunk][:size]
        place = int(keys.searchsorted(key))
        if place < size and keys[place] == key:
            slots = self._slots[chunk]
            if self._named.ids[slots[place]] >= name:  # most often the only one of this key
                return place
            end = int(keys.searchsorted(key, "right"))
            place += int(self._named.ids[slots[place:end]].searchsorted(name))
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
            self._open(piece, keys[part], slots[part])

    def _room_for(self, size: int) -> int:
        return min(self._chunk, size + size // 16 + 4)

    def _open(self, number: int, keys: Array, slots: Array) -> None:
        room = self._room_for(len(keys))
        self._keys.insert(number, roomy(keys, room))
        self._slots.insert(number, roomy(slots, room))
        self._sizes.insert(number, len(keys))
        self._last_keys.insert(number, 0)
        self._last_names.insert(number, 0)
        self._set_last(number)

    def _close(self, number: int) -> None:
        columns: tuple[Any, ...] = (self._keys, self._slots, self._sizes, self._last_keys, self._last_names)
        for column in columns:
            del column[number]

    def _set_last(self, chunk: int) -> None:
        place = self._sizes[chunk] - 1
        slot = self._slots[chunk][place]
        self._last_keys[chunk] = self._keys[chunk][place].item()
        self._last_names[chunk] = int(self._named.ids[slot])

    def _make_room(self, chunk: int, at_end: bool) -> None:
        """Make room for more entries in a full chunk, or split it."""
        size = self._sizes[chunk]
        if size < self._chunk:
            self._resize(chunk, size, min(self._chunk, size + size // 4 + 4))
            return
        # where entries come in order, a chunk stays full and the next begins: else all would be half empty
        half = size - max(1, size // 8) if at_end else size // 2
        upper = self._keys[chunk][half:size], self._slots[chunk][half:size]
        self._resize(chunk, half, self._room_for(half))
        self._set_last(chunk)
        self._open(chunk + 1, *upper)

    def _resize(self, chunk: int, size: int, room: int) -> None:
        """Keep the first ``size`` entries of a chunk, with room for more."""
        self._sizes[chunk] = size
        self._keys[chunk] = roomy(self._keys[chunk][:size], room)
        self._slots[chunk] = roomy(self._slots[chunk][:size], room)

    def _join(self, chunk: int) -> None:
        """Join a small chunk with a neighbour, if both fit into one with room to spare."""
        if not self._sizes[chunk]:
            self._close(chunk)
            return
        for first in (chunk, chunk - 1):
            sizes = self._sizes[max(first, 0) : first + 2]
            if len(sizes) == 2 and sum(sizes) <= self._chunk * 3 // 4:
                keys = _joined(self._keys[first : first + 2], sizes, self._type)
                slots = _joined(self._slots[first : first + 2], sizes, np.int32)
                self._close(first + 1)
                self._close(first)
                self._open(first, keys, slots)
                return


def _joined(arrays: list[Array], sizes: list[int], dtype: Any) -> Array:
    """Concatenate the first entries of arrays, so many of each."""
    parts = [values[:size] for values, size in zip(arrays, sizes, strict=True)]
    return np.concatenate(parts) if parts else np.empty(0, dtype=dtype)
