"""Losses of the distance to the nearest centre: f(theta, x) = h(t), t = min_j |x - c_j|, h increasing.

The nearest centre is found exactly, and without an (n, k, d) array.

One matrix product gives all distances, by |x - c|^2 = |x|^2 - 2 <x, c> + |c|^2, but far from the origin, or
close to a centre, that difference has no digits left. So the product only *screens*: it leaves, for each row,
the centres that may be nearest given its rounding error (almost always one), and the distance to those is
computed from the differences themselves. In few columns, differences to all centres take less time. A row's
result is the same, bit for bit, at any position.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse

from duramen.arrays import Array, Rows, check_count, dense_block, row_products
from duramen.losses.base import (
    Ball,
    BuiltInLoss,
    Explanation,
    ignore_overflow,
    require_finite,
    vc_of_unions,
)
from duramen.parallel import join_chunks, rows_per_chunk

FEW_COLUMNS = 16  # up to here differences beat the screening product (docs/speed.md)


class CentreLoss(BuiltInLoss):
    """A loss of the nearest centre, whose number is the ``cache`` of :meth:`values_and_cache`."""

    has_centres = True
    tolerance = 1e-6
    fitter = "mean"
    n_centres = 1

    def vc_dimension(self, n_columns: int) -> float:
        return vc_of_unions(n_columns + 1, self.n_centres)

    def anchor_rows(self, n_columns: int) -> int:
        return max(600, 10 * self.n_centres)

    def reach(self, X: Any) -> Array:
        rows = self._rows(X)
        return np.ones(len(rows), dtype=rows.dtype)

    def inside(self, centres: Array) -> Array:
        """Move centres on the edge of the loss's domain just inside."""
        return centres

    @abstractmethod
    def costs(self, block: Array, centres: Array) -> Array:
        """Compute the cost of each row under each of several centres alone: (k, b)."""

    @abstractmethod
    def pulls(self, block: Array, centres: Array, numbers: Array) -> Array:
        """Compute the gradient of each row's loss in its nearest centre: (b, d), in float64."""

    def check_solvable(self, X: Rows, y: Any, weights: Array, z: float) -> None:
        rows, k = self._rows(X), self.n_centres
        found = len(distinct_rows(rows, np.flatnonzero(weights > 0), k))
        if found < k:
            raise ValueError(
                f"k={k} is above the number of distinct points of positive weight, {found}; "
                f"take k={found} or less"
            )

    def values(self, theta: Any, X: Any, y: Any = None) -> Array:
        return self.values_and_cache(theta, X)[0]

    def nearest(self, theta: Any, X: Any, y: Any = None) -> Array:
        """Find the number of each row's nearest centre, the first of equally near ones: (n,)."""
        return self.values_and_cache(theta, X)[1]

    _gradient_factors = nearest

    def predictions(self, theta: Array, X: Any) -> dict[str, Array]:
        cost, cluster = self.values_and_cache(theta, X)
        return {"cluster": cluster, "distance": cost}

    def explain(self, theta: Array, X: Array, y: Any, mean: Array) -> Explanation | None:
        nearest = theta.reshape(-1, X.shape[1])[self.nearest(theta, X)]
        return Explanation("distance", nearest, np.square(X - nearest), np.zeros(len(X)))

    def put_gradients(self, out: Array, theta: Any, X: Rows, y: Any, cache: Any) -> None:
        centres = self._centres(theta, X)
        numbers = self.nearest(theta, X) if cache is None else cache
        with ignore_overflow():
            pulls = self.pulls(X, centres, numbers)
            out.reshape(len(pulls), *centres.shape)[np.arange(len(pulls)), numbers] = pulls

    def _sum_gradients(self, theta: Array, rows: Rows, weights: Array, cache: Any) -> Array:
        centres = self._centres(theta, rows)
        pulls = self.pulls(rows, centres, cache)
        pulls[weights == 0] = 0.0
        return sum_by_centre(pulls, cache, weights, len(centres))

    def _centres(self, theta: Any, rows: Array) -> Array:
        return self._parameters(theta, rows).reshape(-1, rows.shape[1])


def distinct_rows(X: Array, rows: Array, enough: int) -> Array:
    """Find the distinct ones among some rows of X, up to ``enough``, reading no more rows than necessary."""
    n = 4 * enough
    while True:
        found = np.unique(X[rows[:n]], axis=0)
        if len(found) >= enough or n >= len(rows):
            return found[:enough]
        n *= 8


@dataclass(frozen=True)
class KCentresLoss(CentreLoss):
    """A loss of the nearest of k centres, convex if there is one: theta is (k, d)."""

    k: int

    @property
    def convex(self) -> bool:
        return self.k == 1

    def __post_init__(self) -> None:
        object.__setattr__(self, "k", check_count("k", self.k))
        object.__setattr__(self, "n_centres", self.k)

    def parameter_shape(self, n_columns: int) -> tuple[int, ...]:
        return (self.k, n_columns)


