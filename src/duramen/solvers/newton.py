"""Fits by derivatives: Newton's method for losses of linear predictors, and L-BFGS for any loss."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar, NamedTuple, cast

import numpy as np
from scipy import linalg, sparse
from scipy.linalg.lapack import dpotrf, dpotrs
from scipy.optimize import minimize
from scipy.special import softmax

from duramen.arrays import Array, Rows, take_rows, to_dense
from duramen.losses.base import Loss, ignore_overflow
from duramen.parallel import one_blas_thread, rows_per_chunk, sum_over_chunks
from duramen.trimming import Fit, Iterate, Problem, kept_sum

_ROWS = 1000  # on which coordinates are measured
_NEWTON_COLUMNS = 1000  # beyond (half of it for sparse rows), L-BFGS takes less time (docs/solving.md)
_SOFTMAX = 400  # parameters of all classes together; beyond, L-BFGS takes less time (docs/solving.md)
_FIRST_DAMPING, _MORE, _ATTEMPTS = 1e-6, 100.0, 20
_FLAT = 1e-4  # of the steepest curvature that a column can have
_SOLID = 1e-8  # the least squared pivot with which Cholesky's answer is trusted
_ROUNDING = 1e-14  # of the scaled Hessian: flatter directions are rounding error
_SHARES = (1, 1 / 4, 1 / 16, 1 / 64, 1 / 256, 1 / 1024)  # how much smooth losses differ from one with kinks
_STEPS, _GAIN = 30, 1e-2  # the most steps for each, and the gain that counts, relative to that share
_LEVEL = 1e-12  # of the sum of all pulls: a gradient below this is rounding


class Coordinates(NamedTuple):
    """Well-conditioned coordinates for linear losses: (w, b'), b' being the predictor at the middle of X.

    ``middle`` is the median of each column, or zero without an intercept; ``spread`` is never zero.
    """

    middle: Array
    spread: Array
    fit_intercept: bool

    @classmethod
    def of(cls, problem: Problem) -> Coordinates:
        """Return the coordinates that a problem comes with, or else measure them."""
        if problem.frame is not None:
            return cast("Coordinates", problem.frame)
        loss: Any = problem.loss
        share = problem.z / problem.points.total_weight
        return measure_coordinates(problem.X, problem.points.weights, share, loss.fit_intercept)

    def from_theta(self, theta: Array, sign: int = 1) -> Array:
        """Convert theta = (w, b) to (w, b')."""
        if not self.fit_intercept:
            return theta
        shifted = theta.copy()
        shifted[..., -1] += sign * (theta[..., :-1] @ self.middle)
        return shifted

    def to_theta(self, inside: Array) -> Array:
        """Convert (w, b'), or a step in it, to theta."""
        return self.from_theta(inside, -1)

    def gradient(self, slope: Array) -> Array:
        """Convert a gradient in theta to one in (w, b')."""
        if not self.fit_intercept:
            return slope
        converted = slope.copy()
        converted[..., :-1] -= self.middle * slope[..., -1:]
        return converted

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


class GradientFit(Fit):
    """L-BFGS, for any loss with gradients: for custom losses and for very many columns."""

    steps = 100  # of L-BFGS between two trimmings

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem)
        kind = type(problem.loss)
        if kind.gradients is Loss.gradients and kind.gradient_sum is Loss.gradient_sum:
            raise problem.loss._missing("gradients", "theta, X, y")
        # those of theta itself, unless the loss is linear
        plain = Coordinates(np.zeros(1), np.ones(1), fit_intercept=False)
        self.frame = Coordinates.of(problem) if problem.loss.has_predictors else plain

    def losses(self, theta: Array) -> Array:
        return self.problem.loss.values(theta, self.problem.X, self.problem.y)

    def refit(self, here: Iterate) -> Array:
        problem, total = self.problem, self.problem.kept_weight

        def objective(step: Array) -> tuple[float, Array]:
            theta = self._after(here.theta, step)
            value = problem.at(theta, self.losses(theta), here.kept).objective
            slope = problem.loss.gradient_sum(theta, problem.X, problem.y, here.kept) + problem.ridge * theta
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


class NewtonFit(Fit):
    """Damped Newton steps on a loss of one linear predictor: one pass over the data for each."""

    needs: ClassVar[tuple[str, ...]] = (
        "fit_intercept",
        "max_curvature",
        "encode_labels",
        "slope",
        "curvature",
    )

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem)
        self.loss: Any = problem.loss
        self.frame = Coordinates.of(problem)
        zero = problem.zero()
        self.ridge = problem.ridge + zero
        self.units = (self.frame.units() + zero).ravel()
        self.damping = 0.0
        self.ready: tuple[Array, Array] | None = None  # the accepted theta and its losses

        n, p = len(problem.points), zero.shape[-1]
        self.chunk_rows = max(rows_per_chunk(16 * zero.size), 8 * p)
        self.only_chunk = self._part(slice(0, n)) if n <= self.chunk_rows else None

    @classmethod
    def suits(cls, problem: Problem) -> bool:
        return problem.points.n_columns <= _NEWTON_COLUMNS / (1 + sparse.issparse(problem.X))

    def pull_and_hessian(self, block: Rows, m: Array, labels: Array, kept: Array) -> tuple[Array, Array]:
        """Compute the weighted slopes of rows in m, shaped like m, and sum the Hessian in the parameters."""
        slope, curvature = self.loss.slope(m, labels), self.loss.curvature(m, labels)
        scaled = _scale_rows(block, np.sqrt(_weigh(curvature, kept)))
        return _weigh(slope, kept), _product(scaled, scaled)

    def derivatives(self, theta: Array, kept: Array) -> tuple[Array, Array, float]:
        """Sum gradient (q,) and Hessian (q, q) in the coordinates' parameters, and the sizes of all slopes.

        q is the number of parameters, predictor by predictor.
        """
        inside = self.frame.from_theta(theta)

        def work(chunk: slice) -> tuple[Array, Array, float]:
            block, labels = self._part(chunk) if self.only_chunk is None else self.only_chunk
            with ignore_overflow():
                pull, hessian = self.pull_and_hessian(block, block @ inside.T, labels, kept[chunk])
                return (block.T @ pull).T.ravel(), hessian, float(np.abs(pull).sum())

        gradient, hessian, pulls = sum_over_chunks(work, len(kept), self.chunk_rows)
        return gradient, hessian, pulls

    def restart(self) -> None:
        self.damping = 0.0

    def losses(self, theta: Array) -> Array:
        if self.ready is not None and self.ready[0] is theta:
            return self.ready[1]
        return self.problem.loss.values(theta, self.problem.X, self.problem.y)

    @one_blas_thread()
    def refit(self, here: Iterate) -> Array:
        slope, bend, solve = self._system(here)
        for _ in range(_ATTEMPTS):
            move = -solve(self.damping)
            downhill = float(-(slope @ move))
            there = self._after(here.theta, move)
            if not (0 < downhill < np.inf) or np.array_equal(there, here.theta):
                break
            losses = self._try_values(there)
            gain = here.objective - self.problem.at(there, losses, here.kept).objective
            promised = downhill - float(move @ bend @ move) / 2
            if gain > 0 and gain >= 1e-4 * promised:
                self.sure = self.damping == 0 and gain >= 0.1 * promised
                if gain > 0.5 * promised:
                    self.damping = self.damping / _MORE if self.damping > _FIRST_DAMPING else 0.0
                self.ready = there, losses
                return there
            self.damping = max(_MORE * self.damping, _FIRST_DAMPING)
        self.damping = 0.0
        return here.theta

    def _system(self, here: Iterate) -> tuple[Array, Array, Callable[[float], Array]]:
        """Compute the gradient, the Hessian, and a function from a damping to the negative Newton step."""
        slope, bend, pulls = self.derivatives(here.theta, here.kept)
        slope += (self.ridge * here.theta).ravel()
        _add_to_diagonal(bend, self.ridge.ravel())
        steepest = self.problem.kept_weight * (self.loss.max_curvature or 1.0) / self.units**2
        level = _LEVEL * pulls / self.units
        return slope, bend, partial(_solve_damped, bend, slope, steepest, level)

    def _after(self, theta: Array, move: Array) -> Array:
        return theta + self.frame.to_theta(move.reshape(theta.shape))

    def _part(self, chunk: slice) -> tuple[Rows, Array]:
        """Return the rows of a chunk, less the middle and with a column of ones; and the labels."""
        X, y, intercept = self.problem.X[chunk], self.problem.y, self.frame.fit_intercept
        assert y is not None
        labels = self.loss.encode_labels(y[chunk], np.float64)
        if sparse.issparse(X):
            ones = sparse.csr_array(np.ones((X.shape[0], int(intercept))))
            return sparse.hstack([X.astype(np.float64, copy=False), ones], format="csr"), labels
        block = np.ones((X.shape[0], X.shape[1] + intercept))
        with ignore_overflow():
            np.subtract(X, self.frame.middle, out=block[:, : X.shape[1]])
        return block, labels

    def _try_values(self, theta: Array) -> Array:
        """Compute the losses, infinite where a step went so far that predictors overflow."""
        try:
            return self.problem.loss.values_again(theta, self.problem.X, self.problem.y)
        except ValueError:
            return np.full(len(self.problem.points), np.inf)


