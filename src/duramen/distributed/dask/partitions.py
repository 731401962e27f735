"""Dask DataFrames and arrays as partitions of points, checked before anything is computed."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np

from duramen.arrays import refuse_nonfinite
from duramen.extras import needed
from duramen.io.tables import check_names, column_roles
from duramen.parallel import on_one_thread
from duramen.points import WeightedPoints
from duramen.text import few

_TOGETHER = 16  # partitions recomputed together, to find which one fails

Work = Callable[[WeightedPoints | None, Any], Any]


@dataclass(frozen=True)
class BlockLayout:
    """Which columns of a block hold features, labels, weights and ids; in an array all are features."""

    features: tuple[Any, ...] | None = None
    label: Any = None
    weight: Any = None
    id: Any = None

    @property
    def columns(self) -> list[str] | None:
        """The names of the features, as text; None for an array."""
        return None if self.features is None else [str(name) for name in self.features]

    @property
    def used(self) -> list[Any]:
        """The names of all columns that have a role."""
        others = [name for name in (self.label, self.weight, self.id) if name is not None]
        return [*(self.features or ()), *others]

    def points(
        self, first: int | None, count: int | None, block: Any, *columns: Any
    ) -> WeightedPoints | None:
        """Read a block with its labels, weights and ids as points, or None if it has no rows.

        Parameters
        ----------
        first, count : int or None
            The number of the block's first row over all partitions, and how many rows it must have;
            None if unknown.

        Notes
        -----
        X is not checked for NaN and infinity.
        """
        y, weights, ids = (
            column if name is None else block[name]
            for name, column in zip((self.label, self.weight, self.id), columns, strict=True)
        )
        X = block if self.features is None else block[list(self.features)]
        n = int(X.shape[0])
        if count is not None and n != count:
            raise ValueError(
                f"it has {n:,} rows, but had {count:,} when they were counted; a partition must be the "
                "same each time it is computed: call persist() on the data first"
            )
        for name, column in (("y", y), ("sample_weight", weights), ("ids", ids)):
            if column is not None and len(column) != n:
                raise ValueError(f"{name} has {len(column)} values for {n} rows; split both at the same rows")
        if not n:
            return None
        if ids is None:
            assert first is not None
            ids = np.arange(first, first + n)
        return WeightedPoints._unvalidated(X, y, weights, ids)


def _dask() -> Any:
    return needed("dask", "duramen.distributed.dask", "dask")


@dataclass(frozen=True, eq=False)
class Parts:
    """The partitions of a collection, in order.

    Attributes
    ----------
    layout : BlockLayout
    blocks : sequence of tuples
        Of each partition: its rows, labels, weights and ids, as delayed values, or None.
    counters : sequence
        Delayed values with as many rows as each partition has, and few columns.
    firsts, counts : tuple of int or None
        The number of each partition's first row over all of them, and how many rows it has, where known.
    where : tuple of str
        Which rows each holds, for messages; may be empty strings.
    """

    layout: BlockLayout
    blocks: Sequence[tuple[Any, ...]]
    counters: Sequence[Any]
    firsts: tuple[int | None, ...]
    counts: tuple[int | None, ...]
    where: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.blocks)

    @property
    def has_labels(self) -> bool:
        """Whether points have labels."""
        return self.layout.label is not None or self.blocks[0][1] is not None

    @property
    def has_weights(self) -> bool:
        """Whether weights are given."""
        return self.layout.weight is not None or self.blocks[0][2] is not None

    @property
    def has_ids(self) -> bool:
        """Whether ids are given; otherwise they are the rows' numbers."""
        return self.layout.id is not None or self.blocks[0][3] is not None

    def name(self, number: int) -> str:
        """Name a partition in a message."""
        where = f" ({self.where[number]})" if self.where[number] else ""
        return f"partition {number} of {len(self)}{where}"

    def with_row_numbers(self) -> Parts:
        """Return the same partitions with rows numbered, which may take a pass over one column."""
        if self.has_ids:
            return self
        counts: Sequence[Any] = self.counts
        if None in counts:
            count = task("duramen-count-rows")
            counts = self.fetch(*(count(_length, block) for block in self.counters))
        return replace(self, firsts=tuple(accumulate(counts, initial=0))[:-1], counts=tuple(counts))

    def fetch(self, *values: Any) -> tuple[Any, ...]:
        """Compute values that depend on partitions; an error in computing a partition names it."""
        try:
            return tuple(_dask().compute(*values))
        except Exception as error:
            named = str(error).startswith("partition")
            if named or type(error).__module__.partition(".")[0] == "distributed":
                raise
            number = self._find_broken()
            if number is None:
                raise
            raise prefix_error(self.name(number), error) from error

    def _find_broken(self) -> int | None:
        """Find a partition that cannot be computed: some at a time, then one by one."""
        probe = task("duramen-look-for-error")
        ends = [probe(_nothing, *(one for one in blocks if one is not None)) for blocks in self.blocks]
        for start in range(0, len(ends), _TOGETHER):
            group = ends[start : start + _TOGETHER]
            if not _can_be_computed(group):
                return next((start + at for at, end in enumerate(group) if not _can_be_computed([end])), None)
        return None

    def each(self, work: Work, shared: Any, name: str) -> list[Any]:
        """Return delayed values of ``work(points, shared)``, one for each partition.

        Parameters
        ----------
        work : function
            Called on a worker with the points of a partition, or None where it has no rows, and with
            what is shared. An error in it begins with the partition's name.
        shared : delayed value
            As :func:`constant` makes it.
        name : str
            Of the tasks, letters and hyphens: the dashboard shows it.
        """
        layout, begin = constant(self.layout, "duramen-layout"), task(name)
        return [
            begin(_work, work, shared, layout, self.name(number), first, count, *blocks)
            for number, (first, count, blocks) in enumerate(
                zip(self.firsts, self.counts, self.blocks, strict=True)
            )
        ]


