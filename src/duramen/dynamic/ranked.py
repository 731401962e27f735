"""The ranked engine: in every stratum the points stand in the order of their ranks.

A sample is the smallest ranks of each group of strata (docs/sampling.md), so to
keep the order is to keep the sample. Nothing is rebuilt, nothing depends on
what was there before, and no error builds up. Beside the ranks stand the totals
to calibrate to, one addition of O(d) for each point that comes or goes.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from duramen.dynamic.columns import grown
from duramen.dynamic.engine import Engine
from duramen.dynamic.look import Look, Looked
from duramen.dynamic.ranklists import RankLists, nobody
from duramen.dynamic.slots import Slots
from duramen.dynamic.table import Table
from duramen.dynamic.totals import Totals
from duramen.points import WeightedPoints
from duramen.robust.choice import Chosen
from duramen.robust.outlook import refuse_infinite
from duramen.rows import Array
from duramen.sampling.base import shared_out
from duramen.sampling.calibration import Calibration, known_of

__all__ = ["Ranked"]

_BLOCK = 1 << 14  # points whose contributions are computed together


class Ranked(Engine):
    """The suspected inliers by rank.

    What is known of a point stands in columns for all points, suspected or not,
    so that one that changes sides is not looked at again.

    Invariants
    ----------
    1. Each point is in the list of its stratum, under its rank.
    2. The totals are the sum of what the points contribute, to 1e-12 of the sum of absolute values.
    3. ``odd`` counts the points without a finite loss and rank, from which no sample can be drawn.
    """

    def __init__(self, slots: Slots, table: Table, look: Look, chunk: int | None = None) -> None:
        self._slots, self._table, self._look = slots, table, look
        self._lists = RankLists(slots, chunk)
        self._ranks = np.zeros(0)
        self._strata = np.zeros(0, dtype=look.strata_type or np.int8)
        self._marks = np.zeros(0, dtype=look.mark_type or np.int8)
        self._totals = None if look.known is None else Totals(look.known.n_columns, self)
        self.odd = 0

    def __len__(self) -> int:
        return len(self._lists)

    def unlink(self) -> None:
        """Let go of the totals, which refer to it; it can be used no more."""
        self._totals = None

    def note(self, slots: Any, looked: Looked) -> None:
        """Keep what a look found: of one slot, or of many."""
        extent = self._slots.extent
        if extent > len(self._ranks):
            self._ranks = grown(self._ranks, extent)
        self._ranks[slots] = looked.ranks
        if looked.strata is not None:
            self._strata = grown(self._strata, extent)
            self._strata[slots] = looked.strata
        if looked.marks is not None:
            self._marks = grown(self._marks, extent)
            self._marks[slots] = looked.marks

    def forget(self, slots: Any) -> None:
        """Overwrite what was kept."""
        self._ranks[slots] = 0.0
        if self._look.strata_type is not None:
            self._strata[slots] = 0
        if self._look.mark_type is not None:
            self._marks[slots] = 0

    def add(self, slot: int) -> None:
        self._lists.add(self._stratum(slot), float(self._ranks[slot]), slot)
        if self._is_odd(slot):
            self.odd += 1
        elif self._totals is not None:
            self._totals.add(slot)

    def remove(self, slot: int) -> None:
        self._lists.remove(self._stratum(slot), float(self._ranks[slot]), slot)
        if self._is_odd(slot):
            self.odd -= 1
        elif self._totals is not None:
            self._totals.subtract(slot)

    def add_many(self, slots: Array) -> None:
        self._lists.add_many(self._numbers(slots), self._ranks[slots], slots)
        even = self._even(slots)
        self.odd += len(slots) - len(even)
        if self._totals is not None:
            self._totals.add_many(even)

    def remove_many(self, slots: Array) -> None:
        self._lists.remove_many(self._numbers(slots), self._ranks[slots], slots)
        even = self._even(slots)
        self.odd -= len(slots) - len(even)
        if self._totals is not None:
            self._totals.subtract_many(even)

    def choose(self, size: int) -> Chosen:
        """Choose the points that stand for them all, with weights as drawn."""
        if not size or not len(self):
            return nobody()
        if self.odd:
            self._refuse_odd()
        sampler, seed = self._look.ranked, self._look.seed
        assert sampler is not None
        strata = self._lists.strata()
        groups, sizes, totals = None, np.array([size]), strata.weights
        if self._look.strata_type is not None:
            groups, sizes = shared_out(sampler, strata, size)
            totals = np.bincount(groups, strata.weights)
        return self._lists.draw(seed, lambda slots: self._ranks[slots], groups, sizes, totals)

    def calibrates(self, size: int) -> bool:
        """Tell whether so many points are to be calibrated."""
        return self._look.known is not None and 0 < size < len(self)

    @property
    def totals(self) -> Array | None:
        """The totals over the points here, of what is known of each."""
        return None if self._totals is None else self._totals.values

    @property
    def nbytes(self) -> int:
        columns = self._ranks.nbytes + self._strata.nbytes + self._marks.nbytes
        return columns + self._lists.nbytes

    def slots(self) -> Array:
        """Give the slots of all points."""
        parts = list(self._lists.slots().values())
        return np.concatenate(parts) if parts else np.empty(0, dtype=np.int32)

    def check(self) -> None:
        self._lists.check()
        odd = 0
        for number, slots in self._lists.slots().items():
            numbers = self._numbers(slots)
            assert numbers is None or (numbers == number).all(), (
                f"1: a point of another stratum is in {number}"
            )
            odd += len(slots) - len(self._even(slots))
        assert odd == self.odd, f"3: odd is {self.odd}, and {odd} points are"
        self._check_ranks()
        if self._totals is not None:
            self._totals.check()

    def _check_ranks(self) -> None:
        """See that ranks are those of a fresh look, up to what products of another shape may round."""
        for slots in _blocks(self.slots()):
            fresh = self._look.many(self._slots.points(slots))
            same = np.isclose(self._ranks[slots], fresh.ranks, rtol=1e-9, atol=0)
            assert same.all(), "1: a point stands under another rank"
            assert np.array_equal(self._table.losses[slots], fresh.losses), "1: a point has another loss"

    def _stratum(self, slot: int) -> int:
        return 0 if self._look.strata_type is None else int(self._strata[slot])

    def _numbers(self, slots: Array) -> Array | None:
        return None if self._look.strata_type is None else self._strata[slots]

    def _is_odd(self, slot: int) -> bool:
        return not math.isfinite(self._ranks[slot]) or not math.isfinite(self._table.losses[slot])

    def _even(self, slots: Array) -> Array:
        return slots[np.isfinite(self._ranks[slots]) & np.isfinite(self._table.losses[slots])]

    def _refuse_odd(self) -> None:
        slots = self.slots()
        wrong = slots[~(np.isfinite(self._ranks[slots]) & np.isfinite(self._table.losses[slots]))]
        first = wrong[np.argmin(self._slots.ids[wrong])]
        loss, name = self._table.losses[first], self._slots.ids[first]
        if not np.isfinite(loss):
            refuse_infinite(name, loss)
        raise ValueError(f"{self._look.sampler!r} gave id {name} no score; scores must be positive numbers")

    def calibrated(self, slots: Array, points: WeightedPoints) -> Array:
        """Adjust the weights of chosen points, in the order of their ids, to the totals over all."""
        totals = self.totals
        assert totals is not None
        known = known_of(self._look.loss, self._look.anchor, len(slots), points)
        columns = known.columns_of(points.X, points.y, self._table.losses[slots], self._marks_of(slots))
        return Calibration(columns, points.weights).weights(totals[: known.n_columns])

    def _marks_of(self, slots: Array) -> Array | None:
        return None if self._look.mark_type is None else self._marks[slots]

    def contribution(self, slot: int) -> Array:
        """Compute what one point adds to the totals: (q,)."""
        one = slice(slot, slot + 1)
        y = None if self._slots.y is None else self._slots.y[one]
        marks = None if self._look.mark_type is None else self._marks[one]
        weight = float(self._slots.weights[slot])
        row = self._slots.row(slot)[None]
        return self._look.contributions(row, y, weight, self._table.losses[one], marks)[0]

    def contributions(self, slots: Array) -> Array:
        """Compute what points add to the totals: (m, q)."""
        y = None if self._slots.y is None else self._slots.y[slots]
        weights, losses = self._slots.weights[slots, None], self._table.losses[slots]
        return self._look.contributions(self._slots.rows(slots), y, weights, losses, self._marks_of(slots))

    def contributing(self) -> Array:
        """Give the slots of the points that add to the totals."""
        return self._even(self.slots())


def _blocks(slots: Array) -> Iterator[Array]:
    slots = np.sort(slots)  # so that rows are read in the order of memory
    for start in range(0, len(slots), _BLOCK):
        yield slots[start : start + _BLOCK]
