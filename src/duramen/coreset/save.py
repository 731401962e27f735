"""Coresets in Parquet files: replaced atomically when written, checked when read, without pickle."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import fields
from importlib.metadata import version
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from scipy import sparse

from duramen import losses
from duramen.arrays import Array, Rows
from duramen.coreset.display import OURS, feature_names, short_repr
from duramen.extras import needed
from duramen.files import MismatchError, checksum, json_types, reading, replacing
from duramen.losses import Loss
from duramen.losses.base import Anchor, check_loss
from duramen.losses.bregman import Divergence, divergence_of
from duramen.points import WeightedPoints

Json: TypeAlias = dict[str, Any]  # names and values of JSON types

FORMAT = 1
_KEY = b"duramen"
_KEY_0_1 = b"duramen-encoding"  # of the metadata that the command line of version 0.1 wrote
_WAY_OUT = "save the coreset again"
_MAGIC = b"PAR1"  # how a Parquet file begins and ends
_BUILT_IN: dict[str, type[Loss]] = {
    name: kind for name, kind in vars(losses).items() if isinstance(kind, type) and issubclass(kind, Loss)
}
_COLUMNS = {  # beside the features, without the prefix: the fields of a coreset, in the order of the checksum
    "y": "y",
    "weight": "weights",
    "id": "ids",
    "suspected": "suspected",
    "own_weight": "own_weights",
    "inclusion": "inclusion",
    "group": "groups",
}
_SCALARS = {  # the fields beside rows, loss and anchor, with their types
    "threshold": float,
    "n_points": int,
    "n_suspected": int,
    "n_outliers": float,
    "sampler": str,
    "calibrated": bool,
    "seed": int,
}


def state_of(thing: Any, built_in: Mapping[str, type] = _BUILT_IN) -> Json:
    """Return a loss or a sampler in JSON types: a built-in one completely, of a custom one only its repr."""
    name = type(thing).__name__
    if built_in.get(name) is type(thing):
        with suppress(ValueError):
            names = (one.name for one in fields(thing) if one.init)  # type: ignore[arg-type]
            return {"class": name, "fields": {key: _field_state(getattr(thing, key)) for key in names}}
    return {"class": None, "repr": short_repr(thing)}


def _field_state(value: Any) -> Any:
    """Return a field of a loss in JSON types; raise ValueError for a custom divergence or loss."""
    if isinstance(value, Loss):
        state = state_of(value)
        if state["class"] is None:
            raise ValueError("a custom loss")
        return state
    if isinstance(value, np.ndarray):
        return _array_state(value)
    if not isinstance(value, Divergence):
        return value.item() if isinstance(value, np.generic) else value
    if divergence_of(value.name) != value:
        raise ValueError("a custom divergence")
    return value.name


def _field_of(state: Any) -> Any:
    """Undo :func:`_field_state`, apart from the name of a divergence."""
    if not isinstance(state, dict):
        return state
    return loss_of(state) if "class" in state else _array(state)


def loss_of(state: Json, given: Loss | None = None, how: str = "dm.load_coreset(path, loss=...)") -> Loss:
    """Restore a loss from its state, or return the one given if it is a custom loss."""
    name = state["class"]
    if name is None:
        if given is None:
            raise MismatchError(
                f"was made with a custom loss, {state['repr']}, which cannot be saved; pass it: {how}"
            )
        return given
    if name not in _BUILT_IN:
        raise ValueError(f"its loss {name!r} is unknown")
    saved = _BUILT_IN[name](**{key: _field_of(part) for key, part in state["fields"].items()})
    if given not in (None, saved):
        raise MismatchError(f"was made for {saved!r}, not for loss={given!r}; leave loss out")
    return saved


def anchor_state(anchor: Anchor) -> Json:
    """Return an anchor in JSON types, with all that was frozen in it."""
    return {
        "theta": _array_state(anchor.theta),
        "radius": anchor.radius,
        "ids": anchor.ids.tolist(),
        "frozen": {name: _array_state(part) for name, part in anchor.frozen.items()},
    }


def anchor_of(state: Json | None) -> Anchor | None:
    """Restore an anchor from its state."""
    if state is None:
        return None
    frozen = {name: _array(part) for name, part in state["frozen"].items()}
    ids = np.array(state["ids"], np.int64)
    return Anchor(_array(state["theta"]), float(state["radius"]), ids, frozen)


def _array_state(array: Array) -> Json:
    return {"shape": list(array.shape), "values": array.ravel().tolist()}


def _array(state: Json) -> Array:
    return np.array(state["values"], np.float64).reshape(state["shape"])


def write(core: Any, path: Any, metadata: Json | None) -> None:
    """Save a coreset; an existing file is replaced only when all is written."""
    pa = needed("pyarrow", "Coreset.save", "frames")
    parquet = needed("pyarrow.parquet", "Coreset.save", "frames")
    X, is_sparse = core.X, sparse.issparse(core.X)
    beside = {name: part for name, field in _COLUMNS.items() if (part := getattr(core, field)) is not None}
    scalars = {name: kind(getattr(core, name)) for name, kind in _SCALARS.items()}
    if math.isinf(core.threshold):  # which JSON cannot hold
        scalars["threshold"] = str(core.threshold)
    known = {} if core.anchor is None else core.anchor.frozen
    in_anchor = set(core.loss.freezes) <= set(known)  # what was measured, which is not saved twice
    state = {
        "format": FORMAT,
        "version": version("duramen"),
        "n_rows": len(core),
        "n_columns": core.points.n_columns,
        "sparse": is_sparse,
        "index_type": X.indices.dtype.str if is_sparse else None,
        "features": None if is_sparse else file_names(feature_names(core)),
        "types": {name: part.dtype.str for name, part in {"X": X, **beside}.items()},
        "loss": state_of(core.loss.unmeasured() if in_anchor else core.loss),
        "anchor": None if core.anchor is None else anchor_state(core.anchor),
        "columns": core.columns,
        "metadata": json_types(metadata, "this metadata"),
        **scalars,
    }
    state["crc32"] = _checksum(state, X, beside)
    if is_sparse:
        starts = pa.array(X.indptr.astype(np.int64))
        lists = ("features", X.indices), ("values", X.data)
        columns = {OURS + name: pa.LargeListArray.from_arrays(starts, pa.array(part)) for name, part in lists}
    else:
        columns = dict(zip(state["features"], map(pa.array, X.T), strict=True))
    for name, part in beside.items():  # in a dtype that every reader knows; the state has its own
        wide = np.float32 if part.dtype == np.float16 else part.dtype.newbyteorder("=")
        columns[OURS + name] = pa.array(part.astype(wide))
    schema = {_KEY: json.dumps(state, sort_keys=True, allow_nan=False)}
    with replacing(Path(path)) as file:
        # numbers that rarely repeat gain nothing from a dictionary
        table = pa.table(columns).replace_schema_metadata(schema)
        parquet.write_table(table, file, compression="zstd", use_dictionary=False)


def _checksum(state: Json, X: Rows, beside: dict[str, Array]) -> int:
    rows = [X.indptr.astype(np.int64), X.indices.astype(np.int64), X.data] if sparse.issparse(X) else [X]
    return checksum(state, [*rows, *beside.values()])


def file_names(names: list[str]) -> list[str]:
    """Make names unique, valid in a file, and different from ours.

    Examples
    --------
    >>> file_names(["age", "age", "duramen:weight", "x2"])
    ['age', 'age [1]', 'x2', 'x2 [3]']
    """
    found: dict[str, None] = {}
    for column, name in enumerate(names):
        safe = name.encode("utf-8", "replace").decode().replace("\0", "?")
        safe = f"x{column}" if not safe or safe.startswith(OURS) else safe
        while safe in found:
            safe = f"{safe} [{column}]"
        found[safe] = None
    return list(found)


def read(path: str | os.PathLike[str], loss: Loss | None) -> Json:
    """Read the fields of a coreset that :func:`write` wrote."""
    if loss is not None:
        check_loss(loss)
    pa = needed("pyarrow", "load_coreset", "frames")
    parquet = needed("pyarrow.parquet", "load_coreset", "frames")
    source = Path(path)
    raw = source.read_bytes()  # errors of the file system come first, unchanged
    if not raw.startswith(_MAGIC):
        raise ValueError(f"{source} is not a Parquet file; load_coreset reads what Coreset.save wrote")
    with reading(source, _WAY_OUT):
        # an anchor may be large, but no text in a file is larger than the file
        file = parquet.ParquetFile(pa.BufferReader(raw), thrift_string_size_limit=len(raw))
        table = file.read().combine_chunks()  # into one chunk per column
    text = (table.schema.metadata or {}).get(_KEY)
    if text is None:
        raise ValueError(
            f"{source} is a Parquet file without a coreset; load_coreset reads what Coreset.save wrote, "
            "and dm.robust_coreset builds a coreset from data"
        )
    with reading(source, _WAY_OUT, "its metadata cannot be read as JSON"):
        state = dict(json.loads(text))
        form = int(state["format"])
    if form > FORMAT:
        raise ValueError(
            f"{source}: format {form} is newer than this library reads ({FORMAT}); upgrade duramen"
        )
    with reading(source, _WAY_OUT):
        return _restore(table, state, loss)


def _restore(table: Any, state: Json, loss: Loss | None) -> Json:
    types = state["types"]
    if table.num_rows != state["n_rows"]:
        raise ValueError(f"it has {table.num_rows:,} rows where {state['n_rows']:,} were saved")
    if state["sparse"]:
        X = _sparse_rows(table, state)
    else:
        X = np.column_stack([_numbers(table, name, types["X"]) for name in state["features"]])
    found = {
        field: _numbers(table, OURS + name, types[name])
        for name, field in _COLUMNS.items()
        if name in types or name != "y"
    }
    crc32 = _checksum(state, X, found)
    points = WeightedPoints(X, found.pop("y", None), found.pop("weights"), found.pop("ids"))
    if crc32 != state["crc32"]:
        raise ValueError("its content differs from what was saved (checksum mismatch)")
    anchor, known = anchor_of(state["anchor"]), loss_of(state["loss"], loss)
    theta: Any = np.zeros(known.parameter_shape(points.n_columns) or (1,))
    if anchor is not None:
        known, theta = known.bind(anchor.frozen), anchor.theta
    try:
        known.check_parameters(theta, points.n_columns, "the anchor's theta")
    except ValueError as error:
        raise MismatchError(f"does not fit: {error}; pass the loss that the coreset was made with") from None
    if not known.measured:
        raise ValueError(f"what {known!r} measured is missing")
    return {
        "points": points,
        **found,
        "loss": known,
        "anchor": anchor,
        "columns": state["columns"] and tuple(map(str, state["columns"])),
        "metadata": state.get("metadata", _metadata_of_0_1(table)),
        **{name: kind(state[name]) for name, kind in _SCALARS.items()},
    }


def _sparse_rows(table: Any, state: Json) -> Rows:
    indices = _numbers(table, OURS + "features", state["index_type"])
    data = _numbers(table, OURS + "values", state["types"]["X"])
    starts = np.asarray(table[OURS + "features"].chunk(0).offsets).astype(state["index_type"])
    rows = sparse.csr_array((data, indices, starts), shape=(state["n_rows"], state["n_columns"]))
    rows.check_format(full_check=True)
    return rows


def _numbers(table: Any, name: str, dtype: Any) -> Array:
    """Return a column of numbers, or of lists of them one after the other, in a dtype."""
    if name not in table.column_names:
        raise ValueError(f"its column {name!r} is missing")
    column = table[name].chunk(0)
    values = np.asarray(column.flatten() if hasattr(column, "offsets") else column)
    if column.null_count or values.dtype.kind not in "biuf":
        raise ValueError(f"its column {name!r} has missing values, or is not numeric")
    with np.errstate(over="ignore", invalid="ignore"):  # a damaged number; the checksum will reveal it
        return values.astype(np.dtype(dtype), casting="same_kind", copy=False)


def _metadata_of_0_1(table: Any) -> Json | None:
    """Read the metadata that the command line of version 0.1 wrote, with their own checksum."""
    text = table.schema.metadata.get(_KEY_0_1)
    if text is None:
        return None
    state = json.loads(text)
    if checksum(state) != state["crc32"]:
        raise ValueError("its encoding differs from what was saved (checksum mismatch)")
    return {name: state[name] for name in ("encoding", "names")}
