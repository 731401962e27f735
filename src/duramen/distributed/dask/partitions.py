"""Dask DataFrames and arrays as partitions of points, checked before anything is computed."""

from __future__ import annotations

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
from duramen.io.columns import absent, few
from duramen.parallel import on_one_thread
from duramen.points import WeightedPoints

__all__ = [
    "BlockLayout",
    "BlockRows",
    "Parts",
    "aligned",
    "blocks_of",
    "check_type",
    "constant",
    "is_array",
    "is_column",
    "is_frame",
    "known",
    "module",
    "named",
    "parts_of",
    "said",
    "task",
]


@dataclass(frozen=True)
class BlockRows:
    """Which rows a partition has.

    Attributes
    ----------
    first : int or None
        The number of its first row among those of all partitions; None where ids are given.
    count : int or None
        How many it has; None where nobody knows yet.
    """

    first: int | None = None
    count: int | None = None


@dataclass(frozen=True)
class BlockLayout:
    """Where rows, labels, weights and ids stand.

    Attributes
    ----------
    features : tuple or None
        The names of the features' columns; None where a block is the rows themselves.
    label, weight, id : optional
        The names of further columns of a frame.
    """

    features: tuple[Any, ...] | None = None
    label: Any = None
    weight: Any = None
    id: Any = None

    @property
    def columns(self) -> list[str] | None:
        """The names of the features, as text; None where they have none."""
        return None if self.features is None else [str(name) for name in self.features]

    @property
    def used(self) -> list[Any]:
        """The names of all columns of a frame that are needed."""
        others = [name for name in (self.label, self.weight, self.id) if name is not None]
        return [*(self.features or ()), *others]

    def points(self, rows: BlockRows, block: Any, *columns: Any) -> WeightedPoints | None:
        """Make points of a block and of its labels, weights and ids; None where there are no rows.

        NaN and infinity in the rows are not looked for.

        Raises
        ------
        TypeError, ValueError
            If a value is no number, lengths differ, or there are other rows than were counted.
        """
        y, weights, ids = (
            column if name is None else block[name]
            for name, column in zip((self.label, self.weight, self.id), columns, strict=True)
        )
        X = block if self.features is None else block[list(self.features)]
        n = int(X.shape[0])
        if rows.count is not None and n != rows.count:
            raise ValueError(
                f"it has {n:,} rows, and had {rows.count:,} when they were counted; a partition must be the "
                "same each time it is made: call persist() on the data first"
            )
        for name, column in (("y", y), ("sample_weight", weights), ("ids", ids)):
            if column is not None and len(column) != n:
                raise ValueError(f"{name} has {len(column)} values for {n} rows; cut both at the same rows")
        if not n:
            return None
        if ids is None:
            assert rows.first is not None
            ids = np.arange(rows.first, rows.first + n)
        return WeightedPoints._unvalidated(X, y, weights, ids)


_TOGETHER = 16  # partitions that are made again together, to find which one cannot be

Work = Callable[[WeightedPoints | None, Any], Any]


def module(name: str) -> Any:
    """Import Dask, or a part of it."""
    return needed(name, "duramen.distributed.dask", "dask")


