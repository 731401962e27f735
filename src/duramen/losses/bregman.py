"""Clustering with a Bregman divergence in place of the squared distance."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from duramen.ball import Ball
from duramen.chunks import for_each_chunk, rows_per_chunk, sum_over_chunks
from duramen.losses.base import Loss
from duramen.losses.checks import checked_k
from duramen.losses.divergences import Divergence, divergence_of
from duramen.losses.nearest import least_cost, screened
from duramen.rows import Array, as_column, dense_block, row_products

__all__ = ["BregmanLoss"]


@dataclass(frozen=True)
class BregmanLoss(Loss):
    """Bregman clustering: the smallest divergence d(x, c_j) to k centres.

    theta is (k, d). The best centre of a cluster is its mean, for every
    divergence. There are no global constants (but for one centre and the
    squared divergence: smooth, 2); inside a ball the deviation is bounded
    through the curvature of phi, and infinite where the ball leaves its domain
    around every centre.

    Parameters
    ----------
    k : int
        How many centres.
    divergence : {"kl", "itakura-saito", "squared"}, pair (phi, gradient), or Divergence
        "kl" is the generalised Kullback-Leibler divergence, for data of 0 or
        more; "itakura-saito" takes data above 0. Of your own: phi and its
        gradient, both from rows (n, d); see :class:`duramen.CustomDivergence`.

    Examples
    --------
    >>> import duramen as dm
    >>> dm.BregmanLoss(1, divergence="kl").values([[1.0, 1.0]], [[1.0, 1.0], [0.0, 2.0]])
    array([0.        , 1.38629436])
    """

    k: int
    divergence: Any = "kl"

    def __post_init__(self) -> None:
        object.__setattr__(self, "k", checked_k(self.k))
        object.__setattr__(self, "divergence", divergence_of(self.divergence))

    def parameter_shape(self, n_columns: int) -> tuple[int, ...]:
        return (self.k, n_columns)

    def values(self, theta: Any, X: Any, y: Any = None) -> Array:
        return self.assigned(theta, X)[0]

    def values_and_marks(self, theta: Any, X: Any, y: Any = None) -> tuple[Array, Array]:
        return self.assigned(theta, X)

    def nearest(self, theta: Any, X: Any) -> Array:
        """Find the number of each row's nearest centre: (n,), the first of equally near ones."""
        return self.assigned(theta, X)[1]

    def assigned(self, theta: Any, X: Any) -> tuple[Array, Array]:
        """Compute each row's value, and the number of its nearest centre, together."""
        rows = self._domain_rows(X)
        return self._nearest(self._centres(theta, rows), rows)

    def gradients(self, theta: Any, X: Any, y: Any = None) -> Array:
        rows = self._domain_rows(X)
        centres = self._centres(theta, rows)
        numbers = self._nearest(centres, rows)[1]
        gradients = np.zeros((len(rows), *centres.shape), dtype=rows.dtype)

        def work(chunk: slice) -> None:
            block, here = rows[chunk], numbers[chunk]
            for number, centre in enumerate(centres):
                members = np.flatnonzero(here == number)
                with np.errstate(over="ignore", under="ignore"):
                    gradients[chunk.start + members, number] = self._divergence.slope(block[members], centre)

        for_each_chunk(work, len(rows), rows_per_chunk(2 * rows.shape[1] * rows.dtype.itemsize))
        return gradients

    def gradient_sum(
        self, theta: Any, X: Any, y: Any = None, weights: Any = None, *, marks: Array | None = None
    ) -> Array:
        rows = self._domain_rows(X)
        centres = self._centres(theta, rows)
        numbers = self._nearest(centres, rows)[1] if marks is None else marks
        heavy = np.ones(len(rows)) if weights is None else as_column(weights, len(rows), "weights")

        def work(chunk: slice) -> tuple[Array]:
            total = np.zeros(centres.shape)
            for number, centre in enumerate(centres):
                members = np.flatnonzero((numbers[chunk] == number) & (heavy[chunk] > 0))
                with np.errstate(over="ignore", under="ignore"):
                    slopes = self._divergence.slope(rows[chunk][members], centre)
                total[number] = heavy[chunk][members] @ slopes.astype(np.float64, copy=False)
            return (total,)

        if not len(rows):
            return np.zeros(centres.shape)
        return np.asarray(sum_over_chunks(work, len(rows), rows_per_chunk(24 * rows.shape[1]))[0])

    def smoothness(self, X: Any, y: Any = None) -> Array | None:
        rows = self._rows(X)
        if self.k > 1 or self._divergence.smooth is None:
            return None
        return np.full(len(rows), self._divergence.smooth, dtype=rows.dtype)

    def deviation(self, ball: Ball, X: Any, y: Any = None) -> Array:
        rows = self._domain_rows(X)
        centres = self._centres(ball.theta, rows)
        # a centre moves by the radius, and by rounding: each coordinate by a few units of its size
        with np.errstate(over="ignore", under="ignore"):
            radius = np.float64(ball.radius)
            rounded = 8 * np.finfo(rows.dtype).eps * (np.abs(centres) + radius).astype(rows.dtype)
            bent = self._divergence.curvature(centres, (rounded + radius).astype(rows.dtype))
        result = np.empty(len(rows), dtype=rows.dtype)

        def work(chunk: slice) -> None:
            with np.errstate(over="ignore", under="ignore", invalid="ignore"):
                result[chunk] = self._change(dense_block(rows, chunk), centres, bent, rounded, radius)

        for_each_chunk(work, len(rows), rows_per_chunk(6 * rows.shape[1] * rows.dtype.itemsize))
        return self._answer(result, rows)

    def _change(self, block: Array, centres: Array, bent: Array, rounded: Array, radius: Any) -> Array:
        """Bound the change of the smallest divergence from the change of each, and from rounding.

        The bound of :mod:`duramen.losses.divergences` for a step of length radius and a step ``rounded``.
        """
        here, highest, lowest = (np.full(len(block), np.inf, dtype=block.dtype) for _ in range(3))
        slack = (block.shape[1] + 16) * np.finfo(block.dtype).eps
        for centre, h, u in zip(centres, bent, rounded, strict=True):
            cost = self._divergence.between(block, centre[None])
            move = np.full(len(block), np.inf, dtype=block.dtype)
            if np.isfinite(h).all():
                pull = h * np.abs(block - centre)
                second = h.max() * radius**2 / 2 + radius * np.linalg.norm(h * u) + h @ (u * u) / 2
                first = radius * np.sqrt(row_products(pull, pull)) + row_products(pull, u)
                move = (first + second).astype(block.dtype) * block.dtype.type(1 + slack)
                move += 4 * self._divergence.rounding(block, centre[None], cost + move)
            np.minimum(here, cost, out=here)
            np.minimum(highest, cost + move, out=highest)
            np.minimum(lowest, cost - np.minimum(move, cost), out=lowest)
        change = np.maximum(highest - here, here - lowest)
        return np.where(np.isnan(change), np.inf, change)

    @property
    def _divergence(self) -> Divergence:
        return self.divergence

    def _centres(self, theta: Any, rows: Array) -> Array:
        centres = self._parameters(theta, rows)
        outside = self._divergence.outside_centres(centres)
        if outside.any():
            number, column = np.argwhere(outside)[0]
            raise ValueError(
                f"the {self._divergence.name} divergence takes {self._divergence.domain}; "
                f"centre {number} has {centres[number, column]} in column {column}"
            )
        return centres

    def _domain_rows(self, X: Any) -> Array:
        rows = self._rows(X)

        def work(chunk: slice) -> None:
            outside = self._divergence.outside(rows[chunk])
            if outside.any():
                row, column = np.argwhere(outside)[0]
                raise ValueError(
                    f"the {self._divergence.name} divergence takes {self._divergence.domain}; "
                    f"row {chunk.start + row} has {rows[chunk][row, column]} in column {column}"
                )

        for_each_chunk(work, len(rows), rows_per_chunk(rows.shape[1]))
        return rows

    def _nearest(self, centres: Array, rows: Array) -> tuple[Array, Array]:
        """Screen by one matrix product, then compute the divergence itself for what is left."""
        slopes = -self._divergence.gradient(centres)
        offsets = -row_products(slopes, centres) - self._divergence.phi(centres)
        unit = 4 * (rows.shape[1] + 8) * np.finfo(rows.dtype).eps

        def costs(pairs: Array, numbers: Array) -> Array:
            return self._divergence.between(pairs, centres[numbers])

        def kernel(block: Array) -> tuple[Array, Array]:
            scores = slopes @ block.T
            scores += offsets[:, None]
            # for each pair by itself: one far centre must not blur the others
            rounding = np.abs(slopes) @ np.abs(block).T
            rounding += np.abs(offsets)[:, None] + np.abs(self._divergence.phi(block))
            rounding *= unit
            limit = (scores + rounding).min(axis=0)
            scores -= rounding
            return screened(block, scores, limit, costs)

        least, numbers = least_cost(rows, kernel, scratch=8 * rows.shape[1] + 8 * self.k)
        return self._answer(least, rows), numbers
