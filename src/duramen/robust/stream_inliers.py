"""The suspected inliers of a stream: the smallest ranks of every stratum, and totals over all of them."""

from __future__ import annotations

from typing import final

import numpy as np

from duramen.points import WeightedPoints
from duramen.robust.choice import Chosen
from duramen.robust.outlook import refuse_infinite
from duramen.robust.stream_lowest import Held, Lowest
from duramen.robust.stream_sums import RunningSum, sums_by_place
from duramen.robust.survey import survey
from duramen.rows import Array
from duramen.sampling import RankedSampler, Seen
from duramen.sampling.base import Strata, shared_out, strata_of
from duramen.sampling.calibration import Calibration, Known, known_of
from duramen.sampling.ranks import Draw, draw, scaled

__all__ = ["Inliers"]


@final
class Inliers:
    """What must be held of suspected inliers, to choose from them when all have come.

    Parameters
    ----------
    sampler : RankedSampler
    seed : int
    most : int
        No more points than so many will be asked for.
    known : Known or None
        What so many points would be calibrated to, if they are to be.

    Attributes
    ----------
    n_points : int
        How many inliers have come.
    """

    def __init__(self, sampler: RankedSampler, seed: int, most: int, known: Known | None) -> None:
        self._sampler, self._seed, self._known = sampler, seed, known
        self._lowest = Lowest(most + 1)  # the rank that comes next tells how probable the others were
        self._totals = RunningSum()
        self._places: dict[int, int] = {}  # of each stratum's number
        self._counts: list[int] = []
        self._weights: list[RunningSum] = []
        self._stratified = False
        self.n_points = 0

    def add(self, seen: Seen, marks: Array | None = None) -> None:
        """Take inliers in; those of weight zero count for nothing."""
        points = seen.points
        _refuse_infinite(seen)
        if marks is None and self._known is not None:  # the same, bit for bit, as of a whole batch
            marks = seen.loss.values_and_marks(seen.anchor.theta, points.X, points.y)[1]
        ranks, numbers, totals = survey(self._sampler, seen, self._seed, marks, self._known)
        if totals is not None:
            self._totals.add(totals)
        self._stratified = numbers is not None
        live = points.weights > 0
        places = self._placed(np.zeros(len(points), dtype=np.int8) if numbers is None else numbers, points)
        counts = np.bincount(places[live], minlength=len(self._places))
        sums, rounded = sums_by_place(points.weights, places, len(self._places))
        for place in np.flatnonzero(counts):
            self._counts[place] += int(counts[place])
            self._weights[place].add(sums[place], rounded[place])
        self.n_points += int(counts.sum())
        self._lowest.add(points, ranks, places)

    def choose(self, size: int) -> tuple[WeightedPoints, Chosen, bool]:
        """Choose the points that stand for all, out of those held; and tell whether they are calibrated."""
        held = self._lowest.held()
        assert held is not None
        points, ranks, _ = held
        groups, sizes, totals, place_groups = self._grouped(held, size)
        found = draw(self._seed, ranks, points.ids, groups, sizes)
        own = points.weights[found.rows]

        def rest(group: int, kept: Array) -> float:
            whole = RunningSum()
            for weight in (self._weights[place] for place in np.flatnonzero(place_groups == group)):
                whole.add(*weight.parts)
            return whole.less(own[kept])

        weights = scaled(found, own, totals, rest)
        calibrates = self._known is not None and size < self.n_points
        if calibrates:
            found, weights = self._calibrated(points, found, weights, size)
        return points, Chosen(found.rows, weights, found.inclusion, found.groups), calibrates

    def _calibrated(
        self, points: WeightedPoints, found: Draw, weights: Array, size: int
    ) -> tuple[Draw, Array]:
        """Calibrate to the totals over all: no more of them than so many points can carry."""
        assert self._known is not None
        known = known_of(self._known.loss, self._known.anchor, size, points)
        order = np.argsort(points.ids[found.rows])  # so that rounding does not depend on where rows stand
        found = Draw(*(column[order] for column in found))
        taken = points.pick(found.rows, weights[order])
        totals = self._totals.value[: known.n_columns]
        return found, Calibration(known.columns(taken), taken.weights).weights(totals)

    def _grouped(self, held: Held, size: int) -> tuple[Array | None, Array, Array, Array]:
        """Share the size out: the groups of points, their sizes and weights, and the groups of places."""
        weights = np.array([weight.value for weight in self._weights])
        if not self._stratified:
            return None, np.array([size]), weights, np.zeros(1, dtype=np.int32)
        numbers = np.array(list(self._places))  # in the order of their places
        order = np.argsort(numbers)
        strata = Strata(numbers[order], np.array(self._counts)[order], weights[order])
        pooled, sizes = shared_out(self._sampler, strata, size)
        place_groups = np.empty(len(numbers), dtype=np.int32)
        place_groups[order] = pooled
        return place_groups[held.places], sizes, np.bincount(pooled, strata.weights), place_groups

    def _placed(self, numbers: Array, points: WeightedPoints) -> Array:
        """Give points the places of their strata; a new stratum gets the next place."""
        strata, seat, seats = strata_of(numbers, points.weights)
        for number in strata.numbers.tolist():
            if number not in self._places:
                self._places[number] = len(self._places)
                self._counts.append(0)
                self._weights.append(RunningSum())
        lookup = np.zeros(int(seat.max()) + 1, dtype=np.intp)
        lookup[seats] = [self._places[number] for number in strata.numbers.tolist()]
        return lookup.take(seat)


def _refuse_infinite(seen: Seen) -> None:
    """Raise ValueError if a point that is not suspected costs infinitely much, or nobody knows how much."""
    if np.isfinite(seen.losses).all():
        return
    odd = np.flatnonzero(~np.isfinite(seen.losses) & (seen.points.weights > 0))
    if odd.size:
        refuse_infinite(seen.points.ids[odd[0]], seen.losses[odd[0]])
