"""The split at the threshold: suspected outliers, and suspected inliers (paper, section 3.2)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from duramen.points import WeightedPoints
from duramen.rows import Array
from duramen.sampling.ranks import apportion
from duramen.trimming import kept_weights

__all__ = ["Split", "rung_of", "rungs", "shared_rungs", "split_at"]

_LOOK = 4096  # losses that show where the level about is
_A_DOUBLING = 8  # rungs of the ladder, where the size allows for them


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


def rungs(losses: Array, weights: Array, size: int) -> tuple[Array, Array, Array]:
    """Cut suspected outliers into rungs of similar loss, each with its share of the size by weight.

    The paper draws them uniformly. How many true outliers are among those drawn
    is then left to chance, and weight z set aside takes too few of them or too
    many. With the same share of every rung the sample is uniform still, and holds
    as many of each kind as it should.

    Which rung a point is on depends on its own loss alone: rungs are steps of a
    geometric ladder, fine where the size allows.

    Returns
    -------
    groups : array (n,)
    sizes, totals : arrays
        How many to draw of each, and its weight.
    """
    names, place = np.unique(rung_of(losses), return_inverse=True)
    groups, sizes, totals = shared_rungs(names, np.bincount(place), np.bincount(place, weights), size)
    return groups[place], sizes, totals


def rung_of(losses: Array) -> Array:
    """Give the number of each loss's rung on the finest ladder: (n,) integers."""
    with np.errstate(divide="ignore"):
        height = np.clip(np.log2(np.asarray(losses, dtype=np.float64)), -2000, 2000)
    return np.floor(height * _A_DOUBLING).astype(np.int64)


def shared_rungs(names: Array, counts: Array, weights: Array, size: int) -> tuple[Array, Array, Array]:
    """Pool rungs until each can have a few points of the size: the group of each rung, sizes and totals.

    ``names`` are the numbers of the rungs that are there, going up.
    """
    groups = np.arange(len(names))
    while 4 * len(names) > size and len(names) > 1:  # a rung needs a few points: take two steps at a time
        names, pooled = np.unique(names >> 1 if names[-1] > names[0] + 1 else 0 * names, return_inverse=True)
        groups = pooled[groups]
    totals = np.bincount(groups, weights, minlength=len(names))
    many = np.bincount(groups, counts, minlength=len(names)).astype(np.int64)
    return groups.astype(np.int32), apportion(totals, many, size), totals
