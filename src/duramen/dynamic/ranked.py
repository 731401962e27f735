"""Scores of points at an anchor, and lists of points: in every stratum in the order of their ranks."""

from __future__ import annotations

import itertools
import math
from abc import ABC, abstractmethod
from dataclasses import replace
from typing import Any, NamedTuple, final

import numpy as np

from duramen.arrays import Array
from duramen.coreset.exact import ExactSum, ExactSums
from duramen.coreset.view import View, rank_points, refuse_infinite
from duramen.dynamic.rows import Slots, moderate
from duramen.dynamic.sorted_list import Ordered, grown
from duramen.dynamic.table import LossTable
from duramen.losses.base import Anchor, Loss
from duramen.losses.centres import DistanceLoss
from duramen.losses.linear import LinearLoss
from duramen.losses.softmax import SoftmaxLoss
from duramen.parallel import for_each_chunk
from duramen.points import WeightedPoints
from duramen.samplers.base import Entries, RankedSampler, Sampler, Strata
from duramen.samplers.layered import LayeredSampler, UniformSampler
from duramen.samplers.leverage import LeverageSampler
from duramen.samplers.ranks import uniform_of, uniforms
from duramen.samplers.sensitivity import SensitivitySampler

_BLOCK = 1 << 14  # points that a check scores together
_TOGETHER = 1 << 13  # points whose contributions are added up together


class Scored(NamedTuple):
    """Scores of points.

    The cache is a by-product of the loss; it is kept if it is one number
    per point. A rank is infinite where the sampler gave no score.
    """

    losses: Any
    cache: Any
    ranks: Any
    strata: Any

    def take(self, which: slice) -> Scored:
        """Select points."""
        return Scored(*(None if column is None else column[which] for column in self))


class Scorer:
    """Scores points in a view; ``probe`` are example points."""

    def __init__(self, view: View, probe: WeightedPoints, *, tree: bool) -> None:
        if tree:  # where a sampler is a black box
            view = replace(view, sampler=view.sampler.bind(view.loss, view.anchor), features=None)
        self.view = view
        self.loss, self.seed, self.anchor, self.sampler = view.loss, view.seed, view.anchor, view.sampler
        self.known = self.view.features
        first = self.score(probe.take(slice(0, 1)))
        self.cache_type = None if first.cache is None else first.cache.dtype
        self.strata_type = None if first.strata is None else first.strata.dtype
        self.never_fails = _never_fails(self.loss, self.sampler, self.anchor)

    def score(self, points: WeightedPoints) -> Scored:
        """Score points; raise ValueError if the loss cannot take a row or a label."""
        anchored, cache = self.view.anchored(points)
        cache = cache if cache is not None and np.ndim(cache) == 1 else None
        ranks = strata = None
        if isinstance(self.sampler, RankedSampler):
            ranks, strata, _ = rank_points(self.sampler, anchored, self.seed, None, None, refuse=False)
            strata = None if strata is None else _checked_strata(self.sampler, strata)
        return Scored(np.asarray(anchored.losses, dtype=np.float64), cache, ranks, strata)


def _checked_strata(sampler: RankedSampler, numbers: Array) -> Array:
    if numbers.dtype.kind not in "biuf":
        raise ValueError(f"{sampler!r} returned strata of type {numbers.dtype}; they must be whole numbers")
    if numbers.dtype == np.uint64:
        if numbers.size and int(numbers.max()) > np.iinfo(np.int64).max:
            raise ValueError(f"{sampler!r} gave the stratum {numbers.max()}; numbers must fit in int64")
        return numbers.astype(np.int64)
    return numbers


def _never_fails(loss: Loss, sampler: Sampler, anchor: Anchor) -> bool:
    """Return whether scoring valid rows of moderate size cannot raise: with built-in losses and samplers."""
    built_in = isinstance(loss, (LinearLoss, SoftmaxLoss, DistanceLoss)) and type(loss).__module__.startswith(
        "duramen."
    )
    scored = type(sampler) in (UniformSampler, LayeredSampler, LeverageSampler, SensitivitySampler)
    return built_in and scored and bool(np.abs(anchor.theta).max() < moderate(np.float64))


