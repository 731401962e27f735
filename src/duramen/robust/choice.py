"""The choice of rows on each side of the threshold, and the coreset they make."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from duramen.coreset import Coreset
from duramen.points import WeightedPoints
from duramen.robust.split import Split, rungs
from duramen.robust.survey import survey
from duramen.rows import Array
from duramen.sampling import RankedSampler, Sampler, Seen
from duramen.sampling.base import grouped
from duramen.sampling.black_box import reduced_rows
from duramen.sampling.calibration import Calibration, known_of
from duramen.sampling.ranks import Draw, draw, scaled_weights, uniforms

__all__ = ["Chosen", "assembled", "black_box_rows", "ranked_rows", "suspected_rows"]


class Chosen(NamedTuple):
    """Rows of the data with what they stand for."""

    rows: Array
    weights: Array
    inclusion: Array
    groups: Array


def suspected_rows(seen: Seen, split: Split, size: float, seed: int) -> Chosen:
    """Choose the rows that stand for the suspected outliers."""
    points = seen.points
    own, ids = points.weights[split.rows], points.ids[split.rows]
    size = int(min(size, len(ids)))
    if not size:
        return Chosen(split.rows[:0], own[:0], own[:0], ids[:0])
    groups, sizes, totals = rungs(seen.losses[split.rows], own, size)
    found = draw(seed, uniforms(seed, ids) / own, ids, groups, sizes)
    weights = scaled_weights(found, own, groups, totals)
    return Chosen(split.rows[found.rows], weights, found.inclusion, -1 - found.groups)


def ranked_rows(
    sampler: RankedSampler,
    inner: Seen,
    live: int,
    marks: Array | None,
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
    known = known_of(inner.loss, inner.anchor, size, points) if calibrate and size < live else None
    ranks, strata, totals = survey(sampler, inner, seed, marks, known)
    groups, sizes, heavy = grouped(sampler, strata, points.weights, size)
    found: Draw = draw(seed, ranks, points.ids, groups, sizes)
    weights = scaled_weights(found, points.weights, groups, heavy)
    if known is not None:
        assert totals is not None
        order = np.argsort(points.ids[found.rows])  # so that rounding does not depend on where rows stand
        found = Draw(*(column[order] for column in found))
        taken = points.pick(found.rows, weights[order])
        weights = Calibration(known.columns(taken), weights[order]).weights(totals)
    return Chosen(found.rows, weights, found.inclusion, found.groups), known is not None


def black_box_rows(sampler: Sampler, inner: Seen, size: float, seed: int) -> Chosen:
    """Let a sampler that does not say how it chooses reduce the suspected inliers."""
    live = np.flatnonzero(inner.points.weights > 0)
    few = int(min(size, len(live)))
    if not few:
        return Chosen(live[:0], np.empty(0), np.empty(0), np.empty(0, dtype=np.int32))
    bound = sampler.bind(inner.loss, inner.anchor)
    rows, weights = reduced_rows(bound, inner.points.take(live), few, np.random.default_rng(seed))
    unknown = np.full(len(rows), 1.0 if len(rows) == len(live) else np.nan)
    return Chosen(live[rows], weights, unknown, np.zeros(len(rows), dtype=np.int32))


def assembled(points: WeightedPoints, chosen: list[Chosen], **known: Any) -> Coreset:
    """Put both sides together, in the order of the ids."""
    rows, weights, inclusion, groups = (np.concatenate(column) for column in zip(*chosen, strict=True))
    order = np.argsort(points.ids[rows])
    rows, groups = rows[order], groups[order].astype(np.int32)
    return Coreset(
        points=points.pick(rows, weights[order]),
        suspected=groups < 0,
        own_weights=points.weights[rows],
        inclusion=inclusion[order],
        groups=groups,
        **known,
    )
