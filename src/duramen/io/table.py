"""A table in one or several files, read in batches: what all formats have in common."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import accumulate
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeAlias

from duramen.arrays import check_count
from duramen.io.columns import NUMERIC, Column, Kind, absent
from duramen.text import few

Mark: TypeAlias = tuple[int, int, int, int]
Reader: TypeAlias = "Callable[[int, Sequence[str]], Iterator[Batch]]"

_BYTES = 8 << 20  # of a batch; with twice as much a store is hardly faster, and takes 100 MB more
_MOST, _FEWEST = 1 << 16, 1 << 8


def rows_in_memory(width: int) -> int:
    """Choose how many rows of ``width`` numbers to read at once: up to 8 MB, a power of two.

    Examples
    --------
    >>> rows_in_memory(4), rows_in_memory(54), rows_in_memory(5000)
    (65536, 16384, 256)
    """
    fit = _BYTES // (8 * max(1, width))
    return max(_FEWEST, min(_MOST, 1 << max(0, fit.bit_length() - 1)))


def mark_of(path: Path) -> Mark | None:
    """Return a fingerprint that changes whenever a file is changed or replaced; None without a file."""
    try:
        found = path.stat()
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns


@dataclass(frozen=True)
class Batch:
    """Consecutive rows of a table.

    Attributes
    ----------
    table : Table
        The table the rows are from.
    first : int
        The number of the first row in the table, from 0.
    done : float
        The share of the file that has been read, from 0 to 1.
    """

    table: Table
    first: int
    done: float
    n_rows: int = field(repr=False)
    readers: Mapping[str, Callable[[], Column]] = field(repr=False)

    def __len__(self) -> int:
        return self.n_rows

    def column(self, name: str) -> Column:
        """Return one column; ValueError if it was not read."""
        if name not in self.readers:
            raise ValueError(absent(name, tuple(self.readers), self.table.path))
        return self.readers[name]()

    def place(self, row: int) -> str:
        """Describe where a row of this batch is in the file."""
        return self.table.place(self.first + row)


class Table(ABC):
    """A file (or several) of rows and named columns.

    Attributes
    ----------
    path : Path
    columns : tuple of str
    kinds : dict of str to Kind
        What each column holds.
    n_rows : int or None
        None if only a pass over the file can count them.
    index : tuple of str
        Columns that were the index of a pandas frame: not features unless they are named.
    marks : dict of Path to Mark
        Fingerprints that reveal a file that changes between passes.
    typed : bool
        Whether the file declares what its columns hold; for text files it is guessed from the first rows.
    """

    path: Path
    columns: tuple[str, ...]
    kinds: Mapping[str, Kind]
    n_rows: int | None = None
    index: tuple[str, ...] = ()
    typed: bool = True
    marks: Mapping[Path, Mark] = MappingProxyType({})

    def batches(
        self, n_rows: int | None = None, columns: Iterable[str] | None = None, skip: int = 0
    ) -> Iterator[Batch]:
        """Read the table, ``n_rows`` rows at a time; the last batch may be shorter.

        Parameters
        ----------
        n_rows : int, optional
            By default what fits in 8 MB, and no more than 65,536. Some formats also hold a piece
            of the file in memory: a block of a text file, a record batch of an Arrow file.
        columns : iterable of str, optional
            The columns to read; all by default.
        skip : int
            The number of rows to skip; their values are not interpreted.
        """
        wanted = self.columns if columns is None else tuple(dict.fromkeys(columns))
        for name in wanted:
            if name not in self.kinds:
                raise ValueError(absent(name, self.columns, self.path))
        n_rows = rows_in_memory(len(wanted)) if n_rows is None else check_count("n_rows", n_rows)
        return self._unchanged(self._read(n_rows, wanted, check_count("skip", skip, 0)))

    def _unchanged(self, batches: Iterator[Batch]) -> Iterator[Batch]:
        """Refuse files that change before or during the pass."""
        self.refuse_changed()
        yield from batches
        self.refuse_changed()

    def refuse_changed(self) -> None:
        """Raise ValueError if a file has changed since it was opened."""
        for path, mark in self.marks.items():
            if mark_of(path) != mark:
                raise ValueError(f"{path} changed while it was read; start again when it is complete")

    def shards(self) -> list[Reader]:
        """Split the table into parts that can be read in parallel, each by a call with rows and columns."""
        return [self.batches]

    def _read_shard(self, read: Reader, start: int, n_rows: int, columns: Sequence[str]) -> Iterator[Batch]:
        """Read a part of the table whose first row has the number ``start``."""
        for batch in read(n_rows, columns):
            yield replace(batch, table=self, first=start + batch.first)
            del batch

    def types(self) -> dict[str, str]:
        """Return the types of the columns, for comparison with another file."""
        return {name: "numbers" if kind in NUMERIC else kind.value for name, kind in self.kinds.items()}

    @abstractmethod
    def _read(self, n_rows: int, columns: Sequence[str], skip: int) -> Iterator[Batch]:
        """Read the batches; the arguments have been checked."""

    def place(self, row: int) -> str:
        """Describe where a row is in the file, for a message."""
        return f"row {row} (counting from 0)"

    def why_text(self, name: str) -> str:
        """Describe where the first text of a column is, for a message; "" if the file is typed."""
        return ""

    def __repr__(self) -> str:
        rows = "rows not counted" if self.n_rows is None else f"{self.n_rows} rows"
        return f"<{type(self).__name__} {self.path.name}: {rows}, {len(self.columns)} columns>"


class Files(Table):
    """The rows of several tables with the same columns, one after the other.

    Parameters
    ----------
    path : Path
        The folder or pattern.
    parts : sequence of Table
        One whose columns differ is refused before a row is read.
    """

    def __init__(self, path: Path, parts: Sequence[Table]) -> None:
        first = parts[0]
        check_same_columns([(part.path, part.types()) for part in parts])
        self.path, self.parts = path, tuple(parts)
        self.columns, self.index = first.columns, first.index
        self.typed = all(part.typed for part in parts)
        self.kinds = {name: _kind(name, parts) for name in first.columns}
        self._counts = [part.n_rows for part in parts]  # None until the rows of a file are counted
        self.n_rows = None if None in self._counts else sum(count or 0 for count in self._counts)

    def place(self, row: int) -> str:
        for part, count in zip(self.parts, self._counts, strict=True):
            if count is None or row < count:
                return f"{part.path.name}, {part.place(row)}"
            row -= count
        return super().place(row)

    def why_text(self, name: str) -> str:
        return next((why for part in self.parts if (why := part.why_text(name))), "")

    def shards(self) -> list[Reader]:
        if self.n_rows is None:
            return [self.batches]
        starts = accumulate([part.n_rows or 0 for part in self.parts], initial=0)
        return [
            partial(self._read_shard, read, start)
            for part, start in zip(self.parts, starts, strict=False)
            for read in part.shards()
        ]

    def _read(self, n_rows: int, columns: Sequence[str], skip: int) -> Iterator[Batch]:
        first = 0
        for part in self.parts:
            for batch in part._read(n_rows, columns, max(skip - first, 0)):
                done = (first + batch.first + len(batch)) / (self.n_rows or 1)
                yield replace(batch, table=self, first=first + batch.first, done=done)
            first += part.n_rows or 0


def _kind(name: str, parts: Sequence[Table]) -> Kind:
    """Return what a column holds in all files: text, if it looks like text in one of them."""
    kinds = [part.kinds[name] for part in parts]
    return next((kind for kind in kinds if kind not in NUMERIC), kinds[0])


def check_same_columns(tables: Sequence[tuple[Any, Mapping[str, str]]]) -> None:
    """Refuse a file whose columns or types differ from the first's; each is a path and its types."""
    for other, other_types in tables[1:]:
        path, types = tables[0]
        for name, kind in types.items():
            found = other_types.get(name)
            if found is None:
                raise ValueError(f"{other} has no column {name!r}, which {path} has")
            if found != kind:
                raise ValueError(f"{other}: column {name!r} has type {found}, in {path} it is {kind}")
        more = [name for name in other_types if name not in types]
        if more:
            raise ValueError(f"{other} has a column {few(more)}, which {path} does not have")
