"""Losses of a linear predictor: two-class classification, regression and counts."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import expit

from duramen.arrays import Array, is_number
from duramen.errors import RowError
from duramen.losses.linear import LinearLoss
from duramen.losses.special import exp_excess_near


@dataclass(frozen=True)
class _MarginLoss(LinearLoss):
    """A loss of the margin y m, with two classes."""

    classifies = has_classes = True
    n_classes = 2

    def check_labels(self, y: Array) -> None:
        whole = y.dtype.kind in "biu"
        if not y.size:
            return
        least, most = y.min(), y.max()
        if not (least >= -1 and most <= 1 and (whole or np.isin(y, (-1, 0, 1)).all())):
            row = int(np.flatnonzero(~np.isin(y, (-1, 0, 1)))[0])
            raise RowError(
                "{loss} takes labels -1 and +1, or 0 and 1; {row} has {label}. "
                "Encode the classes first, for instance y == positive_class",
                row,
                loss=type(self).__name__,
                label=y[row],
            )
        if least == -1 and not y.all():
            raise RowError(
                "{loss} takes labels -1 and +1, or 0 and 1, but not both; {earlier} has 0 and {row} has -1",
                int(np.flatnonzero(y == -1)[0]),
                earlier=int(np.flatnonzero(y == 0)[0]),
                loss=type(self).__name__,
            )

    def encode_labels(self, y: Array, dtype: Any) -> Array:
        signs = y.astype(dtype)
        signs -= 0.5  # 1 stays above zero, 0 and -1 fall below
        return np.copysign(1, signs, out=signs)

    def vc_dimension(self, n_columns: int) -> float:
        return float(n_columns + self.fit_intercept + 1)

    def predictions(self, theta: Array, X: Any) -> dict[str, Array]:
        m = self._predictors(theta, X)
        return {"class": (m > 0).astype(np.intp), "probability": np.stack([expit(-m), expit(m)], axis=1)}


@dataclass(frozen=True)
class LogisticLoss(_MarginLoss):
    """Logistic regression: f(theta, x) = log(1 + exp(-y m)).

    Each f is ``|x|``-Lipschitz and ``|x|^2/4``-smooth (paper, appendix A), and its
    Hessian ``|x|^3 / (6 sqrt 3)``-Lipschitz; with an intercept, x stands for (x, 1).

    Parameters
    ----------
    fit_intercept : bool
        Whether theta has an intercept as its last entry.

    Examples
    --------
    >>> import duramen as dm
    >>> dm.LogisticLoss().values([1.0, 0.0], [[0.0], [1000.0], [-1000.0]], [1, 1, 1])
    array([6.93147181e-01, 0.00000000e+00, 1.00000000e+03])
    """

    max_slope = 1.0
    max_curvature = 0.25
    max_third = 1 / (6 * 3**0.5)

    def pointwise(self, m: Array, y: Array) -> Array:
        s = y * m
        return np.log1p(np.exp(-np.abs(s))) + np.maximum(-s, 0)

    def slope(self, m: Array, y: Array) -> Array:
        return -y * expit(-y * m)

    def pointwise_and_slope(self, m: Array, y: Array) -> tuple[Array, Array]:
        s = y * m
        small = np.exp(-np.abs(s))
        return np.log1p(small) + np.maximum(-s, 0), _logistic_slope(s, y, small, 1 + small)

    def curvature(self, m: Array, y: Array) -> Array:
        return expit(m) * expit(-m)

    def slope_and_curvature(self, m: Array, y: Array) -> tuple[Array, Array]:
        s = y * m
        small = np.exp(-np.abs(s))
        both = 1 + small
        slope = _logistic_slope(s, y, small, both)
        small /= both
        small /= both
        return slope, small


def _logistic_slope(s: Array, y: Array, small: Array, both: Array) -> Array:
    """Compute -y / (1 + exp(s)) from ``small`` = exp(-|s|), to avoid overflow, and ``both`` = 1 + small."""
    slope = np.where(s > 0, small, 1)
    slope /= both
    slope *= -y
    return slope


@dataclass(frozen=True)
class SmoothHingeLoss(_MarginLoss):
    """Support vector machine with a smooth hinge: 0 for s >= 1, (1 - s)^2 / 2 to s = 0, then 1/2 - s.

    s = y m is the margin. Each f is ``|x|``-Lipschitz and ``|x|^2``-smooth; with an
    intercept, x stands for (x, 1).

    Parameters
    ----------
    fit_intercept : bool
        Whether theta has an intercept as its last entry.

    Examples
    --------
    >>> import duramen as dm
    >>> dm.SmoothHingeLoss().values([1.0, 0.0], [[2.0], [0.5], [-1.0]], [1, 1, 1])
    array([0.   , 0.125, 1.5  ])
    """

    max_slope = 1.0
    max_curvature = 1.0

    def predictions(self, theta: Array, X: Any) -> dict[str, Array]:
        m = self._predictors(theta, X)  # no probabilities
        return {"class": (m > 0).astype(np.intp), "score": m}

    def pointwise(self, m: Array, y: Array) -> Array:
        short = 1 - y * m
        clipped = np.clip(short, 0, 1)
        return clipped * clipped / 2 + np.maximum(short - 1, 0)

    def slope(self, m: Array, y: Array) -> Array:
        return -y * np.clip(1 - y * m, 0, 1)

    def curvature(self, m: Array, y: Array) -> Array:
        s = y * m
        return ((s > 0) & (s < 1)).astype(m.dtype)


@dataclass(frozen=True)
class SquaredLoss(LinearLoss):
    """Least squares: f(theta, x) = (m - y)^2 / 2, the limit of HuberLoss for a large delta.

    Each f is ``|x|^2``-smooth, and not Lipschitz; with an intercept, x stands for (x, 1).

    Parameters
    ----------
    fit_intercept : bool
        Whether theta has an intercept as its last entry.

    Examples
    --------
    >>> import duramen as dm
    >>> dm.SquaredLoss().values([2.0, 1.0], [[1.0], [2.0]], [3.0, 9.0])
    array([0., 8.])
    """

    of_residual = True
    max_curvature = 1.0
    max_third = 0.0

    def pointwise(self, m: Array, y: Array) -> Array:
        return (m - y) ** 2 / 2

    def slope(self, m: Array, y: Array) -> Array:
        return m - y

    def curvature(self, m: Array, y: Array) -> Array:
        return np.ones_like(m)


@dataclass(frozen=True)
class HuberLoss(LinearLoss):
    """Huber's loss of the residual r = m - y: ``r^2 / 2`` up to delta, then ``delta (|r| - delta / 2)``.

    Each f is ``delta |x|``-Lipschitz and ``|x|^2``-smooth; with an intercept, x stands for (x, 1).

    Parameters
    ----------
    delta : float
        Where the parabola becomes a line, in the units of y.
    fit_intercept : bool
        Whether theta has an intercept as its last entry.

    Examples
    --------
    >>> import duramen as dm
    >>> dm.HuberLoss(1.0).values([0.0, 0.0], [[1.0], [1.0]], [0.5, 10.0])
    array([0.125, 9.5  ])
    """

    delta: float = 1.35
    of_residual = True
    max_curvature = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if not (is_number(self.delta) and 0 < self.delta < math.inf):
            raise ValueError(f"delta={self.delta!r} must be a positive finite number")

    @property
    def max_slope(self) -> float:  # type: ignore[override]
        """The largest slope: delta."""
        return float(self.delta)

    def pointwise(self, m: Array, y: Array) -> Array:
        far = np.abs(m - y)
        capped = np.minimum(far, self.delta)
        return capped * (far - capped / 2)

    def slope(self, m: Array, y: Array) -> Array:
        return np.clip(m - y, -self.delta, self.delta)

    def curvature(self, m: Array, y: Array) -> Array:
        return (np.abs(m - y) <= self.delta).astype(m.dtype)


@dataclass(frozen=True)
class PoissonLoss(LinearLoss):
    """Counts with mean exp(m): half the Poisson deviance, f = y log(y / exp m) - y + exp m >= 0.

    It grows exponentially, so there are no global constants; inside a ball the
    deviation is finite and exact. A predictor so large that exp m overflows
    gives infinity.

    Parameters
    ----------
    fit_intercept : bool
        Whether theta has an intercept as its last entry.

    Examples
    --------
    >>> import duramen as dm
    >>> dm.PoissonLoss().values([1.0, 0.0], [[0.0], [0.0], [700.0]], [0, 1, 5])
    array([1.00000000e+000, 0.00000000e+000, 1.01423205e+304])
    """

    units_off = 32.0  # just beyond |u| = 1 the formula still loses a factor of four

    def predictions(self, theta: Array, X: Any) -> dict[str, Array]:
        return {"value": np.exp(self._predictors(theta, X))}

    def check_labels(self, y: Array) -> None:
        negative = np.flatnonzero(y < 0)
        if negative.size:
            row = int(negative[0])
            text = "PoissonLoss takes labels of 0 or more, such as counts; {row} has {label}"
            raise RowError(text, row, label=y[row])

    def pointwise(self, m: Array, y: Array) -> Array:
        u, near = self._gap(m, y)
        values = np.exp(m) - y * (1 + u)
        values[near] = y[near] * exp_excess_near(u[near])
        return values

    def slope(self, m: Array, y: Array) -> Array:
        u, near = self._gap(m, y)
        slopes = np.exp(m) - y
        slopes[near] = y[near] * np.expm1(u[near])
        return slopes

    def curvature(self, m: Array, y: Array) -> Array:
        return np.exp(m)

    @staticmethod
    def _gap(m: Array, y: Array) -> tuple[Array, Array]:
        """Compute u = m - log y, and the rows near 0, where f = y (exp u - 1 - u) keeps more digits.

        Where y = 0 any finite u will do: it is multiplied by y.
        """
        u = m - np.log(np.maximum(y, np.finfo(y.dtype).tiny))
        return u, np.flatnonzero(np.abs(u) < 1)
