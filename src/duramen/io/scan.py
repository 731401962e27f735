"""Data that is read in batches, not kept in memory: files, Arrow datasets, and iterables of batches."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar, final

import numpy as np

from duramen.arrays import Array, as_frame, column_names, is_frame
from duramen.errors import prefixed, rows_from
from duramen.io.encoding import Encoding, learn_encoding
from duramen.io.formats import open_table
from duramen.io.tables import Shard, Table, column_roles, listed_names, shape_text
from duramen.parallel import side_by_side
from duramen.points import WeightedPoints, is_names, listed, numbers_of
from duramen.progress import Bar

T = TypeVar("T")
Part = Callable[[], Iterator[tuple[int, float, WeightedPoints]]]  # rows before a batch, share read, and it
Progress = Callable[[int, float, int], Any]
TextIds = Iterator[tuple[float, Any]]  # the share read, and the ids of a batch

_MOST_IDS = 20_000_000  # ids compared across batches: 160 MB, 320 at the end; further ones are not checked


class Scan(ABC):
    """Data that can be read batch by batch, as often as needed: what :func:`scan` returns.

    Attributes
    ----------
    names : tuple of str or None
        The columns of X; None if they have no names, or batches are frames not read yet.
    classes : list or None
        What the labels 0, 1, ... stand for, if they were text.
    n_rows : int or None
        The number of rows; None until a pass has counted them.
    """

    title = "batches"
    names: tuple[str, ...] | None = None
    classes: list[Any] | None = None
    n_rows: int | None = None

    def __init__(self, progress: bool | Progress) -> None:
        self._progress = progress

    def __repr__(self) -> str:
        return f"Scan of {self.title}: {shape_text(self.n_rows, self.names)}"

    def __iter__(self) -> Iterator[WeightedPoints]:
        """Read all batches, in order, as points."""
        for part in self._parts():
            for _, _, points in part():
                yield points

    @abstractmethod
    def _parts(self) -> Sequence[Part]:
        """Split the data into parts that can be read in parallel."""

    @abstractmethod
    def _text_ids(self) -> TextIds:
        """Read the ids, where they are text."""

    def _check_ids(self) -> None:  # noqa: B027 (batches are not known well enough)
        """Refuse an id that occurs twice, as far as that is known after a pass."""

    def passed(
        self, begin: Callable[[], T], take: Callable[[T, int, WeightedPoints], Any], number: int = 1
    ) -> list[T]:
        """Make a pass over all batches; return what ``take`` added to what ``begin`` made, per thread."""
        found: dict[int, T] = {}
        lock = threading.Lock()
        n_rows = 0

        def read(part: Part) -> None:
            nonlocal n_rows
            mine = found.setdefault(threading.get_ident(), begin())
            for first, done, points in part():
                take(mine, first, points)
                with lock:
                    n_rows += len(points)
                    show(number, n_rows / self.n_rows if self.n_rows else done, n_rows)

        try:
            with self._progress_callback() as show:
                side_by_side(read, self._parts())
        except ValueError:
            self._check_ids()  # equal ids may be the cause
            raise
        self._check_ids()
        self.n_rows = n_rows
        return list(found.values()) or [begin()]

    @contextmanager
    def _progress_callback(self) -> Iterator[Progress]:
        """Yield the function to call after every batch; a bar on standard error is removed at the end."""
        with closing(Bar(shown=self._progress is True)) as bar:
            yield self._progress if callable(self._progress) else bar.at_pass

    def names_of(self, ids: Any) -> list[str]:
        """Return the ids of rows as in the source, where they are text, by the numbers they stand for.

        This takes a pass over the column of ids, or over all batches.

        Raises
        ------
        KeyError
            If there is no such row, or the ids are numbers.
        """
        wanted: list[int] = np.asarray(ids).tolist()
        found: dict[int, str] = {}
        n_rows = 0
        with self._progress_callback() as show:
            for done, names in self._text_ids():
                here = dict(zip(numbers_of(names).tolist(), names, strict=True))
                found |= {number: here[number] for number in here.keys() & wanted}
                n_rows += len(names)
                show(3, done, n_rows)
        return [found[number] for number in wanted]


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
    """Describe data that does not fit in memory: :func:`duramen.robust_coreset` and ``fit`` take it as X.

    Only the files' headers are read; and, if text is to become numbers
    or missing values are to be imputed, all rows once.

    Parameters
    ----------
    source : path, list of paths, Arrow dataset or table, list of batches, or function
        A file (Parquet, CSV, TSV, Arrow, Feather, .npz), a folder of such files (if it
        has several formats, its Parquet files), a pattern such as ``"data/*.parquet"``,
        or a list of files, all with the same columns; a ``pyarrow.dataset.Dataset``; or
        batches: a list of them, an object that can be iterated over repeatedly, or a
        function that returns an iterator each time it is called. A batch is an array X,
        a tuple (X, y) or (X, y, weights), a data frame or record batch, or points with
        ids that are distinct over all batches.
    label, weight, id : str, optional
        The columns of labels, weights, and ids: whole numbers, or text that becomes
        numbers (``names_of`` of the result returns the text). Without ``id``, rows are
        numbered over all files or batches.
    features : iterable of str, optional
        The columns of X; by default all that have no other role.
    one_hot, impute
        For files and datasets: which columns of text become columns of 0 and 1
        ("auto" for all), and whether a missing number becomes the column's "mean",
        "median" or "zero".
    progress : bool or function
        True shows a bar on standard error (``pip install 'duramen[progress]'``); a
        function is called after every batch with the number of the pass, the share
        of it that is done, and the number of rows read so far.

    Returns
    -------
    Scan

    Raises
    ------
    FileNotFoundError, TypeError, ValueError
        If the source does not exist, cannot be read twice, or its files have different columns.

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
    roles: dict[str, Any] = {"label": label, "weight": weight, "id": id}
    table = _open(source)
    if table is not None:
        encoding = learn_encoding(table, features=features, one_hot=one_hot, impute=impute, **roles)
        return TableScan(table, encoding, progress)
    if one_hot or impute:
        raise TypeError("one_hot= and impute= are for files and Arrow datasets; encode batches yourself")
    return _BatchScan(source, features, roles, progress)


