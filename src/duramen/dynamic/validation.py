"""Validation of rows, before anything changes; they are converted to the form that the slots hold."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

from duramen.arrays import Array, as_column, as_rows, column_names, is_frame, refuse_nonfinite
from duramen.dynamic.rows import moderate
from duramen.losses.base import Loss
from duramen.points import WeightedPoints, checked_weights
from duramen.text import few

_NUMBERS = (int, float, np.integer, np.floating)


class ValidRows(NamedTuple):
    """Valid rows with their weights, their labels where points have them, and their ids once these are known.

    A single row is ``moderate`` if no number in it is so large that its score could overflow.
    """

    X: Array
    y: Array | None
    weights: Array
    moderate: bool = False
    ids: Any = None

    def points(self) -> WeightedPoints:
        """Return them as points."""
        return WeightedPoints._from_parts(self.X, self.y, self.weights, self.ids)


class RowValidator:
    """The format that rows must have: the first ones determine the data type, columns and labels.

    Before that there are no columns.
    """

    def __init__(
        self,
        loss: Loss,
        n_columns: int = 0,
        dtype: Any = np.float64,
        labelled: bool = False,
        columns: Iterable[str] | None = None,
    ) -> None:
        self.loss, self.n_columns, self.dtype = loss, n_columns, np.dtype(dtype).newbyteorder("=")
        self.columns = None if columns is None else tuple(columns)
        self.labelled = loss.needs_labels or labelled
        self.classes: frozenset[float] = frozenset()
        self._limit, self._shapes = moderate(dtype), ((n_columns,), (1, n_columns))

    @classmethod
    def of(cls, loss: Loss, X: Any, y: Any) -> RowValidator:
        """Derive the format from the first rows."""
        rows = _rows(X)
        columns = column_names(X) if is_frame(X) else None
        return cls(loss, int(rows.shape[1]), rows.dtype, y is not None, columns)

    def check(self, X: Any, y: Any, weights: Any, n_ids: int | None = None) -> ValidRows:
        """Check rows, one for each of ``n_ids`` points if that is given."""
        weights = 1.0 if weights is None else weights
        if n_ids in (None, 1) and (one := self._check_one(X, y, weights)) is not None:
            return one
        names = _names_of(X)
        self.check_columns(names)
        rows = _rows(X)
        if rows.shape[1] != self.n_columns:
            raise ValueError(f"X has {rows.shape[1]} columns; the rows here have {self.n_columns}")
        n = len(rows)
        if n_ids not in (None, n):
            raise ValueError(f"X has {n} rows for {n_ids} ids; pass one row per id")
        what = "X" if rows.dtype == self.dtype else f"X as {self.dtype}"
        with np.errstate(over="ignore"):
            rows = rows.astype(self.dtype, copy=False)
        refuse_nonfinite(rows, what, names)
        labels = self._labels(y, n)
        heavy = checked_weights(np.full(n, weights) if np.ndim(weights) == 0 else weights, n)
        parts = rows, heavy, 0 if labels is None else labels
        moderate = n == 1 and all(np.max(np.abs(part)) < self._limit for part in parts)
        return ValidRows(np.require(rows, requirements=["C", "A"]), labels, heavy, moderate)

    def check_columns(self, names: Sequence[str] | None) -> None:
        """Raise ValueError if rows with other names of columns are here."""
        if self.columns and names and self.columns != tuple(names):
            raise ValueError(
                f"X has the columns {few(names)}; the rows here have {few(self.columns)}, in this order"
            )

    def _check_one(self, X: Any, y: Any, weight: Any) -> ValidRows | None:
        """Check one row quickly: an array as the rows here, with a known label; None for anything else."""
        suits = type(X) is np.ndarray and X.dtype == self.dtype and X.shape in self._shapes
        known = isinstance(y, _NUMBERS) and float(y) in self.classes if self.labelled else y is None
        if not (suits and known and isinstance(weight, _NUMBERS) and 0 <= float(weight) < self._limit):
            return None
        row = np.ascontiguousarray(X.reshape(1, -1))
        if not (row.max() < self._limit and row.min() > -self._limit):  # NaN is neither
            return None
        labels = np.array([float(y)]) if self.labelled else None
        return ValidRows(row, labels, np.array([float(weight)]), moderate=True)

    def admit(self, labels: Array | None) -> None:
        """Record the classes: labels are 0 and 1, or -1 and +1, but not both."""
        if labels is None or not self.loss.has_classes:
            return
        if len(labels) > 1 or float(labels[0]) not in self.classes:
            self.classes |= frozenset(np.unique(labels).tolist())

    def _labels(self, y: Any, n: int) -> Array | None:
        if y is None:
            if self.labelled:
                raise ValueError(f"{self.loss!r} needs labels; pass y, one label per row")
            return None
        if not self.labelled:
            raise ValueError("y was passed, but the rows here have no labels; leave it out")
        labels = as_column(np.atleast_1d(y) if np.ndim(y) == 0 else y, n, "y")
        self.loss.check_labels(labels)
        if self.classes:  # they must be compatible with those here
            seen, new = sorted(self.classes), np.unique(labels).tolist()
            try:
                self.loss.check_labels(np.array(seen + new))
            except ValueError:
                raise ValueError(
                    f"labels are {few(new)}, but those here are {few(seen)}; {type(self.loss).__name__} "
                    "takes -1 and +1, or 0 and 1, but not both"
                ) from None
        return labels.astype(np.float64)


def _rows(X: Any) -> Array:
    if isinstance(X, WeightedPoints):
        raise TypeError("X is a WeightedPoints; pass points.X, points.y, points.weights and points.ids")
    if sparse.issparse(X):
        raise TypeError(
            "a dynamic coreset keeps dense rows; pass X.toarray(), or build a coreset of sparse rows "
            "with dm.robust_coreset"
        )
    with suppress(ValueError):  # rows of different lengths are left to the checks of rows
        if not is_frame(X) and np.ndim(X) == 1:
            X = np.asanyarray(X)[None]  # keeps the mask of a masked array
    return np.asarray(as_rows(X))


def _names_of(X: Any) -> list[str] | None:
    """Return the names of the columns of a frame, or of a pandas Series that is a row of one; else None."""
    if is_frame(X):
        return column_names(X)
    names = list(X.index) if hasattr(X, "iloc") else []
    return names if all(isinstance(name, str) for name in names) else None
