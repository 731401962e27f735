"""Newton's method for losses of a linear predictor: one damped step on the kept weights.

With many more rows than columns a step costs little more than a few passes over
the data, and a handful of steps is exact; between two trimmings one step is
enough (docs/solving.md has the figures). The Hessian is X' diag(c) X with the
curvatures c of the loss, summed over chunks of rows; no chunk's copy outlives
it. Where the step does not lower the objective it is damped, as Levenberg and
Marquardt do: a large damping turns it into a short step down the gradient,
which always does.
"""

from __future__ import annotations

import numpy as np
from scipy import linalg, sparse

from duramen.chunks import one_blas_thread, rows_per_chunk, sum_over_chunks
from duramen.losses.linear import LinearLoss
from duramen.rows import Array, Rows
from duramen.solvers.fit import Fit, Place
from duramen.solvers.problem import Problem

__all__ = ["NewtonFit"]

_FIRST_DAMPING, _MORE, _ATTEMPTS = 1e-6, 100.0, 20
_FLAT = 1e-4  # of the steepest curvature that a column can have
_SOLID = 1e-8  # the least squared pivot with which Cholesky's answer is trusted
_ROUNDING = 1e-14  # of the scaled Hessian: what is flatter is known by its rounding only
_LEVEL = 1e-12  # of the sum of all pulls: a gradient less than this is rounding


