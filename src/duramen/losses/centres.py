"""Losses of the distance to the nearest centre: f(theta, x) = h(t), t = min_j |x - c_j|, h increasing."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from duramen.arrays import Array, Rows, as_column, check_count, row_products
from duramen.losses.base import (
    Ball,
    BuiltInLoss,
    Explanation,
    ignore_overflow,
    lengths,
    require_finite,
    vc_of_unions,
)
from duramen.losses.nearest import nearest_squared, sum_by_centre
from duramen.parallel import rows_per_chunk, sum_over_chunks


class CentreLoss(BuiltInLoss):
    """A loss of the nearest centre, whose number is the ``cache`` of :meth:`values_and_cache`."""

    has_centres = True
    fitter = "mean"

    @property
    def n_centres(self) -> int:
        """The number of centres."""
        return 1

    def of_one_centre(self) -> CentreLoss:
        """Return this loss with a single centre."""
        return self

    def vc_dimension(self, n_columns: int) -> float:
        return vc_of_unions(n_columns + 1, self.n_centres)

    def anchor_rows(self, n_columns: int) -> int:
        return max(600, 10 * self.n_centres)

    @abstractmethod
    def parameter_shape(self, n_columns: int) -> tuple[int, ...]:
        """Return the shape of theta for rows of ``n_columns`` columns."""

    def reach(self, X: Any) -> Array:
        rows = self._rows(X)
        return np.ones(len(rows), dtype=rows.dtype)

    def outside(self, centres: Array) -> Array:
        """Return a mask (k, d) of the entries of centres that the loss does not accept."""
        return np.zeros(centres.shape, dtype=bool)

    def inside(self, centres: Array) -> Array:
        """Move centres on the edge of the loss's domain just inside."""
        return centres

    @abstractmethod
    def values_and_cache(self, theta: Any, X: Any, y: Any = None) -> tuple[Array, Array]:
        """Compute the values, and the numbers of the nearest centres."""

    @abstractmethod
    def pulls(self, block: Array, centres: Array, numbers: Array, dtype: Any) -> Array:
        """Compute the gradient of each row's loss in its nearest centre: (b, d), of a float type."""

    def check_solvable(self, X: Rows, y: Array | None, weights: Array, z: float) -> None:
        rows, k = self._rows(X), self.n_centres
        found = len(distinct_rows(rows, np.flatnonzero(weights > 0), k)) if k > 1 else k
        if found < k:
            raise ValueError(
                f"k={k} is above the number of distinct points of positive weight, {found}; "
                f"take k={found} or less"
            )

    def values(self, theta: Any, X: Any, y: Any = None) -> Array:
        return self.values_and_cache(theta, X)[0]

    def nearest(self, theta: Any, X: Any) -> Array:
        """Find the number of each row's nearest centre, the first of equally near ones: (n,)."""
        return self.values_and_cache(theta, X)[1]

    def predictions(self, theta: Array, X: Any) -> dict[str, Array]:
        cost, cluster = self.values_and_cache(theta, X)
        return {"cluster": cluster, "distance": cost}

    def gradients(self, theta: Any, X: Any, y: Any = None) -> Array:
        rows = self._rows(X)
        gradients = np.zeros((len(rows), *np.shape(theta)), dtype=rows.dtype)
        self.put_gradients(gradients.reshape(len(rows), np.size(theta)), theta, rows, y, None)
        return gradients

    def put_gradients(self, out: Array, theta: Any, X: Rows, y: Array | None, cache: Array | None) -> None:
        centres = self._centres(theta, X)
        numbers = self.nearest(theta, X) if cache is None else cache
        with ignore_overflow():
            pulls = self.pulls(X, centres, numbers, np.float64)  # as their sum is taken
            out.reshape(len(pulls), *centres.shape)[np.arange(len(pulls)), numbers] = pulls

    def gradient_sum(
        self, theta: Any, X: Any, y: Any = None, weights: Any = None, *, cache: Array | None = None
    ) -> Array:
        rows = self._rows(X)
        centres = self._centres(theta, rows)
        numbers = self.nearest(theta, rows) if cache is None else cache
        factors = np.ones(len(rows)) if weights is None else as_column(weights, len(rows), "weights")

        def work(chunk: slice) -> tuple[Array]:
            with ignore_overflow():
                pulls = self.pulls(rows[chunk], centres, numbers[chunk], np.float64)
                pulls[factors[chunk] == 0] = 0.0
                return (sum_by_centre(pulls, numbers[chunk], factors[chunk], len(centres)),)

        (total,) = sum_over_chunks(work, len(rows), rows_per_chunk(24 * rows.shape[1]))
        return np.asarray(total).reshape(np.shape(theta))

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
    """A loss of the nearest of k centres: theta is (k, d)."""

    k: int

    def __post_init__(self) -> None:
        object.__setattr__(self, "k", check_count("k", self.k))

    @property
    def n_centres(self) -> int:
        return self.k

    def of_one_centre(self) -> KCentresLoss:
        return replace(self, k=1)

    def parameter_shape(self, n_columns: int) -> tuple[int, ...]:
        return (self.k, n_columns)


