"""Columns that grow, and sorted columns that are merged: what the parts of a changing table are made of."""

from __future__ import annotations

import numpy as np

from duramen.rows import Array

__all__ = ["among_equals", "grown", "merged", "roomy", "sorted_by"]


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


def merged(
    keys: Array, slots: Array, places: Array, new_keys: Array, new_slots: Array
) -> tuple[Array, Array]:
    """Put new entries between old ones, at their places."""
    n = len(keys) + len(new_keys)
    mine = places + np.arange(len(new_keys))
    old = np.ones(n, dtype=bool)
    old[mine] = False
    all_keys, all_slots = np.empty(n, dtype=keys.dtype), np.empty(n, dtype=slots.dtype)
    all_keys[mine], all_slots[mine] = new_keys, new_slots
    all_keys[old], all_slots[old] = keys, slots
    return all_keys, all_slots


def among_equals(keys: Array, ids: Array, slots: Array, tied: Array, names: Array) -> Array:
    """Find where ids are among sorted entries of equal key: bisections abreast, for thousands of ties."""
    low, high = keys.searchsorted(tied), keys.searchsorted(tied, "right")
    while (low < high).any():
        middle = (low + high) // 2
        below = (middle < high) & (ids[slots[np.minimum(middle, len(slots) - 1)]] < names)
        low, high = np.where(below, middle + 1, low), np.where(below, high, np.minimum(middle, high))
    return low
