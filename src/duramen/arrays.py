"""Rows: the one form in which the library handles data.

Rows are a two-dimensional float32 or float64 NumPy array in any memory order,
or a CSR array. Lists, frames, integers and other sparse formats are converted
here, once; an array that is already in this form is viewed, never copied.
"""

from __future__ import annotations

import sys
from typing import Any, NoReturn, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from duramen.errors import RowError
from duramen.parallel import for_each_chunk, rows_per_chunk


def is_frame(data: Any) -> bool:
    """Return whether ``data`` is a data frame or an Arrow table, lazy or not."""
    kind = type(data)
    return hasattr(kind, "columns") and (hasattr(kind, "iloc") or hasattr(kind, "schema"))


def as_frame(data: Any) -> Any:
    """Return a data frame or Arrow table as a narwhals frame."""
    import narwhals as nw  # imported here, as that takes 50 ms

    if type(data).__name__ == "RecordBatch":
        data = sys.modules["pyarrow"].Table.from_batches([data])
    return nw.from_native(_with_distinct_names(data))


def _with_distinct_names(data: Any) -> Any:
    """Rename the columns of a pandas frame or Arrow table if two share a name, which narwhals refuses."""
    if not (hasattr(data, "set_axis") or hasattr(data, "rename_columns")):
        return data
    names = column_names(data)
    if len(set(names)) == len(names):
        return data
    numbers = [str(position) for position in range(len(names))]
    return data.set_axis(numbers, axis=1) if hasattr(data, "set_axis") else data.rename_columns(numbers)


def column_names(frame: Any) -> list[str]:
    """List the names of a frame's columns, as text."""
    names = frame.column_names if hasattr(type(frame), "column_names") else frame.columns
    return [str(name) for name in names]


def _frame_rows(data: Any) -> NDArray[Any]:
    """Copy a frame's columns into one (n, d) float array.

    float32 is kept where every column fits in it; otherwise float64. A pandas
    frame that already is one block of floats is viewed, not copied.
    """
    frame = as_frame(data)
    if not hasattr(frame, "iter_columns"):
        collect = "collect" if hasattr(data, "collect") else "compute"
        raise TypeError(f"X is a lazy frame; call .{collect}() on it first")
    if set(map(str, getattr(data, "dtypes", ()))) in ({"float32"}, {"float64"}):
        return np.asarray(data)
    pairs = zip(column_names(data), frame.iter_columns(), strict=True)
    columns = [numeric_column(column, f"X, column {name!r},") for name, column in pairs]
    if not columns:
        return np.empty((len(frame), 0))
    shared = np.result_type(*(column.dtype for column in columns))
    rows = np.empty((len(frame), len(columns)), dtype=_float_type(shared, "X"))
    for position, column in enumerate(columns):
        rows[:, position] = column
    return rows


def numeric_column(column: Any, name: str, n_columns: int = 1) -> NDArray[Any]:
    """Read one column or sequence as a numeric array; missing values become NaN.

    A masked value, or anything but numbers and booleans, is refused with its row; ``n_columns``
    above 1 means that the column is a raveled table.
    """
    if isinstance(column, np.ma.MaskedArray):
        missing = np.flatnonzero(np.ma.getmaskarray(column))
        if missing.size:
            row = missing[0] // n_columns
            raise RowError("{name} has a masked value in {row}", row, hint="drop", name=name)
    values = _as_array(column, name)
    if values.dtype.kind not in "biuf":
        _refuse_values(values, name, n_columns)
    return values


def _as_array(column: Any, name: str) -> NDArray[Any]:
    series = _as_series(column)
    try:
        values = np.asarray(column if series is None else series.to_numpy())
    except Exception as error:
        ragged = isinstance(error, ValueError) and isinstance(column, (list, tuple))
        if ragged:
            problem = "must hold one number per row; its entries have different lengths"
            raise ValueError(f"{name} {problem}") from None
        raise TypeError(f"{name} cannot be read as numbers: {error}") from error
    if values.ndim != 1 and series is not None:
        raise TypeError(
            f"{name} has several values per row (type {series.dtype}); give each a column of its own"
        )
    return values


def _as_series(column: Any) -> Any:
    """Return a column of a frame as a narwhals series, and None for anything else."""
    if isinstance(column, np.ndarray) or not hasattr(column, "to_numpy"):
        return None
    import narwhals as nw

    series = nw.from_native(column, pass_through=True, allow_series=True)
    return series if isinstance(series, nw.Series) else None


