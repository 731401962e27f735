"""Robust coresets of Dask collections, on the schedulers of one machine and on clusters.

>>> from duramen.distributed import dask as dmd

One task per partition summarizes it, and a tree of tasks merges the summaries.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np

from duramen.arrays import refuse_nonfinite
from duramen.coreset.coreset import Coreset
from duramen.coreset.passes import Make, merge_summaries, plan, run_passes
from duramen.errors import prefixed
from duramen.extras import needed
from duramen.io.tables import check_names, column_roles
from duramen.losses.base import Loss
from duramen.parallel import on_one_thread, one_blas_thread
from duramen.points import WeightedPoints

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

    Notes
    -----
    It runs where ``dask.compute`` would: on the cluster of the active client, or on a scheduler of this
    machine. There are two passes, and one before them that counts the rows of a frame by one column (not
    if ids are given). Each pass computes the partitions again: call ``persist()`` first where that is
    expensive and they fit in the cluster's memory. Only summaries travel. However large a partition is,
    its summary has at most 20,000 rows in the first pass, and in the second ``size`` rows (per layer,
    with the layered sampler) and the rows that may be suspected, no more than are suspected in total.
    Each task uses one thread. An error on a worker names the partition, and numbers rows within it.

    Dask configures its workers to return memory to the system at once, which may take as long as the work
    itself. ``MALLOC_TRIM_THRESHOLD_=536870912`` together with ``MALLOC_MMAP_THRESHOLD_=536870912`` in
    their environment lets them keep it.

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
    source = DaskSource(
        data, features, label=label, y=y, weight=weight, sample_weight=sample_weight, id=id, ids=ids
    )
    first = plan(loss=loss, columns=source.names and list(map(str, source.names)), **settings)
    if loss.needs_labels and "label" not in source.roles:
        raise ValueError(f"{loss!r} needs labels; pass label= for a frame, or y, one label per row")
    source.number_rows()
    if source.rows is not None and "weight" not in source.roles:
        first = first.expecting(source.rows[-1].stop)
    return run_passes(source, first)


def _dask() -> Any:
    return needed("dask", "duramen.distributed.dask", "dask")


_COLUMNS = {"label": "y", "weight": "sample_weight", "id": "ids"}  # by role, the name of a separate column


class DaskSource:
    """The partitions of a Dask collection, in order, as a source of passes.

    ``given`` are the columns "label", "weight" and "id" of a frame, and Dask arrays or Series "y",
    "sample_weight" and "ids", of which there are ``roles``. ``names`` are those of the features, None for an
    array; ``rows`` are the numbers of the rows of each partition, where they are known.
    """

    classes = None

    def __init__(self, data: Any, features: Iterable[Any] | None = None, **given: Any) -> None:
        found = {name for name, value in given.items() if value is not None}
        self.roles = {role for role, other in _COLUMNS.items() if found & {role, other}}
        for role, other in _COLUMNS.items():
            if {role, other} <= found:
                raise TypeError(f"{role}={given[role]!r} and {other} mean the same; pass one of them")
        named = {role: given.get(role) for role in _COLUMNS}
        self.names: tuple[Any, ...] | None = None
        self.rows: list[range] | None = None
        self._places: list[str] = []
        if _check_form(data, "data", 2):
            self._read_array(data, [*named.values(), features])
        else:
            self._read_frame(data, named, features)
        self._read = partial(_read, self.names, tuple(named.values()))
        columns = [self._blocks_of_column(given.get(name), name) for name in _COLUMNS.values()]
        self._partitions = list(zip(self._blocks, *columns, strict=True))

    def _read_frame(self, frame: Any, named: dict[str, Any], features: Any) -> None:
        there, where = list(frame.columns), Path("the frame")
        roles, names = column_roles(there, where, named, features)
        check_names(where, [name for name in there if name in roles])
        dtypes = dict(zip(there, frame.dtypes, strict=True))
        for name, role in roles.items():
            _check_type(dtypes[name], f"{role}={name!r}", whole=role == "id")
        self.names, used = tuple(names), list(roles)
        self._blocks, self._counters = _blocks_of(frame[used]), _blocks_of(frame[used[:1]])
        if not len(self._blocks) == len(self._counters) == frame.npartitions:
            self._counters = self._blocks
        elif frame.known_divisions:
            self._places = [f" (index {start} to {end})" for start, end in pairwise(frame.divisions)]

    def _read_array(self, X: Any, named: Sequence[Any]) -> None:
        for name in named:
            if name is not None:
                raise TypeError(
                    f"{name!r} names a column, but a Dask array has no names; pass y, sample_weight and ids "
                    "as separate arrays, or a Dask DataFrame"
                )
        _check_type(X.dtype, "X")
        self._blocks = self._counters = _blocks_of(X.rechunk({1: -1}))
        if not any(map(math.isnan, X.chunks[0])):
            self.rows = _ranges(X.chunks[0])
            self._places = [f" (rows {rows.start} to {rows.stop - 1})" for rows in self.rows]

    def _blocks_of_column(self, column: Any, name: str) -> list[Any]:
        """Return the blocks of a column, partitioned like the rows; None for each if there is no column."""
        if column is None:
            return [None] * len(self)
        is_array = _check_form(column, name, 1)
        _check_type(column.dtype, name, whole=name == "ids")
        if is_array and self.rows is not None and column.shape[0] == self.rows[-1].stop:
            column = column.rechunk((tuple(map(len, self.rows)),))
        blocks = _blocks_of(column)
        if len(blocks) != len(self):
            raise ValueError(
                f"{name} has {len(blocks)} partitions and the data {len(self)}; pass one value for each row, "
                "split both at the same rows, or call compute_chunk_sizes() on arrays first"
            )
        return blocks

    def __len__(self) -> int:
        return len(self._blocks)

    def number_rows(self) -> None:
        """Count the rows, in a pass over one column, if they are to be numbered and are not counted yet."""
        if self.rows is None and "id" not in self.roles:
            self.rows = _ranges(self._fetch(_tasks("count-rows", _length, self._counters)))

    def reduce(self, make: Make, stage: str) -> Any:
        """Make one pass: one task per partition, and a tree of tasks that merge their summaries."""
        self.number_rows()
        n, span = len(self), 1
        shared = _dask().delayed((make, self._read), name=f"duramen-plan-{uuid4().hex}", traverse=False)
        places = [self._name(number) for number in range(n)]
        rows: list[range | None] = [*self.rows] if self.rows else [None] * n
        summaries = _tasks(stage, _reduce_partition, [shared] * n, places, rows, self._partitions)
        while len(summaries) > 1:
            groups = [summaries[at : at + _FAN_IN] for at in range(0, len(summaries), _FAN_IN)]
            span *= _FAN_IN
            places = [f"partitions {at} to {min(at + span, n) - 1} of {n}" for at in range(0, n, span)]
            summaries = _tasks(f"{stage}-merge", _merge, [shared] * len(groups), places, groups)
        return self._fetch(summaries)[0]

    def _name(self, number: int) -> str:
        return f"partition {number} of {len(self)}{self._places[number] if self._places else ''}"

    def _fetch(self, values: Sequence[Any]) -> list[Any]:
        """Compute values that depend on partitions; an error names the partition."""
        try:
            return list(_dask().compute(*values))
        except PartitionError as found:
            raise found.args[0] from found.__cause__
        except Exception as error:
            number = None if type(error).__module__.startswith("distributed.") else self._find_broken()
            if number is None:
                raise
            raise prefixed(f"{self._name(number)}: ", error) from error

    def _find_broken(self) -> int | None:
        """Find the first partition that cannot be computed, by halves."""
        probes, first, end = _tasks("look-for-error", len, self._partitions), 0, len(self)
        if _can_compute(probes):
            return None
        while end - first > 1:
            middle = (first + end) // 2
            first, end = (middle, end) if _can_compute(probes[first:middle]) else (first, middle)
        return first


class PartitionError(Exception):
    """An error in a task, whose argument is the error that names its partitions."""


def _tasks(name: str, function: Callable[..., Any], *columns: Iterable[Any]) -> list[Any]:
    """Delay one call per entry of the columns, under names that Dask's dashboard groups."""
    key, delayed = f"duramen-{name}-{uuid4().hex}", _dask().delayed(function, pure=False, traverse=False)
    calls = enumerate(zip(*columns, strict=True))
    return [delayed(*call, dask_key_name=(key, number)) for number, call in calls]


