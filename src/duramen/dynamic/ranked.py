"""Scores of points at an anchor, and the ranked engine: the suspected inliers in the order of their ranks."""

from __future__ import annotations

import itertools
import math
from typing import Any, NamedTuple, final

import numpy as np

from duramen.arrays import Array
from duramen.ball import Anchor
from duramen.coreset.choose import Chosen, calibrate, no_rows, score_points
from duramen.coreset.exact import ExactSum, ExactSums
from duramen.coreset.settings import Settings
from duramen.coreset.view import anchored_points, refuse_infinite
from duramen.dynamic.rows import Slots, moderate
from duramen.dynamic.sorted_list import Ordered, grown
from duramen.parallel import for_each_chunk
from duramen.points import WeightedPoints
from duramen.samplers.base import RankedSampler, Sampler, Strata, allocate_size
from duramen.samplers.calibration import CalibrationFeatures, calibration_features
from duramen.samplers.default import SAMPLERS
from duramen.samplers.ranks import Draw, draw, scale_to_totals

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

    @staticmethod
    def concat(parts: list[Scored]) -> Scored:
        """Join the scores of several batches."""
        columns = zip(*parts, strict=True)
        return Scored(*(None if column[0] is None else np.concatenate(column) for column in columns))


class Scorer:
    """Scores points, as seen from an anchor with all that the sampler froze; ``probe`` are example points."""

    def __init__(self, settings: Settings, anchor: Anchor, sampler: Sampler, probe: WeightedPoints) -> None:
        self.loss, self.seed, self.anchor, self.sampler = settings.loss, settings.seed, anchor, sampler
        self.ranked = sampler if isinstance(sampler, RankedSampler) else None
        self.known: CalibrationFeatures | None = None
        if settings.calibrate and self.ranked is not None:
            self.known = calibration_features(self.loss, anchor, settings.by_size.size, probe)
        self.example = self.score(probe.take(slice(0, 1)))
        small = bool(np.abs(anchor.theta).max() < moderate(np.float64))
        self.never_fails = self.loss.never_refuses and type(sampler) in SAMPLERS.values() and small

    def score(self, points: WeightedPoints) -> Scored:
        """Score points; raise ValueError if the loss cannot take a row or a label."""
        anchored, cache = anchored_points(self.anchor, points, self.loss, cached=self.known is not None)
        cache = cache if cache is not None and np.ndim(cache) == 1 else None
        ranks = strata = None
        if self.ranked is not None:
            ranks, strata, _ = score_points(self.ranked, anchored, self.seed, None, None, refuse=False)
            strata = None if strata is None else _checked_strata(self.ranked, strata)
        return Scored(np.asarray(anchored.losses, dtype=np.float64), cache, ranks, strata)


def _checked_strata(sampler: RankedSampler, numbers: Array) -> Array:
    if numbers.dtype.kind not in "biuf":
        raise ValueError(f"{sampler!r} returned strata of type {numbers.dtype}; they must be whole numbers")
    if numbers.dtype == np.uint64:
        if numbers.size and int(numbers.max()) > np.iinfo(np.int64).max:
            raise ValueError(f"{sampler!r} gave the stratum {numbers.max()}; numbers must fit in int64")
        return numbers.astype(np.int64)
    return numbers


