"""The sample of points that an anchor is made from: a function of the seed and the ids, in any order."""

from __future__ import annotations

import numpy as np

from duramen.arrays import Array
from duramen.points import WeightedPoints
from duramen.samplers.ranks import smallest, uniforms

SAMPLE = 20_000
"""The number of points from which an anchor is made, and all that is frozen with it, if there are more."""
_SALT = 0x5851F42D4C957F2D  # an anchor's sample uses other random numbers than the coreset
_SMALLEST_WEIGHT = 1e-290  # below, a rank would overflow and count as absent


def chances(seed: int, ids: Array, weights: Array) -> Array:
    """Compute the random ranks by which points enter an anchor's sample: the smallest ranks do.

    A uniform number over the weight, so that heavy points are not missed; infinite where the weight is zero.
    """
    ranks = uniforms(seed ^ _SALT, ids)
    if not (weights == 1.0).all():
        with np.errstate(divide="ignore", over="ignore"):
            ranks /= np.where(weights > 0, np.maximum(weights, _SMALLEST_WEIGHT), 0.0)
    return ranks


def anchor_sample(points: WeightedPoints, seed: int) -> WeightedPoints:
    """Sample at most 20,000 points of positive weight, sorted by id.

    Examples
    --------
    >>> import duramen as dm
    >>> anchor_sample(dm.points([[1.0], [2.0]], ids=[7, 3]), seed=0).ids
    array([3, 7])
    """
    if len(points) <= SAMPLE:
        return sample_of(points, np.where(points.weights > 0, 0.0, np.inf))
    return sample_of(points, chances(seed, points.ids, points.weights))


def sample_of(points: WeightedPoints, ranks: Array) -> WeightedPoints:
    """Take the 20,000 points of the smallest ranks, sorted by id."""
    return points.take_unchecked(*sample_rows(ranks, points.ids, points.weights))


def sample_rows(ranks: Array, ids: Array, weights: Array) -> tuple[Array, Array]:
    """Find the rows of the 20,000 smallest ranks, and the weights with which they represent all.

    A light point was included by chance, and is given the weight of the points that it represents.
    """
    rows, following = smallest(ranks, ids, SAMPLE)
    rows = rows[np.argsort(ids[rows])]
    own = weights[rows]
    if np.isfinite(following) and not (own == own[0]).all():
        own = np.maximum(own, 1 / following)
    return rows, own