def _read(
    features: Sequence[Any] | None, named: Sequence[Any], rows: range | None, block: Any, *columns: Any
) -> WeightedPoints | None:
    """Read a block with its labels, weights and ids as points, or None if it has no rows.

    Where the block is a frame, ``features`` and ``named`` are columns of it. ``rows`` are the numbers that
    its rows must have over all partitions, where known. X is not checked for NaN and infinity.
    """
    n = _length(block)
    if rows is not None and n != len(rows):
        raise ValueError(
            f"it has {n:,} rows, but had {len(rows):,} when they were counted; a partition must be the "
            "same each time it is computed: call persist() on the data first"
        )
    X = block if features is None else block[list(features)]
    y, weights, ids = (
        column if name is None else block[name] for name, column in zip(named, columns, strict=True)
    )
    if not n and not any(len(column) for column in (y, weights, ids) if column is not None):
        return None
    if ids is None and rows is not None:
        ids = np.arange(rows.start, rows.stop)
    return WeightedPoints._unvalidated(X, y, weights, ids)


def _reduce_partition(shared: Any, place: str, rows: range | None, blocks: Sequence[Any]) -> Any:
    make, read = shared
    with _at(place):
        reducer, points = make(), read(rows, *blocks)
        try:
            for start in range(0, 0 if points is None else len(points), _BATCH):
                reducer.add(points.take(slice(start, start + _BATCH)), before=start)
        except ValueError:
            names = read.args[0]
            refuse_nonfinite(points.X, names=names and list(map(str, names)))  # names the column
            raise
        return reducer.summary()


