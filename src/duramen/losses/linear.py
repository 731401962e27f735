"""Losses of a linear predictor: f(theta, x) = psi(m, y) with m = <w, x> + b.

theta is w, with the intercept b last unless ``fit_intercept=False``. A ball of radius l
around theta moves m through exactly the interval of half-width l |(x, 1)|. psi is convex, so
the largest change of the loss is reached at an end of that interval, upwards: ``deviation``
is the supremum itself, never more than any of the paper's three bounds (docs/losses.md).
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from scipy import sparse
from scipy.special import expit

from duramen.arrays import (
    Array,
    Rows,
    as_column,
    check_flag,
    dense_block,
    is_number,
    refuse_nonfinite,
    row_norms,
    row_products,
    scratch_rows,
    to_dense,
)
from duramen.errors import RowError, rows_from
from duramen.losses.base import (
    Ball,
    BuiltInLoss,
    Explanation,
    Neighbourhood,
    ignore_overflow,
    require_finite,
    vc_of_unions,
)
from duramen.parallel import join_chunks, rows_per_chunk

_EXP_COEFFICIENTS = [1 / math.factorial(power) for power in range(20, 1, -1)]  # the rest is below 1e-17


@dataclass(frozen=True)
class LinearLoss(BuiltInLoss):
    """A convex loss psi of a label and a linear predictor of the row, or one per class.

    A subclass defines ``pointwise``, ``slope`` and ``curvature`` on chunks (one
    value per row, finite, of one float type), the largest values of the
    derivatives where they are bounded, and which labels it takes.

    Parameters
    ----------
    fit_intercept : bool
        Whether theta has an intercept as its last entry.
    """

    fit_intercept: bool = field(default=True, kw_only=True)

    of_residual: ClassVar[bool] = False
    """Whether f is a function of the residual m - y."""
    units_off: ClassVar[float] = 8.0
    """The error bound of ``pointwise``, in units in the last place."""
    needs_labels = has_predictors = convex = True
    fitter = "newton"

    def __post_init__(self) -> None:
        check_flag("fit_intercept", self.fit_intercept)

    @abstractmethod
    def pointwise(self, m: Array, y: Array) -> Array:
        """Compute psi(m, y)."""

    @abstractmethod
    def slope(self, m: Array, y: Array) -> Array:
        """Compute the derivative of psi in m."""

    @abstractmethod
    def curvature(self, m: Array, y: Array) -> Array:
        """Compute the second derivative of psi in m; at a kink of psi', one of its sides."""

    def encode_labels(self, y: Array, dtype: Any) -> Array:
        """Convert checked labels to the form in which the loss is computed."""
        return y.astype(dtype, copy=False)

    def check_solvable(self, X: Rows, y: Any, weights: Array, z: float) -> None:
        y = self._labels(y, X)
        if not self.has_classes:
            return
        numbers = self.classes_of(y)
        found = np.bincount(numbers, weights, self.n_classes)
        if not found.all():
            raise ValueError(
                f"the points of positive weight have the labels {np.unique(y[weights > 0]).tolist()}; "
                f"{self!r} needs {self.n_classes} classes"
            )
        if self.classifies and z >= found.min():
            rare = y[numbers == found.argmin()][0]
            raise ValueError(
                f"n_outliers={z:g} could set aside the whole class {rare}, of weight {found.min():g}; "
                "take fewer outliers than the smaller class weighs"
            )

    def values(self, theta: Any, X: Any, y: Any = None) -> Array:
        return self._over_rows(theta, X, y, self.pointwise)[0]

    def slopes(self, theta: Any, X: Any, y: Any = None) -> Array:
        """Compute psi'(m_i, y_i): (n,). The gradient is this times the row (x_i, 1)."""
        return _finite(self._over_rows(theta, X, y, self.slope)[0])

    _gradient_factors = slopes

    def put_gradients(self, out: Array, theta: Any, X: Rows, y: Any, cache: Any) -> None:
        slopes = self.slopes(theta, X, y) if cache is None else cache
        rows, d = to_dense(X), X.shape[1]
        gradients = out.reshape(*slopes.shape, np.shape(theta)[-1])
        np.einsum("i...,ij->i...j", slopes, rows, out=gradients[..., :d], dtype=out.dtype)
        gradients[..., d : d + self.fit_intercept] = slopes[..., None]

    def _sum_gradients(self, theta: Array, rows: Rows, weights: Array, cache: Any) -> Array:
        slopes = (cache.T * weights.astype(np.float64, copy=False)).T
        if sparse.issparse(rows) or slopes.ndim == 2:
            total = (rows.T @ slopes).T
        else:  # BLAS takes twice as long, and longer still on two threads (docs/speed.md)
            total = np.einsum("i,ij->j", slopes, np.require(rows, np.float64, "C"))
        if not self.fit_intercept:
            return total
        return np.concatenate([total, slopes.sum(axis=0)[..., None]], axis=-1)

    def deviation(self, ball: Ball, X: Any, y: Any = None) -> Array:
        rows = self._rows(X)
        reach = change_of_predictors(ball, rows, self.reach(rows))
        return self._over_rows(ball.theta, rows, y, reach=reach)[0]

    def _predictors(self, theta: Array, X: Any) -> Array:
        """Compute the predictors of rows, in float64."""
        columns, d = np.transpose(theta), X.shape[1]
        return X @ columns[:d] + columns[d:].sum(axis=0)

    def _over_rows(
        self, theta: Any, X: Any, y: Any, *functions: Callable[..., Array], reach: Array | None = None
    ) -> list[Array]:
        """Evaluate each function of (m, y) on all rows; with ``reach``, the largest change for it follows."""
        rows = self._rows(X)
        parameters = self._parameters(theta, rows)
        labels = self._labels(y, rows)
        limit, beside = np.finfo(rows.dtype).max / 4, self.beside(rows)

        def work(chunk: slice) -> list[Array]:
            encoded = self.encode_labels(labels[chunk], rows.dtype)
            with ignore_overflow():
                known = None if beside is None else beside[chunk]
                m = self._chunk_predictors(dense_block(rows, chunk), parameters, known)
                found = [function(m, encoded) for function in functions]
                if reach is not None:
                    found.append(self._change(m, encoded, reach[chunk]))
                if not np.abs(m).max(initial=0.0) < limit:  # as on every row with NaN or infinity
                    with rows_from(chunk.start):
                        refuse_nonfinite(rows[chunk])
                        text = f"the predictor of {{row}} overflows {rows.dtype}; scale the columns"
                        refuse_rows(np.isnan(found[0]), encoded, text)
                return found

        few = rows_per_chunk(32 * parameters.size // rows.shape[1])
        return join_chunks(work, rows.shape[0], min(few, scratch_rows(rows)))

    def beside(self, X: Any) -> Array | None:
        """Return what predictors depend on beside products with theta, one entry per row, if it is known."""
        return None

    def _chunk_predictors(self, block: Rows, parameters: Array, beside: Array | None) -> Array:
        """Compute the predictors of a chunk, in its type: the same bits whichever other rows it has."""
        d = block.shape[1]
        m = linear_predictors(block, parameters[..., :d])
        m += parameters[..., d:].sum(axis=-1)
        return m

    def _labels(self, y: Any, rows: Rows) -> Array:
        if y is None:
            raise ValueError(f"{self!r} needs labels; pass y, one label per row")
        labels = as_column(y, rows.shape[0], "y")
        self.check_labels(labels)
        if labels.dtype.itemsize > rows.dtype.itemsize:
            text = "y has {label} in {row}, too large for the type of X; pass X as float64"
            refuse_rows(np.abs(labels) > np.finfo(rows.dtype).max, labels, text)
        return labels

    def reach(self, X: Any) -> Array:
        """Compute |(x, 1)|, or |x| without an intercept."""
        rows = self._rows(X)
        return np.hypot(require_finite(row_norms(rows), rows), int(self.fit_intercept), dtype=rows.dtype)

    def parameter_shape(self, n_columns: int) -> tuple[int, ...]:
        return (n_columns + self.fit_intercept,)

    def vc_dimension(self, n_columns: int) -> float | None:
        if self.of_residual:
            return vc_of_unions(n_columns + 1, 2)
        return vc_of_unions(n_columns + 2, 2) if self.classifies else None

    def default_sampler(self, has_radius: bool, few: bool) -> str:
        if self.classifies and not (few and has_radius):
            return "leverage"
        return "sensitivity" if has_radius else "layered"

    def anchor_rows(self, n_columns: int) -> int:
        # with fewer than 50 a column, noise on a fifth of the rows draws the fit to itself; in a few hundred,
        # some theta explains the outliers well (docs/solving.md)
        return max(1000, min(3000, 50 * n_columns))

    def predictions(self, theta: Array, X: Any) -> dict[str, Array]:
        return self._predict(self._predictors(theta, X))

    def _predict(self, m: Array) -> dict[str, Array]:
        """Convert predictors to predictions."""
        return {"value": m}

    def explain(self, theta: Array, X: Array, y: Any, mean: Array) -> Explanation:
        """Follow the predictor in the direction in which the loss grows."""
        if self.classifies:
            return explanation("margin", -self.encode_labels(y, np.float64)[:, None] * theta, X, mean)
        upward = np.where(self.slopes(theta, X, y) < 0, -1.0, 1.0)[:, None]
        if not self.of_residual:
            return explanation("predictor", upward * theta, X, mean)
        leads = upward * np.insert(theta, X.shape[1], -1.0)
        return explanation("residual", leads, np.column_stack([X, y]), mean)

    def values_and_cache(self, theta: Any, X: Any, y: Any = None) -> tuple[Array, Array]:
        values, slopes = self._over_rows(theta, X, y, self.pointwise, self.slope)
        return values, _finite(slopes)

    def curvatures(self, theta: Any, X: Any, y: Any = None) -> Array:
        """Compute psi''(m_i, y_i): (n,). The Hessian is this times the square of the row (x_i, 1)."""
        return self._over_rows(theta, X, y, self.curvature)[0]

    def hessian_norms(self, theta: Any, X: Any, y: Any = None) -> Array:
        with ignore_overflow():
            return self.curvatures(theta, X, y) * self.reach(X) ** 2

    def neighbourhood(self, ball: Ball, X: Any, y: Any = None) -> Neighbourhood:
        """Compute what bounds each f in a ball by one product with the rows, and without (n, p) gradients."""
        rows = self._rows(X)
        norms, radius = self.reach(rows), np.float64(ball.radius)
        reach = change_of_predictors(ball, rows, norms)
        found = [norms, *self._over_rows(ball.theta, rows, y, self.slope, self.curvature, reach=reach)]
        norms, slopes, curvatures, deviation = (part.astype(np.float64, copy=False) for part in found)
        slopes, constants = _finite(slopes), {**self._constants_by(norms), "deviation": deviation}
        with ignore_overflow():
            if "hessian" in constants:
                constants["hessian"] = curvatures * norms**2 + constants["hessian"] * (radius / 3)
            steep = np.abs(slopes) * norms
        return Neighbourhood(
            radius, constants, steep, lambda gradient: slopes * self._predictors(gradient, rows)
        )

    def _change(self, m: Array, y: Array, reach: Array) -> Array:
        """Bound how far psi, as computed, can be from psi(m) while each predictor moves by ``reach``."""
        limits = np.finfo(m.dtype)
        here = self.pointwise(m, y)
        highest = np.maximum(self.pointwise(m - reach, y), self.pointwise(m + reach, y))
        bound = (highest - here) + (self.units_off * limits.eps * (highest + here) + limits.tiny)
        return np.fmin(bound, np.inf)  # not NaN: there is no bound where the loss itself overflows


def explanation(kind: str, leads: Array, values: Array, mean: Array) -> Explanation:
    """Explain losses that are large where <leads, (values, 1)> is."""
    d = values.shape[1]
    usual = mean[:d]
    rest = leads[:, :d] @ usual + leads[:, d:].sum(axis=1)
    return Explanation(kind, np.broadcast_to(usual, values.shape), leads[:, :d] * (values - usual), rest)


def linear_predictors(block: Rows, weights: Array) -> Array:
    """Compute the products of rows and weights, class by class, so that they do not depend on positions."""
    if sparse.issparse(block):
        return block @ weights.T
    if weights.ndim == 1:
        return row_products(block, weights)
    return np.stack([row_products(block, one) for one in weights], axis=1)


def change_of_predictors(ball: Ball, rows: Rows, norms: Any) -> Array:
    """Bound how far predictors can move in a ball, rounding included."""
    unit = np.finfo(rows.dtype).eps
    rounding = (rows.shape[1] + 8) * unit * ball._size
    with ignore_overflow():
        return norms * rows.dtype.type(ball.radius * (1 + 8 * unit) + 2 * rounding)


def _finite(slopes: Array) -> Array:
    """Replace infinity by the largest number, in place: its product with zero is zero."""
    largest = np.finfo(slopes.dtype).max
    return np.clip(slopes, -largest, largest, out=slopes)


def refuse_rows(wrong: Array, y: Array, text: str) -> None:
    """Raise a RowError that names the first wrong row, and its label, if there is one."""
    if wrong.any():
        row = int(np.argwhere(wrong)[0][0])
        raise RowError(text, row, label=y[row])


class _MarginLoss(LinearLoss):
    """A loss of the margin y m, with two classes."""

    classifies = has_classes = True
    n_classes = 2

    def check_labels(self, y: Array) -> None:
        takes = f"{type(self).__name__} takes labels -1 and +1, or 0 and 1"
        zero, negative = y == 0, y == -1
        wrong = "; {row} has {label}. Encode the classes first, for instance y == positive_class"
        refuse_rows(~(zero | negative | (y == 1)), y, takes + wrong)
        if zero.any() and negative.any():
            text = takes + ", but not both; {earlier} has 0 and {row} has -1"
            raise RowError(text, int(negative.argmax()), earlier=int(zero.argmax()))

    def encode_labels(self, y: Array, dtype: Any) -> Array:
        return np.copysign(1, y.astype(dtype) - 0.5)  # 0 counts as -1

    def vc_dimension(self, n_columns: int) -> float:
        return float(n_columns + self.fit_intercept + 1)

    def _predict(self, m: Array) -> dict[str, Array]:
        return {"class": (m > 0).astype(np.intp), "probability": np.stack([expit(-m), expit(m)], axis=1)}


@dataclass(frozen=True)
class LogisticLoss(_MarginLoss):
    """Logistic regression: f(theta, x) = log(1 + exp(-y m)).

    Each f is ``|x|``-Lipschitz and ``|x|^2/4``-smooth (paper, appendix A), and its
    Hessian ``|x|^3 / (6 sqrt 3)``-Lipschitz; with an intercept, x stands for (x, 1).

    Examples
    --------
    >>> import duramen as dm
    >>> dm.LogisticLoss().values([1.0, 0.0], [[0.0], [1000.0], [-1000.0]], [1, 1, 1])
    array([6.93147181e-01, 0.00000000e+00, 1.00000000e+03])
    """

    is_likelihood = True
    max_slope = 1.0
    max_curvature = 0.25
    max_third = 1 / (6 * 3**0.5)

    def pointwise(self, m: Array, y: Array) -> Array:
        return softplus(-y * m)

    def slope(self, m: Array, y: Array) -> Array:
        return -y / (1 + np.exp(y * m))

    def curvature(self, m: Array, y: Array) -> Array:
        small = np.exp(-np.abs(m))
        return small / (1 + small) ** 2


class ClippedLoss(LinearLoss):
    """A function of the residual m - y whose slope is that over width, clipped: a parabola, then lines."""

    limits: tuple[float, float]
    """The least and the largest slope."""
    width: float = 1.0
    of_residual = True
    max_curvature = 1.0

    def pointwise(self, m: Array, y: Array) -> Array:
        r, pull = m - y, self.slope(m, y)
        return pull * (r - pull * (self.width / 2))

    def slope(self, m: Array, y: Array) -> Array:
        return np.clip((m - y) / self.width, *self.limits)

    def curvature(self, m: Array, y: Array) -> Array:
        return ((m - y) / self.width == self.slope(m, y)).astype(m.dtype) / self.width


def softplus(x: Array) -> Array:
    """Compute log(1 + exp(x)), also where exp(x) overflows."""
    return np.log1p(np.exp(-np.abs(x))) + np.maximum(x, 0)


@dataclass(frozen=True)
class SmoothHingeLoss(_MarginLoss):
    """Support vector machine with a smooth hinge: 0 for s >= 1, (1 - s)^2 / 2 to s = 0, then 1/2 - s.

    s = y m is the margin. Each f is ``|x|``-Lipschitz and ``|x|^2``-smooth; with an
    intercept, x stands for (x, 1).

    Examples
    --------
    >>> import duramen as dm
    >>> dm.SmoothHingeLoss().values([1.0, 0.0], [[2.0], [0.5], [-1.0]], [1, 1, 1])
    array([0.   , 0.125, 1.5  ])
    """

    max_slope = max_curvature = 1.0

    def _predict(self, m: Array) -> dict[str, Array]:
        return {"class": (m > 0).astype(np.intp), "score": m}

    def pointwise(self, m: Array, y: Array) -> Array:
        r = y * m - 1
        pull = np.clip(r, -1, 0)
        return pull * (r - pull / 2)

    def slope(self, m: Array, y: Array) -> Array:
        return y * np.clip(y * m - 1, -1, 0)

    def curvature(self, m: Array, y: Array) -> Array:
        s = y * m
        return ((s > 0) & (s < 1)).astype(m.dtype)


@dataclass(frozen=True)
class SquaredLoss(LinearLoss):
    """Least squares: f(theta, x) = (m - y)^2 / 2, the limit of HuberLoss for a large delta.

    Each f is ``|x|^2``-smooth, and not Lipschitz; with an intercept, x stands for (x, 1).

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
class HuberLoss(ClippedLoss):
    """Huber's loss of the residual r = m - y: ``r^2 / 2`` up to delta, then ``delta (|r| - delta / 2)``.

    Each f is ``delta |x|``-Lipschitz and ``|x|^2``-smooth; with an intercept, x stands for (x, 1).

    Parameters
    ----------
    delta : float
        Where the parabola becomes a line, in the units of y.

    Examples
    --------
    >>> import duramen as dm
    >>> dm.HuberLoss(1.0).values([0.0, 0.0], [[1.0], [1.0]], [0.5, 10.0])
    array([0.125, 9.5  ])
    """

    delta: float = 1.35

    def __post_init__(self) -> None:
        super().__post_init__()
        if not (is_number(self.delta) and 0 < self.delta < math.inf):
            raise ValueError(f"delta={self.delta!r} must be a positive finite number")

    @property
    def max_slope(self) -> float:  # type: ignore[override]
        """The largest slope: delta."""
        return float(self.delta)

    @property
    def limits(self) -> tuple[float, float]:  # type: ignore[override]
        """The least and the largest slope."""
        return -self.delta, self.delta


@dataclass(frozen=True)
class QuantileLoss(LinearLoss):
    """The pinball loss of the residual r = y - m: ``max(q r, (q - 1) r)``, whose minimum is the q-quantile.

    Each f is ``max(q, 1 - q) |x|``-Lipschitz, and has a kink at r = 0, where the slope between those of its
    sides counts; with an intercept, x stands for (x, 1).

    Parameters
    ----------
    quantile : float
        q, above 0 and below 1: the share of labels that should lie below the predictor.

    Examples
    --------
    >>> import duramen as dm
    >>> dm.QuantileLoss(0.9).values([0.0, 0.0], [[1.0], [1.0]], [10.0, -10.0])
    array([9., 1.])
    """

    quantile: float = 0.5
    of_residual = True
    fitter = "smoothed"

    def __post_init__(self) -> None:
        super().__post_init__()
        if not (is_number(self.quantile) and 0 < self.quantile < 1):
            raise ValueError(f"quantile={self.quantile!r} must be a number above 0 and below 1, such as 0.9")

    @property
    def max_slope(self) -> float:  # type: ignore[override]
        """The largest slope, upwards or downwards."""
        return float(max(self.quantile, 1 - self.quantile))

    def pointwise(self, m: Array, y: Array) -> Array:
        return self.slope(m, y) * (m - y)

    def slope(self, m: Array, y: Array) -> Array:
        return np.sign(m - y) / 2 + (0.5 - self.quantile)

    def curvature(self, m: Array, y: Array) -> Array:
        return np.zeros_like(m)

    def smoothed(self, mean: float, share: float) -> LinearLoss:
        """Return a smooth loss: a parabola in place of the kink, to about a share of the mean residual."""
        q = self.quantile
        width = share * mean / (2 * q * (1 - q))
        return _SmoothedQuantileLoss((-q, 1 - q), width, fit_intercept=self.fit_intercept)


@dataclass(frozen=True)
class _SmoothedQuantileLoss(ClippedLoss):
    """The Moreau envelope of a pinball loss: a parabola for r from (q - 1) w to q w, then lines."""

    limits: tuple[float, float]
    width: float

    @property
    def max_curvature(self) -> float:  # type: ignore[override]
        return 1 / self.width


@dataclass(frozen=True)
class PoissonLoss(LinearLoss):
    """Counts with mean exp(m): half the Poisson deviance, f = y log(y / exp m) - y + exp m >= 0.

    It grows exponentially, so there are no global constants; inside a ball the
    deviation is finite and exact. A predictor so large that exp m overflows
    gives infinity.

    Examples
    --------
    >>> import duramen as dm
    >>> dm.PoissonLoss().values([1.0, 0.0], [[0.0], [0.0], [700.0]], [0, 1, 5])
    array([1.00000000e+000, 0.00000000e+000, 1.01423205e+304])
    """

    units_off = 32.0  # just beyond |u| = 1 the formula still loses a factor of four

    def _predict(self, m: Array) -> dict[str, Array]:
        return {"value": np.exp(m)}

    def check_labels(self, y: Array) -> None:
        refuse_rows(y < 0, y, "PoissonLoss takes labels of 0 or more, such as counts; {row} has {label}")

    def pointwise(self, m: Array, y: Array) -> Array:
        return entropy_of_log(y, np.exp(m), m - np.log(np.maximum(y, np.finfo(y.dtype).tiny)))

    def slope(self, m: Array, y: Array) -> Array:
        return np.exp(m) - y

    def curvature(self, m: Array, y: Array) -> Array:
        return np.exp(m)


def entropy_of_log(x: Array, c: Array, u: Array) -> Array:
    """Compute x log(x / c) - x + c for x >= 0 and c > 0, given u = log(c / x); any finite u where x = 0."""
    with ignore_overflow():
        values = c - x * (1 + u)
    near = np.flatnonzero(np.abs(u) < 1)  # where x (exp u - 1 - u) keeps more digits
    values.put(near, x.take(near) * exp_excess_near(u.take(near)))
    return values


def exp_excess_near(u: Array) -> Array:
    """Compute exp(u) - 1 - u for |u| <= 1 by its series, to a few units in the last place."""
    total = np.full_like(u, _EXP_COEFFICIENTS[0])
    for coefficient in _EXP_COEFFICIENTS[1:]:
        total *= u
        total += coefficient
    return total * u * u
