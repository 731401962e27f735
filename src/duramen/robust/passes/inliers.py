"""The suspected inliers: the smallest ranks of every stratum, and totals over all of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np

from duramen.points import WeightedPoints
from duramen.robust.choice import Chosen
from duramen.robust.outlook import refuse_infinite
from duramen.robust.passes.exact import ExactSums
from duramen.robust.passes.lowest import Held, Lowest
from duramen.robust.passes.suspects import picked
from duramen.robust.survey import survey, surveyed_totals
from duramen.rows import Array
from duramen.sampling import RankedSampler, Seen
from duramen.sampling.base import Strata, ceiling_of, ranked, shared_out, strata_of
from duramen.sampling.calibration import Calibration, Known, known_of
from duramen.sampling.ranks import Draw, draw, scaled, uniforms

__all__ = ["InlierState", "Inliers"]

_WORTHWHILE = 0.25  # the share of rows up to which it is quicker to look at few than at all


@dataclass(frozen=True, eq=False)
class InlierState:
    """What is known of inliers: enough to go on, and to choose from them.

    Attributes
    ----------
    numbers, counts : arrays
        The strata that have come, going up, and how many points each has.
    weights : ExactSums
        What each stratum weighs.
    totals : ExactSums or None
        Over all points, of what the coreset is calibrated to.
    stratified : bool
        Whether the sampler makes strata.
    held : Held or None
        The points of the smallest ranks of each stratum, in the order of their ids; their places are
        the numbers of their strata.
    """

    numbers: Array
    counts: Array
    weights: ExactSums
    totals: ExactSums | None
    stratified: bool
    held: Held | None


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
        self._totals = None if known is None else ExactSums(known.n_columns)
        self._places: dict[int, int] = {}  # of each stratum's number
        self._counts: list[int] = []
        self._weights = ExactSums(0)
        self._stratified = False
        self.n_points = 0

    def add(self, seen: Seen, marks: Array | None) -> None:
        """Take in the inliers of a batch; those of weight zero count for nothing."""
        _refuse_infinite(seen)
        rows = self._promising(seen)
        if rows is None:
            ranks, numbers, totals = survey(self._sampler, seen, self._seed, marks, self._known)
            places = self._count(seen.points, numbers)
            self._lowest.add(seen.points, ranks, places)
        else:
            totals = surveyed_totals(seen, marks, self._known)
            self._count(seen.points, None)
            few = picked(seen, rows)
            self._lowest.add(few.points, ranked(self._sampler, few, self._seed), np.zeros(len(few), np.int8))
        if self._totals is not None:
            self._totals.add(totals)

    def add_few(self, seen: Seen) -> None:
        """Take in points that were held back; what each adds does not depend on which others do."""
        _refuse_infinite(seen)
        if self._known is not None and self._totals is not None:
            self._totals.add_rows(self._known.columns(seen.points) * seen.points.weights[:, None])
        places = self._count(seen.points, self._sampler.strata(seen))
        self._lowest.add(seen.points, ranked(self._sampler, seen, self._seed, steady=True), places)

    def absorb(self, state: InlierState) -> None:
        """Take in all that another has."""
        self._stratified |= state.stratified
        places = self._seats(state.numbers)
        for place, count in zip(places, state.counts.tolist(), strict=True):
            self._counts[place] += count
            self.n_points += count
        self._weights.absorb(state.weights, places)
        if self._totals is not None and state.totals is not None:
            self._totals.absorb(state.totals)
        if state.held is not None:
            points, ranks, numbers = state.held
            self._lowest.add(points, ranks, np.array(places)[np.searchsorted(state.numbers, numbers)])

    def state(self) -> InlierState:
        """Give what is known, in one order whatever the order in which it came."""
        numbers = np.array(list(self._places), dtype=np.int64)
        order = np.argsort(numbers)
        weights = ExactSums(len(numbers))
        weights.absorb(self._weights, np.argsort(order).tolist())
        held = self._lowest.held()
        if held is not None:
            points, ranks, places = held.by_id()
            held = Held(points, ranks, numbers[places])
        counts = np.array(self._counts, dtype=np.int64)[order]
        return InlierState(numbers[order], counts, weights, self._totals, self._stratified, held)

    def _promising(self, seen: Seen) -> Array | None:
        """Find the rows whose ranks may be among the smallest, by a bound on all scores; None for all."""
        limit = self._lowest.limit
        if limit is None or self._stratified:
            return None
        points = seen.points
        bound = limit * ceiling_of(self._sampler, seen)
        if not bound < _WORTHWHILE:
            return None
        return np.flatnonzero((uniforms(self._seed, points.ids) <= bound) & (points.weights > 0))

    def _count(self, points: WeightedPoints, numbers: Array | None) -> Array:
        """Count and weigh points by their strata, and give each the place of its own."""
        weights = points.weights
        if numbers is None:
            place = self._seats(np.zeros(1, dtype=np.int64))[0] if len(points) else 0
            count = int(np.count_nonzero(weights))
            if count:
                self._counts[place] += count
                self._weights.add_column(place, weights)
            self.n_points += count
            return np.zeros(len(points), dtype=np.int8)
        self._stratified = True
        places = self._placed(numbers, points)
        counts = np.bincount(places[weights > 0], minlength=len(self._places))
        for place in np.flatnonzero(counts).tolist():
            self._counts[place] += int(counts[place])
            self._weights.add_column(place, weights[places == place])
        self.n_points += int(counts.sum())
        return places

    def choose(self, size: int) -> tuple[WeightedPoints, Chosen, bool]:
        """Choose the points that stand for all, out of those held; and tell whether they are calibrated."""
        held = self._lowest.held()
        assert held is not None
        points, ranks, _ = held
        groups, sizes, totals, place_groups = self._grouped(held, size)
        found = draw(self._seed, ranks, points.ids, groups, sizes)
        own = points.weights[found.rows]

        def rest(group: int, kept: Array) -> float:
            return self._weights.less(np.flatnonzero(place_groups == group).tolist(), own[kept])

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
        assert self._totals is not None
        known = known_of(self._known.loss, self._known.anchor, size, points)
        order = np.argsort(points.ids[found.rows])  # so that rounding does not depend on where rows stand
        found = Draw(*(column[order] for column in found))
        taken = points.pick(found.rows, weights[order])
        totals = self._totals.values[: known.n_columns]
        return found, Calibration(known.columns(taken), taken.weights).weights(totals)

    def _grouped(self, held: Held, size: int) -> tuple[Array | None, Array, Array, Array]:
        """Share the size out: the groups of points, their sizes and weights, and the groups of places."""
        weights = self._weights.values
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
        """Give points the places of their strata."""
        strata, seat, seats = strata_of(numbers, points.weights)
        lookup = np.zeros(int(seat.max()) + 1, dtype=np.intp)
        lookup[seats] = self._seats(strata.numbers)
        return lookup.take(seat)

    def _seats(self, numbers: Array) -> list[int]:
        """Give strata their places; a new one gets the next."""
        for number in numbers.tolist():
            if number not in self._places:
                self._places[number] = len(self._places)
                self._counts.append(0)
        self._weights.grow(len(self._places))
        return [self._places[number] for number in numbers.tolist()]


def _refuse_infinite(seen: Seen) -> None:
    """Raise ValueError if a point that is not suspected costs infinitely much, or nobody knows how much."""
    if np.isfinite(seen.losses).all():
        return
    odd = np.flatnonzero(~np.isfinite(seen.losses) & (seen.points.weights > 0))
    if odd.size:
        refuse_infinite(seen.points.ids[odd[0]], seen.losses[odd[0]])
