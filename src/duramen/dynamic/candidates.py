"""Candidates of a changing table: table L, both sides of the threshold, and the coreset chosen from them.

All that depends on the anchor is here. A new anchor means new candidates from
the same slots, put in place of the old ones when they are complete.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from duramen.arrays import Array
from duramen.coreset.choose import Suspects, choose
from duramen.coreset.coreset import Coreset
from duramen.coreset.exact import ExactSum
from duramen.dynamic.anchoring import LiveSettings
from duramen.dynamic.ranked import Ranked, Scored, Scorer, SuspectLists
from duramen.dynamic.rows import Slots
from duramen.dynamic.sorted_list import grown
from duramen.dynamic.table import LossTable, Moves
from duramen.dynamic.tree import Tree
from duramen.points import WeightedPoints
from duramen.samplers.base import Entries, Sampler, Strata
from duramen.trimming import outlier_weight

_WAITING = 128  # points inserted one by one are scored together, which halves the time
_BLOCK = 1 << 17  # rows scored together at first, so that they need not be copied all at once


class LiveCandidates:
    """The points as seen from an anchor.

    Invariants
    ----------
    1. Table L is in order, and its edge is where it must be for the weight to suspect.
    2. Every point of positive weight is on exactly one side: with the suspects if it is at the
       edge or above, else in the engine; or it was inserted by itself and waits to be scored.
    3. ``total`` is the weight of all points.

    The points in ``slots`` are scored on construction. If ``at_once``, they are added to a
    tree in no particular order, because the saved order is restored later.
    """

    def __init__(
        self,
        slots: Slots,
        scorer: Scorer,
        settings: LiveSettings,
        n_outliers: float,
        *,
        at_once: bool = False,
    ) -> None:
        self._slots, self.scorer, self._plan = slots, scorer, settings.by_size
        self.n_outliers = n_outliers
        self.table = LossTable(slots)
        self.suspected = SuspectLists(slots, self.table, scorer.seed)
        self.total = ExactSum()
        self.engine: Ranked | Tree
        if settings.tree:
            shape = settings.bucket_size, settings.height
            sampler = scorer.sampler.bind(scorer.loss, scorer.anchor)
            self.engine = Tree(slots, sampler, scorer.seed, self._plan.size, *shape)
        else:
            self.engine = Ranked(slots, self.table, scorer)
        self.changed_since_anchor = np.zeros(0, dtype=bool)
        self._waiting: dict[int, None] = {}
        self.consistent = True  # False after scoring of waiting points was interrupted
        self._begin(slots.in_use(), at_once)

    def _begin(self, present: Array, at_once: bool) -> None:
        """Add the points that are present."""
        starts = range(0, len(present), _BLOCK)
        parts = [self.scorer.score(self._slots.points(present[start : start + _BLOCK])) for start in starts]
        if parts:
            columns = zip(*parts, strict=True)
            scored = Scored(*(None if column[0] is None else np.concatenate(column) for column in columns))
            add = self._add_together if at_once else self.add_many
            add(present, scored)
        self.changed_since_anchor[:] = False

    def __len__(self) -> int:
        return len(self.table)

    def catch_up(self) -> None:
        """Score the points that wait for it; every query about points begins with this."""
        if self._waiting:
            slots = np.array(list(self._waiting))
            scored = self.scorer.score(self._slots.points(slots))
            self.consistent = False
            self._waiting = {}
            self._add_together(slots, scored)
            self.consistent = True

    def are_changed(self, slots: Array) -> Array:
        """Return which points were inserted or updated after the anchor was found."""
        if not self._waiting:
            return self.changed_since_anchor[slots]
        waiting = np.array([slot in self._waiting for slot in slots.tolist()])
        return waiting | grown(self.changed_since_anchor, self._slots.extent)[slots]

    def _add_one(self, slot: int) -> None:
        weight = float(self._slots.weights[slot])
        if weight:
            self.total.add(weight)
            side = self.suspected if self.table.add(slot) else self.engine
            side.add(slot)
            self._settle()

    def _remove_one(self, slot: int) -> None:
        if slot in self._waiting:
            del self._waiting[slot]
            return
        weight = float(self._slots.weights[slot])
        if weight:
            self.total.add(-weight)
            side = self.suspected if self.table.remove(slot) else self.engine
            side.remove(slot)
        self._overwrite(slot)
        self._settle()

    def add_many(self, slots: Array, scored: Scored | None) -> None:
        """Add points that are in their slots, in the order given.

        Without scores, they are scored together with others, later: only where the
        engine is ranked, and scoring never fails, so that the result is the same.
        """
        if scored is None:
            self._waiting.update(dict.fromkeys(slots.tolist()))
            if len(self._waiting) >= _WAITING:
                self.catch_up()
        elif len(slots) == 1 or isinstance(self.engine, Tree):  # which depends on the order of points
            self._note(slots, scored)
            for slot in slots.tolist():
                self._add_one(slot)
        else:
            self.catch_up()
            self._add_together(slots, scored)

    def _add_together(self, slots: Array, scored: Scored) -> None:
        """Add points at once: the same as one by one, except for their places in a tree."""
        self._note(slots, scored)
        slots = slots[self._slots.weights[slots] > 0]
        if not len(slots):
            return
        self.total.add_many(self._slots.weights[slots])
        self.table.add_many(slots)
        moves = self.table.settle(self._to_suspect())
        outer = self.table.are_suspected(slots)
        self.suspected.add_many(slots[outer])
        self.engine.add_many(slots[~outer])
        if moves is not None:
            new = np.zeros(self._slots.extent, dtype=bool)
            new[slots] = True
            self._shift(Moves(moves.slots[~new[moves.slots]], moves.suspected))

    def remove_many(self, slots: Array) -> None:
        """Remove points that are still in their slots, in the order given, and overwrite their scores."""
        if len(slots) == 1 or isinstance(self.engine, Tree):
            for slot in slots.tolist():
                self._remove_one(slot)
            return
        self.catch_up()
        heavy = slots[self._slots.weights[slots] > 0]
        self.total.add_many(self._slots.weights[heavy], -1)
        outer = self.table.are_suspected(heavy)
        self.suspected.remove_many(heavy[outer])
        self.engine.remove_many(heavy[~outer])
        self.table.remove_many(heavy)
        self._overwrite(slots)
        self._settle()

    def set_outliers(self, n_outliers: float) -> None:
        """Set another number of outliers: the paper's Change."""
        self.catch_up()
        self.n_outliers = n_outliers
        self._settle()

    # the coreset

    def coreset(self, columns: tuple[str, ...] | None) -> Coreset:
        """Choose the coreset of the points that are present."""
        self.catch_up()
        z = outlier_weight(self.n_outliers, self.total.value)
        return choose(self, self.scorer.view, n_outliers=z, columns=columns)

    @property
    def n_points(self) -> int:
        """The number of points of positive weight."""
        return len(self.table)

    def suspects(self) -> Suspects:
        """Return the suspected outliers."""
        slots = self.suspected.slots()
        return Suspects(slots, self._slots.ids[slots], self.table.losses[slots], self._slots.weights[slots])

    def strata(self) -> Strata:
        """Return the strata of the inliers; one in a tree."""
        if isinstance(self.engine, Ranked):
            return self.engine.strata()
        return Strata(np.zeros(1), np.array([len(self.engine)]), np.zeros(1))

    def smallest(self, pooled: Array, sizes: Array) -> Entries:
        """Return the inliers of the smallest ranks."""
        assert isinstance(self.engine, Ranked)
        return self.engine.smallest(pooled, sizes)

    def rest(self, strata: Array, rows: Array) -> float:
        """Sum the weights of some strata, without those of some slots."""
        assert isinstance(self.engine, Ranked)
        return self.engine.rest(strata, rows)

    def totals(self) -> Array | None:
        """Return what weights are calibrated to."""
        return self.engine.totals if isinstance(self.engine, Ranked) else None

    def reduce(self, sampler: Sampler, size: int, rng: np.random.Generator) -> tuple[Array, Array]:
        """Take the inliers that a tree has chosen: slots, and weights."""
        assert isinstance(self.engine, Tree)
        return self.engine.choose(size)

    def copy(self, outer: Array, inner: Array) -> WeightedPoints:
        """Copy points by slot."""
        return self._slots.points(np.concatenate([outer, inner]))

    @property
    def nbytes(self) -> int:
        """The bytes of its arrays."""
        columns = self.table.losses.nbytes + self.changed_since_anchor.nbytes
        return columns + self.table.order.nbytes + self.suspected.nbytes + self.engine.nbytes

    def check(self) -> None:
        """Raise AssertionError, naming the invariant, if one is broken."""
        self.catch_up()
        self.table.check(self._to_suspect())
        order = self.table.order.slots()
        outer = self.table.are_suspected(order)
        for name, side, mine in (
            ("suspected", self.suspected, order[outer]),
            ("inliers", self.engine, order[~outer]),
        ):
            assert np.array_equal(np.sort(side.slots()), np.sort(mine)), f"2: the {name} are other points"
            side.check()
        assert self.total.value == math.fsum(self._slots.weights[order]), "3: the total weight is wrong"

    # the edge

    def _to_suspect(self) -> float:
        """Compute how much weight to suspect: at most the total."""
        total, given = self.total.value, self.n_outliers
        return min(self._plan.suspected_of(given if given >= 1 else given * total, total), total)

    def _settle(self) -> None:
        """Move the edge to where it must be now, and the points that it passes to the other side."""
        moves = self.table.settle(self._to_suspect())
        if moves is not None:
            self._shift(moves)

    def _shift(self, moves: Moves) -> None:
        sides = (self.engine, self.suspected) if moves.suspected else (self.suspected, self.engine)
        if len(moves.slots) == 1:
            slot = int(moves.slots[0])
            sides[0].remove(slot)
            sides[1].add(slot)
        else:
            slots = moves.slots.astype(np.int64)
            sides[0].remove_many(slots)
            sides[1].add_many(slots)

    def _note(self, slots: Any, scored: Scored) -> None:
        self.changed_since_anchor = grown(self.changed_since_anchor, self._slots.extent)
        self.changed_since_anchor[slots] = True
        self.table.losses = grown(self.table.losses, self._slots.extent)
        self.table.losses[slots] = scored.losses
        if isinstance(self.engine, Ranked):
            self.engine.note(slots, scored)

    def _overwrite(self, slots: Any) -> None:
        self.changed_since_anchor[slots] = False
        self.table.losses[slots] = 0.0
        if isinstance(self.engine, Ranked):
            self.engine.forget(slots)
