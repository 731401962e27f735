"""Who has the largest losses, and which features make them large: numbers only.

A loss at the anchor is a function of something that is a sum over features: the
predictor of a linear loss, the squared distance to a centre. Each feature's
share of that sum is its part in the row's loss; parts and the rest add up to
the whole. For a linear predictor a part is told apart from what a usual row
has: that of the feature less its mean over the rows that are not suspected.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import sparse

from duramen.arrays import Array, Rows
from duramen.coreset import Coreset
from duramen.losses import BregmanLoss, DistanceLoss, HuberLoss, LinearLoss, SoftmaxLoss, SquaredLoss
from duramen.losses.bregman import CustomDivergence

__all__ = ["Reasons", "largest_losses", "reasons_of", "usual_rows"]

_FAR = 1e150  # beyond it squares overflow
_SAME = 1e-12  # of the mean: a standard deviation that is none


@dataclass(frozen=True, eq=False)
class Reasons:
    """What makes the losses of n rows large, feature by feature.

    Attributes
    ----------
    kind : str
        What is taken apart: "margin" (how far a row is on the wrong side of its
        label), "residual" (its size), "predictor" (in the direction in which the
        loss grows), "classes" (the strongest other class's predictor, less the
        label's), "distance" (squared, to the nearest centre), "divergence" (from
        it), or "spread" (the squared distance from the usual mean, in standard
        deviations, which says nothing of the loss).
    features : tuple of str
        The p columns; for a residual also the label, last.
    values, usual : arrays (n, p)
        What each row has, and what it is compared with: the usual mean or the nearest centre.
    parts : array (n, p)
        What each feature adds to the whole; above zero, it makes the loss larger.
    rest : array (n,)
        What a usual row has already.
    whole : array (n,)
        ``parts.sum(axis=1) + rest``.
    """

    kind: str
    features: tuple[str, ...]
    values: Array
    usual: Array
    parts: Array
    rest: Array
    whole: Array

    @property
    def signed(self) -> bool:
        """Whether parts can be negative."""
        return self.kind in ("margin", "residual", "predictor", "classes")

    def top(self, row: int, n: int) -> Array:
        """Find the n features with the largest parts of a row, by size; those of no part are left out."""
        size = np.abs(self.parts[row])
        order = np.argsort(-size, kind="stable")[:n]
        return order[size[order] > 0]


def largest_losses(losses: Array, ids: Array, n: int) -> Array:
    """Find the n rows of the largest losses, largest first, equal ones by id; NaN comes last.

    Examples
    --------
    >>> largest_losses(np.array([1.0, 3.0, np.nan, 3.0]), np.array([4, 9, 1, 2]), 3)
    array([3, 1, 0])
    """
    return np.lexsort((ids, np.where(np.isnan(losses), np.inf, -losses)))[:n]


def usual_rows(core: Coreset) -> Array:
    """Mark the rows that others are compared with: those not suspected, or all where there are none."""
    usual = ~core.suspected & (core.weights > 0)
    return usual if usual.any() else np.ones(len(core), dtype=bool)


def reasons_of(core: Coreset, rows: Array, columns: tuple[str, ...], label: str = "y") -> Reasons:
    """Take the losses at the anchor of some rows apart, in float64.

    Parameters
    ----------
    core : Coreset
        With an anchor.
    rows : array of int
        Which of its rows.
    columns : tuple of str
    label : str
    """
    loss = core.loss
    X = _dense(core.X[rows])
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        if isinstance(loss, LinearLoss):
            return _of_predictor(core, rows, X, columns, label)
        if isinstance(loss, SoftmaxLoss):
            return _of_classes(core, rows, X, columns)
        if isinstance(loss, DistanceLoss):
            return _of_distance(core, X, columns)
        if isinstance(loss, BregmanLoss) and not isinstance(loss.divergence, CustomDivergence):
            return _of_divergence(core, loss, X, columns)
        return _of_spread(core, X, columns)


def _of_predictor(core: Coreset, rows: Array, X: Array, columns: tuple[str, ...], label: str) -> Reasons:
    """Follow the predictor m = <w, x> + b in the direction in which the loss grows."""
    loss, theta, y = core.loss, _theta(core), np.asarray(core.y)[rows]
    assert isinstance(loss, LinearLoss)
    slopes, intercept = theta[: X.shape[1]], float(theta[-1]) if loss.fit_intercept else 0.0
    mean = _mean(core)
    if loss.classifies:
        kind, upward = "margin", -loss.encode_labels(y, np.float64)
    else:
        kind, upward = "predictor", np.sign(np.asarray(loss.slopes(theta, X, y), dtype=np.float64))
        upward = np.where(upward == 0, 1.0, upward)
    parts = upward[:, None] * (slopes * (X - mean))
    rest = upward * (mean @ slopes + intercept)
    if not isinstance(loss, (SquaredLoss, HuberLoss)):
        return _whole(kind, columns, X, mean, parts, rest)
    usual = usual_rows(core)
    y, target = (
        y.astype(np.float64),
        float(np.average(np.asarray(core.y)[usual], weights=_heavy(core)[usual])),
    )
    return _whole(
        "residual",
        (*columns, label),
        np.column_stack([X, y]),
        np.append(mean, target),
        np.column_stack([parts, -upward * (y - target)]),
        rest - upward * target,
    )


def _of_classes(core: Coreset, rows: Array, X: Array, columns: tuple[str, ...]) -> Reasons:
    """Compare the label's predictor with the strongest of the others."""
    theta, labels = _theta(core), np.asarray(core.y)[rows].astype(np.intp)
    slopes = theta[:, : X.shape[1]]
    intercepts = theta[:, X.shape[1]] if theta.shape[1] > X.shape[1] else np.zeros(len(theta))
    predictors = X @ slopes.T + intercepts
    predictors[np.arange(len(X)), labels] = -np.inf
    other = predictors.argmax(axis=1)
    lead, mean = slopes[other] - slopes[labels], _mean(core)
    rest = lead @ mean + intercepts[other] - intercepts[labels]
    return _whole("classes", columns, X, mean, lead * (X - mean), rest)