class NewtonFit(Fit):
    """Damped Newton steps on a linear loss."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem)
        assert isinstance(problem.loss, LinearLoss)
        assert problem.y is not None
        self.loss = problem.loss
        self.frame = problem.coordinates()
        self.damping = 0.0
        self.ready: tuple[Array, Array] | None = None  # the accepted theta and its losses

    def losses(self, theta: Array) -> Array:
        if self.ready is not None and self.ready[0] is theta:
            return self.ready[1]
        return self.loss.values(theta, self.problem.X, self.problem.y)

    def refit(self, here: Place) -> Array:
        slope, bend, pulls = self.derivatives(here.theta, here.kept)
        ridge = self.problem.ridge()
        slope += ridge * here.theta
        bend[np.diag_indices_from(bend)] += ridge
        system = _DampedSystem(bend, self._steepest(), _LEVEL * pulls / self.frame.units())
        for _ in range(_ATTEMPTS):
            with one_blas_thread():
                move = -system.solve(slope, self.damping)
            downhill = float(-(slope @ move))
            there = here.theta + self.frame.turned_back(move)
            if not (0 < downhill < np.inf) or np.array_equal(there, here.theta):
                break
            losses = self._losses_if_any(there)
            gain = here.objective - self.problem.objective(there, losses, here.kept)
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

    def _losses_if_any(self, theta: Array) -> Array:
        """Compute the losses, infinite where a step went so far that predictors overflow."""
        try:
            return self.loss.values(theta, self.problem.X, self.problem.y)
        except ValueError:
            return np.full(len(self.problem.points), np.inf)

    def _steepest(self) -> Array:
        """Bound the curvature along each parameter, as far as a loss of this kind can be curved."""
        most = self.loss.max_curvature or 1.0
        return self.problem.kept_weight * most / self.frame.units() ** 2

    def derivatives(self, theta: Array, kept: Array) -> tuple[Array, Array, float]:
        """Sum gradient (p,) and Hessian (p, p) in the coordinates' parameters, and the sizes of all slopes.

        One pass over the data.
        """
        p = len(theta)
        rows = max(rows_per_chunk(16 * p), 8 * p)

        def work(chunk: slice) -> tuple[Array, Array, float]:
            return self._chunk_derivatives(theta, chunk, kept[chunk])

        with one_blas_thread():
            slope, bend, pulls = sum_over_chunks(work, self.problem.X.shape[0], rows)
        return slope, bend, pulls

    def _chunk_derivatives(self, theta: Array, chunk: slice, kept: Array) -> tuple[Array, Array, float]:
        assert self.problem.y is not None
        d = len(self.frame.middle)
        labels = self.loss.encode_labels(self.problem.y[chunk], np.float64)
        with np.errstate(over="ignore", under="ignore", invalid="ignore"):
            block = self._centred(self.problem.X[chunk])
            m = block @ theta[:d]
            if self.loss.fit_intercept:
                m += theta[d] + self.frame.middle @ theta[:d]
            # a row that is set aside counts for nothing, even where its loss overflows
            pull = np.where(kept > 0, kept * self.loss.slope(m, labels), 0.0)
            root = np.sqrt(np.where(kept > 0, kept * self.loss.curvature(m, labels), 0.0))
            return self._slope(block, pull), self._bend(block, root), float(np.abs(pull).sum())

    def _centred(self, block: Rows) -> Rows:
        if not sparse.issparse(block):
            return block - self.frame.middle
        return block if block.dtype == np.float64 else block.astype(np.float64)

    def _slope(self, block: Rows, pull: Array) -> Array:
        total = block.T @ pull
        return np.append(total, pull.sum()) if self.loss.fit_intercept else total

    def _bend(self, block: Rows, root: Array) -> Array:
        d = block.shape[1]
        if sparse.issparse(block):
            scaled = sparse.csr_array(block.multiply(root[:, None]))
            if self.loss.fit_intercept:
                scaled = sparse.hstack([scaled, sparse.csr_array(root[:, None])], format="csr")
            return (scaled.T @ scaled).toarray()
        scaled = np.empty((len(root), d + self.loss.fit_intercept))
        np.multiply(block, root[:, None], out=scaled[:, :d])
        if self.loss.fit_intercept:
            scaled[:, d] = root
        return scaled.T @ scaled


class _DampedSystem:
    """Solve (B + damping D) v = g, with D the diagonal of B, or where B is flat, part of its steepest.

    Undamped, directions in which B is singular are left out where g is level too.
    """

    def __init__(self, bend: Array, steepest: Array, level: Array) -> None:
        self.bend, self.level = bend, level
        diagonal = np.diag(bend)
        self.plain = np.where(diagonal > 0, diagonal, steepest)
        self.floored = np.maximum(diagonal, _FLAT * steepest)
        flat = diagonal < _FLAT * steepest
        # where the loss is all but flat along some columns, it is their steps that go too far
        self.share = np.where(flat, 1.0, 1e-6) if flat.any() else np.ones(len(bend))

    def solve(self, slope: Array, damping: float) -> Array:
        """Give v for ``slope`` g."""
        units = 1 / np.sqrt(self.floored if damping else self.plain)
        scaled, right = self.bend * units * units[:, None], slope * units
        if not (np.isfinite(scaled).all() and np.isfinite(right).all()):
            return np.full_like(slope, np.nan)
        if damping == 0:
            answer = _by_cholesky(scaled, right)
            return units * (_by_spectrum(scaled, right, self.level * units) if answer is None else answer)
        scaled[np.diag_indices_from(scaled)] += damping * self.share
        return units * linalg.solve(scaled, right, assume_a="pos")


def _by_cholesky(scaled: Array, right: Array) -> Array | None:
    try:
        factor, lower = linalg.cho_factor(scaled, lower=True)
    except linalg.LinAlgError:
        return None
    return linalg.cho_solve((factor, lower), right) if np.diag(factor).min() ** 2 > _SOLID else None


def _by_spectrum(scaled: Array, right: Array, level: Array) -> Array:
    sizes, directions = linalg.eigh(scaled)
    along = directions.T @ right
    flat = sizes <= _ROUNDING * max(1.0, sizes[-1])
    if np.linalg.norm(along[flat]) <= np.linalg.norm(level):
        along[flat] = 0.0
    return directions @ (along / np.maximum(sizes, _ROUNDING * max(1.0, sizes[-1])))
