"""Labels, weights and ids that are collections of their own: cut where the rows are cut."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from duramen.distributed.dask.parts import module

__all__ = ["aligned", "blocks_of", "check_type", "is_array", "is_column", "is_frame", "known"]


def is_array(data: Any) -> bool:
    """Tell whether it is a Dask array."""
    return _is(data, "chunks", "rechunk")


def is_frame(data: Any) -> bool:
    """Tell whether it is a Dask DataFrame."""
    return _is(data, "divisions", "to_delayed") and data.ndim == 2


def is_column(data: Any) -> bool:
    """Tell whether it is a Dask Series."""
    return _is(data, "divisions", "to_delayed") and data.ndim == 1


def _is(data: Any, *methods: str) -> bool:
    """Ask the type: a delayed value claims to have every attribute there is."""
    return bool(module("dask").is_dask_collection(data)) and all(
        hasattr(type(data), name) for name in methods
    )


def blocks_of(collection: Any) -> list[Any]:
    """Give one delayed value a partition.

    Where few of many columns are needed, Dask's optimizer may read several
    partitions as one, of a frame with fewer columns even more of them. Rows are
    counted and read by different columns, so that it must not.
    """
    if is_array(collection):
        return list(collection.to_delayed().ravel())
    blocks = collection.to_delayed()
    if len(blocks) != collection.npartitions:
        blocks = collection.simplify().to_delayed(optimize_graph=False)
    return list(blocks)


def known(chunks: Sequence[float]) -> bool:
    """Tell whether it is known how long chunks are."""
    return not any(math.isnan(length) for length in chunks)


def check_type(dtype: Any, name: str, *, whole: bool = False) -> None:
    """Raise TypeError unless a type is one of numbers; or of whole ones, if they must be."""
    kind = getattr(dtype, "kind", "O")
    if kind not in "biuf":
        raise TypeError(f"{name} must be numbers; found type {dtype}; encode them first")
    if whole and kind not in "iu":
        raise TypeError(f"{name} must be integers; found type {dtype}; convert them first")


def aligned(column: Any, name: str, lengths: Sequence[float] | None, n_blocks: int) -> list[Any]:
    """Cut a column as the rows are cut, and give its blocks; of no column, None for each.

    Parameters
    ----------
    column : Dask array or Series, or None
    name : str
        What to call it in messages.
    lengths : sequence or None
        Of the blocks of rows, where they are known.
    n_blocks : int
        How many there are.

    Raises
    ------
    TypeError, ValueError
        If it is something else, or of another length.
    """
    if column is None:
        return [None] * n_blocks
    if not is_array(column) and not is_column(column):
        raise TypeError(
            f"{name} must be a Dask array or Series, as the data is a Dask collection; found "
            f"{type(column).__name__}; dask.array.from_array({name}) makes an array one"
        )
    if column.ndim != 1:
        raise ValueError(f"{name} must have one value a row, in one dimension; found shape {column.shape}")
    check_type(column.dtype, name, whole=name == "ids")
    if lengths is not None and is_array(column) and known(column.chunks[0]):
        n = int(sum(lengths))
        if column.shape[0] != n:
            raise ValueError(
                f"{name} has {column.shape[0]} values for {n} rows of X; their lengths must agree"
            )
        column = column.rechunk((tuple(lengths),))
    blocks = blocks_of(column)
    if len(blocks) != n_blocks:
        raise ValueError(
            f"{name} has {len(blocks)} partitions and the data {n_blocks}; cut both at the same rows; of "
            "arrays, compute_chunk_sizes() first lets it be done here"
        )
    return blocks
