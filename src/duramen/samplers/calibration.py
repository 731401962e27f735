"""Calibration: adjust sampled weights slightly, so that they reproduce totals that are known exactly.

At the anchor a few features of every point are known, and so are their totals
over all points: the loss f, its gradient, and for centres how many points are
nearest to each. Among all weights near the sampled ones, calibration takes
those that come close to the totals (Deville and Saerndal 1992, their bounded
distance): the coreset's objective then agrees with the data's to first order
around the anchor.

Each weight is multiplied by a factor between 1/3 and 3, so none vanishes, and
together they keep their sum. Totals that only a few sampled points contribute
to (a rare one-hot column, in the sample twice) are met less closely, by a ridge
in inverse proportion to the number of those points.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.linalg import cho_factor, cho_solve
from scipy.special import expit

from duramen.arrays import Array, Rows
from duramen.losses.base import Anchor, Loss, MissingPropertyError
from duramen.points import WeightedPoints
from duramen.trimming import kept_sum

_MOST = 3.0  # the largest factor, and its inverse the smallest; docs/sampling.md has the measurement
_RIDGE = 10.0  # in points: a total that ten points contribute to is met halfway
_ROWS_PER_COLUMN = 10  # no more columns than a tenth of the sampled points
_CHANCE = 5.0  # standard errors
_STEPS = 50
_STEP = 2.0**32  # totals are rounded to multiples of the spread over it
_CONSTANT = 1e-6  # a column that varies by less is met anyway, and only rounding would show in it
_TOO_LIGHT = 1e-70  # a column that varies only among points of next to no weight: its fourth power vanishes
_ENOUGH = 1e-12  # gain of a step in the dual: about a squared deviation from a total, in units of spread


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
        parts = [np.array([kept_sum(losses, weights)])]
        if self.centres:
            nearest = self._nearest(points.X) if cache is None else cache
            parts.append(np.bincount(nearest, weights, minlength=self.centres))
        if self.gradient:
            cached = {} if cache is None else {"cache": cache}
            gradient = self.loss.gradient_sum(self.anchor.theta, points.X, points.y, weights, **cached)
            parts.append(np.asarray(gradient).ravel())
        return np.concatenate(parts)

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
            nearest = self._nearest(X) if cache is None else cache
            columns[np.arange(len(columns)), 1 + nearest] = 1.0
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


class Calibration:
    """The features of sampled points, in units of their spread, and the ridge on each.

    Parameters
    ----------
    columns : array (m, q)
        The features of each sampled point.
    weights : array (m,)
        As sampled.
    """

    def __init__(self, columns: Array, weights: Array) -> None:
        self.total = float(weights.sum())
        self.shares = weights / self.total
        self.means = self.shares @ columns
        self.design = np.empty((len(weights), columns.shape[1] + 1))
        self.design[:, 0] = 1.0
        apart = np.subtract(columns, self.means, out=self.design[:, 1:])
        largest = np.abs(apart).max(axis=0)
        self.used = (largest > _CONSTANT * np.abs(self.means)) & np.isfinite(largest)
        largest = np.where(self.used, largest, 1.0)
        apart *= np.where(self.used, 1 / largest, 0.0)  # now no square overflows or vanishes
        squares = np.square(apart)
        spread = np.sqrt(self.shares @ squares)
        self.used &= spread > _TOO_LIGHT
        spread = np.where(self.used, spread, 1.0)
        apart /= spread
        self.spread = largest * spread
        self.errors = np.sqrt(np.square(self.shares) @ squares) / spread  # of a mean, in units of its spread
        # fourth moments measure how few points a column depends on: one over their effective number
        fourth = np.square(self.shares) @ np.square(squares, out=squares)
        self.ridge = np.append(0.0, _RIDGE * np.where(self.used, fourth / spread**4, 1.0))

    def weights(self, totals: Array) -> Array:
        """Compute the calibrated weights, for ``totals`` (q,) over all points that the sample represents.

        The dual of the bounded distance is convex and smooth; damped Newton steps
        minimise it. A total farther off than chance allows is due to points that are
        not in the sample; it is followed only as far as chance allows.
        """
        with np.errstate(over="ignore", invalid="ignore"):
            off = (totals / self.total - self.means) / self.spread
            off = np.rint(off * _STEP) / _STEP  # so that the rounding of totals hardly matters
        goal = np.ones(len(self.ridge))
        reach = _CHANCE * self.errors
        goal[1:] = np.where(self.used & np.isfinite(off), np.clip(off, -reach, reach), 0.0)
        tilt = np.zeros(len(goal))
        height, factors, bends = self._dual(tilt, goal)
        stale, last, factor = True, np.inf, None
        for _ in range(_STEPS):
            slope = (self.shares * factors) @ self.design - goal + self.ridge * tilt
            if stale:  # the curvature is kept while full steps succeed: it takes most of the time
                scaled = self.design * np.sqrt(self.shares * bends)[:, None]
                curved = scaled.T @ scaled
                curved[np.diag_indices(len(goal))] += self.ridge + 1e-12
                factor = cho_factor(curved, overwrite_a=True, check_finite=False)
            step = -cho_solve(factor, slope, check_finite=False)
            gain = -float(slope @ step)
            if not gain > _ENOUGH:
                break
            length = 1.0
            while True:
                there, new_factors, new_bends = self._dual(tilt + length * step, goal)
                if there <= height - 1e-4 * length * gain or length < 1e-6:
                    break
                length /= 2
            stale = length < 1 or gain > last / 10
            last = gain
            tilt, height, factors, bends = tilt + length * step, there, new_factors, new_bends
        calibrated = self.shares * factors
        return np.asarray(calibrated * (self.total / calibrated.sum()))

    def _dual(self, tilt: Array, goal: Array) -> tuple[float, Array, Array]:
        """Evaluate the dual, the factors that belong to it, and their derivatives."""
        low, high = 1 / _MOST, _MOST
        rate = (high - low) / ((1 - low) * (high - 1))
        score = self.design @ tilt
        inner = rate * score + np.log((1 - low) / (high - 1))
        part = expit(inner)
        height = float(self.shares @ (low * score + (high - low) / rate * np.logaddexp(0, inner)))
        height += float(self.ridge @ tilt**2) / 2 - float(goal @ tilt)
        return height, low + (high - low) * part, (high - low) * rate * part * (1 - part)

    def residuals(self, values: Array) -> Array:
        """Regress values on the features, with the same ridge; return the residual of each point.

        To first order the calibrated sum has the error of the uncalibrated sum of
        these residuals. Each is measured from the regression without its own point,
        which otherwise would hide a part of it.
        """
        weighted = self.design * self.shares[:, None]
        inverse = np.linalg.inv(weighted.T @ self.design + np.diag(self.ridge + 1e-12))
        with np.errstate(over="ignore", invalid="ignore"):
            left = values - self.design @ (inverse @ (weighted.T @ values))
        own = np.einsum("ij,ij->i", weighted @ inverse, self.design)
        return np.asarray(left / np.maximum(1 - own, 0.1))
