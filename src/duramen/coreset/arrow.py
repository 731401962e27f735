"""A coreset's rows as an Arrow table and back, bit for bit.

Every feature is a column under its own name, made unique where it is not; what
we add beside them has names that begin with "duramen:", which no feature's does.
Sparse rows are two columns of lists: which features, and their values.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import sparse

from duramen.coreset.frame import OURS, feature_names
from duramen.extras import needed
from duramen.points import WeightedPoints
from duramen.rows import Array, Rows

if TYPE_CHECKING:
    from duramen.coreset.coreset import Coreset

__all__ = ["checksum", "file_names", "row_fields", "row_state", "table_of"]

_BESIDE = {"suspected": "suspected", "own_weight": "own_weights", "inclusion": "inclusion", "group": "groups"}


def row_state(core: Coreset) -> dict[str, Any]:
    """Describe the rows in JSON's types: their number, their columns, and the type of everything."""
    is_sparse = sparse.issparse(core.X)
    return {
        "n_rows": len(core),
        "n_columns": core.points.n_columns,
        "sparse": is_sparse,
        "index_type": core.X.indices.dtype.str if is_sparse else None,
        "features": None if is_sparse else file_names(feature_names(core)),
        "types": {"X": core.X.dtype.str, **{name: part.dtype.str for name, part in _columns(core).items()}},
    }


def table_of(core: Coreset, state: dict[str, Any]) -> Any:
    """Make the table of a coreset whose :func:`row_state` is given."""
    pa = needed("pyarrow", "Coreset.save", "frames")
    if state["sparse"]:
        starts = pa.array(core.X.indptr.astype(np.int64))
        lists = {"features": core.X.indices, "values": core.X.data}
        table = {
            OURS + name: pa.LargeListArray.from_arrays(starts, pa.array(part)) for name, part in lists.items()
        }
    else:
        table = {name: pa.array(core.X[:, place].copy()) for place, name in enumerate(state["features"])}
    table |= {OURS + name: pa.array(_storable(part)) for name, part in _columns(core).items()}
    return pa.table(table)


def row_fields(table: Any, state: dict[str, Any]) -> dict[str, Any]:
    """Undo :func:`table_of`: the fields of a coreset that have one entry a row, checked.

    Raises
    ------
    ValueError, TypeError, KeyError
        If something is missing, or is not what the state says.
    """
    n, types = state["n_rows"], state["types"]
    if table.num_rows != n:
        raise ValueError(f"it has {table.num_rows:,} rows where {n:,} were saved")
    read = {name: _column(table, OURS + name, types[name]) for name in types if name != "X"}
    rows = _sparse_rows(table, state) if state["sparse"] else _dense_rows(table, state)
    points = WeightedPoints(rows, read.get("y"), read["weight"], read["id"])
    return {"points": points, **{field: read[name] for name, field in _BESIDE.items()}}


def file_names(names: list[str]) -> list[str]:
    """Make names unique, fit to be written, and unlike ours.

    Examples
    --------
    >>> file_names(["age", "age", "duramen:weight", "x2"])
    ['age', 'age [1]', 'x2', 'x2 [3]']
    """
    found: dict[str, None] = {}
    for place, name in enumerate(names):
        safe = name.encode("utf-8", "replace").decode().replace("\0", "?")
        safe = f"x{place}" if not safe or safe.startswith(OURS) else safe
        while safe in found:
            safe = f"{safe} [{place}]"
        found[safe] = None
    return list(found)


def checksum(points: WeightedPoints, beside: list[Array], text: str) -> int:
    """Sum up all that is saved in 32 bits, by which damage shows."""
    total = zlib.crc32(text.encode())
    for part in _parts(points, beside):
        little = part.astype(part.dtype.newbyteorder("<"), copy=False)
        total = zlib.crc32(np.ascontiguousarray(little).tobytes(), total)
    return total


def _parts(points: WeightedPoints, beside: list[Array]) -> Iterator[Array]:
    if sparse.issparse(points.X):
        yield points.X.indptr.astype(np.int64)
        yield points.X.indices.astype(np.int64)
        yield points.X.data
    else:
        yield points.X
    yield from (part for part in (points.y, points.weights, points.ids, *beside) if part is not None)


def _columns(core: Coreset) -> dict[str, Array]:
    """List our own columns by their names in the file, less the prefix."""
    labels = {} if core.y is None else {"y": core.y}
    beside = {name: getattr(core, field) for name, field in _BESIDE.items()}
    return {**labels, "id": core.ids, "weight": core.weights, **beside}


def _storable(part: Array) -> Array:
    """Put an array into a type that every Parquet reader knows; its own is kept in the state."""
    wide = np.float32 if part.dtype == np.float16 else part.dtype.newbyteorder("=")
    return part.astype(wide)


def _column(table: Any, name: str, dtype: str) -> Array:
    values = _flat(_arrow_column(table, name), name)
    with np.errstate(over="ignore", invalid="ignore"):  # a damaged number; the checksum will tell
        return values.astype(np.dtype(dtype), casting="same_kind", copy=False)


def _arrow_column(table: Any, name: str) -> Any:
    place = table.schema.get_field_index(name)
    if place < 0:
        raise ValueError(f"its column {name!r} is missing")
    return table.column(place)


def _flat(column: Any, name: str) -> Array:
    values = np.asarray(column)
    if column.null_count or values.dtype.kind not in "biuf":
        raise ValueError(f"its column {name!r} has gaps, or holds no numbers")
    return values


def _dense_rows(table: Any, state: dict[str, Any]) -> Array:
    features = state["features"]
    if len(features) != state["n_columns"]:
        raise ValueError(f"it names {len(features)} features where {state['n_columns']} were saved")
    rows = np.empty((state["n_rows"], len(features)), dtype=np.dtype(state["types"]["X"]))
    for place, name in enumerate(features):
        rows[:, place] = _column(table, name, state["types"]["X"])
    return rows


def _sparse_rows(table: Any, state: dict[str, Any]) -> Rows:
    lengths, indices = _lists(table, OURS + "features")
    again, values = _lists(table, OURS + "values")
    if not np.array_equal(lengths, again):
        raise ValueError("its lists of features and of values differ in length")
    starts = np.concatenate([[0], np.cumsum(lengths)])
    whole = np.dtype(state["index_type"])
    data = values.astype(np.dtype(state["types"]["X"]), casting="same_kind")
    parts = (data, indices.astype(whole, casting="same_kind"), starts.astype(whole, casting="same_kind"))
    rows = sparse.csr_array(parts, shape=(state["n_rows"], state["n_columns"]))
    rows.check_format(full_check=True)
    return rows


def _lists(table: Any, name: str) -> tuple[Array, Array]:
    """Read a column of lists: how long each is, and all their entries one after the other."""
    column = _arrow_column(table, name)
    parts = [(chunk.value_lengths(), chunk.flatten()) for chunk in column.chunks]
    lengths, entries = (
        [_flat(part, name) if len(part) else np.empty(0, dtype=np.int64) for part in side]
        for side in zip(*parts, strict=True)
    )
    return np.concatenate(lengths), np.concatenate(entries)
