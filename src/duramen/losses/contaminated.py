"""The contaminated likelihood: some labels follow no model, the more so the farther out a row lies.

With s_y the probability of label y under the base loss, exp(-loss), and one share of noise per class ::

    P(y | x) = c_y(x) + (1 - sum_j c_j(x)) s_y(x),    c = softmax(u_1, ..., u_k, 0) without the last,
    u_j(x) = a_j + log 0.01 + softplus(b_j) t(x),     t(x) = log max(d(x), 1)

where d is a robust squared distance, 1 at the upper quartile, and no larger than that of the farthest row
that it was measured on: beyond, nothing is known. The loss -log P is continuous and bounded by -log c_y, so
a problem of the paper's kind, without outliers to set aside. The distance is measured on a sample and frozen
in the anchor: as for a sampler, a loss does not depend on which other rows are present.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import Any

import numpy as np
from scipy import sparse
from scipy.linalg import solve_triangular
from scipy.special import expit, log_softmax

from duramen.arrays import (
    Array,
    Rows,
    check_range,
    dense_block,
    row_norms,
    row_products,
    scratch_rows,
    to_dense,
    weighted_quantiles,
)
from duramen.losses.base import Ball, Explanation, Loss, frozen_array, ignore_overflow
from duramen.losses.linear import LinearLoss, LogisticLoss, change_of_predictors, linear_predictors, softplus
from duramen.parallel import join_chunks
from duramen.points import WeightedPoints, thin

FAR, FARTHEST = "distance", "farthest"
"""The names of the frame of the robust distance, and of the largest t, among what an anchor freezes."""
_CORE, _STEPS = 0.5, 15  # the share of the rows that the scatter is measured on, and the most C-steps
_RIDGE, _LEAST = 0.05, 0.1  # of a column's variance in the core, or of a tenth of that in all rows
_SAMPLE, _MOST_COLUMNS = 4000, 256  # beyond, distances are measured in random directions, half as many
_ROUNDING = 1e-24  # the variance of a constant column whose largest value is 1
_NO_LIMIT = 64.0  # of t
_SEED = 0x2545F4914F6CDD1D
_UNIT = 2.0**-10  # t is a multiple of it, so that it does not depend on how a product is rounded
_USUAL = math.log(0.01)  # of the share of noise in each class, where all parameters are zero
_PRIOR = 0.02  # on a and b
_DOUBT = 0.25  # how much a prediction for a row far out follows the share of noise in the middle


@dataclass(frozen=True)
class ContaminatedLoss(LinearLoss):
    """A loss of classes in which some labels are noise, whose shares are learned with the parameters.

    Its theta is that of ``base`` with two more numbers per class, a_j and b_j: (p + 4,) for two classes,
    (n_classes, p + 2) for more. The share of rows whose label is j whatever the model says is about
    1% exp(a_j) in the middle of the data, and grows outwards by the power softplus(b_j) of a robust squared
    distance. There is nothing to set aside: leave ``n_outliers`` at 0.

    The distance is measured where the loss is used (:func:`duramen.robust_coreset`, :func:`duramen.solve`,
    :func:`duramen.find_anchor`), and kept in anchors, coresets and solutions; :meth:`Loss.measure` does the
    same. A loss that has been measured keeps its distance.

    Parameters
    ----------
    base : LogisticLoss or SoftmaxLoss

    Examples
    --------
    >>> import numpy as np
    >>> import duramen as dm
    >>> rng = np.random.default_rng(0)
    >>> X = rng.normal(size=(5000, 2))
    >>> y = np.where(X[:, 0] + rng.logistic(size=5000) / 4 > 0, 1, -1)
    >>> X[:500] = 9.0, 0.0
    >>> y[:500] = -1  # a tenth of the rows contradict the others
    >>> plain = dm.solve(dm.points(X, y), dm.LogisticLoss())
    >>> robust = dm.solve(dm.points(X, y), dm.ContaminatedLoss(dm.LogisticLoss()))
    >>> [round(float(fit.theta[0])) for fit in (plain, robust)]
    [0, 4]
    """

    units_off = 64.0
    convex = False
    tolerance = 1e-7
    fitter = "mixture"
    freezes = (FAR, FARTHEST)
    hessian_norms, neighbourhood = Loss.hessian_norms, Loss.neighbourhood

    base: LinearLoss = field(default_factory=LogisticLoss)
    frame: Array | None = field(default=None, repr=False, compare=False)
    farthest: float = field(default=_NO_LIMIT, repr=False, compare=False)
    fit_intercept: bool = field(default=True, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if isinstance(self.base, type) or not getattr(self.base, "is_likelihood", False):
            raise TypeError(
                f"base={self.base!r} must be a LogisticLoss or a SoftmaxLoss, such as dm.LogisticLoss()"
            )
        if self.frame is not None:
            vars(self)["frame"] = frame = frozen_array("frame", self.frame)
            if frame.ndim != 2 or len(frame) < 2 or not frame.size:
                raise ValueError(f"frame must be (n_columns + 1, q); found shape {frame.shape}")
        vars(self)["farthest"] = check_range("farthest", self.farthest, 0, _NO_LIMIT, "a number from 0 to 64")
        for name in ("fit_intercept", "has_classes", "classifies", "n_classes"):
            vars(self)[name] = getattr(self.base, name)

    def __reduce__(self) -> tuple[Any, ...]:
        # so that a copy is read-only too, and without the rows that it was prepared for
        return type(self), (self.base, self.frame, self.farthest)

    @property
    def max_slope(self) -> float:  # type: ignore[override]
        """The largest slope in all predictors together: docs/losses.md."""
        return 2**0.5 if self.classifies else 3.0

    @property
    def max_curvature(self) -> float:  # type: ignore[override]
        """The largest second derivative in all of them."""
        return 0.625 if self.classifies else 4.5

    def parameter_shape(self, n_columns: int) -> tuple[int, ...]:
        *classes, p = self.base.parameter_shape(n_columns)
        return (*classes, p + (2 if classes else 2 * self.n_classes))

    def split(self, theta: Array, n_columns: int) -> tuple[Array, Array]:
        """Split what has the shape of theta into that of the base, and a and b of each class (k, 2)."""
        p = n_columns + self.fit_intercept
        return theta[..., :p], theta[..., p:].reshape(-1, 2)

    def join(self, base: Array, noise: Array | float = 0.0) -> Array:
        """Undo :meth:`split`."""
        pairs = np.broadcast_to(noise, (self.n_classes, 2)).reshape(*base.shape[:-1], -1)
        return np.concatenate([base, pairs], axis=-1)

    def ridge(self, l2: float, n_columns: int) -> Array:
        return self.join(self.base.ridge(l2, n_columns), _PRIOR)

    def vc_dimension(self, n_columns: int) -> None:
        return None

    def default_sampler(self, has_radius: bool, few: bool) -> str:
        return self.base.default_sampler(has_radius, few)

    def anchor_rows(self, n_columns: int) -> int:
        return self.base.anchor_rows(n_columns)

    def check_parameters(self, theta: Any, n_columns: int, name: str = "theta") -> Array:
        if self.frame is not None:
            self._frame_of(n_columns)
        return super().check_parameters(theta, n_columns, name)

    def check_labels(self, y: Array) -> None:
        self.base.check_labels(y)

    def encode_labels(self, y: Array, dtype: Any) -> Array:
        return self.base.encode_labels(y, dtype)

    def explain(self, theta: Array, X: Array, y: Any, mean: Array) -> Explanation:
        return self.base.explain(self.split(theta, X.shape[1])[0], X, y, mean)

    # the distance

    def freeze(self, points: WeightedPoints) -> dict[str, Array]:
        if self.frame is not None:
            return {FAR: self.frame, FARTHEST: np.array([self.farthest])}
        X, weights = thin(points, _SAMPLE)
        with ignore_overflow():
            sums = X @ np.ones(X.shape[1])
        X, weights = X[np.isfinite(sums)], weights[np.isfinite(sums)]
        loss = replace(self, frame=_measure_spread(X, weights))
        return {FAR: loss.frame, FARTHEST: loss.far(X).max(initial=0.0, keepdims=True)}

    @property
    def measured(self) -> bool:
        return self.frame is not None

    def unmeasured(self) -> ContaminatedLoss:
        return replace(self, frame=None, farthest=_NO_LIMIT)

    def bind(self, frozen: Mapping[str, Array]) -> ContaminatedLoss:
        if not {FAR, FARTHEST} <= set(frozen):
            return self
        return replace(self, frame=frozen[FAR], farthest=frozen[FARTHEST].item())

    def prepared(self, X: Any) -> ContaminatedLoss:
        loss = replace(self)
        vars(loss)["_prepared"] = X, self.far(X)
        return loss

    def far(self, X: Any) -> Array:
        """Compute t(x), how far out each row lies: (n,) of float64, 0 for the inner three quarters."""
        known, rows = self.beside(X), self._rows(X)
        if known is not None:
            return known
        chunk_rows = min(4096, scratch_rows(rows))
        return join_chunks(lambda chunk: [self._far(dense_block(rows, chunk))], rows.shape[0], chunk_rows)[0]

    def _frame_of(self, n_columns: int) -> Array:
        if self.frame is None:
            raise ValueError(f"{self!r} has no robust distance yet; use {self!r}.measure(points)")
        if len(self.frame) != n_columns + 1:
            raise ValueError(
                f"the robust distance was measured on {len(self.frame) - 1} columns; X has {n_columns}"
            )
        return self.frame

    def _far(self, block: Rows) -> Array:
        """Compute t of a chunk by BLAS, and where its rounding could matter, by sums in a fixed order."""
        frame, wide = self._frame_of(block.shape[1]), block.astype(np.float64, copy=False)
        with ignore_overflow():
            square = _squares(wide @ frame[:-1] + frame[-1])
            units = np.log(square) / _UNIT
            unit = (len(frame) + 2) * np.finfo(float).eps
            off = unit * np.linalg.norm(frame) * np.hypot(row_norms(wide), 1)
            off = (2 * off + off**2) / _UNIT  # of the logarithm of a square of 1 or more
            doubtful = np.flatnonzero(~(np.abs(units - np.rint(units)) > off) & ~(units < -off))
            if len(doubtful):
                steady = linear_predictors(wide[doubtful], np.ascontiguousarray(frame[:-1].T)) + frame[-1]
                units[doubtful] = np.log(_squares(steady)) / _UNIT
            return np.fmin(np.fmax(np.floor(units), 0.0) * _UNIT, self.farthest)

    # the likelihood; predictors are those of the base, u of each class, and t, which is passed along

    def beside(self, X: Any) -> Array | None:
        known, t = vars(self).get("_prepared", (None, None))
        return t if X is known else None

    def _chunk_predictors(self, block: Rows, parameters: Array, beside: Array | None) -> Array:
        base, noise = self.split(parameters, block.shape[1])
        t = self._far(block) if beside is None else beside
        return self.mix(super()._chunk_predictors(block, base, beside), noise, t)

    def mix(self, m: Array, noise: Array, t: Array) -> Array:
        """Join predictors of the base with u of each class, for rows at t."""
        t = t.astype(m.dtype, copy=False)[:, None]
        return np.column_stack([m, noise[:, 0] + _USUAL + softplus(noise[:, 1]) * t, t])

    def _parts(self, predictors: Array, y: Array) -> tuple[Array, Array, tuple[Array, Array]]:
        """Return predictors of the base, u of each class (n, k), and where that of a row's own class is."""
        u = predictors[:, -1 - self.n_classes : -1]
        own = np.arange(len(u)), (y > 0).astype(np.intp) if self.classifies else y
        return predictors[:, 0] if self.classifies else predictors[:, : self.n_classes], u, own

    def pointwise(self, m: Array, y: Array) -> Array:
        base, u, own = self._parts(m, y)
        loss, others = self.base.pointwise(base, y), np.array(u)
        others[own] = -np.inf
        against = _log_sum(*others.T, np.log(-np.expm1(-loss)))
        return softplus(against - _log_sum(u[own], -loss))

    def slope(self, m: Array, y: Array) -> Array:
        """Compute the derivative in each predictor; t, which comes last, is passed along."""
        base, u, own = self._parts(m, y)
        loss = self.base.pointwise(base, y)
        label, shares = _log_sum(u[own], -loss), _shares(u)
        shares[own] -= np.exp(u[own] - label)
        pull = self.base.slope(base, y)
        return np.column_stack([(np.exp(-loss - label) * pull.T).T, shares, m[:, -1]])

    def curvature(self, m: Array, y: Array) -> Array:
        """Compute the second derivatives in the predictors: (n, k, k), without t."""
        base, u, own = self._parts(m, y)
        k, loss = m.shape[1] - 1 - self.n_classes, self.base.pointwise(base, y)
        label = _log_sum(u[own], -loss)
        blame, model = np.exp(u[own] - label), np.exp(-loss - label)
        shares = _shares(u)
        pull = np.zeros((len(m), m.shape[1] - 1), m.dtype)
        pull[:, :k] = self.base.slope(base, y).reshape(-1, k)
        pull[own[0], k + own[1]] = 1.0
        bends = -(blame * model)[:, None, None] * pull[:, :, None] * pull[:, None]
        bends[:, :k, :k] += model[:, None, None] * self.base.curvature(base, y).reshape(-1, k, k)
        same = np.eye(self.n_classes, dtype=m.dtype)
        bends[:, k:, k:] += shares[:, :, None] * (same - shares[:, None])
        return bends

    def put_gradients(self, out: Array, theta: Any, X: Rows, y: Any, cache: Any) -> None:
        cache, theta = self.slopes(theta, X, y) if cache is None else cache, np.asarray(theta)
        base, pulls, steps = self._pulls(theta, X.shape[1], cache)
        super().put_gradients(out, theta, X, y, base)
        noise = np.stack([pulls, pulls * steps], axis=2)
        rest = out.reshape(-1, *theta.shape)[..., X.shape[1] + self.fit_intercept :]
        rest[:] = noise.reshape(rest.shape)

    def _sum_gradients(self, theta: Array, rows: Rows, weights: Array, cache: Any) -> Array:
        base, pulls, steps = self._pulls(theta, rows.shape[1], cache)
        total = super()._sum_gradients(theta, rows, weights, base)
        pulls = pulls * weights[:, None]
        return self.join(total, np.stack([pulls.sum(axis=0), (pulls * steps).sum(axis=0)], axis=1))

    def _pulls(self, theta: Array, n_columns: int, cache: Array) -> tuple[Array, Array, Array]:
        """Split a cache into slopes in the base, those in u of each class, and how fast b moves u."""
        k, noise = self.n_classes, self.split(theta, n_columns)[1]
        base = cache[:, 0] if self.classifies else cache[:, :k]
        return base, cache[:, -1 - k : -1], cache[:, -1:] * expit(noise[:, 1])

    # bounds

    def reach(self, X: Any) -> Array:
        """Compute the larger of |(x, 1)|, or |x| without an intercept, and |(1, t)|."""
        rows = self._rows(X)
        return np.fmax(self.base.reach(rows), np.hypot(1, self.far(rows)).astype(rows.dtype))

    def deviation(self, ball: Ball, X: Any, y: Any = None) -> Array:
        rows = self._rows(X)
        moves = [change_of_predictors(ball, rows, norms) for norms in (self.base.reach(rows), 1.0)]
        reach = np.stack(np.broadcast_arrays(*moves), axis=1)

        def here(m: Array, y: Array) -> Array:
            return np.fmin(self.pointwise(m, y), np.inf)  # not NaN, as in the bound itself

        values, slopes, bound = self._over_rows(ball.theta, rows, y, here, self.slope, reach=reach)
        farthest = change_of_predictors(ball, rows, self.reach(rows))
        with ignore_overflow():
            base, pulls, steps = self._pulls(ball.theta, rows.shape[1], slopes)
            noise = pulls * np.hypot(1, steps, dtype=rows.dtype) * moves[1]
            if self.classifies:
                steep = np.linalg.norm(np.column_stack([base * moves[0], noise]), axis=1)
            else:
                steep = np.hypot(base * moves[0][:, None], noise).sum(axis=1)
            steep = np.fmin(self.max_slope * farthest, steep + self.max_curvature / 2 * farthest**2)
            slack = self.units_off * np.finfo(rows.dtype).eps * (2 * values + steep + 1)
            return np.fmin(bound, steep + slack)

    def _change(self, m: Array, y: Array, reach: Array) -> Array:
        """Bound the change by that at two corners: -log P falls in the predictors of the own class alone."""
        _, u, own = self._parts(m, y)
        along = -np.ones_like(u)
        along[own] = 1.0
        toward = y if self.classifies else along
        noise = along * (reach[:, 1:] * np.hypot(1, m[:, -1:]))
        step = np.column_stack([(toward.T * reach[:, 0]).T, noise, np.zeros(len(m), m.dtype)])
        here, worst, best = (self.pointwise(at, y) for at in (m, m - step, m + step))
        limits = np.finfo(m.dtype)
        slack = self.units_off * limits.eps * (worst + here + 1) + limits.tiny
        return np.fmin(np.fmax(worst - here, here - best) + slack, np.inf)

    # what the parameters say

    def shares(self, theta: Array, X: Any) -> Array:
        """Compute the share of noise in each class for rows like these: (n, n_classes)."""
        return np.exp(self._logs(theta, X, self.far(X))[2])

    def blame(self, theta: Array, X: Any, y: Any) -> Array:
        """Compute the probability that a row has its label from the noise, not from the model: (n,)."""
        return self._over_rows(theta, X, y, self.pointwise_blame)[0]

    def values_and_blame(self, theta: Array, X: Any, y: Any) -> tuple[Array, Array, Array]:
        """Compute values, the blame of each row, and whether it is farther out than three quarters are."""
        functions = self.pointwise, self.pointwise_blame, self._is_far
        values, blame, far = self._over_rows(theta, X, y, *functions)
        return values, blame, far

    def _is_far(self, m: Array, y: Array) -> Array:
        return m[:, -1] > 0

    def pointwise_blame(self, m: Array, y: Array) -> Array:
        """Compute the blame for predictors and encoded labels."""
        base, u, own = self._parts(m, y)
        return expit(u[own] + self.base.pointwise(base, y))

    def predictions(self, theta: Array, X: Any) -> dict[str, Array]:
        logs = self.log_probabilities(theta, X)
        return {"class": logs.argmax(axis=1), "probability": np.exp(logs)}

    def log_probabilities(self, theta: Array, X: Any) -> Array:
        """Compute log P of each class (n, n_classes), for new rows.

        What looked like noise far out may have been bad labels, or honest ones that the model does not fit.
        As this cannot be known, a part of each probability is that with the share of noise in the middle.
        """
        t = self.far(X)
        near, out = (self._logs(theta, X, one)[1] for one in (np.zeros_like(t), t))
        return np.logaddexp(math.log(_DOUBT) + near, math.log1p(-_DOUBT) + out)

    def _logs(self, theta: Array, X: Any, t: Array) -> tuple[Array, Array, Array]:
        """Compute the logarithms of s, P and c of each class for rows at t: (n, n_classes) each."""
        base, noise = self.split(np.asarray(theta, dtype=np.float64), X.shape[1])
        m = self.base._predictors(base, X)
        model = np.stack([-softplus(m), -softplus(-m)], axis=1) if self.classifies else log_softmax(m, axis=1)
        u = self.mix(m, noise, t)[:, -1 - self.n_classes : -1]
        rest = np.logaddexp.reduce(u, axis=1, initial=0.0)[:, None]
        return model, np.logaddexp(u, model) - rest, u - rest