def _weigh(values: Array, kept: Array) -> Array:
    """Multiply by kept weights; a row that is set aside counts for nothing, even where its loss overflows."""
    return np.where(kept > 0, kept * values, 0.0)


def _scale_rows(block: Rows, factors: Array) -> Rows:
    if sparse.issparse(block):
        return sparse.csr_array(block.multiply(factors[:, None]))
    return block * factors[:, None]


def _product(one: Rows, two: Rows) -> Array:
    return to_dense(one.T @ two)


def _add_to_diagonal(matrix: Array, values: Array | float) -> None:
    matrix.flat[:: len(matrix) + 1] += values


def _solve_damped(bend: Array, slope: Array, steepest: Array, level: Array, damping: float) -> Array:
    """Solve (B + damping D) v = g, with D the diagonal of B, or where B is flat, part of ``steepest``.

    Undamped, directions in which B is singular are left out if g vanishes there too.
    """
    diagonal = np.diag(bend)
    floored = np.maximum(diagonal, _FLAT * steepest)
    units = 1 / np.sqrt(floored if damping else np.where(diagonal > 0, diagonal, steepest))
    scaled, right = bend * units * units[:, None], slope * units
    if not (np.isfinite(scaled).all() and np.isfinite(right).all()):
        return np.full_like(slope, np.nan)
    if damping == 0:
        answer = _by_cholesky(scaled, right)
        return units * (_by_spectrum(scaled, right, level * units) if answer is None else answer)
    # where the loss is nearly flat along some columns, it is their steps that go too far
    flat = diagonal < floored
    _add_to_diagonal(scaled, damping * (np.where(flat, 1.0, 1e-6) if flat.any() else np.ones(len(bend))))
    answer = _by_cholesky(scaled, right, least=0.0)
    return np.full_like(slope, np.nan) if answer is None else units * answer