class DistanceLoss(CentreLoss):
    """A loss that depends on the distance to the nearest centre, and grows with it.

    A subclass defines h and h'(t) / t as functions of the squared distance,
    and the shape of theta.
    """

    fitter = "distance"

    @abstractmethod
    def height(self, squared: Array) -> Array:
        """Compute h(t) from t^2."""

    @abstractmethod
    def pull(self, squared: Array) -> Array:
        """Compute h'(t) / t from t^2: the gradient in the nearest centre c is this times c - x."""

    def values(self, theta: Any, X: Any, y: Any = None) -> Array:
        return self.height(self.assign(theta, X, numbered=False)[0])

    def values_and_cache(self, theta: Any, X: Any, y: Any = None) -> tuple[Array, Array]:
        squared, numbers = self.assign(theta, X)
        return self.height(squared), numbers

    def pulls(self, block: Array, centres: Array, numbers: Array, dtype: Any) -> Array:
        gaps = (centres[numbers] - block).astype(dtype, copy=False)
        gaps *= self.pull(row_products(gaps, gaps))[:, None]
        return gaps

    def predictions(self, theta: Array, X: Any) -> dict[str, Array]:
        squared, cluster = self.assign(theta, X)
        return {"cluster": cluster, "distance": np.sqrt(squared)}

    def explain(self, theta: Array, X: Array, y: Array | None, mean: Array) -> Explanation:
        nearest = theta.reshape(-1, X.shape[1])[self.nearest(theta, X)]
        return Explanation("distance", nearest, np.square(X - nearest), np.zeros(len(X)))

    def deviation(self, ball: Ball, X: Any, y: Any = None) -> Array:
        rows = self._rows(X)
        limits = np.finfo(rows.dtype)
        # enlarged for the rounding of a centre (a few units of its size), of a distance (relative), and of
        # squares that vanish, so that it bounds computed values too
        slack = (rows.shape[1] + 8) * limits.eps
        size = lengths(ball.theta).max() + ball.radius
        reach = (ball.radius + 8 * limits.eps * size) * (1 + slack) + (rows.shape[1] * limits.tiny) ** 0.5
        with ignore_overflow():
            step = rows.dtype.type(reach)
            t = np.sqrt(self.assign(ball.theta, rows, numbered=False)[0]) * rows.dtype.type(1 + slack)
            here = self.height(t * t)
            up = self.height((t + step) ** 2)
            down = self.height(np.maximum(t - step, 0) ** 2)
            change = np.maximum(up - here, here - down) + rows.dtype.type(slack) * up
        return np.where(np.isfinite(change), change, np.inf).astype(rows.dtype, copy=False)

    def assign(self, theta: Any, X: Any, *, numbered: bool = True) -> tuple[Array, Array]:
        """Find the squared distance to each row's nearest centre, and its number if ``numbered``."""
        rows = self._rows(X)
        squared, numbers = nearest_squared(rows, self._centres(theta, rows), numbered=numbered)
        return require_finite(squared, rows), numbers


@dataclass(frozen=True)
class _KDistanceLoss(KCentresLoss, DistanceLoss):
    """A loss of the distance to the nearest of k centres, convex if there is one."""

    @property
    def convex(self) -> bool:
        return self.k == 1


@dataclass(frozen=True)
class KMeansLoss(_KDistanceLoss):
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
class KMedianLoss(_KDistanceLoss):
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
        with np.errstate(divide="ignore"):
            return np.where(squared > 0, 1 / np.sqrt(squared), 0)


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
