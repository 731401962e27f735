"""Dask DataFrames and arrays as partitions: all that can be checked is, before anything is computed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any

from duramen.distributed.dask.columns import (
    aligned,
    blocks_of,
    check_type,
    is_array,
    is_column,
    is_frame,
    known,
)
from duramen.distributed.dask.layout import Layout, Rows
from duramen.distributed.dask.parts import Parts
from duramen.tables.names import absent, few

__all__ = ["parts_of"]


def parts_of(
    data: Any,
    y: Any = None,
    *,
    label: Any = None,
    features: Iterable[Any] | None = None,
    weight: Any = None,
    id: Any = None,
    sample_weight: Any = None,
    ids: Any = None,
) -> Parts:
    """See a Dask collection as partitions of points; nothing is computed.

    Parameters
    ----------
    data, y, label, features, weight, id, sample_weight, ids
        As for :func:`duramen.distributed.dask.robust_coreset`.

    Returns
    -------
    Parts

    Raises
    ------
    TypeError, ValueError
        Naming what is wrong, and the way out.
    """
    columns = {"y": y, "sample_weight": sample_weight, "ids": ids}
    named = {"label": label, "weight": weight, "id": id}
    if is_frame(data):
        for (role, name), (other, column) in zip(named.items(), columns.items(), strict=True):
            if name is not None and column is not None:
                raise TypeError(f"{role}={name!r} and {other} say the same; pass one of them")
        return _frame_parts(data, columns, features, named)
    if not is_array(data):
        raise TypeError(_no_collection(data))
    given = {**named, "features": features}
    for role, name in given.items():
        if name is not None:
            raise TypeError(
                f"{role}={name!r} names a column, and a Dask array has no names; pass y, sample_weight and "
                "ids as arrays of their own, or a Dask DataFrame"
            )
    return _array_parts(data, columns)


def _frame_parts(
    frame: Any, columns: dict[str, Any], features: Iterable[Any] | None, named: dict[str, Any]
) -> Parts:
    layout = Layout(_features(frame, features, named), **named)
    kept = frame[layout.used]
    blocks = blocks_of(kept)
    n, n_partitions = len(blocks), frame.npartitions
    counters = blocks_of(frame[[layout.used[0]]])
    if not n == len(counters) == n_partitions:
        counters = blocks
    where = [""] * n
    if frame.known_divisions and n == n_partitions:
        where = [f"index {start} to {end}" for start, end in pairwise(frame.divisions)]
    others = [aligned(column, name, None, n) for name, column in columns.items()]
    return Parts(layout, _beside(blocks, others), (Rows(),) * n, tuple(where), counters)


def _array_parts(X: Any, columns: dict[str, Any]) -> Parts:
    if X.ndim != 2:
        raise ValueError(
            f"a Dask array of data must be two-dimensional, rows by columns; found shape {X.shape}"
        )
    check_type(X.dtype, "X")
    if len(X.chunks[1]) > 1:
        X = X.rechunk({1: -1})
    blocks, lengths = blocks_of(X), X.chunks[0]
    n = len(blocks)
    rows, where = (Rows(),) * n, [""] * n
    if known(lengths):
        ends = list(accumulate(lengths))
        rows = tuple(Rows(end - length, length) for end, length in zip(ends, lengths, strict=True))
        where = [f"rows {end - length} to {end - 1}" for end, length in zip(ends, lengths, strict=True)]
    cuts = lengths if known(lengths) else None
    others = [aligned(column, name, cuts, n) for name, column in columns.items()]
    return Parts(Layout(), _beside(blocks, others), rows, tuple(where), blocks)


def _beside(blocks: Sequence[Any], others: Sequence[Sequence[Any]]) -> list[tuple[Any, ...]]:
    return list(zip(blocks, *others, strict=True))


def _features(frame: Any, features: Iterable[Any] | None, named: dict[str, Any]) -> tuple[Any, ...]:
    """Return the names of the features; refuse a column that is not there, has two roles or is no number."""
    if isinstance(features, str):
        raise TypeError(f"features={features!r} is one text; give a list of names")
    types = list(zip(frame.columns, frame.dtypes, strict=True))
    there = [name for name, _ in types]
    taken: dict[Any, str] = {}
    for role, name in named.items():
        if name is not None:
            _take(there, name, role, taken)
    if features is None:
        chosen = tuple(name for name in there if name not in taken)
        for name in chosen:
            _take(there, name, "features", taken)
    else:
        chosen = tuple(features)
        for name in chosen:
            _take(there, name, "features", taken)
    if not chosen:
        raise ValueError(f"there is no column left for the features; the frame has {few(there)}")
    for name, dtype in types:
        if name in chosen:
            _check_feature(name, dtype)
        elif name in taken:
            check_type(dtype, f"{taken[name]}={name!r}", whole=taken[name] == "id")
    return chosen


def _take(there: Sequence[Any], name: Any, role: str, taken: dict[Any, str]) -> None:
    if name not in there:
        raise ValueError(absent(name, [str(one) for one in there], Path("the frame"), role))
    if there.count(name) > 1:
        raise ValueError(f"more than one column is called {name!r}; rename them")
    if name in taken:
        both = f"{taken[name]} and {role}" if taken[name] != role else f"{role}, twice"
        raise ValueError(f"column {name!r} is given as {both}; a column has one role")
    taken[name] = role


def _check_feature(name: Any, dtype: Any) -> None:
    kind = getattr(dtype, "kind", "O")
    if kind in "biuf":
        return
    way_out = f"encode it first, with dask.dataframe.get_dummies(data.categorize([{name!r}])) for instance"
    if kind in "Mm":
        way_out = "turn times into numbers first, for instance seconds"
    raise TypeError(
        f"column {name!r} has type {dtype}, which is not a numeric one; {way_out}, or leave it out of the "
        "features"
    )


def _no_collection(data: Any) -> str:
    kind = type(data).__name__
    if is_column(data):
        return f"data must have rows and columns; found a Dask {kind}; data.to_frame() makes one of it"
    return (
        f"data must be a Dask DataFrame or a Dask array; found {kind}; for data in memory there is "
        "dm.robust_coreset"
    )