def _by_cholesky(scaled: Array, right: Array, least: float = _SOLID) -> Array | None:
    """Solve by calling LAPACK directly: SciPy's wrappers take longer than the solution."""
    factor, failed = dpotrf(scaled, lower=1)
    if failed or not factor.diagonal().min() ** 2 > least:
        return None
    return np.asarray(dpotrs(factor, right, lower=1)[0])


def _by_spectrum(scaled: Array, right: Array, level: Array) -> Array:
    sizes, directions = linalg.eigh(scaled)
    along = directions.T @ right
    flat = sizes <= _ROUNDING * max(1.0, sizes[-1])
    if np.linalg.norm(along[flat]) <= np.linalg.norm(level):
        along[flat] = 0.0
    return directions @ (along / np.maximum(sizes, _ROUNDING * max(1.0, sizes[-1])))


class SoftmaxFit(NewtonFit):
    """Damped Newton steps on a softmax loss, with a product for each pair of classes."""

    needs = ("fit_intercept", "max_curvature", "encode_labels", "n_classes")

    @classmethod
    def suits(cls, problem: Problem) -> bool:
        return problem.zero().size <= _SOFTMAX

    def pull_and_hessian(self, block: Rows, m: Array, labels: Array, kept: Array) -> tuple[Array, Array]:
        shares = softmax(m, axis=1)
        pull = _weigh(shares - (labels[:, None] == np.arange(m.shape[1])), kept[:, None])
        return pull, _softmax_hessian(block, shares, kept)


def _softmax_hessian(block: Rows, shares: Array, kept: Array) -> Array:
    """Sum the Hessian over a block: (k, p, k, p), as a matrix."""
    k, p = shares.shape[1], block.shape[1]
    hessian = np.empty((k, p, k, p))
    for one in range(k):
        for two in range(one + 1):
            weights = _weigh(shares[:, one] * ((one == two) - shares[:, two]), kept)
            part = _product(block, _scale_rows(block, weights))
            hessian[one, :, two], hessian[two, :, one] = part, part.T
    return hessian.reshape(k * p, k * p)


class SmoothedFit(Fit):
    """Fits of smooth losses, ever closer to a loss with kinks, each from the last one."""

    needs = ("smoothed",)

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem)
        self.loss: Any = problem.loss
        self.frame = Coordinates.of(problem)
        self.level = 0

    def restart(self) -> None:
        self.level = 0

    def losses(self, theta: Array) -> Array:
        return self.problem.loss.values_again(theta, self.problem.X, self.problem.y)

    def refit(self, here: Iterate) -> Array:
        mean = kept_sum(here.losses, here.kept) / self.problem.kept_weight
        while mean > 0:
            share, self.sure = _SHARES[self.level], self.level == len(_SHARES) - 1
            theta = self._minimise(self.loss.smoothed(mean, share), here.theta, here.kept, share)
            self.level += not self.sure
            if self.sure or self.problem.at(theta, self.losses(theta), here.kept).objective < here.objective:
                return theta
        return here.theta

    def _minimise(self, loss: Any, theta: Array, kept: Array, share: float) -> Array:
        """Fit the weights kept, as closely as a loss that differs in part by this share deserves."""
        problem = replace(self.problem, loss=loss, frame=self.frame)
        fit: Fit = NewtonFit(problem) if NewtonFit.suits(problem) else GradientFit(problem)
        last = np.inf
        for _ in range(_STEPS):
            here = problem.at(theta, fit.losses(theta), kept)
            gain = last - here.objective
            if (fit.sure and gain <= _GAIN * share * here.objective) or gain <= 0:
                break
            theta, last = fit.refit(here), here.objective
        return theta
