"""Candidates of a changing table: all that depends on the anchor. A new anchor means new candidates."""

from __future__ import annotations

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


class LiveCandidates:
    """The points as seen from an anchor: the paper's table L, its pointer, and the engine for all inliers.

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

    def __init__(
        self, slots: Slots, view: View, settings: Settings, n_outliers: float, probe: WeightedPoints
    ) -> None:
        if settings.tree:  # where a sampler is a black box
            Scores(view, probe)  # refuses scores that would be refused when a node is built
            view = replace(view, sampler=view.sampler.bind(view.loss, view.anchor), features=None)
        self._slots, self.view, self.n_outliers = slots, view, n_outliers
        self.scores, self._rule = Scores(view, probe), settings.by_size
        self.order = Ordered(slots)
        self.total, self.above = ExactSums(), ExactSums()  # the weight of all points, and above the edge
        self.n_suspected = 0
        self._suspects: Suspects | None  # as they were read off, until one changes
        self._set_edge(-1)
        self.engine: Any = Ranked(slots, self.scores)
        if settings.tree:
            shape = settings.bucket_size, settings.height
            self.engine = Tree(slots, view.sampler, view.seed, self._rule.size, *shape)

    def add(self, slots: Array, scored: dict[str, Array] | None = None, *, at_once: bool = False) -> None:
        """Add points that are in their slots, as are their scores unless they are given."""
        if scored is not None:
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
            first = next(self._from_edge(), -1) if len(inner) < len(step) else None
            if first is not None and self._place(first) != self.edge:
                self.above.add(self._edge_weight)  # of the point that was at the edge: it was not in the sum
                self._set_edge(first)
                self.above.add(-self._edge_weight)
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
        above = self.above.values
        if above + self._edge_weight < weight and self.n_suspected < len(self.order):
            self.engine.remove(self._suspect(weight))
        elif self.n_suspected and above >= _needed(self._edge_weight, weight):
            self.engine.add(self._release(weight))

    def _count(self, slots: Array, sign: int) -> Array:
        """Count points that are added or removed, in all and on the suspected side; return the others."""
        self.total.add_rows(self._slots.weights[slots], sign)
        if len(slots) == 1 and not self._are_suspected(slots[0]):  # as most are; a number is faster
            return slots
        suspected = self._are_suspected(slots)
        count = int(np.count_nonzero(suspected))
        if count:
            self.above.add_rows(self._slots.weights[slots[suspected]], sign)
            self.n_suspected += sign * count
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
        """Move the edge up past all points that need not be suspected; return them."""
        places = self._from_edge()
        slots = [next(places)]
        for slot in places:
            self._set_edge(slot)
            self.above.add(-self._edge_weight)  # without rounding: those above may weigh far less
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
        return _NOWHERE if slot < 0 else (float(self.scores.losses[slot]), int(self._slots.ids[slot]))

    def _set_edge(self, slot: int) -> None:
        self.edge, self._suspects = self._place(slot), None
        self._edge_weight = 0.0 if slot < 0 else float(self._slots.weights[slot])

    # what a coreset is chosen from, as `Candidates` in coreset/choose.py has it

    def suspects(self) -> Suspects:
        """Return all that are suspected, those of the largest losses first."""
        if self._suspects is None:
            parts = self.order.from_place(*self.edge, up=True)
            slots = np.concatenate([np.empty(0, dtype=np.int32), *parts])[::-1]
            columns = self._slots.ids[slots], self.scores.losses[slots], self._slots.weights[slots]
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

    def check(self, fresh: LiveCandidates) -> None:
        """Raise AssertionError, naming the invariant, unless all is as in those that were just made."""
        there, same = self._slots.in_use(), np.array_equal
        self.order.check()
        assert same(self.order.slots(), fresh.order.slots()), "1: the order holds other points"
        assert same(self.order.keys(), fresh.order.keys()), "1: the order has a wrong loss"
        assert same(self.scores.losses[there], fresh.scores.losses[there]), "1: a point has a wrong loss"
        if self.scores.ranks is not None:  # not to the last bit: shapes affect rounding
            ranks = self.scores.ranks[there], fresh.scores.ranks[there]
            assert np.isclose(*ranks, rtol=1e-9, atol=0).all(), "1: a point has the wrong rank"
        for number, name in ((3, "n_suspected"), (2, "edge"), (3, "above"), (2, "_edge_weight")):
            mine, other = getattr(self, name), getattr(fresh, name)
            assert mine == other, f"{number}: {name} is {mine}, not {other}"
        for part in ("rows", "weights"):
            mine, other = getattr(self.suspects(), part), getattr(fresh.suspects(), part)
            assert same(mine, other), f"4: the {part} of the suspects are not those of now"
        mine, other = np.sort(self.engine.slots()), np.sort(fresh.engine.slots())
        assert same(mine, other), "5: the engine holds other points"
        self.engine.check()


def _needed(heavy: Any, weight: float) -> Any:
    """Return how much must be suspected without a point to make it an inlier: all, up to rounding.

    As in trimming, points that weigh less than rounding are still distinguished.
    """
    slack = _ROUNDING * weight
    return weight - slack * (heavy > slack)