def _log_sum(*logs: Any) -> Array:
    """Compute the logarithm of a sum, of which one part at least is finite: much faster than logaddexp."""
    top = reduce(np.maximum, logs)
    return top + np.log(sum(np.exp(one - top) for one in logs))


def _shares(u: Array) -> Array:
    return np.exp(u - _log_sum(0.0, *u.T)[:, None])


def _squares(images: Array) -> Array:
    return row_products(images, images)


def _measure_spread(X: Rows, weights: Array) -> Array:
    """Measure the frame F (d + 1, q) for which |(x, 1) F|^2 is a robust squared distance.

    That is the minimum covariance determinant (Rousseeuw and Van Driessen 1999) with a ridge, from the rows
    nearest to the medians, in units of the upper quartile.
    """
    d, share = X.shape[1], weights / weights.sum()
    if not len(weights):
        return np.zeros((d + 1, d))
    largest = to_dense(abs(X).max(axis=0)).ravel()
    scale = 1 / np.where(largest > 0, largest, 1.0)  # no square overflows
    spread = _spread(X * scale, share)
    known = spread > _ROUNDING  # of a column that is constant here, nothing is known
    scale, spread, directions = scale * known, np.where(known, spread, 1.0), np.eye(d)
    rows = X * scale
    if d > _MOST_COLUMNS:
        q = _MOST_COLUMNS // 2
        directions = np.random.default_rng(_SEED).normal(size=(d, q)) / np.sqrt(q * spread)[:, None]
        rows = rows @ directions
    rows = to_dense(rows)
    every = _spread(rows, share)
    every = np.where(every > _ROUNDING, every, 1.0)
    quartiles = np.array([weighted_quantiles(column, share, (0.25, 0.5, 0.75)) for column in rows.T]).T
    width = quartiles[2] - quartiles[0]
    mean, root = quartiles[1], np.diag(1 / np.where(width > 0, width, 2 * np.sqrt(every)))
    core = np.empty(0)
    for _ in range(_STEPS):
        square = _squares((rows - mean) @ root)
        order = np.argsort(square, kind="stable")
        before, core = core, np.empty(len(share))
        core[order] = np.clip(
            _CORE - share[order].cumsum() + share[order], 0.0, share[order]
        )  # the last in part
        if np.array_equal(before, core):
            break
        inside = np.flatnonzero(core)
        part = core[inside] / core[inside].sum()
        mean = part @ rows[inside]
        gaps = rows[inside] - mean
        scatter = (gaps * part[:, None]).T @ gaps
        scatter += np.diag(_RIDGE * np.maximum(np.diag(scatter), _LEAST * every))
        root = solve_triangular(np.linalg.cholesky(scatter), np.eye(len(scatter)), lower=True).T
    square = _squares((rows - mean) @ root)
    lost = (d + 64) * np.finfo(float).eps * np.abs(mean)  # by rounding, where rows are equal
    square[square <= _squares(lost[None] @ np.abs(root))] = 0.0
    usual = weighted_quantiles(square, share, [0.75])[0]
    root /= np.sqrt(usual if usual > 0 else square.max() or 1.0)
    return np.vstack([scale[:, None] * (directions @ root), -mean @ root])


def _spread(rows: Rows, share: Array) -> Array:
    """Compute the variance of each column."""
    if not sparse.issparse(rows):
        return share @ (rows - share @ rows) ** 2
    return np.maximum(rows.power(2).T @ share - (rows.T @ share) ** 2, 0.0)