class Scores:
    """Scores by slot, of points on both sides: one that changes sides is not scored again.

    Invariants
    ----------
    1. A slot without a point holds zeros.
    """

    losses: Array
    cache: Array | None
    ranks: Array
    strata: Array | None

    def __init__(self, example: Scored) -> None:
        for name, values in example._asdict().items():
            setattr(self, name, None if values is None else np.zeros(0, dtype=values.dtype))

    def write(self, slots: Array, scored: Scored, extent: int) -> None:
        """Store the scores of slots, all below ``extent``."""
        for name, values in scored._asdict().items():
            if values is not None:
                setattr(self, name, grown(getattr(self, name), extent))
                getattr(self, name)[slots] = values

    def erase(self, slots: Array) -> None:
        """Overwrite the scores of slots."""
        for column in self._columns():
            column[slots] = 0

    def are_finite(self, slots: Array) -> Array:
        """Return which points have a finite loss and rank."""
        return np.isfinite(self.ranks[slots]) & np.isfinite(self.losses[slots])

    @property
    def nbytes(self) -> int:
        """The bytes of its arrays."""
        return sum(column.nbytes for column in self._columns())

    def _columns(self) -> list[Array]:
        return [column for column in vars(self).values() if column is not None]


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

    def __init__(self, slots: Slots, scores: Scores, scorer: Scorer) -> None:
        self._slots, self._scores, self._scorer = slots, scores, scorer
        self._lists: dict[int, Ordered] = {}
        self._weights: dict[int, ExactSum] = {}
        self._length = 0
        self.exact_totals = None if scorer.known is None else ExactSums(scorer.known.n_columns)
        self.nonfinite = 0

    def __len__(self) -> int:
        return self._length

    def add(self, slots: Array) -> None:
        """Add points to their strata."""
        self._change(slots, 1)

    def remove(self, slots: Array) -> None:
        """Remove points from their strata; their data is still in their slots."""
        self._change(slots, -1)

    def _change(self, slots: Array, sign: int) -> None:
        for number, part in self._by_stratum(slots):
            if number not in self._lists:
                self._lists[number], self._weights[number] = Ordered(self._slots), ExactSum()
            mine = self._lists[number]
            (mine.add if sign > 0 else mine.remove)(self._scores.ranks[part], part)
            self._weights[number].add_many(self._slots.weights[part], sign)
            if not len(mine):
                del self._lists[number], self._weights[number]
        self._length += sign * len(slots)
        finite = slots[self._scores.are_finite(slots)]
        self.nonfinite += sign * (len(slots) - len(finite))
        if self.exact_totals is not None and len(finite):
            self._sum(self.exact_totals, finite, sign)

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
        """Return the numbers of the strata, ascending, with the count and the weight of each."""
        numbers = sorted(self._lists)
        counts = np.array([len(self._lists[number]) for number in numbers], dtype=np.int64)
        weights = np.array([self._weights[number].value for number in numbers], dtype=np.float64)
        return Strata(np.array(numbers, dtype=np.int64), counts, weights)

    def choose(self, size: int) -> Chosen:
        """Choose the points that represent them all: their slots, with weights as drawn."""
        if not size or not len(self):
            return no_rows()
        if self.nonfinite:
            self._refuse_nonfinite()
        assert self._scorer.ranked is not None
        strata = self.strata()
        groups, sizes, totals = np.zeros(1, dtype=np.int32), np.array([size]), strata.weights
        if self._scores.strata is not None:
            groups, sizes = allocate_size(self._scorer.ranked, strata, size)
            totals = np.bincount(groups, strata.weights)
        return self._draw(groups, sizes, totals)

    def _draw(self, groups: Array, sizes: Array, totals: Array) -> Chosen:
        """Draw ``sizes[g]`` points from each group of strata."""
        numbers = sorted(self._lists)
        parts = [
            self._lists[number].first(int(sizes[g]) + 1) for number, g in zip(numbers, groups, strict=True)
        ]
        slots = np.concatenate(parts)
        mine = np.repeat(groups, [len(part) for part in parts]) if len(sizes) > 1 else None
        found = draw(self._scorer.seed, self._scores.ranks[slots], self._slots.ids[slots], mine, sizes)
        own = self._slots.weights[slots[found.rows]]

        def rest(group: int, kept: Array) -> float:
            left = ExactSum()
            left.units = sum(self._weights[one].units for one in itertools.compress(numbers, groups == group))
            left.add_many(own[kept], -1)
            return left.value

        weights = scale_to_totals(found, own, totals, rest)
        return Chosen(slots[found.rows].astype(np.intp), weights, found.inclusion, found.groups)

    @property
    def totals(self) -> Array | None:
        """The totals over the points here, of their calibration features."""
        return None if self.exact_totals is None else self.exact_totals.values

    def calibrated(self, points: WeightedPoints, chosen: Chosen) -> Chosen:
        """Adjust the weights of chosen points to the totals over all."""
        totals = self.totals
        assert totals is not None
        rows, weights, *drawn = chosen
        features = calibration_features(self._scorer.loss, self._scorer.anchor, len(rows), points)
        found, weights = calibrate(
            points, Draw(rows, *drawn), weights, features, totals[: features.n_columns]
        )
        return Chosen(found.rows, weights, found.inclusion, found.groups)

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
            total, stored = math.fsum(self._slots.weights[slots]), self._weights[number].value
            assert stored == total, f"2: stratum {number} weighs {total}, not {stored}"
        slots = np.sort(self.slots())  # so that rows are read in the order of memory
        finite = slots[self._scores.are_finite(slots)]
        nonfinite = len(slots) - len(finite)
        assert nonfinite == self.nonfinite, f"3: nonfinite is {self.nonfinite}, but {nonfinite} points are"
        for start in range(0, len(slots), _BLOCK):
            block = slots[start : start + _BLOCK]
            fresh = self._scorer.score(self._slots.points(block))
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
        assert self._scorer.known is not None
        scores, y = self._scores, None if self._slots.y is None else self._slots.y[slots]
        cache = None if scores.cache is None else scores.cache[slots]
        with np.errstate(over="ignore", under="ignore", invalid="ignore"):
            columns = self._scorer.known.columns_of(self._slots.rows(slots), y, scores.losses[slots], cache)
            columns *= self._slots.weights[slots, None]
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
        raise ValueError(f"{self._scorer.sampler!r} gave id {name} no score; scores must be positive numbers")
