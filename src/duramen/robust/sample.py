"""The sample that an anchor is made from: a function of the points, not of how they come."""

from __future__ import annotations

import numpy as np

from duramen.points import WeightedPoints
from duramen.rows import Array
from duramen.sampling.ranks import smallest, uniforms

__all__ = ["SAMPLE", "anchor_sample", "chances", "drawn", "sample_of"]

SAMPLE = 20_000
"""How many points an anchor is made from, and all that is frozen with it, where there are more."""
_SALT = 0x5851F42D4C957F2D  # an anchor's sample is drawn by other numbers than the coreset
_FAINT = 1e-290  # the least weight: beyond, a chance would overflow and count as absence


def chances(seed: int, ids: Array, weights: Array) -> Array:
    """Compute the random numbers by which points come into an anchor's sample: the smallest do.

    A uniform number over the weight, so that heavy points are not missed; infinite where there is no weight.
    """
    numbers = uniforms(seed ^ _SALT, ids)
    if not (weights == 1.0).all():
        with np.errstate(divide="ignore", over="ignore"):
            numbers /= np.where(weights > 0, np.maximum(weights, _FAINT), 0.0)
    return numbers


def anchor_sample(points: WeightedPoints, seed: int) -> WeightedPoints:
    """Sample at most 20,000 points of positive weight, in the order of their ids.

    Examples
    --------
    >>> import duramen as dm
    >>> anchor_sample(dm.points([[1.0], [2.0]], ids=[7, 3]), seed=0).ids
    array([3, 7])
    """
    if len(points) <= SAMPLE:
        return sample_of(points, np.where(points.weights > 0, 0.0, np.inf))
    return sample_of(points, chances(seed, points.ids, points.weights))


def sample_of(points: WeightedPoints, numbers: Array) -> WeightedPoints:
    """Take the 20,000 points of the smallest numbers, in the order of their ids."""
    return points.pick(*drawn(numbers, points.ids, points.weights))


def drawn(numbers: Array, ids: Array, weights: Array) -> tuple[Array, Array]:
    """Find the rows of the 20,000 smallest numbers, weighted so that together they stand for all.

    A point of less weight than the others stand for was drawn by chance, and weighs as much as they do.
    """
    rows, following = smallest(numbers, ids, SAMPLE)
    rows = rows[np.argsort(ids[rows])]
    heavy = weights[rows]
    if np.isfinite(following) and not (heavy == heavy[0]).all():
        heavy = np.maximum(heavy, 1 / following)
    return rows, heavy
