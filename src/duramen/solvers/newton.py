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
from duramen.solvers.fit import Fit, Place, column_sizes
from duramen.solvers.problem import Problem

__all__ = ["NewtonFit"]

_FIRST_DAMPING, _LEAST_DAMPING, _ATTEMPTS = 1e-3, 1e-6, 30
_RANK = 1e-12  # of the scaled Hessian: a direction flatter than this is left alone
_FLOOR = 1e-4  # of the steepest curvature a column can have: where the loss is flat now, it may not be later


class NewtonFit(Fit):
    """Damped Newton steps on a linear loss."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem)
        assert isinstance(problem.loss, LinearLoss)
        assert problem.y is not None
        self.loss = problem.loss
        self.ridge = problem.ridge()
        self.damping = 0.0
        steepest = self.loss.max_curvature or 1.0
        self.floor = _FLOOR * problem.kept_weight * steepest * column_sizes(problem) ** 2
        self.ready: tuple[Array, Array] | None = None  # the accepted theta and its losses

    def losses(self, theta: Array) -> Array:
        if self.ready is not None and self.ready[0] is theta:
            return self.ready[1]
        return self.loss.values(theta, self.problem.X, self.problem.y)

    def refit(self, here: Place) -> Array:
        theta, kept = here.theta, here.kept
        slope, bend = self.derivatives(theta, kept)
        slope += self.ridge * theta
        bend[np.diag_indices_from(bend)] += self.ridge
        solve = _DampedSystem(bend, self.floor)
        for _ in range(_ATTEMPTS):
            move = -solve(slope, self.damping)
            if not (-(slope @ move) > 0 and np.isfinite(move).all()):
                return theta
            there = theta + move
            if np.array_equal(there, theta):
                return theta
            try_losses = self.loss.values(there, self.problem.X, self.problem.y)
            gain = here.objective - self.problem.objective(there, try_losses, kept)
            promised = float(-(slope @ move) - move @ bend @ move / 2)
            if gain >= 1e-4 * promised and gain > 0:
                self._relax(gain, promised)
                self.ready = there, try_losses
                return there
            self.damping = max(10 * self.damping, _FIRST_DAMPING)
        self.damping = 0.0
        return theta

    def _relax(self, gain: float, promised: float) -> None:
        if gain > 0.5 * promised:
            self.damping = self.damping / 10 if self.damping > _LEAST_DAMPING else 0.0

    def derivatives(self, theta: Array, kept: Array) -> tuple[Array, Array]:
        """Sum gradient (p,) and Hessian (p, p) over the kept weights, in one pass over the data."""
        X, p = self.problem.X, len(theta)
        rows = max(rows_per_chunk(8 * p), 8 * p)

        def work(chunk: slice) -> tuple[Array, Array]:
            return self._chunk_derivatives(theta, chunk, kept[chunk])

        with one_blas_thread():
            slope, bend = sum_over_chunks(work, X.shape[0], rows)
        return slope, bend

    def _chunk_derivatives(self, theta: Array, chunk: slice, kept: Array) -> tuple[Array, Array]:
        assert self.problem.y is not None
        block = self.problem.X[chunk]
        d = block.shape[1]
        labels = self.loss.encode_labels(self.problem.y[chunk], np.float64)
        with np.errstate(over="ignore", under="ignore", invalid="ignore"):
            if block.dtype != np.float64:
                block = block.astype(np.float64)
            m = block @ theta[:d]
            if self.loss.fit_intercept:
                m += theta[d]
            # a row that is set aside counts for nothing, even where its loss overflows
            pull = np.where(kept > 0, kept * self.loss.slope(m, labels), 0.0)
            root = np.sqrt(np.where(kept > 0, kept * self.loss.curvature(m, labels), 0.0))
            return self._slope(block, pull), self._bend(block, root)

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
    """Solve (B + damping diag(B)) v = g, of least length where B is singular."""

    def __init__(self, bend: Array, floor: Array) -> None:
        self.units = 1 / np.sqrt(np.maximum(np.diag(bend), floor))
        self.scaled = bend * self.units * self.units[:, None]
        self.spectrum: tuple[Array, Array] | None = None

    def __call__(self, slope: Array, damping: float) -> Array:
        right = slope * self.units
        return self.units * (
            self._by_cholesky(right, damping) if damping == 0 else self._by_spectrum(right, damping)
        )

    def _by_cholesky(self, right: Array, damping: float) -> Array:
        try:
            factor, lower = linalg.cho_factor(self.scaled, lower=True)
        except (linalg.LinAlgError, ValueError):
            return self._by_spectrum(right, damping)
        if np.diag(factor).min() ** 2 < 1e-8:  # close to singular: mind the rank
            return self._by_spectrum(right, damping)
        return linalg.cho_solve((factor, lower), right)

    def _by_spectrum(self, right: Array, damping: float) -> Array:
        if not np.isfinite(self.scaled).all():
            return np.full_like(right, np.nan)
        if self.spectrum is None:
            self.spectrum = linalg.eigh(self.scaled)
        sizes, directions = self.spectrum
        along = directions.T @ right
        solid = sizes > _RANK * max(1.0, sizes[-1])
        if np.linalg.norm(along[~solid]) > 1e-8 * np.linalg.norm(along):  # flat, but not level
            damping = max(damping, _FIRST_DAMPING)
        if damping:
            return directions @ (along / (np.maximum(sizes, 0.0) + damping))
        return directions[:, solid] @ (along[solid] / sizes[solid])
