"""Candidates of a changing table: the paper's table L, and both sides of its edge.

All that depends on the anchor is here. A new anchor means new candidates from
the same slots, put in place of the old ones when they are complete.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from duramen.arrays import Array
from duramen.coreset.exact import ExactSums
from duramen.coreset.view import Settings, Suspects, View
from duramen.dynamic.ranked import Ranked, Scores
from duramen.dynamic.rows import Slots
from duramen.dynamic.sorted_list import Ordered
from duramen.dynamic.tree import Tree
from duramen.points import WeightedPoints
from duramen.samplers.base import Entries, Sampler, Strata

_NOWHERE = (np.inf, 2**63)  # an edge above every (loss, id): nothing is suspected
_ROUNDING = 64 * float(np.finfo(np.float64).eps)  # as in trimming: so small a weight splits no point


class LossTable:
    """The paper's table L: points in the order of (loss, id), and the edge of the suspected, its pointer.

    The suspected are the points of the largest losses, the fewest that weigh at least
    what is to be suspected; of equal losses the larger id is suspected first. A
    change moves the edge past no more points than it must.

    Invariants
    ----------
    1. The order holds every point of positive weight once, under its loss.
    2. The edge is the (loss, id) of a point, or above them all where none is suspected.
    3. ``above`` is the weight of the points above the edge, and ``n_suspected`` the number of these and
       the point at the edge.
    4. Without the point at the edge, the suspected would weigh less than they must; with
       it they weigh enough, or are all there are.
    5. Suspects that were read off are those of now.
    """

    def __init__(self, slots: Slots, scores: Scores) -> None:
        self._slots, self._scores = slots, scores
        self.order = Ordered(slots)
        self.above = ExactSums()
        self.n_suspected = 0
        self._suspects: Suspects | None  # as they were read off, until one changes
        self._set_edge(-1)

    def are_suspected(self, slots: Any) -> Any:
        """Return which points, or whether one, are on the suspected side of the edge."""
        losses, (loss, name) = self._scores.losses[slots], self.edge
        return (losses > loss) | ((losses == loss) & (self._slots.ids[slots] > name - 1))

    def add(self, slots: Array) -> Array:
        """Add points, whose losses are known; return those that are not suspected."""
        self.order.add(self._scores.losses[slots], slots)
        return self._count(slots, 1)

    def remove(self, slots: Array) -> Array:
        """Remove points; return those that were not suspected."""
        inner = self._count(slots, -1)
        self.order.remove(self._scores.losses[slots], slots)
        if len(inner) == len(slots):
            return inner
        first = next(self._from_edge(), -1)
        if self._place(first) != self.edge:  # the point at the edge is gone, whose weight was not in the sum
            self.above.add(self._edge_weight)
            self._set_edge(first)
            self.above.add(-self._edge_weight)
        return inner

    def settle(self, weight: float) -> tuple[Array, bool]:
        """Move the edge so that at least ``weight`` is suspected, with no more points than needed.

        Return the points that changed sides, and whether they are suspected now.
        """
        above = self.above.values
        if above + self._edge_weight < weight and self.n_suspected < len(self.order):
            return self._suspect(weight), True
        if self.n_suspected and above >= _needed(self._edge_weight, weight):
            return self._release(weight), False
        return np.empty(0, dtype=np.int64), False

    def suspects(self) -> Suspects:
        """Return all that are suspected, those of the largest losses first."""
        if self._suspects is None:
            parts = self.order.from_place(*self.edge, up=True)
            slots = np.concatenate([np.empty(0, dtype=np.int32), *parts])[::-1]
            columns = self._slots.ids[slots], self._scores.losses[slots], self._slots.weights[slots]
            self._suspects = Suspects(slots, *columns)
        return self._suspects

    def check(self, weight: float) -> None:
        """Raise AssertionError, naming the invariant, if one is broken for the weight to suspect."""
        self.order.check()
        order, weights = self.order.slots(), self._slots.weights
        assert np.array_equal(np.sort(order), np.flatnonzero(weights > 0)), "1: the order holds other points"
        assert np.array_equal(self.order.keys(), self._scores.losses[order]), "1: a point has the wrong loss"
        outer = order[self.are_suspected(order)]
        assert len(outer) == self.n_suspected, "3: n_suspected is not the number of the suspected"
        assert self.edge == self._place(outer[0] if len(outer) else -1), "2: the edge is not at a point"
        above, at_edge = math.fsum(weights[outer[1:]]), math.fsum(weights[outer[:1]])
        assert self.above.values == above, "3: the weight above the edge is wrong"
        assert self._edge_weight == at_edge, "2: the weight of the point at the edge is wrong"
        enough = above + at_edge >= weight * (1 - 2 * _ROUNDING)
        assert len(outer) == len(order) or enough, "4: too little is suspected"
        assert not len(outer) or above < weight, "4: too much is suspected"
        suspects = self.suspects()
        assert np.array_equal(suspects.rows[::-1], outer), "5: suspects are not those of now"
        assert np.array_equal(suspects.weights[::-1], weights[outer]), "5: a suspect has another weight"

    def _count(self, slots: Array, sign: int) -> Array:
        """Count the suspected among points; return the others."""
        if len(slots) == 1 and not self.are_suspected(slots[0]):  # so it is with most, and a number is faster
            return slots
        suspected = self.are_suspected(slots)
        count = int(np.count_nonzero(suspected))
        if count:
            self.above.add_rows(self._slots.weights[slots[suspected]], sign)
            self.n_suspected += sign * count
            self._suspects = None
        return slots[~suspected]

    def _suspect(self, weight: float) -> Array:
        """Move the edge down past all points that must be suspected; return them."""
        parts, before = [], self.above.values + self._edge_weight
        for part in self.order.from_place(*self.edge, up=False):
            heavy = self._slots.weights[part]
            sums = np.cumsum(np.append(before, heavy))
            enough = np.flatnonzero(sums[:-1] >= _needed(heavy, weight))
            parts.append(part[: enough[0]] if len(enough) else part)
            if len(enough):
                break
            before = sums[-1]
        slots = np.concatenate(parts)
        if len(slots):
            self.above.add(self._edge_weight)
            self._set_edge(int(slots[-1]))
            self.above.add_rows(self._slots.weights[slots[:-1]])
            self.n_suspected += len(slots)
        return slots

    def _release(self, weight: float) -> Array:
        """Move the edge up past all points that need not be suspected; return them.

        Their weights are subtracted without rounding, as those above may weigh far less.
        """
        places = self._from_edge()
        slots = [next(places)]
        for slot in places:
            self._set_edge(slot)
            self.above.add(-self._edge_weight)
            if self.above.values < _needed(self._edge_weight, weight):
                break
            slots.append(slot)
        else:
            self._set_edge(-1)
        self.n_suspected -= len(slots)
        return np.array(slots)

    def _from_edge(self) -> Iterator[int]:
        """Iterate over the suspected, from the one at the edge on."""
        for part in self.order.from_place(*self.edge, up=True):
            yield from part.tolist()

    def _place(self, slot: int) -> tuple[float, int]:
        return _NOWHERE if slot < 0 else (float(self._scores.losses[slot]), int(self._slots.ids[slot]))

    def _set_edge(self, slot: int) -> None:
        self.edge, self._suspects = self._place(slot), None
        self._edge_weight = 0.0 if slot < 0 else float(self._slots.weights[slot])


def _needed(heavy: Any, weight: float) -> Any:
    """Return how much must be suspected without a point to make it an inlier: all, up to rounding.

    As in trimming, points that weigh less than rounding are still distinguished.
    """
    slack = _ROUNDING * weight
    return weight - slack * (heavy > slack)


class LiveCandidates:
    """The points as seen from an anchor.

    Invariants
    ----------
    1. Table L is in order, and its edge is where it must be for the weight to suspect.
    2. Every point of positive weight below the edge is in the engine.
    """

    def __init__(
        self, slots: Slots, view: View, settings: Settings, n_outliers: float, probe: WeightedPoints
    ) -> None:
        if settings.tree:  # where a sampler is a black box
            Scores(view, probe)  # refuses scores that would be refused when a node is built
            view = replace(view, sampler=view.sampler.bind(view.loss, view.anchor), features=None)
        self._slots, self.view, self.n_outliers = slots, view, n_outliers
        self.scores = Scores(view, probe)
        self.table = LossTable(slots, self.scores)
        self.total = ExactSums()  # the weight of all points
        self.engine: Any = Ranked(slots, self.scores)
        if settings.tree:
            shape = settings.bucket_size, settings.height
            self.engine = Tree(slots, view.sampler, view.seed, settings.by_size.size, *shape)

    def add(self, slots: Array, scored: dict[str, Array] | None = None, *, at_once: bool = False) -> None:
        """Add points that are in their slots, as are their scores unless they are given."""
        if scored is not None:
            self.scores.write(slots, scored, self._slots.extent)
        for step in self._steps(slots, at_once):
            self.total.add_rows(self._slots.weights[step])
            self.engine.add(self.table.add(step))
            self._settle()

    def remove(self, slots: Array) -> None:
        """Remove points that are still in their slots, and overwrite their scores."""
        for step in self._steps(slots):
            self.total.add_rows(self._slots.weights[step], -1)
            self.engine.remove(self.table.remove(step))
            self._settle()
        self.scores.clear(slots)

    def _steps(self, slots: Array, at_once: bool = False) -> list[Array]:
        """Split points of positive weight, for a tree one by one: it depends on their order.

        They are added ``at_once`` where a saved order is restored later.
        """
        weights = self._slots.weights[slots]
        if np.count_nonzero(weights) < len(slots):
            slots = slots[weights > 0]
        if len(slots) > 1 and isinstance(self.engine, Tree) and not at_once:
            return list(slots[:, None])
        return [slots] if len(slots) else []

    def set_outliers(self, n_outliers: float) -> None:
        """Set another number of outliers: the paper's Change."""
        self.n_outliers = n_outliers
        self._settle()

    def _to_suspect(self) -> float:
        """Compute how much weight to suspect: at most the total."""
        total, z = self.total.values, self.n_outliers
        rule = self.view.settings.by_size
        return min(rule.suspected_of(z if z >= 1 else z * total, total), total)

    def _settle(self) -> None:
        """Move the edge to where it must be now, and the points that it passes to the other side."""
        slots, suspected = self.table.settle(self._to_suspect())
        if len(slots):
            (self.engine.remove if suspected else self.engine.add)(slots)

    # what a coreset is chosen from, as `Candidates` in coreset/choose.py has it

    @property
    def n_points(self) -> int:
        return len(self.table.order)

    def suspects(self) -> Suspects:
        return self.table.suspects()

    def strata(self) -> Strata:
        return self.engine.strata()

    def smallest(self, pooled: Array, sizes: Array) -> Entries:
        return self.engine.smallest(pooled, sizes)

    def rest(self, strata: Array, rows: Array) -> float:
        return self.engine.rest(strata, rows)

    def totals(self) -> Array | None:
        return self.engine.totals

    def reduce(self, sampler: Sampler, size: int, rng: np.random.Generator) -> tuple[Array, Array]:
        return self.engine.choose(size)

    def copy(self, outer: Array, inner: Array) -> WeightedPoints:
        return self._slots.points(np.concatenate([outer, inner]))

    @property
    def nbytes(self) -> int:
        own = sum(column.nbytes for column in self.scores.columns.values())
        return own + self.table.order.nbytes + self.engine.nbytes

    def check(self) -> None:
        self.table.check(self._to_suspect())
        order = self.table.order.slots()
        inner = order[: len(order) - self.table.n_suspected]
        assert np.array_equal(np.sort(self.engine.slots()), np.sort(inner)), "2: the inliers are other points"
        self.engine.check()
