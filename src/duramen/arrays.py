"""Rows: the one form in which the library handles data.

Rows are a two-dimensional float32 or float64 NumPy array in any memory order,
or a CSR array. Lists, frames, integers and other sparse formats are converted
here, once; an array that is already in this form is viewed, never copied.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from functools import reduce
from operator import add, length_hint
from typing import Any, NoReturn, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from duramen.errors import RowError
from duramen.parallel import for_each_chunk, join_chunks, rows_per_chunk

Array: TypeAlias = NDArray[Any]
Rows: TypeAlias = Any  # Array | sparse.csr_array; SciPy carries no types

ABOVE_ZERO, LARGEST = math.nextafter(0, 1), sys.float_info.max  # bounds of the positive finite numbers


def is_frame(data: Any) -> bool:
    """Return whether ``data`` is a data frame or an Arrow table, lazy or not."""
    kind = type(data)
    return hasattr(kind, "columns") and (hasattr(kind, "iloc") or hasattr(kind, "schema"))


def as_frame(data: Any) -> Any:
    """Return a data frame or Arrow table as a narwhals frame; columns are numbered if two share a name."""
    import narwhals as nw  # imported here, as that takes 50 ms

    if type(data).__name__ == "RecordBatch":
        data = sys.modules["pyarrow"].Table.from_batches([data])
    names = column_names(data)
    if len(set(names)) < len(names):  # which narwhals refuses
        numbers = list(map(str, range(len(names))))
        data = data.set_axis(numbers, axis=1) if hasattr(data, "set_axis") else data.rename_columns(numbers)
    return nw.from_native(data)


def column_names(frame: Any) -> list[str]:
    """List the names of a frame's columns, as text."""
    names = frame.column_names if hasattr(type(frame), "column_names") else frame.columns
    return list(map(str, names))


def _frame_rows(data: Any) -> Array:
    """Copy a frame's columns into one float array; a pandas frame that is one block is viewed, not copied."""
    for method in ("collect", "compute"):
        if hasattr(data, method):
            raise TypeError(f"X is a lazy frame; call .{method}() on it first")
    if set(map(str, getattr(data, "dtypes", ()))) in ({"float32"}, {"float64"}):
        return np.asarray(data)
    frame = as_frame(data)
    pairs = zip(column_names(data), frame.iter_columns(), strict=True)
    columns = [_numeric(column, f"X, column {name!r},", 1) for name, column in pairs]
    if not columns:
        return np.empty((len(frame), 0))
    return np.stack(columns, axis=1, dtype=_float_type(np.result_type(*columns)), casting="unsafe")


_WANTED = {1: "have one value per row", 2: "be two-dimensional, rows by columns"}


def _numeric(given: Any, name: str, n_dims: int) -> Array:
    """Read a column or a table as a numeric array; missing values of a column of a frame become NaN.

    A masked value, or anything but numbers and booleans, is refused with its row.
    """
    is_list = isinstance(given, (list, tuple))
    try:
        values = np.asanyarray(_column_values(given))
    except Exception as error:
        if is_list and isinstance(error, ValueError):
            raise ValueError(f"{name} has rows of different lengths; {_ragged(given)}") from error
        raise TypeError(f"{name} cannot be read as numbers, one per entry: {error}") from error
    if values.ndim != n_dims:
        hint = f"; one row is {name}[None, :], one column {name}[:, None]" if n_dims > values.ndim > 0 else ""
        raise ValueError(f"{name} must {_WANTED[n_dims]}; found shape {values.shape}{hint}")
    if np.ma.is_masked(values):
        raise _unusable("a masked value", name, np.argwhere(np.ma.getmaskarray(values))[0])
    if values.dtype.kind in "US" and is_list:
        values = np.asarray(given, dtype=object)  # NumPy turned the numbers beside the text into text
    if values.dtype.kind not in "biuf":
        _refuse_values(values, name)
    return np.asarray(values)


