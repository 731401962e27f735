"""Classification with any number of classes: the softmax of one linear predictor a class."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from scipy import sparse

from duramen.arrays import Array, Rows, as_column, dense_block, refuse_nonfinite, row_norms, row_products
from duramen.ball import Ball, lengths
from duramen.losses.base import Loss, check_k
from duramen.parallel import for_each_chunk, rows_per_chunk, sum_over_chunks

__all__ = ["SoftmaxLoss"]


@dataclass(frozen=True)
class SoftmaxLoss(Loss):
    """Multinomial logistic regression: f(theta, x) = log(sum_j exp m_j) - m_y.

    theta is (n_classes, d), one predictor m_j a class, with the intercepts as
    a last column; labels are 0 to n_classes - 1. In a ball, where no predictor's
    parameters move by more than the radius, each f is ``2 |x|``-Lipschitz and
    ``|x|^2``-smooth; with an intercept, x stands for (x, 1).

    Parameters
    ----------
    n_classes : int
    fit_intercept : bool
        Whether theta has intercepts as its last column.

    Examples
    --------
    >>> import duramen as dm
    >>> theta = [[0.0, 0.0], [1.0, 0.0], [2.0, 0.0]]
    >>> dm.SoftmaxLoss(3).values(theta, [[0.0], [1000.0], [1000.0]], [0, 2, 0])
    array([1.09861229e+00, 0.00000000e+00, 2.00000000e+03])
    """

    n_classes: int
    fit_intercept: bool = field(default=True, kw_only=True)

    def __post_init__(self) -> None:
        object.__setattr__(self, "n_classes", check_k(self.n_classes, "n_classes", "classes"))
        if not isinstance(self.fit_intercept, (bool, np.bool_)):
            raise TypeError(f"fit_intercept={self.fit_intercept!r} must be True or False")

    @property
    def convex(self) -> bool:
        return True

    def parameter_shape(self, n_columns: int) -> tuple[int, ...]:
        return (self.n_classes, n_columns + self.fit_intercept)

    def check_labels(self, y: Array) -> None:
        """Raise ValueError naming the first label that is no class."""
        with np.errstate(invalid="ignore"):
            wrong = np.flatnonzero(~((y >= 0) & (y < self.n_classes) & (y == np.floor(y))))
        if wrong.size:
            raise ValueError(
                f"{self!r} takes labels 0 to {self.n_classes - 1}; row {wrong[0]} has {y[wrong[0]]}. "
                "Encode the classes first, for instance np.unique(y, return_inverse=True)[1]"
            )

    def predictors(self, theta: Any, X: Any) -> Array:
        """Compute m: (n, n_classes); infinite or NaN where it overflows."""
        rows = self._rows(X, sparse_allowed=True)
        parameters = self._parameters(theta, rows)
        found = np.empty((rows.shape[0], self.n_classes), dtype=rows.dtype)

        def work(chunk: slice) -> None:
            with np.errstate(over="ignore", under="ignore", invalid="ignore"):
                found[chunk] = self._predictors(parameters, rows, chunk)

        for_each_chunk(work, rows.shape[0], rows_per_chunk(16 * self.n_classes))
        if not np.isfinite(found).all():
            refuse_nonfinite(rows)
        return found

    def values(self, theta: Any, X: Any, y: Any = None) -> Array:
        short = self._shortfalls(theta, X, y)
        _refuse_overflow(short)
        return _softplus(short)

    def deviation(self, ball: Ball, X: Any, y: Any = None) -> Array:
        """Compute the supremum itself: the label's predictor falls, and all others rise, by radius times |x|.

        By convexity no other change is as large. Enlarged by what rounding may do.
        """
        rows = self._rows(X, sparse_allowed=True)
        unit = np.finfo(rows.dtype).eps
        size = float(lengths(ball.theta).max()) + ball.radius
        with np.errstate(over="ignore", under="ignore", invalid="ignore"):
            reach = self._norms(rows) * rows.dtype.type(
                2 * ball.radius + 4 * (rows.shape[1] + 8) * unit * size
            )
            short = self._shortfalls(ball.theta, rows, y)
            here, highest = _softplus(short), _softplus(short + reach)
            bound = (highest - here) + 16 * self.n_classes * unit * (1 + highest)
            return np.where(np.isfinite(bound), bound, np.inf)  # no bound where predictors overflow

    def gradients(self, theta: Any, X: Any, y: Any = None) -> Array:
        pulls = self.pulls(theta, X, y)
        rows = self._rows(X, sparse_allowed=True)
        dense = rows.toarray() if sparse.issparse(rows) else rows
        with np.errstate(over="ignore", under="ignore"):
            gradients = pulls[:, :, None] * dense[:, None, :]
        return np.concatenate([gradients, pulls[:, :, None]], axis=2) if self.fit_intercept else gradients

    def gradient_sum(
        self, theta: Any, X: Any, y: Any = None, weights: Any = None, *, cache: Array | None = None
    ) -> Array:
        rows = self._rows(X, sparse_allowed=True)
        pulls = self.pulls(theta, rows, y).astype(np.float64, copy=False)
        if weights is not None:
            pulls = pulls * as_column(weights, rows.shape[0], "weights")[:, None]
        if not rows.shape[0]:
            return np.zeros(self.parameter_shape(rows.shape[1]))

        def work(chunk: slice) -> tuple[Array]:
            block = rows[chunk] if sparse.issparse(rows) else dense_block(rows, chunk)
            return (np.asarray((block.T @ pulls[chunk]).T),)

        with np.errstate(over="ignore", under="ignore", invalid="ignore"):
            (total,) = sum_over_chunks(work, rows.shape[0], rows_per_chunk(8 * rows.shape[1]))
        return np.column_stack([total, pulls.sum(axis=0)]) if self.fit_intercept else total

    def lipschitz(self, X: Any, y: Any = None) -> Array:
        return 2 * self._norms(X)

    def smoothness(self, X: Any, y: Any = None) -> Array:
        with np.errstate(over="ignore", under="ignore"):
            return np.square(self._norms(X))

    def _prepared(self, theta: Any, X: Any, y: Any) -> tuple[Array, Array]:
        rows = self._rows(X, sparse_allowed=True)
        if y is None:
            raise ValueError(f"{self!r} needs labels; pass y, one label a row")
        labels = as_column(y, rows.shape[0], "y")
        self.check_labels(labels)
        return self.predictors(theta, rows), labels.astype(np.intp)

    def _predictors(self, parameters: Array, rows: Rows, chunk: slice) -> Array:
        """Compute the predictors of a chunk, class by class: so that no row's depend on where it stands."""
        d = rows.shape[1]
        if sparse.issparse(rows):
            m = np.asarray(rows[chunk] @ parameters[:, :d].T)
        else:
            block = dense_block(rows, chunk)
            m = np.stack([row_products(block, one) for one in parameters[:, :d]], axis=1)
        return m + parameters[:, d] if self.fit_intercept else m

    def _shortfalls(self, theta: Any, X: Any, y: Any) -> Array:
        """Compute log(sum over other classes of exp(m_j - m_y)): by how much the label's class is beaten."""
        m, labels = self._prepared(theta, X, y)
        short = np.empty(len(m), dtype=m.dtype)

        def work(chunk: slice) -> None:
            with np.errstate(over="ignore", under="ignore", invalid="ignore", divide="ignore"):
                own = np.arange(len(m[chunk])), labels[chunk]
                gaps = m[chunk] - m[chunk][own][:, None]
                gaps[own] = -np.inf
                top = gaps.max(axis=1)
                short[chunk] = top + np.log(np.exp(gaps - top[:, None]).sum(axis=1))

        if self.n_classes == 1:
            return np.full_like(short, -np.inf)
        for_each_chunk(work, len(m), rows_per_chunk(32 * self.n_classes))
        return short

    def pulls(self, theta: Any, X: Any, y: Any) -> Array:
        """Compute the derivative in each predictor: the probability of the class, less 1 for the label's."""
        m, labels = self._prepared(theta, X, y)
        with np.errstate(over="ignore", under="ignore", invalid="ignore"):
            pulls = np.exp(m - m.max(axis=1, keepdims=True))
            pulls /= pulls.sum(axis=1, keepdims=True)
        pulls[np.arange(len(m)), labels] -= 1
        _refuse_overflow(pulls[:, 0])
        return pulls

    def _norms(self, X: Any) -> Array:
        rows = self._rows(X, sparse_allowed=True)
        norms = row_norms(rows)
        if not np.isfinite(norms).all():
            refuse_nonfinite(rows)
        return np.hypot(norms, 1, dtype=rows.dtype) if self.fit_intercept else norms


def _softplus(short: Array) -> Array:
    with np.errstate(over="ignore", under="ignore"):
        return np.log1p(np.exp(-np.abs(short))) + np.maximum(short, 0)


def _refuse_overflow(values: Array) -> None:
    lost = np.flatnonzero(np.isnan(values))
    if lost.size:
        raise ValueError(f"the predictor of row {lost[0]} overflows {values.dtype}; scale the columns")
