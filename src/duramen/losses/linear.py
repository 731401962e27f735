"""Losses of a linear predictor: f(theta, x) = psi(m, y) with m = <w, x> + b.

theta is w, with the intercept b last unless ``fit_intercept=False``. A family
member supplies psi and its derivatives in m; rows, intercept, sparse input and
constants are handled here.

A ball of radius l around theta moves m through exactly the interval of
half-width r = l |(x, 1)|, and psi is convex, so the largest change of the loss
in the ball is known in closed form: it is reached at an end of the interval,
upwards (for a convex psi, psi(m) - psi(m - t) <= psi(m + t) - psi(m)). Hence
``deviation`` returns the supremum itself, never more than any of the paper's
three bounds; see docs/losses.md.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

import numpy as np
from scipy import sparse

from duramen.arrays import (
    Array,
    Rows,
    as_column,
    dense_block,
    refuse_nonfinite,
    row_norms,
    row_products,
    scratch_rows,
)
from duramen.ball import Ball, lengths
from duramen.losses.base import Loss
from duramen.parallel import for_each_chunk, rows_per_chunk, sum_over_chunks

__all__ = ["LinearLoss", "Neighbourhood"]


class Neighbourhood(NamedTuple):
    """Of each row: the derivatives of psi in m, the length of (x, 1), and the deviation in a ball."""

    slopes: Array
    curvatures: Array
    norms: Array
    deviation: Array


@dataclass(frozen=True)
class LinearLoss(Loss):
    """A convex loss psi of a linear predictor and a label.

    A subclass defines ``pointwise``, ``slope`` and ``curvature`` on chunks (one
    value a row, finite, of one float type), the largest values of the
    derivatives where they are bounded, and which labels it takes.

    Parameters
    ----------
    fit_intercept : bool
        Whether theta has an intercept as its last entry.
    """

    fit_intercept: bool = field(default=True, kw_only=True)

    classifies: ClassVar[bool] = False
    """Whether labels are two classes, above zero and not."""
    max_slope: ClassVar[float | None] = None
    """The largest slope of psi, where it is bounded."""
    max_curvature: ClassVar[float | None] = None
    """The largest second derivative of psi, where it is bounded."""
    max_third: ClassVar[float | None] = None
    """The largest third derivative of psi, where it is bounded."""
    units_off: ClassVar[float] = 8.0
    """How many units in the last place ``pointwise`` may be off."""

    def __post_init__(self) -> None:
        if not isinstance(self.fit_intercept, (bool, np.bool_)):
            raise TypeError(f"fit_intercept={self.fit_intercept!r} must be True or False")

    @abstractmethod
    def pointwise(self, m: Array, y: Array) -> Array:
        """Compute psi(m, y)."""

    @abstractmethod
    def slope(self, m: Array, y: Array) -> Array:
        """Compute the derivative of psi in m."""

    @abstractmethod
    def curvature(self, m: Array, y: Array) -> Array:
        """Compute the second derivative of psi in m; at a kink of psi', one of its sides."""

    @abstractmethod
    def check_labels(self, y: Array) -> None:
        """Raise ValueError naming the first label that this loss cannot take."""

    def pointwise_and_slope(self, m: Array, y: Array) -> tuple[Array, Array]:
        """Compute psi and its derivative together, where that takes less time."""
        return self.pointwise(m, y), self.slope(m, y)

    def slope_and_curvature(self, m: Array, y: Array) -> tuple[Array, Array]:
        """Compute both derivatives of psi together, where that takes less time."""
        return self.slope(m, y), self.curvature(m, y)

    def encode_labels(self, y: Array, dtype: Any) -> Array:
        """Turn checked labels into what ``pointwise`` takes."""
        return y.astype(dtype, copy=False)

    def parameter_shape(self, n_columns: int) -> tuple[int, ...]:
        return (n_columns + self.fit_intercept,)

    @property
    def convex(self) -> bool:
        return True

    def values(self, theta: Any, X: Any, y: Any = None) -> Array:
        return self._over_rows(self.pointwise, theta, X, y)[0]

    def values_again(self, theta: Any, rows: Rows, labels: Array) -> Array:
        """Compute the values for rows and labels that were looked at before, for another theta."""
        return self._over_checked_rows(self.pointwise, self._parameters(theta, rows), rows, labels)[0]

    def values_and_cache(self, theta: Any, X: Any, y: Any = None) -> tuple[Array, Array]:
        values, slopes = self._over_rows(self.pointwise_and_slope, theta, X, y, results=2)
        return values, _finite(slopes)

    def slopes(self, theta: Any, X: Any, y: Any = None) -> Array:
        """Compute psi'(m_i, y_i): (n,). The gradient is this times the row (x_i, 1)."""
        return self._over_rows(self.slope, theta, X, y)[0]

    def curvatures(self, theta: Any, X: Any, y: Any = None) -> Array:
        """Compute psi''(m_i, y_i): (n,). The Hessian is this times the square of the row (x_i, 1)."""
        return self._over_rows(self.curvature, theta, X, y)[0]

    def gradients(self, theta: Any, X: Any, y: Any = None) -> Array:
        rows = self._rows(X, sparse_allowed=True)
        slopes = _finite(self.slopes(theta, rows, y))
        if sparse.issparse(rows):
            return self._sparse_gradients(rows, slopes)
        n, d = rows.shape
        gradients = np.empty((n, d + self.fit_intercept), dtype=rows.dtype)

        def work(chunk: slice) -> None:
            with np.errstate(over="ignore", under="ignore"):
                np.multiply(rows[chunk], slopes[chunk, None], out=gradients[chunk, :d])
            if self.fit_intercept:
                gradients[chunk, d] = slopes[chunk]

        for_each_chunk(work, n)
        return gradients

    def _sparse_gradients(self, rows: Rows, slopes: Array) -> Rows:
        scaled = rows.copy()
        with np.errstate(over="ignore", under="ignore"):
            scaled.data *= np.repeat(slopes, np.diff(rows.indptr))
        if not self.fit_intercept:
            return scaled
        return sparse.hstack([scaled, sparse.csr_array(slopes[:, None])], format="csr")

    def gradient_sum(
        self, theta: Any, X: Any, y: Any = None, weights: Any = None, *, cache: Array | None = None
    ) -> Array:
        rows = self._rows(X, sparse_allowed=True)
        slopes = _finite(self.slopes(theta, rows, y)) if cache is None else cache
        pull = slopes.astype(np.float64, copy=False)
        if weights is not None:
            pull = pull * as_column(weights, rows.shape[0], "weights")
        with np.errstate(over="ignore", under="ignore", invalid="ignore"):
            total = _weighted_sum(rows, pull)
            return np.append(total, pull.sum()) if self.fit_intercept else total

    def lipschitz(self, X: Any, y: Any = None) -> Array | None:
        return self._norm_power(X, self.max_slope, 1)

    def smoothness(self, X: Any, y: Any = None) -> Array | None:
        return self._norm_power(X, self.max_curvature, 2)

    def hessian_lipschitz(self, X: Any, y: Any = None) -> Array | None:
        return self._norm_power(X, self.max_third, 3)

    def hessian_norms(self, theta: Any, X: Any, y: Any = None) -> Array:
        rows = self._rows(X, sparse_allowed=True)
        with np.errstate(over="ignore", under="ignore"):
            return self.curvatures(theta, rows, y) * self._norms(rows) ** 2

    def deviation(self, ball: Ball, X: Any, y: Any = None) -> Array:
        rows = self._rows(X, sparse_allowed=True)
        reach = _reach(ball, rows, self._norms(rows))
        return self._over_rows(self._change, ball.theta, rows, y, reach)[0]

    def neighbourhood(self, ball: Ball, X: Any, y: Any = None) -> Neighbourhood:
        """Compute all that bounds each f in a ball, by two looks at the rows."""
        rows = self._rows(X, sparse_allowed=True)
        norms = self._norms(rows)

        def kernel(m: Array, y: Array, reach: Array) -> tuple[Array, ...]:
            return self.slope(m, y), self.curvature(m, y), self._change(m, y, reach)

        reach = _reach(ball, rows, norms)
        slopes, curvatures, deviation = self._over_rows(kernel, ball.theta, rows, y, reach, results=3)
        return Neighbourhood(_finite(slopes), curvatures, norms, deviation)

    def _change(self, m: Array, y: Array, reach: Array) -> Array:
        """Bound how far psi can be from psi(m) within ``reach``, for computed values too."""
        limits = np.finfo(m.dtype)
        here = self.pointwise(m, y)
        highest = np.maximum(self.pointwise(m - reach, y), self.pointwise(m + reach, y))
        bound = (highest - here) + (self.units_off * limits.eps * (highest + here) + limits.tiny)
        return np.where(np.isfinite(bound), bound, np.inf)  # no bound where the loss itself overflows

    def _over_rows(
        self, kernel: Any, theta: Any, X: Any, y: Any, *columns: Array, results: int = 1
    ) -> list[Array]:
        """Evaluate ``kernel(m, y, *columns)`` for all rows, by chunks on all cores: one array or a tuple."""
        rows = self._rows(X, sparse_allowed=True)
        parameters = self._parameters(theta, rows)
        if y is None:
            raise ValueError(f"{type(self).__name__} needs labels; pass y, one label a row")
        labels = as_column(y, rows.shape[0], "y")
        self.check_labels(labels)
        _refuse_overflow(labels, rows.dtype)
        return self._over_checked_rows(kernel, parameters, rows, labels, *columns, results=results)

    def _over_checked_rows(
        self, kernel: Any, parameters: Array, rows: Rows, labels: Array, *columns: Array, results: int = 1
    ) -> list[Array]:
        n, d = rows.shape
        weights, intercept = parameters[:d], parameters[d] if self.fit_intercept else None
        found = [np.empty(n, dtype=rows.dtype) for _ in range(results)]
        odd: list[slice] = []

        def work(chunk: slice) -> None:
            encoded = self.encode_labels(labels[chunk], rows.dtype)
            with np.errstate(over="ignore", under="ignore", invalid="ignore"):
                m = _products(rows, chunk, weights)
                if intercept is not None:
                    m += intercept
                given = kernel(m, encoded, *(column[chunk] for column in columns))
                for result, part in zip(found, given if results > 1 else [given], strict=True):
                    result[chunk] = part
            if not np.isfinite(m).all():  # so it is on every row with NaN or infinity
                odd.append(chunk)

        for_each_chunk(work, n, scratch_rows(rows))
        if odd:
            refuse_nonfinite(rows)
            lost = np.flatnonzero(np.isnan(found[0]))
            if lost.size:
                raise ValueError(f"the predictor of row {lost[0]} overflows {rows.dtype}; scale the columns")
        return found

    def _norms(self, rows: Rows) -> Array:
        """Compute |(x, 1)|, or |x| without an intercept."""
        norms = row_norms(rows)
        if not np.isfinite(norms).all():
            refuse_nonfinite(rows)
        return np.hypot(norms, 1, dtype=rows.dtype) if self.fit_intercept else norms

    def _norm_power(self, X: Any, factor: float | None, power: int) -> Array | None:
        if factor is None:
            return None
        norms = self._norms(self._rows(X, sparse_allowed=True))
        with np.errstate(over="ignore", under="ignore"):
            return norms**power * factor if factor else np.zeros_like(norms)


