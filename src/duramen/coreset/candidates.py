"""The second pass: collect the rows to choose a coreset from, and choose it.

Candidates are the points of the largest losses, the smallest ranks of all
others, and exact totals over those others.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, final

import numpy as np

from duramen.arrays import Array
from duramen.coreset.choose import Chosen, assemble, calibrate, choose_suspects, score_points
from duramen.coreset.coreset import Coreset
from duramen.coreset.exact import ExactSums, rounded, sum_in_units
from duramen.coreset.streaming import BottomK, LargestLosses, RankedPoints, concatenate_points
from duramen.coreset.suspects import split_at
from duramen.coreset.view import View, anchored_points, check_finite
from duramen.points import WeightedPoints
from duramen.samplers.base import (
    AnchoredPoints,
    Strata,
    allocate_size,
    compute_ranks,
    strata_of,
)
from duramen.samplers.calibration import calibration_features
from duramen.samplers.ranks import draw, scale_to_totals


@dataclass(frozen=True, eq=False)
class InlierState:
    """A summary of inliers: enough to add more, and to choose from them.

    Attributes
    ----------
    numbers, counts : arrays
        The numbers of the strata, in ascending order, and how many points each has.
    weights : list of int
        The weight of each stratum, in units of the smallest float.
    totals : ExactSums or None
        Over all points, of the features that weights are calibrated to.
    stratified : bool
        Whether the sampler makes strata.
    kept : RankedPoints or None
        The points of the smallest ranks of each stratum, sorted by id, with the numbers of their strata.
    """

    numbers: Array
    counts: Array
    weights: list[int]
    totals: ExactSums | None
    stratified: bool
    kept: RankedPoints | None


@final
class Inliers:
    """Collect what is needed to choose from the inliers later.

    Parameters
    ----------
    view : View
    """

    def __init__(self, view: View) -> None:
        self._view, self._features = view, view.features
        self._lowest = BottomK(view.plan.size + 1)  # the next rank gives the others their probabilities
        self._totals = None if view.features is None else ExactSums(view.features.n_columns)
        self._index: dict[int, int] = {}  # of each stratum's number, in the lists below
        self._counts: list[int] = []
        self._weights: list[int] = []
        self._stratified = False

    def add(self, anchored: AnchoredPoints, cache: Array | None) -> None:
        """Add the inliers of a batch; points of weight zero are ignored."""
        check_finite(anchored)
        sampler, seed = self._view.sampler, self._view.seed
        ranks, numbers, totals = score_points(sampler, anchored, seed, cache, self._features)
        self._lowest.add(anchored.points, ranks, self._count(anchored.points, numbers))
        if self._totals is not None:
            self._totals.add(totals)

    def add_few(self, anchored: AnchoredPoints) -> None:
        """Add former suspects; what each contributes does not depend on the others."""
        check_finite(anchored)
        points, sampler = anchored.points, self._view.sampler
        if self._features is not None and self._totals is not None:
            self._totals.add_rows(self._features.columns(points) * points.weights[:, None])
        indices = self._count(points, sampler.strata(anchored))
        self._lowest.add(points, compute_ranks(sampler, anchored, self._view.seed, steady=True), indices)

    def absorb(self, state: InlierState) -> None:
        """Merge another state into this one."""
        self._stratified |= state.stratified
        indices = self._indices(state.numbers)
        for index, count, weight in zip(indices, state.counts.tolist(), state.weights, strict=True):
            self._counts[index] += count
            self._weights[index] += weight
        if self._totals is not None and state.totals is not None:
            self._totals.absorb(state.totals)
        if state.kept is not None:
            points, ranks, numbers = state.kept
            self._lowest.add(points, ranks, np.array(indices)[np.searchsorted(state.numbers, numbers)])

    def state(self) -> InlierState:
        """Return the state, the same in whatever order points were added."""
        numbers = np.array(list(self._index), dtype=np.int64)
        order = np.argsort(numbers)
        weights = [self._weights[index] for index in order.tolist()]
        kept = self._lowest.kept()
        if kept is not None:
            kept = kept.by_id()
            kept = kept._replace(strata=numbers[kept.strata])
        counts = np.array(self._counts, dtype=np.int64)[order]
        return InlierState(numbers[order], counts, weights, self._totals, self._stratified, kept)

    def _count(self, points: WeightedPoints, numbers: Array | None) -> Array:
        """Count and weigh points by stratum; return the index of each point's stratum."""
        if numbers is None:
            for index in self._indices(np.zeros(min(len(points), 1), dtype=np.int64)):
                self._weigh(index, points.weights)
            return np.zeros(len(points), dtype=np.int8)
        self._stratified = True
        strata, places, occupied = strata_of(numbers, points.weights)
        lookup = np.zeros(int(places.max()) + 1, dtype=np.intp)
        lookup[occupied] = present = self._indices(strata.numbers)
        indices = lookup.take(places)
        for index in present:
            self._weigh(index, points.weights[indices == index])
        return indices

    def _weigh(self, index: int, weights: Array) -> None:
        count = int(np.count_nonzero(weights))
        if count:
            self._counts[index] += count
            self._weights[index] += sum_in_units(weights)

    def _indices(self, numbers: Array) -> list[int]:
        """Return the indices of strata; a new stratum gets the next one."""
        for number in numbers.tolist():
            if number not in self._index:
                self._index[number] = len(self._index)
                self._counts.append(0)
                self._weights.append(0)
        return [self._index[number] for number in numbers.tolist()]