def _ragged(X: Any) -> str:
    lengths = [length_hint(row, 1) for row in X]
    for row, length in enumerate(lengths):
        if length != lengths[0]:
            return f"row {row} has {length} values, row 0 has {lengths[0]}"
    return "each entry must be one number"


def _column_values(column: Any) -> Any:
    """Return the values of a column of a frame as an array; anything else as it is."""
    if not hasattr(column, "to_numpy"):
        return column
    import narwhals as nw

    series = nw.from_native(column, pass_through=True, allow_series=True)
    return series.to_numpy() if isinstance(series, nw.Series) else column


def _refuse_values(values: Array, name: str) -> NoReturn:
    """Raise an error that names the first value that is not a number."""
    for place, value in np.ndenumerate(values):
        if value is None or type(value).__name__ == "NAType":  # pandas.NA
            raise _unusable(f"a missing value ({value})", name, place)
        if not is_number(value) and not isinstance(value, (bool, np.bool_)):
            shown = value.item() if isinstance(value, np.generic) else value
            where = ", column ".join(map(str, place))
            raise TypeError(
                f"{name} holds {shown!r} ({type(shown).__name__}) in row {where}; encode it as numbers "
                "first: real numbers, and times as seconds"
            )
    raise TypeError(f"{name} has type {values.dtype}, which is not numeric; convert it to numbers first")


def _unusable(what: str, name: str, place: Sequence[int], names: list[str] | None = None) -> RowError:
    """Make an error that names the row of an entry, and its column if it is one of a table."""
    row, *columns = map(int, place)
    column = names[columns[0]] if names else None
    where = "".join(f", column {number}" for number in columns) + (f" ({column!r})" if names else "")
    text = "{name} has {what} in {row}{where}"
    return RowError(text, row, column=column, hint="drop", name=name, what=what, where=where)


_GROUP = 4096  # columns; einsum's order of summation changes with the shape beyond its buffer of 8192


def as_rows(X: Any) -> Rows:
    """Convert ``X`` to rows, copied only if necessary; :func:`refuse_nonfinite` checks their values.

    float32 and float64 keep their type and memory; float16 becomes float32; integers and booleans become
    float64. An error names the first bad row, and what to do.

    Examples
    --------
    >>> as_rows([[1, 2], [3, 4]])
    array([[1., 2.],
           [3., 4.]])
    """
    if sparse.issparse(X) and X.ndim == 2:
        rows = X if isinstance(X, sparse.csr_array) else sparse.csr_array(X)
        if not rows.has_canonical_format:
            rows = rows.copy()
            rows.sum_duplicates()
    else:
        rows = _frame_rows(X) if is_frame(X) else _numeric(X, "X", 2)
    if rows.shape[1] == 0:
        raise ValueError(f"X is empty: it has shape {rows.shape}; at least one column is needed")
    return _as_floats(rows)


def as_column(values: Any, n_rows: int, name: str) -> Array:
    """Convert labels, weights or ids to a numeric array of one finite value per row, copied if necessary."""
    column = _numeric(values, name, 1)
    if len(column) != n_rows:
        raise ValueError(f"{name} has {len(column)} values for {n_rows} rows of X; their lengths must agree")
    if column.dtype.kind == "f":
        if column.dtype.itemsize > 8:  # short ones are kept as they are
            column = _as_floats(column)
        refuse_nonfinite(column, name)
    return column


def weighted_quantiles(values: Array, weights: Array | None, shares: Sequence[float]) -> Array:
    """Find the smallest values with at least a share of the weight up to them."""
    order = np.argsort(values, kind="stable")
    reached = np.cumsum(np.ones(len(order)) if weights is None else weights[order])
    places = np.searchsorted(reached, reached[-1] * (1 - 1e-12) * np.array(shares))
    return values[order[places.clip(max=len(order) - 1)]]


def dense_block(rows: Rows, chunk: slice) -> Rows:
    """Return consecutive rows in C order and aligned: a view if they already are; sparse ones as they are.

    In C order a row's products are always summed in the same order, whatever its position.
    """
    block = rows[chunk]
    if sparse.issparse(block) or (block.flags.c_contiguous and block.flags.aligned):
        return block
    return np.require(block, requirements=["C", "A"])