def _reach(ball: Ball, rows: Rows, norms: Array) -> Array:
    """Bound how far predictors can move in a ball, by what rounding may move them, too."""
    unit = np.finfo(rows.dtype).eps
    rounding = (rows.shape[1] + 8) * unit * (lengths(ball.theta) + ball.radius)
    with np.errstate(over="ignore"):
        return norms * rows.dtype.type(ball.radius * (1 + 8 * unit) + 2 * rounding)


def _finite(slopes: Array) -> Array:
    """Put the largest number for infinity: times a zero it stays a number."""
    largest = np.finfo(slopes.dtype).max
    return np.clip(slopes, -largest, largest, out=slopes)


def _products(rows: Rows, chunk: slice, weights: Array) -> Array:
    if sparse.issparse(rows):
        return np.asarray(rows[chunk] @ weights)
    return row_products(dense_block(rows, chunk), weights)


def _weighted_sum(rows: Rows, pull: Array) -> Array:
    """Sum ``pull`` times row in float64, whatever the type of the rows.

    By einsum, not BLAS, which takes twice as long for it, and longer still on two threads (docs/speed.md).
    """
    if sparse.issparse(rows):
        return np.asarray(rows.T @ pull)

    def work(chunk: slice) -> tuple[Array]:
        block = dense_block(rows, chunk).astype(np.float64, copy=False)
        return (np.einsum("i,ij->j", pull[chunk], block),)

    if not rows.shape[0]:
        return np.zeros(rows.shape[1])
    return np.asarray(sum_over_chunks(work, rows.shape[0], rows_per_chunk(8 * rows.shape[1]))[0])


def _refuse_overflow(labels: Array, dtype: Any) -> None:
    """Raise ValueError if a label is no number of the rows' type."""
    if labels.dtype.kind == "f" and labels.dtype.itemsize > dtype.itemsize:
        large = np.flatnonzero(np.abs(labels) > np.finfo(dtype).max)
        if large.size:
            row = large[0]
            raise ValueError(
                f"y has {labels[row]} in row {row}, too large for the type of X, {dtype}; pass float64"
            )