class DistanceLoss(CentreLoss):
    """A loss h of the distance to the nearest centre, increasing; a subclass also has the shape of theta."""

    fitter = "distance"

    @abstractmethod
    def height(self, squared: Array) -> Array:
        """Compute h(t) from t^2."""

    @abstractmethod
    def pull(self, squared: Array) -> Array:
        """Compute h'(t) / t from t^2: the gradient in the nearest centre c is this times c - x."""

    def costs(self, block: Array, centres: Array) -> Array:
        return self.height(squared_differences(block, centres))

    def values(self, theta: Any, X: Any, y: Any = None) -> Array:
        return self.height(self.assign(theta, X, numbered=False)[0])

    def values_and_cache(self, theta: Any, X: Any, y: Any = None) -> tuple[Array, Array]:
        squared, numbers = self.assign(theta, X)
        return self.height(squared), numbers

    def pulls(self, block: Array, centres: Array, numbers: Array) -> Array:
        gaps = (centres[numbers] - block).astype(np.float64, copy=False)
        gaps *= self.pull(row_products(gaps, gaps))[:, None]
        return gaps

    def predictions(self, theta: Array, X: Any) -> dict[str, Array]:
        squared, cluster = self.assign(theta, X)
        return {"cluster": cluster, "distance": np.sqrt(squared)}

    def deviation(self, ball: Ball, X: Any, y: Any = None) -> Array:
        rows = self._rows(X)
        limits, d = np.finfo(rows.dtype), rows.shape[1]
        # enlarged for the rounding of a centre (a few units of its size), of a distance (relative), and of
        # squares that vanish, so that it bounds computed values too
        slack = (d + 8) * limits.eps
        reach = (ball.radius + 8 * limits.eps * ball._size) * (1 + slack) + (d * limits.tiny) ** 0.5
        with ignore_overflow():
            t = np.sqrt(self.assign(ball.theta, rows, numbered=False)[0], dtype=np.float64) * (1 + slack)
            here, up = self.height(t * t), self.height((t + reach) ** 2)
            down = self.height(np.maximum(t - reach, 0) ** 2)
            change = np.maximum(up - here, here - down) + slack * up
            return np.fmin(change, np.inf).astype(rows.dtype, copy=False)

    def assign(self, theta: Any, X: Any, *, numbered: bool = True) -> tuple[Array, Array]:
        """Find the squared distance to each row's nearest centre, and its number if ``numbered``."""
        rows = self._rows(X)
        squared, numbers = nearest_squared(rows, self._centres(theta, rows), numbered=numbered)
        return require_finite(squared, rows), numbers


@dataclass(frozen=True)
class KMeansLoss(KCentresLoss, DistanceLoss):
    """k-means: the squared Euclidean distance to the nearest of k centres.

    theta is (k, d). Not Lipschitz on unbounded data, and smooth (with constant
    2) only for k = 1; inside a ball of radius l the deviation is 2 t l + l^2
    with t the distance to the nearest centre.

    Parameters
    ----------
    k : int
        The number of centres.

    Examples
    --------
    >>> import duramen as dm
    >>> dm.KMeansLoss(2).values([[0.0, 0.0], [10.0, 0.0]], [[3.0, 4.0], [9.0, 0.0]])
    array([25.,  1.])
    """

    fitter = "kmeans"

    def height(self, squared: Array) -> Array:
        return squared

    def pull(self, squared: Array) -> Array:
        return np.full_like(squared, 2)

    @property
    def max_curvature(self) -> float | None:  # type: ignore[override]
        """2 for one centre; the nearest of several can change."""
        return 2.0 if self.k == 1 else None


@dataclass(frozen=True)
class KMedianLoss(KCentresLoss, DistanceLoss):
    """k-median: the Euclidean distance to the nearest of k centres.

    theta is (k, d). Each f is 1-Lipschitz in the largest move of a centre
    (paper, appendix A), whatever the data. At a centre itself, where there is
    no gradient, it counts as zero.

    Parameters
    ----------
    k : int
        The number of centres.

    Examples
    --------
    >>> import duramen as dm
    >>> dm.KMedianLoss(2).values([[0.0, 0.0], [10.0, 0.0]], [[3.0, 4.0], [9.0, 0.0]])
    array([5., 1.])
    """

    max_slope = 1.0

    def height(self, squared: Array) -> Array:
        return np.sqrt(squared)

    def pull(self, squared: Array) -> Array:
        return 1 / np.sqrt(np.where(squared > 0, squared, np.inf))


@dataclass(frozen=True)
class TruthDiscoveryLoss(DistanceLoss):
    """Truth discovery: theta is the truth, and each row one source's claim.

    With ``t = |theta - x|``, f is t^2 up to 1 and 1 + log t^2 beyond (paper, appendix
    A): a source that is far off has little influence. Each f is 2-Lipschitz and 2-smooth.

    Examples
    --------
    >>> import duramen as dm
    >>> dm.TruthDiscoveryLoss().values([0.0, 0.0], [[0.5, 0.0], [0.0, 1.0], [100.0, 0.0]])
    array([ 0.25      ,  1.        , 10.21034037])
    """

    max_slope = max_curvature = 2.0

    def parameter_shape(self, n_columns: int) -> tuple[int, ...]:
        return (n_columns,)

    def height(self, squared: Array) -> Array:
        return np.minimum(squared, 1) + np.log(np.maximum(squared, 1))

    def pull(self, squared: Array) -> Array:
        return 2 / np.maximum(squared, 1)


