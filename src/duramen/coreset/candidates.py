"""The second pass: collect the rows to choose a coreset from.

Candidates are the points of the largest losses, the smallest ranks of all
others, and exact totals over those others.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import final

import numpy as np

from duramen.arrays import Array
from duramen.coreset.exact import ExactSums
from duramen.coreset.streaming import BottomK, LargestLosses, RankedPoints, concatenate_points
from duramen.coreset.view import Suspects, View, check_finite, largest_losses
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
            places = np.ones(len(weights), dtype=np.int8) if places is None else places
            self._lowest.add(ranked.points, ranked.ranks, np.append(0, indices)[places])

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