class RankLists(ABC):
    """Points in the order of their ranks, stratum by stratum, with the weight of each.

    Invariants
    ----------
    1. Each list is in order (see :class:`Ordered`), none is empty, and points are in the list of
       their stratum.
    2. The weight of a stratum is the sum of its points' weights.
    """

    def __init__(self, slots: Slots, table: LossTable, seed: int) -> None:
        self._slots, self._table, self._seed = slots, table, seed
        self._lists: dict[int, Ordered] = {}
        self._weights: dict[int, ExactSum] = {}
        self._length = 0

    def __len__(self) -> int:
        return self._length

    @abstractmethod
    def strata_of(self, slots: Any) -> Any:
        """Return the stratum of one point, or those of many; None if all are in stratum 0."""

    @abstractmethod
    def ranks_of(self, slots: Any) -> Any:
        """Return the rank of one point, or those of many."""

    def add(self, slot: int) -> None:
        """Add a point to its stratum."""
        number = int(self.strata_of(slot) or 0)
        self._open(number).add(float(self.ranks_of(slot)), int(self._slots.ids[slot]), slot)
        self._weights[number].add(float(self._slots.weights[slot]))
        self._count(slot, 1)

    def remove(self, slot: int) -> None:
        """Remove a point from its stratum; its data is still in its slot."""
        number = int(self.strata_of(slot) or 0)
        self._lists[number].remove(float(self.ranks_of(slot)), int(self._slots.ids[slot]))
        self._weights[number].add(-float(self._slots.weights[slot]))
        self._close_empty(number)
        self._count(slot, -1)

    def add_many(self, slots: Array) -> None:
        """Add points to their strata."""
        for number, part in self._by_stratum(slots):
            self._open(number).add_many(self.ranks_of(part), part)
            self._weights[number].add_many(self._slots.weights[part])
        self._count_many(slots, 1)

    def remove_many(self, slots: Array) -> None:
        """Remove points from their strata."""
        for number, part in self._by_stratum(slots):
            self._lists[number].remove_many(self.ranks_of(part), part)
            self._weights[number].add_many(self._slots.weights[part], -1)
            self._close_empty(number)
        self._count_many(slots, -1)

    def strata(self) -> Strata:
        """Return the numbers of the strata, ascending, with the count and the weight of each."""
        numbers = sorted(self._lists)
        counts = np.array([len(self._lists[number]) for number in numbers], dtype=np.int64)
        weights = np.array([self._weights[number].value for number in numbers], dtype=np.float64)
        return Strata(np.array(numbers, dtype=np.int64), counts, weights)

    def smallest(self, pooled: Array, sizes: Array) -> Entries:
        """Return the smallest ranks of each stratum: as many as its group needs."""
        groups = dict(zip(sorted(self._lists), pooled.tolist(), strict=True))
        parts = [self._lists[number].first(int(sizes[group]) + 1) for number, group in groups.items()]
        slots = np.concatenate(parts)
        mine = np.repeat(pooled, [len(part) for part in parts]) if len(sizes) > 1 else None
        return Entries(slots, self._slots.ids[slots], self._slots.weights[slots], self.ranks_of(slots), mine)

    def rest(self, strata: Array, rows: Array) -> float:
        """Sum the weights of some strata, without those of some slots."""
        left = ExactSum()
        left.units = sum(self._weights[one].units for one in itertools.compress(sorted(self._lists), strata))
        left.add_many(self._slots.weights[rows], -1)
        return left.value

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
            numbers = self.strata_of(slots)
            assert numbers is None or (numbers == number).all(), (
                f"1: a point of another stratum is in {number}"
            )
            total, stored = math.fsum(self._slots.weights[slots]), self._weights[number].value
            assert stored == total, f"2: stratum {number} weighs {total}, not {stored}"

    def _count(self, slot: int, sign: int) -> None:
        """Count a point that was added, or removed if ``sign`` is -1."""
        self._length += sign

    def _count_many(self, slots: Array, sign: int) -> None:
        self._length += sign * len(slots)

    def _open(self, number: int) -> Ordered:
        if number not in self._lists:
            self._lists[number] = Ordered(self._slots)
            self._weights[number] = ExactSum()
        return self._lists[number]

    def _close_empty(self, number: int) -> None:
        if not len(self._lists[number]):
            del self._lists[number], self._weights[number]

    def _by_stratum(self, slots: Array) -> list[tuple[int, Array]]:
        """Split points by stratum."""
        numbers = self.strata_of(slots)
        if not len(slots):
            return []
        if numbers is None:
            return [(0, slots)]
        order = np.argsort(numbers, kind="stable")
        cuts = np.flatnonzero(np.diff(numbers[order])) + 1
        return [(int(numbers[part[0]]), slots[part]) for part in np.split(order, cuts)]