def _merge(shared: Any, place: str, summaries: Sequence[Any]) -> Any:
    with _at(place):
        return merge_summaries(shared[0], summaries)


@contextmanager
def _at(place: str) -> Iterator[None]:
    """Use one thread, and name the place in an error."""
    try:
        with on_one_thread(), one_blas_thread():
            yield
    except Exception as error:
        raise PartitionError(prefixed(f"{place}: ", error)) from error


def _can_compute(values: Sequence[Any]) -> bool:
    with suppress(Exception):
        _dask().compute(*values)
        return True
    return False


def _length(block: Any) -> int:
    return int(block.shape[0])


def _ranges(lengths: Iterable[int]) -> list[range]:
    """Return the numbers of the rows of partitions of these lengths."""
    return [range(start, end) for start, end in pairwise(accumulate(lengths, initial=0))]


def _is_array(data: Any) -> bool:
    return hasattr(type(data), "chunks")


def _check_form(data: Any, name: str, n_dims: int) -> bool:
    """Return whether data is a Dask array; refuse all but arrays and frames of so many dimensions."""
    known = _dask().is_dask_collection(data) and (_is_array(data) or hasattr(type(data), "divisions"))
    if not known or data.ndim != n_dims:
        found = f"{type(data).__name__} of {data.ndim} dimensions" if known else type(data).__name__
        wanted = "DataFrame, or a two-dimensional" if n_dims == 2 else "Series, or a one-dimensional"
        raise TypeError(
            f"{name} must be a Dask {wanted} Dask array; found {found}; convert a Series by to_frame(), an "
            "array by dask.array.from_array, or keep all data in memory and use dm.robust_coreset"
        )
    return _is_array(data)


def _blocks_of(collection: Any) -> list[Any]:
    """Return one delayed value per partition.

    Where few of many columns are needed, Dask's optimizer may read several
    partitions as one. It must not: rows are counted and read by different
    columns, so that the partitions would differ.
    """
    blocks = collection.to_delayed()
    if not _is_array(collection) and len(blocks) != collection.npartitions:
        blocks = collection.simplify().to_delayed(optimize_graph=False)
    return list(np.ravel(blocks))


def _check_type(dtype: Any, name: str, *, whole: bool = False) -> None:
    """Raise TypeError unless a type is one of numbers, or of integers if it must be ``whole``."""
    if getattr(dtype, "kind", "O") not in ("iu" if whole else "biuf"):
        wanted = "integers" if whole else "numbers"
        raise TypeError(
            f"{name} must be {wanted}; found type {dtype}; convert it first (text by "
            "dask.dataframe.get_dummies, times to seconds), or leave it out"
        )
