"""Classification with any number of classes: the softmax of one linear predictor per class."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from scipy import sparse

from duramen.arrays import Array, dense_block, row_products
from duramen.ball import Ball, lengths
from duramen.losses.base import check_k, ignore_overflow, require_finite
from duramen.losses.linear import PredictorLoss, refuse_overflow
from duramen.parallel import for_each_chunk, rows_per_chunk


@dataclass(frozen=True)
class SoftmaxLoss(PredictorLoss):
    """Multinomial logistic regression: f(theta, x) = log(sum_j exp m_j) - m_y.

    theta is (n_classes, d), one predictor m_j per class, with the intercepts as
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
        super().__post_init__()
        object.__setattr__(self, "n_classes", check_k(self.n_classes, "n_classes", "classes"))

    def parameter_shape(self, n_columns: int) -> tuple[int, ...]:
        return (self.n_classes, n_columns + self.fit_intercept)

    def check_labels(self, y: Array) -> None:
        with ignore_overflow():
            wrong = np.flatnonzero(~((y >= 0) & (y < self.n_classes) & (y == np.floor(y))))
        if wrong.size:
            raise ValueError(
                f"{self!r} takes labels 0 to {self.n_classes - 1}; row {wrong[0]} has {y[wrong[0]]}. "
                "Encode the classes first, for instance np.unique(y, return_inverse=True)[1]"
            )

    def check_classes(self, y: Array, weights: Array, z: float) -> None:
        weight = np.bincount(y.astype(np.intp), weights, minlength=self.n_classes)
        if not (weight > 0).all():
            raise ValueError(
                f"no point of positive weight has the label {int(np.argmin(weight > 0))}; {self!r} needs all "
                "its classes; lower n_classes and encode the labels that occur"
            )

    def curvature_at_zero(self, y: Array) -> Array:
        share = 1 / self.n_classes
        return np.full(len(y), share * (1 - share))

    def values(self, theta: Any, X: Any, y: Any = None) -> Array:
        short = self._shortfalls(theta, X, y)
        refuse_overflow(short)
        return _softplus(short)

    def deviation(self, ball: Ball, X: Any, y: Any = None) -> Array:
        """Compute the supremum: the label's predictor falls, and all others rise, by radius times |x|.

        By convexity no other change is as large. Enlarged for rounding.
        """
        rows = self._rows(X)
        unit = np.finfo(rows.dtype).eps
        size = float(lengths(ball.theta).max()) + ball.radius
        with ignore_overflow():
            reach = self._norms(rows) * rows.dtype.type(
                2 * ball.radius + 4 * (rows.shape[1] + 8) * unit * size
            )
            short = self._shortfalls(ball.theta, rows, y)
            here, highest = _softplus(short), _softplus(short + reach)
            bound = (highest - here) + 16 * self.n_classes * unit * (1 + highest)
            return np.where(np.isfinite(bound), bound, np.inf)  # no bound where predictors overflow

    def lipschitz(self, X: Any, y: Any = None) -> Array:
        return 2 * self._norms(X)

    def smoothness(self, X: Any, y: Any = None) -> Array:
        with ignore_overflow():
            return np.square(self._norms(X))

    def _predictors_and_labels(self, theta: Any, X: Any, y: Any) -> tuple[Array, Array]:
        """Compute m, (n, n_classes), class by class: so a row's do not depend on its position."""
        rows = self._rows(X)
        labels = self._labels(y, rows.shape[0]).astype(np.intp)
        parameters, d = self._parameters(theta, rows), rows.shape[1]
        m = np.empty((rows.shape[0], self.n_classes), dtype=rows.dtype)

        def work(chunk: slice) -> None:
            with ignore_overflow():
                if sparse.issparse(rows):
                    m[chunk] = rows[chunk] @ parameters[:, :d].T
                else:
                    block = dense_block(rows, chunk)
                    m[chunk] = np.stack([row_products(block, one) for one in parameters[:, :d]], axis=1)
                if self.fit_intercept:
                    m[chunk] += parameters[:, d]

        for_each_chunk(work, rows.shape[0], rows_per_chunk(16 * self.n_classes))
        return require_finite(m, rows), labels

    def _shortfalls(self, theta: Any, X: Any, y: Any) -> Array:
        """Compute log(sum over other classes of exp(m_j - m_y)): by how much the label's class is beaten."""
        m, labels = self._predictors_and_labels(theta, X, y)
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
        """Compute the derivative of f in each predictor: the class's probability, less 1 for the label's."""
        m, labels = self._predictors_and_labels(theta, X, y)
        with ignore_overflow():
            pulls = np.exp(m - m.max(axis=1, keepdims=True))
            pulls /= pulls.sum(axis=1, keepdims=True)
        pulls[np.arange(len(m)), labels] -= 1
        refuse_overflow(pulls[:, 0])
        return pulls


def _softplus(short: Array) -> Array:
    with ignore_overflow():
        return np.log1p(np.exp(-np.abs(short))) + np.maximum(short, 0)
