"""What weights are calibrated to: a few features of every point at the anchor, whose totals are known."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from duramen.arrays import Array, Rows
from duramen.losses.base import Anchor, Loss, MissingPropertyError
from duramen.points import WeightedPoints
from duramen.trimming import kept_sum

_ROWS_PER_COLUMN = 10  # no more calibrated columns than a tenth of the sampled points


@dataclass(frozen=True)
class CalibrationFeatures:
    """The features of a point that weights are calibrated to: its loss, centre and gradient at the anchor."""

    loss: Loss
    anchor: Anchor
    gradient: bool
    centres: int

    @property
    def n_columns(self) -> int:
        """The number of features."""
        return 1 + self.centres + (int(self.anchor.theta.size) if self.gradient else 0)

    def totals(self, points: WeightedPoints, losses: Array, cache: Array | None, weights: Array) -> Array:
        """Sum weight times feature over all points: (q,)."""
        totals = np.zeros(self.n_columns)
        totals[0] = kept_sum(losses, weights)
        if self.centres:
            nearest = self._nearest(points.X) if cache is None else cache
            totals[1 : 1 + self.centres] = np.bincount(nearest, weights, minlength=self.centres)
        if self.gradient:
            gradient = self.loss.gradient_sum(self.anchor.theta, points.X, points.y, weights, cache=cache)
            totals[1 + self.centres :] = gradient.ravel()
        return totals

    def columns(self, points: WeightedPoints) -> Array:
        """Compute the features of a few points: (m, q)."""
        losses, cache = self.loss.values_and_cache(self.anchor.theta, points.X, points.y)
        return self.columns_of(points.X, points.y, losses, cache)

    def columns_of(self, X: Rows, y: Array | None, losses: Array, cache: Array | None) -> Array:
        """Compute the features of rows whose losses and cache at the anchor are known: (m, q).

        Those of a row have the same bits whichever other rows are present.
        """
        columns = np.zeros((X.shape[0], self.n_columns))
        columns[:, 0] = losses
        if self.centres:
            columns[np.arange(len(columns)), 1 + (self._nearest(X) if cache is None else cache)] = 1.0
        if self.gradient:
            self.loss.put_gradients(columns[:, self.centres + 1 :], self.anchor.theta, X, y, cache)
        return columns

    def _nearest(self, X: Rows) -> Any:
        return self.loss.values_and_cache(self.anchor.theta, X)[1]


def calibration_features(
    loss: Loss, anchor: Anchor, size: int, points: WeightedPoints
) -> CalibrationFeatures:
    """Choose as many features as a sample of ``size`` points can be calibrated to.

    The loss always; the gradient and the counts of centres, the counts alone,
    or neither. The choice depends on the problem and the size, not on the points.
    """
    k = loss.n_centres if loss.has_centres else 1
    for gradient in (_has_gradients(loss, anchor, points), False):
        features = CalibrationFeatures(loss, anchor, gradient, centres=k if k > 1 else 0)
        if features.n_columns * _ROWS_PER_COLUMN <= size:
            return features
    return CalibrationFeatures(loss, anchor, gradient=False, centres=0)


def _has_gradients(loss: Loss, anchor: Anchor, points: WeightedPoints) -> bool:
    """Return whether one point has a gradient: a custom divergence may lack what it needs."""
    one = points.take(slice(0, 1))
    try:
        loss.gradients(anchor.theta, one.X, one.y)
    except MissingPropertyError:
        return False
    return True
