"""A problem to solve (points, loss, weight to set aside), how it is fitted, and its solution."""

from __future__ import annotations

import enum
from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse
from scipy.optimize import minimize

from duramen.arrays import Array, Rows, check_nonnegative, take_rows
from duramen.losses.base import Loss, ignore_overflow
from duramen.losses.linear import PredictorLoss
from duramen.points import WeightedPoints
from duramen.trimming import Trimmer, check_points_and_loss, kept_sum, outlier_weight

_ROWS = 1000  # on which coordinates are measured


class Coordinates(NamedTuple):
    """Well-conditioned coordinates for linear losses: (w, b'), b' being the predictor at the middle of X.

    ``middle`` is the median of each column, or zero without an intercept; ``spread`` is never zero.
    """

    middle: Array
    spread: Array
    fit_intercept: bool

    def from_theta(self, theta: Array) -> Array:
        """Convert theta = (w, b) to (w, b')."""
        return self._shift_intercept(theta, 1)

    def to_theta(self, inside: Array) -> Array:
        """Convert (w, b'), or a step in it, to theta."""
        return self._shift_intercept(inside, -1)

    def gradient(self, slope: Array) -> Array:
        """Convert a gradient in theta to one in (w, b')."""
        if not self.fit_intercept:
            return slope
        converted = slope.copy()
        converted[..., :-1] -= self.middle * slope[..., -1:]
        return converted

    def _shift_intercept(self, theta: Array, sign: int) -> Array:
        if not self.fit_intercept:
            return theta
        shifted = theta.copy()
        shifted[..., -1] += sign * (theta[..., :-1] @ self.middle)
        return shifted

    def units(self) -> Array:
        """Return the scale of each parameter: one over the spread of its column."""
        return np.append(1 / self.spread, 1.0) if self.fit_intercept else 1 / self.spread


