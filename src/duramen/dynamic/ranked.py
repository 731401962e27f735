"""Scores of points at an anchor, and the ranked engine: the suspected inliers in the order of their ranks."""

from __future__ import annotations

import itertools
from typing import Any, final

import numpy as np

from duramen.arrays import Array
from duramen.coreset.exact import ExactSums
from duramen.coreset.view import SAMPLERS, View, rank_points
from duramen.dynamic.rows import Columns, Slots, moderate
from duramen.dynamic.sorted_list import Ordered
from duramen.parallel import side_by_side
from duramen.points import WeightedPoints
from duramen.samplers.base import Entries, RankedSampler, Strata

_TOGETHER = 1 << 13  # points whose contributions are added up together


class Scores(Columns):
    """Scores of points in a view, by slot; a free slot holds zeros.

    They are kept for points on both sides: one that changes sides is not scored again. The
    cache is a by-product of the loss; it is kept if it is one number per point. A rank is
    infinite where the sampler gave no score, or the loss is not finite.
    """

    losses: Array
    cache: Array | None = None
    ranks: Any = None
    strata: Array | None = None

    def __init__(self, view: View, slots: Slots) -> None:
        self.view = view
        example = self.score(slots.points(slots.in_use()[:1]))
        super().__init__({name: column.dtype for name, column in example.items()})
        moderate_theta = bool(np.abs(view.anchor.theta).max() < moderate(np.float64))
        known = type(view.sampler) in SAMPLERS.values()
        self.never_fails = view.loss.never_refuses and known and moderate_theta

    def score(self, points: WeightedPoints) -> dict[str, Array]:
        """Score points; raise ValueError if the loss cannot take a row or a label."""
        anchored, cache = self.view.anchored(points)
        found, sampler = {"losses": np.asarray(anchored.losses, dtype=np.float64)}, self.view.sampler
        if np.ndim(cache) == 1:
            found["cache"] = cache
        if isinstance(sampler, RankedSampler):
            ranks, strata, _ = rank_points(sampler, anchored, self.view.seed, None, None, refuse=False)
            found["ranks"] = np.where(np.isfinite(found["losses"]), ranks, np.inf)
            if strata is not None:
                found["strata"] = _checked_strata(sampler, strata)
        return found

    def write(self, slots: Array, scored: dict[str, Array], extent: int) -> None:
        """Store the scores of slots, all below ``extent``."""
        if extent > len(self.losses):
            self.extend(extent)
        for name, values in scored.items():
            self.columns[name][slots] = values


def _checked_strata(sampler: RankedSampler, numbers: Array) -> Array:
    largest = np.iinfo(np.int64).max
    wrong = numbers[numbers > largest] if numbers.dtype.kind in "biuf" else numbers
    if wrong.size:
        raise ValueError(
            f"{sampler!r} gave the stratum {wrong[0]}, of type {numbers.dtype}; strata must be whole "
            "numbers that fit in int64"
        )
    return numbers


