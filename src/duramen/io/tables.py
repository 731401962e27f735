"""Tables: files of rows and named columns, read in batches.

A :class:`Table` is one or several files. A :class:`File` of each format yields pieces, which are
regrouped into batches of rows; a :class:`Column` of a batch is read as numbers, text or ids.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from difflib import get_close_matches
from enum import Enum
from functools import partial
from itertools import accumulate
from pathlib import Path
from typing import Any, ClassVar, TypeAlias

import numpy as np

from duramen.arrays import Array, check_count
from duramen.errors import RowError
from duramen.text import few, shorten

Category: TypeAlias = str | int | float | bool
Piece: TypeAlias = Mapping[str, Any]  # consecutive rows: arrays of the columns, NumPy's or Arrow's
Reader: TypeAlias = "Callable[[int, Sequence[str]], Iterator[Batch]]"

EXACT = 2**53
"""float64 represents every whole number up to here."""

TOO_LARGE = "holds {value}, beyond 2**53, where float64 rounds whole numbers in {row}"
BEYOND_INT64 = "holds {value}, beyond the largest int64 in {row}"
MISSING = "has no value in {row}"
INFINITE = "is infinite, or too large in {row}; correct it or drop the row"

_BYTES = 8 << 20  # of a batch; with twice as much a store is hardly faster, and takes 100 MB more
_MOST, _FEWEST = 1 << 16, 1 << 8


class Kind(Enum):
    """What a column holds, as worded in messages."""

    WHOLE = "whole numbers"
    REAL = "numbers"
    SINGLE = "float32 numbers"
    FLAG = "true/false"
    CODE = "digits with leading zeros"  # text files only: numbers as a feature, text as an id
    EMPTY = "missing values only"
    TEXT = "text"
    MIXED = "numbers and text"  # text files only: text, but more than half are numbers
    CATEGORY = "categories that are numbers"  # an Arrow dictionary of numbers
    TIME = "dates or times"
    OTHER = "values of another type"


NUMERIC = frozenset({Kind.WHOLE, Kind.REAL, Kind.SINGLE, Kind.FLAG, Kind.CODE, Kind.EMPTY})
"""The kinds that can be features without encoding."""

_KINDS_OF = {
    "numbers": NUMERIC | {Kind.CATEGORY},
    "text": {Kind.TEXT, Kind.EMPTY},
    "whole numbers": {Kind.WHOLE},
}


def refuse_where(bad: Any, text: str, values: Any = None, hint: str = "") -> None:
    """Raise RowError about the first row where ``bad`` is true; ``{value}`` in the text is its value."""
    if np.any(bad):
        row = int(np.argmax(bad))
        raise RowError(text, row, value=None if values is None else shorten(values[row], 60), hint=hint)


class Column:
    """The values of one column in one batch: here NumPy arrays, one for each piece of the batch.

    Every method raises :class:`~duramen.errors.RowError` if a value is not of the requested kind. Files
    that are not ``typed``, those of text, do not declare what they hold: it is guessed from the first rows.
    """

    join: ClassVar[Any] = staticmethod(np.concatenate)
    typed: ClassVar[bool] = True

    def __init__(self, pieces: Sequence[Any], kind: Kind) -> None:
        self.kind, self.values = kind, pieces[0] if len(pieces) == 1 else self.join(pieces)

    def _check(self, wanted: str) -> None:
        """Refuse a column of another kind than "numbers", "text" or "whole numbers", unless it is a guess."""
        if self.typed and self.kind not in _KINDS_OF[wanted]:
            raise RowError(f"holds {self.kind.value}, not {wanted}")

    def numbers(self) -> Array:
        """Return a numeric array, NaN where a value is missing; copied only if it must be.

        Whole numbers that float64 would round are refused: they are ids more often than quantities.
        """
        self._check("numbers")
        values: Array = self.values
        if values.dtype.kind in "iu":
            refuse_where((values > EXACT) | (values < -EXACT), TOO_LARGE, values, "large")
        return values

    def texts(self) -> tuple[Array, list[str]]:
        """Return a code for each row (-1 where missing) and the text of each code."""
        self._check("text")
        known, codes = np.unique(self.values, return_inverse=True)
        return codes, known.tolist()

    def whole(self) -> Array:
        """Return ids that are whole numbers, exactly."""
        self._check("whole numbers")
        values: Array = self.values
        refuse_where(values > np.iinfo(np.int64).max, BEYOND_INT64, values)
        return values.astype(np.int64)

    def words(self) -> list[str]:
        """Return ids that are text."""
        codes, texts = self.texts()
        refuse_where(codes < 0, MISSING, hint="drop")
        return [texts[code] for code in codes.tolist()]

    def flags(self) -> Array:
        """Return 0, 1 or NaN (missing)."""
        return self.numbers()

    def distinct(self, of: str) -> tuple[Array, list[Any]]:
        """Return a code for each row (-1 where missing) and the value of each code.

        ``of`` says what the values are: "text", "number" or "flag" (0 and 1).
        """
        if of == "text":
            return self.texts()
        numbers = self.flags() if of == "flag" else self.numbers()
        refuse_where(np.isinf(numbers), INFINITE)
        known, codes = np.unique(numbers, return_inverse=True)
        values = known[~np.isnan(known)].astype(float).tolist()  # NaN sorts last
        plain = [int(value) if value.is_integer() else value for value in values]
        return np.where(np.isnan(numbers), -1, codes), plain


def absent(name: Any, there: Sequence[str], path: Path, role: str = "") -> str:
    """Return the message about a missing column, with the names of the present ones."""
    by_lower = {other.strip().lower(): other for other in reversed(there)}
    close = [repr(by_lower[key]) for key in get_close_matches(str(name).strip().lower(), by_lower, n=3)]
    hint = f"did you mean {' or '.join(close)}? It" if close else "it"
    wanted = f" ({role})" if role else ""
    return f"{path} has no column {name!r}{wanted}; {hint} has {few(there)}"


def repeated(names: Iterable[str]) -> list[str]:
    """Return the names that occur more than once."""
    return [name for name, count in Counter(names).items() if count > 1]


def check_names(path: Path, names: Sequence[str]) -> None:
    """Refuse columns that share a name, and a table without any."""
    if not names:
        raise ValueError(f"{path} has no columns")
    if repeated(names):
        raise ValueError(f"{path}: more than one column is called {few(repeated(names))}; rename them")


def listed_names(names: Iterable[Any], what: str) -> list[Any]:
    """List names of columns; refuse a string, which would be read as its letters."""
    if isinstance(names, str):
        raise TypeError(f"{what}={names!r} is a string; pass a list of names")
    return list(names)


def column_roles(
    there: Sequence[Any],
    path: Path,
    roles: Mapping[str, Any],
    features: Iterable[Any] | None,
    index: Sequence[Any] = (),
) -> dict[Any, str]:
    """Return the role of each column that is used; by default, features are all others but ``index``.

    Absent columns, two roles for one, and a table without features are refused.
    """
    found: dict[Any, str] = {}
    given = [(role, name) for role, name in roles.items() if name is not None]
    for role, name in [*given, *(("features", name) for name in listed_names(features or (), "features"))]:
        if name not in there:
            raise ValueError(absent(name, [str(one) for one in there], path, role))
        if name in found:
            both = f"{found[name]} and {role}" if found[name] != role else f"{role}, twice"
            raise ValueError(f"column {name!r} is given as {both}; a column has one role")
        found[name] = role
    if features is None:
        found |= {name: "features" for name in there if name not in {*found, *index}}
    if "features" not in found.values():
        raise ValueError(f"{path} has no column left for the features; it has {few(there)}")
    return found


def features_of(roles: Mapping[Any, str]) -> list[Any]:
    """Return the columns that are features."""
    return [name for name, role in roles.items() if role == "features"]


@contextmanager
def readable(path: Path, what: str, *errors: type[Exception]) -> Iterator[None]:
    """Turn the errors that a damaged file causes into one ValueError that names the file."""
    try:
        yield
    except (FileNotFoundError, PermissionError, IsADirectoryError):
        raise
    except errors as error:
        raise ValueError(
            f"{path} is damaged, cut short, or not {what}: {shorten(error, 160).rstrip('.')}; "
            "copy or write it again"
        ) from error


def rows_in_memory(width: int) -> int:
    """Choose how many rows of ``width`` numbers to read at once: up to 8 MB, a power of two."""
    fit = _BYTES // (8 * max(1, width))
    return max(_FEWEST, min(_MOST, 1 << fit.bit_length() >> 1))


def marks_of(paths: Iterable[Path]) -> dict[Path, tuple[int, ...]]:
    """Return fingerprints of files, which change whenever one is changed or replaced; not of absent files."""
    found = {path: path.stat() for path in paths if path.exists()}
    return {path: (one.st_dev, one.st_ino, one.st_size, one.st_mtime_ns) for path, one in found.items()}


class File(ABC):
    """One file of a table: what its columns hold, in its order, and what it is called in messages.

    ``n_rows`` is None until a pass has counted them; the columns in ``index`` were that of a pandas frame.
    """

    what: ClassVar[str]
    errors: ClassVar[tuple[type[Exception], ...]] = ()  # of reading a damaged file
    column_type: ClassVar[type[Column]] = Column
    kinds: Mapping[str, Kind]
    n_rows: int | None = None
    index: tuple[str, ...] = ()
    done = 1.0  # the share that has been read, where rows are not counted yet

    def __init__(self, path: Path) -> None:
        self.path, self._marks = path, marks_of([path])  # before anything is read
        with readable(path, self.what, *self.errors):
            self._open()

    @abstractmethod
    def _open(self) -> None:
        """Find out what the columns are."""

    @abstractmethod
    def _read(self, n_rows: int, columns: Sequence[str]) -> Iterator[Piece]:
        """Read some columns of the file in pieces of any size."""

    def pieces(self, n_rows: int, columns: Sequence[str]) -> Iterator[Piece]:
        """Read some columns in pieces, and count the rows; refuse a file that has changed, or changes."""
        self._refuse_changed("after it was opened; open it again")
        count = 0
        with readable(self.path, self.what, *self.errors):
            for piece in self._read(n_rows, columns):
                count += _length(piece)
                self.done = count / self.n_rows if self.n_rows else self.done
                yield piece
                del piece  # so that the next one is read without this one in memory
        self._refuse_changed("while it was read; start again")
        self.n_rows = count

    def _refuse_changed(self, when: str) -> None:
        now = marks_of(self._marks)
        for path, mark in self._marks.items():
            if now.get(path) != mark:
                raise ValueError(f"{path} changed {when} when it is complete")

    def shards(self) -> Sequence[File]:
        """Split the file into parts that can be read in parallel."""
        return [self]

    def types(self) -> dict[str, str]:
        """Return the types of the columns, for comparison with another file."""
        return {name: "numbers" if kind in NUMERIC else kind.value for name, kind in self.kinds.items()}

    def place(self, row: int) -> str:
        """Describe where a row is, for a message."""
        return f"row {row} (counting from 0)"


@dataclass(frozen=True, repr=False)
class Batch:
    """Consecutive rows of a table; ``first`` is the number of the first, ``done`` the share read so far."""

    table: Table
    first: int
    done: float
    pieces: Sequence[Piece]

    def __len__(self) -> int:
        return sum(map(_length, self.pieces))

    def column(self, name: str) -> Column:
        """Return one column; ValueError if it was not read."""
        if name not in self.pieces[0]:
            raise ValueError(absent(name, [*self.pieces[0]], self.table.path))
        return self.table.column_type([piece[name] for piece in self.pieces], self.table.kinds[name])

    def place(self, row: int) -> str:
        """Describe where a row of this batch is in the file."""
        return self.table.place(self.first + row)


class Table:
    """Rows and named columns in one or several files, which must have the same columns.

    ``kinds`` says what each column holds: text, if it looks like text in one of the files. The columns in
    ``index`` were the index of a pandas frame: they are not features unless they are named. ``typed``
    says whether the files declare what their columns hold.
    """

    def __init__(self, path: Path, files: Sequence[File]) -> None:
        check_same_columns([(file.path, file.types()) for file in files])
        self.path, self.files, first = path, files, files[0]
        self.index, self.column_type, self.typed = first.index, first.column_type, first.column_type.typed
        self.columns = tuple(first.kinds)
        self.kinds = dict(first.kinds)
        for file in files:
            self.kinds |= {name: kind for name, kind in file.kinds.items() if kind not in NUMERIC}

    def __repr__(self) -> str:
        rows = "rows not counted" if self.n_rows is None else f"{self.n_rows} rows"
        return f"<Table {self.path.name}: {rows}, {len(self.columns)} columns>"

    @property
    def n_rows(self) -> int | None:
        """The number of rows; None until a pass has counted them."""
        counts = [file.n_rows for file in self.files]
        return None if None in counts else sum(filter(None, counts))

    def batches(
        self, n_rows: int | None = None, columns: Iterable[str] | None = None, skip: int = 0
    ) -> Iterator[Batch]:
        """Read some columns, ``n_rows`` rows at a time (by default what fits in 8 MB), after ``skip`` rows.

        The last batch may be shorter. Some formats also hold a piece of the file in memory: a block of a
        text file, a record batch of an Arrow file. Values that are skipped are not interpreted.
        """
        wanted = self.columns if columns is None else tuple(dict.fromkeys(columns))
        for name in wanted:
            if name not in self.kinds:
                raise ValueError(absent(name, self.columns, self.path))
        n_rows = rows_in_memory(len(wanted)) if n_rows is None else check_count("n_rows", n_rows)
        return self._read(self.files, 0, n_rows, wanted, check_count("skip", skip, 0))

    def shards(self) -> list[Reader]:
        """Split the table into parts that can be read in parallel, each by a call with rows and columns."""
        if self.n_rows is None:
            return [partial(self._read, self.files, 0)]
        shards = [shard for file in self.files for shard in file.shards()]
        starts = accumulate((shard.n_rows or 0 for shard in shards), initial=0)
        return [partial(self._read, [shard], start) for shard, start in zip(shards, starts, strict=False)]

    def _read(
        self, files: Sequence[File], first: int, n_rows: int, columns: Sequence[str], skip: int = 0
    ) -> Iterator[Batch]:
        """Read files of which the first row has the number ``first``; a batch may span two files."""
        waiting: list[Piece] = []
        begin, start = first, first + skip  # the numbers of a piece's first row and of a batch's
        for number, file in enumerate(files):
            for piece in file.pieces(n_rows, columns):
                row, end = max(begin, start), begin + _length(piece)
                while row < end:
                    stop = min(end, start + n_rows)
                    taken = slice(row - begin, stop - begin)
                    waiting.append({name: values[taken] for name, values in piece.items()})
                    row = stop
                    if row == start + n_rows:
                        yield Batch(self, start, (number + file.done) / len(files), waiting)
                        start, waiting = row, []
                begin = end
                del piece  # so that the next one is read without this one in memory
        if waiting:
            yield Batch(self, start, 1.0, waiting)

    def place(self, row: int) -> str:
        """Describe where a row is in the files, for a message."""
        for file in self.files:
            if file.n_rows is None or row < file.n_rows:
                break
            row -= file.n_rows
        return f"{file.path.name}, {file.place(row)}" if len(self.files) > 1 else file.place(row)

    def why_text(self, name: str) -> str:
        """Describe where the first text of a column is, for a message; "" if the files are typed."""
        for batch in () if self.typed else self.batches(columns=[name]):
            try:
                batch.column(name).numbers()
            except RowError as error:  # noqa: PERF203 (one per block)
                return f" ({error.values['value']!r} in {batch.place(error.row or 0)})"
        return ""


def _length(piece: Piece) -> int:
    return len(next(iter(piece.values())))


def check_same_columns(tables: Sequence[tuple[Any, Mapping[str, str]]]) -> None:
    """Refuse a file whose columns or types differ from the first's; each is a path and its types."""
    for path, types in tables[1:]:
        first, wanted = tables[0]
        for name in {**wanted, **types}:
            if types.get(name) != wanted.get(name):
                both = f"is {types.get(name, 'absent')}, in {first} it is {wanted.get(name, 'absent')}"
                raise ValueError(f"{path}: column {name!r} {both}; all files need the same columns")
