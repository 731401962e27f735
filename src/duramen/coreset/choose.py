"""Choose rows among suspects and inliers, and assemble the coreset."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any, NamedTuple

import numpy as np

from duramen.arrays import Array, scratch_rows
from duramen.coreset.coreset import Coreset
from duramen.parallel import one_blas_thread, sum_over_chunks
from duramen.points import WeightedPoints
from duramen.samplers.base import (
    AnchoredPoints,
    RankedSampler,
    Sampler,
    compute_ranks,
    draw_strata,
    reduce_rows,
)
from duramen.samplers.calibration import Calibration, CalibrationFeatures, calibration_features
from duramen.samplers.ranks import Draw, apportion, draw, scale_weights, uniforms

_BINS_PER_DOUBLING = 8  # of the loss, where the size allows for them
_FEW = 1000  # rows; up to here, limiting BLAS to one thread takes longer than the products


def loss_bins(losses: Array, weights: Array, size: int) -> tuple[Array, Array, Array]:
    """Group suspected outliers by similar loss: the group of each, sizes by weight, and group weights.

    The paper draws them uniformly. How many true outliers are among those drawn
    is then left to chance, and trimming weight z takes too few of them or too
    many. With the same share of every bin the sample is still uniform, and has
    as many of each kind as it should. The bin of a point depends on its own loss
    alone: bins are steps of a geometric scale, fine where the size allows.
    """
    bins, places = np.unique(loss_bins_of(losses), return_inverse=True)
    counts, bin_weights = np.bincount(places), np.bincount(places, weights)
    pooled, sizes, totals = share_loss_bins(bins, counts, bin_weights, size)
    return pooled[places], sizes, totals


def loss_bins_of(losses: Array) -> Array:
    """Return the number of each loss's bin, on the finest geometric scale: (n,) integers."""
    with np.errstate(divide="ignore"):
        height = np.clip(np.log2(np.asarray(losses, dtype=np.float64)), -2000, 2000)
    return np.floor(height * _BINS_PER_DOUBLING).astype(np.int64)


def share_loss_bins(bins: Array, counts: Array, weights: Array, size: int) -> tuple[Array, Array, Array]:
    """Pool bins until each can have a few points of the size: the group of each bin, sizes and totals.

    ``bins`` are the numbers of the bins that are not empty, in ascending order.
    """
    groups = np.arange(len(bins))
    while 4 * len(bins) > size and len(bins) > 1:  # a bin needs a few points: pool two at a time
        bins, pooled = np.unique(bins >> 1 if bins[-1] > bins[0] + 1 else 0 * bins, return_inverse=True)
        groups = pooled[groups]
    totals = np.bincount(groups, weights, minlength=len(bins))
    group_counts = np.bincount(groups, counts, minlength=len(bins)).astype(np.int64)
    return groups.astype(np.int32), apportion(totals, group_counts, size), totals


def score_points(
    sampler: RankedSampler,
    anchored: AnchoredPoints,
    seed: int,
    cache: Array | None,
    features: CalibrationFeatures | None,
    *,
    refuse: bool = True,
) -> tuple[Array, Array | None, Any]:
    """Compute the ranks, the strata and the totals of features, in one pass; weight zero is ignored."""
    points = anchored.points
    ranks = np.empty(len(points))
    probe = sampler.strata(anchored.take(slice(0, 1)))
    strata = None if probe is None else np.empty(len(points), dtype=np.asarray(probe).dtype)

    def score(chunk: slice) -> tuple[Array | float]:
        part = anchored.take(chunk)
        ranks[chunk] = compute_ranks(sampler, part, seed, refuse=refuse)
        if strata is not None:
            strata[chunk] = np.asarray(sampler.strata(part))
        if features is None:
            return (0.0,)
        part_cache = None if cache is None else cache[chunk]
        return (features.totals(part.points, part.losses, part_cache, part.points.weights),)

    rows = scratch_rows(points.X)  # long chunks: threads hand the interpreter's lock over less often
    with one_blas_thread() if len(points) > _FEW else nullcontext():
        (totals,) = sum_over_chunks(score, len(points), rows)
    return ranks, strata, totals


class Chosen(NamedTuple):
    """Rows of the data, and the weights with which they represent it."""

    rows: Array
    weights: Array
    inclusion: Array
    groups: Array


def choose_suspects(ids: Array, losses: Array, weights: Array, size: float, seed: int) -> Chosen:
    """Choose the rows that represent the suspected outliers, from bins of similar loss."""
    size = int(min(size, len(ids)))
    if not size:
        return no_rows()
    groups, sizes, totals = loss_bins(losses, weights, size)
    found = draw(seed, uniforms(seed, ids) / weights, ids, groups, sizes)
    scaled = scale_weights(found, weights, groups, totals)
    return Chosen(found.rows, scaled, found.inclusion, -1 - found.groups)


def choose_inliers(
    sampler: RankedSampler,
    inner: AnchoredPoints,
    n_inner: int,
    cache: Array | None,
    size: float,
    seed: int,
    calibrates: bool,
) -> tuple[Chosen, bool]:
    """Choose the rows that represent the inliers, by ranks; return whether weights are calibrated."""
    points = inner.points
    size = int(min(size, n_inner))
    if not size:
        return no_rows(), False
    features = None
    if calibrates and size < n_inner:
        features = calibration_features(inner.loss, inner.anchor, size, points)
    ranks, strata, totals = score_points(sampler, inner, seed, cache, features)
    found, weights = draw_strata(sampler, points, ranks, strata, size, seed)
    if features is not None:
        found, weights = calibrate(points, found, weights, features, totals)
    return Chosen(found.rows, weights, found.inclusion, found.groups), features is not None


def calibrate(
    points: WeightedPoints, found: Draw, weights: Array, features: CalibrationFeatures, totals: Array
) -> tuple[Draw, Array]:
    """Sort a draw by id, so that rounding does not depend on positions, and calibrate its weights."""
    order = np.argsort(points.ids[found.rows])
    found = Draw(*(column[order] for column in found))
    sample = points.take_unchecked(found.rows, weights[order])
    return found, Calibration(features.columns(sample), sample.weights).weights(totals)


def choose_by_black_box(sampler: Sampler, inner: AnchoredPoints, size: float, seed: int) -> Chosen:
    """Let a sampler without known inclusion probabilities reduce the inliers."""
    live = np.flatnonzero(inner.points.weights > 0)
    few = int(min(size, len(live)))
    if not few:
        return no_rows()
    bound = sampler.bind(inner.loss, inner.anchor)
    rows, weights = reduce_rows(bound, inner.points.take(live), few, np.random.default_rng(seed))
    inclusion = np.full(len(rows), 1.0 if len(rows) == len(live) else np.nan)
    return Chosen(live[rows], weights, inclusion, np.zeros(len(rows), dtype=np.int32))


def no_rows() -> Chosen:
    """Choose nothing."""
    return Chosen(np.empty(0, dtype=np.intp), np.empty(0), np.empty(0), np.empty(0, dtype=np.int32))


def assemble(points: WeightedPoints, sides: list[Chosen], **metadata: Any) -> Coreset:
    """Make the coreset from the rows chosen on both sides, sorted by id."""
    rows, weights, inclusion, groups = (np.concatenate(column) for column in zip(*sides, strict=True))
    order = np.argsort(points.ids[rows])
    rows, groups = rows[order], groups[order].astype(np.int32)
    return Coreset(
        points=points.take_unchecked(rows, weights[order]),
        suspected=groups < 0,
        own_weights=points.weights[rows],
        inclusion=inclusion[order],
        groups=groups,
        **metadata,
    )
