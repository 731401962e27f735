"""The two passes over data that is read in batches: what each collects, mergeable in any order.

The first pass counts, and samples the points that an anchor is found on. The second collects
candidates: the points of the largest losses, the smallest ranks of all others, and exact totals over those.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, final

import numpy as np
from scipy import sparse

from duramen.arrays import Array, refuse_nonfinite
from duramen.coreset.exact import ExactSums
from duramen.coreset.view import (
    SAMPLE,
    Suspects,
    View,
    chances,
    check_finite,
    check_points,
    largest_losses,
    sample_of,
)
from duramen.losses.base import Loss
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
        if not self._n_waiting:
            return None
        kept = self._joined()
        self._parts, self._n_waiting, self._n_kept = [kept], 0, len(kept)
        if not kept.points.total_weight > self._enough:
            return None
        ids, losses = kept.points.ids, kept.losses
        top = largest_losses(losses, ids, kept.points.weights, self._enough)
        lowest = losses[top].min()
        self._edge = float(lowest), int(ids[top][losses[top] == lowest].min())
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


class Form(NamedTuple):
    """The format that all batches share."""

    n_columns: int
    dtype: str
    sparse: bool
    labelled: bool

    def __str__(self) -> str:
        kind = f"{'sparse ' if self.sparse else ''}{self.dtype}"
        return f"{self.n_columns} columns of {kind}, {'with' if self.labelled else 'without'} labels"


def form_of(points: WeightedPoints) -> Form:
    """Return the format of points."""
    X = points.X
    return Form(points.n_columns, X.dtype.name, sparse.issparse(X), points.y is not None)


@dataclass(frozen=True, eq=False)
class FirstPassResult:
    """The result of the first pass.

    Attributes
    ----------
    n_rows, n_points : int
        The number of rows, and of those with a positive weight.
    weight : ExactSums
        Their total weight.
    form : Form or None
        The format of the rows; None where there are none.
    classes : tuple of float
        The smallest and the largest label, for a loss that classifies.
    kept : RankedPoints or None
        The points of positive weight with the smallest random ranks, sorted by id.
    """

    n_rows: int
    n_points: int
    weight: ExactSums
    form: Form | None
    classes: tuple[float, ...]
    kept: RankedPoints | None

    @property
    def is_short(self) -> bool:
        """Whether fewer points were kept than the sample needs."""
        n_kept = 0 if self.kept is None else len(self.kept.points)
        return n_kept <= SAMPLE and n_kept < self.n_points

    @property
    def total(self) -> float:
        """The total weight of all points."""
        return float(self.weight.values)

    def sample(self) -> WeightedPoints:
        """Sample at most 20,000 points of positive weight, as ``anchor_sample`` does in memory.

        Raises
        ------
        ValueError
            If there are none.
        """
        if not self.n_rows:
            raise ValueError("there are no points; at least one row is needed")
        if not np.isfinite(self.total):
            raise ValueError("weights add up to infinity; scale them down")
        if self.kept is None:
            raise ValueError("all weights are zero; pass some positive weights")
        return sample_of(self.kept.points, self.kept.ranks)


@final
class FirstPass:
    """The first pass, in progress.

    Parameters
    ----------
    loss : Loss
    seed : int
    limit : float
        A rank that no sampled point exceeds, almost certainly.
    """

    def __init__(self, loss: Loss, seed: int, limit: float = np.inf) -> None:
        self._loss, self._seed, self._limit = loss, seed, limit
        self._lowest = BottomK(SAMPLE + 1)
        self._form: Form | None = None
        self._classes: set[float] = set()
        self.n_rows, self._n_points, self._weight = 0, 0, ExactSums()

    def add(self, points: WeightedPoints) -> None:
        """Add a batch, or raise TypeError or ValueError if the loss does not accept it."""
        loss = self._loss
        check_points(points, loss)
        self._agree(form_of(points))
        refuse_nonfinite(points.X)
        if points.y is not None:
            loss.check_labels(points.y)
            if loss.classifies:
                self._check_classes(float(points.y.min()), float(points.y.max()))
        ranks = chances(self._seed, points.ids, points.weights)
        if self._limit < np.inf:
            ranks[ranks > self._limit] = np.inf
        self._lowest.add(points, ranks, np.zeros(len(points), dtype=np.int8))
        self._weight.add_rows(points.weights)
        self.n_rows += len(points)
        self._n_points += int(np.count_nonzero(points.weights))

    def absorb(self, other: FirstPassResult) -> None:
        """Merge another result into this one."""
        if other.form is not None:
            self._agree(other.form)
        if other.classes:
            self._check_classes(*other.classes)
        if other.kept is not None:
            self._lowest.add(*other.kept)
        self._weight.absorb(other.weight)
        self.n_rows += other.n_rows
        self._n_points += other.n_points

    def summary(self) -> FirstPassResult:
        """Return the result, the same in whatever order batches were added."""
        kept = self._lowest.kept()
        classes = tuple(sorted({min(self._classes), max(self._classes)})) if self._classes else ()
        return FirstPassResult(
            self.n_rows, self._n_points, self._weight, self._form, classes, kept and kept.by_id()
        )

    def _agree(self, form: Form) -> None:
        """Raise ValueError unless the format is that of earlier batches."""
        self._form = self._form or form
        if form != self._form:
            raise ValueError(
                f"batches do not match: some have {self._form}, others {form}; use one format for all"
            )

    def _check_classes(self, *classes: float) -> None:
        """Check that all batches use the same labels for the classes."""
        self._classes |= set(classes)
        loss: Any = self._loss
        try:
            loss.check_labels(np.array(sorted(self._classes)))
        except ValueError:
            raise ValueError(
                f"the labels of the batches do not match: {self._loss!r} does not take "
                f"{sorted(self._classes)} together; use the same labels in all batches"
            ) from None


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
