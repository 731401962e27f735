"""Fits by derivatives: Newton's method for losses of linear predictors, and L-BFGS for any loss."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from itertools import combinations_with_replacement
from typing import Any, ClassVar, NamedTuple

import numpy as np
from scipy import linalg, sparse
from scipy.linalg.lapack import dposv, dpotrf
from scipy.optimize import minimize
from scipy.special import expit

from duramen.arrays import Array, Rows, append_ones, take_rows, to_dense
from duramen.losses.base import ignore_overflow
from duramen.parallel import one_blas_thread, rows_per_chunk, sum_over_chunks
from duramen.trimming import Fit, Iterate, Problem, weigh

_ROWS = 1000  # on which coordinates are measured
_NEWTON_COLUMNS = 1000  # beyond (half of it for sparse rows), L-BFGS takes less time (docs/solving.md)
_STEPS = 100  # of L-BFGS between two trimmings
_SOFTMAX = 400  # parameters of all classes together; beyond, L-BFGS takes less time (docs/solving.md)
_FIRST_DAMPING, _MORE, _ATTEMPTS = 1e-6, 100.0, 20
_FLAT = 1e-4  # of the steepest curvature that a column can have
_SOLID = 1e-8  # the least squared pivot with which Cholesky's answer is trusted
_ROUNDING = 1e-14  # of the scaled Hessian: flatter directions are rounding error
_LEVEL = 1e-12  # of the sum of all pulls: a gradient below this is rounding error


class Coordinates(NamedTuple):
    """Well-conditioned coordinates for linear losses: (w, b'), b' being the predictor at the middle of X.

    ``middle`` is the median of each column, or 0 without an intercept; ``units`` is one over the spread of
    each parameter's column, which is never zero. Other losses are solved in theta itself.
    """

    middle: Any
    units: Any

    def from_theta(self, theta: Array, sign: int = 1) -> Array:
        """Convert theta = (w, b), perhaps with more after it, to (w, b')."""
        shifted, d = theta.copy(), np.size(self.middle)
        if np.ndim(self.middle):
            shifted[..., d] += sign * (theta[..., :d] @ self.middle)
        return shifted

    def to_theta(self, inside: Array) -> Array:
        """Convert (w, b'), or a step in it, to theta."""
        return self.from_theta(inside, -1)

    def gradient(self, slope: Array) -> Array:
        """Convert a gradient in theta to one in (w, b')."""
        converted, d = slope.copy(), np.size(self.middle)
        if np.ndim(self.middle):
            converted[..., :d] -= self.middle * slope[..., d : d + 1]
        return converted


def with_frame(problem: Problem) -> Problem:
    """Return a problem with its coordinates, measured unless it comes with them, and its loss prepared."""
    if problem.frame is not None:
        return problem
    loss: Any = problem.loss.prepared(problem.X)
    frame = Coordinates(0.0, 1.0)
    if loss.has_predictors:
        middle, spread = _measure_columns(problem)
        units = np.append(1 / spread, np.ones(problem.zero().shape[-1] - len(spread)))
        frame = Coordinates(middle if loss.fit_intercept else 0.0, units)
    return replace(problem, loss=loss, frame=frame)


def _measure_columns(problem: Problem) -> tuple[Array, Array]:
    """Measure middle and spread on a thousand rows, evenly spaced by weight.

    The middle is the median; the spread is the root mean square distance from it, without the share of values
    that lie farthest, as large as that of the outliers. A column that is constant except for those has the
    spread of all its values; one that is entirely constant has the size of its value, or 1. The middle of
    sparse columns is zero: most of their values are, and must remain so.
    """
    X, steps = problem.X, np.cumsum(problem.points.weights)
    rows = np.searchsorted(steps, (np.arange(_ROWS) + 0.5) / _ROWS * steps[-1])  # none has weight zero
    far_rows, middle = round(_ROWS * (problem.z / problem.points.total_weight)), np.zeros(X.shape[1])
    with ignore_overflow():
        if sparse.issparse(X):
            inner = X[rows].astype(np.float64).tocsc()
            every = inner.power(2).mean(axis=0)
            columns = inner.tocoo().col
            order = np.lexsort((-np.abs(inner.data), columns))
            inner.data[order[np.arange(len(order)) - inner.indptr[columns] < far_rows]] = 0.0
            near = inner.power(2).mean(axis=0)
            candidates = every, near, near - inner.mean(axis=0) ** 2
        else:
            values = np.array(take_rows(X, rows).T, dtype=np.float64, order="C")
            values.sort(axis=1)
            middle = values[:, _ROWS // 2]
            far = np.sort((values - middle[:, None]) ** 2, axis=1)
            candidates = middle**2, far.mean(axis=1), far[:, : max(1, _ROWS - far_rows)].mean(axis=1)
        spread = np.ones(len(middle))
        for candidate in candidates:
            spread = np.where((candidate > 0) & np.isfinite(candidate), candidate, spread)
        return middle, np.sqrt(spread)


class GradientFit(Fit):
    """L-BFGS, for any loss with gradients: for custom losses and for very many columns."""

    def refit(self, here: Iterate) -> Iterate:
        problem, frame, total = self.problem, self.problem.frame, self.problem.kept_weight

        def move(step: Array) -> Array:
            return here.theta + frame.to_theta(step.reshape(here.theta.shape) * frame.units)

        def objective(step: Array) -> tuple[float, Array]:
            theta = move(step)
            value = problem.at(theta, kept=here.kept).objective
            slope = self.loss.gradient_sum(theta, problem.X, problem.y, here.kept) + problem.ridge * theta
            return value / total, (frame.gradient(slope) * frame.units).ravel() / total

        options = {"maxiter": _STEPS, "maxfun": 2 * _STEPS, "ftol": 1e-11, "gtol": 1e-10}
        found = minimize(objective, np.zeros(here.theta.size), jac=True, method="L-BFGS-B", options=options)
        self.sure = found.status != 1  # the limits were not reached
        return self.evaluate(move(found.x)) if found.fun * total < here.objective else here


class NewtonFit(Fit):
    """Damped Newton steps on a loss of linear predictors: one pass over the data for each."""

    needs: ClassVar[tuple[str, ...]] = (
        "fit_intercept",
        "max_curvature",
        "encode_labels",
        "slope",
        "curvature",
    )
    damping = 0.0

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem)
        self.frame = problem.frame
        self.ridge = problem.ridge + problem.zero()
        self.units = (self.frame.units + problem.zero()).ravel()
        n, p = len(problem.points), self.ridge.shape[-1]
        self.chunk_rows = max(rows_per_chunk(16 * self.ridge.size), 8 * p)
        self.only_chunk = self._part(slice(0, n)) if n <= self.chunk_rows else None

    @classmethod
    def suits(cls, problem: Problem) -> bool:
        theta = problem.zero()
        if theta.ndim > 1:
            return theta.size <= _SOFTMAX
        return problem.points.n_columns <= _NEWTON_COLUMNS / (1 + sparse.issparse(problem.X))

    def derivatives(self, theta: Array, kept: Array) -> tuple[Array, Array, float]:
        """Sum gradient (q,) and Hessian (q, q), predictor by predictor, and the sizes of all slopes."""
        inside = self.frame.from_theta(theta)

        def work(chunk: slice) -> tuple[Array, Array, float]:
            with ignore_overflow():
                block, labels = self.only_chunk or self._part(chunk)
                m = block @ inside.T
                pull = weigh(self.loss.slope(m, labels).T, kept[chunk])
                hessian = _sum_hessians(block, self.loss.curvature(m, labels), kept[chunk])
                return (block.T @ pull.T).T.ravel(), hessian, np.abs(pull).sum()

        return sum_over_chunks(work, len(kept), self.chunk_rows)

    @one_blas_thread()
    def refit(self, here: Iterate) -> Iterate:
        slope, bend, pulls = self.derivatives(here.theta, here.kept)
        slope += (self.ridge * here.theta).ravel()
        bend += np.diag(self.ridge.ravel())
        steepest = self.problem.kept_weight * (self.loss.max_curvature or 1.0) / self.units**2
        level = _LEVEL * pulls / self.units
        for _ in range(_ATTEMPTS):
            move = _solve_damped(bend, -slope, steepest, level, self.damping)
            if move is not None:
                theta = here.theta + self.frame.to_theta(move.reshape(here.theta.shape))
                if np.array_equal(theta, here.theta):
                    break
                gain = -np.inf
                with suppress(ValueError):  # so far out that predictors overflow
                    there = self.problem.at(theta, kept=here.kept)
                    gain = here.objective - there.objective
                promised = float(-(slope @ move) - move @ bend @ move / 2)
                if gain > 0 and gain >= 1e-4 * promised:
                    self.sure = self.damping == 0 and gain >= 0.1 * promised
                    if gain > 0.5 * promised:
                        self.damping = self.damping / _MORE if self.damping > _FIRST_DAMPING else 0.0
                    return self.problem.at(theta, there.losses)
            self.damping = max(_MORE * self.damping, _FIRST_DAMPING)
        self.damping = 0.0
        return here

    def _part(self, chunk: slice) -> tuple[Rows, Array]:
        """Return the rows of a chunk, less the middle and with a column of ones; and the labels."""
        X, y = self.problem.X[chunk], np.asarray(self.problem.y)[chunk]
        rows = X.astype(np.float64, copy=False) if sparse.issparse(X) else X - self.frame.middle
        return append_ones(rows, self.loss.fit_intercept), self.loss.encode_labels(y, np.float64)


class MixtureFit(NewtonFit):
    """Newton steps on a contaminated loss, of which each predictor has its own columns."""

    needs = (*NewtonFit.needs, "far", "split", "mix")

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem)
        self.far = self.loss.far(problem.X)

    def derivatives(self, theta: Array, kept: Array) -> tuple[Array, Array, float]:
        d, loss = self.problem.points.n_columns, self.loss
        base, noise = loss.split(self.frame.from_theta(theta), d)
        rates = expit(noise[:, 1])
        places = [np.atleast_2d(part) for part in loss.split(np.arange(theta.size).reshape(theta.shape), d)]

        def work(chunk: slice) -> tuple[Array, Array, float]:
            with ignore_overflow():
                block, labels = self.only_chunk or self._part(chunk)
                t = self.far[chunk]
                predictors = loss.mix(block @ base.T, noise, t)
                pull = weigh(loss.slope(predictors, labels)[:, :-1].T, kept[chunk])
                bends = weigh(loss.curvature(predictors, labels).T, kept[chunk])
                apart = [np.column_stack([np.ones_like(t), t * steep]) for steep in rates]
                blocks = [block] * len(places[0]) + apart
                slope, hessian = np.zeros(theta.size), np.zeros((theta.size, theta.size))
                mine = [*places[0], *places[1]]
                for one, (own, rows) in enumerate(zip(mine, blocks, strict=True)):
                    slope[own] = rows.T @ pull[one]
                    for two in range(one + 1):
                        part = _product(rows, bends[one, two], blocks[two])
                        hessian[np.ix_(own, mine[two])], hessian[np.ix_(mine[two], own)] = part, part.T
                for (_, steep), part, rate in zip(places[1], pull[-len(noise) :], rates, strict=True):
                    hessian[steep, steep] += part @ t * rate * (1 - rate)
                return slope, hessian, np.abs(pull).sum()

        slope, hessian, pulls = sum_over_chunks(work, len(kept), self.chunk_rows)
        ridge, least = np.diag(self.ridge.ravel()), _SOLID * self.problem.kept_weight / self.units**2
        return slope, _positive(hessian + ridge, least) - ridge, pulls


def _product(rows: Rows, weights: Array, others: Rows) -> Array:
    """Compute rows' W others; where both are the same, in half the time."""
    if rows is not others or sparse.issparse(rows):
        return to_dense(rows.T @ (others * weights[:, None]))
    scaled, up = rows * np.sqrt(np.abs(weights))[:, None], weights > 0
    above, below = scaled[up], scaled[~up]
    product: Array = above.T @ above - below.T @ below
    return product


def _positive(hessian: Array, least: Array) -> Array:
    """Replace eigenvalues by their sizes, so that Newton steps leave saddles behind (Dauphin et al. 2014)."""
    units = 1 / np.sqrt(np.maximum(np.abs(np.diag(hessian)), least))
    scaled = hessian * units * units[:, None]
    if not dpotrf(scaled)[1] or not np.isfinite(scaled).all():
        return hessian
    sizes, directions = linalg.eigh(scaled, subset_by_value=(-np.inf, 0.0))
    return hessian - 2 * (directions * sizes) @ directions.T / units / units[:, None]


def _sum_hessians(block: Rows, bends: Array, kept: Array) -> Array:
    """Sum the Hessian in the parameters over rows, with a product for each pair of predictors."""
    if bends.ndim == 1:
        scaled = block * np.sqrt(weigh(bends, kept))[:, None]
        return to_dense(scaled.T @ scaled)
    k, p = bends.shape[1], block.shape[1]
    hessian = np.empty((k, p, k, p))
    for one, two in combinations_with_replacement(range(k), 2):
        part = to_dense(block.T @ (block * weigh(bends[:, one, two], kept)[:, None]))
        hessian[one, :, two], hessian[two, :, one] = part, part.T
    return hessian.reshape(k * p, k * p)


def _solve_damped(bend: Array, slope: Array, steepest: Array, level: Array, damping: float) -> Array | None:
    """Solve (B + damping D) v = g, with D the diagonal of B, or where B is flat, part of ``steepest``.

    Undamped, directions in which B is singular are left out if g is below ``level`` there. There is no
    answer if an entry is not finite, or the left side not positive.
    """
    diagonal = np.diag(bend)
    floored = np.maximum(diagonal, _FLAT * steepest)
    units = 1 / np.sqrt(floored if damping else np.where(diagonal > 0, diagonal, steepest))
    scaled, right = bend * units * units[:, None], slope * units
    if not (np.isfinite(scaled).all() and np.isfinite(right).all()):
        return None
    if damping:  # where the loss is nearly flat along some columns, it is their steps that go too far
        flat = diagonal < floored
        scaled += np.diag(damping * np.where(flat | ~flat.any(), 1.0, 1e-6))
    # LAPACK itself: SciPy's wrappers take longer than the solution
    factor, answer, failed = dposv(scaled, right, lower=1)
    if damping or (not failed and factor.diagonal().min() ** 2 > _SOLID):
        return None if failed else units * answer
    sizes, directions = linalg.eigh(scaled)
    along = directions.T @ right
    least = _ROUNDING * max(1.0, sizes[-1])
    flat = sizes <= least
    if np.linalg.norm(along[flat]) <= np.linalg.norm(level * units):
        along[flat] = 0.0
    return units * (directions @ (along / np.maximum(sizes, least)))
