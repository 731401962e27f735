"""Leverage: how far a row lies from the others, in units of their spread (the paper's QR)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy import sparse
from scipy.linalg import solve_triangular

from duramen.arrays import (
    Array,
    Rows,
    append_ones,
    check_count,
    dense_block,
    row_products,
    to_dense,
)
from duramen.losses.base import ignore_overflow
from duramen.losses.linear import linear_predictors
from duramen.points import thin
from duramen.samplers.base import AnchoredPoints, RankedSampler

_SEED = 0xD1342543DE82EF95
_SAMPLE, _PRODUCTS = 3000, 10**8  # number of rows, unless their products would exceed the second number
_MOST_COLUMNS = 1024  # beyond, only the size of each column is measured, not the second moments
_FAR = 1e100  # the largest length
_AT_ONCE = 2048  # rows widened together: they stay in the cache, which took a quarter off a float32 build


@dataclass(frozen=True)
class LeverageSampler(RankedSampler):
    """Draw rows in proportion to their length in the frame of all rows, plus a constant share.

    The score of x is ``1 + |(x, 1) F|``. F is made so that the mean square of
    the second term is about 1 over the suspected inliers: R^-1 of a QR
    decomposition of a sample of them, over the square root of the number of
    columns, times a random projection to ``directions`` columns where there are
    more. For logistic regression it is the method of Munteanu, Schwiegelshohn,
    Sohler and Woodruff (2018), which the paper calls QR; for other losses,
    centres among them, the score still shows which rows are far out.

    Parameters
    ----------
    directions : int
        Columns of the projection. More of them measure lengths better (to about
        70% / sqrt(directions)) and cost time in proportion.

    Examples
    --------
    >>> import numpy as np
    >>> import duramen as dm
    >>> rng = np.random.default_rng(0)
    >>> X = np.concatenate([rng.normal(size=(990, 3)), 50 * rng.normal(size=(10, 3))])
    >>> core = dm.LeverageSampler().reduce(dm.points(X), 100, rng)
    >>> int((core.ids >= 990).sum()), round(core.total_weight)  # about one in a uniform sample
    (4, 1000)
    """

    freezes = ("leverage",)
    directions: int = 4

    def __post_init__(self) -> None:
        check_count("directions", self.directions)

    def scores(self, anchored: AnchoredPoints) -> Array:
        return self._scores(anchored, _product)

    def steady_scores(self, anchored: AnchoredPoints) -> Array:
        return self._scores(anchored, _steady_product)

    def _scores(self, anchored: AnchoredPoints, product: Callable[[Rows, Array], Array]) -> Array:
        """Compute 1 plus the length of each row's image."""
        X, frame = anchored.points.X, anchored.anchor.frozen["leverage"]
        p = X.shape[1] + 1
        if frame.shape != (p, min(p, self.directions)):
            raise ValueError(
                f"the anchor's leverage frame has shape {frame.shape}; it does not fit {self.directions} "
                f"directions of {X.shape[1]} columns. Pass an anchor for such data, or one without a frame"
            )
        with ignore_overflow():
            images = product(X if sparse.issparse(X) else dense_block(X, slice(None)), frame[:-1])
            images += frame[-1]
            return np.fmin(1.0 + np.sqrt(row_products(images, images)), _FAR)

    def freeze(self, anchored: AnchoredPoints) -> dict[str, Array]:
        intercept = getattr(anchored.loss, "fit_intercept", True)
        points, p = anchored.points, anchored.points.n_columns + 1
        enough = max(min(_SAMPLE, _PRODUCTS // p**2), 2 * min(p, _MOST_COLUMNS))
        return {"leverage": _make_frame(*thin(points, enough), intercept, self.directions)}


def _product(rows: Rows, frame: Array) -> Array:
    """Multiply in float64, as rounding to float32 would change the choice; some rows of float32 at a time."""
    if rows.dtype == np.float64:
        return rows @ frame
    starts = range(0, max(1, rows.shape[0]), _AT_ONCE)
    return np.concatenate([rows[at : at + _AT_ONCE].astype(np.float64) @ frame for at in starts])


def _steady_product(rows: Rows, frame: Array) -> Array:
    return linear_predictors(rows.astype(np.float64, copy=False), np.ascontiguousarray(frame.T))


def _make_frame(X: Rows, weights: Array, intercept: bool, directions: int) -> Array:
    """Compute F, (d + 1, q), from sampled rows; its last row is what the intercept adds."""
    rows, d = append_ones(X, intercept), X.shape[1]
    (n, p), q = rows.shape, min(d + 1, directions)
    largest = to_dense(abs(rows).max(axis=0)).ravel()
    largest = np.where(largest > 0, largest, 1.0)
    rows = rows * (1 / largest)  # no square overflows
    share = weights / weights.sum()
    spread = (rows * rows).T @ share
    # a column that is zero in the sample is rare: its size is taken to be that of the others
    spread[spread == 0] = np.median(spread[spread > 0]) if (spread > 0).any() else 1.0
    units = 1 / np.sqrt(spread)
    basis = np.random.default_rng(_SEED).normal(size=(p, q)) / q**0.5 if q < p else np.eye(p, q)
    if p <= _MOST_COLUMNS:
        moment = to_dense((rows * share[:, None]).T @ rows) * (units[:, None] * units)
        moment += np.eye(p) / n  # as if each column occurred once more
        basis = solve_triangular(np.linalg.cholesky(moment).T, basis)
    frame = np.zeros((d + 1, q))
    frame[:p] = units[:, None] * basis / p**0.5 / largest[:, None]
    return frame
