"""What a learning problem is: a non-negative loss f(theta, x), and how fast it can change.

The paper's problems are continuous and bounded: theta stays in a ball around an
anchor, and each loss has a constant alpha for at least one of three kinds of
continuity (Definition 1 and Remark 1; appendix on Definition 1). Each kind
bounds how far f(theta, x) can be from f(anchor, x) inside a ball of radius l:

=================  ============================================  ======================================
kind               what alpha bounds                             xi(l)
=================  ============================================  ======================================
Lipschitz          the loss:     ``lipschitz``                   alpha l
smooth             the gradient: ``smoothness``                  |g| l + alpha l^2 / 2
Lipschitz Hessian  the Hessian:  ``hessian_lipschitz``           |g| l + |H| l^2 / 2 + alpha l^3 / 6
=================  ============================================  ======================================

with g and H the gradient and the Hessian at the anchor, all norms dual to the
distance of :mod:`duramen.ball`. Constants are given for each point by itself:
the paper takes their maximum, which one outlier can make useless.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import numpy as np
from scipy import sparse

from duramen.arrays import Array, Rows, as_column, as_rows, refuse_nonfinite
from duramen.ball import Ball, dual_norms
from duramen.parallel import for_each_chunk, rows_per_chunk

__all__ = ["Loss", "MissingPropertyError", "check_k"]


def check_k(k: Any, name: str = "k", of: str = "centres") -> int:
    """Check a number of centres, or of something else.

    Examples
    --------
    >>> check_k(3)
    3
    """
    if isinstance(k, (bool, np.bool_)) or not isinstance(k, (int, np.integer)) or k < 1:
        raise ValueError(f"{name}={k!r} must be a whole number of {of}, 1 or more")
    return int(k)


class MissingPropertyError(TypeError):
    """Something was asked of a loss that it does not define; the message names what and how to add it."""


class Loss(ABC):
    """A learning problem: the cost f(theta, x) >= 0 of one point x under parameters theta.

    A loss of your own is a subclass with ``values``. Everything else is
    optional: what needs a method that you left out says so by its name.

    Shapes are said once, here: ``X`` is (n, d) rows, ``y`` is (n,) labels or
    None, ``theta`` is whatever the loss takes, and each method returns one
    entry a row. Results have the type of ``X``: float32 in, float32 out.

    Examples
    --------
    >>> import numpy as np
    >>> import duramen as dm
    >>> class CityBlock(dm.Loss):
    ...     def values(self, theta, X, y=None):
    ...         return np.abs(X - theta).sum(axis=1)
    ...     def lipschitz(self, X, y=None):
    ...         return np.full(len(X), X.shape[1] ** 0.5)
    >>> X = np.array([[0.0, 0.0], [3.0, 4.0]])
    >>> CityBlock().values(np.zeros(2), X)
    array([0., 7.])
    >>> CityBlock().deviation(dm.Ball(np.zeros(2), radius=2.0), X)
    array([2.82842712, 2.82842712])
    >>> CityBlock().gradients(np.zeros(2), X)
    Traceback (most recent call last):
    ...
    duramen.losses.base.MissingPropertyError: CityBlock has no gradients; define ...
    """

    @property
    def convex(self) -> bool:
        """Whether f(theta, x) is known to be convex in theta."""
        return False

    @abstractmethod
    def values(self, theta: Any, X: Any, y: Any = None) -> Array:
        """Compute f(theta, x_i): (n,), non-negative."""

    def values_and_cache(self, theta: Any, X: Any, y: Any = None) -> tuple[Array, Array | None]:
        """Compute the values, and beside them what makes ``gradient_sum`` cheap: its ``cache``.

        One number a row: the slope of a linear loss, the number of the nearest
        centre; None where there is nothing of the kind.
        """
        return self.values(theta, X, y), None

    def gradients(self, theta: Any, X: Any, y: Any = None) -> Array:
        """Compute the gradient of f(theta, x_i) in theta: ``(n, *theta.shape)``.

        Where the loss has a kink, one of its one-sided gradients. Sparse rows
        give a CSR array.
        """
        raise self._missing("gradients", "theta, X, y")

    def lipschitz(self, X: Any, y: Any = None) -> Array | None:
        """Bound the slope: (n,) with ``|f(a, x_i) - f(b, x_i)| <= alpha_i dist(a, b)``; or None."""
        return None

    def smoothness(self, X: Any, y: Any = None) -> Array | None:
        """Bound the gradient's change: (n,) with ``|grad(a) - grad(b)| <= alpha_i dist(a, b)``; or None."""
        return None

    def hessian_lipschitz(self, X: Any, y: Any = None) -> Array | None:
        """Bound the change of the Hessian: (n,) with ``|H(a) - H(b)| <= alpha_i dist(a, b)``; or None."""
        return None

    def hessian_norms(self, theta: Any, X: Any, y: Any = None) -> Array | None:
        """Compute the norm of the Hessian of f(theta, x_i) in theta: (n,); or None."""
        return None

    def parameter_shape(self, n_columns: int) -> tuple[int, ...] | None:
        """Give the shape of theta for rows of ``n_columns`` columns; None where any will do."""
        return None

    def deviation(self, ball: Ball, X: Any, y: Any = None) -> Array:
        """Bound ``|f(theta, x_i) - f(ball.theta, x_i)|`` over the ball: (n,), the paper's xi(l).

        The best, point by point, of the kinds of continuity that the loss has.
        Built-in losses know better: the supremum itself, or nearly, enlarged by
        what rounding can do, so that it bounds computed values. For a loss of
        your own it is as good as its constants; how it rounds is not known here.

        Raises
        ------
        MissingPropertyError
            If the loss has no constant of any kind.
        """
        rows = as_rows(X, check_values=False)
        labels = None if y is None else as_column(y, rows.shape[0], "y")
        bounds = np.full(rows.shape[0], np.inf)

        def work(chunk: slice) -> None:
            part = None if labels is None else labels[chunk]
            for bound in self._continuity_bounds(ball, rows[chunk], part):
                np.minimum(bounds[chunk], bound, out=bounds[chunk])

        for_each_chunk(work, rows.shape[0], rows_per_chunk(8 * ball.theta.size))
        if rows.dtype == bounds.dtype:
            return bounds
        return np.nextafter(bounds.astype(rows.dtype), np.inf, dtype=rows.dtype)  # never rounded down

    def gradient_sum(
        self, theta: Any, X: Any, y: Any = None, weights: Any = None, *, cache: Array | None = None
    ) -> Array:
        """Sum weight times gradient over all points: theta.shape, in float64.

        No ``(n, *theta.shape)`` array is formed. ``cache`` are those of
        :meth:`values_and_cache` for the same theta and rows, where they are at hand.
        """
        rows = as_rows(X, check_values=False)
        n = rows.shape[0]
        theta = np.asarray(theta)
        labels = None if y is None else as_column(y, n, "y")
        heavy = np.ones(n) if weights is None else as_column(weights, n, "weights")
        total = np.zeros(theta.shape)
        step = rows_per_chunk(8 * theta.size)
        for start in range(0, n, step):
            chunk = slice(start, min(start + step, n))
            part = None if labels is None else labels[chunk]
            gradients = self.gradients(theta, rows[chunk], part)
            if sparse.issparse(gradients):
                total += gradients.T @ heavy[chunk]
            else:
                total += np.tensordot(heavy[chunk], gradients, axes=1)
        return total

    def _continuity_bounds(self, ball: Ball, X: Rows, y: Array | None) -> list[Array]:
        """Evaluate xi(l) by each kind of continuity that the loss has."""
        reach = ball.radius
        slope, bend, twist = self.lipschitz(X, y), self.smoothness(X, y), self.hessian_lipschitz(X, y)
        bounds = [] if slope is None else [slope * reach]
        if bend is not None or twist is not None:
            steepness = dual_norms(self.gradients(ball.theta, X, y))
            if bend is not None:
                bounds.append(steepness * reach + bend * reach**2 / 2)
            if twist is not None:
                curved = self.hessian_norms(ball.theta, X, y)
                if curved is None:
                    raise self._missing("hessian_norms", "theta, X, y")
                bounds.append(steepness * reach + curved * reach**2 / 2 + twist * reach**3 / 6)
        if not bounds:
            raise MissingPropertyError(
                f"{type(self).__name__} has no lipschitz, smoothness or hessian_lipschitz constants, and "
                f"deviation needs one of them; define {type(self).__name__}.lipschitz(X, y) or another"
            )
        return bounds

    def _missing(self, method: str, arguments: str) -> MissingPropertyError:
        name = type(self).__name__
        return MissingPropertyError(
            f"{name} has no {method}; define {name}.{method}({arguments}) to use it here"
        )

    def _rows(self, X: Any, *, sparse_allowed: bool = False) -> Rows:
        rows = as_rows(X, check_values=False)
        if sparse.issparse(rows) and not sparse_allowed:
            raise TypeError(
                f"{type(self).__name__} needs dense rows; X is sparse. Pass X.toarray() if it fits in memory"
            )
        return rows

    def _parameters(self, theta: Any, rows: Rows) -> Array:
        """Check theta against the rows, and give it their type."""
        shape = self.parameter_shape(rows.shape[1])
        try:
            given = np.asarray(theta)
        except ValueError:  # NumPy's, of a ragged list
            raise ValueError(f"theta has rows of different lengths; {self!r} needs shape {shape}") from None
        if given.shape != shape:
            raise ValueError(
                f"theta has shape {given.shape}; {self!r} on {rows.shape[1]} columns needs shape {shape}"
            )
        if given.dtype.kind not in "biuf" or not np.isfinite(given).all():
            raise ValueError("theta must hold finite numbers; it has NaN, infinity or something else")
        with np.errstate(over="ignore"):
            typed = given.astype(rows.dtype, copy=False)
        if not np.isfinite(typed).all():
            raise ValueError(f"theta is too large for the type of X, {rows.dtype}; pass X as float64")
        return typed

    @staticmethod
    def _answer(values: Array, rows: Rows) -> Array:
        """Return values, unless they show that a row held NaN or infinity.

        Every built-in loss is NaN or infinite on such a row, so this look at
        the results finds what a check of all the data would.
        """
        if not np.isfinite(values).all():
            refuse_nonfinite(rows)
        return values
