"""The view from an anchor: table L, both sides of the threshold, and the coreset they make.

All that depends on the anchor is here, and nothing else is. A new anchor is a
new view of the same slots, put in place of the old one when it is complete.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from duramen.arrays import Array
from duramen.coreset import Coreset
from duramen.coreset.choose import Chosen, assemble
from duramen.coreset.settings import BySize
from duramen.dynamic.look import Scored, Scorer
from duramen.dynamic.ranked import Ranked, SuspectLists, nobody
from duramen.dynamic.rows import Slots
from duramen.dynamic.sorted_list import grown
from duramen.dynamic.sums import ExactSum
from duramen.dynamic.table import LossTable, Moves
from duramen.dynamic.tree import Tree
from duramen.points import WeightedPoints
from duramen.trimming import outlier_weight

__all__ = ["LiveCandidates"]

_WAITING = 128  # points that came one by one are looked at together: in half the time of each by itself
_BLOCK = 1 << 17  # rows looked at together when a view begins, so that they need not be copied all at once


class LiveCandidates:
    """Points as they stand, seen from an anchor.

    Invariants
    ----------
    1. LossTable L is in order, and its edge is where it must be for the weight to suspect.
    2. Every point of positive weight is on exactly one side: with the suspects if it stands
       at the edge or above, else in the engine; or it came by itself and waits to be looked at.
    3. ``total`` is the weight of all points.

    Those of the parts are theirs.

    Parameters
    ----------
    slots : Slots
        With the points that are there; they are looked at here.
    look : Scorer
    plan : BySize
    n_outliers : float
        A count, or a fraction.
    bucket_size, height : int, optional
        Of a tree; see :class:`Tree`.
    tree : bool
        Whether the engine is a tree.
    chunk : int, optional
        As for :class:`Ordered`.
    at_once : bool
        Whether points that are there come into a tree in no order: another is restored.
    """

    def __init__(
        self,
        slots: Slots,
        look: Scorer,
        plan: BySize,
        n_outliers: float,
        *,
        tree: bool,
        bucket_size: int | None = None,
        height: int | None = None,
        chunk: int | None = None,
        at_once: bool = False,
    ) -> None:
        self._slots, self.scorer, self._plan = slots, look, plan
        self.n_outliers = n_outliers
        self.table = LossTable(slots, chunk)
        self.suspects = SuspectLists(slots, look.seed, chunk)
        self.total = ExactSum()
        self.engine: Ranked | Tree
        if tree:
            bound = look.sampler.bind(look.loss, look.anchor)
            self.engine = Tree(slots, bound, look.seed, plan.size, bucket_size=bucket_size, height=height)
        else:
            self.engine = Ranked(slots, self.table, look, chunk)
        self.changed_since_anchor = np.zeros(0, dtype=bool)
        self._waiting: dict[int, None] = {}
        self.consistent = True  # while it is not, it was interrupted as it caught up
        self._begin(slots.in_use(), at_once)

    def _begin(self, present: Array, at_once: bool) -> None:
        """Take in the points that are there."""
        starts = range(0, len(present), _BLOCK)
        parts = [self.scorer.many(self._slots.points(present[start : start + _BLOCK])) for start in starts]
        if parts:
            columns = zip(*parts, strict=True)
            looked = Scored(*(None if column[0] is None else np.concatenate(column) for column in columns))
            add = self._add_together if at_once else self.add_many
            add(present, looked)
        self.changed_since_anchor[:] = False

    def __len__(self) -> int:
        return len(self.table)

    # one at a time

    def await_look(self, slot: int) -> None:
        """Take a point in that stands in its slot, and have it looked at together with others, later.

        Only where the engine is ranked, and a look never fails: what is seen is then the same.
        """
        self._waiting[slot] = None
        if len(self._waiting) >= _WAITING:
            self.catch_up()

    def catch_up(self) -> None:
        """Scorer at the points that wait for it; whoever asks how points stand does this first."""
        if self._waiting:
            slots = np.array(list(self._waiting))
            looked = self.scorer.many(self._slots.points(slots))
            self.consistent = False
            self._waiting = {}
            self._add_together(slots, looked)
            self.consistent = True

    def are_changed(self, slots: Array) -> Array:
        """Tell which points came, or were changed, after the anchor was made."""
        if not self._waiting:
            return self.changed_since_anchor[slots]
        waiting = np.array([slot in self._waiting for slot in slots.tolist()])
        return waiting | grown(self.changed_since_anchor, self._slots.extent)[slots]

    def add(self, slot: int, looked: Scored) -> None:
        """Take a point in that stands in its slot, and was looked at."""
        if slot >= len(self.changed_since_anchor):
            self.changed_since_anchor = grown(self.changed_since_anchor, slot + 1)
        self.changed_since_anchor[slot] = True
        if isinstance(self.engine, Ranked):
            self.engine.note(slot, looked)
        weight = float(self._slots.weights[slot])
        if not weight:
            return
        self.total.add(weight)
        loss = float(looked.losses)
        if self.table.add(slot, loss):
            self.suspects.add(slot, loss)
        else:
            self.engine.add(slot)
        self._settle()

    def remove(self, slot: int) -> None:
        """Let a point go that still stands in its slot, and overwrite what was known of it."""
        if slot in self._waiting:
            del self._waiting[slot]
            return
        weight = float(self._slots.weights[slot])
        if weight:
            self.total.subtract(weight)
            loss = float(self.table.losses[slot])
            if self.table.is_suspected(slot):
                self.suspects.remove(slot, loss)
            else:
                self.engine.remove(slot)
            self.table.remove(slot)
        self._overwrite(slot)
        if weight:
            self._settle()

    # many at a time

    def add_many(self, slots: Array, looked: Scored) -> None:
        """Take points in, in the order given."""
        if isinstance(self.engine, Tree):  # where points stand in it depends on how they came
            for slot, loss in zip(slots.tolist(), looked.losses.tolist(), strict=True):
                self.add(slot, Scored(loss, None, None, None))
            return
        self.catch_up()
        self._add_together(slots, looked)

    def _add_together(self, slots: Array, looked: Scored) -> None:
        """Take points in at once: as good as one by one, but for where they stand in a tree."""
        self.changed_since_anchor = grown(self.changed_since_anchor, self._slots.extent)
        self.changed_since_anchor[slots] = True
        if isinstance(self.engine, Ranked):
            self.engine.note(slots, looked)
        heavy = self._slots.weights[slots] > 0
        slots, losses = slots[heavy], looked.losses[heavy]
        if not len(slots):
            return
        self.total.add_many(self._slots.weights[slots])
        self.table.add_many(slots, losses)
        moves = self._moved()
        outer = self.table.are_suspected(slots)
        self.suspects.add_many(slots[outer], losses[outer])
        self.engine.add_many(slots[~outer])
        if moves is not None:
            new = np.zeros(self._slots.extent, dtype=bool)
            new[slots] = True
            self._shift(Moves(moves.slots[~new[moves.slots]], moves.suspected))

    def remove_many(self, slots: Array) -> None:
        """Let points go, in the order given."""
        if isinstance(self.engine, Tree):
            for slot in slots.tolist():
                self.remove(slot)
            return
        self.catch_up()
        heavy = slots[self._slots.weights[slots] > 0]
        if len(heavy):
            self.total.subtract_many(self._slots.weights[heavy])
            outer = self.table.are_suspected(heavy)
            self.suspects.remove_many(heavy[outer], self.table.losses[heavy[outer]])
            self.engine.remove_many(heavy[~outer])
            self.table.remove_many(heavy)
        self._overwrite(slots)
        if len(heavy):
            self._settle()

    def set_outliers(self, n_outliers: float) -> None:
        """Suspect for another number of outliers: the paper's Change."""
        self.catch_up()
        self.n_outliers = n_outliers
        self._settle()

    # the coreset

    def coreset(self, columns: tuple[str, ...] | None) -> Coreset:
        """Make the coreset of the points as they stand."""
        self.catch_up()
        z = outlier_weight(self.n_outliers, self.total.value)
        n_outer, n_inner = self.table.n_suspected, len(self.engine)
        sizes = self._plan.shares(n_outer, n_inner)
        outer = self.suspects.choose(min(sizes[0], n_outer))
        size = min(sizes[1], n_inner)
        inner = self._choose(size)
        slots = np.concatenate([outer.rows, inner.rows])
        places = np.arange(len(slots))
        outer = outer._replace(rows=places[: len(outer.rows)])
        inner = inner._replace(rows=places[len(outer.rows) :])
        points = self._slots.points(slots)
        calibrated = isinstance(self.engine, Ranked) and self.engine.calibrates(size)
        if calibrated:
            inner = self._calibrated(inner, slots, points)
        return assemble(
            points,
            [outer, inner],
            loss=self.scorer.loss,
            anchor=self.scorer.anchor,
            threshold=self.table.threshold,
            n_points=len(self.table),
            n_suspected=n_outer,
            n_outliers=z,
            sampler=repr(self.scorer.sampler),
            calibrated=calibrated,
            seed=self.scorer.seed,
            columns=columns,
        )

    def _choose(self, size: int) -> Chosen:
        if isinstance(self.engine, Ranked):
            return self.engine.choose(size)
        if not size:
            return nobody()
        slots, weights = self.engine.choose(size)
        inclusion = np.full(len(slots), 1.0 if len(slots) == len(self.engine) else np.nan)
        return Chosen(slots.astype(np.intp), weights, inclusion, np.zeros(len(slots), dtype=np.int32))

    def _calibrated(self, inner: Chosen, slots: Array, points: WeightedPoints) -> Chosen:
        """Calibrate in the order of the ids, as a coreset built anew does: rounding depends on it."""
        assert isinstance(self.engine, Ranked)
        order = np.argsort(points.ids[inner.rows])
        inner = Chosen(*(column[order] for column in inner))
        taken = points.take_unchecked(inner.rows, inner.weights)
        return inner._replace(weights=self.engine.calibrated(slots[inner.rows], taken))

    @property
    def nbytes(self) -> int:
        """The bytes of its arrays."""
        parts = (self.table.losses, self.changed_since_anchor)
        trees = self.table.order.nbytes + self.suspects.nbytes + self.engine.nbytes
        return trees + sum(part.nbytes for part in parts)

    def check(self) -> None:
        """Raise AssertionError, naming the invariant, if one is broken."""
        self.catch_up()
        self.table.check(self._to_suspect())
        order = self.table.order.slots()
        outer = self.table.are_suspected(order)
        suspects, inliers = self.suspects.slots(), self.engine.slots()
        assert np.array_equal(np.sort(suspects), np.sort(order[outer])), "2: others than the suspected are"
        assert np.array_equal(np.sort(inliers), np.sort(order[~outer])), "2: others than the inliers are"
        total = float(self._slots.weights[order].sum())
        assert abs(self.total.value - total) <= 1e-12 * total, "3: the total weight is another"
        self.suspects.check(self.table.losses)
        self.engine.check()

    # the edge

    def _to_suspect(self) -> float:
        """Choose how much weight to suspect: of what is there, not more than all."""
        total, given = self.total.value, self.n_outliers
        return min(self._plan.suspected_of(given if given >= 1 else given * total, total), total)

    def _moved(self) -> Moves | None:
        return self.table.settle(self._to_suspect())

    def _settle(self) -> None:
        """Move the edge to where it must be now, and the points that it passes to the other side."""
        moves = self._moved()
        if moves is not None:
            self._shift(moves)

    def _shift(self, moves: Moves) -> None:
        slots = moves.slots.astype(np.int64)
        if len(slots) == 1:
            self._shift_one(int(slots[0]), moves.suspected)
            return
        losses = self.table.losses[slots]
        if moves.suspected:
            self.engine.remove_many(slots)
            self.suspects.add_many(slots, losses)
        else:
            self.suspects.remove_many(slots, losses)
            self.engine.add_many(slots)

    def _shift_one(self, slot: int, suspected: bool) -> None:
        loss = float(self.table.losses[slot])
        if suspected:
            self.engine.remove(slot)
            self.suspects.add(slot, loss)
        else:
            self.suspects.remove(slot, loss)
            self.engine.add(slot)

    def _overwrite(self, slots: Any) -> None:
        self.changed_since_anchor[slots] = False
        if isinstance(self.engine, Ranked):
            self.engine.forget(slots)
