"""The paper's table L: points ordered by their loss at the anchor, with a pointer at the threshold.

The pointer is at the edge: the smallest (loss, id) among the suspected
outliers. These are the points of the largest losses, the fewest that weigh
at least what is to be suspected; of equal losses the larger id is suspected
first. A change moves the edge past no more points than it must.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from duramen.arrays import Array
from duramen.coreset.exact import ExactSum
from duramen.dynamic.rows import Slots
from duramen.dynamic.sorted_list import Ordered

_NOWHERE = (np.inf, 2**63)  # an edge above every (loss, id): nothing is suspected
_ROUNDING = 64 * float(np.finfo(np.float64).eps)  # as in trimming: so small a weight splits no point


class Moves(NamedTuple):
    """Points that changed sides, and whether they are suspected now."""

    slots: Array
    suspected: bool


class LossTable:
    """The points of positive weight in the order of (loss, id), and the edge of the suspected.

    Invariants
    ----------
    1. The order holds every point of positive weight once, under its loss.
    2. The edge is the (loss, id) of a point, or above them all where none is suspected.
    3. ``outer`` and ``n_suspected`` are the weight and the number of the points from the edge on.
    4. Without the point at the edge, the suspected would weigh less than they must; with
       it they weigh enough, or are all there are.
    """

    def __init__(self, slots: Slots) -> None:
        self._slots = slots
        self.losses = np.zeros(0)
        self.order = Ordered(slots)
        self.edge: tuple[float, int] = _NOWHERE
        self.outer = ExactSum()
        self.n_suspected = 0
        self._edge_weight = 0.0

    def __len__(self) -> int:
        return len(self.order)

    @property
    def threshold(self) -> float:
        """The smallest loss of a suspected point; infinite where there is none."""
        return self.edge[0]

    def are_suspected(self, slots: Any) -> Any:
        """Return which points are on the suspected side of the edge: one, or many."""
        losses, (loss, name) = self.losses[slots], self.edge
        return (losses > loss) | ((losses == loss) & (self._slots.ids[slots] > name - 1))

    def add(self, slot: int) -> bool:
        """Add a point, whose loss is known; return whether it is on the suspected side."""
        self.order.add(float(self.losses[slot]), int(self._slots.ids[slot]), slot)
        suspected = bool(self.are_suspected(slot))
        if suspected:
            self.outer.add(float(self._slots.weights[slot]))
            self.n_suspected += 1
        return suspected

    def remove(self, slot: int) -> bool:
        """Remove a point; return whether it was suspected."""
        suspected = bool(self.are_suspected(slot))
        place = (float(self.losses[slot]), int(self._slots.ids[slot]))
        self.order.remove(*place)
        if suspected:
            self.outer.add(-float(self._slots.weights[slot]))
            self.n_suspected -= 1
            if place == self.edge:
                self._mend_edge()
        return suspected

    def add_many(self, slots: Array) -> None:
        """Add points, whose losses are known."""
        self.order.add_many(self.losses[slots], slots)
        self._count(slots[self.are_suspected(slots)], 1)

    def remove_many(self, slots: Array) -> None:
        """Remove points."""
        self._count(slots[self.are_suspected(slots)], -1)
        self.order.remove_many(self.losses[slots], slots)
        self._mend_edge()

    def settle(self, weight: float) -> Moves | None:
        """Move the edge so that at least ``weight`` is suspected, with no more points than needed."""
        outer, last = self.outer.value, self._edge_weight
        if outer < weight:
            return self._move_edge(weight, suspect=True) if len(self) > self.n_suspected else None
        if self.n_suspected and outer - last >= _needed(last, weight):
            return self._move_edge(weight, suspect=False)
        return None

    def check(self, weight: float) -> None:
        """Raise AssertionError, naming the invariant, if one is broken for the weight to suspect."""
        self.order.check()
        there = self._slots.in_use()
        there = there[self._slots.weights[there] > 0]
        order = self.order.slots()
        assert np.array_equal(np.sort(order), np.sort(there)), "1: the order holds other points"
        assert np.array_equal(self.order.keys(), self.losses[order]), "1: a point has the wrong loss"
        outer = order[self.are_suspected(order)]
        assert len(outer) == self.n_suspected, "3: n_suspected is not the number of the suspected"
        weights = self._slots.weights[outer]
        total = math.fsum(weights)
        assert self.outer.value == total, "3: the weight of the suspected is wrong"
        assert len(outer) or self.edge == _NOWHERE, "2: the edge is not at a point"
        if len(outer):
            first = outer[0]
            assert self.edge == (self.losses[first], self._slots.ids[first]), "2: the edge is not at a point"
            assert self._edge_weight == weights[0], "2: the weight of the point at the edge is wrong"
        low, high = weight * (1 - 2 * _ROUNDING), weight
        assert len(outer) == len(order) or total >= low, "4: too little is suspected"
        assert not len(outer) or weights[1:].sum() < high, "4: too much is suspected"

    def _move_edge(self, weight: float, *, suspect: bool) -> Moves | None:
        """Move the edge down past all points that must be suspected, or up past those that need not be."""
        sign, parts, outer, following = 1 if suspect else -1, [], self.outer.value, -1
        for part in self.order.down_from(*self.edge) if suspect else self.order.up_from(*self.edge):
            heavy = self._slots.weights[part]
            after = outer + sign * np.cumsum(heavy)
            without = after - heavy if suspect else after
            must = (without < _needed(heavy, weight)) & (weight > 0)  # 0: rounding does not matter
            stop = np.flatnonzero(must != suspect)
            count = int(stop[0]) if len(stop) else len(part)
            parts.append(part[:count])
            if count < len(part):
                following = int(part[count])
                break
            outer = float(after[-1])
        slots = np.concatenate(parts)
        if not len(slots):
            return None
        self._count(slots, sign)
        self._set_edge(int(slots[-1]) if suspect else following)
        return Moves(slots, suspect)

    def _count(self, slots: Array, sign: int) -> None:
        self.outer.add_many(self._slots.weights[slots], sign)
        self.n_suspected += sign * len(slots)

    def _mend_edge(self) -> None:
        """Move the edge to the first point from it on: the one that was there may be gone."""
        first = next((part for part in self.order.up_from(*self.edge) if len(part)), None)
        self._set_edge(-1 if first is None else int(first[0]))

    def _set_edge(self, slot: int) -> None:
        if slot < 0:
            self.edge, self._edge_weight = _NOWHERE, 0.0
        else:
            self.edge = (float(self.losses[slot]), int(self._slots.ids[slot]))
            self._edge_weight = float(self._slots.weights[slot])


def _needed(heavy: Any, weight: float) -> Any:
    """Return how much must be suspected without a point to make it an inlier: all, up to rounding.

    As in trimming, points that weigh less than rounding are still distinguished.
    """
    slack = _ROUNDING * weight
    return weight - slack * (heavy > slack)