@dataclass(frozen=True, eq=False)
class Candidates:
    """The result of the second pass: what a coreset is chosen from.

    Attributes
    ----------
    n_rows, n_points : int
        The number of rows, and of those with a positive weight.
    suspects : AnchoredPoints or None
        Those that may be suspected, sorted by id.
    inliers : InlierState
        Of all others.
    """

    n_rows: int
    n_points: int
    suspects: AnchoredPoints | None
    inliers: InlierState


@final
class Collector:
    """The second pass, in progress.

    Parameters
    ----------
    view : View
    """

    def __init__(self, view: View) -> None:
        self._view = view
        self._outer = LargestLosses(view.suspected, view.floor)
        self._inner = Inliers(view)
        self.n_rows, self._n_points = 0, 0

    def add(self, points: WeightedPoints) -> None:
        """Add a batch: keep the points that may be suspected; all others are inliers."""
        view = self._view
        anchored, cache = anchored_points(view.anchor, points, view.loss, cached=view.features is not None)
        rows = self._outer.among(anchored)
        if len(rows):
            rest = np.array(points.weights)
            rest[rows] = 0.0
            self._inner.add(replace(anchored, points=points.with_weights(rest)), cache)
            self._suspect(anchored.take_unchecked(rows))
        else:
            self._inner.add(anchored, cache)
        self.n_rows += len(points)
        self._n_points += int(np.count_nonzero(points.weights))

    def absorb(self, other: Candidates) -> None:
        """Merge other candidates into these."""
        self._inner.absorb(other.inliers)
        if other.suspects is not None:
            self._suspect(other.suspects)
        self.n_rows += other.n_rows
        self._n_points += other.n_points

    def summary(self) -> Candidates:
        """Return the candidates, the same in whatever order points were added."""
        self._release(self._outer.cut())
        return Candidates(self.n_rows, self._n_points, self._outer.kept(), self._inner.state())

    def _suspect(self, anchored: AnchoredPoints) -> None:
        self._release(self._outer.add(anchored))

    def _release(self, dropped: AnchoredPoints | None) -> None:
        if dropped is not None:
            self._inner.add_few(dropped)


def choose(candidates: Candidates, view: View, **metadata: Any) -> Coreset | None:
    """Choose the coreset of all points; None if the floor was too high to decide which are suspected."""
    suspects, state = candidates.suspects, candidates.inliers
    weight = 0.0 if suspects is None else suspects.points.total_weight
    if view.floor > -np.inf and weight < view.suspected:
        return None
    if suspects is not None:
        split = split_at(suspects.points, suspects.losses, view.suspected)
        if split.n_inner:
            inner = Inliers(view)
            inner.absorb(state)
            inner.add_few(suspects.take_unchecked(np.flatnonzero(split.inner > 0)))
            state = inner.state()
        suspects = suspects.take_unchecked(split.rows) if len(split.rows) else None
    n_outer, n_inner = 0 if suspects is None else len(suspects), int(state.counts.sum())
    sizes = view.plan.shares(n_outer, n_inner)
    parts, sides, calibrated = [], [], False
    if suspects is not None:
        points = suspects.points
        parts.append(points)
        sides.append(choose_suspects(points.ids, suspects.losses, points.weights, sizes[0], view.seed))
    if n_inner:
        points, chosen, calibrated = _choose_inliers(state, view, min(sizes[1], n_inner), n_inner)
        parts.append(points)
        sides.append(chosen)
    return assemble(
        *_concatenate_chosen(parts, sides),
        loss=view.loss,
        anchor=view.anchor,
        threshold=np.inf if suspects is None else float(suspects.losses.min()),
        n_points=candidates.n_points,
        n_suspected=n_outer,
        sampler=repr(view.sampler),
        calibrated=calibrated,
        seed=view.seed,
        **metadata,
    )


def _choose_inliers(
    state: InlierState, view: View, size: int, n_inner: int
) -> tuple[WeightedPoints, Chosen, bool]:
    """Choose the points that represent all inliers; return whether their weights are calibrated."""
    assert state.kept is not None
    points, ranks, strata = state.kept
    groups, sizes, totals = None, np.array([size]), np.array([rounded(units) for units in state.weights])
    pooled: Array = np.zeros(len(totals), dtype=np.int32)
    if state.stratified:
        pooled, sizes = allocate_size(view.sampler, Strata(state.numbers, state.counts, totals), size)
        groups, totals = pooled[np.searchsorted(state.numbers, strata)], np.bincount(pooled, totals)
    found = draw(view.seed, ranks, points.ids, groups, sizes)
    own = points.weights[found.rows]

    def rest(group: int, certain: Array) -> float:
        mine = np.flatnonzero(pooled == group).tolist()
        return rounded(sum(state.weights[stratum] for stratum in mine) - sum_in_units(own[certain]))

    weights = scale_to_totals(found, own, totals, rest)
    calibrates = view.features is not None and size < n_inner
    if calibrates:
        assert state.totals is not None
        features = calibration_features(view.loss, view.anchor, size, points)  # what so few points allow
        known = state.totals.values[: features.n_columns]
        found, weights = calibrate(points, found, weights, features, known)
    return points, Chosen(found.rows, weights, found.inclusion, found.groups), calibrates


def _concatenate_chosen(
    parts: list[WeightedPoints], sides: list[Chosen]
) -> tuple[WeightedPoints, list[Chosen]]:
    """Copy the chosen points of all sides, one after the other."""
    ends = np.cumsum([len(side.rows) for side in sides])
    rows = np.split(np.arange(ends[-1]), ends[:-1])
    chosen = [side._replace(rows=mine) for side, mine in zip(sides, rows, strict=True)]
    taken = [
        points.take_unchecked(side.rows, points.weights[side.rows])
        for points, side in zip(parts, sides, strict=True)
    ]
    return concatenate_points(taken), chosen