def _of_distance(core: Coreset, X: Array, columns: tuple[str, ...]) -> Reasons:
    loss, theta = core.loss, _theta(core)
    assert isinstance(loss, DistanceLoss)
    nearest = theta.reshape(-1, X.shape[1])[loss.nearest(theta, X)]
    return _whole("distance", columns, X, nearest, np.square(X - nearest), np.zeros(len(X)))


def _of_divergence(core: Coreset, loss: BregmanLoss, X: Array, columns: tuple[str, ...]) -> Reasons:
    """Take a divergence apart that is a sum over columns, as all built-in ones are."""
    centres = _theta(core)
    nearest = centres[loss.nearest(centres, X)]
    parts = loss.divergence.between(X.reshape(-1, 1), nearest.reshape(-1, 1)).reshape(X.shape)
    return _whole("divergence", columns, X, nearest, parts, np.zeros(len(X)))


def _of_spread(core: Coreset, X: Array, columns: tuple[str, ...]) -> Reasons:
    """Measure how far rows are from the usual ones; a column in which these do not differ has the unit 1."""
    mean, deviations = _mean(core), _deviations(core)
    apart = deviations > _SAME * np.abs(mean)  # beyond what rounding does to the mean
    parts = np.square((X - mean) / np.where(apart, deviations, 1.0))
    return _whole("spread", columns, X, mean, parts, np.zeros(len(X)))


def _whole(
    kind: str, features: tuple[str, ...], values: Array, usual: Array, parts: Array, rest: Array
) -> Reasons:
    usual = np.broadcast_to(usual, values.shape)
    return Reasons(kind, features, values, usual, parts, rest, parts.sum(axis=1) + rest)


def _theta(core: Coreset) -> Array:
    assert core.anchor is not None
    return core.anchor.theta


def _heavy(core: Coreset) -> Array:
    """Give the weights; equal ones where all are zero."""
    return core.weights if core.weights.any() else np.ones(len(core))


def _mean(core: Coreset) -> Array:
    usual = usual_rows(core)
    share = _heavy(core)[usual] / _heavy(core)[usual].sum()
    return np.asarray(share @ _limited(core.X[usual])).ravel()


def _deviations(core: Coreset) -> Array:
    """Measure the weighted standard deviation of each column over the usual rows."""
    usual, mean = usual_rows(core), _mean(core)
    share = _heavy(core)[usual] / _heavy(core)[usual].sum()
    rows = _limited(core.X[usual])
    if sparse.issparse(rows):
        return np.sqrt(np.maximum(share @ rows.multiply(rows).tocsr() - mean**2, 0.0))
    return np.sqrt(share @ np.square(rows - mean))


def _limited(rows: Rows) -> Rows:
    """Give rows as float64, numbers whose squares overflow cut off."""
    if sparse.issparse(rows):
        limited = rows.astype(np.float64)
        limited.data = np.clip(limited.data, -_FAR, _FAR)
        return limited
    return np.clip(np.asarray(rows, dtype=np.float64), -_FAR, _FAR)


def _dense(rows: Rows) -> Array:
    limited = _limited(rows)
    return np.asarray(limited.toarray() if sparse.issparse(limited) else limited)