@final
class SuspectLists(RankLists):
    """The suspected outliers, drawn uniformly from every bin of their loss."""

    def strata_of(self, slots: Any) -> Any:
        return None

    def ranks_of(self, slots: Any) -> Any:
        if isinstance(slots, int):
            return uniform_of(self._seed, int(self._slots.ids[slots])) / float(self._slots.weights[slots])
        with np.errstate(over="ignore"):
            return uniforms(self._seed, self._slots.ids[slots]) / self._slots.weights[slots]


@final
class Ranked(RankLists):
    """The ranked engine: the suspected inliers by rank.

    Scores are kept in columns for all points, suspected or not, so that one that
    changes sides is not scored again.

    Invariants
    ----------
    1. Each point is in the list of its stratum, under its rank.
    2. The totals are the sum of what the points contribute, to 1e-12 of the sum of absolute values.
    3. ``nonfinite`` counts the points without a finite loss and rank, from which no sample can be drawn.
    """

    def __init__(self, slots: Slots, table: LossTable, scorer: Scorer) -> None:
        super().__init__(slots, table, scorer.seed)
        self._scorer = scorer
        self._ranks = np.zeros(0)
        self._strata = None if scorer.strata_type is None else np.zeros(0, dtype=scorer.strata_type)
        self._cache = None if scorer.cache_type is None else np.zeros(0, dtype=scorer.cache_type)
        self.exact_totals = None if scorer.known is None else ExactSums(scorer.known.n_columns)
        self.nonfinite = 0

    def note(self, slots: Any, scored: Scored) -> None:
        """Store scores: of one slot, or of many."""
        extent = self._slots.extent
        self._ranks = grown(self._ranks, extent)
        self._ranks[slots] = scored.ranks
        if self._strata is not None:
            self._strata = grown(self._strata, extent)
            self._strata[slots] = scored.strata
        if self._cache is not None:
            self._cache = grown(self._cache, extent)
            self._cache[slots] = scored.cache

    def forget(self, slots: Any) -> None:
        """Overwrite scores."""
        self._ranks[slots] = 0.0
        if self._strata is not None:
            self._strata[slots] = 0
        if self._cache is not None:
            self._cache[slots] = 0

    def strata_of(self, slots: Any) -> Any:
        return None if self._strata is None else self._strata[slots]

    def ranks_of(self, slots: Any) -> Any:
        return self._ranks[slots]

    def _count(self, slot: int, sign: int) -> None:
        super()._count(slot, sign)
        if not (math.isfinite(self._ranks[slot]) and math.isfinite(self._table.losses[slot])):
            self.nonfinite += sign
        elif self.exact_totals is not None:
            one, weight = slice(slot, slot + 1), float(self._slots.weights[slot])
            row = self._weighted_columns(self._slots.row(slot)[None], one, weight)[0]
            self.exact_totals.add(row, sign)

    def _count_many(self, slots: Array, sign: int) -> None:
        super()._count_many(slots, sign)
        finite = slots[self._are_finite(slots)]
        self.nonfinite += sign * (len(slots) - len(finite))
        if self.exact_totals is not None:
            self.exact_totals.absorb(self._sum(finite, sign))

    def strata(self) -> Strata:
        if self.nonfinite:
            self._refuse_nonfinite()
        return super().strata()

    @property
    def totals(self) -> Array | None:
        """The totals over the points here, of their calibration features."""
        return None if self.exact_totals is None else self.exact_totals.values

    @property
    def nbytes(self) -> int:
        columns = [column for column in (self._ranks, self._strata, self._cache) if column is not None]
        return super().nbytes + sum(column.nbytes for column in columns)

    def check(self) -> None:
        super().check()
        slots = np.sort(self.slots())  # so that rows are read in the order of memory
        nonfinite = len(slots) - np.count_nonzero(self._are_finite(slots))
        assert nonfinite == self.nonfinite, f"3: nonfinite is {self.nonfinite}, but {nonfinite} points are"
        for start in range(0, len(slots), _BLOCK):
            block = slots[start : start + _BLOCK]
            fresh = self._scorer.score(self._slots.points(block))
            same = np.isclose(self._ranks[block], fresh.ranks, rtol=1e-9, atol=0)  # shapes affect rounding
            assert same.all(), "1: a point has the wrong rank"
            assert np.array_equal(self._table.losses[block], fresh.losses), "1: a point has the wrong loss"
        if self.exact_totals is not None:
            finite = slots[self._are_finite(slots)]
            off = np.abs(self.exact_totals.values - self._sum(finite).values)
            mass = np.abs(self._sum(finite, absolute=True).values)
            assert not (off > 1e-12 * mass).any(), "2: the totals are not those of the points"

    def contributions(self, slots: Array) -> Array:
        """Compute what points add to the totals: (m, q)."""
        return self._weighted_columns(self._slots.rows(slots), slots, self._slots.weights[slots, None])

    def _sum(self, slots: Array, sign: int = 1, *, absolute: bool = False) -> ExactSums:
        """Add up what points contribute, or its absolute values, on all cores and in the order of memory."""
        assert self._scorer.known is not None
        slots, parts = np.sort(slots), [ExactSums(self._scorer.known.n_columns)]

        def work(chunk: slice) -> None:
            block = self.contributions(slots[chunk])
            part = ExactSums(block.shape[1])
            part.add_rows(np.abs(block) if absolute else block, sign)
            parts.append(part)

        for_each_chunk(work, len(slots), _TOGETHER, fixed=True)
        for part in parts[1:]:
            parts[0].absorb(part)
        return parts[0]

    def _weighted_columns(self, X: Array, where: Any, weights: Any) -> Array:
        assert self._scorer.known is not None
        y = None if self._slots.y is None else self._slots.y[where]
        cache = None if self._cache is None else self._cache[where]
        with np.errstate(over="ignore", under="ignore", invalid="ignore"):
            columns = self._scorer.known.columns_of(X, y, self._table.losses[where], cache)
            columns *= weights
        return columns

    def _are_finite(self, slots: Array) -> Array:
        return np.isfinite(self._ranks[slots]) & np.isfinite(self._table.losses[slots])

    def _refuse_nonfinite(self) -> None:
        slots = self.slots()
        wrong = slots[~self._are_finite(slots)]
        first = wrong[np.argmin(self._slots.ids[wrong])]
        loss, name = self._table.losses[first], self._slots.ids[first]
        if not np.isfinite(loss):
            refuse_infinite(name, loss)
        raise ValueError(f"{self._scorer.sampler!r} gave id {name} no score; scores must be positive numbers")