def _refuse_values(values: NDArray[Any], name: str, n_columns: int) -> NoReturn:
    """Raise an error that names the first value that is not a number."""
    way_out = "encode it as numbers first"
    if values.dtype.kind in "Mm":
        way_out = "turn times into numbers first, for instance seconds"
    if values.dtype.kind == "c":
        way_out = "pass real numbers"
    for position, value in enumerate(values.ravel()):
        row, place = position // n_columns, f", column {position % n_columns}" if n_columns > 1 else ""
        if value is None or type(value).__name__ == "NAType":  # pandas.NA
            text = "{name} has a missing value ({value}) in {row}{place}"
            raise RowError(text, row, hint="drop", name=name, value=value, place=place)
        if not isinstance(value, (bool, int, float, np.integer, np.floating, np.bool_)):
            shown = value.item() if isinstance(value, np.generic) else value
            raise TypeError(f"{name} holds {shown!r} ({type(shown).__name__}) in row {row}{place}; {way_out}")
    raise TypeError(f"{name} has type {values.dtype}, which is not numeric; convert it to numbers first")


Array: TypeAlias = NDArray[Any]
Rows: TypeAlias = Any  # Array | sparse.csr_array; SciPy carries no types

_GROUP = 4096  # columns; einsum's order of summation changes with the shape beyond its buffer of 8192


def as_rows(X: Any, *, check_values: bool = True, name: str = "X") -> Rows:
    """Convert ``X`` to rows: checked, and copied only if necessary.

    Parameters
    ----------
    X : array, list of lists, data frame, Arrow table, or sparse matrix
        float32 and float64 keep their type and memory; float16 becomes float32;
        integers and booleans become float64.
    check_values : bool
        Also refuse NaN and infinity, which takes one pass over the data, and empty data.
    name : str
        What to call it in messages.

    Raises
    ------
    TypeError, ValueError
        The message names the first bad row, and what to do.

    Examples
    --------
    >>> as_rows([[1, 2], [3, 4]])
    array([[1., 2.],
           [3., 4.]])
    """
    names = None
    if sparse.issparse(X):
        rows = _csr(X)
    elif is_frame(X):
        rows, names = _frame_rows(X), column_names(X)
    else:
        rows = _dense(X, name)
    if rows.shape[1] == 0 or (check_values and rows.shape[0] == 0):
        raise ValueError(
            f"{name} is empty: it has shape {rows.shape}; at least one row and one column are needed"
        )
    if check_values:
        refuse_nonfinite(rows, name, names)
    return rows


def as_column(values: Any, n_rows: int, name: str) -> Array:
    """Convert labels, weights or ids to a numeric array of one finite value per row, copied if necessary."""
    column = numeric_column(values, name)
    if column.ndim != 1:
        raise ValueError(f"{name} must have one value per row, shape ({n_rows},); found shape {column.shape}")
    if len(column) != n_rows:
        raise ValueError(f"{name} has {len(column)} values for {n_rows} rows of X; their lengths must agree")
    if column.dtype.kind == "f":
        if column.dtype.itemsize > 8:
            with np.errstate(over="ignore"):
                column = column.astype(np.float64)
        bad = np.flatnonzero(~np.isfinite(column))
        if bad.size:
            _refuse_value(name, column[bad[0]], int(bad[0]))
    return column


def dense_block(rows: Array, chunk: slice) -> Array:
    """Return consecutive rows in C order and aligned: a view if they already are.

    In C order a row's products are always summed in the same order, so that
    its loss is the same, bit for bit, at any position.
    """
    block = rows[chunk]
    if block.flags.c_contiguous and block.flags.aligned:
        return block
    return np.require(block, requirements=["C", "A"])


def take_rows(rows: Rows, which: Array) -> Rows:
    """Copy the rows numbered ``which``, as fast as their layout allows.

    ``take`` is many times faster than indexing, but copies all of an array that is not in C order first.
    """
    if sparse.issparse(rows) or not rows.flags.c_contiguous:
        return rows[which]
    return rows.take(which, axis=0)


def to_dense(rows: Rows) -> Array:
    """Return an array, sparse or not, as a dense one."""
    return np.asarray(rows.toarray() if sparse.issparse(rows) else rows)


