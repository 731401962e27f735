"""The second pass: collect the rows to choose a coreset from.

Candidates are the points of the largest losses, the smallest ranks of all
others, and exact totals over those others.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, final

import numpy as np

from duramen.arrays import Array
from duramen.coreset.choose import Suspects
from duramen.coreset.exact import ExactSums
from duramen.coreset.view import View, check_finite, largest_losses
from duramen.points import WeightedPoints
from duramen.samplers.base import (
    AnchoredPoints,
    Entries,
    RankedRows,
    RankedSampler,
    Sampler,
    Strata,
    compute_ranks,
)


class RankedPoints(NamedTuple):
    """Points, the number by which each is kept, and the stratum of each."""

    points: WeightedPoints
    ranks: Array
    strata: Array

    def take(self, rows: Array) -> RankedPoints:
        """Copy the points numbered ``rows``, which must be distinct."""
        points = self.points.take_unchecked(rows, self.points.weights[rows])
        return RankedPoints(points, self.ranks[rows], self.strata[rows])

    def by_id(self) -> RankedPoints:
        """Sort by id, without a copy where they are sorted."""
        return self if _ascends(self.points.ids) else self.take(np.argsort(self.points.ids))


@final
class BottomK:
    """The ``k`` points of the smallest ranks in each stratum, and those that tie with the last of them.

    The result depends on the points that arrived, not on their order or batches. At
    most twice as many are stored: new points wait until they are as many, and then
    all are cut together.

    Parameters
    ----------
    k : int
    """

    def __init__(self, k: int) -> None:
        self._k = k
        self._limits = np.empty(0)  # by stratum, the rank that no later point may exceed
        self._parts: list[RankedPoints] = []
        self._n_waiting, self._n_kept = 0, 0

    def __len__(self) -> int:
        return self._n_kept

    def add(self, points: WeightedPoints, ranks: Array, strata: Array) -> None:
        """Copy the points that may stay; an infinite rank means absence, strata are numbered from 0."""
        missing = int(strata.max(initial=-1)) + 1 - len(self._limits)
        if missing > 0:
            self._limits = np.append(self._limits, np.full(missing, np.inf))
        limits = self._limits[0] if len(self._limits) == 1 else self._limits[strata]
        rows = np.flatnonzero(ranks <= limits)
        rows = rows[ranks[rows] < np.inf]
        rows = rows[self._smallest(ranks[rows], strata[rows])]
        if not len(rows):
            return
        self._parts.append(RankedPoints(points, ranks, strata).take(rows))
        self._n_waiting, self._n_kept = self._n_waiting + len(rows), self._n_kept + len(rows)
        if self._n_waiting > max(self._n_kept // 2, self._k):
            self._cut()

    def kept(self) -> RankedPoints | None:
        """Return the points that are left; None where there never were any."""
        if self._n_waiting:
            self._cut()
        return self._parts[0] if self._parts else None

    def _cut(self) -> None:
        points, ranks, strata = zip(*self._parts, strict=True)
        kept = RankedPoints(concatenate_points(points), np.concatenate(ranks), np.concatenate(strata))
        rows = self._smallest(kept.ranks, kept.strata)
        if len(rows) < len(kept.ranks):
            kept = kept.take(rows)
        self._parts, self._n_waiting, self._n_kept = [kept], 0, len(kept.ranks)

    def _smallest(self, ranks: Array, strata: Array) -> Array:
        """Find the smallest ranks of each stratum, and lower the limits accordingly."""
        if len(ranks) <= self._k:
            return np.arange(len(ranks))
        for stratum in np.flatnonzero(np.bincount(strata) >= self._k):
            mine = ranks if len(self._limits) == 1 else ranks[strata == stratum]
            self._limits[stratum] = np.partition(mine, self._k - 1)[self._k - 1]
        return np.flatnonzero(ranks <= self._limits[strata])


def _ascends(ids: Array) -> bool:
    return bool((ids[1:] > ids[:-1]).all())


def concatenate_points(parts: Sequence[WeightedPoints]) -> WeightedPoints:
    """Join the points of several batches; raise ValueError if an id occurs in two of them."""
    if len(parts) == 1:
        return parts[0]
    try:
        return WeightedPoints.concat(parts)
    except ValueError:
        ids, counts = np.unique(np.concatenate([part.ids for part in parts]), return_counts=True)
        repeated = ids[counts > 1]
        if not repeated.size:
            raise
        raise ValueError(f"ids must be distinct; id {repeated[0]} occurs in more than one row") from None


_MARGIN = 1e-6  # more than the relative rounding error of sums of weights


@final
class LargestLosses:
    """The points of the largest (loss, id) that together weigh a little more than ``weight``.

    As points arrive, the edge only moves up: a point below it is an inlier for good.
    At most twice as many are stored: new points wait until they are as many.

    Parameters
    ----------
    weight : float
        How much weight to suspect of all the data.
    floor : float
        A loss below which no point will be suspected.
    """

    def __init__(self, weight: float, floor: float = -np.inf) -> None:
        self._weight = weight
        self._enough = weight * (1 + _MARGIN)
        self._floor = floor
        self._edge: tuple[float, int] | None = None  # loss and id of the last that may be suspected
        self._parts: list[AnchoredPoints] = []
        self._n_waiting, self._n_kept = 0, 0  # added since the last cut, and left by it

    def among(self, anchored: AnchoredPoints) -> Array:
        """Find the rows that may be suspected; the others are inliers."""
        points, losses = anchored.points, anchored.losses
        if not self._weight:
            return np.empty(0, dtype=np.intp)
        loss, last_id = self._edge or (self._floor, -math.inf)
        rows = np.flatnonzero(losses >= loss)
        rows = rows[((losses[rows] > loss) | (points.ids[rows] > last_id)) & (points.weights[rows] > 0)]
        if float(points.weights[rows].sum()) > self._enough:
            rows = rows[largest_losses(losses[rows], points.ids[rows], points.weights[rows], self._enough)]
        return rows

    def add(self, anchored: AnchoredPoints) -> AnchoredPoints | None:
        """Keep points that may be suspected; return those that can no longer be."""
        self._parts.append(anchored)
        self._n_waiting += len(anchored)
        return self.cut() if self._n_waiting > self._n_kept else None

    def kept(self) -> AnchoredPoints | None:
        """Return all that may be suspected, sorted by id; None where there are none."""
        if not self._parts:
            return None
        kept = self._joined()
        ids = kept.points.ids
        return kept if _ascends(ids) else kept.take_unchecked(np.argsort(ids))

    def cut(self) -> AnchoredPoints | None:
        """Keep no more than are needed; return the others, if there are any."""
        if not self._parts:
            return None
        kept = self._joined()
        self._parts, self._n_waiting, self._n_kept = [kept], 0, len(kept)
        if not kept.points.total_weight > self._enough:
            return None
        ids, losses = kept.points.ids, kept.losses
        top = largest_losses(losses, ids, kept.points.weights, self._enough)
        self._edge = min(zip(losses[top].tolist(), ids[top].tolist(), strict=True))
        if len(top) == len(kept):
            return None
        self._parts, self._n_kept = [kept.take_unchecked(top)], len(top)
        rest = np.ones(len(kept), dtype=bool)
        rest[top] = False
        return kept.take_unchecked(np.flatnonzero(rest))

    def _joined(self) -> AnchoredPoints:
        first = self._parts[0]
        if len(self._parts) == 1:
            return first
        points = concatenate_points([part.points for part in self._parts])
        losses = np.concatenate([part.losses for part in self._parts])
        return AnchoredPoints(points, first.loss, first.anchor, losses)


@dataclass(frozen=True, eq=False)
class Collected:
    """The result of the second pass over some rows: mergeable, and enough to choose from them.

    Attributes
    ----------
    n_rows, n_points : int
        The number of rows, and of those with a positive weight.
    suspects : AnchoredPoints or None
        Those that may be suspected, sorted by id. All others are inliers.
    numbers, counts : arrays
        The numbers of the inliers' strata, in ascending order, and how many points each has.
    weights : ExactSums
        The weight of each stratum.
    totals : ExactSums or None
        Over the inliers, of the features that weights are calibrated to.
    kept : RankedPoints or None
        The inliers of the smallest ranks of each stratum, sorted by id, with the numbers of their strata.
    """

    n_rows: int
    n_points: int
    suspects: AnchoredPoints | None
    numbers: Array
    counts: Array
    weights: ExactSums
    totals: ExactSums | None
    kept: RankedPoints | None


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
        self._lowest = BottomK(view.settings.by_size.size + 1)  # the next rank gives the probabilities
        self._totals = None if view.features is None else ExactSums(view.features.n_columns)
        self._index: dict[int, int] = {}  # of each stratum's number, in the lists below
        self._counts: list[int] = []
        self._weights = ExactSums(0)
        self.n_rows, self._n_points = 0, 0

    def add(self, points: WeightedPoints) -> None:
        """Add a batch: keep the points that may be suspected; all others are inliers."""
        scored = self._view.score(points, self._outer.among)
        if self._totals is not None and scored.totals is not None:
            self._totals.add(scored.totals)
        self._add_inliers(RankedRows(scored.inner.points, scored.ranks, scored.strata))
        if len(scored.outer):
            self._suspect(replace(scored.inner, points=points).take_unchecked(scored.outer))
        self.n_rows += len(points)
        self._n_points += int(np.count_nonzero(points.weights))

    def absorb(self, other: Collected) -> None:
        """Merge other candidates into these."""
        indices = self._count(Strata(other.numbers, other.counts, np.empty(0)))
        self._weights.absorb(other.weights, at=indices)
        if self._totals is not None and other.totals is not None:
            self._totals.absorb(other.totals)
        if other.kept is not None:
            points, ranks, numbers = other.kept
            self._lowest.add(points, ranks, indices[np.searchsorted(other.numbers, numbers)])
        if other.suspects is not None:
            self._suspect(other.suspects)
        self.n_rows += other.n_rows
        self._n_points += other.n_points

    def release(self, anchored: AnchoredPoints | None) -> None:
        """Add former suspects to the inliers; what each contributes does not depend on the others."""
        if anchored is None:
            return
        check_finite(anchored)
        points, view = anchored.points, self._view
        assert isinstance(view.sampler, RankedSampler)
        if view.features is not None and self._totals is not None:
            self._totals.add_rows(view.features.columns(points) * points.weights[:, None])
        ranks = compute_ranks(view.sampler, anchored, view.seed, steady=True)
        self._add_inliers(RankedRows(points, ranks, view.sampler.strata(anchored)))

    def summary(self) -> Collected:
        """Return the candidates, the same in whatever order points were added."""
        self.release(self._outer.cut())
        numbers = np.array(list(self._index), dtype=np.int64)
        order = np.argsort(numbers)
        kept = self._lowest.kept()
        if kept is not None:
            kept = kept.by_id()
            kept = kept._replace(strata=numbers[kept.strata])
        counts = np.array(self._counts, dtype=np.int64)[order]
        suspects = self._outer.kept()
        weights = self._weights.take(order)
        return Collected(
            self.n_rows, self._n_points, suspects, numbers[order], counts, weights, self._totals, kept
        )

    def _suspect(self, anchored: AnchoredPoints) -> None:
        self.release(self._outer.add(anchored))

    def _add_inliers(self, ranked: RankedRows) -> None:
        strata, places, weights = ranked.strata(), ranked.places, ranked.points.weights
        indices = self._count(strata)
        for at, index in enumerate(indices.tolist()):
            part = ExactSums()
            part.add_rows(weights if places is None else weights[places == at + 1])
            self._weights.absorb(part, at=[index])
        if len(indices):
            none = np.zeros(len(weights), dtype=np.int8)
            mine = none if places is None else np.append(0, indices)[places]
            self._lowest.add(ranked.points, ranked.ranks, mine)

    def _count(self, strata: Strata) -> Array:
        """Add to the counts of strata; return their indices: a new stratum gets the next one."""
        for number, count in zip(strata.numbers.tolist(), strata.counts.tolist(), strict=True):
            index = self._index.setdefault(number, len(self._index))
            if index == len(self._counts):
                self._counts.append(0)
            self._counts[index] += count
        self._weights.grow(len(self._counts))
        return np.array([self._index[number] for number in strata.numbers.tolist()], dtype=np.intp)


@final
class MergedCandidates:
    """Candidates of all rows, from the result of a pass over them."""

    def __init__(self, collected: Collected, view: View) -> None:
        self.n_points, outer = collected.n_points, collected.suspects
        rows = np.empty(0, dtype=np.intp)
        if outer is not None:
            points = outer.points
            rows = largest_losses(outer.losses, points.ids, points.weights, view.suspected)
            surplus = np.setdiff1d(np.arange(len(outer)), rows, assume_unique=True)
            if len(surplus):
                collector = Collector(view)
                collector.absorb(replace(collected, suspects=None))
                collector.release(outer.take_unchecked(surplus))
                collected = collector.summary()
        self._rows, self._outer, self._inner = rows, outer, collected

    def suspects(self) -> Suspects:
        if self._outer is None:
            return Suspects(self._rows, np.empty(0, dtype=np.int64), np.empty(0), np.empty(0))
        points, rows = self._outer.points, self._rows
        return Suspects(rows, points.ids[rows], self._outer.losses[rows], points.weights[rows])

    def strata(self) -> Strata:
        return Strata(self._inner.numbers, self._inner.counts, self._inner.weights.values)

    def smallest(self, pooled: Array, sizes: Array) -> Entries:
        points, ranks, strata = self._kept
        groups = pooled[np.searchsorted(self._inner.numbers, strata)]
        return Entries(np.arange(len(points)), points.ids, points.weights, ranks, groups)

    def rest(self, strata: Array, rows: Array) -> float:
        left = self._inner.weights.take(strata).total()
        left.add_rows(self._kept.points.weights[rows], -1)
        return float(left.values)

    def totals(self) -> Array | None:
        return None if self._inner.totals is None else self._inner.totals.values

    def reduce(self, sampler: Sampler, size: int, rng: np.random.Generator) -> tuple[Array, Array]:
        raise NotImplementedError("summaries are of samplers that rank points")

    def copy(self, outer: Array, inner: Array) -> WeightedPoints:
        kept = None if self._inner.kept is None else self._inner.kept.points
        parts = [(None if self._outer is None else self._outer.points, outer), (kept, inner)]
        taken = [part.take_unchecked(rows, part.weights[rows]) for part, rows in parts if part is not None]
        return concatenate_points(taken)

    @property
    def _kept(self) -> RankedPoints:
        assert self._inner.kept is not None
        return self._inner.kept
