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

from duramen.arrays import Array, Rows, take_rows
from duramen.losses.base import Loss
from duramen.losses.bregman import BregmanLoss
from duramen.losses.centres import DistanceLoss
from duramen.losses.linear import LinearLoss
from duramen.losses.softmax import SoftmaxLoss
from duramen.points import WeightedPoints
from duramen.trimming import Trimmer, check_points_and_loss, kept_sum, outlier_weight

__all__ = [
    "Coordinates",
    "Fit",
    "GradientFit",
    "Place",
    "Problem",
    "Solution",
    "Status",
    "Step",
    "coordinates_of",
    "count_distinct",
    "is_linear",
    "is_number",
    "is_of_centres",
    "problem_of",
]


_ROWS = 1000  # looked at


class Coordinates(NamedTuple):
    """The middle of each column, zero where no intercept can take it up; and its spread, never zero."""

    middle: Array
    spread: Array
    fit_intercept: bool

    def inside(self, theta: Array) -> Array:
        """Give (w, b') for theta."""
        if not self.fit_intercept:
            return theta
        inside = theta.copy()
        inside[..., -1] += theta[..., :-1] @ self.middle
        return inside

    def turned(self, slope: Array) -> Array:
        """Turn a gradient in theta into one in (w, b')."""
        if not self.fit_intercept:
            return slope
        turned = slope.copy()
        turned[..., :-1] -= self.middle * slope[..., -1:]
        return turned

    def turned_back(self, step: Array) -> Array:
        """Turn a step in (w, b') into one in theta."""
        if not self.fit_intercept:
            return step
        turned = step.copy()
        turned[..., -1] -= step[..., :-1] @ self.middle
        return turned

    def units(self) -> Array:
        """Give the size of each parameter: one over the spread of its column."""
        return np.append(1 / self.spread, 1.0) if self.fit_intercept else 1 / self.spread