def _open(source: Any) -> Table | None:
    """Open a source as a table; None if it is batches."""
    if hasattr(source, "to_batches") and hasattr(source, "schema"):  # an Arrow dataset or table
        from duramen.io.arrow import dataset_table

        return dataset_table(source)
    if is_frame(source) or hasattr(source, "__array_interface__"):
        raise TypeError(
            f"a {type(source).__name__} is already in memory; pass it as X, or scan a list of batches"
        )
    entries = source if isinstance(source, (list, tuple)) else [source]
    kinds = {isinstance(one, (str, Path)) for one in entries}
    if len(kinds) > 1:
        raise TypeError("a list to scan must hold either files or batches, not both")
    return open_table(source) if True in kinds else None


def _numbers(ids: Any) -> Any:
    """Return ids as numbers: those of names, or the ids themselves."""
    return numbers_of(ids) if is_names(ids) else ids


@final
class TableScan(Scan):
    """The rows of a table, encoded; text ids become numbers."""

    names: tuple[str, ...]

    def __init__(self, table: Table, encoding: Encoding, progress: bool | Progress = False) -> None:
        super().__init__(progress)
        self.table, self.encoding, self.title = table, encoding, table.path.name
        self.names, self.classes, self.n_rows = encoding.names, encoding.classes, table.n_rows
        self._ids: list[Array] | None = None if encoding.id is None else []  # of the first pass

    def _parts(self) -> Sequence[Part]:
        return [partial(self._read, shard) for shard in self.table.shards()]

    def _read(self, shard: Shard) -> Iterator[tuple[int, float, WeightedPoints]]:
        encoding = self.encoding
        for batch in self.table.batches(encoding.batch_rows, encoding.columns, shard=shard):
            rows, first = encoding.rows(batch), batch.first
            ids = np.arange(first, first + len(rows)) if rows.ids is None else _numbers(rows.ids)
            if self._ids is not None and first < _MOST_IDS:
                self._ids.append(ids)
            with rows_from(first):
                points = WeightedPoints._unvalidated(rows.X, rows.y, rows.weights, ids)  # X was checked
            yield first, batch.done, points

    def _check_ids(self) -> None:
        ids, self._ids = np.sort(np.concatenate(self._ids or [np.empty(0)])), None
        again = ids[1:][ids[1:] == ids[:-1]]
        if again.size:
            (one, first), (_, second), *_ = (
                (listed(rows.ids)[row], batch.place(row))
                for batch, rows in self._read_ids()
                for row in np.flatnonzero(_numbers(rows.ids) == again[0]).tolist()
            )
            raise ValueError(
                f"{self.table.path}: id {one!r} (column {self.encoding.id!r}) is in {first} and in {second}; "
                "ids must be distinct: correct them, or leave the id column out"
            )

    def _read_ids(self) -> Iterator[tuple[Any, Any]]:
        return replace(self.encoding, parts=(), label=None, weight=None).read(self.table)

    def _text_ids(self) -> TextIds:
        if self.encoding.ids == "text":
            for batch, rows in self._read_ids():
                yield batch.done, rows.ids


