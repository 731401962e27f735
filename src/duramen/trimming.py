"""The trimmed objective f_z, the loss after the worst weight z is set aside, and how it is minimised.

Order the points by (loss, id) and set weight z aside from the top. Weights are
real numbers, so the point on the boundary may be split: a part of its weight
is kept. The number of outliers is interpreted here and nowhere else, and ties are
decided here: of two points with equal losses the one with the larger id is set
aside first, so the result does not depend on the order of the points.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from bisect import bisect_right
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from duramen.arrays import Array, Rows, check_nonnegative, is_number, refuse_first
from duramen.losses.base import Loss, check_loss
from duramen.points import WeightedPoints, checked_total

_PROBES = 1024  # losses from which it is guessed which are among the largest
_EPS = np.finfo(np.float64).eps
_ROUNDED = 1e-12  # relative: closer to a total, rounding may decide which of two weights is larger


def outlier_weight(n_outliers: float, total_weight: float, weights: Array | None = None) -> float:
    """Interpret ``n_outliers`` as the weight z to set aside.

    A number of 1 or more is a count (a weight, for weighted points); a number
    below 1 is a fraction of the total weight. Where ``weights`` are given, they are
    added up without rounding if that decides whether there is enough.

    Examples
    --------
    >>> outlier_weight(20, total_weight=1000), outlier_weight(0.02, total_weight=1000)
    (20.0, 20.0)
    """
    z = _as_float(n_outliers)
    if z < 1:  # undo the rounding of a fraction: 0.29 of 100 is 29, not 28.999999999999996
        z *= total_weight
        z = float(round(z)) if math.isclose(z, round(z), rel_tol=4 * _EPS) else z
    if weights is not None and math.isclose(z, total_weight, rel_tol=_ROUNDED):
        total_weight = math.fsum(weights)
    if z >= total_weight and z > 0:
        raise ValueError(
            f"n_outliers={n_outliers} is not below the total weight {total_weight:g}; "
            "pass a count, or a fraction such as 0.1"
        )
    return z


def checked_outliers(n_outliers: Any, total: float = np.inf) -> float:
    """Check a number of outliers, before the total weight is known if that is infinite."""
    given = _as_float(n_outliers)
    outlier_weight(n_outliers, total if given >= 1 or total < np.inf else 1.0)
    return given


def _as_float(n_outliers: Any) -> float:
    """Convert a number of outliers by its decimals: a fraction in single precision is what it shows."""
    if not is_number(n_outliers):
        raise TypeError(f"n_outliers={n_outliers!r} is not a number; pass a count, or a fraction such as 0.1")
    given = float(str(n_outliers))
    if not given >= 0:
        raise ValueError(
            f"n_outliers={n_outliers} must be 0 or more; pass a count, or a fraction such as 0.1"
        )
    return given


def kept_weights(losses: Any, weights: Any, z: float, ids: Any = None) -> Array:
    """Compute how much of each point's weight is kept when weight ``z`` is set aside: a new array.

    Losses may be infinite. Ids, by default positions, decide between equal losses. If z differs from a sum of
    weights in the last digits only, no point is split: a trace of weight on an outlier is rounding.

    Examples
    --------
    >>> kept_weights([5.0, 1.0, 3.0], [1.0, 1.0, 1.0], z=1.5)
    array([0. , 1. , 0.5])
    """
    kept = np.array(weights, dtype=np.float64)
    rows, left = set_aside(losses, weights, z, ids)
    kept[rows] = left
    return kept


def set_aside(losses: Any, weights: Any, z: float, ids: Any = None) -> tuple[Array, Array]:
    """Return the rows whose weight may be set aside, and what is kept of each, for :func:`kept_weights`."""
    losses, weights = np.asarray(losses), np.asarray(weights, dtype=np.float64)
    ids = np.arange(len(losses)) if ids is None else np.asarray(ids)
    if losses.ndim != 1 or not losses.shape == weights.shape == ids.shape:
        raise ValueError(
            "losses, weights and ids must have one entry per point each; found shapes "
            f"{losses.shape}, {weights.shape}, {ids.shape}"
        )
    refuse_first(np.isnan(losses), losses, "losses has {value} in {row}; every point needs a loss")
    total = checked_total(weights)
    if not 0 <= z <= total:
        raise ValueError(f"z={z} must lie between 0 and the total weight {total:g}")
    if z == 0:
        return np.empty(0, dtype=np.intp), np.empty(0)
    rows = _above_a_guess(losses, weights, z, total)
    return rows, kept_unchecked(losses[rows], weights[rows], z, ids[rows])


def trimmed_sum(losses: Any, weights: Any, z: float) -> float:
    """Sum weight times loss over what is kept when weight ``z`` is set aside.

    Examples
    --------
    >>> trimmed_sum([5.0, 1.0, 3.0], [1.0, 1.0, 1.0], z=1.5)
    2.5
    """
    return kept_sum(losses, kept_weights(losses, weights, z))


def kept_sum(losses: Any, kept: Array) -> float:
    """Sum kept weight times loss, without infinite losses that are set aside.

    Examples
    --------
    >>> kept_sum([np.inf, 2.0], np.array([0.0, 1.5]))
    3.0
    """
    losses = np.asarray(losses)
    with np.errstate(invalid="ignore"):
        total = float(kept @ losses)
    if math.isnan(total):
        total = float(kept[kept > 0] @ losses[kept > 0])
    return total


def weigh(values: Any, kept: Array) -> Array:
    """Multiply by kept weights; a row that is set aside counts for nothing, even where its loss overflows."""
    return np.where(kept > 0, kept * values, 0.0)


def trimmed_objective(points: WeightedPoints, theta: Any, *, loss: Loss, n_outliers: float = 0) -> float:
    """Evaluate f_z(theta, X): the weighted loss of all points but the worst ``n_outliers``.

    Parameters
    ----------
    points : WeightedPoints
        Made by :func:`duramen.points`.
    theta : array
        Parameters, of the shape that ``loss`` takes.
    loss : Loss
        The learning problem.
    n_outliers : float
        The weight to set aside: a count (1 or more), or a fraction (below 1).

    Examples
    --------
    >>> import duramen as dm
    >>> points = dm.points([[0.0], [1.0], [100.0]])
    >>> loss = dm.KMeansLoss(1)
    >>> dm.trimmed_objective(points, [[0.5]], loss=loss)
    9900.75
    >>> dm.trimmed_objective(points, [[0.5]], loss=loss, n_outliers=1)
    0.5
    """
    check_points(points, loss)
    return Problem(points, loss, outlier_weight(n_outliers, points.total_weight)).at(theta).objective


def check_points(points: Any, loss: Any) -> None:
    """Raise TypeError or ValueError unless these are points and a loss, and labelled if it needs labels."""
    if not isinstance(points, WeightedPoints):
        raise TypeError(
            f"points must be WeightedPoints, found {type(points).__name__}; make them with dm.points(X, y)"
        )
    check_loss(loss)
    if loss.needs_labels and points.y is None:
        raise ValueError(f"{loss!r} needs labels; pass y, one label per row")


class Iterate(NamedTuple):
    """A theta, the losses there, the kept part of each weight, and the trimmed objective."""

    theta: Array
    losses: Array
    kept: Array
    objective: float


@dataclass(frozen=True, eq=False)
class Problem:
    """Minimise f_z(theta) + ridge / 2 times theta squared, coefficient by coefficient.

    ``frame`` holds the coordinates to take steps in, if they were measured before.
    """

    points: WeightedPoints
    loss: Loss
    z: float
    ridge: Any = 0.0
    frame: Any = None

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

    def zero(self) -> Array:
        """Return the theta of zeros."""
        shape = self.loss.parameter_shape(self.points.n_columns)
        assert shape is not None
        return np.zeros(shape)

    def penalty(self, theta: Array) -> float:
        """Evaluate the penalty."""
        return float((self.ridge * theta**2).sum()) / 2 if np.any(self.ridge) else 0.0

    def kept(self, losses: Array) -> Array:
        """Compute how much of each weight is kept."""
        return kept_weights(losses, self.points.weights, self.z, self.points.ids)

    def at(self, theta: Array, losses: Array | None = None, kept: Array | None = None) -> Iterate:
        """Evaluate the objective; without ``kept``, the worst weight z is set aside."""
        losses = self.loss.values(theta, self.X, self.y) if losses is None else losses
        kept = self.kept(losses) if kept is None else kept
        return Iterate(theta, losses, kept, kept_sum(losses, kept) + self.penalty(theta))


class Fit(ABC):
    """Refit the parameters of one problem, repeatedly."""

    needs: ClassVar[tuple[str, ...]] = ()
    """The attributes of a loss that it uses, apart from those that every loss has."""
    sure = True
    """Whether the last refit went as far as it could: only then does a small gain mean convergence."""

    loss: Any

    def __init__(self, problem: Problem) -> None:
        self.problem, self.loss = problem, problem.loss

    @classmethod
    def suits(cls, problem: Problem) -> bool:
        """Return whether it takes less time than L-BFGS."""
        return True

    def evaluate(self, theta: Array) -> Iterate:
        """Set the worst weight z aside at ``theta``."""
        return self.problem.at(theta)

    @abstractmethod
    def refit(self, here: Iterate) -> Iterate:
        """Find parameters that are no worse on the weights kept here, or return those here."""


def problem_of(
    points: Any, loss: Any, n_outliers: float, l2: Any = 0.0, *, is_sample: bool = False
) -> Problem:
    """Build a problem, and check all that can be checked before solving it; a sample may lack a class."""
    check_points(points, loss)
    check_nonnegative("l2", l2)
    if l2 > 0 and not loss.has_predictors:
        raise ValueError(f"l2={l2} penalises linear predictors, which {loss!r} does not have; leave l2 out")
    if not points.total_weight > 0:
        raise ValueError("there are no points, or all weights are zero; pass points with positive weight")
    z = outlier_weight(n_outliers, points.total_weight)
    if not (is_sample and loss.has_classes):
        loss.check_solvable(points.X, points.y, points.weights, z)
    loss = loss if loss.measured else loss.measure(points)
    ridge = loss.ridge(l2, points.n_columns) if l2 or loss.base is not None else 0.0
    return Problem(points, loss, z, ridge)


def _above_a_guess(losses: Array, weights: Array, z: float, total: float) -> Array:
    """Find rows of the largest losses that weigh more than z together, so that not all must be sorted."""
    step = max(1, len(losses) // _PROBES)
    sample = weights[::step]
    guess = _loss_beyond(losses[::step], sample, (1.2 * z / total + 0.01) * sample.sum())
    rows = (losses >= guess).nonzero()[0]
    return rows if weights[rows].sum() > z * (1 + 1e-9) else np.arange(len(losses))


def _loss_beyond(losses: Array, weights: Array, z: float) -> Any:
    """Find the first loss, from the largest down, with more than weight z up to it; else the smallest."""
    order = losses.argsort()[::-1]
    place = weights.take(order).cumsum().searchsorted(z, side="right")
    return losses[order[: place + 1][-1]]


def kept_unchecked(losses: Array, weights: Array, z: float, ids: Array) -> Array:
    """Do what :func:`kept_weights` does, for checked arguments and z above 0.

    What is kept of the point on the boundary is rounded to nothing or to all of its weight if it is within
    the rounding error of sums as large as z of that. Sums are pairwise: one after the other loses digits.
    """
    boundary = _loss_beyond(losses, weights, z)
    above, tied = losses > boundary, (losses == boundary).nonzero()[0]
    tied = tied[ids[tied].argsort()[::-1]]  # the largest id is set aside first
    kept, heavy = np.where(above, 0.0, weights), weights[tied]
    excess, slack = z - weights[above].sum(), 64 * _EPS * z
    n_aside = bisect_right(range(len(tied)), excess, key=lambda n: heavy[: n + 1].sum())
    kept[tied[:n_aside]] = 0.0
    if n_aside < len(tied):
        left, weight = heavy[: n_aside + 1].sum() - excess, heavy[n_aside]
        if left < weight:  # it is cut
            kept[tied[n_aside]] = weight if weight - left <= slack < left else left if left > slack else 0.0
    return kept
