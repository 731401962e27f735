"""Candidates of a changing table: all that depends on the anchor. A new anchor means new candidates."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np

from duramen.arrays import Array
from duramen.coreset.exact import ExactSums
from duramen.coreset.view import Suspects, View
from duramen.dynamic.ranked import Ranked, Scores
from duramen.dynamic.rows import Slots
from duramen.dynamic.sorted_list import Ordered
from duramen.dynamic.tree import Tree
from duramen.points import WeightedPoints
from duramen.samplers.base import Entries, Sampler, Strata

_NOWHERE = (np.inf, 2**63)  # an edge above every (loss, id): nothing is suspected
_BLOCK = 1 << 15  # rows scored together at first: more would have to be copied at once
_ROUNDING = 64 * float(np.finfo(np.float64).eps)  # as in trimming: so small a weight splits no point


class LiveCandidates:
    """All points as seen from an anchor: the paper's table L, its pointer, and the engine for all inliers.

    Table L is the points in the order of (loss, id), and its pointer is the edge of the
    suspected: the points of the largest losses, the fewest that weigh at least
    what is to be suspected; of equal losses the larger id is suspected first. A
    change moves the edge past no more points than it must.

    Invariants
    ----------
    All that is here is what it would be, had these points just been added:

    1. The order, which holds every point of positive weight once, under its loss; and the scores.
    2. The edge, which is the (loss, id) of a point, or above them all where none is suspected.
    3. ``n_suspected``, the number of points from the edge on, and ``above``, their weight without that of
       the point at the edge.
    4. Suspects that were read off.
    5. The points in the engine, which are those below the edge.
    """

    def __init__(self, slots: Slots, view: View, n_outliers: float, *, at_once: bool = False) -> None:
        settings = view.settings
        self._slots, self.n_outliers, self._rule = slots, n_outliers, settings.by_size
        self.scores = Scores(view, slots)
        self.engine: Any = Ranked(slots, self.scores)
        if settings.tree:  # a sampler is a black box; scores that a node would refuse are refused above
            view = replace(view, sampler=view.sampler.bind(view.loss, view.anchor), features=None)
            self.scores, shape = Scores(view, slots), (settings.bucket_size, settings.height)
            self.engine = Tree(slots, view.sampler, view.seed, self._rule.size, *shape)
        self.view = view
        self.order = Ordered(slots)
        self.total, self.above = ExactSums(), ExactSums()  # the weight of all points, and above the edge
        self.n_suspected = 0
        self._suspects: Suspects | None  # as they were read off, until one changes
        self._set_edge(-1)
        there = slots.in_use()
        for start in range(0, len(there), _BLOCK):
            block = there[start : start + _BLOCK]
            self.scores.write(block, self.scores.score(slots.points(block)), slots.extent)
        self.add(there, {}, at_once=at_once)

    def add(self, slots: Array, scored: dict[str, Array], *, at_once: bool = False) -> None:
        """Add points that are in their slots, and scores that are not yet; ``at_once``: in any order."""
        self.scores.write(slots, scored, self._slots.extent)
        for step in self._steps(slots, at_once):
            self.order.add(self.scores.losses[step], step)
            self.engine.add(self._count(step, 1))
            self.settle()

    def remove(self, slots: Array) -> None:
        """Remove points that are still in their slots, and overwrite their scores."""
        for step in self._steps(slots):
            inner = self._count(step, -1)
            self.engine.remove(inner)
            self.order.remove(self.scores.losses[step], step)
            if len(inner) < len(step):
                first = next(self._from_edge(), -1)
                if first != self._edge_slot:
                    self.above.add(self._edge_weight)  # of the point at the edge: it was not in the sum
                    self._set_edge(first)
            self.settle()
        self.scores.clear(slots)

    def _steps(self, slots: Array, at_once: bool = False) -> list[Array]:
        """Split points of positive weight, for a tree one by one unless its order is restored later."""
        weights = self._slots.weights[slots]
        if np.count_nonzero(weights) < len(slots):
            slots = slots[weights > 0]
        if len(slots) > 1 and isinstance(self.engine, Tree) and not at_once:
            return list(slots[:, None])
        return [slots] if len(slots) else []

    def settle(self) -> None:
        """Move the edge to where it must be now, and the points that it passes to the other side."""
        total, z = self.total.values, self.n_outliers
        weight = min(self._rule.suspected_of(z if z >= 1 else z * total, total), total)
        if self.above.values + self._edge_weight < weight:
            self.engine.remove(self._suspect(weight))
        elif self._is_released(weight):
            self.engine.add(self._release(weight))

    def _count(self, slots: Array, sign: int) -> Array:
        """Count points that are added or removed, in all and on the suspected side; return the others."""
        self.total.add_rows(self._slots.weights[slots], sign)
        if len(slots) == 1 and not self._are_suspected(slots[0]):  # as most are; a number is faster
            return slots
        suspected = self._are_suspected(slots)
        outer = slots[suspected]
        if len(outer):
            self.above.add_rows(self._slots.weights[outer], sign)
            self.n_suspected += sign * len(outer)
            self._suspects = None
        return slots[~suspected]

    def _are_suspected(self, slots: Any) -> Any:
        """Return which points, or whether one, are on the suspected side of the edge."""
        losses, (loss, name) = self.scores.losses[slots], self.edge
        return (losses > loss) | ((losses == loss) & (self._slots.ids[slots] > name - 1))

    def _suspect(self, weight: float) -> Array:
        """Move the edge down past all points that must be suspected; return them."""
        parts, before = [], self.above.values + self._edge_weight
        for part in self.order.from_place(*self.edge, up=False):
            heavy = self._slots.weights[part]
            sums = np.cumsum(np.append(before, heavy))
            n = int(np.append(sums[:-1] >= _needed(heavy, weight), True).argmax())
            parts.append(part[:n])
            if n < len(part):
                break
            before = sums[-1]
        slots = np.concatenate(parts)
        if len(slots):
            self.above.add(self._edge_weight)
            self.above.add_rows(self._slots.weights[slots])
            self._set_edge(int(slots[-1]))
            self.n_suspected += len(slots)
        return slots

    def _is_released(self, weight: float) -> bool:
        """Return whether the point at the edge need not be suspected."""
        return self._edge_slot >= 0 and self.above.values >= _needed(self._edge_weight, weight)

    def _release(self, weight: float) -> Array:
        """Move the edge up past all points that need not be suspected; return them."""
        places, slots = self._from_edge(), []
        next(places)
        while self._is_released(weight):
            slots.append(self._edge_slot)
            self._set_edge(next(places, -1))
        self.n_suspected -= len(slots)
        return np.array(slots)

    def _from_edge(self) -> Iterator[int]:
        """Iterate over the suspected, from the one at the edge on."""
        for part in self.order.from_place(*self.edge, up=True):
            yield from part.tolist()

    def _set_edge(self, slot: int) -> None:
        """Put the edge at a point that was above it, or above them all."""
        self._edge_slot, self.edge, self._edge_weight, self._suspects = slot, _NOWHERE, 0.0, None
        if slot >= 0:
            self.edge = float(self.scores.losses[slot]), int(self._slots.ids[slot])
            self._edge_weight = float(self._slots.weights[slot])
            self.above.add(-self._edge_weight)  # without rounding: those above may weigh far less

    # what a coreset is chosen from, as `Candidates` in coreset/choose.py has it

    def suspects(self) -> Suspects:
        """Return all that are suspected, those of the largest losses first."""
        if self._suspects is None:
            parts = self.order.from_place(*self.edge, up=True)
            slots = np.concatenate([np.empty(0, dtype=np.int32), *parts])[::-1]
            there = self._slots
            labels = there.y[slots] if there.y is not None else None
            columns = there.ids[slots], self.scores.losses[slots], there.weights[slots], labels
            self._suspects = Suspects(slots, *columns)
        return self._suspects

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
        return self.scores.size + self.order.nbytes + self.engine.nbytes

    def check(self, n_outliers: float) -> None:
        """Raise AssertionError, naming the invariant, unless all is as in candidates that are made now."""
        fresh, there = LiveCandidates(self._slots, self.view, n_outliers, at_once=True), self._slots.in_use()
        self.order.check()
        now = dict(fresh._contents(there))
        for name, mine in self._contents(there):
            assert np.array_equal(mine, now[name]), f"{name} is {mine}, not {now[name]}"
        if self.scores.ranks is not None:  # not to the last bit: shapes affect rounding
            ranks = self.scores.ranks[there], fresh.scores.ranks[there]
            assert np.isclose(*ranks, rtol=1e-9, atol=0).all(), "1: a point has the wrong rank"
        self.engine.check()

    def _contents(self, there: Array) -> Iterator[tuple[str, Any]]:
        """Yield what is the same in all candidates of the same points, which are ``there``."""
        suspects = self.suspects()
        yield "1: the order", self.order.slots()
        yield "1: the order of losses", self.order.keys()
        yield "1: losses", self.scores.losses[there]
        yield "3: n_suspected", self.n_suspected
        yield "2: the edge", self.edge
        yield "3: above", self.above.parts()
        yield "2: the weight at the edge", self._edge_weight
        yield "4: suspects", suspects.rows
        yield "4: the weight of suspects", suspects.weights
        yield "5: the engine", np.sort(self.engine.slots())


def _needed(heavy: Any, weight: float) -> Any:
    """Return how much must be suspected without a point to make it an inlier: all, up to rounding.

    As in trimming, points that weigh less than rounding are still distinguished.
    """
    slack = _ROUNDING * weight
    return weight - slack * (heavy > slack)
