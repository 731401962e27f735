"""The plane in which a coreset is drawn: the two directions in which its weighted rows vary most."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import sparse

from duramen.rows import Array, Rows

__all__ = ["Plane", "dense", "plane_of"]

_MOST = 2e7  # numbers that sparse rows may become
_FAR = 1e150  # beyond it squares overflow
_EXACT = 500  # columns, or rows: up to so many, directions are found exactly


@dataclass(frozen=True, eq=False)
class Plane:
    """Where the axes are.

    Attributes
    ----------
    middle : array (d,)
        The weighted mean.
    directions : array (d, 2)
        Unit vectors; the second is zero where there is one column.
    shares : array (2,)
        Of the variance, along each; zero where there is none.
    """

    middle: Array
    directions: Array
    shares: Array

    def places(self, rows: Array) -> Array:
        """Project rows (n, d): (n, 2)."""
        return np.asarray((rows - self.middle) @ self.directions)


def plane_of(rows: Array, weights: Array) -> Plane:
    """Find the plane of the largest weighted variance of rows (n, d), as :func:`dense` gives them.

    Exactly, or, where both rows and columns are many, by random projections to
    more digits than a picture shows.
    """
    share = weights / weights.sum()
    middle = share @ rows
    spread = (rows - middle) * np.sqrt(share)[:, None]
    unit = float(np.abs(spread).max(initial=0.0)) or 1.0
    spread /= unit
    directions, variances = _leading(spread)
    total = float(np.square(spread).sum())
    return Plane(middle, _turned(directions), variances / total if total else np.zeros(2))


def dense(rows: Rows) -> Array:
    """Give rows, sparse ones too, as a float64 array of numbers whose squares do not overflow.

    Raises
    ------
    ValueError
        If sparse rows would become too large.
    """
    n, d = rows.shape
    if sparse.issparse(rows) and n * d > _MOST:
        raise ValueError(
            f"{n:,} sparse rows x {d:,} columns are {n * d:,} numbers, too many to draw; pass "
            f"max_points={max(int(_MOST // d), 1):,} or less, or reduce the columns first"
        )
    full = rows.toarray() if sparse.issparse(rows) else rows
    return np.clip(np.asarray(full, dtype=np.float64), -_FAR, _FAR)


def _leading(spread: Array) -> tuple[Array, Array]:
    """Find the first two right singular vectors, (d, 2), and the squares of their singular values."""
    n, d = spread.shape
    if d == 1:
        return np.array([[1.0, 0.0]]), np.array([float(np.square(spread).sum()), 0.0])
    if d <= _EXACT:
        values, vectors = np.linalg.eigh(spread.T @ spread)
        return vectors[:, :-3:-1], np.maximum(values[:-3:-1], 0.0)
    if n <= _EXACT:
        lengths, rights = np.linalg.svd(spread, full_matrices=False)[1:]
    else:
        from sklearn.utils.extmath import randomized_svd

        lengths, rights = randomized_svd(spread, 2, random_state=0)[1:]
    directions, variances = np.zeros((d, 2)), np.zeros(2)
    directions[:, : len(rights[:2])] = rights[:2].T
    variances[: len(rights[:2])] = np.square(lengths[:2])
    return directions, variances


def _turned(directions: Array) -> Array:
    """Choose between a direction and its opposite: the largest entry is positive."""
    largest = np.abs(directions).argmax(axis=0)
    return directions * np.where(directions[largest, [0, 1]] < 0, -1.0, 1.0)