def scratch_rows(rows: Rows) -> int:
    """Return how many rows to copy into C order at a time, 4 MiB of them, if they are not in it."""
    if sparse.issparse(rows):
        return rows_per_chunk(16 * rows.nnz // max(1, rows.shape[0]))
    if rows.flags.c_contiguous:
        return rows_per_chunk(1)  # nothing is copied
    return rows_per_chunk(rows.dtype.itemsize * rows.shape[1])


def row_products(block: Array, other: Array) -> Array:
    """Sum the products of each row of a dense block with ``other``: (d,), or (b, d) row by row.

    BLAS is not used, as its sums depend on a row's position: equal rows must have
    equal losses, in every grouping. This costs no more. Wide rows are summed in
    fixed groups of columns, which einsum sums at once.
    """
    subscripts = "ij,j->i" if other.ndim == 1 else "ij,ij->i"
    if block.shape[1] <= _GROUP:
        return np.einsum(subscripts, block, other)
    total = np.einsum(subscripts, block[:, :_GROUP], other[..., :_GROUP])
    for start in range(_GROUP, block.shape[1], _GROUP):
        group = slice(start, start + _GROUP)
        total += np.einsum(subscripts, block[:, group], other[..., group])
    return total


def row_norms(rows: Rows) -> Array:
    """Compute the Euclidean norm of each row, also if its square would overflow or underflow.

    Cost: one pass; scratch memory is one chunk.
    """
    norms = np.empty(rows.shape[0], dtype=rows.dtype)
    safe = np.finfo(rows.dtype).tiny ** 0.5 * 1e3  # below, squares lose digits

    def work(chunk: slice) -> None:
        block = rows[chunk] if sparse.issparse(rows) else dense_block(rows, chunk)
        with np.errstate(over="ignore", under="ignore", invalid="ignore"):
            norms[chunk] = np.sqrt(_row_squares(block))
            unsafe = np.flatnonzero(~((norms[chunk] > safe) & np.isfinite(norms[chunk])))
            if unsafe.size:
                norms[chunk.start + unsafe] = _scaled_norms(block[unsafe])

    for_each_chunk(work, rows.shape[0], rows_per_chunk(rows.shape[1] * rows.dtype.itemsize))
    return norms


def _row_squares(block: Rows) -> Array:
    if sparse.issparse(block):
        return np.asarray(block.power(2).sum(axis=1)).ravel()
    return row_products(block, block)


def _scaled_norms(block: Rows) -> Array:
    """Compute norms, scaled by the largest value of each row; ``block`` is overwritten."""
    largest = abs(block).max(axis=1)
    if sparse.issparse(block):
        largest = largest.toarray().ravel()
    scale = np.where((largest > 0) & np.isfinite(largest), largest, 1)
    if sparse.issparse(block):
        block.data /= np.repeat(scale, np.diff(block.indptr))
    else:
        block /= scale[:, None]
    return np.sqrt(_row_squares(block)) * scale


def refuse_nonfinite(rows: Rows, name: str = "X", names: list[str] | None = None) -> None:
    """Raise a ValueError that names the first row with NaN or infinity, if there is one."""

    def work(chunk: slice) -> None:
        block = rows[chunk]
        with np.errstate(over="ignore", invalid="ignore"):
            if np.isfinite(block.sum()):  # one addition per value: twice as fast as testing each
                return
        bad = np.argwhere(~np.isfinite(block))
        if len(bad):
            row, column = bad[0].tolist()
            _refuse_value(name, block[row, column], chunk.start + row, column, names)

    if not sparse.issparse(rows):
        for_each_chunk(work, rows.shape[0], rows_per_chunk(rows.shape[1]))
        return
    bad = np.flatnonzero(~np.isfinite(rows.data))
    if bad.size:
        row = int(np.searchsorted(rows.indptr, bad[0], side="right")) - 1
        _refuse_value(name, rows.data[bad[0]], row, int(rows.indices[bad[0]]), names)


def _refuse_value(
    name: str, value: Any, row: int, column: int | None = None, names: list[str] | None = None
) -> NoReturn:
    place = "" if column is None else f", column {column}"
    raise RowError(
        "{name} has {value} in {row}{place}",
        row,
        hint="drop",
        column=names[column] if names and column is not None else column,
        name=name,
        value="NaN" if np.isnan(value) else str(value),
        place=f"{place} ({names[column]!r})" if names and column is not None else place,
    )


def _csr(X: Any) -> Rows:
    if X.ndim != 2:
        raise ValueError(
            f"X must be two-dimensional, rows by columns; found a sparse array of shape {X.shape}"
        )
    rows = X if isinstance(X, sparse.csr_array) else sparse.csr_array(X)
    if not rows.has_canonical_format:
        rows = rows.copy()
        rows.sum_duplicates()
    dtype = _float_type(rows.dtype, "X")
    return rows if rows.dtype == dtype else rows.astype(dtype)


def _dense(X: Any, name: str) -> Array:
    try:
        array = np.asanyarray(X)
    except ValueError as error:
        if not isinstance(X, (list, tuple)):
            raise
        raise ValueError(f"{name} has rows of different lengths; {_ragged(X)}") from error
    if array.ndim != 2:
        hint = (
            f"; one row is {name}[None, :], one column {name}[:, None]"
            if array.ndim == 1 and array.size
            else ""
        )
        raise ValueError(f"{name} must be two-dimensional, rows by columns; found shape {array.shape}{hint}")
    if array.dtype.kind in "US" and not isinstance(X, np.ndarray):
        array = np.asarray(X, dtype=object)  # NumPy turned the numbers beside the text into text
    if isinstance(array, np.ma.MaskedArray) or array.dtype.kind not in "biuf":
        numeric_column(array.ravel(), name, n_columns=array.shape[1])
    array = np.asarray(array)
    dtype = _float_type(array.dtype, name)
    with np.errstate(over="ignore"):  # a long double may become infinite, which is refused
        return array if array.dtype == dtype else array.astype(dtype)


def _float_type(dtype: np.dtype[Any], name: str) -> np.dtype[Any]:
    if dtype.kind not in "biuf":
        raise TypeError(f"{name} has type {dtype}, which is not numeric; encode it as numbers first")
    return np.dtype(np.float32 if dtype.kind == "f" and dtype.itemsize <= 4 else np.float64)


def _ragged(X: Any) -> str:
    lengths = [len(row) if hasattr(row, "__len__") else None for row in X]
    first = next((row for row, length in enumerate(lengths) if length != lengths[0]), None)
    if first is None:
        return "each entry must be one number"
    return f"row {first} has {lengths[first]} values, row 0 has {lengths[0]}"


def read_only(array: Array) -> Array:
    """Return a view through which the array cannot be changed."""
    view = array.view()
    view.flags.writeable = False
    return view


def is_number(value: Any) -> bool:
    """Return whether a value is a real number, other than True and False."""
    return isinstance(value, (int, float, np.integer, np.floating)) and not isinstance(value, bool)


def is_whole(value: Any) -> bool:
    """Return whether a value is an integer, other than True and False."""
    return isinstance(value, (int, np.integer)) and not isinstance(value, bool)


def check_nonnegative(name: str, number: Any) -> None:
    """Refuse anything but a finite number of at least zero."""
    if not (is_number(number) and 0 <= number < np.inf):
        raise ValueError(f"{name}={number!r} must be zero or a positive finite number")


def check_count(name: str, number: Any, least: int = 1) -> int:
    """Return a whole number of at least ``least`` as an int; refuse anything else."""
    if not is_whole(number) or number < least:
        raise ValueError(f"{name}={number!r} must be a whole number, {least} or more")
    return int(number)


def generator(random_state: Any) -> np.random.Generator:
    """Convert None, a seed, a Generator or scikit-learn's RandomState to a Generator.

    Examples
    --------
    >>> int(generator(7).integers(100)) == int(generator(7).integers(100))
    True
    """
    if isinstance(random_state, np.random.Generator):
        return random_state
    if isinstance(random_state, np.random.RandomState):
        return np.random.default_rng(random_state.randint(0, 2**31, size=4))
    if random_state is not None and not (is_whole(random_state) and random_state >= 0):
        raise ValueError(
            f"random_state={random_state!r} must be None, a seed of 0 or more, or a NumPy random generator"
        )
    return np.random.default_rng(random_state)


def spawn(rng: np.random.Generator, n: int) -> list[np.random.Generator]:
    """Make ``n`` independent generators."""
    return [np.random.default_rng(seed) for seed in rng.integers(0, 2**63, size=(n, 2))]


def draw_rows(steps: Array, n: int, rng: np.random.Generator) -> Array:
    """Draw n rows with replacement; ``steps`` are the cumulative sums of their weights."""
    picks = np.searchsorted(steps, rng.random(n) * steps[-1], side="right")
    return np.minimum(picks, np.searchsorted(steps, steps[-1]))  # rounding must not lead beyond the last


def draw_distinct_rows(weights: Array, n: int, rng: np.random.Generator) -> Array:
    """Draw n rows by weight, without replacement, or as many as have weight."""
    heavy = np.flatnonzero(weights > 0)
    share = weights[heavy] / weights[heavy].sum()
    return rng.choice(heavy, size=min(n, heavy.size), replace=False, p=share)
