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

from duramen.ball import Ball
from duramen.chunks import for_each_chunk, rows_per_chunk
from duramen.losses.base import Loss
from duramen.losses.nearest import nearest_squared
from duramen.rows import Array

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
            gap = centres[numbers[chunk]] - rows[chunk]
            gap *= pull[chunk, None]
            gradients[np.arange(chunk.start, chunk.stop), numbers[chunk]] = gap

        for_each_chunk(work, len(rows), rows_per_chunk(rows.shape[1] * rows.dtype.itemsize))
        return gradients.reshape(len(rows), *np.shape(theta))

    def deviation(self, ball: Ball, X: Any, y: Any = None) -> Array:
        rows = self._rows(X)
        unit = np.finfo(rows.dtype).eps
        slack = (rows.shape[1] + 8) * unit  # so that the bound holds for computed values too
        t = np.sqrt(self._nearest(ball.theta, rows, numbered=False)[0]) * (1 + slack)
        # a computed centre lies within a unit of its size from the exact one
        reach = (ball.radius + np.abs(ball.theta).max() * 2 * unit) * (1 + slack)
        with np.errstate(over="ignore", under="ignore"):
            here = self.height(t * t)
            up = self.height((t + reach) ** 2)
            down = self.height(np.maximum(t - reach, 0) ** 2)
        change = np.maximum(up - here, here - down) + slack * up
        return change.astype(rows.dtype, copy=False)

    def _centres(self, theta: Any, rows: Array) -> Array:
        return self._parameters(theta, rows).reshape(-1, rows.shape[1])

    def _nearest(self, theta: Any, X: Any, *, numbered: bool = True) -> tuple[Array, Array]:
        rows = self._rows(X)
        squared, numbers = nearest_squared(rows, self._centres(theta, rows), numbered=numbered)
        return self._answer(squared, rows), numbers
