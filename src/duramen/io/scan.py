"""Data that is read, not held: files, Arrow datasets, and whatever gives its batches again and again."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, final

import numpy as np

from duramen.arrays import as_frame, column_names, is_frame, numbered
from duramen.parallel import side_by_side
from duramen.points import WeightedPoints
from duramen.progress import Bar

if TYPE_CHECKING:
    from duramen.io import Encoding, Table

__all__ = ["Scan", "scan"]


T = TypeVar("T")
Part = Callable[[], Iterator[tuple[int, WeightedPoints]]]
Progress = Callable[[int, float, int], Any]


@final
class Scan:
    """Data that can be read batch by batch, as often as is needed: what :func:`scan` returns."""

    def __init__(self, source: _Source, progress: bool | Progress) -> None:
        self._source, self._progress = source, progress
        self._counted = source.n_rows  # None until a pass has told

    def __repr__(self) -> str:
        rows = "rows not counted" if self.n_rows is None else f"{self.n_rows:,} rows"
        columns = "" if self.names is None else f", {len(self.names)} columns"
        return f"Scan of {self._source.told}: {rows}{columns}"

    def __iter__(self) -> Iterator[WeightedPoints]:
        """Read all batches, in order, as points."""
        for part in self._source.parts():
            for _, points in part():
                yield points

    @property
    def names(self) -> tuple[str, ...] | None:
        """The columns of X; None where they have no names, or of frames that were not read yet."""
        return self._source.names

    @property
    def classes(self) -> list[Any] | None:
        """What the labels 0, 1, ... stand for, where they were text."""
        return self._source.classes

    @property
    def n_rows(self) -> int | None:
        """How many rows there are; None where only a pass over them tells."""
        return self._source.n_rows

    def passed(
        self,
        begin: Callable[[], T],
        take: Callable[[T, int, WeightedPoints], Any],
        told: Callable[[float, int], Any],
    ) -> list[T]:
        """Make one pass over all batches, on all cores where files can be read in parts.

        Parameters
        ----------
        begin : function
            Makes what one thread gathers.
        take : function
            Called with it, how many rows stand before a batch, and the batch.
        told : function
            Called after every batch with the share that is done, and how many rows that were.

        Returns
        -------
        list
            What was gathered: one for each thread, at least one.

        Raises
        ------
        ValueError
            If a file is another than it was when the scan was made.
        """
        self._source.check_unchanged()
        found: dict[int, T] = {}
        lock = threading.Lock()
        n_rows = 0

        def look(part: Part) -> None:
            nonlocal n_rows
            mine = found.setdefault(threading.get_ident(), begin())
            for first, points in part():
                take(mine, first, points)
                with lock:
                    n_rows += len(points)
                    told(n_rows / max(1, self._counted or 2 * n_rows), n_rows)

        side_by_side(look, self._source.parts())
        self._source.check_unchanged()
        self._counted = n_rows
        return list(found.values()) or [begin()]

    @contextmanager
    def shown(self) -> Iterator[Progress]:
        """Give what to call after every batch; a bar goes when the work is done."""
        told: Any = self._progress
        bar = _Bar() if told is True else None
        try:
            yield bar or told or _silent
        finally:
            if bar is not None:
                bar.close()


def scan(
    source: Any,
    *,
    label: str | None = None,
    features: Iterable[str] | None = None,
    weight: str | None = None,
    id: str | None = None,
    one_hot: Iterable[str] | str = (),
    impute: str | None = None,
    progress: bool | Progress = False,
) -> Scan:
    """Say where data is that does not fit in memory: :func:`duramen.robust_coreset` and ``fit`` take it as X.

    Nothing is read yet, but the files' headers; and, if text is to become
    numbers or missing values are to be imputed, all rows once.

    Parameters
    ----------
    source : path, list of paths, Arrow dataset or table, list of batches, or function
        A file (Parquet, CSV, TSV, Arrow, Feather, .npz), a folder of Parquet
        files, a pattern such as ``"data/*.parquet"``, or a list of files, all with
        the same columns; a ``pyarrow.dataset.Dataset``; or batches: a list of them,
        an object that can be iterated over again and again, or a function that
        gives an iterator each time it is called. A batch is an array X, a tuple
        (X, y) or (X, y, weights), a data frame or record batch, or points with ids
        that are distinct over all batches.
    label, weight, id : str, optional
        Columns of labels, weights, and whole numbers that name the rows. Without
        ``id``, their numbers over all files or batches do.
    features : iterable of str, optional
        The columns of X; by default all that have no other role.
    one_hot, impute
        For files and datasets: which columns of text become columns of 0 and 1
        ("auto" for all), and whether a missing number is the column's "mean",
        "median" or "zero".
    progress : bool or function
        True shows a bar on standard error (``pip install 'duramen[progress]'``); a
        function is called after every batch with the number of the pass, the share
        of it that is done, and how many rows that were.

    Returns
    -------
    Scan

    Raises
    ------
    FileNotFoundError, TypeError, ValueError
        If it is not there, cannot be read twice, or its files have different columns.

    Examples
    --------
    >>> import numpy as np
    >>> import duramen as dm
    >>> X = np.random.default_rng(0).normal(size=(30_000, 2))
    >>> batches = dm.scan([X[:10_000], X[10_000:]])
    >>> core = dm.robust_coreset(batches, loss=dm.KMeansLoss(3), size=200, random_state=0)
    >>> whole = dm.robust_coreset(X, loss=dm.KMeansLoss(3), size=200, random_state=0)
    >>> np.array_equal(core.ids, whole.ids)
    True
    """
    if not (isinstance(progress, bool) or callable(progress)):
        raise TypeError(f"progress={progress!r} must be True, False, or a function")
    if isinstance(features, str):
        raise TypeError(f"features={features!r} is one text; give a list of names")
    named = None if features is None else list(features)
    roles: dict[str, Any] = {"label": label, "features": named, "weight": weight, "id": id}
    from duramen.io import learn_encoding, open_table
    from duramen.io.arrow_files import DatasetTable, is_dataset

    table: Table | None = None
    if (is_frame(source) and not is_dataset(source)) or hasattr(source, "__array_interface__"):
        raise TypeError(
            f"a {type(source).__name__} is in memory already; pass it as X, or a list of such to scan them"
        )
    if isinstance(source, (str, Path)) or _are_paths(source):
        table = open_table([*source] if _are_paths(source) else source)
    elif is_dataset(source):
        table = DatasetTable(source)
    if table is not None:
        encoding = learn_encoding(table, **roles, one_hot=one_hot, impute=impute)
        if encoding.text_ids:
            raise TypeError(
                f"the column {id!r} holds text, and ids are whole numbers; leave id= out, and core.ids are "
                "row numbers"
            )
        return Scan(_FromTable(table, encoding), progress)
    if one_hot or impute:
        raise TypeError("one_hot= and impute= are for files and Arrow datasets; encode batches yourself")
    return Scan(_FromBatches(source, roles), progress)


class _Source:
    """Where batches come from."""

    names: tuple[str, ...] | None = None
    classes: list[Any] | None = None
    n_rows: int | None = None
    told: str

    def parts(self) -> list[Part]:
        raise NotImplementedError

    def check_unchanged(self) -> None:
        """Raise ValueError if it is another than it was."""


@final
class _FromTable(_Source):
    """A table in files."""

    def __init__(self, table: Table, encoding: Encoding) -> None:
        self._table, self._encoding = table, encoding
        self.names, self.classes, self.n_rows = encoding.names, encoding.classes, table.n_rows
        self.told = str(table.path.name)

    def parts(self) -> list[Part]:
        return [_Reading(shard, self._encoding) for shard in self._table.shards()]

    def check_unchanged(self) -> None:
        self._table.refuse_changed()


@final
class _Reading:
    """One part of a table, read as points."""

    def __init__(self, shard: Table, encoding: Encoding) -> None:
        self._shard, self._encoding = shard, encoding

    def __call__(self) -> Iterator[tuple[int, WeightedPoints]]:
        for batch, rows in self._encoding.read(self._shard):
            first = self._shard.offset + batch.first
            ids = np.arange(first, first + len(rows), dtype=np.int64) if rows.ids is None else rows.ids
            with numbered(first):
                points = WeightedPoints._unvalidated(rows.X, rows.y, rows.weights, ids)  # the encoding looked
            yield first, points


@final
class _FromBatches(_Source):
    """Batches that somebody gives."""

    told = "batches"

    def __init__(self, source: Any, roles: dict[str, Any]) -> None:
        if not callable(source) and (not isinstance(source, Iterable) or iter(source) is source):
            raise TypeError(
                f"a scan reads its batches twice, and {type(source).__name__} "
                + (
                    "gives them once; pass a list, or a function that makes the iterator anew"
                    if isinstance(source, Iterable)
                    else "is neither a file, an Arrow dataset, nor something to iterate over"
                )
            )
        self._source, self._roles = source, roles

    def parts(self) -> list[Part]:
        return [self._read]

    def _read(self) -> Iterator[tuple[int, WeightedPoints]]:
        batches = self._source() if callable(self._source) else self._source
        if not isinstance(batches, Iterable):
            raise TypeError(
                f"a function that gives batches must give something to iterate over; found {batches!r}"
            )
        first = 0
        for number, batch in enumerate(batches):
            try:
                points = self._points(batch, first)
            except (TypeError, ValueError) as error:
                raise type(error)(f"batch {number}: {error}") from error
            if points is not None:
                yield first, points
                first += len(points)

    def _points(self, batch: Any, first: int) -> WeightedPoints | None:
        """Make points of a batch; None if it has no rows."""
        if isinstance(batch, WeightedPoints):
            return batch
        y = weights = ids = None
        X = batch
        if is_frame(batch):
            X, y, weights, ids = self._columns(batch)
        elif any(value is not None for value in self._roles.values()):
            raise TypeError("label=, features=, weight= and id= name columns, and this batch has no names")
        elif isinstance(batch, tuple):
            if not 1 <= len(batch) <= 3:
                raise TypeError(
                    f"a tuple is (X, y) or (X, y, weights), and this one has {len(batch)} parts; for rows "
                    "with ids pass dm.points(X, y, weights, ids)"
                )
            X, y, weights = (*batch, None, None)[:3]
        n_rows = X.shape[0] if hasattr(X, "shape") else len(X)
        if not n_rows:
            return None
        if ids is None:
            ids = np.arange(first, first + n_rows, dtype=np.int64)
        return WeightedPoints(X, y, weights, ids)

    def _columns(self, frame: Any) -> tuple[Any, Any, Any, Any]:
        """Take a frame apart."""
        there = column_names(frame)
        names = [self._roles[role] for role in ("label", "weight", "id")]
        features = self._roles["features"]
        wanted = [name for name in there if name not in names] if features is None else features
        if self.names is not None and features is None and set(wanted) != set(self.names):
            raise ValueError(f"its columns are {wanted}, those of the batches before are {[*self.names]}")
        wanted = wanted if self.names is None else [*self.names]  # in the order of the first batch
        for name in [*wanted, *(name for name in names if name is not None)]:
            if name not in there:
                raise ValueError(f"there is no column {name!r}; there are {there}")
        self.names = tuple(wanted)
        frame = as_frame(frame)
        return frame.select(wanted), *(None if name is None else frame.get_column(name) for name in names)


@final
class _Bar:
    """A bar on standard error, for whoever did not bring one."""

    def __init__(self) -> None:
        self._bar, self._number = Bar(shown=True), 0

    def __call__(self, number: int, share: float, rows: int) -> None:
        if number != self._number:
            self._bar.begin(f"pass {number}")
            self._number = number
        self._bar.at(share, rows)

    def close(self) -> None:
        self._bar.close()


def _are_paths(source: Any) -> bool:
    if not isinstance(source, (list, tuple)):
        return False
    paths = [isinstance(one, (str, Path)) for one in source]
    if any(paths) and not all(paths):
        raise TypeError("a list for a scan is of files or of batches, and this one has both")
    return bool(source) and all(paths)


def _silent(number: int, share: float, rows: int) -> None:
    """Show nothing."""