@final
class _BatchScan(Scan):
    """Batches passed by the user."""

    def __init__(
        self,
        source: Any,
        features: Iterable[str] | None,
        roles: dict[str, str | None],
        progress: bool | Progress,
    ) -> None:
        super().__init__(progress)
        if isinstance(source, Iterator) or not (callable(source) or isinstance(source, Iterable)):
            raise TypeError(
                f"a scan reads files, an Arrow dataset, or batches, twice; found {type(source).__name__}; "
                "pass a list of batches, or a function that returns an iterator"
            )
        self._source, self._roles = source, roles
        self._features = None if features is None else listed_names(features, "features")

    def _text_ids(self) -> TextIds:
        for batch in self._batches():
            ids = None if isinstance(batch, WeightedPoints) else self._columns(batch)[3]
            if is_names(ids):
                yield 0.5, listed(ids)

    def _parts(self) -> Sequence[Part]:
        return [self._read]

    def _batches(self) -> Iterable[Any]:
        batches = self._source() if callable(self._source) else self._source
        if not isinstance(batches, Iterable):
            raise TypeError(f"a function to scan must return an iterable; found {batches!r}")
        return batches

    def _read(self) -> Iterator[tuple[int, float, WeightedPoints]]:
        first = 0
        for number, batch in enumerate(self._batches()):
            try:
                points = self._points(batch, first)
            except (TypeError, ValueError) as error:
                raise prefixed(f"batch {number}: ", error) from error.__cause__
            if points is not None:
                yield first, 0.5, points  # the number of batches is unknown
                first += len(points)

    def _points(self, batch: Any, first: int) -> WeightedPoints | None:
        """Read a batch as points; None if it has no rows."""
        if isinstance(batch, WeightedPoints):
            return batch
        X, y, weights, ids = self._columns(batch)
        n_rows = X.shape[0] if hasattr(X, "shape") else len(X)
        if not n_rows:
            return None
        if ids is None:
            ids = np.arange(first, first + n_rows)
        return WeightedPoints(X, y, weights, _numbers(ids))

    def _columns(self, batch: Any) -> tuple[Any, ...]:
        """Return X, labels, weights and ids of a batch; X of a frame has the columns of the first batch."""
        if is_frame(batch):
            _, wanted = column_roles(column_names(batch), Path("the frame"), self._roles, self._features)
            self.names = self.names or tuple(wanted)
            if set(wanted) != set(self.names):
                raise ValueError(f"its columns are {wanted}, but earlier batches have {[*self.names]}")
            frame = as_frame(batch)
            others = (name and frame.get_column(name) for name in self._roles.values())
            return frame.select(*self.names), *others
        if any(name is not None for name in (self._features, *self._roles.values())):
            raise TypeError("label=, features=, weight= and id= name columns, but this batch has no names")
        parts = batch if isinstance(batch, tuple) else (batch,)
        if not 1 <= len(parts) <= 3:
            raise TypeError(
                f"a tuple must be (X, y) or (X, y, weights), but has {len(parts)} parts; for rows "
                "with ids pass dm.points(X, y, weights, ids)"
            )
        return (*parts, None, None, None)[:4]