@dataclass(frozen=True, eq=False)
class Parts:
    """The partitions of a collection, one after the other.

    Attributes
    ----------
    layout : BlockLayout
    blocks : sequence of tuples
        Of each partition: its rows, labels, weights and ids, as delayed values, or None.
    rows : tuple of BlockRows
        Which rows each has, as far as that is known.
    where : tuple of str
        What is known of where each stands; may be empty.
    counters : sequence
        Delayed values with as many rows as each has, and few columns.
    """

    layout: BlockLayout
    blocks: Sequence[tuple[Any, ...]]
    rows: tuple[BlockRows, ...]
    where: tuple[str, ...]
    counters: Sequence[Any]

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

    def numbered(self) -> Parts:
        """Know the number of each row, which takes a pass over one column where ids are not given."""
        if self.has_ids:
            return self
        counts = [rows.count for rows in self.rows]
        if None in counts:
            count = task("duramen-count-rows")
            counts = list(self.fetch(*(count(_length, block) for block in self.counters)))
        firsts = accumulate(counts, initial=0)
        return replace(self, rows=tuple(map(BlockRows, firsts, counts)))

    def fetch(self, *values: Any) -> tuple[Any, ...]:
        """Compute what depends on partitions; an error in making one of them begins with its name too."""
        try:
            return tuple(module("dask").compute(*values))
        except Exception as error:
            ours = str(error).startswith("partition")
            if ours or type(error).__module__.partition(".")[0] == "distributed":
                raise
            number = self._broken()
            if number is None:
                raise
            raise said(self.name(number), error) from error

    def _broken(self) -> int | None:
        """Find a partition that cannot be made: some at a time, then one by one."""
        look = task("duramen-look-for-error")
        ends = [look(_nothing, *(one for one in blocks if one is not None)) for blocks in self.blocks]
        for start in range(0, len(ends), _TOGETHER):
            group = ends[start : start + _TOGETHER]
            if not _can_be_made(group):
                return next((start + at for at, end in enumerate(group) if not _can_be_made([end])), None)
        return None

    def each(self, work: Work, shared: Any, name: str) -> list[Any]:
        """Do some work on the points of each partition, when it is asked for.

        Parameters
        ----------
        work : function
            Called on a worker with the points of a partition, or None where it has no rows, and with
            what is shared. An error in it begins with the partition's name.
        shared : delayed value
            As :func:`constant` makes it.
        name : str
            Of the tasks, letters and hyphens: the dashboard shows it.

        Returns
        -------
        list of delayed values
        """
        layout, begin = constant(self.layout, "duramen-layout"), task(name)
        return [
            begin(_worked, work, shared, layout, self.name(number), (rows.first, rows.count), *blocks)
            for number, (rows, blocks) in enumerate(zip(self.rows, self.blocks, strict=True))
        ]


def constant(value: Any, name: str) -> Any:
    """Make a value a task of its own, so that it goes to a worker once, and not with every task."""
    return module("dask").delayed(value, name=f"{name}-{uuid4().hex}", traverse=False)


def task(name: str) -> Callable[..., Any]:
    """Make a function that calls another one, later, as a task of a name; each call has the next number."""
    delayed, token = module("dask").delayed, uuid4().hex
    numbers = iter(range(2**63))

    def begin(function: Callable[..., Any], *arguments: Any) -> Any:
        key = (f"{name}-{token}", next(numbers))
        return delayed(function, pure=False, traverse=False)(*arguments, dask_key_name=key)

    return begin


@contextmanager
def named(name: str) -> Iterator[None]:
    """Begin the message of an error with the name of who has it; its type stays."""
    try:
        yield
    except Exception as error:
        raise said(name, error) from error


def said(name: str, error: Exception) -> Exception:
    """Make an error that begins with the name of who had it: of its type, or of one that takes a text."""
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
    """Need blocks, and make nothing of them."""


def _can_be_made(ends: Sequence[Any]) -> bool:
    try:
        module("dask").compute(*ends)
    except Exception:
        return False
    return True


def _worked(
    work: Work, shared: Any, layout: BlockLayout, name: str, rows: tuple[int | None, int | None], *blocks: Any
) -> Any:
    with named(name), on_one_thread():
        points = layout.points(BlockRows(*rows), *blocks)
        try:
            return work(points, shared)
        except ValueError:
            if points is not None and layout.columns:
                refuse_nonfinite(points.X, names=layout.columns)  # with the column's name
            raise


def _length(block: Any) -> int:
    return int(block.shape[0])


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
    layout = BlockLayout(_features(frame, features, named), **named)
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
    return Parts(layout, _beside(blocks, others), (BlockRows(),) * n, tuple(where), counters)


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
    rows, where = (BlockRows(),) * n, [""] * n
    if known(lengths):
        ends = list(accumulate(lengths))
        rows = tuple(BlockRows(end - length, length) for end, length in zip(ends, lengths, strict=True))
        where = [f"rows {end - length} to {end - 1}" for end, length in zip(ends, lengths, strict=True)]
    cuts = lengths if known(lengths) else None
    others = [aligned(column, name, cuts, n) for name, column in columns.items()]
    return Parts(BlockLayout(), _beside(blocks, others), rows, tuple(where), blocks)


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
