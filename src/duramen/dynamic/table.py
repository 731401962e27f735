"""Table L: the points ordered by their loss at the anchor, with a pointer at the threshold (appendix C).

The pointer is at the edge: the smallest (loss, id) among the suspected
outliers. They are the points of the largest losses, as few as together weigh at
least what is to be suspected; of equal losses the larger id is suspected first.
After a change the edge is moved by as many points as it takes, and no more.
"""

from __future__ import annotations

import numpy as np

from duramen.dynamic.columns import grown
from duramen.dynamic.ordered import Ordered
from duramen.dynamic.slots import Slots
from duramen.dynamic.sums import ExactSum
from duramen.rows import Array

__all__ = ["Moves", "Table"]

_ROUNDING = 64 * float(np.finfo(np.float64).eps)  # as in trimming: by so little a weight splits no point


class Moves:
    """Points that changed sides: which, and whether they are suspected now."""

    __slots__ = ("slots", "suspected")

    def __init__(self, slots: Array, suspected: bool) -> None:
        self.slots, self.suspected = slots, suspected


class Table:
    """The points of positive weight in the order of (loss, id), and the edge of suspicion in it.

    Invariants
    ----------
    1. The order holds every point of positive weight once, under its loss.
    2. The edge is the (loss, id) of a point, or None where nobody is suspected.
    3. ``outer`` and ``n_suspected`` are the weight and the number of the points from the edge on.
    4. Without the point at the edge, the suspected would weigh less than they have to; with
       it they weigh enough, or are all there are.
    """

    def __init__(self, slots: Slots, chunk: int | None = None) -> None:
        self._slots = slots
        self.losses = np.zeros(0)
        self.order = Ordered(slots, np.float64, chunk)
        self.edge: tuple[float, int] | None = None
        self.outer = ExactSum()
        self.n_suspected = 0
        self._edge_weight = 0.0

    def __len__(self) -> int:
        return len(self.order)

    @property
    def threshold(self) -> float:
        """The smallest loss of a suspected point; infinite where there is none."""
        return np.inf if self.edge is None else self.edge[0]

    def is_suspected(self, slot: int) -> bool:
        """Tell on which side of the edge a point is."""
        edge = self.edge
        if edge is None:
            return False
        loss = self.losses[slot]
        return bool(loss > edge[0] or (loss == edge[0] and self._slots.ids[slot] >= edge[1]))

    def are_suspected(self, slots: Array) -> Array:
        """Tell on which side of the edge points are."""
        if self.edge is None:
            return np.zeros(len(slots), dtype=bool)
        losses, (loss, name) = self.losses[slots], self.edge
        return (losses > loss) | ((losses == loss) & (self._slots.ids[slots] >= name))

    def add(self, slot: int, loss: float) -> bool:
        """Put a point in: whether it is on the suspected side."""
        if slot >= len(self.losses):
            self.losses = grown(self.losses, slot + 1)
        self.losses[slot] = loss
        self.order.add(loss, int(self._slots.ids[slot]), slot)
        suspected = self.is_suspected(slot)
        if suspected:
            self.outer.add(float(self._slots.weights[slot]))
            self.n_suspected += 1
        return suspected

    def remove(self, slot: int) -> bool:
        """Take a point out, and overwrite its loss: whether it was suspected."""
        suspected = self.is_suspected(slot)
        place = (float(self.losses[slot]), int(self._slots.ids[slot]))
        self.order.remove(*place)
        self.losses[slot] = 0.0
        if suspected:
            self.outer.subtract(float(self._slots.weights[slot]))
            self.n_suspected -= 1
            if place == self.edge:
                self._mend_edge()
        return suspected

    def add_many(self, slots: Array, losses: Array) -> None:
        """Put points in."""
        self.losses = grown(self.losses, int(slots.max(initial=-1)) + 1)
        self.losses[slots] = losses
        self.order.add_many(losses, slots)
        self._count(slots[self.are_suspected(slots)], 1)

    def remove_many(self, slots: Array) -> None:
        """Take points out, and overwrite their losses."""
        self._count(slots[self.are_suspected(slots)], -1)
        self.order.remove_many(self.losses[slots], slots)
        self.losses[slots] = 0.0
        self._mend_edge()

    def settle(self, weight: float) -> Moves | None:
        """Move the edge so that at least ``weight`` is suspected, and no point more than that takes."""
        least = weight * (1 - _ROUNDING)
        held = self.outer.value
        if held < least:
            return self._suspect(least) if len(self.order) > self.n_suspected else None
        if self.edge is not None and held - self._edge_weight >= least:
            return self._release(least)
        return None

    def check(self, weight: float) -> None:
        """Raise AssertionError, naming the invariant, if one is broken for the weight to suspect."""
        self.order.check()
        there = self._slots.in_use()
        there = there[self._slots.weights[there] > 0]
        order = self.order.slots()
        assert np.array_equal(np.sort(order), np.sort(there)), "1: the order holds other points"
        assert np.array_equal(self.order.keys(), self.losses[order]), "1: a point stands under another loss"
        outer = order[self.are_suspected(order)]
        assert len(outer) == self.n_suspected, "3: n_suspected is not the number of the suspected"
        weights = self._slots.weights[outer]
        total = float(weights.sum())
        assert abs(self.outer.value - total) <= 1e-12 * total, "3: the suspected weigh something else"
        if self.edge is None:
            assert not len(outer), "2: some are suspected, without an edge"
        else:
            first = outer[0]
            assert self.edge == (self.losses[first], self._slots.ids[first]), "2: the edge is not at a point"
            assert self._edge_weight == weights[0], "2: the point at the edge weighs something else"
        low, high = weight * (1 - 2 * _ROUNDING), weight
        assert len(outer) == len(order) or total >= low, "4: too little is suspected"
        assert not len(outer) or weights[1:].sum() < high, "4: too much is suspected"

    def _suspect(self, least: float) -> Moves:
        """Move the edge down."""
        loss, name = (np.inf, np.iinfo(np.int64).max) if self.edge is None else self.edge
        parts, held = [], self.outer.value
        last = self.order.last()
        if self.edge is None and self._slots.ids[last] == name and self.losses[last] == loss:
            parts.append(np.array([last], dtype=np.int32))  # the one place that nothing lies above
            held += float(self._slots.weights[last])
        for part in self.order.down_from(loss, name):
            if held >= least:
                break
            steps = held + np.cumsum(self._slots.weights[part])
            count = int(np.searchsorted(steps, least)) + 1
            parts.append(part[:count])
            held = float(steps[min(count, len(steps)) - 1])
        slots = np.concatenate(parts)
        self._count(slots, 1)
        self._set_edge(int(slots[-1]))
        return Moves(slots, suspected=True)

    def _release(self, least: float) -> Moves:
        """Move the edge up."""
        assert self.edge is not None
        parts, held, edge = [], self.outer.value, -1
        for part in self.order.up_from(*self.edge):
            if not least:  # nobody is to be suspected, whatever rounding leaves
                parts.append(part)
                continue
            left = held - np.cumsum(self._slots.weights[part])
            count = int(np.searchsorted(-left, -least, side="right"))  # after which enough is left
            parts.append(part[:count])
            if count < len(part):
                edge = int(part[count])
                break
            held = float(left[-1])
        slots = np.concatenate(parts)
        self._count(slots, -1)
        if self.n_suspected:
            self._set_edge(edge)
        else:
            self.edge, self._edge_weight = None, 0.0
        return Moves(slots, suspected=False)

    def _count(self, slots: Array, sign: int) -> None:
        weights = self._slots.weights[slots]
        if sign > 0:
            self.outer.add_many(weights)
        else:
            self.outer.subtract_many(weights)
        self.n_suspected += sign * len(slots)

    def _mend_edge(self) -> None:
        """Put the edge at the first point from it on: the one that was there may be gone."""
        if self.edge is None:
            return
        for part in self.order.up_from(*self.edge):
            if len(part):
                self._set_edge(int(part[0]))
                return
        self.edge, self._edge_weight = None, 0.0

    def _set_edge(self, slot: int) -> None:
        self.edge = (float(self.losses[slot]), int(self._slots.ids[slot]))
        self._edge_weight = float(self._slots.weights[slot])
