"""Losses of the distance to the nearest centre: f(theta, x) = h(t), t = min_j |x - c_j|, h increasing.

Inside a ball of radius l every centre moves by at most l, so t moves within
[t - l, t + l]; and it reaches both ends: all centres can step straight away
from x, or the nearest one towards it. The largest change of h over that
interval is therefore the deviation itself, not only a bound on it.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import numpy as np

from duramen.ball import Ball, lengths
from duramen.chunks import for_each_chunk, rows_per_chunk, sum_over_chunks
from duramen.losses.base import Loss
from duramen.losses.nearest import nearest_squared
from duramen.rows import Array, as_column, row_products

__all__ = ["DistanceLoss"]


class DistanceLoss(Loss):
    """A loss that depends on the distance to the nearest centre, and grows with it.

    A subclass defines h and h'(t) / t as functions of the squared distance,
    and the shape of theta.
    """

    @abstractmethod
    def height(self, squared: Array) -> Array:
        """Compute h(t) from t^2."""

    @abstractmethod
    def pull(self, squared: Array) -> Array:
        """Compute h'(t) / t from t^2: the gradient in the nearest centre c is this times c - x."""

    @abstractmethod
    def parameter_shape(self, n_columns: int) -> tuple[int, ...]:
        """Give the shape of theta for rows of ``n_columns`` columns."""

    def values(self, theta: Any, X: Any, y: Any = None) -> Array:
        return self.height(self._nearest(theta, X, numbered=False)[0])

    def values_and_marks(self, theta: Any, X: Any, y: Any = None) -> tuple[Array, Array]:
        squared, numbers = self._nearest(theta, X)
        return self.height(squared), numbers

    def nearest(self, theta: Any, X: Any) -> Array:
        """Find the number of each row's nearest centre: (n,), the first of equally near ones."""
        return self._nearest(theta, X)[1]

    def gradients(self, theta: Any, X: Any, y: Any = None) -> Array:
        rows = self._rows(X)
        squared, numbers = self._nearest(theta, rows)
        centres = self._centres(theta, rows)
        pull = self.pull(squared)
        gradients = np.zeros((len(rows), *centres.shape), dtype=rows.dtype)

        def work(chunk: slice) -> None:
            with np.errstate(over="ignore", under="ignore", invalid="ignore"):
                gap = centres[numbers[chunk]] - rows[chunk]
                gap *= pull[chunk, None]
            gradients[np.arange(chunk.start, chunk.stop), numbers[chunk]] = gap

        for_each_chunk(work, len(rows), rows_per_chunk(rows.shape[1] * rows.dtype.itemsize))
        return gradients.reshape(len(rows), *np.shape(theta))

    def gradient_sum(
        self, theta: Any, X: Any, y: Any = None, weights: Any = None, *, marks: Array | None = None
    ) -> Array:
        rows = self._rows(X)
        centres = self._centres(theta, rows)
        numbers = self.nearest(theta, rows) if marks is None else marks
        heavy = None if weights is None else as_column(weights, len(rows), "weights")

        def work(chunk: slice) -> tuple[Array]:
            with np.errstate(over="ignore", under="ignore", invalid="ignore"):
                gap = (centres[numbers[chunk]] - rows[chunk]).astype(np.float64, copy=False)
                pull = self.pull(row_products(gap, gap))
                if heavy is not None:
                    pull = np.where(heavy[chunk] > 0, pull * heavy[chunk], 0.0)
                gap *= pull[:, None]
            columns = [np.bincount(numbers[chunk], column, minlength=len(centres)) for column in gap.T]
            return (np.stack(columns, axis=1),)

        if not len(rows):
            return np.zeros(np.shape(theta))
        (total,) = sum_over_chunks(work, len(rows), rows_per_chunk(16 * rows.shape[1]))
        return np.asarray(total).reshape(np.shape(theta))

    def deviation(self, ball: Ball, X: Any, y: Any = None) -> Array:
        rows = self._rows(X)
        limits = np.finfo(rows.dtype)
        # what follows is enlarged by what rounding may do, so that it bounds computed values too: to a centre
        # (a few units of its size), to a distance (relative), and to squares that vanish
        slack = (rows.shape[1] + 8) * limits.eps
        size = lengths(ball.theta).max() + ball.radius
        reach = (ball.radius + 8 * limits.eps * size) * (1 + slack) + (rows.shape[1] * limits.tiny) ** 0.5
        with np.errstate(over="ignore", under="ignore", invalid="ignore"):
            step = rows.dtype.type(reach)
            t = np.sqrt(self._nearest(ball.theta, rows, numbered=False)[0]) * rows.dtype.type(1 + slack)
            here = self.height(t * t)
            up = self.height((t + step) ** 2)
            down = self.height(np.maximum(t - step, 0) ** 2)
            change = np.maximum(up - here, here - down) + rows.dtype.type(slack) * up
        return np.where(np.isfinite(change), change, np.inf).astype(rows.dtype, copy=False)

    def _centres(self, theta: Any, rows: Array) -> Array:
        return self._parameters(theta, rows).reshape(-1, rows.shape[1])

    def reached(self, theta: Any, X: Any) -> tuple[Array, Array]:
        """Find the nearest centre of each row: its squared distance, and its number."""
        return self._nearest(theta, X)

    def _nearest(self, theta: Any, X: Any, *, numbered: bool = True) -> tuple[Array, Array]:
        rows = self._rows(X)
        squared, numbers = nearest_squared(rows, self._centres(theta, rows), numbered=numbered)
        return self._answer(squared, rows), numbers
