"""Split points at a threshold of their loss: suspected outliers above, inliers below."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from duramen.arrays import Array
from duramen.points import WeightedPoints
from duramen.trimming import kept_weights

_PROBES = 4096  # losses that show roughly where the level is


@dataclass(frozen=True, eq=False)
class Split:
    """Both sides of the threshold.

    Attributes
    ----------
    rows : array of positions
        The suspected outliers, in the order of the data.
    inner : array (n,)
        The weights of the inliers; zero for the others.
    n_inner : int
        The number of inliers of positive weight.
    weight : float
        The weight of the suspected outliers.
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
    rows = _largest_losses(points, losses, min(weight, points.total_weight))
    inner = np.array(points.weights)
    inner[rows] = 0.0
    outer_weight = float(points.weights[rows].sum())
    return Split(rows, inner, live - len(rows), outer_weight, float(losses[rows].min(initial=np.inf)))


def _largest_losses(points: WeightedPoints, losses: Array, weight: float) -> Array:
    """Find the rows of the largest losses, first among those above a level that a sample suggests."""
    weights, ids = points.weights, points.ids
    probes = losses[:: max(1, len(losses) // _PROBES)]
    share = min(1.0, 1.5 * weight / points.total_weight + 0.01)
    level = np.quantile(probes, 1 - share, method="lower")
    rows = np.flatnonzero(losses >= level)
    if not weight < float(weights[rows].sum()) * (1 - 1e-9) or np.isnan(losses).any():
        rows = np.arange(len(losses))
    kept = kept_weights(losses[rows], weights[rows], weight, ids[rows])
    return rows[kept < weights[rows]]
