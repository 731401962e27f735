"""Split at the threshold, choose rows on each side, and assemble the coreset they make."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from duramen.arrays import Array, scratch_rows
from duramen.coreset import Coreset
from duramen.parallel import one_blas_thread, sum_over_chunks
from duramen.points import WeightedPoints
from duramen.samplers import AnchoredPoints, RankedSampler, Sampler
from duramen.samplers.base import compute_ranks, group_strata, reduce_rows
from duramen.samplers.calibration import Calibration, CalibrationFeatures, calibration_features
from duramen.samplers.ranks import Draw, apportion, draw, scale_weights, uniforms
from duramen.trimming import kept_weights

__all__ = [
    "Chosen",
    "Scores",
    "Split",
    "assemble",
    "black_box_rows",
    "loss_bins",
    "loss_bins_of",
    "ranked_rows",
    "score_points",
    "share_loss_bins",
    "split_at",
    "surveyed_totals",
    "suspected_rows",
]


_LOOK = 4096  # losses that show where the level about is
_A_DOUBLING = 8  # loss_bins of the ladder, where the size allows for them


@dataclass(frozen=True, eq=False)
class Split:
    """Both sides of the threshold.

    Attributes
    ----------
    rows : array of positions
        The suspected outliers, in the order of the data.
    inner : array (n,)
        The weights of the suspected inliers; zero for the others.
    n_inner : int
        How many suspected inliers there are, of positive weight.
    weight : float
        How much the suspected outliers weigh.
    threshold : float
        The smallest loss of a suspected point; infinite where there is none.
    """

    rows: Array
    inner: Array
    n_inner: int
    weight: float
    threshold: float


def split_at(points: WeightedPoints, losses: Array, weight: float) -> Split:
    """Suspect the points of the largest losses, as few as together weigh at least ``weight``.

    Of equal losses the larger id is suspected first: the order of table L.
    A point is never cut in two.

    Examples
    --------
    >>> import duramen as dm
    >>> split_at(dm.points([[0.0]] * 4), np.array([3.0, 9.0, 1.0, 9.0]), 1).rows
    array([3])
    """
    live = int(np.count_nonzero(points.weights > 0))
    if weight == 0:
        return Split(np.empty(0, dtype=np.intp), points.weights, live, 0.0, np.inf)
    rows = _worst(points, losses, min(weight, points.total_weight))
    inner = np.array(points.weights)
    inner[rows] = 0.0
    heavy = float(points.weights[rows].sum())
    return Split(rows, inner, live - len(rows), heavy, float(losses[rows].min(initial=np.inf)))


def _worst(points: WeightedPoints, losses: Array, weight: float) -> Array:
    """Find the rows of the largest losses; first among those above a level that a sample suggests."""
    weights, ids = points.weights, points.ids
    looked = losses[:: max(1, len(losses) // _LOOK)]
    share = min(1.0, 1.5 * weight / points.total_weight + 0.01)
    level = np.quantile(looked, 1 - share, method="lower")
    rows = np.flatnonzero(losses >= level)
    if not weight < float(weights[rows].sum()) * (1 - 1e-9) or np.isnan(losses).any():
        rows = np.arange(len(losses))
    kept = kept_weights(losses[rows], weights[rows], weight, ids[rows])
    return rows[kept < weights[rows]]


def loss_bins(losses: Array, weights: Array, size: int) -> tuple[Array, Array, Array]:
    """Cut suspected outliers into loss_bins of similar loss, each with its share of the size by weight.

    The paper draws them uniformly. How many true outliers are among those drawn
    is then left to chance, and weight z set aside takes too few of them or too
    many. With the same share of every rung the sample is uniform still, and holds
    as many of each kind as it should.

    Which rung a point is on depends on its own loss alone: loss_bins are steps of a
    geometric ladder, fine where the size allows.

    Returns
    -------
    groups : array (n,)
    sizes, totals : arrays
        How many to draw of each, and its weight.
    """
    names, place = np.unique(loss_bins_of(losses), return_inverse=True)
    groups, sizes, totals = share_loss_bins(names, np.bincount(place), np.bincount(place, weights), size)
    return groups[place], sizes, totals


def loss_bins_of(losses: Array) -> Array:
    """Give the number of each loss's rung on the finest ladder: (n,) integers."""
    with np.errstate(divide="ignore"):
        height = np.clip(np.log2(np.asarray(losses, dtype=np.float64)), -2000, 2000)
    return np.floor(height * _A_DOUBLING).astype(np.int64)


def share_loss_bins(names: Array, counts: Array, weights: Array, size: int) -> tuple[Array, Array, Array]:
    """Pool loss_bins until each can have a few points of the size: the group of each rung, sizes and totals.

    ``names`` are the numbers of the loss_bins that are there, going up.
    """
    groups = np.arange(len(names))
    while 4 * len(names) > size and len(names) > 1:  # a rung needs a few points: take two steps at a time
        names, pooled = np.unique(names >> 1 if names[-1] > names[0] + 1 else 0 * names, return_inverse=True)
        groups = pooled[groups]
    totals = np.bincount(groups, weights, minlength=len(names))
    many = np.bincount(groups, counts, minlength=len(names)).astype(np.int64)
    return groups.astype(np.int32), apportion(totals, many, size), totals