def constant(value: Any, name: str) -> Any:
    """Return a delayed value that is sent to each worker once, not with every task."""
    return _dask().delayed(value, name=f"{name}-{uuid4().hex}", traverse=False)


def task(name: str) -> Callable[..., Any]:
    """Return a function that delays a call as a task of this name; tasks are numbered."""
    delayed, token, numbers = _dask().delayed, uuid4().hex, itertools.count()

    def begin(function: Callable[..., Any], *arguments: Any) -> Any:
        key = (f"{name}-{token}", next(numbers))
        return delayed(function, pure=False, traverse=False)(*arguments, dask_key_name=key)

    return begin


@contextmanager
def naming(name: str) -> Iterator[None]:
    """Prefix the message of an error with the name of a partition; keep its type."""
    try:
        yield
    except Exception as error:
        raise prefix_error(name, error) from error


def prefix_error(name: str, error: Exception) -> Exception:
    """Return an error whose message begins with a name: of its type, or a base type that takes a message."""
    text = f"{name}: {error.args[0] if len(error.args) == 1 else error}"
    for kind in type(error).__mro__:
        try:
            made = kind(text)
        except Exception:
            continue
        if isinstance(made, Exception) and str(made) in (text, repr(text)):
            return made
    return RuntimeError(text)


def _nothing(*blocks: Any) -> None:
    """Depend on blocks, and return nothing."""


def _can_be_computed(ends: Sequence[Any]) -> bool:
    try:
        _dask().compute(*ends)
    except Exception:
        return False
    return True


def _work(
    work: Work,
    shared: Any,
    layout: BlockLayout,
    name: str,
    first: int | None,
    count: int | None,
    *blocks: Any,
) -> Any:
    with naming(name), on_one_thread():
        points = layout.points(first, count, *blocks)
        try:
            return work(points, shared)
        except ValueError:
            if points is not None and layout.columns:
                refuse_nonfinite(points.X, names=layout.columns)  # with the column's name
            raise


def _length(block: Any) -> int:
    return int(block.shape[0])


def is_array(data: Any) -> bool:
    """Return whether ``data`` is a Dask array."""
    return _is(data, "chunks", "rechunk")


def is_frame(data: Any) -> bool:
    """Return whether ``data`` is a Dask DataFrame."""
    return _is(data, "divisions", "to_delayed") and data.ndim == 2


def is_column(data: Any) -> bool:
    """Return whether ``data`` is a Dask Series."""
    return _is(data, "divisions", "to_delayed") and data.ndim == 1


def _is(data: Any, *methods: str) -> bool:
    """Check the type, as a delayed value claims to have every attribute."""
    return bool(_dask().is_dask_collection(data)) and all(hasattr(type(data), name) for name in methods)


def blocks_of(collection: Any) -> list[Any]:
    """Return one delayed value per partition.

    Where few of many columns are needed, Dask's optimizer may read several
    partitions as one. It must not: rows are counted and read by different
    columns, so that the partitions would differ.
    """
    if is_array(collection):
        return list(collection.to_delayed().ravel())
    blocks = collection.to_delayed()
    if len(blocks) != collection.npartitions:
        blocks = collection.simplify().to_delayed(optimize_graph=False)
    return list(blocks)


def _check_type(dtype: Any, name: str, *, whole: bool = False) -> None:
    """Raise TypeError unless a type is numeric, or an integer if ``whole``."""
    kind = getattr(dtype, "kind", "O")
    if kind not in "biuf":
        raise TypeError(f"{name} must be numbers; found type {dtype}; encode them first")
    if whole and kind not in "iu":
        raise TypeError(f"{name} must be integers; found type {dtype}; convert them first")


def _align(column: Any, name: str, lengths: Sequence[float] | None, n_blocks: int) -> list[Any]:
    """Return the blocks of a column, partitioned like the rows; None for each if there is no column."""
    if column is None:
        return [None] * n_blocks
    if not is_array(column) and not is_column(column):
        raise TypeError(
            f"{name} must be a Dask array or Series, as the data is a Dask collection; found "
            f"{type(column).__name__}; convert it with dask.array.from_array({name})"
        )
    if column.ndim != 1:
        raise ValueError(f"{name} must have one value per row, in one dimension; found shape {column.shape}")
    _check_type(column.dtype, name, whole=name == "ids")
    if lengths is not None and is_array(column) and _all_known(column.chunks[0]):
        n = int(sum(lengths))
        if column.shape[0] != n:
            raise ValueError(
                f"{name} has {column.shape[0]} values for {n} rows of X; their lengths must agree"
            )
        column = column.rechunk((tuple(lengths),))
    blocks = blocks_of(column)
    if len(blocks) != n_blocks:
        raise ValueError(
            f"{name} has {len(blocks)} partitions and the data {n_blocks}; split both at the same rows, or "
            "call compute_chunk_sizes() on arrays first"
        )
    return blocks


