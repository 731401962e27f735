"""The coreset that is all points: while there is no anchor to choose by."""

from __future__ import annotations

import math

import numpy as np

from duramen.coreset import Coreset
from duramen.losses.base import Loss
from duramen.points import WeightedPoints
from duramen.trimming import outlier_weight

__all__ = ["all_of"]


def all_of(
    points: WeightedPoints, loss: Loss, n_outliers: float, seed: int, columns: tuple[str, ...] | None
) -> Coreset:
    """Make a coreset of all points, none of them suspected; a count of outliers may exceed what is there."""
    n, total = len(points), points.total_weight
    return Coreset(
        points=points,
        suspected=np.zeros(n, dtype=bool),
        own_weights=points.weights,
        inclusion=np.ones(n),
        groups=np.zeros(n, dtype=np.int32),
        loss=loss,
        anchor=None,
        threshold=math.inf,
        n_points=n,
        n_suspected=0,
        n_outliers=n_outliers if n_outliers >= total else outlier_weight(n_outliers, total),
        sampler="nobody: all points are here",
        calibrated=False,
        seed=seed,
        columns=columns,
    )