class Scores(NamedTuple):
    """Ranks and strata of all points, and totals over them."""

    ranks: Array
    strata: Array | None
    totals: Array | None


def score_points(
    sampler: RankedSampler,
    seen: AnchoredPoints,
    seed: int,
    cache: Array | None,
    known: CalibrationFeatures | None,
) -> Scores:
    """Look at all points once; those of weight zero count for nothing."""
    points = seen.points
    ranks = np.empty(len(points))
    probe = sampler.strata(seen.take(slice(0, 1)))
    strata = None if probe is None else np.empty(len(points), dtype=np.asarray(probe).dtype)

    def look(chunk: slice) -> tuple[Array | float]:
        part = seen.take(chunk)
        ranks[chunk] = compute_ranks(sampler, part, seed)
        if strata is not None:
            strata[chunk] = np.asarray(sampler.strata(part))
        if known is None:
            return (0.0,)
        here = None if cache is None else cache[chunk]
        return (known.totals(part.points, part.losses, here, part.points.weights),)

    rows = scratch_rows(points.X)  # long chunks: threads hand the interpreter's lock over less often
    with one_blas_thread():
        (totals,) = sum_over_chunks(look, len(points), rows)
    return Scores(ranks, strata, None if known is None else totals)


def surveyed_totals(
    seen: AnchoredPoints, cache: Array | None, known: CalibrationFeatures | None
) -> Array | None:
    """Take the totals alone, in the same chunks and so with the same rounding."""
    if known is None:
        return None
    points = seen.points

    def look(chunk: slice) -> tuple[Array]:
        part = seen.take(chunk)
        here = None if cache is None else cache[chunk]
        return (known.totals(part.points, part.losses, here, part.points.weights),)

    with one_blas_thread():
        (totals,) = sum_over_chunks(look, len(points), scratch_rows(points.X))
    return totals


class Chosen(NamedTuple):
    """Rows of the data with what they stand for."""

    rows: Array
    weights: Array
    inclusion: Array
    groups: Array


def suspected_rows(seen: AnchoredPoints, split: Split, size: float, seed: int) -> Chosen:
    """Choose the rows that stand for the suspected outliers."""
    points = seen.points
    own, ids = points.weights[split.rows], points.ids[split.rows]
    size = int(min(size, len(ids)))
    if not size:
        return Chosen(split.rows[:0], own[:0], own[:0], ids[:0])
    groups, sizes, totals = loss_bins(seen.losses[split.rows], own, size)
    found = draw(seed, uniforms(seed, ids) / own, ids, groups, sizes)
    weights = scale_weights(found, own, groups, totals)
    return Chosen(split.rows[found.rows], weights, found.inclusion, -1 - found.groups)


def ranked_rows(
    sampler: RankedSampler,
    inner: AnchoredPoints,
    live: int,
    cache: Array | None,
    size: float,
    seed: int,
    calibrate: bool,
) -> tuple[Chosen, bool]:
    """Choose the rows that stand for the suspected inliers, by ranks."""
    points = inner.points
    size = int(min(size, live))
    if not size:
        none = np.empty(0)
        return Chosen(none.astype(np.intp), none, none, none.astype(np.int32)), False
    known = (
        calibration_features(inner.loss, inner.anchor, size, points) if calibrate and size < live else None
    )
    ranks, strata, totals = score_points(sampler, inner, seed, cache, known)
    groups, sizes, heavy = group_strata(sampler, strata, points.weights, size)
    found: Draw = draw(seed, ranks, points.ids, groups, sizes)
    weights = scale_weights(found, points.weights, groups, heavy)
    if known is not None:
        assert totals is not None
        order = np.argsort(points.ids[found.rows])  # so that rounding does not depend on where rows stand
        found = Draw(*(column[order] for column in found))
        taken = points.take_unchecked(found.rows, weights[order])
        weights = Calibration(known.columns(taken), weights[order]).weights(totals)
    return Chosen(found.rows, weights, found.inclusion, found.groups), known is not None


def black_box_rows(sampler: Sampler, inner: AnchoredPoints, size: float, seed: int) -> Chosen:
    """Let a sampler that does not say how it chooses reduce the suspected inliers."""
    live = np.flatnonzero(inner.points.weights > 0)
    few = int(min(size, len(live)))
    if not few:
        return Chosen(live[:0], np.empty(0), np.empty(0), np.empty(0, dtype=np.int32))
    bound = sampler.bind(inner.loss, inner.anchor)
    rows, weights = reduce_rows(bound, inner.points.take(live), few, np.random.default_rng(seed))
    unknown = np.full(len(rows), 1.0 if len(rows) == len(live) else np.nan)
    return Chosen(live[rows], weights, unknown, np.zeros(len(rows), dtype=np.int32))


def assemble(points: WeightedPoints, chosen: list[Chosen], **known: Any) -> Coreset:
    """Put both sides together, in the order of the ids."""
    rows, weights, inclusion, groups = (np.concatenate(column) for column in zip(*chosen, strict=True))
    order = np.argsort(points.ids[rows])
    rows, groups = rows[order], groups[order].astype(np.int32)
    return Coreset(
        points=points.take_unchecked(rows, weights[order]),
        suspected=groups < 0,
        own_weights=points.weights[rows],
        inclusion=inclusion[order],
        groups=groups,
        **known,
    )
