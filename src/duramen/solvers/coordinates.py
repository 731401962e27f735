"""Coordinates in which a linear problem is well conditioned: columns less their middle, by their spread.

A predictor <w, x> + b is also <w, x - c> + b' with b' = b + <w, c>. Steps are
computed in (w, b'): where a column's values lie far from zero compared with
their spread, as years or map coordinates do, the intercept would otherwise
be all but a multiple of it. The penalty, which leaves the intercept free, is
the same in both.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy import sparse

from duramen.rows import Array, Rows, take_rows

__all__ = ["Coordinates", "coordinates_of"]

_ROWS = 1000  # looked at


class Coordinates(NamedTuple):
    """The middle of each column, zero where no intercept can take it up; and its spread, never zero."""

    middle: Array
    spread: Array
    fit_intercept: bool

    def inside(self, theta: Array) -> Array:
        """Give (w, b') for theta."""
        if not self.fit_intercept:
            return theta
        inside = theta.copy()
        inside[..., -1] += theta[..., :-1] @ self.middle
        return inside

    def turned(self, slope: Array) -> Array:
        """Turn a gradient in theta into one in (w, b')."""
        if not self.fit_intercept:
            return slope
        turned = slope.copy()
        turned[..., :-1] -= self.middle * slope[..., -1:]
        return turned

    def turned_back(self, step: Array) -> Array:
        """Turn a step in (w, b') into one in theta."""
        if not self.fit_intercept:
            return step
        turned = step.copy()
        turned[..., -1] -= step[..., :-1] @ self.middle
        return turned

    def units(self) -> Array:
        """Give the size of each parameter: one over the spread of its column."""
        return np.append(1 / self.spread, 1.0) if self.fit_intercept else 1 / self.spread


def coordinates_of(X: Rows, weights: Array, share: float, fit_intercept: bool) -> Coordinates:
    """Measure middle and spread on a thousand rows, evenly spaced by weight.

    The middle is the median; the spread the root mean square distance from it, the farthest values left
    out, a ``share`` of them. A column that is constant but for those has the spread of all its values;
    one that is constant altogether has the size of its value, or 1.
    """
    steps = np.cumsum(weights)
    rows = np.searchsorted(steps, (np.arange(_ROWS) + 0.5) / _ROWS * steps[-1])  # none without weight
    if sparse.issparse(X):
        return _of_sparse(X[rows], share, fit_intercept)
    columns = np.array(take_rows(X, rows).T, dtype=np.float64, order="C")
    columns.sort(axis=1)
    middle = columns[:, columns.shape[1] // 2].copy()
    with np.errstate(over="ignore"):
        far = np.square(np.subtract(columns, middle[:, None], out=columns), out=columns)
        far.sort(axis=1)
        kept = max(1, round(far.shape[1] * (1 - share)))
        spread = _first_positive(far[:, :kept].mean(axis=1), far.mean(axis=1), middle**2)
    return Coordinates(middle if fit_intercept else np.zeros_like(middle), spread, fit_intercept)


def _of_sparse(X: Rows, share: float, fit_intercept: bool) -> Coordinates:
    """Sparse columns stay where they are: most of their values are zero, and must remain so."""
    inner = _without_largest(X, round(X.shape[0] * share))
    with np.errstate(over="ignore", invalid="ignore"):
        mean, squares = _moments(inner)
        spread = _first_positive(squares - mean**2, squares, _moments(X)[1])
        return Coordinates(np.zeros_like(mean), spread, fit_intercept)


def _without_largest(X: Rows, n: int) -> Rows:
    """Put zero for the ``n`` largest values of each column, by their size."""
    columns = X.tocsc(copy=True)
    numbers = np.repeat(np.arange(columns.shape[1]), np.diff(columns.indptr))
    order = np.lexsort((np.abs(columns.data), numbers))
    from_the_end = columns.indptr[numbers + 1] - np.arange(len(numbers))  # 1 for the largest of a column
    columns.data[order[from_the_end <= n]] = 0.0
    return columns


def _moments(X: Rows) -> tuple[Array, Array]:
    """Average the values of each column, and their squares."""
    mean = np.asarray(X.mean(axis=0), dtype=np.float64).ravel()
    return mean, np.asarray(X.multiply(X).mean(axis=0), dtype=np.float64).ravel()


def _first_positive(*squares: Array) -> Array:
    spread = np.ones_like(squares[0])
    for candidate in reversed(squares):
        usable = (candidate > 0) & np.isfinite(candidate)
        spread[usable] = np.sqrt(candidate[usable])
    return spread