@final
class Ranked:
    """The ranked engine: the suspected inliers by rank, stratum by stratum, with the weight of each.

    Invariants
    ----------
    1. Each point is in its stratum, under its rank; strata ascend, are in order (see :class:`Ordered`),
       and none is empty.
    2. The weight of a stratum is the sum of its points' weights, and the totals are the sum of what
       the points contribute, to 1e-12 of the sum of absolute values.
    """

    def __init__(self, slots: Slots, scores: Scores) -> None:
        self._slots, self._scores, features = slots, scores, scores.view.features
        self.by_number: dict[int, tuple[Ordered, ExactSums]] = {}  # each stratum by rank, and its weight
        self.exact_totals: Any = None if features is None else ExactSums(features.n_columns)

    def remove(self, slots: Array) -> None:
        """Remove points from their strata; their data is still in their slots."""
        self.add(slots, -1)

    def add(self, slots: Array, sign: int = 1) -> None:
        """Add points, or remove them if ``sign`` is -1."""
        if not len(slots):
            return
        for number, part in self._by_stratum(slots):
            if number not in self.by_number:
                self.by_number[number] = Ordered(self._slots), ExactSums()
                self.by_number = dict(sorted(self.by_number.items()))
            ranked, weight = self.by_number[number]
            (ranked.add if sign > 0 else ranked.remove)(self._scores.ranks[part], part)
            weight.add_rows(self._slots.weights[part], sign)
            if not len(ranked):
                del self.by_number[number]
        self._add_contributions(slots, sign)

    def _by_stratum(self, slots: Array) -> list[tuple[int, Array]]:
        """Split points by stratum."""
        numbers = self._scores.strata
        if numbers is None or len(slots) < 2:
            return [(0 if numbers is None else int(numbers[slots[0]]), slots)]
        mine = numbers[slots]
        order = np.argsort(mine, kind="stable")
        cuts = np.flatnonzero(np.diff(mine[order])) + 1
        return [(int(mine[part[0]]), slots[part]) for part in np.split(order, cuts)]

    @property
    def is_finite(self) -> bool:
        """Whether every point has a finite rank; otherwise no sample can be drawn."""
        return all(ranked.last_key < np.inf for ranked, _ in self.by_number.values())

    def strata(self) -> Strata:
        if not self.is_finite:
            self._scores.view.score(self._slots.points(self.slots()))  # raises the error that names one
        counts = np.array([len(ranked) for ranked, _ in self.by_number.values()], dtype=np.int64)
        weights = np.array([weight.values for _, weight in self.by_number.values()], dtype=np.float64)
        return Strata(np.array(list(self.by_number), dtype=np.int64), counts, weights)

    def smallest(self, pooled: Array, sizes: Array) -> Entries:
        wanted = zip(self.by_number.values(), sizes[pooled].tolist(), strict=True)
        parts = [ranked.slots(size + 1) for (ranked, _), size in wanted]
        slots, points = np.concatenate(parts), self._slots
        mine = np.repeat(pooled, [len(part) for part in parts])
        return Entries(slots, points.ids[slots], points.weights[slots], self._scores.ranks[slots], mine)

    def rest(self, strata: Array, rows: Array) -> float:
        left = ExactSums()
        for _, weight in itertools.compress(self.by_number.values(), strata):
            left.absorb(weight)
        left.add_rows(self._slots.weights[rows], -1)
        return left.values

    @property
    def totals(self) -> Array | None:
        return None if self.exact_totals is None else self.exact_totals.values

    @property
    def nbytes(self) -> int:
        return sum(ranked.nbytes for ranked, _ in self.by_number.values())

    def slots(self) -> Array:
        """Return the slots of all points."""
        parts = [ranked.slots() for ranked, _ in self.by_number.values()]
        return np.concatenate([np.empty(0, np.int32), *parts])

    def check(self) -> None:
        slots = np.sort(self.slots())  # so that rows are read in the order of memory
        fresh = Ranked(self._slots, self._scores)
        fresh.add(slots)
        assert self._contents() == fresh._contents(), "1: a stratum has the wrong points, ranks or weight"
        for ranked, _ in self.by_number.values():
            ranked.check()
        if self.exact_totals != fresh.exact_totals:
            off = np.abs(self.exact_totals.values - fresh.exact_totals.values)
            mass = np.abs(self._contributions(slots)).sum(axis=0)
            assert (off <= 1e-12 * mass).all(), "2: the totals are not those of the points"

    def _contents(self) -> list[tuple[Any, ...]]:
        """List what is the same in all engines of the same points."""
        return [
            (number, ranked.keys().tobytes(), ranked.slots().tobytes(), weight)
            for number, (ranked, weight) in self.by_number.items()
        ]

    def _contributions(self, slots: Array) -> Array:
        """Compute what points add to the totals: (m, q)."""
        scores = self._scores
        features: Any = scores.view.features
        y = None if self._slots.y is None else self._slots.y[slots]
        cache = None if scores.cache is None else scores.cache[slots]
        with np.errstate(over="ignore", under="ignore", invalid="ignore"):
            columns = features.columns_of(self._slots.rows(slots), y, scores.losses[slots], cache)
            columns *= self._slots.weights[slots][:, None]
        return columns

    def _add_contributions(self, slots: Array, sign: int) -> None:
        """Add to the totals what points contribute, on all cores."""
        totals = self.exact_totals
        if totals is None:
            return
        if len(slots) == 1:
            totals.add(self._contributions(slots)[0], sign)
            return
        slots = np.sort(slots)  # in the order of memory
        starts = range(0, len(slots), _TOGETHER)
        parts = {start: ExactSums(len(totals)) if start else totals for start in starts}

        def work(start: int) -> None:
            parts[start].add_rows(self._contributions(slots[start : start + _TOGETHER]), sign)

        side_by_side(work, starts)
        for start in starts[1:]:
            totals.absorb(parts[start])
