"""Streaming selection: the smallest ranks, and the largest losses, of points that arrive in batches."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple, final

import numpy as np

from duramen.arrays import Array
from duramen.coreset.view import largest_losses
from duramen.points import WeightedPoints
from duramen.samplers.base import AnchoredPoints


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
