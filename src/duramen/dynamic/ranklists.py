"""Lists of points in the order of their ranks: what both sides of the threshold are kept in."""

from __future__ import annotations

from typing import Any

import numpy as np

from duramen.dynamic.ordered import Ordered
from duramen.dynamic.slots import Slots
from duramen.dynamic.sums import ExactSum
from duramen.robust.choice import Chosen
from duramen.robust.split import rung_of, shared_rungs
from duramen.rows import Array
from duramen.sampling.base import Strata
from duramen.sampling.ranks import draw, scaled, uniform_of, uniforms

__all__ = ["RankLists", "Suspects", "nobody"]


class RankLists:
    """Points in the order of their ranks, stratum by stratum, with the weight of each.

    Invariants
    ----------
    1. Each list is in order (see :class:`Ordered`), and none is empty.
    2. The weight of a stratum is the sum of its points' weights.
    """

    def __init__(self, slots: Slots, chunk: int | None) -> None:
        self._slots, self._chunk = slots, chunk
        self._lists: dict[int, Ordered] = {}
        self._weights: dict[int, ExactSum] = {}
        self._length = 0

    def __len__(self) -> int:
        return self._length

    def add(self, number: int, rank: float, slot: int) -> None:
        """Put a point into a stratum."""
        if number not in self._lists:
            self._open(number)
        self._lists[number].add(rank, int(self._slots.ids[slot]), slot)
        self._weights[number].add(float(self._slots.weights[slot]))
        self._length += 1

    def remove(self, number: int, rank: float, slot: int) -> None:
        """Take a point out of its stratum."""
        mine = self._lists[number]
        mine.remove(rank, int(self._slots.ids[slot]))
        self._weights[number].subtract(float(self._slots.weights[slot]))
        self._length -= 1
        if not len(mine):
            self._close(number)

    def add_many(self, numbers: Array | None, ranks: Array, slots: Array) -> None:
        """Put points into their strata."""
        for number, part in _by_number(numbers, len(slots)):
            if number not in self._lists:
                self._open(number)
            self._lists[number].add_many(ranks[part], slots[part])
            self._weights[number].add_many(self._slots.weights[slots[part]])
        self._length += len(slots)

    def remove_many(self, numbers: Array | None, ranks: Array, slots: Array) -> None:
        """Take points out of their strata."""
        for number, part in _by_number(numbers, len(slots)):
            self._lists[number].remove_many(ranks[part], slots[part])
            self._weights[number].subtract_many(self._slots.weights[slots[part]])
            if not len(self._lists[number]):
                self._close(number)
        self._length -= len(slots)

    def strata(self) -> Strata:
        """Say what is in each stratum, in the order of their numbers."""
        numbers = sorted(self._lists)
        counts = np.array([len(self._lists[number]) for number in numbers], dtype=np.int64)
        weights = np.array([self._weights[number].value for number in numbers], dtype=np.float64)
        return Strata(np.array(numbers, dtype=np.int64), counts, weights)

    def draw(self, seed: int, ranks: Any, groups: Array | None, sizes: Array, totals: Array) -> Chosen:
        """Draw ``sizes[g]`` points from each group of strata; ``ranks(slots)`` gives their ranks."""
        numbers = sorted(self._lists)
        place = np.zeros(len(numbers), dtype=np.int64) if groups is None else groups
        parts = [
            self._lists[number].first(int(sizes[g]) + 1) for number, g in zip(numbers, place, strict=True)
        ]
        slots = np.concatenate(parts)
        mine = None if groups is None else np.repeat(groups, [len(part) for part in parts])
        found = draw(seed, ranks(slots), self._slots.ids[slots], mine, sizes)
        own = self._slots.weights[slots[found.rows]]

        def rest(group: int, kept: Array) -> float:
            whole = ExactSum()
            for number, g in zip(numbers, place, strict=True):
                if g == group:
                    whole.add_many(np.array([self._weights[number].high, self._weights[number].low]))
            return whole.difference(own[kept])

        weights = scaled(found, own, totals, rest)
        return Chosen(slots[found.rows].astype(np.intp), weights, found.inclusion, found.groups)

    @property
    def nbytes(self) -> int:
        """The bytes of its arrays."""
        return sum(mine.nbytes for mine in self._lists.values())

    def slots(self) -> dict[int, Array]:
        """Give the slots of each stratum, in the order of their ranks."""
        return {number: mine.slots() for number, mine in self._lists.items()}

    def check(self) -> None:
        """Raise AssertionError, naming the invariant, if one is broken."""
        for number, mine in self._lists.items():
            mine.check()
            assert len(mine), f"1: stratum {number} is empty"
            total = float(self._slots.weights[mine.slots()].sum())
            held = self._weights[number].value
            assert abs(held - total) <= 1e-12 * total, f"2: stratum {number} weighs {total}, not {held}"

    def _open(self, number: int) -> None:
        self._lists[number] = Ordered(self._slots, np.float64, self._chunk)
        self._weights[number] = ExactSum()

    def _close(self, number: int) -> None:
        del self._lists[number], self._weights[number]


