"""Which rows have the largest losses at the anchor, and which features make them large.

Such a loss is a function of a sum over features: the predictor of a linear
loss, the squared distance to a centre. Each feature's share of that sum is its
part in the row's loss; parts and the rest add up to the whole. For a linear
predictor a part is the difference from a usual row: the feature minus its mean
over the rows that are not suspected.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy import sparse

from duramen.arrays import Array, Rows
from duramen.coreset.coreset import Coreset
from duramen.coreset.plot import FAR, dense, usual_rows
from duramen.losses.base import Explanation

_SAME = 1e-12  # of the mean: a smaller standard deviation is rounding


class Reasons(NamedTuple):
    """What makes the losses of n rows large, feature by feature.

    Attributes
    ----------
    kind : str
        What is decomposed: "margin" (how far a row is on the wrong side of its
        label), "residual" (its size), "predictor" (in the direction in which the
        loss grows), "classes" (the strongest other class's predictor, minus the
        label's), "distance" (squared, to the nearest centre), "divergence" (from
        it), or "spread" (the squared distance from the usual mean, in standard
        deviations, which is not about the loss).
    usual, parts : arrays (n, p)
        What each value is compared with, the usual mean or the nearest centre; and what the
        feature adds to the whole: above zero, it makes the loss larger.
    rest : array (n,)
        What a usual row already has.
    features : sequence of str
        The p columns; for a residual also the label, last.
    values : array (n, p)
        What each row has.
    """

    kind: str
    usual: Array
    parts: Array
    rest: Array
    features: Sequence[str]
    values: Array

    @property
    def whole(self) -> Array:
        """The sum of the parts and the rest."""
        return self.parts.sum(axis=1) + self.rest

    @property
    def signed(self) -> bool:
        """Whether parts can be negative."""
        return self.kind in ("margin", "residual", "predictor", "classes")

    def why(self, row: int, n: int) -> tuple[list[tuple[str, float, float, float]], float | None]:
        """List the n features with the largest parts of a row, and sum up the rest; None if nothing is left.

        Each is a name, a value, what that is compared with, and the part. Parts of zero are left out.
        """
        parts = self.parts[row]
        top = np.argsort(-np.abs(parts), kind="stable")[:n]
        top = top[np.abs(parts[top]) > 0]
        columns = (self.values[row], self.usual[row], parts)
        features = [(self.features[k], *(float(column[k]) for column in columns)) for k in top.tolist()]
        if len(top) == len(parts) and not self.signed:
            return features, None
        return features, float(np.delete(parts, top).sum() + self.rest[row])


def largest_losses(losses: Array, ids: Array, n: int) -> Array:
    """Find the n rows with the largest losses, largest first, ties by id; NaN comes last.

    Examples
    --------
    >>> largest_losses(np.array([1.0, 3.0, np.nan, 3.0]), np.array([4, 9, 1, 2]), 3)
    array([3, 1, 0])
    """
    return np.lexsort((ids, -losses))[:n]


def reasons_of(core: Coreset, rows: Array, columns: Sequence[str], label: str = "y") -> Reasons:
    """Decompose the losses of some rows at the anchor, in float64."""
    assert core.anchor is not None
    X, y, labels = dense(core.X[rows]), None, []
    usual = usual_rows(core.suspected, core.weights)
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        mean, deviation = _moments(core.X[usual], core.weights[usual])
        if core.y is not None:
            y, labels = core.y[rows], [np.average(core.y[usual], weights=core.weights[usual])]
        found = core.loss.explain(core.anchor.theta, X, y, np.append(mean, labels))
        if found is None:
            unit = np.where(deviation > _SAME * np.abs(mean), deviation, 1.0)
            parts = np.square((X - mean) / unit)
            found = Explanation("spread", np.broadcast_to(mean, X.shape), parts, np.zeros(len(X)))
    if found.kind == "residual" and y is not None:
        columns, X = (*columns, label), np.column_stack([X, y])
    return Reasons(*found, columns, X)


def _moments(X: Rows, weights: Array) -> tuple[Array, Array]:
    """Compute the weighted mean and standard deviation of each column."""
    from sklearn.preprocessing import StandardScaler  # imported here, as that takes a second

    X = X.astype(np.float64)
    values = X.data if sparse.issparse(X) else X
    np.clip(values, -FAR, FAR, out=values)
    scaler = StandardScaler(with_mean=False).fit(X, sample_weight=weights / weights.sum())
    return scaler.mean_, np.sqrt(scaler.var_)
