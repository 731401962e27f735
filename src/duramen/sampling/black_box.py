"""A sampler as a black box: what it returns is checked, whoever wrote it."""

from __future__ import annotations

from typing import Any

import numpy as np

from duramen.points import WeightedPoints
from duramen.rows import Array
from duramen.sampling.base import Sampler

__all__ = ["reduced_rows"]


def reduced_rows(
    sampler: Sampler, points: WeightedPoints, size: int, rng: np.random.Generator
) -> tuple[Array, Array]:
    """Let a sampler reduce points of positive weight: the rows it kept, and weights of the same total.

    Raises
    ------
    TypeError
        If it returns something else than points.
    ValueError
        If it returns none, more than ``size``, others than it was given, one
        of them twice, or weights that are not positive numbers.

    Examples
    --------
    >>> import duramen as dm
    >>> points = dm.points([[0.0], [1.0], [2.0], [3.0]], ids=[10, 11, 12, 13])
    >>> rows, weights = reduced_rows(dm.UniformSampler(), points, 2, np.random.default_rng(0))
    >>> len(rows), weights
    (2, array([2., 2.]))
    """
    reduced = sampler.reduce(points, size, rng)
    rows = _found_again(sampler, points, reduced, size)
    return rows, reduced.weights * (points.total_weight / reduced.total_weight)


def _found_again(sampler: Sampler, points: WeightedPoints, reduced: Any, size: int) -> Array:
    """Find the rows of the points that a black box returned; raise if it returned something else."""
    if not isinstance(reduced, WeightedPoints):
        raise TypeError(f"{sampler!r} must return points from reduce; found {type(reduced).__name__}")
    order = np.argsort(points.ids)
    place = np.minimum(np.searchsorted(points.ids, reduced.ids, sorter=order), len(order) - 1)
    if not 0 < len(reduced) <= size or not np.array_equal(points.ids[order[place]], reduced.ids):
        raise ValueError(
            f"{sampler!r} gave {len(reduced)} points where {size} of those it was given were asked for; "
            "reduce must return some of them, with their ids"
        )
    twice = np.flatnonzero(np.bincount(place) > 1)
    if twice.size:
        raise ValueError(
            f"{sampler!r} gave id {points.ids[order[twice[0]]]} more than once; "
            "reduce must return each point once, with all the weight it stands for"
        )
    wrong = np.flatnonzero(~((reduced.weights > 0) & (reduced.weights < np.inf)))
    if wrong.size:
        raise ValueError(
            f"{sampler!r} gave the weight {reduced.weights[wrong[0]]} to id {reduced.ids[wrong[0]]}; "
            "weights must be positive numbers"
        )
    return np.asarray(order[place])
