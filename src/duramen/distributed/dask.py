"""Robust coresets of Dask collections, on the schedulers of one machine and on clusters.

>>> from duramen.distributed import dask as dmd

One task per partition summarizes it, and a tree of tasks merges the summaries.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np

from duramen.arrays import refuse_nonfinite
from duramen.coreset.coreset import Coreset
from duramen.coreset.passes import Reducer, merge_summaries, plan, run_passes
from duramen.errors import prefixed
from duramen.extras import needed
from duramen.io.tables import check_names, column_roles
from duramen.losses.base import Loss
from duramen.parallel import on_one_thread, one_blas_thread
from duramen.points import WeightedPoints
from duramen.text import few

__all__ = ["robust_coreset"]

_FAN_IN = 8  # summaries that one task merges
# Rows. Dask starts workers with malloc set to return memory soon (MALLOC_TRIM_THRESHOLD_), so that each array
# of more than 128 KiB costs page faults: with 65,536 rows at a time a pass took up to 1.4 times as long.
_BATCH = 1 << 14


def robust_coreset(
    data: Any,
    y: Any = None,
    *,
    label: Any = None,
    features: Iterable[Any] | None = None,
    weight: Any = None,
    id: Any = None,
    sample_weight: Any = None,
    ids: Any = None,
    loss: Loss,
    **settings: Any,
) -> Coreset:
    """Build the robust coreset of a Dask collection, which no single machine has to hold.

    The result is the coreset that :func:`duramen.robust_coreset` builds from all rows on one
    machine: the same rows, and weights that agree to nine digits. It does not depend on how the
    rows are partitioned, nor, if ids are given, on their order.

    Parameters
    ----------
    data : Dask DataFrame, or Dask array of two dimensions
        An array that is chunked along its columns as well is rechunked.
    y : Dask array or Series, optional
        Labels, for an array; chunked like the rows, or of known chunks.
    label : optional
        The column of a frame that holds the labels.
    features : iterable of names, optional
        The columns of a frame that are features, all of them numeric; by default
        all columns without another role.
    weight, id : optional
        The columns of a frame with weights, and with an integer id for each row. Without
        ``id`` and ``ids``, rows are identified by their numbers over all partitions.
    sample_weight, ids : Dask arrays or Series, optional
        The same for an array.
    loss : Loss
    **settings
        ``size``, ``n_outliers``, ``sampler``, ``suspects``, ``anchor``, ``calibrate``, ``random_state``
        and ``beta``, as for :func:`duramen.robust_coreset`; the sampler must score each point by itself.

    Returns
    -------
    Coreset

    Raises
    ------
    TypeError, ValueError
        Naming what is wrong and what to do. An error on a worker begins with
        the partition's name, and numbers rows within it.

    Notes
    -----
    It runs where ``dask.compute`` would: on the cluster of the active client, or on
    a scheduler of this machine. There are two passes, and one before them that
    counts the rows of a frame by one column (not if ids are given). Each pass computes the
    partitions again: call ``persist()`` first where that is expensive and they fit in
    the cluster's memory. Only summaries travel. However large a partition is, its
    summary has at most 20,000 rows in the first pass, and in the second ``size`` rows
    (per layer, with the layered sampler) and the rows that may be suspected, no
    more than are suspected in total. Each task uses one thread.

    Dask configures its workers to return memory to the system at once, which may take as
    long as the work itself. ``MALLOC_TRIM_THRESHOLD_=536870912`` together with
    ``MALLOC_MMAP_THRESHOLD_=536870912`` in their environment lets them keep it.

    Examples
    --------
    >>> import dask.dataframe as dd
    >>> import numpy as np
    >>> import pandas as pd
    >>> import duramen as dm
    >>> from duramen.distributed import dask as dmd
    >>> rng = np.random.default_rng(0)
    >>> df = pd.DataFrame(rng.normal(size=(20_000, 3)), columns=["a", "b", "c"])
    >>> df["ill"] = np.where(df["a"] + rng.normal(size=20_000) > 0, 1, -1)
    >>> ddf = dd.from_pandas(df, npartitions=5)
    >>> chosen = {"loss": dm.LogisticLoss(), "size": 1000, "n_outliers": 400, "random_state": 0}
    >>> core = dmd.robust_coreset(ddf, label="ill", **chosen)
    >>> len(core), round(core.total_weight), core.columns
    (1000, 20000, ('a', 'b', 'c'))
    >>> np.array_equal(core.ids, dm.robust_coreset(df[["a", "b", "c"]], df["ill"], **chosen).ids)
    True
    """
    named = {"label": label, "weight": weight, "id": id}
    source = DaskSource(data, {"y": y, "sample_weight": sample_weight, "ids": ids}, named, features)
    columns = None if source.names is None else [str(name) for name in source.names]
    first = plan(loss=loss, columns=columns, **settings)
    if loss.needs_labels and not source.gives("label"):
        raise ValueError(f"{loss!r} needs labels; pass label= for a frame, or y, one label per row")
    source.number_rows()
    if source.lengths is not None and not source.gives("weight"):
        first = first.expecting(sum(source.lengths))
    return run_passes(source, first)


def _dask() -> Any:
    return needed("dask", "duramen.distributed.dask", "dask")


@dataclass(frozen=True)
class _Roles:
    """The columns of a frame with features, label, weight and id; of an array, all are features."""

    features: tuple[Any, ...] | None
    others: tuple[Any, ...]

    def points(
        self, start: int | None, length: int | None, block: Any, *columns: Any
    ) -> WeightedPoints | None:
        """Read a block with its labels, weights and ids as points, or None if it has no rows.

        ``start`` and ``length`` are the number of the block's first row over all partitions, and how many
        rows it must have, where known. X is not checked for NaN and infinity.
        """
        n = int(block.shape[0])
        if length is not None and n != length:
            raise ValueError(
                f"it has {n:,} rows, but had {length:,} when they were counted; a partition must be the "
                "same each time it is computed: call persist() on the data first"
            )
        X = block if self.features is None else block[list(self.features)]
        others = [
            column if name is None else block[name] for name, column in zip(self.others, columns, strict=True)
        ]
        if not n and not any(map(len, (column for column in others if column is not None))):
            return None
        if others[2] is None:
            assert start is not None
            others[2] = np.arange(start, start + n)
        return WeightedPoints._unvalidated(X, *others)


class DaskSource:
    """The partitions of a Dask collection, in order, as a source of passes.

    Parameters
    ----------
    data : Dask DataFrame or array
    columns : dict, optional
        Dask arrays or Series of "y", "sample_weight" and "ids".
    named : dict, optional
        The columns of a frame that are "label", "weight" and "id".
    features : iterable, optional

    Attributes
    ----------
    names : tuple or None
        Of the features; None for an array.
    lengths : list of int or None
        How many rows the partitions have, where known.
    """

    classes = None

    def __init__(
        self,
        data: Any,
        columns: dict[str, Any] | None = None,
        named: dict[str, Any] | None = None,
        features: Iterable[Any] | None = None,
    ) -> None:
        columns = dict.fromkeys(("y", "sample_weight", "ids")) | (columns or {})
        named = dict.fromkeys(("label", "weight", "id")) | (named or {})
        self.lengths: list[int] | None = None
        self._where: list[str] = []
        if _kind(data) == "frame":
            self._read_frame(data, columns, named, features)
        else:
            self._read_array(data, named | {"features": features})
        self.names = self._roles.features
        n = len(self._blocks)
        self._columns = [_column_blocks(column, name, self.lengths, n) for name, column in columns.items()]

    def _read_frame(self, frame: Any, columns: Any, named: dict[str, Any], features: Any) -> None:
        for (role, name), (other, column) in zip(named.items(), columns.items(), strict=True):
            if name is not None and column is not None:
                raise TypeError(f"{role}={name!r} and {other} mean the same; pass one of them")
        chosen = _features(frame, features, named)
        self._roles = _Roles(chosen, tuple(named.values()))
        used = [*chosen, *(name for name in named.values() if name is not None)]
        self._blocks = _blocks_of(frame[used])
        counters = _blocks_of(frame[used[:1]])
        self._counters = counters if len(counters) == len(self._blocks) == frame.npartitions else self._blocks
        if frame.known_divisions and len(self._blocks) == frame.npartitions:
            self._where = [f" (index {start} to {end})" for start, end in pairwise(frame.divisions)]

    def _read_array(self, X: Any, given: dict[str, Any]) -> None:
        if _kind(X) != "array":
            raise TypeError(
                f"data must be a Dask DataFrame, or a Dask array of rows and columns; found "
                f"{type(X).__name__}; for data in memory use dm.robust_coreset, for a Dask Series pass "
                "data.to_frame()"
            )
        for role, name in given.items():
            if name is not None:
                raise TypeError(
                    f"{role}={name!r} names a column, but a Dask array has no names; pass y, sample_weight "
                    "and ids as separate arrays, or a Dask DataFrame"
                )
        if X.ndim != 2:
            raise ValueError(
                f"a Dask array of data must be two-dimensional, rows by columns; found shape {X.shape}"
            )
        _check_type(X.dtype, "X")
        self._roles = _Roles(None, (None, None, None))
        self._counters = self._blocks = _blocks_of(X.rechunk({1: -1}))
        if not any(map(math.isnan, X.chunks[0])):
            self.lengths = list(X.chunks[0])
            ends = pairwise(accumulate(self.lengths, initial=0))
            self._where = [f" (rows {start} to {end - 1})" for start, end in ends]

    def __len__(self) -> int:
        return len(self._blocks)

    def gives(self, role: str) -> bool:
        """Return whether there are labels, weights or ids."""
        place = ("label", "weight", "id").index(role)
        return self._roles.others[place] is not None or self._columns[place][0] is not None

    def number_rows(self) -> None:
        """Count the rows, in a pass over one column, if they are to be numbered and are not counted yet."""
        if self.lengths is None and not self.gives("id"):
            tasks = _Tasks("duramen-count-rows")
            self.lengths = self._fetch(*(tasks.add(_length, block) for block in self._counters))

    def reduce(self, make: Callable[[], Reducer], stage: str) -> Any:
        """Make one pass: one task per partition, and a tree of tasks that merge their summaries."""
        self.number_rows()
        tasks = _Tasks(f"duramen-{stage}")
        shared = _dask().delayed((make, self._roles), name=f"duramen-plan-{uuid4().hex}", traverse=False)
        lengths: Any = self.lengths or [None] * len(self)
        starts = list(accumulate(self.lengths, initial=0)) if self.lengths else lengths
        summaries = [
            tasks.add(_reduce_partition, shared, self._name(number), starts[number], lengths[number], *blocks)
            for number, blocks in enumerate(zip(self._blocks, *self._columns, strict=True))
        ]
        return self._fetch(_merge_tree(summaries, shared, f"duramen-{stage}-merge"))[0]

    def _name(self, number: int) -> str:
        return f"partition {number} of {len(self)}{self._where[number] if self._where else ''}"

    def _fetch(self, *values: Any) -> list[Any]:
        """Compute values that depend on partitions; an error names the partition."""
        try:
            return list(_dask().compute(*values))
        except PartitionError as found:
            raise prefixed(f"{found.place}: ", found.error) from found.error
        except Exception as error:
            number = None if type(error).__module__.startswith("distributed.") else self._find_broken()
            if number is None:
                raise
            raise prefixed(f"{self._name(number)}: ", error) from error

    def _find_broken(self) -> int | None:
        """Find the first partition that cannot be computed, by halves."""
        tasks = _Tasks("duramen-look-for-error")
        blocks = zip(self._blocks, *self._columns, strict=True)
        probes = [tasks.add(_nothing, *(one for one in parts if one is not None)) for parts in blocks]
        first, last = 0, len(probes)
        if _can_compute(probes):
            return None
        while last - first > 1:
            middle = (first + last) // 2
            first, last = (middle, last) if _can_compute(probes[first:middle]) else (first, middle)
        return first


class PartitionError(Exception):
    """An error in a task about a partition or several."""

    def __init__(self, place: str, error: Exception) -> None:
        super().__init__(place, error)
        self.place, self.error = place, error


class _Tasks:
    """Delayed calls with names that Dask's dashboard groups, numbered in the order of the partitions."""

    def __init__(self, name: str) -> None:
        self.key, self._n = f"{name}-{uuid4().hex}", 0

    def add(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """Delay a call."""
        self._n += 1
        delayed = _dask().delayed(function, pure=False, traverse=False)
        return delayed(*arguments, dask_key_name=(self.key, self._n))


def _merge_tree(summaries: Sequence[Any], shared: Any, name: str) -> Any:
    """Merge a few summaries at a time, until one is left."""
    tasks, n, span = _Tasks(name), len(summaries), _FAN_IN
    while len(summaries) > 1:
        groups = [summaries[at : at + _FAN_IN] for at in range(0, len(summaries), _FAN_IN)]
        summaries = [
            tasks.add(_merge, shared, f"partitions {at} to {min(at + span, n) - 1} of {n}", group)
            if len(group) > 1
            else group[0]
            for at, group in zip(range(0, n, span), groups, strict=True)
        ]
        span *= _FAN_IN
    return summaries[0]


def _reduce_partition(shared: Any, place: str, start: int | None, length: int | None, *blocks: Any) -> Any:
    make, roles = shared
    with _at(place), on_one_thread(), one_blas_thread():
        reducer, points = make(), roles.points(start, length, *blocks)
        if points is None:
            return reducer.summary()
        try:
            for at in range(0, len(points), _BATCH):
                reducer.add(points.take(slice(at, at + _BATCH)), before=at)
        except ValueError:
            if roles.features is not None:  # name the column
                refuse_nonfinite(points.X, names=[str(name) for name in roles.features])
            raise
        return reducer.summary()


def _merge(shared: Any, place: str, summaries: Sequence[Any]) -> Any:
    with _at(place), on_one_thread(), one_blas_thread():
        return merge_summaries(shared[0], summaries)


@contextmanager
def _at(place: str) -> Iterator[None]:
    try:
        yield
    except Exception as error:
        raise PartitionError(place, error) from error


def _nothing(*blocks: Any) -> None:
    """Depend on blocks, and return nothing."""


def _can_compute(values: Sequence[Any]) -> bool:
    try:
        _dask().compute(*values)
    except Exception:
        return False
    return True


def _length(block: Any) -> int:
    return int(block.shape[0])


def _kind(data: Any) -> str:
    """Return "array", "frame" or "column"; "" for anything else, such as a delayed value."""
    if not _dask().is_dask_collection(data):
        return ""
    if hasattr(type(data), "chunks"):
        return "array"
    return ("", "column", "frame")[data.ndim] if hasattr(type(data), "divisions") else ""


def _blocks_of(collection: Any) -> list[Any]:
    """Return one delayed value per partition.

    Where few of many columns are needed, Dask's optimizer may read several
    partitions as one. It must not: rows are counted and read by different
    columns, so that the partitions would differ.
    """
    blocks = collection.to_delayed()
    if _kind(collection) != "array" and len(blocks) != collection.npartitions:
        blocks = collection.simplify().to_delayed(optimize_graph=False)
    return list(np.ravel(blocks))


def _check_type(dtype: Any, name: str, kinds: str = "biuf") -> None:
    """Raise TypeError unless a type is one of the kinds, numbers or integers."""
    if getattr(dtype, "kind", "O") not in kinds:
        wanted = "integers" if kinds == "iu" else "numbers"
        raise TypeError(
            f"{name} must be {wanted}; found type {dtype}; convert it first (text by "
            "dask.dataframe.get_dummies, times to seconds), or leave it out"
        )


def _column_blocks(column: Any, name: str, lengths: Sequence[int] | None, n_blocks: int) -> list[Any]:
    """Return the blocks of a column, partitioned like the rows; None for each if there is no column."""
    if column is None:
        return [None] * n_blocks
    if _kind(column) not in ("array", "column"):
        raise TypeError(
            f"{name} must be a Dask array or Series, as the data is a Dask collection; found "
            f"{type(column).__name__}; convert it with dask.array.from_array({name})"
        )
    if column.ndim != 1:
        raise ValueError(f"{name} must have one value per row, in one dimension; found shape {column.shape}")
    _check_type(column.dtype, name, "iu" if name == "ids" else "biuf")
    if lengths is not None and _kind(column) == "array" and not math.isnan(column.shape[0]):
        if column.shape[0] != sum(lengths):
            raise ValueError(
                f"{name} has {column.shape[0]} values for {sum(lengths)} rows of X; their lengths must agree"
            )
        column = column.rechunk((tuple(lengths),))
    blocks = _blocks_of(column)
    if len(blocks) != n_blocks:
        raise ValueError(
            f"{name} has {len(blocks)} partitions and the data {n_blocks}; split both at the same rows, or "
            "call compute_chunk_sizes() on arrays first"
        )
    return blocks


def _features(frame: Any, features: Iterable[Any] | None, named: dict[str, Any]) -> tuple[Any, ...]:
    """Return the names of the features; refuse columns that are absent, have two roles or are not numbers."""
    there, where = list(frame.columns), Path("the frame")
    roles = column_roles(there, where, named, features)
    if features is None:
        roles |= {name: "features" for name in there if name not in roles}
    check_names(where, [name for name in there if name in roles])
    for name, dtype in zip(there, frame.dtypes, strict=True):
        if name in roles:
            _check_type(dtype, f"{roles[name]}={name!r}", "iu" if roles[name] == "id" else "biuf")
    chosen = tuple(name for name, role in roles.items() if role == "features")
    if not chosen:
        raise ValueError(f"there is no column left for the features; the frame has {few(there)}")
    return chosen