def _all_known(lengths: Sequence[float]) -> bool:
    return not any(math.isnan(length) for length in lengths)


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
    """Read a Dask collection as partitions of points; nothing is computed.

    The parameters are those of :func:`duramen.distributed.dask.robust_coreset`.
    """
    columns = {"y": y, "sample_weight": sample_weight, "ids": ids}
    named = {"label": label, "weight": weight, "id": id}
    if is_frame(data):
        for (role, name), (other, column) in zip(named.items(), columns.items(), strict=True):
            if name is not None and column is not None:
                raise TypeError(f"{role}={name!r} and {other} mean the same; pass one of them")
        return _frame_parts(data, columns, features, named)
    if not is_array(data):
        raise TypeError(_not_a_collection(data))
    given = {**named, "features": features}
    for role, name in given.items():
        if name is not None:
            raise TypeError(
                f"{role}={name!r} names a column, but a Dask array has no names; pass y, sample_weight and "
                "ids as separate arrays, or a Dask DataFrame"
            )
    return _array_parts(data, columns)


def _frame_parts(
    frame: Any, columns: dict[str, Any], features: Iterable[Any] | None, named: dict[str, Any]
) -> Parts:
    layout = BlockLayout(_features(frame, features, named), **named)
    blocks = blocks_of(frame[layout.used])
    n, n_partitions = len(blocks), frame.npartitions
    counters = blocks_of(frame[[layout.used[0]]])
    if not n == len(counters) == n_partitions:
        counters = blocks
    where = ("",) * n
    if frame.known_divisions and n == n_partitions:
        where = tuple(f"index {start} to {end}" for start, end in pairwise(frame.divisions))
    others = [_align(column, name, None, n) for name, column in columns.items()]
    unknown = (None,) * n
    return Parts(layout, list(zip(blocks, *others, strict=True)), counters, unknown, unknown, where)


def _array_parts(X: Any, columns: dict[str, Any]) -> Parts:
    if X.ndim != 2:
        raise ValueError(
            f"a Dask array of data must be two-dimensional, rows by columns; found shape {X.shape}"
        )
    _check_type(X.dtype, "X")
    if len(X.chunks[1]) > 1:
        X = X.rechunk({1: -1})
    blocks, lengths = blocks_of(X), X.chunks[0]
    firsts: tuple[Any, ...] = (None,) * len(blocks)
    counts, where = firsts, ("",) * len(blocks)
    known = lengths if _all_known(lengths) else None
    if known is not None:
        ends = list(accumulate(known, initial=0))
        firsts, counts = tuple(ends[:-1]), tuple(known)
        where = tuple(f"rows {start} to {end - 1}" for start, end in pairwise(ends))
    others = [_align(column, name, known, len(blocks)) for name, column in columns.items()]
    return Parts(BlockLayout(), list(zip(blocks, *others, strict=True)), blocks, firsts, counts, where)


def _features(frame: Any, features: Iterable[Any] | None, named: dict[str, Any]) -> tuple[Any, ...]:
    """Return the names of the features; refuse columns that are absent, have two roles or are not numbers."""
    types = list(zip(frame.columns, frame.dtypes, strict=True))
    there, where = [name for name, _ in types], Path("the frame")
    roles = column_roles(there, where, named, features)
    if features is None:
        roles |= {name: "features" for name in there if name not in roles}
    check_names(where, [name for name in there if name in roles])
    chosen = tuple(name for name, role in roles.items() if role == "features")
    if not chosen:
        raise ValueError(f"there is no column left for the features; the frame has {few(there)}")
    for name, dtype in types:
        role = roles.get(name)
        if role == "features":
            _check_feature(name, dtype)
        elif role is not None:
            _check_type(dtype, f"{role}={name!r}", whole=role == "id")
    return chosen


def _check_feature(name: Any, dtype: Any) -> None:
    kind = getattr(dtype, "kind", "O")
    if kind in "biuf":
        return
    way_out = f"encode it first, with dask.dataframe.get_dummies(data.categorize([{name!r}])) for instance"
    if kind in "Mm":
        way_out = "turn times into numbers first, for instance seconds"
    raise TypeError(
        f"column {name!r} has type {dtype}, which is not numeric; {way_out}, or leave it out of the features"
    )


def _not_a_collection(data: Any) -> str:
    kind = type(data).__name__
    if is_column(data):
        return f"data must have rows and columns; found a Dask {kind}; pass data.to_frame()"
    return (
        f"data must be a Dask DataFrame or a Dask array; found {kind}; for data in memory use "
        "dm.robust_coreset"
    )
