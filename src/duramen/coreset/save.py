"""Coresets in Parquet files: written whole or not at all, checked when read, without pickle."""

from __future__ import annotations

import json
import math
import os
import zlib
from collections.abc import Iterator
from dataclasses import fields
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

from duramen.arrays import Array, Rows
from duramen.ball import Anchor
from duramen.coreset.coreset import Coreset
from duramen.coreset.display import OURS, feature_names
from duramen.extras import needed
from duramen.files import replacing
from duramen.losses import (
    BregmanLoss,
    HuberLoss,
    KMeansLoss,
    KMedianLoss,
    LogisticLoss,
    Loss,
    PoissonLoss,
    SmoothHingeLoss,
    SoftmaxLoss,
    SquaredLoss,
    TruthDiscoveryLoss,
)
from duramen.losses.bregman import Divergence, divergence_of
from duramen.points import WeightedPoints

__all__ = [
    "FORMAT",
    "LossMismatchError",
    "anchor_of",
    "anchor_state",
    "check_loss",
    "checksum",
    "file_names",
    "known_fields",
    "known_state",
    "load_coreset",
    "loss_of",
    "loss_state",
    "read",
    "row_fields",
    "row_state",
    "table_of",
    "write",
]


_BUILT_IN: dict[str, type[Loss]] = {
    known.__name__: known
    for known in (
        BregmanLoss,
        HuberLoss,
        KMeansLoss,
        KMedianLoss,
        LogisticLoss,
        PoissonLoss,
        SmoothHingeLoss,
        SoftmaxLoss,
        SquaredLoss,
        TruthDiscoveryLoss,
    )
}


class LossMismatchError(ValueError):
    """The loss that was given, or that none was, does not go with what was saved."""


def known_state(core: Coreset) -> dict[str, Any]:
    """Put all that a coreset knows beside its rows into JSON's types."""
    return {
        "loss": loss_state(core.loss),
        "anchor": None if core.anchor is None else anchor_state(core.anchor),
        "threshold": _number(core.threshold),
        "n_points": int(core.n_points),
        "n_suspected": int(core.n_suspected),
        "n_outliers": _number(core.n_outliers),
        "sampler": str(core.sampler),
        "calibrated": bool(core.calibrated),
        "seed": int(core.seed),
        "columns": None if core.columns is None else [str(name) for name in core.columns],
    }


def known_fields(state: dict[str, Any]) -> dict[str, Any]:
    """Undo :func:`known_state`, but for the loss and the anchor."""
    columns = state["columns"]
    return {
        "threshold": float(state["threshold"]),
        "n_points": int(state["n_points"]),
        "n_suspected": int(state["n_suspected"]),
        "n_outliers": float(state["n_outliers"]),
        "sampler": str(state["sampler"]),
        "calibrated": bool(state["calibrated"]),
        "seed": int(state["seed"]),
        "columns": None if columns is None else tuple(str(name) for name in columns),
    }


def anchor_of(state: dict[str, Any] | None) -> Anchor | None:
    """Make the anchor anew, with all that was frozen in it."""
    if state is None:
        return None
    frozen = {str(name): _array(part) for name, part in state["frozen"].items()}
    ids = np.array(state["ids"], dtype=np.int64)
    return Anchor(_array(state["theta"]), float(state["radius"]), ids, frozen)


def check_loss(given: Any) -> None:
    """Raise TypeError, with the way out, if what is given for a loss is none."""
    if given is not None and not isinstance(given, Loss):
        found = f"the class {given.__name__}; call it" if isinstance(given, type) else repr(given)
        raise TypeError(f"loss must be a Loss, such as dm.LogisticLoss(); found {found}")


