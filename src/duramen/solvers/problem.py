"""A problem to solve: weighted points, a loss, the weight to set aside; and what makes one impossible."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from duramen.losses.base import Loss
from duramen.losses.bregman import BregmanLoss
from duramen.losses.distance import DistanceLoss
from duramen.losses.linear import LinearLoss
from duramen.losses.multinomial import SoftmaxLoss
from duramen.points import WeightedPoints
from duramen.rows import Array, Rows
from duramen.solvers.coordinates import Coordinates, coordinates_of
from duramen.trimming import Trimmer, check_points_and_loss, kept_sum, outlier_weight

__all__ = ["Problem", "count_distinct", "is_linear", "is_number", "is_of_centres", "problem_of"]


@dataclass(frozen=True, eq=False)
class Problem:
    """Minimise f_z(theta) + l2 / 2 times the squared length of theta, its intercept left out.

    ``scales`` (p,) weigh the coefficients in that length; None stands for ones, and for losses of centres.
    ``frame`` are the coordinates to take steps in, if they were measured before.
    """

    points: WeightedPoints
    loss: Loss
    z: float
    l2: float = 0.0
    scales: Array | None = None
    frame: Coordinates | None = None

    @property
    def X(self) -> Rows:  # noqa: N802
        """The rows."""
        return self.points.X

    @property
    def y(self) -> Array | None:
        """The labels."""
        return self.points.y

    @property
    def kept_weight(self) -> float:
        """The weight that is not set aside."""
        return self.points.total_weight - self.z

    def ridge(self) -> Array:
        """Give the second derivative of the penalty in each coefficient; zero for intercepts."""
        assert isinstance(self.loss, (LinearLoss, SoftmaxLoss))
        shape = self.loss.parameter_shape(self.points.n_columns)
        ridge = np.full(shape, self.l2) if self.scales is None else self.l2 * self.scales
        if self.loss.fit_intercept:
            ridge[..., -1] = 0.0
        return ridge

    def coordinates(self) -> Coordinates:
        """Give the coordinates to take steps in."""
        return self._measured if self.frame is None else self.frame

    @cached_property
    def _measured(self) -> Coordinates:
        assert isinstance(self.loss, (LinearLoss, SoftmaxLoss))
        weights = self.points.weights
        return coordinates_of(self.X, weights, self.z / self.points.total_weight, self.loss.fit_intercept)

    def penalty(self, theta: Array) -> float:
        """Evaluate the penalty."""
        return float((self.ridge() * theta**2).sum()) / 2 if self.l2 else 0.0

    def trimmer(self) -> Trimmer:
        """Make what computes kept weights from losses."""
        return Trimmer(self.points.weights, self.z, self.points.ids)

    def objective(self, theta: Array, losses: Array, kept: Array) -> float:
        """Evaluate what is minimised, for given losses and kept weights."""
        return kept_sum(losses, kept) + self.penalty(theta)


def problem_of(points: Any, loss: Any, n_outliers: float, l2: Any = 0.0) -> Problem:
    """Check everything that can be checked before solving.

    Raises
    ------
    TypeError, ValueError
        Naming the value, and the way out.
    """
    check_points_and_loss(points, loss)
    if not (is_number(l2) and 0 <= l2 < np.inf):
        raise ValueError(f"l2={l2!r} must be zero or a positive finite number")
    if l2 > 0 and not is_linear(loss):
        raise ValueError(
            f"l2={l2} is for losses of a linear predictor; {loss!r} has no penalty. Leave l2 out"
        )
    if not len(points):
        raise ValueError("there are no points to solve on; pass at least one")
    if not points.total_weight > 0:
        raise ValueError("all weights are zero: nothing is left to solve on; pass some positive weights")
    z = outlier_weight(n_outliers, points.total_weight)
    if is_of_centres(loss):
        loss._rows(points.X)  # refuses sparse rows
    if isinstance(loss, LinearLoss):
        _check_labels(points, loss, z)
    elif isinstance(loss, SoftmaxLoss):
        _check_classes(points, loss)
    elif getattr(loss, "k", 1) > 1:
        _check_distinct(points, loss)
    return Problem(points, loss, z, float(l2))


def is_of_centres(loss: Loss) -> bool:
    """Tell whether theta is centres, of which each point has a nearest one."""
    return isinstance(loss, (DistanceLoss, BregmanLoss))


def is_linear(loss: Loss) -> bool:
    """Tell whether theta is coefficients: of one linear predictor, or of one a class."""
    return isinstance(loss, (LinearLoss, SoftmaxLoss))


def is_number(value: Any) -> bool:
    """Tell whether a value is a number, and not True or False."""
    return isinstance(value, (int, float, np.integer, np.floating)) and not isinstance(value, bool)


def _check_labels(points: WeightedPoints, loss: LinearLoss, z: float) -> None:
    if points.y is None:
        raise ValueError(f"{type(loss).__name__} needs labels; pass dm.points(X, y), one label a row")
    loss.check_labels(points.y)
    if not loss.classifies:
        return
    positive = points.y > 0
    lower, upper = (float(np.einsum("i,i->", points.weights, side)) for side in (~positive, positive))
    if not min(upper, lower) > 0:
        only = points.y[positive if upper else ~positive][0]
        raise ValueError(
            f"all points of positive weight have the label {only}; {type(loss).__name__} needs two classes"
        )
    if z >= min(upper, lower):
        rare = points.y[positive if upper < lower else ~positive][0]
        raise ValueError(
            f"n_outliers={z:g} could set aside the whole class {rare}, of weight {min(upper, lower):g}; "
            "take fewer outliers than the smaller class weighs"
        )


def _check_classes(points: WeightedPoints, loss: SoftmaxLoss) -> None:
    if points.y is None:
        raise ValueError(f"{loss!r} needs labels; pass dm.points(X, y), one label a row")
    loss.check_labels(points.y)
    heavy = np.bincount(points.y.astype(np.intp), points.weights, minlength=loss.n_classes)
    if not (heavy > 0).all():
        raise ValueError(
            f"no point of positive weight has the label {int(np.argmin(heavy > 0))}; {loss!r} needs all its "
            "classes: take fewer, and encode those that are there"
        )


def _check_distinct(points: WeightedPoints, loss: Any) -> None:
    """Refuse more centres than there are distinct points."""
    found = count_distinct(points.X, points.weights, loss.k)
    if found < loss.k:
        raise ValueError(
            f"k={loss.k} is above the number of distinct points of positive weight, {found}; "
            f"take k={found} or less"
        )


def count_distinct(X: Array, weights: Array | None, enough: int) -> int:
    """Count the distinct rows of positive weight, up to ``enough``, looking at no more rows than it takes."""
    heavy = np.arange(len(X)) if weights is None else np.flatnonzero(weights > 0)
    looked = 4 * enough
    while True:
        found = len(np.unique(X[heavy[:looked]], axis=0))
        if found >= enough or looked >= len(heavy):
            return min(found, enough)
        looked *= 8
