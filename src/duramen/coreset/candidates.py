"""The second pass: rows that may be suspected, the smallest ranks of all others, and totals over them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, final

import numpy as np

from duramen.arrays import Array
from duramen.ball import Anchor
from duramen.coreset import Coreset
from duramen.coreset.choose import (
    Chosen,
    Split,
    assemble,
    score_points,
    split_at,
    surveyed_totals,
    suspected_rows,
)
from duramen.coreset.exact import ExactSums
from duramen.coreset.settings import BySize
from duramen.coreset.view import anchored_points, refuse_infinite
from duramen.losses.base import Loss
from duramen.points import WeightedPoints
from duramen.samplers import AnchoredPoints, RankedSampler
from duramen.samplers.base import Strata, allocate_size, compute_ranks, largest_measure, strata_of
from duramen.samplers.calibration import Calibration, CalibrationFeatures, calibration_features
from duramen.samplers.ranks import Draw, draw, scale_to_totals, uniforms

__all__ = [
    "BottomK",
    "Candidates",
    "Collector",
    "InlierState",
    "Inliers",
    "LargestLosses",
    "RankedPoints",
    "View",
    "choose",
    "concatenate_points",
    "sort_by_id",
    "take_rows",
]


class RankedPoints(NamedTuple):
    """Points, the number by which each stays, and its place: which of several lists it is on."""

    points: WeightedPoints
    ranks: Array
    strata: Array

    def by_id(self) -> RankedPoints:
        """Put all in the order of the ids."""
        rows = np.argsort(self.points.ids)
        return RankedPoints(
            self.points.take_unchecked(rows, self.points.weights[rows]), self.ranks[rows], self.strata[rows]
        )


@final
class BottomK:
    """The ``most`` points of the smallest numbers at each place, and those that tie with the last of them.

    A function of the points that came, not of how. At most twice as many are
    held: newcomers wait until they are as many, and then all are cut together.

    Parameters
    ----------
    most : int
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._limits = np.empty(0)  # at each place, the number that none may exceed any more
        self._parts: list[RankedPoints] = []
        self._waiting, self._count = 0, 0

    def add(self, points: WeightedPoints, numbers: Array, places: Array) -> None:
        """Look at more points, and copy those that may stay; an infinite number means absence."""
        missing = int(places.max(initial=-1)) + 1 - len(self._limits)
        if missing > 0:
            self._limits = np.append(self._limits, np.full(missing, np.inf))
        limits = self._limits[0] if len(self._limits) == 1 else self._limits[places]
        rows = np.flatnonzero(numbers <= limits)
        rows = rows[numbers[rows] < np.inf]
        rows = rows[self._lowest(numbers[rows], places[rows])]
        if not len(rows):
            return
        self._parts.append(
            RankedPoints(points.take_unchecked(rows, points.weights[rows]), numbers[rows], places[rows])
        )
        self._waiting, self._count = self._waiting + len(rows), self._count + len(rows)
        if self._waiting > max(len(self) // 2, self._most):
            self._cut()

    @property
    def limit(self) -> float | None:
        """The number that none may exceed any more, where all are on one list; None if that is not known."""
        return float(self._limits[0]) if len(self._limits) == 1 and self._limits[0] < np.inf else None

    def __len__(self) -> int:
        return self._count

    def held(self) -> RankedPoints | None:
        """Give the points that are left; None where none ever came."""
        if self._waiting:
            self._cut()
        return self._parts[0] if self._parts else None

    def _cut(self) -> None:
        numbers = np.concatenate([part.ranks for part in self._parts])
        places = np.concatenate([part.strata for part in self._parts])
        points = concatenate_points([part.points for part in self._parts])
        rows = self._lowest(numbers, places)
        if len(rows) < len(numbers):
            points, numbers, places = (
                points.take_unchecked(rows, points.weights[rows]),
                numbers[rows],
                places[rows],
            )
        self._parts, self._waiting, self._count = [RankedPoints(points, numbers, places)], 0, len(numbers)

    def _lowest(self, numbers: Array, places: Array) -> Array:
        """Find the smallest numbers of each place, and lower the limits to what was found."""
        if len(numbers) <= self._most:
            return np.arange(len(numbers))
        for place in np.flatnonzero(np.bincount(places) >= self._most):
            mine = numbers if len(self._limits) == 1 else numbers[places == place]
            self._limits[place] = np.partition(mine, self._most - 1)[self._most - 1]
        return np.flatnonzero(numbers <= self._limits[places])


def concatenate_points(parts: Sequence[WeightedPoints]) -> WeightedPoints:
    """Join points of several batches; raise ValueError if an id stands in two of them."""
    if len(parts) == 1:
        return parts[0]
    ids = np.concatenate([part.ids for part in parts])
    try:
        return WeightedPoints.concat(parts)
    except ValueError:
        names, counts = np.unique(ids, return_counts=True)
        again = names[counts > 1]
        if not again.size:
            raise
        raise ValueError(f"ids must be distinct; id {again[0]} stands in more than one row") from None


_MARGIN = 1e-6  # more than what rounding makes of sums of weights


@final
class LargestLosses:
    """The points of the largest (loss, id) that together weigh a little more than ``weight``.

    As points come, the edge moves up only: a point below it is an inlier for good.
    At most twice as many are held: newcomers wait until they are as many.

    Parameters
    ----------
    weight : float
        How much weight to suspect of all that will come.
    floor : float
        A loss below which nobody will be suspected.
    """

    def __init__(self, weight: float, floor: float = -np.inf) -> None:
        self._weight = weight
        self._enough = weight * (1 + _MARGIN)
        self._floor = floor
        self._edge: tuple[float, int] | None = None  # the loss and the id of the last that may be suspected
        self._parts: list[AnchoredPoints] = []
        self._waiting, self._held = 0, 0  # how many have come since the last cut, and were left by it

    def among(self, seen: AnchoredPoints) -> Array:
        """Find the rows that may be suspected; the others are inliers."""
        points, losses = seen.points, seen.losses
        if not self._weight:
            return np.empty(0, dtype=np.intp)
        if self._edge is None:
            rows = np.flatnonzero(losses >= self._floor)
        else:
            loss, name = self._edge
            rows = np.flatnonzero(losses >= loss)
            rows = rows[(losses[rows] > loss) | (points.ids[rows] > name)]
        rows = rows[points.weights[rows] > 0]
        if float(points.weights[rows].sum()) > self._enough:
            rows = np.sort(rows[self._top(losses[rows], points.ids[rows], points.weights[rows])])
        return rows

    def add(self, seen: AnchoredPoints) -> AnchoredPoints | None:
        """Hold points that may be suspected; give those that no longer may."""
        self._parts.append(seen)
        self._waiting += len(seen)
        return self.cut() if self._waiting > self._held else None

    def held(self) -> AnchoredPoints | None:
        """Give all who may be suspected, in the order of their ids; None where nobody may be."""
        return sort_by_id(self._joined()) if self._parts else None

    def cut(self) -> AnchoredPoints | None:
        """Hold no more than are needed; give the others, if there are any."""
        if not self._parts:
            return None
        held = self._joined()
        points = held.points
        self._parts, self._waiting, self._held = [held], 0, len(held)
        if not float(points.weights.sum()) > self._enough:
            return None
        top = self._top(held.losses, points.ids, points.weights)
        self._edge = float(held.losses[top[-1]]), int(points.ids[top[-1]])
        if len(top) == len(held):
            return None
        self._parts, self._held = [take_rows(held, top)], len(top)
        rest = np.ones(len(held), dtype=bool)
        rest[top] = False
        return take_rows(held, np.flatnonzero(rest))

    def _joined(self) -> AnchoredPoints:
        one = self._parts[0]
        if len(self._parts) == 1:
            return one
        losses = np.concatenate([part.losses for part in self._parts])
        return AnchoredPoints(
            concatenate_points([part.points for part in self._parts]), one.loss, one.anchor, losses
        )

    def _top(self, losses: Array, ids: Array, weights: Array) -> Array:
        """Find the largest (loss, id), going down, until they weigh enough."""
        order = np.lexsort((ids, losses))[::-1]
        heavy = np.cumsum(weights[order])
        return order[: int(np.searchsorted(heavy, self._enough, side="right")) + 1]


def take_rows(seen: AnchoredPoints, rows: Array) -> AnchoredPoints:
    """Copy some rows of what was seen."""
    points = seen.points.take_unchecked(rows, seen.points.weights[rows])
    return AnchoredPoints(points, seen.loss, seen.anchor, seen.losses[rows])


def sort_by_id(seen: AnchoredPoints) -> AnchoredPoints:
    """Put what was seen in the order of the ids."""
    ids = seen.points.ids
    return seen if (ids[1:] > ids[:-1]).all() else take_rows(seen, np.argsort(ids))


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
    kept : RankedPoints or None
        The points of the smallest ranks of each stratum, in the order of their ids; their places are
        the numbers of their strata.
    """

    numbers: Array
    counts: Array
    weights: ExactSums
    totals: ExactSums | None
    stratified: bool
    kept: RankedPoints | None


@final
class Inliers:
    """What must be held of suspected inliers, to choose from them when all have come.

    Parameters
    ----------
    sampler : RankedSampler
    seed : int
    most : int
        No more points than so many will be asked for.
    features : CalibrationFeatures or None
        What so many points would be calibrated to, if they are to be.

    Attributes
    ----------
    n_points : int
        How many inliers have come.
    """

    def __init__(
        self, sampler: RankedSampler, seed: int, most: int, known: CalibrationFeatures | None
    ) -> None:
        self._sampler, self._seed, self._known = sampler, seed, known
        self._lowest = BottomK(most + 1)  # the rank that comes next tells how probable the others were
        self._totals = None if known is None else ExactSums(known.n_columns)
        self._places: dict[int, int] = {}  # of each stratum's number
        self._counts: list[int] = []
        self._weights = ExactSums(0)
        self._stratified = False
        self.n_points = 0

    def add(self, seen: AnchoredPoints, cache: Array | None) -> None:
        """Take in the inliers of a batch; those of weight zero count for nothing."""
        _refuse_infinite(seen)
        rows = self._promising(seen)
        if rows is None:
            ranks, numbers, totals = score_points(self._sampler, seen, self._seed, cache, self._known)
            places = self._count(seen.points, numbers)
            self._lowest.add(seen.points, ranks, places)
        else:
            totals = surveyed_totals(seen, cache, self._known)
            self._count(seen.points, None)
            few = take_rows(seen, rows)
            self._lowest.add(
                few.points, compute_ranks(self._sampler, few, self._seed), np.zeros(len(few), np.int8)
            )
        if self._totals is not None:
            self._totals.add(totals)

    def add_few(self, seen: AnchoredPoints) -> None:
        """Take in points that were held back; what each adds does not depend on which others do."""
        _refuse_infinite(seen)
        if self._known is not None and self._totals is not None:
            self._totals.add_rows(self._known.columns(seen.points) * seen.points.weights[:, None])
        places = self._count(seen.points, self._sampler.strata(seen))
        self._lowest.add(seen.points, compute_ranks(self._sampler, seen, self._seed, steady=True), places)

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
        if state.kept is not None:
            points, ranks, numbers = state.kept
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
            held = RankedPoints(points, ranks, numbers[places])
        counts = np.array(self._counts, dtype=np.int64)[order]
        return InlierState(numbers[order], counts, weights, self._totals, self._stratified, held)

    def _promising(self, seen: AnchoredPoints) -> Array | None:
        """Find the rows whose ranks may be among the smallest, by a bound on all scores; None for all."""
        limit = self._lowest.limit
        if limit is None or self._stratified:
            return None
        points = seen.points
        bound = limit * largest_measure(self._sampler, seen)
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

        weights = scale_to_totals(found, own, totals, rest)
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
        known = calibration_features(self._known.loss, self._known.anchor, size, points)
        order = np.argsort(points.ids[found.rows])  # so that rounding does not depend on where rows stand
        found = Draw(*(column[order] for column in found))
        taken = points.take_unchecked(found.rows, weights[order])
        totals = self._totals.values[: known.n_columns]
        return found, Calibration(known.columns(taken), taken.weights).weights(totals)

    def _grouped(self, held: RankedPoints, size: int) -> tuple[Array | None, Array, Array, Array]:
        """Share the size out: the groups of points, their sizes and weights, and the groups of places."""
        weights = self._weights.values
        if not self._stratified:
            return None, np.array([size]), weights, np.zeros(1, dtype=np.int32)
        numbers = np.array(list(self._places))  # in the order of their places
        order = np.argsort(numbers)
        strata = Strata(numbers[order], np.array(self._counts)[order], weights[order])
        pooled, sizes = allocate_size(self._sampler, strata, size)
        place_groups = np.empty(len(numbers), dtype=np.int32)
        place_groups[order] = pooled
        return place_groups[held.strata], sizes, np.bincount(pooled, strata.weights), place_groups

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


def _refuse_infinite(seen: AnchoredPoints) -> None:
    """Raise ValueError if a point that is not suspected costs infinitely much, or nobody knows how much."""
    if np.isfinite(seen.losses).all():
        return
    odd = np.flatnonzero(~np.isfinite(seen.losses) & (seen.points.weights > 0))
    if odd.size:
        refuse_infinite(seen.points.ids[odd[0]], seen.losses[odd[0]])


@dataclass(frozen=True, eq=False)
class View:
    """What the second pass must know: the problem, from where to look, and how many to choose.

    Attributes
    ----------
    loss : Loss
    anchor : Anchor
        With all that the sampler freezes.
    sampler : RankedSampler
    seed : int
    plan : BySize
    suspected : float
        How much weight is suspected.
    floor : float
        A loss below which nobody is; minus infinity where that is not known.
    features : CalibrationFeatures or None
        What the weights are calibrated to.
    """

    loss: Loss
    anchor: Anchor
    sampler: RankedSampler
    seed: int
    plan: BySize
    suspected: float
    floor: float
    features: CalibrationFeatures | None


@dataclass(frozen=True, eq=False)
class Candidates:
    """What the second pass tells of the points that came.

    Attributes
    ----------
    n_rows, n_points : int
        How many rows came, and how many of them weigh anything.
    suspects : AnchoredPoints or None
        Those who may be suspected, in the order of their ids.
    inliers : InlierState
        Of all others.
    """

    n_rows: int
    n_points: int
    suspects: AnchoredPoints | None
    inliers: InlierState


@final
class Collector:
    """The second pass, under way.

    Parameters
    ----------
    view : View
    """

    def __init__(self, view: View) -> None:
        self._view = view
        self._outer = LargestLosses(view.suspected, view.floor)
        self._inner = Inliers(view.sampler, view.seed, view.plan.size, view.features)
        self.n_rows, self._n_points = 0, 0

    def add(self, points: WeightedPoints) -> None:
        """Take in a batch: hold those that may be suspected, and all others are inliers."""
        look = self._view
        seen, cache = anchored_points(look.anchor, points, look.loss, cached=look.features is not None)
        if np.isnan(seen.losses).any():
            lost = np.flatnonzero(np.isnan(seen.losses) & (points.weights > 0))
            if lost.size:
                refuse_infinite(points.ids[lost[0]], seen.losses[lost[0]])
        rows = self._outer.among(seen)
        if len(rows):
            rest = np.array(points.weights)
            rest[rows] = 0.0
            self._inner.add(replace(seen, points=points.with_weights(rest)), cache)
            self._hold(take_rows(seen, rows))
        else:
            self._inner.add(seen, cache)
        self.n_rows += len(points)
        self._n_points += int(np.count_nonzero(points.weights))

    def absorb(self, other: Candidates) -> None:
        """Take in all that another has."""
        self._inner.absorb(other.inliers)
        if other.suspects is not None:
            self._hold(other.suspects)
        self.n_rows += other.n_rows
        self._n_points += other.n_points

    def summary(self) -> Candidates:
        """Give what is known, in one order whatever the order in which it came."""
        dropped = self._outer.cut()
        if dropped is not None:
            self._inner.add_few(dropped)
        return Candidates(self.n_rows, self._n_points, self._outer.held(), self._inner.state())

    def _hold(self, seen: AnchoredPoints) -> None:
        dropped = self._outer.add(seen)
        if dropped is not None:
            self._inner.add_few(dropped)


def choose(found: Candidates, view: View, **known: Any) -> Coreset | None:
    """Choose the coreset of all points that came; None if the floor was too high to tell who is suspected."""
    plan, seed = view.plan, view.seed
    held = found.suspects
    weight = 0.0 if held is None else held.points.total_weight
    if view.floor > -np.inf and weight < view.suspected:
        return None
    inner = Inliers(view.sampler, seed, plan.size, view.features)
    inner.absorb(found.inliers)
    suspected = _settled(held, view, inner)
    n_outer = 0 if suspected is None else len(suspected)
    sizes = plan.shares(n_outer, inner.n_points)
    calibrated = False
    sides = []
    if suspected is not None:
        everyone = Split(np.arange(n_outer), np.zeros(n_outer), 0, view.suspected, np.inf)
        sides.append((suspected.points, suspected_rows(suspected, everyone, sizes[0], seed)))
    if inner.n_points:
        points, chosen, calibrated = inner.choose(min(sizes[1], inner.n_points))
        sides.append((points, chosen))
    return assemble(
        *_together(sides),
        loss=view.loss,
        anchor=view.anchor,
        threshold=np.inf if suspected is None else float(suspected.losses.min()),
        n_points=found.n_points,
        n_suspected=n_outer,
        sampler=repr(view.sampler),
        calibrated=calibrated,
        seed=seed,
        **known,
    )


def _settled(held: AnchoredPoints | None, view: View, inner: Inliers) -> AnchoredPoints | None:
    """Tell who is suspected, now that all have come; whoever else was held is an inlier."""
    if held is None:
        return None
    split = split_at(held.points, held.losses, view.suspected)
    others = np.flatnonzero(split.inner > 0)
    if len(others):
        inner.add_few(take_rows(held, others))
    return take_rows(held, split.rows) if len(split.rows) else None


def _together(sides: list[tuple[WeightedPoints, Chosen]]) -> tuple[WeightedPoints, list[Chosen]]:
    """Put the chosen points of all sides beside each other, and let go of all others."""
    parts, chosen, start = [], [], 0
    for points, side in sides:
        parts.append(points.take_unchecked(side.rows, points.weights[side.rows]))
        chosen.append(side._replace(rows=np.arange(start, start + len(side.rows))))
        start += len(side.rows)
    return concatenate_points(parts), chosen
