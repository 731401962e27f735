"""Validation of rows, before anything changes; they are converted to the form that the slots hold."""

from __future__ import annotations

import math
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
        columns: tuple[str, ...] | None = None,
    ) -> None:
        self.loss, self.n_columns, self.dtype, self.columns = loss, n_columns, np.dtype(dtype), columns
        self.labelled = loss.needs_labels or labelled
        self.classes: frozenset[float] = frozenset()
        self._limit = moderate(dtype)

    @classmethod
    def of(cls, loss: Loss, X: Any, y: Any) -> RowValidator:
        """Derive the format from the first rows."""
        rows = _rows(X)
        columns = tuple(column_names(X)) if is_frame(X) else None
        return cls(loss, int(rows.shape[1]), rows.dtype, y is not None, columns)

    def check(self, X: Any, y: Any, weights: Any, n_ids: int | None = None) -> ValidRows:
        """Check rows, one for each of ``n_ids`` points if that is given.

        Errors name the row, the value and what to do.
        """
        one = self._check_one(X, y, weights) if n_ids in (None, 1) else None
        if one is not None:
            return one
        self._check_columns(X)
        rows = _rows(X)
        if rows.shape[1] != self.n_columns:
            raise ValueError(f"X has {rows.shape[1]} columns; the rows here have {self.n_columns}")
        if n_ids is not None and n_ids != len(rows):
            raise ValueError(f"X has {len(rows)} rows for {n_ids} ids; pass one row per id")
        names = column_names(X) if is_frame(X) else None
        refuse_nonfinite(rows, "X", names)
        if rows.dtype != self.dtype:
            with np.errstate(over="ignore"):
                rows = rows.astype(self.dtype)
            refuse_nonfinite(rows, f"X as {self.dtype}", names)
        labels = self._labels(y, len(rows))
        weights = 1.0 if weights is None else weights
        heavy = checked_weights(np.full(len(rows), weights) if np.ndim(weights) == 0 else weights, len(rows))
        return ValidRows(np.require(rows, requirements=["C", "A"]), labels, heavy)

    def _check_one(self, X: Any, y: Any, weight: Any) -> ValidRows | None:
        """Check one row in the plainest form, quickly; None if it is not of that form, or may be wrong."""
        row = self._as_row(X)
        if row is None or not (row.max() < self._limit and row.min() > -self._limit):  # NaN is neither
            return None
        y, weight = _scalar(y), 1.0 if weight is None else _scalar(weight)
        if self.labelled != (y is not None) or not (isinstance(weight, _NUMBERS) and 0 <= weight < math.inf):
            return None
        if self.labelled and not (isinstance(y, _NUMBERS) and (float(y) in self.classes or self._takes(y))):
            return None
        return ValidRows(
            row[None], np.array([float(y)]) if self.labelled else None, np.array([float(weight)]), True
        )

    def _as_row(self, X: Any) -> Array | None:
        """Convert an array or a list of numbers to one row, (d,); None if it is anything else."""
        if type(X) in (list, tuple) and all(type(value) in (float, int) for value in X):
            X = np.array(X)
        if type(X) is not np.ndarray or X.dtype.kind not in "fiu" or X.dtype.itemsize > 8:
            return None
        if X.shape != (self.n_columns,) and X.shape != (1, self.n_columns):
            return None
        if X.dtype == self.dtype:
            return np.ascontiguousarray(X.reshape(-1))
        with np.errstate(over="ignore"):
            return X.reshape(-1).astype(self.dtype)

    def _takes(self, label: Any) -> bool:
        """Return whether a label that no point has is certainly valid: a number to regress on."""
        if self.loss.has_classes or not abs(label) <= np.finfo(self.dtype).max:
            return False
        try:
            self.loss.check_labels(np.array([float(label)]))
        except ValueError:
            return False
        return True

    def admit(self, labels: Array | None) -> None:
        """Record the classes: labels are 0 and 1, or -1 and +1, but not both."""
        if labels is None or not self.loss.has_classes:
            return
        if len(labels) > 1 or float(labels[0]) not in self.classes:
            self.classes |= frozenset(np.unique(labels).tolist())

    def _check_columns(self, X: Any) -> None:
        found = tuple(column_names(X)) if is_frame(X) else _labels_of(X)
        if self.columns is not None and found is not None and found != self.columns:
            raise ValueError(
                f"X has the columns {few(found)}; the rows here have {few(self.columns)}, in this order"
            )

    def _labels(self, y: Any, n: int) -> Array | None:
        if y is None:
            if self.labelled:
                raise ValueError(f"{self.loss!r} needs labels; pass y, one label per row")
            return None
        if not self.labelled:
            raise ValueError("y was passed, but the rows here have no labels; leave it out")
        labels = as_column(np.atleast_1d(y) if np.ndim(y) == 0 else y, n, "y")
        self.loss.check_labels(labels)
        if self.classes:
            self._check_classes(labels)
        return labels.astype(np.float64)

    def _check_classes(self, labels: Array) -> None:
        """Raise ValueError if these labels are not compatible with those here."""
        seen = np.array(sorted(self.classes))
        try:
            self.loss.check_labels(np.concatenate([seen, np.unique(labels)]))
        except ValueError:
            raise ValueError(
                f"labels are {few(np.unique(labels).tolist())}, but those here are {few(seen.tolist())}; "
                f"{type(self.loss).__name__} takes -1 and +1, or 0 and 1, but not both"
            ) from None


def _rows(X: Any) -> Array:
    if isinstance(X, WeightedPoints):
        raise TypeError("X is a WeightedPoints; pass points.X, points.y, points.weights and points.ids")
    if sparse.issparse(X):
        raise TypeError(
            "a dynamic coreset keeps dense rows; pass X.toarray(), or build a coreset of sparse rows "
            "with dm.robust_coreset"
        )
    if not is_frame(X) and not (isinstance(X, np.ndarray) and X.ndim == 2):
        X = _as_one_row(X)
    if isinstance(X, np.ndarray) and X.ndim == 2 and X.shape[0] == 0 and X.shape[1]:
        return np.empty(X.shape, dtype=X.dtype if X.dtype in (np.float32, np.float64) else np.float64)
    return np.asarray(as_rows(X, check_values=False))


def _labels_of(X: Any) -> tuple[str, ...] | None:
    """Return the names in the index of a pandas Series, which is a row of a frame; else None."""
    index = getattr(X, "index", None)
    if getattr(X, "ndim", 0) != 1 or index is None or callable(index):
        return None
    names = list(index)
    return tuple(names) if names and all(isinstance(name, str) for name in names) else None


def _scalar(value: Any) -> Any:
    """Return the entry of a one-element array; anything else as it is."""
    return value[0] if type(value) is np.ndarray and value.shape == (1,) else value


def _as_one_row(X: Any) -> Any:
    """Turn a vector into one row; leave anything else to the checks of rows."""
    try:
        flat = np.asanyarray(X)  # keeps the mask of a masked array
    except ValueError:
        return X
    return flat[None] if flat.ndim == 1 and flat.dtype != object and flat.size else X
