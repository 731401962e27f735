"""Scores of points at an anchor, and the ranked engine: the suspected inliers in the order of their ranks."""

from __future__ import annotations

import itertools
import math
from typing import Any, NamedTuple, final

import numpy as np

from duramen.arrays import Array
from duramen.coreset.exact import ExactSums
from duramen.coreset.view import SAMPLERS, View, rank_points, refuse_infinite
from duramen.dynamic.rows import Slots, moderate
from duramen.dynamic.sorted_list import Ordered, grown
from duramen.parallel import for_each_chunk
from duramen.points import WeightedPoints
from duramen.samplers.base import Entries, RankedSampler, Strata

_BLOCK = 1 << 14  # points that a check scores together
_TOGETHER = 1 << 13  # points whose contributions are added up together


class RowScores(NamedTuple):
    """Scores of points.

    The cache is a by-product of the loss; it is kept if it is one number
    per point. A rank is infinite where the sampler gave no score.
    """

    losses: Any
    cache: Any
    ranks: Any
    strata: Any

    def take(self, which: slice) -> RowScores:
        """Select points."""
        return RowScores(*(None if column is None else column[which] for column in self))


class Scores:
    """Scores of points in a view, by slot; a free slot holds zeros. ``probe`` are example points.

    They are kept for points on both sides: one that changes sides is not scored again.
    """

    def __init__(self, view: View, probe: WeightedPoints) -> None:
        self.view = view
        example = self.score(probe.take(slice(0, 1)))
        columns: list[Any] = [None if one is None else np.zeros(0, dtype=one.dtype) for one in example]
        self.losses, self.cache, self.ranks, self.strata = columns
        moderate_theta = bool(np.abs(view.anchor.theta).max() < moderate(np.float64))
        known = type(view.sampler) in SAMPLERS.values()
        self.never_fails = view.loss.never_refuses and known and moderate_theta

    def score(self, points: WeightedPoints) -> RowScores:
        """Score points; raise ValueError if the loss cannot take a row or a label."""
        view, ranks, strata = self.view, None, None
        anchored, cache = view.anchored(points)
        if isinstance(view.sampler, RankedSampler):
            ranks, strata, _ = rank_points(view.sampler, anchored, view.seed, None, None, refuse=False)
            strata = None if strata is None else _checked_strata(view.sampler, strata)
        cache = cache if cache is not None and np.ndim(cache) == 1 else None
        return RowScores(np.asarray(anchored.losses, dtype=np.float64), cache, ranks, strata)

    def write(self, slots: Array, scored: RowScores, extent: int) -> None:
        """Store the scores of slots, all below ``extent``."""
        for name, values in scored._asdict().items():
            if values is not None:
                column = grown(getattr(self, name), extent)
                column[slots] = values
                setattr(self, name, column)

    def erase(self, slots: Array) -> None:
        """Overwrite the scores of slots."""
        for column in (self.losses, self.cache, self.ranks, self.strata):
            if column is not None:
                column[slots] = 0

    def are_finite(self, slots: Any) -> Any:
        """Return which points have a finite loss and rank."""
        return np.isfinite(self.ranks[slots]) & np.isfinite(self.losses[slots])

    @property
    def nbytes(self) -> int:
        """The bytes of its arrays."""
        return sum(column.nbytes for column in self._columns())

    def _columns(self) -> list[Array]:
        columns = (self.losses, self.cache, self.ranks, self.strata)
        return [column for column in columns if column is not None]


def _checked_strata(sampler: RankedSampler, numbers: Array) -> Array:
    if numbers.dtype.kind not in "biuf":
        raise ValueError(f"{sampler!r} returned strata of type {numbers.dtype}; they must be whole numbers")
    if numbers.dtype == np.uint64:
        if numbers.size and int(numbers.max()) > np.iinfo(np.int64).max:
            raise ValueError(f"{sampler!r} gave the stratum {numbers.max()}; numbers must fit in int64")
        return numbers.astype(np.int64)
    return numbers


