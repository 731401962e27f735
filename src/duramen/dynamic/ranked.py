"""The ranked engine: in every stratum the points stand in the order of their ranks."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any, Protocol

import numpy as np

from duramen.arrays import Array
from duramen.coreset.choose import Chosen, loss_bins_of, share_loss_bins
from duramen.coreset.view import refuse_infinite
from duramen.dynamic.look import Engine, Scored, Scorer
from duramen.dynamic.rows import Slots
from duramen.dynamic.sorted_list import Ordered, grown
from duramen.dynamic.sums import ExactSum, ExactTotals
from duramen.dynamic.table import LossTable
from duramen.parallel import for_each_chunk
from duramen.points import WeightedPoints
from duramen.samplers.base import Strata, allocate_size
from duramen.samplers.calibration import Calibration, calibration_features
from duramen.samplers.ranks import draw, scale_to_totals, uniform_of, uniforms

__all__ = ["Contributors", "RankLists", "Ranked", "SuspectLists", "Totals", "nobody"]


_BLOCK = 1 << 13  # points whose contributions are summed together
_SHARE = 1e-11  # of a total, by which it may be off


class Contributors(Protocol):
    """Who knows what the points in slots contribute."""

    def contribution(self, slot: int) -> Array:
        """Compute what one point contributes: (q,)."""

    def contributions(self, slots: Array) -> Array:
        """Compute what points contribute: (m, q)."""

    def contributing(self) -> Array:
        """Give the slots of all points that contribute."""


class Totals:
    """The sums of what points contribute: q numbers each.

    Parameters
    ----------
    n : int
        How many numbers, q.
    points : Contributors
    """

    def __init__(self, n: int, points: Contributors) -> None:
        self._points = points
        self._begin(n)

    def _begin(self, n: int) -> None:
        self._exact = ExactTotals(n)
        self._peak = np.zeros(n)  # the largest that a sum was, or what went into it
        self._moves = 0
        self._lost = False  # whether a sum left the range of float64, which later points cannot undo

    def add(self, slot: int) -> None:
        """Add what one point contributes."""
        self._move(self._points.contribution(slot), self._exact.add)

    def subtract(self, slot: int) -> None:
        """Take away what one point contributes."""
        self._move(self._points.contribution(slot), self._exact.subtract)

    def add_many(self, slots: Array) -> None:
        """Add what points contribute."""
        for total, largest in self._sums(slots):
            self._move(total.high, self._exact.add, largest)
            self._move(total.low, self._exact.add)

    def subtract_many(self, slots: Array) -> None:
        """Take away what points contribute."""
        for total, largest in self._sums(slots):
            self._move(total.high, self._exact.subtract, largest)
            self._move(total.low, self._exact.subtract)

    def _move(self, part: Array, move: Callable[[Array], None], largest: Array | None = None) -> None:
        if self._lost:
            return
        try:
            move(part)
        except OverflowError:
            self._lost = True
            return
        self._moves += 1
        np.maximum(self._peak, np.abs(part) if largest is None else largest, out=self._peak)
        np.maximum(self._peak, np.abs(self._exact.high), out=self._peak)

    def _sums(self, slots: Array) -> list[tuple[ExactTotals, Array]]:
        """Sum blocks of points, on all cores and in the order of memory; also the largest values of each."""
        found: dict[int, tuple[ExactTotals, Array]] = {}
        slots = np.sort(slots)

        def work(chunk: slice) -> None:
            block = self._points.contributions(slots[chunk])
            total = ExactTotals(block.shape[1])
            total.add_many(block)
            found[chunk.start] = (total, np.maximum(block.max(axis=0), -block.min(axis=0)))

        try:
            for_each_chunk(work, len(slots), _BLOCK, fixed=True)
        except OverflowError:
            self._lost = True
        return [found[start] for start in sorted(found)]

    @property
    def values(self) -> Array:
        """The totals (q,); infinite where one is beyond float64: then they say nothing."""
        if self._lost or self._is_in_doubt():
            self._begin(len(self._peak))
            self.add_many(self._points.contributing())
            self._moves, self._peak = 1, np.abs(self._exact.high)
        return np.full(len(self._peak), np.inf) if self._lost else self._exact.values

    def _is_in_doubt(self) -> bool:
        """Tell whether what passed through was so much larger than what is left that rounding may show.

        A move errs by 2^-103 of the largest sum (docs in :mod:`duramen.dynamic.sums`).
        """
        left = np.abs(self._exact.high)
        return bool((self._peak * (self._moves * 2.0**-103) > _SHARE * left).any())

    def check(self) -> None:
        """Raise AssertionError if the totals are not those of a fresh sum, to 1e-12 of absolute values."""
        values = self.values
        if self._lost:
            return
        self._exact.check_invariants()
        fresh, mass = ExactTotals(len(values)), ExactTotals(len(values))
        everyone = self._points.contributing()
        for start in range(0, len(everyone), _BLOCK):
            block = self._points.contributions(everyone[start : start + _BLOCK])
            fresh.add_many(block)
            mass.add_many(np.abs(block))
        off = np.abs(values - fresh.values)
        assert (off <= 1e-12 * mass.values).all(), "the totals drifted from a fresh sum"


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

        weights = scale_to_totals(found, own, totals, rest)
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


class SuspectLists:
    """The suspected outliers, drawn uniformly from every rung of their loss."""

    def __init__(self, slots: Slots, seed: int, chunk: int | None = None) -> None:
        self._slots, self._seed = slots, seed
        self._lists = RankLists(slots, chunk)

    def __len__(self) -> int:
        return len(self._lists)

    def add(self, slot: int, loss: float) -> None:
        """Take a point in."""
        self._lists.add(int(loss_bins_of(np.array([loss]))[0]), self._rank(slot), slot)

    def remove(self, slot: int, loss: float) -> None:
        """Let a point go."""
        self._lists.remove(int(loss_bins_of(np.array([loss]))[0]), self._rank(slot), slot)

    def add_many(self, slots: Array, losses: Array) -> None:
        """Take points in."""
        self._lists.add_many(loss_bins_of(losses), self._ranks(slots), slots)

    def remove_many(self, slots: Array, losses: Array) -> None:
        """Let points go."""
        self._lists.remove_many(loss_bins_of(losses), self._ranks(slots), slots)

    def choose(self, size: int) -> Chosen:
        """Choose the points that stand for them all."""
        if not size:
            return nobody()
        strata = self._lists.strata()
        groups, sizes, totals = share_loss_bins(*strata, size)
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
            assert (loss_bins_of(losses[slots]) == number).all(), f"a point of another rung is on {number}"

    def _rank(self, slot: int) -> float:
        return uniform_of(self._seed, int(self._slots.ids[slot])) / float(self._slots.weights[slot])

    def _ranks(self, slots: Array) -> Array:
        with np.errstate(over="ignore"):
            return uniforms(self._seed, self._slots.ids[slots]) / self._slots.weights[slots]


def nobody() -> Chosen:
    """Choose nothing."""
    none = np.empty(0)
    return Chosen(none.astype(np.intp), none, none, none.astype(np.int32))


_BLOCK_ranked = 1 << 14  # points whose contributions are computed together


class Ranked(Engine):
    """The suspected inliers by rank.

    What is known of a point stands in columns for all points, suspected or not,
    so that one that changes sides is not looked at again.

    Invariants
    ----------
    1. Each point is in the list of its stratum, under its rank.
    2. The totals are the sum of what the points contribute, to 1e-12 of the sum of absolute values.
    3. ``nonfinite`` counts the points without a finite loss and rank, from which no sample can be drawn.
    """

    def __init__(self, slots: Slots, table: LossTable, look: Scorer, chunk: int | None = None) -> None:
        self._slots, self._table, self._scorer = slots, table, look
        self._lists = RankLists(slots, chunk)
        self._ranks = np.zeros(0)
        self._strata = np.zeros(0, dtype=look.strata_type or np.int8)
        self._marks = np.zeros(0, dtype=look.mark_type or np.int8)
        self._totals = None if look.known is None else Totals(look.known.n_columns, self)
        self.nonfinite = 0

    def __len__(self) -> int:
        return len(self._lists)

    def unlink(self) -> None:
        """Let go of the totals, which refer to it; it can be used no more."""
        self._totals = None

    def note(self, slots: Any, looked: Scored) -> None:
        """Keep what a look found: of one slot, or of many."""
        extent = self._slots.extent
        if extent > len(self._ranks):
            self._ranks = grown(self._ranks, extent)
        self._ranks[slots] = looked.ranks
        if looked.strata is not None:
            self._strata = grown(self._strata, extent)
            self._strata[slots] = looked.strata
        if looked.cache is not None:
            self._marks = grown(self._marks, extent)
            self._marks[slots] = looked.cache

    def forget(self, slots: Any) -> None:
        """Overwrite what was kept."""
        self._ranks[slots] = 0.0
        if self._scorer.strata_type is not None:
            self._strata[slots] = 0
        if self._scorer.mark_type is not None:
            self._marks[slots] = 0

    def add(self, slot: int) -> None:
        self._lists.add(self._stratum(slot), float(self._ranks[slot]), slot)
        if self._is_odd(slot):
            self.nonfinite += 1
        elif self._totals is not None:
            self._totals.add(slot)

    def remove(self, slot: int) -> None:
        self._lists.remove(self._stratum(slot), float(self._ranks[slot]), slot)
        if self._is_odd(slot):
            self.nonfinite -= 1
        elif self._totals is not None:
            self._totals.subtract(slot)

    def add_many(self, slots: Array) -> None:
        self._lists.add_many(self._numbers(slots), self._ranks[slots], slots)
        even = self._even(slots)
        self.nonfinite += len(slots) - len(even)
        if self._totals is not None:
            self._totals.add_many(even)

    def remove_many(self, slots: Array) -> None:
        self._lists.remove_many(self._numbers(slots), self._ranks[slots], slots)
        even = self._even(slots)
        self.nonfinite -= len(slots) - len(even)
        if self._totals is not None:
            self._totals.subtract_many(even)

    def choose(self, size: int) -> Chosen:
        """Choose the points that stand for them all, with weights as drawn."""
        if not size or not len(self):
            return nobody()
        if self.nonfinite:
            self._refuse_odd()
        sampler, seed = self._scorer.ranked, self._scorer.seed
        assert sampler is not None
        strata = self._lists.strata()
        groups, sizes, totals = None, np.array([size]), strata.weights
        if self._scorer.strata_type is not None:
            groups, sizes = allocate_size(sampler, strata, size)
            totals = np.bincount(groups, strata.weights)
        return self._lists.draw(seed, lambda slots: self._ranks[slots], groups, sizes, totals)

    def calibrates(self, size: int) -> bool:
        """Tell whether so many points are to be calibrated."""
        return self._scorer.known is not None and 0 < size < len(self)

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
        nonfinite = 0
        for number, slots in self._lists.slots().items():
            numbers = self._numbers(slots)
            assert numbers is None or (numbers == number).all(), (
                f"1: a point of another stratum is in {number}"
            )
            nonfinite += len(slots) - len(self._even(slots))
        assert nonfinite == self.nonfinite, f"3: nonfinite is {self.nonfinite}, and {nonfinite} points are"
        self._check_ranks()
        if self._totals is not None:
            self._totals.check()

    def _check_ranks(self) -> None:
        """See that ranks are those of a fresh look, up to what products of another shape may round."""
        for slots in _blocks(self.slots()):
            fresh = self._scorer.many(self._slots.points(slots))
            same = np.isclose(self._ranks[slots], fresh.ranks, rtol=1e-9, atol=0)
            assert same.all(), "1: a point stands under another rank"
            assert np.array_equal(self._table.losses[slots], fresh.losses), "1: a point has another loss"

    def _stratum(self, slot: int) -> int:
        return 0 if self._scorer.strata_type is None else int(self._strata[slot])

    def _numbers(self, slots: Array) -> Array | None:
        return None if self._scorer.strata_type is None else self._strata[slots]

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
        raise ValueError(f"{self._scorer.sampler!r} gave id {name} no score; scores must be positive numbers")

    def calibrated(self, slots: Array, points: WeightedPoints) -> Array:
        """Adjust the weights of chosen points, in the order of their ids, to the totals over all."""
        totals = self.totals
        assert totals is not None
        known = calibration_features(self._scorer.loss, self._scorer.anchor, len(slots), points)
        columns = known.columns_of(points.X, points.y, self._table.losses[slots], self._marks_of(slots))
        return Calibration(columns, points.weights).weights(totals[: known.n_columns])

    def _marks_of(self, slots: Array) -> Array | None:
        return None if self._scorer.mark_type is None else self._marks[slots]

    def contribution(self, slot: int) -> Array:
        """Compute what one point adds to the totals: (q,)."""
        one = slice(slot, slot + 1)
        y = None if self._slots.y is None else self._slots.y[one]
        cache = None if self._scorer.mark_type is None else self._marks[one]
        weight = float(self._slots.weights[slot])
        row = self._slots.row(slot)[None]
        return self._scorer.contributions(row, y, weight, self._table.losses[one], cache)[0]

    def contributions(self, slots: Array) -> Array:
        """Compute what points add to the totals: (m, q)."""
        y = None if self._slots.y is None else self._slots.y[slots]
        weights, losses = self._slots.weights[slots, None], self._table.losses[slots]
        return self._scorer.contributions(self._slots.rows(slots), y, weights, losses, self._marks_of(slots))

    def contributing(self) -> Array:
        """Give the slots of the points that add to the totals."""
        return self._even(self.slots())


def _blocks(slots: Array) -> Iterator[Array]:
    slots = np.sort(slots)  # so that rows are read in the order of memory
    for start in range(0, len(slots), _BLOCK_ranked):
        yield slots[start : start + _BLOCK_ranked]