def coordinates_of(X: Rows, weights: Array, share: float, fit_intercept: bool) -> Coordinates:
    """Measure middle and spread on a thousand rows, evenly spaced by weight.

    The middle is the median; the spread the root mean square distance from it, the farthest values left
    out, a ``share`` of them. A column that is constant but for those has the spread of all its values;
    one that is constant altogether has the size of its value, or 1.
    """
    steps = np.cumsum(weights)
    rows = np.searchsorted(steps, (np.arange(_ROWS) + 0.5) / _ROWS * steps[-1])  # none without weight
    if sparse.issparse(X):
        return _of_sparse(X[rows], share, fit_intercept)
    columns = np.array(take_rows(X, rows).T, dtype=np.float64, order="C")
    columns.sort(axis=1)
    middle = columns[:, columns.shape[1] // 2].copy()
    with np.errstate(over="ignore"):
        far = np.square(np.subtract(columns, middle[:, None], out=columns), out=columns)
        far.sort(axis=1)
        kept = max(1, round(far.shape[1] * (1 - share)))
        spread = _first_positive(far[:, :kept].mean(axis=1), far.mean(axis=1), middle**2)
    return Coordinates(middle if fit_intercept else np.zeros_like(middle), spread, fit_intercept)


def _of_sparse(X: Rows, share: float, fit_intercept: bool) -> Coordinates:
    """Sparse columns stay where they are: most of their values are zero, and must remain so."""
    inner = _without_largest(X, round(X.shape[0] * share))
    with np.errstate(over="ignore", invalid="ignore"):
        mean, squares = _moments(inner)
        spread = _first_positive(squares - mean**2, squares, _moments(X)[1])
        return Coordinates(np.zeros_like(mean), spread, fit_intercept)


def _without_largest(X: Rows, n: int) -> Rows:
    """Put zero for the ``n`` largest values of each column, by their size."""
    columns = X.tocsc(copy=True)
    numbers = np.repeat(np.arange(columns.shape[1]), np.diff(columns.indptr))
    order = np.lexsort((np.abs(columns.data), numbers))
    from_the_end = columns.indptr[numbers + 1] - np.arange(len(numbers))  # 1 for the largest of a column
    columns.data[order[from_the_end <= n]] = 0.0
    return columns


def _moments(X: Rows) -> tuple[Array, Array]:
    """Average the values of each column, and their squares."""
    mean = np.asarray(X.mean(axis=0), dtype=np.float64).ravel()
    return mean, np.asarray(X.multiply(X).mean(axis=0), dtype=np.float64).ravel()


def _first_positive(*squares: Array) -> Array:
    spread = np.ones_like(squares[0])
    for candidate in reversed(squares):
        usable = (candidate > 0) & np.isfinite(candidate)
        spread[usable] = np.sqrt(candidate[usable])
    return spread


class Status(enum.Enum):
    """Why a solver stopped; the value says it in words."""

    CONVERGED = "the objective fell by less than tol of itself"
    SETTLED = "nothing moves any more"
    UNBOUNDED = "the objective has no minimum: it falls towards zero as theta grows"
    MAX_ITER = "max_iter was reached"
    STOPPED = "the callback asked for it"

    @property
    def converged(self) -> bool:
        """Whether there was nothing left to gain."""
        return self in (Status.CONVERGED, Status.SETTLED)


class Step(NamedTuple):
    """Where a solver stands, for a callback: after ``n_iter`` iterations of start number ``start``."""

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
        What was minimised: f_z(theta, X), and ``penalty`` where there is one.
    penalty : float
        ``l2 / 2`` times the squared length of the coefficients; 0 for centres.
    outliers : array of int64
        The ids of the points that were set aside, the largest loss first. Of
        the last one a part may be kept.
    aside : array
        How much weight of each of them was set aside; in sum z.
    history : array (n_iter + 1,)
        The objective at the start and after each iteration; it never rises.
    status : Status
        Why it stopped.
    n_iter : int
        How many iterations the best start took.
    start_objectives : array
        The objective that each start reached.
    loss, n_points, total_weight
        What was solved.
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
        """How many iterations the best start took."""
        return len(self.history) - 1

    @property
    def n_outliers(self) -> float:
        """The weight that was set aside: z."""
        return float(self.aside.sum())

    def __repr__(self) -> str:
        kept = self.total_weight - self.n_outliers
        mean = f" ({(self.objective - self.penalty) / kept:.6g} a unit of kept weight)"
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


class Place(NamedTuple):
    """A theta, the losses there, what is kept of each weight, and the trimmed objective."""

    theta: Array
    losses: Array
    kept: Array
    objective: float


class Fit(ABC):
    """One problem being fitted."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.trim = problem.trimmer()
        self.sure = True
        """Whether the last refit went as far as it could: only then does a small gain mean little left."""

    def evaluate(self, theta: Array) -> Place:
        """Set the worst weight z aside at ``theta``."""
        losses = self.losses(theta)
        kept = self.trim(losses)
        return Place(theta, losses, kept, self.problem.objective(theta, losses, kept))

    @abstractmethod
    def losses(self, theta: Array) -> Array:
        """Compute the loss of every point."""

    @abstractmethod
    def refit(self, here: Place) -> Array:
        """Find parameters that are no worse on the weights kept here, or return those here."""

    def finished(self, theta: Array) -> Array:
        """Find the last digits of a minimum, which the objective no longer shows."""
        return theta


class GradientFit(Fit):
    """L-BFGS, for any loss with gradients: what a loss of your own, or one of very many columns, gets."""

    steps = 100  # of L-BFGS between two trimmings

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem)
        self.last: tuple[Array, Array] | None = None
        self.frame = problem.coordinates() if is_linear(problem.loss) else None

    def losses(self, theta: Array) -> Array:
        if self.last is None or not np.array_equal(self.last[0], theta):
            self.last = theta, self.problem.loss.values(theta, self.problem.X, self.problem.y)
        return self.last[1]

    def refit(self, here: Place) -> Array:
        problem, total = self.problem, self.problem.kept_weight

        def objective(step: Array) -> tuple[float, Array]:
            theta = self._after(here.theta, step)
            value = kept_sum(self.losses(theta), here.kept) + problem.penalty(theta)
            slope = problem.loss.gradient_sum(theta, problem.X, problem.y, here.kept)
            if problem.l2:
                slope = slope + problem.ridge() * theta
            if self.frame is not None:
                slope = self.frame.turned(slope) * self.frame.units()
            return value / total, slope.ravel() / total

        options = {"maxiter": self.steps, "maxfun": 2 * self.steps, "ftol": 1e-11, "gtol": 1e-10}
        nowhere = np.zeros(here.theta.size)
        found = minimize(objective, nowhere, jac=True, method="L-BFGS-B", options=options)
        self.sure = found.nit < self.steps and found.nfev < 2 * self.steps
        return self._after(here.theta, found.x) if found.fun * total < here.objective else here.theta

    def _after(self, theta: Array, step: Array) -> Array:
        """Take a step, which for linear losses is in well-conditioned coordinates."""
        step = step.reshape(theta.shape)
        return theta + (step if self.frame is None else self.frame.turned_back(step * self.frame.units()))
