"""Split points at a threshold of their loss: suspected outliers above, inliers below."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from duramen.arrays import Array
from duramen.points import WeightedPoints
from duramen.trimming import kept_weights

_PROBES = 4096  # losses that suggest where the threshold is


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
    """Suspect the points of the largest losses: the fewest that weigh at least ``weight`` together.

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
    rows = _largest(points, losses, min(weight, points.total_weight))
    inner = np.array(points.weights)
    inner[rows] = 0.0
    outer_weight = float(points.weights[rows].sum())
    return Split(rows, inner, live - len(rows), outer_weight, float(losses[rows].min(initial=np.inf)))


def _largest(points: WeightedPoints, losses: Array, weight: float) -> Array:
    """Find the rows of the largest losses, first among those above a level that a few losses suggest."""
    probes = losses[:: max(1, len(losses) // _PROBES)]
    share = min(1.0, 1.5 * weight / points.total_weight + 0.01)
    rows = np.flatnonzero(losses >= np.quantile(probes, 1 - share, method="lower"))
    if not weight < float(points.weights[rows].sum()) * (1 - 1e-9) or np.isnan(losses).any():
        rows = np.arange(len(losses))
    kept = kept_weights(losses[rows], points.weights[rows], weight, points.ids[rows])
    return rows[kept < points.weights[rows]]
