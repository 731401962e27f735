"""Weighted points: rows, labels, weights and ids, validated once and then frozen."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, TypeAlias, final
from uuid import UUID

import numpy as np
from scipy import sparse

from duramen.arrays import (
    Array,
    Rows,
    as_column,
    as_rows,
    column_names,
    is_frame,
    read_only,
    refuse_first,
    refuse_nonfinite,
    take_rows,
)
from duramen.errors import RowError


@final
@dataclass(frozen=True, eq=False, init=False, repr=False)
class WeightedPoints:
    """A weighted set of points, each with an id: the paper's X with its weights w.

    Parameters
    ----------
    X : array, list of lists, data frame, Arrow table, or sparse matrix
        One row per point. float32 and float64 arrays are viewed, not copied.
    y : sequence of numbers, optional
        One label per row.
    weights : sequence of non-negative numbers, optional
        One weight per row; 1 by default. Weight 2 is equivalent to two copies,
        weight 0 to absence.
    ids : sequence of distinct integers, optional
        One id per row; the row numbers 0, 1, ... by default.

    Attributes
    ----------
    X : array (n, d), float32 or float64, or scipy.sparse.csr_array
    y : array (n,) or None
    weights : array (n,), float64
    ids : array (n,), int64
        All are read-only views (of a CSR array, its parts are). An array that
        the caller passed in remains the caller's.

    Examples
    --------
    >>> import duramen as dm
    >>> dm.points([[0.0, 1.0], [2.0, 3.0]], y=[0, 1], weights=[1, 0.5])
    WeightedPoints: 2 rows x 2 columns of float64, labelled, total weight 1.5
    """

    X: Rows
    y: Array | None
    weights: Array
    ids: Array

    def __new__(cls, X: Any, y: Any = None, weights: Any = None, ids: Any = None) -> WeightedPoints:
        made = cls._unvalidated(X, y, weights, ids)
        refuse_nonfinite(made.X, names=column_names(X) if is_frame(X) else None)
        return made

    @classmethod
    def _from_parts(cls, X: Rows, y: Array | None, weights: Array, ids: Array) -> WeightedPoints:
        """Wrap parts that are known to be valid."""
        made = object.__new__(cls)
        labels = None if y is None else read_only(y)
        vars(made).update(X=read_only(X), y=labels, weights=read_only(weights), ids=read_only(ids))
        return made

    @classmethod
    def _unvalidated(cls, X: Any, y: Any, weights: Any, ids: Any) -> WeightedPoints:
        """Make points without checking that the values of X are finite."""
        rows = as_rows(X)
        n = rows.shape[0]
        if not n:
            raise ValueError(f"X is empty: it has shape {rows.shape}; at least one row is needed")
        return cls._from_parts(
            rows,
            None if y is None else as_column(y, n, "y"),
            np.ones(n) if weights is None else checked_weights(weights, n),
            np.arange(n, dtype=np.int64) if ids is None else checked_ids(ids, n),
        )

    def __reduce__(self) -> tuple[Any, ...]:
        return WeightedPoints._from_parts, tuple(vars(self).values())

    def __len__(self) -> int:
        return len(self.weights)

    @property
    def n_columns(self) -> int:
        """The number of columns of X."""
        return int(self.X.shape[1])

    @property
    def total_weight(self) -> float:
        """The sum of the weights, written with double brackets in the paper."""
        return float(self.weights.sum())

    def __repr__(self) -> str:
        form = "sparse " if sparse.issparse(self.X) else ""
        labelled = "" if self.y is None else ", labelled"
        return (
            f"WeightedPoints: {len(self):,} rows x {self.n_columns} columns of {form}{self.X.dtype}"
            f"{labelled}, total weight {self.total_weight:,.6g}"
        )

    def take(self, which: Any) -> WeightedPoints:
        """Select rows by position: integers in any order, a boolean mask, or a slice.

        The result may be empty. A slice of dense rows is a view; everything
        else copies what it takes.

        Raises
        ------
        IndexError
            If a position is out of range, or a mask has the wrong length.
        ValueError
            If a position is repeated: ids must stay distinct.

        Examples
        --------
        >>> import duramen as dm
        >>> dm.points([[1.0], [2.0], [3.0]]).take([2, 0]).ids
        array([2, 0])
        """
        if not isinstance(which, slice):
            which = np.asarray(which if np.size(which) else np.arange(0))  # an empty list has no type
            if which.dtype.kind not in "biu" or which.ndim != 1:
                raise IndexError("take needs a one-dimensional array of integers or booleans, or a slice")
            if which.dtype.kind != "b":
                _refuse_repeats(self.ids[which])
        return self._rows(self.X[which], which, self.weights[which])

    def take_unchecked(self, rows: Array, weights: Array) -> WeightedPoints:
        """Return the points numbered ``rows``, which must be distinct, with other weights; unchecked."""
        return self._rows(take_rows(self.X, rows), rows, weights)

    def _rows(self, X: Rows, which: Any, weights: Array) -> WeightedPoints:
        return self._from_parts(X, None if self.y is None else self.y[which], weights, self.ids[which])

    def with_parts(self, **parts: Any) -> WeightedPoints:
        """Return points with another X, y, weights or ids, which are not checked; the rest is shared."""
        return self._from_parts(**{**vars(self), **parts})

    @staticmethod
    def concat(parts: Sequence[WeightedPoints]) -> WeightedPoints:
        """Join sets of points with distinct ids, in the given order.

        Raises
        ------
        ValueError
            If there are none, their columns differ in number, only some have
            labels, some are dense and some sparse, or an id occurs in two of them.

        Examples
        --------
        >>> import duramen as dm
        >>> halves = [dm.points([[1.0]], ids=[7]), dm.points([[2.0]], ids=[3])]
        >>> dm.WeightedPoints.concat(halves).ids
        array([7, 3])
        """
        parts = list(parts)
        forms = list(dict.fromkeys(map(_form, parts)))
        if len(forms) != 1:
            found = "; ".join(forms) or "none"
            raise ValueError(f"concat needs at least one set of points, all of one form; found {found}")
        X, y, weights, ids = zip(*(vars(part).values() for part in parts), strict=True)
        numbers = np.concatenate(ids)
        _refuse_repeats(numbers)
        rows = sparse.vstack(X, format="csr") if sparse.issparse(X[0]) else np.concatenate(X)
        labels = None if y[0] is None else np.concatenate(y)
        return WeightedPoints._from_parts(rows, labels, np.concatenate(weights), numbers)


def points(X: Any, y: Any = None, weights: Any = None, ids: Any = None) -> WeightedPoints:
    """Convert data to :class:`WeightedPoints`, which every function that takes points works on.

    Examples
    --------
    >>> import duramen as dm
    >>> len(dm.points([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]))
    3
    """
    return WeightedPoints(X, y, weights, ids)


_SALT = 0xD1342543DE82EF95  # odd: such a sample uses other numbers than the coreset


def thin(points: WeightedPoints, enough: int) -> tuple[Rows, Array]:
    """Sample about ``enough`` rows of positive weight, as float64, with their weights; in any order the same.

    Multiplying ids by an odd number spreads them evenly: one product per row, and as
    good as a draw here. Where the ids defeat this, all rows are used.
    """
    live = points.weights > 0
    n = np.count_nonzero(live)
    if n > 2 * enough:
        some = (points.ids.view(np.uint64) * _SALT < int(2**64 / n * enough)) & live
        if enough <= 2 * np.count_nonzero(some) <= 4 * enough:
            live = some
    rows = np.flatnonzero(live)
    return take_rows(points.X, rows).astype(np.float64, copy=False), points.weights[rows]


def checked_weights(weights: Any, n: int) -> Array:
    """Convert weights to (n,) float64; refuse negative ones, and an infinite total."""
    column = as_column(weights, n, "weights").astype(np.float64, copy=False)
    checked_total(column)
    return column


def checked_total(weights: Array) -> float:
    """Add weights up; refuse negative ones, NaN, and an infinite total."""
    refuse_first(~(weights >= 0), weights, "weights must not be negative; {row} has {value}")
    with np.errstate(over="ignore"):
        total = float(weights.sum())
    if total == np.inf:
        raise ValueError("weights add up to infinity; scale them down")
    return total


def checked_ids(ids: Any, n: int) -> Array:
    """Convert ids to (n,) int64; refuse anything but distinct integers within int64."""
    column = as_column(ids, n, "ids")
    if column.dtype.kind not in "iu":
        raise TypeError(f"ids must be integers; found type {column.dtype}, such as {column[0]!r} in row 0")
    refuse_first(column > np.iinfo(np.int64).max, column, "ids must fit in int64; {row} has {value}")
    column = column.astype(np.int64, copy=False)
    _refuse_repeats(column)
    return column


def _refuse_repeats(ids: Array) -> None:
    """Raise a ValueError that names the first row whose id is repeated, if there is one."""
    if (ids[1:] > ids[:-1]).all():
        return
    _, firsts = np.unique(ids, return_index=True)
    if len(firsts) < len(ids):
        row = int(np.delete(np.arange(len(ids)), firsts)[0])
        text = "ids must be distinct; id {id} of {earlier} occurs again in {row}"
        raise RowError(text, row, earlier=int((ids == ids[row]).argmax()), id=ids[row])


def _form(points: WeightedPoints) -> str:
    """Describe what points that can be joined have in common."""
    form = "sparse" if sparse.issparse(points.X) else "dense"
    return f"{points.n_columns} columns, {form}, with {'no ' * (points.y is None)}labels"


Name: TypeAlias = str | UUID

_KINDS = (str, UUID)  # a tuple: isinstance is twice as fast as with a union
_POSITIVE = np.uint64(2**63 - 1)  # 63 bits, so that a number is a non-negative int64


def is_names(ids: Any) -> bool:
    """Return whether ids are names: a string, a UUID, or a column that begins with one, or of text if empty.

    Lists, tuples, arrays, and the columns of pandas, polars and Arrow are columns; a data frame, a dict and
    a set are not. Only the first entry is examined: :func:`numbers_of` checks the others.

    Examples
    --------
    >>> is_names(["ann", "bob"]), is_names("ann"), is_names([1, 2])
    (True, True, False)
    """
    if isinstance(ids, _KINDS):
        return True
    is_column = hasattr(ids, "__getitem__") and getattr(ids, "ndim", 1) == 1
    if not is_column or isinstance(ids, bytes | dict) or is_frame(ids):
        return False
    if getattr(getattr(ids, "dtype", None), "kind", "") in ("U", "T"):
        return True
    first: Any = next(iter(ids), None)
    return isinstance(first.as_py() if hasattr(first, "as_py") else first, _KINDS)


def numbers_of(names: Any) -> Array:
    """Compute the number of each name: int64 (n,), from 0 to 2^63 - 1, a function of the name alone.

    The last 63 bits of the 8-byte BLAKE2b digest of ``s`` and the text in UTF-8, or of
    ``u`` and the 16 bytes of the UUID. A UUID and its text are different names.

    Strings and UUIDs may be mixed; any other entry, such as a number, None or NaN, raises TypeError.

    Examples
    --------
    >>> numbers_of(["ann", "bob", "ann"])
    array([6685440548919807615, 3731236293512980523, 6685440548919807615])
    """
    entries = listed(names)
    for row, entry in enumerate(entries):
        if not isinstance(entry, _KINDS):
            raise TypeError(
                f"names must be strings or UUIDs; row {row} has {entry!r}, of type {type(entry).__name__}; "
                "give every row a name, or use integers for all"
            )
    digests = b"".join([_digest(tagged(name)) for name in entries])
    return (np.frombuffer(digests, dtype="<u8") & _POSITIVE).astype(np.int64)


def _digest(tagged: bytes) -> bytes:
    return blake2b(tagged, digest_size=8).digest()


def tagged(name: Name) -> bytes:
    """Return the bytes of a name, prefixed by a letter for its kind."""
    if isinstance(name, str):
        return b"s" + name.encode("utf-8", "surrogatepass")
    return b"u" + name.bytes


def listed(names: Any) -> list[Any]:
    """List the entries of a column as Python objects."""
    entries = [names] if isinstance(names, _KINDS) else np.asanyarray(names, dtype=object).tolist()
    return [str(entry) if isinstance(entry, str) else entry for entry in entries]  # not NumPy's strings
