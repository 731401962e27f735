"""Classification with two classes: losses of the margin s = y m.

Labels are -1 and +1, or 0 and 1; internally always -1 and +1.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from scipy.special import expit

from duramen.losses.linear import LinearLoss
from duramen.rows import Array

__all__ = ["LogisticLoss", "SmoothHingeLoss"]


@dataclass(frozen=True)
class _MarginLoss(LinearLoss):
    """What the losses of a margin share: their labels."""

    classifies: ClassVar[bool] = True

    def check_labels(self, y: Array) -> None:
        whole = y.dtype.kind in "biu"
        if not y.size:
            return
        least, most = y.min(), y.max()
        if not (least >= -1 and most <= 1 and (whole or np.isin(y, (-1, 0, 1)).all())):
            row = np.flatnonzero(~np.isin(y, (-1, 0, 1)))[0]
            raise ValueError(
                f"{type(self).__name__} takes labels -1 and +1, or 0 and 1; row {row} has {y[row]}. "
                "Encode the classes first, for instance y == positive_class"
            )
        if least == -1 and not y.all():
            raise ValueError(
                f"{type(self).__name__} takes labels -1 and +1, or 0 and 1, but not both; "
                f"row {np.flatnonzero(y == 0)[0]} has 0 and row {np.flatnonzero(y == -1)[0]} has -1"
            )

    def encode_labels(self, y: Array, dtype: Any) -> Array:
        signs = y.astype(dtype)
        signs -= 0.5  # 1 stays above zero, 0 and -1 fall below
        return np.copysign(1, signs, out=signs)


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

    max_slope: ClassVar[float | None] = 1.0
    max_curvature: ClassVar[float | None] = 0.25
    max_third: ClassVar[float | None] = 1 / (6 * 3**0.5)

    def pointwise(self, m: Array, y: Array) -> Array:
        s = y * m
        return np.log1p(np.exp(-np.abs(s))) + np.maximum(-s, 0)

    def slope(self, m: Array, y: Array) -> Array:
        return -y * expit(-y * m)

    def pointwise_and_slope(self, m: Array, y: Array) -> tuple[Array, Array]:
        s = y * m
        small = np.exp(-np.abs(s))
        # -y / (1 + exp(s)), by the exponential that cannot overflow
        slope = np.where(s > 0, small, 1)
        slope /= 1 + small
        slope *= -y
        return np.log1p(small) + np.maximum(-s, 0), slope

    def curvature(self, m: Array, y: Array) -> Array:
        return expit(m) * expit(-m)

    def slope_and_curvature(self, m: Array, y: Array) -> tuple[Array, Array]:
        s = y * m
        small = np.exp(-np.abs(s))
        both = 1 + small
        slope = np.where(s > 0, small, 1)
        slope /= both
        slope *= -y
        small /= both
        small /= both
        return slope, small


@dataclass(frozen=True)
class SmoothHingeLoss(_MarginLoss):
    """Support vectors without the kink: 0 for s >= 1, (1 - s)^2 / 2 down to s = 0, then 1/2 - s.

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

    max_slope: ClassVar[float | None] = 1.0
    max_curvature: ClassVar[float | None] = 1.0

    def pointwise(self, m: Array, y: Array) -> Array:
        short = 1 - y * m
        bent = np.clip(short, 0, 1)
        return bent * bent / 2 + np.maximum(short - 1, 0)

    def slope(self, m: Array, y: Array) -> Array:
        return -y * np.clip(1 - y * m, 0, 1)

    def curvature(self, m: Array, y: Array) -> Array:
        s = y * m
        return ((s > 0) & (s < 1)).astype(m.dtype)