def _by_number(numbers: Array | None, n: int) -> list[tuple[int, Any]]:
    """Give the entries of each number; all are of number 0, where there are none."""
    if not n:
        return []
    if numbers is None:
        return [(0, slice(None))]
    order = np.argsort(numbers, kind="stable")
    cuts = np.flatnonzero(np.diff(numbers[order])) + 1
    return [(int(numbers[part[0]]), part) for part in np.split(order, cuts)]


class Suspects:
    """The suspected outliers, drawn uniformly from every rung of their loss."""

    def __init__(self, slots: Slots, seed: int, chunk: int | None = None) -> None:
        self._slots, self._seed = slots, seed
        self._lists = RankLists(slots, chunk)

    def __len__(self) -> int:
        return len(self._lists)

    def add(self, slot: int, loss: float) -> None:
        """Take a point in."""
        self._lists.add(int(rung_of(np.array([loss]))[0]), self._rank(slot), slot)

    def remove(self, slot: int, loss: float) -> None:
        """Let a point go."""
        self._lists.remove(int(rung_of(np.array([loss]))[0]), self._rank(slot), slot)

    def add_many(self, slots: Array, losses: Array) -> None:
        """Take points in."""
        self._lists.add_many(rung_of(losses), self._ranks(slots), slots)

    def remove_many(self, slots: Array, losses: Array) -> None:
        """Let points go."""
        self._lists.remove_many(rung_of(losses), self._ranks(slots), slots)

    def choose(self, size: int) -> Chosen:
        """Choose the points that stand for them all."""
        if not size:
            return nobody()
        strata = self._lists.strata()
        groups, sizes, totals = shared_rungs(*strata, size)
        found = self._lists.draw(self._seed, self._ranks, groups, sizes, totals)
        return found._replace(groups=-1 - found.groups)

    @property
    def nbytes(self) -> int:
        """The bytes of its arrays."""
        return self._lists.nbytes

    def slots(self) -> Array:
        """Give the slots of all points."""
        parts = list(self._lists.slots().values())
        return np.concatenate(parts) if parts else np.empty(0, dtype=np.int32)

    def check(self, losses: Array) -> None:
        """Raise AssertionError if a list is out of order, or a point on another rung."""
        self._lists.check()
        for number, slots in self._lists.slots().items():
            assert (rung_of(losses[slots]) == number).all(), f"a point of another rung is on {number}"

    def _rank(self, slot: int) -> float:
        return uniform_of(self._seed, int(self._slots.ids[slot])) / float(self._slots.weights[slot])

    def _ranks(self, slots: Array) -> Array:
        with np.errstate(over="ignore"):
            return uniforms(self._seed, self._slots.ids[slots]) / self._slots.weights[slots]


def nobody() -> Chosen:
    """Choose nothing."""
    none = np.empty(0)
    return Chosen(none.astype(np.intp), none, none, none.astype(np.int32))