@final
class Ranked:
    """The ranked engine: the suspected inliers by rank, stratum by stratum, with the weight of each.

    Invariants
    ----------
    1. Each point is in the list of its stratum, under its rank; lists are in order (see
       :class:`Ordered`), and none is empty.
    2. The weight of a stratum is the sum of its points' weights, and the totals are the sum of what
       the points contribute, to 1e-12 of the sum of absolute values.
    3. ``nonfinite`` counts the points without a finite loss and rank, from which no sample can be drawn.
    """

    def __init__(self, slots: Slots, scores: Scores) -> None:
        self._slots, self._scores, features = slots, scores, scores.view.features
        self._lists: dict[int, Ordered] = {}
        self._weights: dict[int, ExactSums] = {}
        self._length = 0
        self.exact_totals = None if features is None else ExactSums(features.n_columns)
        self.nonfinite = 0

    def __len__(self) -> int:
        return self._length

    def add(self, slots: Array) -> None:
        """Add points to their strata."""
        self._change(slots, 1)

    def remove(self, slots: Array) -> None:
        """Remove points from their strata; their data is still in their slots."""
        self._change(slots, -1)

    def remove_one(self, slot: int) -> None:
        """Remove a point from its stratum."""
        scores = self._scores
        number = 0 if scores.strata is None else int(scores.strata[slot])
        mine, rank = self._lists[number], float(scores.ranks[slot])
        if len(mine) == 1 or not (math.isfinite(rank) and math.isfinite(scores.losses[slot])):
            self.remove(np.array([slot]))
            return
        mine.remove_one(rank, int(self._slots.ids[slot]))
        self._weights[number].add(-float(self._slots.weights[slot]))
        self._length -= 1
        if self.exact_totals is not None:
            row = self._contributions(self._slots.row(slot)[None], slice(slot, slot + 1))
            self.exact_totals.add(row[0], -1)

    def _change(self, slots: Array, sign: int) -> None:
        for number, part in self._by_stratum(slots):
            if number not in self._lists:
                self._lists[number], self._weights[number] = Ordered(self._slots), ExactSums()
            mine = self._lists[number]
            (mine.add if sign > 0 else mine.remove)(self._scores.ranks[part], part)
            self._weights[number].add_rows(self._slots.weights[part], sign)
            if not len(mine):
                del self._lists[number], self._weights[number]
        self._length += sign * len(slots)
        finite = self._scores.are_finite(slots)
        n_finite = int(np.count_nonzero(finite))
        self.nonfinite += sign * (len(slots) - n_finite)
        if self.exact_totals is not None and n_finite:
            self._sum(self.exact_totals, slots[finite] if n_finite < len(slots) else slots, sign)

    def _by_stratum(self, slots: Array) -> list[tuple[int, Array]]:
        """Split points by stratum."""
        numbers = self._scores.strata
        if numbers is None or len(slots) < 2:
            return [(0 if numbers is None else int(numbers[slots[0]]), slots)] if len(slots) else []
        mine = numbers[slots]
        order = np.argsort(mine, kind="stable")
        cuts = np.flatnonzero(np.diff(mine[order])) + 1
        return [(int(mine[part[0]]), slots[part]) for part in np.split(order, cuts)]

    def strata(self) -> Strata:
        """Return the numbers of the strata, ascending, with the count and the weight of each.

        Raises
        ------
        ValueError
            If a point has no finite loss or rank: no sample can be drawn.
        """
        if self.nonfinite:
            self._refuse_nonfinite()
        numbers = sorted(self._lists)
        counts = np.array([len(self._lists[number]) for number in numbers], dtype=np.int64)
        weights = np.array([self._weights[number].values for number in numbers], dtype=np.float64)
        return Strata(np.array(numbers, dtype=np.int64), counts, weights)

    def smallest(self, pooled: Array, sizes: Array) -> Entries:
        """Return the smallest ranks of each stratum: as many as its group needs."""
        groups = dict(zip(sorted(self._lists), pooled.tolist(), strict=True))
        parts = [self._lists[number].first(int(sizes[group]) + 1) for number, group in groups.items()]
        slots, points = np.concatenate(parts), self._slots
        mine = np.repeat(pooled, [len(part) for part in parts]) if len(sizes) > 1 else None
        return Entries(slots, points.ids[slots], points.weights[slots], self._scores.ranks[slots], mine)

    def rest(self, strata: Array, rows: Array) -> float:
        """Sum the weights of some strata, without those of some slots."""
        left = ExactSums()
        for number in itertools.compress(sorted(self._lists), strata):
            left.absorb(self._weights[number])
        left.add_rows(self._slots.weights[rows], -1)
        return left.values

    @property
    def totals(self) -> Array | None:
        """The totals over the points here, of their calibration features."""
        return None if self.exact_totals is None else self.exact_totals.values

    @property
    def nbytes(self) -> int:
        """The bytes of its arrays."""
        return sum(mine.nbytes for mine in self._lists.values())

    def slots(self) -> Array:
        """Return the slots of all points."""
        parts = [mine.slots() for mine in self._lists.values()]
        return np.concatenate(parts) if parts else np.empty(0, dtype=np.int32)

    def check(self) -> None:
        """Raise AssertionError, naming the invariant, if one is broken."""
        for number, mine in self._lists.items():
            mine.check()
            slots = mine.slots()
            assert len(slots), f"1: stratum {number} is empty"
            numbers = self._scores.strata
            alike = numbers is None or (numbers[slots] == number).all()
            assert alike, f"1: a point of another stratum is in {number}"
            assert np.array_equal(mine.keys(), self._scores.ranks[slots]), "1: a point has the wrong rank"
            total, stored = math.fsum(self._slots.weights[slots]), self._weights[number].values
            assert stored == total, f"2: stratum {number} weighs {total}, not {stored}"
        slots = np.sort(self.slots())  # so that rows are read in the order of memory
        finite = slots[self._scores.are_finite(slots)]
        nonfinite = len(slots) - len(finite)
        assert nonfinite == self.nonfinite, f"3: nonfinite is {self.nonfinite}, but {nonfinite} points are"
        for start in range(0, len(slots), _BLOCK):
            block = slots[start : start + _BLOCK]
            fresh = self._scores.score(self._slots.points(block))
            same = np.isclose(
                self._scores.ranks[block], fresh.ranks, rtol=1e-9, atol=0
            )  # shapes affect rounding
            assert same.all(), "1: a point has the wrong rank"
            assert np.array_equal(self._scores.losses[block], fresh.losses), "1: a point has the wrong loss"
        if self.exact_totals is not None:
            again, mass = (ExactSums(len(self.exact_totals)) for _ in range(2))
            self._sum(again, finite)
            self._sum(mass, finite, absolute=True)
            off = np.abs(self.exact_totals.values - again.values)
            assert not (off > 1e-12 * mass.values).any(), "2: the totals are not those of the points"

    def contributions(self, slots: Array) -> Array:
        """Compute what points add to the totals: (m, q)."""
        return self._contributions(self._slots.rows(slots), slots)

    def _contributions(self, X: Array, where: Any) -> Array:
        scores, features = self._scores, self._scores.view.features
        assert features is not None
        y = None if self._slots.y is None else self._slots.y[where]
        cache = None if scores.cache is None else scores.cache[where]
        with np.errstate(over="ignore", under="ignore", invalid="ignore"):
            columns = features.columns_of(X, y, scores.losses[where], cache)
            columns *= self._slots.weights[where, None]
        return columns

    def _sum(self, totals: ExactSums, slots: Array, sign: int = 1, *, absolute: bool = False) -> None:
        """Add to totals what points contribute, or its absolute values, on all cores."""
        parts, slots = [], np.sort(slots)  # in the order of memory

        def work(chunk: slice) -> None:
            block = self.contributions(slots[chunk])
            part = totals if len(slots) <= _TOGETHER else ExactSums(block.shape[1])
            part.add_rows(np.abs(block) if absolute else block, sign)
            parts.append(part)

        for_each_chunk(work, len(slots), _TOGETHER, fixed=True)
        for part in parts:
            if part is not totals:
                totals.absorb(part)

    def _refuse_nonfinite(self) -> None:
        slots = self.slots()
        wrong = slots[~self._scores.are_finite(slots)]
        first = wrong[np.argmin(self._slots.ids[wrong])]
        loss, name = self._scores.losses[first], self._slots.ids[first]
        if not np.isfinite(loss):
            refuse_infinite(name, loss)
        sampler = self._scores.view.sampler
        raise ValueError(f"{sampler!r} gave id {name} no score; scores must be positive numbers")
