"""Data frames, read by their own methods: pandas, polars, Arrow.

Nothing is imported here. A frame is recognised by what it offers, so the
library needs none of these packages and works with whichever is there.
"""

from __future__ import annotations

from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

__all__ = ["column_names", "frame_rows", "is_frame", "numeric_column"]


def is_frame(data: Any) -> bool:
    """Tell whether ``data`` is a data frame or an Arrow table, or promises to become one."""
    if _is_lazy(data):
        return True
    return hasattr(data, "columns") and any(
        hasattr(data, its) for its in ("iloc", "get_columns", "column_names")
    )


def column_names(frame: Any) -> list[str]:
    """List the names of a frame's columns, as text."""
    return [str(name) for name in getattr(frame, "column_names", None) or frame.columns]


def frame_rows(frame: Any) -> NDArray[Any]:
    """Gather a frame's columns in one (n, d) float array.

    float32 is kept where every column fits in it; otherwise float64. A pandas
    frame that already is one block of floats is viewed, not copied.
    """
    if _is_lazy(frame):
        raise TypeError("X is a lazy frame; call .collect() on it first")
    names = column_names(frame)
    block = _pandas_block(frame)
    if block is not None:
        return block
    named = zip(names, _columns(frame), strict=True)
    columns = [numeric_column(column, f"X, column {name!r},") for name, column in named]
    if not columns:
        return np.empty((len(frame), 0))
    shared = np.result_type(*(column.dtype for column in columns))
    small = shared.kind == "f" and shared.itemsize <= 4
    rows = np.empty((len(columns[0]), len(columns)), dtype=np.float32 if small else np.float64)
    for position, column in enumerate(columns):
        rows[:, position] = column
    return rows


def numeric_column(column: Any, name: str, n_columns: int = 1) -> NDArray[Any]:
    """Read one column or sequence as a numeric array; missing values become NaN.

    ``n_columns`` above 1 says that it is a table written row after row, for the
    row number in the message.

    Raises
    ------
    TypeError, ValueError
        If it holds a masked value, or anything but numbers and booleans; the
        message names the first such row.
    """
    if isinstance(column, np.ma.MaskedArray):
        missing = np.flatnonzero(np.ma.getmaskarray(column))
        if missing.size:
            row = missing[0] // n_columns
            raise ValueError(f"{name} has a masked value in row {row}; fill or drop such rows first")
    values = _as_array(column, name)
    dtype: Any = getattr(column, "dtype", None)
    if values.dtype == object and getattr(dtype, "kind", "O") in "biuf":  # pandas' nullable, with gaps
        kept = dtype.numpy_dtype if dtype.kind == "f" else np.dtype(np.float64)
        values = column.to_numpy(dtype=kept, na_value=np.nan)
    if values.dtype.kind not in "biuf":
        _refuse_values(values, name, n_columns)
    return values


def _is_lazy(data: Any) -> bool:
    return hasattr(data, "collect") and hasattr(data, "collect_schema") and not hasattr(data, "get_columns")


def _columns(frame: Any) -> list[Any]:
    if hasattr(frame, "iloc"):  # pandas, where two columns may share a name
        return [frame.iloc[:, position] for position in range(frame.shape[1])]
    if hasattr(frame, "get_columns"):  # polars
        return list(frame.get_columns())
    return list(frame.columns)  # Arrow


def _pandas_block(frame: Any) -> NDArray[Any] | None:
    """Return the values of a pandas frame whose columns all have one NumPy float type."""
    if not hasattr(frame, "iloc"):
        return None
    kinds = set(frame.dtypes)
    if len(kinds) != 1 or kinds.pop() not in (np.dtype(np.float32), np.dtype(np.float64)):
        return None
    return np.asarray(frame)


def _as_array(column: Any, name: str) -> NDArray[Any]:
    try:
        values = np.asarray(column)
    except ValueError:
        raise  # entries of different lengths: the caller knows what to call them
    except Exception as error:
        raise TypeError(f"{name} cannot be read as numbers: {error}") from error
    if values.ndim != 1 and hasattr(column, "dtype") and not isinstance(column, np.ndarray):
        raise TypeError(
            f"{name} has several values a row (type {column.dtype}); give each a column of its own"
        )
    return values


def _refuse_values(values: NDArray[Any], name: str, n_columns: int) -> NoReturn:
    """Raise an error that names the first value that is not a number."""
    way_out = "encode it as numbers first"
    if values.dtype.kind in "Mm":
        way_out = "turn times into numbers first, for instance seconds"
    if values.dtype.kind == "c":
        way_out = "pass real numbers"
    for position, value in enumerate(values.ravel()):
        place = f"row {position // n_columns}" + (f", column {position % n_columns}" if n_columns > 1 else "")
        if value is None:
            raise ValueError(f"{name} has a missing value (None) in {place}; fill or drop such rows first")
        if not isinstance(value, (bool, int, float, np.integer, np.floating, np.bool_)):
            shown = value.item() if isinstance(value, np.generic) else value
            raise TypeError(f"{name} holds {shown!r} ({type(shown).__name__}) in {place}; {way_out}")
    raise TypeError(
        f"{name} has type {values.dtype}, which is not a numeric one; convert it to numbers first"
    )
