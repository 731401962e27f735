"""Classification with any number of classes: the softmax of one linear predictor per class."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import softmax

from duramen.arrays import Array, check_count
from duramen.losses.base import Explanation, Loss
from duramen.losses.linear import LinearLoss, explanation, refuse_rows, softplus


@dataclass(frozen=True)
class SoftmaxLoss(LinearLoss):
    """Multinomial logistic regression: f(theta, x) = log(sum_j exp m_j) - m_y.

    theta is (n_classes, d), one predictor m_j per class, with the intercepts as
    a last column; labels are 0 to n_classes - 1. In a ball, where no predictor's
    parameters move by more than the radius, each f is ``2 |x|``-Lipschitz and
    ``|x|^2``-smooth; with an intercept, x stands for (x, 1).

    Parameters
    ----------
    n_classes : int
        Two or more.
    fit_intercept : bool
        Whether theta has intercepts as its last column.

    Examples
    --------
    >>> import duramen as dm
    >>> theta = [[0.0, 0.0], [1.0, 0.0], [2.0, 0.0]]
    >>> dm.SoftmaxLoss(3).values(theta, [[0.0], [1000.0], [1000.0]], [0, 2, 0])
    array([1.09861229e+00, 0.00000000e+00, 2.00000000e+03])
    """

    max_slope = 2.0
    max_curvature = 1.0
    has_classes = is_likelihood = True
    anchor_rows, hessian_norms, neighbourhood = Loss.anchor_rows, Loss.hessian_norms, Loss.neighbourhood

    n_classes: int

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "n_classes", check_count("n_classes", self.n_classes, least=2))

    def parameter_shape(self, n_columns: int) -> tuple[int, ...]:
        return (self.n_classes, n_columns + self.fit_intercept)

    def default_sampler(self, has_radius: bool, few: bool) -> str:
        return "leverage"

    def _predict(self, m: Array) -> dict[str, Array]:
        return {"class": m.argmax(axis=1), "probability": softmax(m, axis=1)}

    def explain(self, theta: Array, X: Array, y: Any, mean: Array) -> Explanation:
        """Compare the label's predictor with the strongest of the others."""
        labels, predictors = y.astype(np.intp), self._predictors(theta, X)
        predictors[np.arange(len(X)), labels] = -np.inf
        return explanation("classes", theta[predictors.argmax(axis=1)] - theta[labels], X, mean)

    def check_labels(self, y: Array) -> None:
        text = (
            f"{self!r} takes labels 0 to {self.n_classes - 1}; {{row}} has {{label}}. Encode them first, for "
            "instance by np.unique(y, return_inverse=True)[1]"
        )
        refuse_rows((y < 0) | (y >= self.n_classes) | (y % 1 > 0), y, text)

    def encode_labels(self, y: Array, dtype: Any) -> Array:
        return y.astype(np.intp)

    def pointwise(self, m: Array, y: Array) -> Array:
        return softplus(_shortfalls(m, y))

    def slope(self, m: Array, y: Array) -> Array:
        """Compute the derivative in each predictor: the class's probability, less 1 for the label's."""
        slopes: Array = softmax(m, axis=1)
        slopes[np.arange(len(m)), y] -= 1
        return slopes

    def curvature(self, m: Array, y: Array) -> Array:
        """Compute the Hessian in the predictors: (n, n_classes, n_classes)."""
        shares = np.ascontiguousarray(softmax(m, axis=1).T)
        same = np.eye(self.n_classes, dtype=m.dtype)[..., None]
        return (shares[:, None] * (same - shares)).T

    def _change(self, m: Array, y: Array, reach: Array) -> Array:
        """Compute the supremum, by convexity where the label's predictor falls, and all others rise."""
        short = _shortfalls(m, y)
        here, highest = softplus(short), softplus(short + 2 * reach)
        bound = (highest - here) + 16 * self.n_classes * np.finfo(m.dtype).eps * (1 + highest)
        return np.fmin(bound, np.inf)  # not NaN: there is no bound where predictors overflow


def _shortfalls(m: Array, labels: Array) -> Array:
    """Compute log(sum over other classes of exp(m_j - m_y)): by how much the label's class is beaten."""
    own = np.arange(len(m)), labels
    gaps = m - m[own][:, None]
    gaps[own] = -np.inf
    top = gaps.max(axis=1)
    return top + np.log(np.exp(gaps - top[:, None]).sum(axis=1))