def take_rows(rows: Rows, which: Any) -> Rows:
    """Copy the rows numbered ``which``, as fast as their layout allows; of a slice, return a view.

    ``take`` is many times faster than indexing, but copies all of an array that is not in C order first.
    """
    if isinstance(which, slice) or sparse.issparse(rows) or not rows.flags.c_contiguous:
        return rows[which]
    return rows.take(which, axis=0)


def to_dense(rows: Rows) -> Array:
    """Return an array, sparse or not, as a dense one."""
    return rows.toarray() if sparse.issparse(rows) else rows


def append_ones(rows: Rows, append: bool) -> Rows:
    """Append a column of ones if ``append``; the result is float64."""
    ones = np.ones((rows.shape[0], int(append)))
    return sparse.hstack([rows, ones], format="csr") if sparse.issparse(rows) else np.hstack([rows, ones])


def scratch_rows(rows: Rows) -> int:
    """Return how many rows to copy into C order at a time, 4 MiB of them, if they are not in it."""
    if sparse.issparse(rows):
        return rows_per_chunk(16 * rows.nnz // max(1, rows.shape[0]))
    if rows.flags.c_contiguous:
        return rows_per_chunk(1)  # nothing is copied
    return rows_per_chunk(rows.dtype.itemsize * rows.shape[1])


def row_products(block: Array, other: Array) -> Array:
    """Sum the products of each row of a dense block with ``other``: (d,), or (b, d) row by row.

    BLAS is not used, as its sums depend on a row's position: equal rows must have equal losses, in every
    grouping. This costs no more. Wide rows are summed in fixed groups of columns, which einsum sums at once.
    """
    subscripts = "ij,j->i" if other.ndim == 1 else "ij,ij->i"
    if block.shape[1] <= _GROUP:
        return np.einsum(subscripts, block, other)
    groups = [slice(start, start + _GROUP) for start in range(0, block.shape[1], _GROUP)]
    return reduce(add, (np.einsum(subscripts, block[:, group], other[..., group]) for group in groups))


def row_norms(rows: Rows) -> Array:
    """Compute the Euclidean norm of each row, also if its square would overflow or underflow, in one pass."""
    safe = np.finfo(rows.dtype).tiny ** 0.5 * 1e3  # below, squares lose digits

    def work(chunk: slice) -> list[Array]:
        block = dense_block(rows, chunk)
        is_sparse = sparse.issparse(block)
        with np.errstate(all="ignore"):
            squares = np.ravel(block.power(2).sum(axis=1)) if is_sparse else row_products(block, block)
            norms = np.sqrt(squares)
            unsafe = np.flatnonzero(~((norms > safe) & np.isfinite(norms)))
            norms[unsafe] = np.hypot.reduce(to_dense(block[unsafe]), axis=1)
        return [norms]

    return join_chunks(work, rows.shape[0], rows_per_chunk(rows.shape[1] * rows.dtype.itemsize))[0]


def refuse_nonfinite(rows: Rows, name: str = "X", names: list[str] | None = None) -> None:
    """Raise a ValueError that names the first row, or entry of a column, with NaN or infinity."""
    if sparse.issparse(rows) and np.isfinite(rows.data).all():
        return

    def work(chunk: slice) -> None:
        block = rows[chunk]
        with np.errstate(over="ignore", invalid="ignore"):
            if np.isfinite(block.sum()):  # one addition per value: twice as fast as testing each
                return
        bad = np.argwhere(~np.isfinite(to_dense(block)))
        if len(bad):
            value = block[tuple(bad[0])]
            raise _unusable("NaN" if np.isnan(value) else str(value), name, bad[0], names).moved(chunk.start)

    for_each_chunk(work, rows.shape[0], rows_per_chunk(rows.shape[1] if rows.ndim > 1 else 1))


def _float_type(dtype: np.dtype[Any]) -> np.dtype[Any]:
    if dtype.kind not in "biuf":
        raise TypeError(f"X has type {dtype}, which is not numeric; encode it as numbers first")
    return np.dtype(np.float32 if dtype.kind == "f" and dtype.itemsize <= 4 else np.float64)


def _as_floats(values: Rows) -> Rows:
    with np.errstate(over="ignore"):  # a long double may become infinite, which is refused
        return values.astype(_float_type(values.dtype), copy=False)


def refuse_first(wrong: Array, values: Array, text: str) -> None:
    """Raise a RowError with the first of the values that is wrong, if there is one."""
    if wrong.any():
        row = int(wrong.argmax())
        raise RowError(text, row, value=values[row])


def read_only(array: Rows) -> Rows:
    """Return a view through which the array cannot be changed."""
    if not isinstance(array, np.ndarray):  # three times as fast as to ask whether it is sparse
        parts = tuple(map(read_only, (array.data, array.indices, array.indptr)))
        return sparse.csr_array(parts, shape=array.shape)
    view = array.view()
    view.flags.writeable = False
    return view


def is_number(value: Any) -> bool:
    """Return whether a value is a real number, other than True and False."""
    return isinstance(value, (int, float, np.integer, np.floating)) and not isinstance(value, bool)


def is_whole(value: Any) -> bool:
    """Return whether a value is an integer, other than True and False."""
    return isinstance(value, (int, np.integer)) and not isinstance(value, bool)


def check_range(name: str, number: Any, least: float, most: float, expected: str) -> float:
    """Return a number within two bounds as a float; refuse anything else, as it is not what is expected."""
    if not (is_number(number) and least <= number <= most):
        raise ValueError(f"{name}={number!r} must be {expected}")
    return float(number)


def check_nonnegative(name: str, number: Any) -> float:
    """Return a finite number of at least zero as a float; refuse anything else."""
    return check_range(name, number, 0, LARGEST, "zero or a positive finite number")


def check_count(name: str, number: Any, least: int = 1) -> int:
    """Return a whole number of at least ``least`` as an int; refuse anything else."""
    if not is_whole(number) or number < least:
        raise ValueError(f"{name}={number!r} must be a whole number, {least} or more")
    return int(number)


def check_flag(name: str, flag: Any) -> bool:
    """Return True or False as a bool; refuse anything else."""
    if not isinstance(flag, (bool, np.bool_)):
        raise TypeError(f"{name}={flag!r} must be True or False")
    return bool(flag)


def generator(random_state: Any) -> np.random.Generator:
    """Convert None, a seed, a Generator or scikit-learn's RandomState to a Generator."""
    is_seed = random_state is None or (is_whole(random_state) and random_state >= 0)
    if isinstance(random_state, np.random.RandomState):
        random_state = random_state.randint(0, 2**31, size=4)
    elif not (is_seed or isinstance(random_state, np.random.Generator)):
        raise ValueError(
            f"random_state={random_state!r} must be None, a seed of 0 or more, or a NumPy random generator"
        )
    return np.random.default_rng(random_state)


def spawn(rng: np.random.Generator, n: int) -> list[np.random.Generator]:
    """Make ``n`` independent generators."""
    return list(map(np.random.default_rng, rng.integers(0, 2**63, size=(n, 2))))


def draw_rows(steps: Array, n: int, rng: np.random.Generator) -> Array:
    """Draw n rows with replacement; ``steps`` are the cumulative sums of their weights."""
    picks = np.searchsorted(steps, rng.random(n) * steps[-1], side="right")
    return np.minimum(picks, np.searchsorted(steps, steps[-1]))  # rounding must not lead beyond the last


def draw_distinct_rows(weights: Array, n: int, rng: np.random.Generator) -> Array:
    """Draw n rows by weight, without replacement, or as many as have weight."""
    heavy = np.flatnonzero(weights > 0)
    share = weights[heavy] / weights[heavy].sum()
    return rng.choice(heavy, size=min(n, heavy.size), replace=False, p=share)