def loss_of(
    state: dict[str, Any],
    given: Loss | None,
    anchor: Anchor | None,
    n_columns: int,
    how: str = "dm.load_coreset(path, loss=...)",
) -> Loss:
    """Make the loss anew, or take the one that is given where a file cannot hold it.

    Raises
    ------
    LossMismatchError
        If the loss given is another than that of the file, or one is needed.
    """
    saved = _built_in(state)
    if saved is not None and given is not None and given != saved:
        raise LossMismatchError(f"was made for {saved!r}, which loss={given!r} contradicts; leave loss out")
    problem = given if saved is None else saved
    if problem is None:
        raise LossMismatchError(
            f"was made with a loss of your own, {state['repr']}, which no file can hold; pass it: {how}"
        )
    shape = problem.parameter_shape(n_columns)
    if anchor is not None and shape is not None and anchor.theta.shape != tuple(shape):
        raise LossMismatchError(
            f"has an anchor of shape {anchor.theta.shape}; {problem!r} on {n_columns} columns needs "
            f"shape {tuple(shape)}; pass the loss that the coreset was made with"
        )
    return problem


def loss_state(loss: Loss) -> dict[str, Any]:
    """Put a loss into JSON's types: a built-in one whole, of another only its words."""
    if _BUILT_IN.get(type(loss).__name__) is type(loss):
        known = _field_state(loss)
        if None not in known.values():
            return {"class": type(loss).__name__, "fields": known}
    return {"class": None, "repr": _safe_repr(loss)}


def _field_state(loss: Any) -> dict[str, Any]:
    """List a built-in loss's fields; None for what cannot be stored: a divergence of the user's own."""
    return {one.name: _field(getattr(loss, one.name)) for one in fields(loss)}


def _field(value: Any) -> Any:
    if not isinstance(value, Divergence):
        return value.item() if isinstance(value, np.generic) else value
    try:
        return value.name if divergence_of(value.name) == value else None
    except ValueError:  # no name that is known
        return None


def _built_in(state: dict[str, Any]) -> Loss | None:
    name = state["class"]
    if name is None:
        return None
    if name not in _BUILT_IN:
        raise ValueError(f"its loss {name!r} is not known here")
    return _BUILT_IN[name](**state["fields"])


def _safe_repr(loss: Loss) -> str:
    try:
        return " ".join(repr(loss).split())[:300]
    except Exception:  # saving must not fail because of it: it is only for a message
        return type(loss).__name__


def anchor_state(anchor: Anchor) -> dict[str, Any]:
    """Put an anchor into JSON's types, with all that was frozen in it."""
    return {
        "theta": _array_state(anchor.theta),
        "radius": anchor.radius,
        "ids": anchor.ids.tolist(),
        "frozen": {name: _array_state(part) for name, part in anchor.frozen.items()},
    }


def _array_state(array: Array) -> dict[str, Any]:
    return {"shape": list(array.shape), "values": array.ravel().tolist()}


def _array(state: dict[str, Any]) -> Array:
    return np.array(state["values"], dtype=np.float64).reshape(state["shape"])


def _number(value: float) -> float | str:
    return float(value) if math.isfinite(value) else repr(float(value))


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


FORMAT = 1
_KEY = b"duramen"
_MAGIC = b"PAR1"  # how a Parquet file begins and ends


def write(core: Coreset, path: Any) -> None:
    """Save a coreset; an existing file is replaced only when all is written."""
    parquet = needed("pyarrow.parquet", "Coreset.save", "frames")
    state = {
        "format": FORMAT,
        "version": version("duramen"),
        **row_state(core),
        **known_state(core),
    }
    beside = [core.suspected, core.own_weights, core.inclusion, core.groups]
    state["crc32"] = checksum(core.points, beside, _text(state))
    table = table_of(core, state).replace_schema_metadata({_KEY: _text(state).encode()})
    with replacing(Path(path)) as file:
        # numbers that hardly repeat gain nothing by a dictionary
        parquet.write_table(table, file, compression="zstd", use_dictionary=False)


