"""The anchor and what is frozen with it, from a sample of the points: the same wherever the points are."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from duramen.ball import Anchor
from duramen.losses.base import Loss
from duramen.points import WeightedPoints
from duramen.robust.outlook import anchor_of, are_few, best_sampler, check_plan, is_bare, seen_from
from duramen.robust.plan import BySize, Plan
from duramen.robust.split import split_at
from duramen.sampling import RankedSampler, Sampler
from duramen.sampling.base import frozen

__all__ = ["anchored"]


def anchored(
    given: Any,
    sample: WeightedPoints,
    loss: Loss,
    plan: Plan,
    named: Sampler | None,
    *,
    z: float,
    total: float,
    n_points: int,
    seed: int,
) -> tuple[Anchor, Sampler]:
    """Take the anchor given, or find one on a sample; and freeze on it what the sampler misses.

    Parameters
    ----------
    given : Anchor, Ball, array or None
    sample : WeightedPoints
        From :func:`duramen.robust.sample.anchor_sample`.
    loss : Loss
    plan : Plan
        Only for a size is anything frozen on the sample: theorems look at all points.
    named : Sampler or None
        None to choose one.
    z, total, n_points
        How much weight to set aside, and what there is of points and weight in all.
    seed : int

    Returns
    -------
    anchor : Anchor
    sampler : Sampler
    """
    if named is not None:
        named.check(loss, sample)
    check_plan(plan, z, is_bare(given), named)
    fraction = float(f"{z / total:.12g}")  # so that how the total was rounded does not show in the anchor
    place = anchor_of(given, sample, loss, fraction, np.random.default_rng(seed), n_points)
    chooser = named or best_sampler(loss, place.radius > 0, are_few(plan, loss, sample.n_columns))
    if not (isinstance(chooser, RankedSampler) and isinstance(plan, BySize)):
        return place, chooser
    seen, _ = seen_from(place, sample, loss, marked=False)
    heavy = sample.total_weight
    split = split_at(sample, seen.losses, plan.suspected_of(fraction * heavy, heavy))
    inner = np.where(np.isfinite(seen.losses), split.inner, 0.0)  # of all points, such may well be suspected
    if inner.any():
        seen = replace(seen, points=sample.weighing(inner))
    return frozen(chooser, seen).anchor, chooser