def nearest_squared(X: Array, centres: Array, *, numbered: bool = True) -> list[Array]:
    """Compute each row's squared distance to its nearest centre and, if ``numbered``, the first such."""
    k, d = centres.shape

    def differences(block: Array) -> list[Array]:
        total = squared_differences(block, centres)
        return first_least(total) if numbered else [total.min(axis=0), np.zeros(len(block), dtype=np.int32)]

    if d <= FEW_COLUMNS:
        return over_blocks(X, differences, scratch=d + 2 * k)
    shift = np.median(centres, axis=0)  # a far centre must not move it away from the others
    moved = centres - shift
    sizes = row_products(moved, moved)[:, None]

    def kernel(block: Array) -> list[Array]:
        there = block - shift
        scores = (-2 * moved) @ there.T
        scores += sizes
        # rounding moves a score by at most (d + 8) units of (|x| + |c|)^2 <= 2 |x|^2 + 2 |c|^2
        return least_among(block, centres, scores, sizes, row_products(there, there), squared_gaps)

    return over_blocks(X, kernel, scratch=3 * d + 6 * k)


def squared_gaps(X: Array, C: Array) -> Array:
    """Compute the squared distance of each row of X to the same row of C, which is overwritten."""
    C -= X
    return row_products(C, C)


def over_blocks(X: Array, kernel: Callable[[Array], list[Array]], scratch: int) -> list[Array]:
    """Join what a kernel computes of blocks of rows, for each of which it needs ``scratch`` numbers."""

    def work(chunk: slice) -> list[Array]:
        with ignore_overflow():
            return kernel(dense_block(X, chunk))

    return join_chunks(work, len(X), rows_per_chunk(scratch * X.dtype.itemsize))


def sum_by_centre(rows: Array, numbers: Array, weights: Array, k: int) -> Array:
    """Sum weight times row over the rows of each of k centres: (k, d)."""
    ends = np.arange(len(weights) + 1)
    return sparse.csc_array((weights, numbers, ends), shape=(k, len(weights))) @ rows


def least_among(
    block: Array, centres: Array, scores: Array, sizes: Array, squares: Any, costs: Callable[..., Array]
) -> list[Array]:
    """Compute the least cost of each row among the centres that may have it.

    ``scores`` (k, b) are the costs up to a term of the row, as computed; their rounding errors are at most
    ``sizes`` for each centre, or pair, and ``squares`` for each row, in units that depend on the number of
    columns. ``costs`` computes the costs themselves, from gathered rows and centres. A score that is NaN
    excludes nothing. The scores are overwritten.
    """
    unit = 4 * (block.shape[1] + 8) * np.finfo(block.dtype).eps
    rounding = unit * sizes
    limit = (scores + rounding).min(axis=0) + 2 * unit * squares
    scores -= rounding
    numbers, rows = np.nonzero(~(scores > limit))
    # in parts, so that it takes no more scratch memory when many centres remain
    (exact,) = join_chunks(
        lambda part: [costs(block[rows[part]], centres.take(numbers[part], axis=0))], len(rows), len(block)
    )
    if len(rows) > len(block):  # rarely; nearly always there is one centre per row
        order = np.lexsort((exact, rows))
        best = order[np.diff(rows[order], prepend=-1) > 0]
        numbers, rows, exact = numbers[best], rows[best], exact[best]
    least, first = np.empty(len(block), dtype=block.dtype), np.empty(len(block), dtype=np.int32)
    least[rows], first[rows] = exact, numbers
    return [least, first]


def squared_differences(block: Array, centres: Array) -> Array:
    """Compute all squared distances, (k, b), column by column for all centres: few calls on long arrays."""
    columns, coordinates = np.ascontiguousarray(block.T), centres.T[:, :, None]
    total = columns[0] - coordinates[0]
    total *= total
    term = np.empty_like(total)
    for column, coordinate in zip(columns[1:], coordinates[1:], strict=True):
        np.subtract(column, coordinate, out=term)
        term *= term
        total += term
    return total


def first_least(costs: Array) -> list[Array]:
    """Find the least of each column of (k, b) costs, and the first row that has it."""
    least = costs.min(axis=0)
    table = costs == least
    short = np.min_scalar_type(-len(table))  # argmax would take ten times as long
    first = np.einsum("i,ij->j", np.arange(len(table), dtype=short), table.view(np.int8)).astype(np.int32)
    tied = (table.sum(axis=0, dtype=short) != 1).nonzero()[0]
    first[tied] = table[:, tied].argmax(axis=0)
    return [least, first]


def least_two(costs: Array) -> tuple[Array, Array, Array]:
    """Find the first least of each column of (k, b) costs, its cost, and the next cost; overwrites them."""
    least, first = first_least(costs)
    costs[first, np.arange(len(first))] = np.inf
    return first, least, costs.min(axis=0)