def read(path: Any, loss: Any) -> dict[str, Any]:
    """Read the fields of a coreset, or say in one ValueError what is wrong with the file."""
    check_loss(loss)
    source = Path(path)
    table = _read_table(source)
    state = _read_state(source, table)
    try:
        rows = row_fields(table, state)
        _check_sum(state, rows)
        anchor = anchor_of(state["anchor"])
        problem = loss_of(state["loss"], loss, anchor, rows["points"].n_columns)
        return {**rows, **known_fields(state), "anchor": anchor, "loss": problem}
    except LossMismatchError as error:
        raise ValueError(f"{source} {error}") from None
    except KeyError as error:
        raise _damaged(source, f"it does not say {error}") from None
    except (ValueError, TypeError, IndexError, AttributeError, OverflowError) as error:
        raise _damaged(source, str(error)) from None


def _read_table(source: Path) -> Any:
    pa = needed("pyarrow", "load_coreset", "frames")
    parquet = needed("pyarrow.parquet", "load_coreset", "frames")
    raw = source.read_bytes()  # what the file system has to say comes first, and as it is
    if not raw.startswith(_MAGIC):
        raise ValueError(f"{source} is not a Parquet file; load_coreset reads what Coreset.save wrote")
    if not raw.endswith(_MAGIC) or len(raw) < 12:
        raise ValueError(
            f"{source} was cut short: it begins as a Parquet file and does not end as one; "
            "copy it again, or save the coreset again"
        )
    try:
        # an anchor may be large, but no text in a file is larger than the file
        return parquet.ParquetFile(pa.BufferReader(raw), thrift_string_size_limit=len(raw)).read()
    except (pa.ArrowException, OSError, ValueError) as error:
        raise _damaged(source, str(error).partition("\n")[0]) from None


def _read_state(source: Path, table: Any) -> dict[str, Any]:
    """Read the metadata, and refuse what this library does not know."""
    text = (table.schema.metadata or {}).get(_KEY)
    if text is None:
        raise ValueError(
            f"{source} is a Parquet file, but holds no coreset; load_coreset reads what Coreset.save wrote, "
            "and dm.robust_coreset makes a coreset of data"
        )
    try:
        state = json.loads(text)
        form = int(state["format"])
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise _damaged(source, f"its metadata cannot be read ({type(error).__name__})") from None
    if form > FORMAT:
        raise ValueError(
            f"{source}: format {form} is newer than this library reads ({FORMAT}); upgrade duramen"
        )
    return dict(state)


def _check_sum(state: dict[str, Any], rows: dict[str, Any]) -> None:
    beside = [rows[name] for name in ("suspected", "own_weights", "inclusion", "groups")]
    said = {name: part for name, part in state.items() if name != "crc32"}
    if checksum(rows["points"], beside, _text(said)) != state["crc32"]:
        raise ValueError("its content is not what was saved (the checksum differs)")


def _damaged(source: Path, why: str) -> ValueError:
    return ValueError(f"{source} is damaged: {why}; copy it again, or save the coreset again")


def _text(state: dict[str, Any]) -> str:
    return json.dumps(state, sort_keys=True, allow_nan=False)


def load_coreset(path: str | os.PathLike[str], *, loss: Loss | None = None) -> Coreset:
    """Load a coreset that :meth:`Coreset.save` wrote: the same, bit for bit.

    Needs the extra ``duramen[frames]``. The loaded anchor holds all that was
    frozen: with it and the same seed, :func:`duramen.robust_coreset` makes the
    same coreset of the same data.

    Parameters
    ----------
    path : str or path
    loss : Loss, optional
        Needed where the coreset was made with a loss or a divergence of your
        own, which no file can hold.

    Raises
    ------
    FileNotFoundError
        If there is no such file.
    ValueError
        If it is none of ours, is damaged, or was written by a newer version; if
        ``loss`` is needed, or is another than that of the file.

    Examples
    --------
    >>> import tempfile, pathlib
    >>> import duramen as dm
    >>> core = dm.robust_coreset([[0.0], [1.0], [5.0]], loss=dm.KMeansLoss(1), size=2, random_state=0)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     core.save(pathlib.Path(folder) / "core.parquet")
    ...     again = dm.load_coreset(pathlib.Path(folder) / "core.parquet")
    >>> again.loss, again.weights.tolist() == core.weights.tolist()
    (KMeansLoss(k=1), True)
    """
    return Coreset(**read(path, loss))
