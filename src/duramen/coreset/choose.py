"""Choose a coreset from candidates: the only place that shares the size out, draws, scales and calibrates.

Candidates are collected from arrays, merged from summaries, or read off sorted
lists. Rows are references: only those that are chosen are copied.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np

from duramen.arrays import Array
from duramen.coreset.coreset import Calibration, Coreset
from duramen.coreset.view import BySize, Settings, Suspects, View, blind_view, calibration_features
from duramen.points import WeightedPoints
from duramen.samplers.base import (
    NOWHERE,
    OF_A_CLASS,
    AnchoredPoints,
    Chosen,
    RankedSampler,
    Sampler,
    Strata,
    Stratified,
    UniformSampler,
    draw_by_rank,
    ranked_rows,
)

_BINS_PER_DOUBLING = 8  # of the loss, where the size allows for them
_ABOVE = 1 << 20  # every number of a bin
_NOTHING = Chosen(*np.empty((4, 0), np.intp))


class Candidates(Stratified, Protocol):
    """What a coreset is chosen from: the suspected outliers, and the inliers by stratum."""

    def suspects(self) -> Suspects:
        """Return the suspected outliers."""

    def totals(self) -> Any:
        """Sum the calibration features over all inliers, where weights are calibrated."""

    def reduce(self, sampler: Sampler, size: int, rng: np.random.Generator) -> tuple[Array, Array]:
        """Let a sampler that does not rank points reduce the inliers: rows, and their weights."""

    def copy(self, outer: Array, inner: Array) -> WeightedPoints:
        """Copy rows of the suspects, and then of the inliers, with their own weights."""


def choose(
    candidates: Candidates, view: View, *, n_outliers: float, columns: tuple[str, ...] | None
) -> Coreset:
    """Choose the coreset: share the size between both sides, draw, scale, and calibrate the weights."""
    suspects, strata = candidates.suspects(), candidates.strata()
    n_outer, n_inner = len(suspects.rows), int(strata.counts.sum())
    sizes = view.settings.plan.sizes(n_outer, n_inner, candidates, view, n_outliers)
    outer = _choose_suspects(suspects, int(min(sizes[0], n_outer)), view, strata)
    size = int(min(sizes[1], n_inner))
    inner = _choose_inliers(candidates, view, size, n_inner)
    points = candidates.copy(suspects.rows[outer.rows], inner.rows)
    order = np.argsort(points.ids)
    weights, inclusion, groups = (
        np.concatenate(pair)[order] for pair in zip(outer[1:], inner[1:], strict=True)
    )
    points = points.take_unchecked(order, points.weights[order])
    calibrates = view.features is not None and 0 < size < n_inner
    if calibrates:
        mine = np.flatnonzero(groups >= 0)
        features = calibration_features(view.loss, view.anchor, size, points)  # what so few rows allow
        calibration = Calibration(features.columns(points.take(mine)), weights[mine])
        weights[mine] = calibration.weights(candidates.totals()[: features.n_columns])
    return Coreset(
        points=points.with_parts(weights=weights),
        suspected=groups < 0,
        own_weights=points.weights,
        inclusion=inclusion,
        groups=groups.astype(np.int32),
        loss=view.loss,
        anchor=None if view.blind else view.anchor,
        threshold=float(suspects.losses.min(initial=np.inf)),
        n_points=n_outer + n_inner,
        n_suspected=n_outer,
        n_outliers=n_outliers,
        sampler=repr(view.sampler),
        calibrated=calibrates,
        seed=view.seed,
        columns=columns,
    )


def keep_all(
    points: WeightedPoints, settings: Settings, *, n_outliers: float, columns: tuple[str, ...] | None
) -> Coreset:
    """Make a coreset of all points, where there is no view yet."""
    loss = settings.loss.measure(points)
    view = blind_view(replace(settings, loss=loss, plan=BySize(len(points))))
    core = choose(view.score(points), view, n_outliers=n_outliers, columns=columns)
    return replace(core, sampler="none: all points are kept")


@dataclass(frozen=True)
class _LossBins(UniformSampler):
    """Draw suspected outliers from bins of similar loss.

    The paper draws them uniformly. How many true outliers are among those drawn
    is then left to chance, and trimming weight z takes too few of them or too
    many. With the same share of every bin the sample is still uniform, and has
    as many of each kind as it should. The bin of a point depends on its own loss
    alone: bins are steps of a geometric scale, fine where the size allows. Some
    classes are set ``apart``, as none of their points may be drawn otherwise.
    """

    apart: tuple[int, ...] = ()

    def strata(self, anchored: AnchoredPoints) -> Array:
        with np.errstate(divide="ignore"):
            height = np.clip(np.log2(anchored.losses, dtype=np.float64), -2000, 2000)
        bins = np.floor(height * _BINS_PER_DOUBLING).astype(np.int64)
        if self.apart:
            classes = anchored.loss.classes_of(anchored.points.y).astype(np.int64)
            bins = np.where(np.isin(classes, self.apart), _ABOVE + classes, bins)
        return bins

    def allocate(self, strata: Strata, size: int) -> tuple[Array, Array]:
        """Pool two bins at a time until each has a few points."""
        apart = strata.numbers >= _ABOVE
        least = size // (2 * np.count_nonzero(apart) + 2)
        few = np.minimum(strata.counts[apart], min(least, OF_A_CLASS))
        binned, size = Strata(*(part[~apart] for part in strata)), size - few.sum()
        bins, groups = binned.numbers, np.arange(len(binned.numbers))
        while 4 * len(bins) > size and len(bins) > 1:
            bins, pooled = np.unique(bins >> 1 if bins[-1] > bins[0] + 1 else 0 * bins, return_inverse=True)
            groups = pooled[groups]
        groups, sizes = binned.share_out(size, groups)
        return np.append(groups, len(sizes) + np.arange(len(few))), np.append(sizes, few)


def _choose_suspects(suspects: Suspects, size: int, view: View, inner: Strata) -> Chosen:
    """Choose the rows that represent the suspected outliers."""
    if not size:
        return _NOTHING
    apart = _classes_apart(suspects, size, view, inner)
    if (size, apart) not in suspects.draws:
        sampler, n = _LossBins(apart), len(suspects.ids)
        points = WeightedPoints._from_parts(np.empty((n, 0)), suspects.labels, suspects.weights, suspects.ids)
        anchored = AnchoredPoints(points, view.loss, NOWHERE, suspects.losses)
        found = draw_by_rank(sampler, ranked_rows(sampler, anchored, view.seed), size, view.seed)
        suspects.draws[size, apart] = found._replace(groups=-1 - found.groups)
    return suspects.draws[size, apart]


def _classes_apart(suspects: Suspects, size: int, view: View, inner: Strata) -> tuple[int, ...]:
    """Find the classes that no inlier has, and so few of the suspected that none of them may be drawn.

    A sampler with strata of its own does not tell which classes the inliers have.
    """
    if not (view.by_class and size < len(suspects.ids)):
        return ()
    heavy = np.bincount(view.loss.classes_of(suspects.labels), suspects.weights)
    rare = (heavy > 0) & (size * heavy / heavy.sum() < OF_A_CLASS * (1 - 1e-9))
    found = np.setdiff1d(np.flatnonzero(rare), inner.numbers)
    fits = 2 * len(found) + 2 <= size and len(found) < np.count_nonzero(heavy)
    return tuple(found.tolist()) if fits else ()


def _choose_inliers(candidates: Candidates, view: View, size: int, n_inner: int) -> Chosen:
    """Choose the rows that represent the inliers: by rank, or by a sampler that is a black box."""
    if not size:
        return _NOTHING
    if isinstance(view.sampler, RankedSampler):
        return draw_by_rank(view.sampler, candidates, size, view.seed)
    bound = view.sampler.bind(view.loss, view.anchor)
    rows, weights = candidates.reduce(bound, size, np.random.default_rng(view.seed))
    inclusion = np.full(len(rows), 1.0 if len(rows) == n_inner else np.nan)
    return Chosen(rows, weights, inclusion, np.zeros(len(rows), np.int32))