def measure_coordinates(X: Rows, weights: Array, share: float, fit_intercept: bool) -> Coordinates:
    """Measure middle and spread on a thousand rows, evenly spaced by weight.

    The middle is the median; the spread is the root mean square distance from it, without the ``share`` of
    values that lie farthest. A column that is constant except for those has the spread of all its values;
    one that is entirely constant has the size of its value, or 1.
    """
    steps = np.cumsum(weights)
    rows = np.searchsorted(steps, (np.arange(_ROWS) + 0.5) / _ROWS * steps[-1])  # none has weight zero
    if sparse.issparse(X):
        return _measure_sparse(X[rows], share, fit_intercept)
    columns = np.array(take_rows(X, rows).T, dtype=np.float64, order="C")
    columns.sort(axis=1)
    middle = columns[:, columns.shape[1] // 2].copy()
    with ignore_overflow():
        far = np.square(np.subtract(columns, middle[:, None], out=columns), out=columns)
        far.sort(axis=1)
        kept = max(1, round(far.shape[1] * (1 - share)))
        spread = _first_positive(far[:, :kept].mean(axis=1), far.mean(axis=1), middle**2)
    return Coordinates(middle if fit_intercept else np.zeros_like(middle), spread, fit_intercept)


def _measure_sparse(X: Rows, share: float, fit_intercept: bool) -> Coordinates:
    """Measure sparse columns, whose middle stays zero: most of their values are, and must remain so."""
    inner = X.tocsc(copy=True)
    numbers = np.repeat(np.arange(inner.shape[1]), np.diff(inner.indptr))
    order = np.lexsort((np.abs(inner.data), numbers))
    from_the_end = inner.indptr[numbers + 1] - np.arange(len(numbers))  # 1 for the largest of a column
    inner.data[order[from_the_end <= round(X.shape[0] * share)]] = 0.0
    with ignore_overflow():
        mean, squares, all_squares = (
            np.asarray(part.mean(axis=0), dtype=np.float64).ravel()
            for part in (inner, inner.multiply(inner), X.multiply(X))
        )
        spread = _first_positive(squares - mean**2, squares, all_squares)
        return Coordinates(np.zeros_like(mean), spread, fit_intercept)


def _first_positive(*squares: Array) -> Array:
    spread = np.ones_like(squares[0])
    for candidate in reversed(squares):
        usable = (candidate > 0) & np.isfinite(candidate)
        spread[usable] = np.sqrt(candidate[usable])
    return spread


class Status(enum.Enum):
    """Why a solver stopped; the value describes it."""

    CONVERGED = "the objective fell by less than tol of itself"
    SETTLED = "no further step lowers the objective"
    UNBOUNDED = "the objective has no minimum: it falls towards zero as theta grows"
    MAX_ITER = "max_iter was reached"
    STOPPED = "stopped by the callback"

    @property
    def converged(self) -> bool:
        """Whether there was nothing left to gain."""
        return self in (Status.CONVERGED, Status.SETTLED)


class Step(NamedTuple):
    """The state of a solver after ``n_iter`` iterations of start number ``start``, for a callback."""

    start: int
    n_iter: int
    objective: float
    theta: Array


@dataclass(frozen=True, eq=False)
class Solution:
    """Parameters with a low trimmed objective, and how they were found.

    Attributes
    ----------
    theta : array
        The parameters; intercept last, or (k, d) centres.
    objective : float
        The value that was minimised: f_z(theta, X) plus ``penalty``.
    penalty : float
        ``l2 / 2`` times the squared length of the coefficients; 0 for centres.
    outliers : array of int64
        The ids of the points that were set aside, the largest loss first. A
        part of the last one may be kept.
    aside : array
        The weight set aside of each; they add up to z.
    history : array (n_iter + 1,)
        The objective at the start and after each iteration; it never rises.
    status : Status
        Why it stopped.
    n_iter : int
        The number of iterations of the best start.
    start_objectives : array
        The objective that each start reached.
    loss, n_points, total_weight
        The problem that was solved.
    """

    theta: Array
    objective: float
    penalty: float
    outliers: Array
    aside: Array
    history: Array
    status: Status
    start_objectives: Array
    loss: Loss
    n_points: int
    total_weight: float

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self.__post_init__()

    def __post_init__(self) -> None:
        for array in (self.theta, self.outliers, self.aside, self.history, self.start_objectives):
            array.flags.writeable = False

    @property
    def converged(self) -> bool:
        """Whether there was nothing left to gain, by the tolerance given."""
        return self.status.converged

    @property
    def n_iter(self) -> int:
        """The number of iterations of the best start."""
        return len(self.history) - 1

    @property
    def n_outliers(self) -> float:
        """The weight that was set aside: z."""
        return float(self.aside.sum())

    def __repr__(self) -> str:
        kept = self.total_weight - self.n_outliers
        mean = f" ({(self.objective - self.penalty) / kept:.6g} per unit of kept weight)"
        penalty = f", {self.penalty:.4g} of it the penalty" if self.penalty else ""
        starts = f", best of {len(self.start_objectives)} starts" if len(self.start_objectives) > 1 else ""
        verdict = "converged" if self.converged else "NOT CONVERGED"
        return (
            f"Solution: {self.loss!r} on {self.n_points:,} points, theta {self.theta.shape}\n"
            f"  objective {self.objective:,.6g}{mean}{penalty}\n"
            f"  {len(self.outliers):,} points set aside, weight {self.n_outliers:,.6g} of "
            f"{self.total_weight:,.6g}\n"
            f"  {verdict} after {self.n_iter} iterations{starts}: {self.status.value}"
        )


@dataclass(frozen=True, eq=False)
class Problem:
    """Minimise f_z(theta) + l2 / 2 times the squared length of theta without its intercept.

    ``scales`` weigh the coefficients in that length, equally by default. ``frame`` holds the coordinates to
    take steps in, if they were measured before.
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

    @cached_property
    def ridge(self) -> Array:
        """The second derivative of the penalty in each coefficient of a linear loss; zero for intercepts."""
        assert isinstance(self.loss, PredictorLoss)
        shape = self.loss.parameter_shape(self.points.n_columns)
        ridge = np.full(shape, self.l2) if self.scales is None else self.l2 * self.scales
        if self.loss.fit_intercept:
            ridge[..., -1] = 0.0
        return ridge

    @cached_property
    def coordinates(self) -> Coordinates:
        """The coordinates to take steps in: those of theta itself, unless the loss is linear."""
        if self.frame is not None:
            return self.frame
        if not isinstance(self.loss, PredictorLoss):
            return Coordinates(np.zeros(1), np.ones(1), fit_intercept=False)
        share = self.z / self.points.total_weight
        return measure_coordinates(self.X, self.points.weights, share, self.loss.fit_intercept)

    def penalty(self, theta: Array) -> float:
        """Evaluate the penalty."""
        return float((self.ridge * theta**2).sum()) / 2 if self.l2 else 0.0

    def cost(self, theta: Array) -> float:
        """Evaluate the objective without its penalty."""
        losses = self.loss.values(theta, self.X, self.y)
        return kept_sum(losses, self.trimmer()(losses))

    def trimmer(self) -> Trimmer:
        """Return a function from losses to kept weights."""
        return Trimmer(self.points.weights, self.z, self.points.ids)

    def objective(self, theta: Array, losses: Array, kept: Array) -> float:
        """Evaluate the objective for given losses and kept weights."""
        return kept_sum(losses, kept) + self.penalty(theta)


def problem_of(points: Any, loss: Any, n_outliers: float, l2: Any = 0.0) -> Problem:
    """Build a problem, and check all that can be checked before solving it."""
    check_points_and_loss(points, loss)
    check_nonnegative("l2", l2)
    if l2 > 0 and not isinstance(loss, PredictorLoss):
        raise ValueError(f"l2={l2} penalises linear predictors, which {loss!r} does not have; leave l2 out")
    if not len(points):
        raise ValueError("there are no points to solve on; pass at least one")
    if not points.total_weight > 0:
        raise ValueError("all weights are zero; pass points with positive weight")
    z = outlier_weight(n_outliers, points.total_weight)
    loss.check_solvable(points.X, points.y, points.weights, z)
    return Problem(points, loss, z, float(l2))


def outlier_rows(points: WeightedPoints, losses: Array, kept: Array) -> Array:
    """Find the rows whose weight is set aside, the largest loss first."""
    rows = np.flatnonzero(kept < points.weights)
    return rows[np.lexsort((-points.ids[rows], -losses[rows]))]


class Iterate(NamedTuple):
    """A theta, the losses there, the kept part of each weight, and the trimmed objective."""

    theta: Array
    losses: Array
    kept: Array
    objective: float


class Fit(ABC):
    """Refit the parameters of one problem, repeatedly."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.trim = problem.trimmer()
        self.sure = True
        """Whether the last refit went as far as it could: only then does a small gain mean convergence."""

    def evaluate(self, theta: Array) -> Iterate:
        """Set the worst weight z aside at ``theta``."""
        losses = self.losses(theta)
        kept = self.trim(losses)
        return Iterate(theta, losses, kept, self.problem.objective(theta, losses, kept))

    @abstractmethod
    def losses(self, theta: Array) -> Array:
        """Compute the loss of every point."""

    @abstractmethod
    def refit(self, here: Iterate) -> Array:
        """Find parameters that are no worse on the weights kept here, or return those here."""

    def polish(self, theta: Array) -> Array:
        """Compute the last digits of a minimum, which the objective no longer shows."""
        return theta

    def restart(self) -> None:  # noqa: B027 (nothing to forget)
        """Reset all that depends on earlier steps, so that the next run is independent of them."""


class GradientFit(Fit):
    """L-BFGS, for any loss with gradients: for custom losses and for very many columns."""

    steps = 100  # of L-BFGS between two trimmings

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem)
        self.last: tuple[Array, Array] | None = None
        self.frame = problem.coordinates

    def losses(self, theta: Array) -> Array:
        if self.last is None or not np.array_equal(self.last[0], theta):
            self.last = theta, self.problem.loss.values(theta, self.problem.X, self.problem.y)
        return self.last[1]

    def refit(self, here: Iterate) -> Array:
        problem, total = self.problem, self.problem.kept_weight

        def objective(step: Array) -> tuple[float, Array]:
            theta = self._after(here.theta, step)
            value = problem.objective(theta, self.losses(theta), here.kept)
            slope = problem.loss.gradient_sum(theta, problem.X, problem.y, here.kept)
            if problem.l2:
                slope = slope + problem.ridge * theta
            slope = self.frame.gradient(slope) * self.frame.units()
            return value / total, slope.ravel() / total

        options = {"maxiter": self.steps, "maxfun": 2 * self.steps, "ftol": 1e-11, "gtol": 1e-10}
        no_step = np.zeros(here.theta.size)
        found = minimize(objective, no_step, jac=True, method="L-BFGS-B", options=options)
        self.sure = found.nit < self.steps and found.nfev < 2 * self.steps
        return self._after(here.theta, found.x) if found.fun * total < here.objective else here.theta

    def _after(self, theta: Array, step: Array) -> Array:
        """Take a step, which for linear losses is in well-conditioned coordinates."""
        return theta + self.frame.to_theta(step.reshape(theta.shape) * self.frame.units())
