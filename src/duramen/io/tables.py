"""Tables: files of rows and named columns, read in batches.

A :class:`Table` is one or several files. A :class:`File` of each format yields pieces, which are
regrouped into batches of rows; a :class:`Column` of a batch is read as numbers, text or ids.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from difflib import get_close_matches
from enum import Enum
from itertools import accumulate, repeat
from operator import attrgetter
from pathlib import Path
from typing import Any, ClassVar, TypeAlias

import numpy as np

from duramen.arrays import Array, check_count
from duramen.errors import RowError
from duramen.text import few, shorten

Category: TypeAlias = str | float  # also int and bool
Piece: TypeAlias = Mapping[str, Any]  # consecutive rows: arrays of the columns, NumPy's or Arrow's
Shard: TypeAlias = "tuple[Sequence[File], int]"  # files, and the number of their first row

EXACT = 2**53
"""float64 represents every whole number up to here."""

TOO_LARGE = "holds {value}, beyond 2**53, where float64 rounds whole numbers in {row}"
BEYOND_INT64 = "holds {value}, beyond the largest int64 in {row}"
MISSING = "has no value in {row}"
INFINITE = "is infinite, or too large in {row}; correct it or drop the row"

_NUMBERS = 1 << 20  # of a batch: 8 MB; with twice as many a store is hardly faster, and takes 100 MB more


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


_NAMES = {  # patterns for the names of Arrow's and NumPy's types
    "null": Kind.EMPTY,
    "bool": Kind.FLAG,
    r"u?int\d+": Kind.WHOLE,
    r"double|decimal.*|float(64|96|128)": Kind.REAL,
    "halffloat|float(16|32)?": Kind.SINGLE,
    r"(large_)?string(_view)?|str\d*": Kind.TEXT,
    "(date|time|duration).*|.*interval": Kind.TIME,
}


def kind_named(name: str) -> Kind:
    """Return what a column of the type with a name holds."""
    return next((kind for pattern, kind in _NAMES.items() if re.fullmatch(pattern, name)), Kind.OTHER)


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
    typed = True

    def __init__(self, pieces: Sequence[Any], kind: Kind) -> None:
        self.kind, self.values = kind, pieces[0] if len(pieces) == 1 else self.join(pieces)

    def _check(self, wanted: str) -> None:
        """Refuse a column of another kind than "numbers", "text" or "whole numbers", unless it is a guess."""
        if self.typed and self.kind not in _KINDS_OF[wanted]:
            raise RowError(f"holds {self.kind.value}, not {wanted}")

    def numbers(self, *, flags: bool = False) -> Array:
        """Return a numeric array, NaN where a value is missing; copied only if it must be.

        Whole numbers that float64 would round are refused: they are ids more often than quantities.
        ``flags`` says that text is true or false, which become 1 and 0.
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

    def distinct(self, of: str) -> tuple[Array, list[Any]]:
        """Return a code for each row (-1 where missing) and the value of each code.

        ``of`` says what the values are: "text", "number" or "flag" (0 and 1).
        """
        if of == "text":
            return self.texts()
        numbers = self.numbers(flags=of == "flag")
        refuse_where(np.isinf(numbers), INFINITE)
        known, codes = np.unique(numbers, return_inverse=True)
        values = known[~np.isnan(known)].astype(float).tolist()  # NaN sorts last
        plain = [int(value) if value.is_integer() else value for value in values]
        return np.where(np.isnan(numbers), -1, codes), plain


def check_present(name: Any, there: Collection[Any], path: Path, role: str = "") -> None:
    """Refuse a column that is missing, with the names of the present ones."""
    if name not in there:
        by_lower = {str(other).strip().lower(): other for other in there}
        close = get_close_matches(str(name).strip().lower(), by_lower, n=1)
        hint = f"did you mean {by_lower[close[0]]!r}? It" if close else "it"
        raise ValueError(f"{path} has no column {name!r}{role}; {hint} has {few([*there])}")


def check_names(path: Path, names: Sequence[str]) -> None:
    """Refuse columns that share a name, and a table without any."""
    if not names:
        raise ValueError(f"{path} has no columns")
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise ValueError(f"{path}: more than one column is called {few(twice)}; rename them")


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
) -> tuple[dict[Any, str], list[Any]]:
    """Return the role of each column that is used, and the features: by default all others but ``index``.

    Absent columns, two roles for one, and a table without features are refused.
    """
    given = zip(repeat("features"), listed_names(features or (), "features"))
    found: dict[Any, str] = {}
    for role, name in [*roles.items(), *given]:
        if name is None:
            continue
        check_present(name, there, path, f" ({role})")
        if name in found:
            raise ValueError(f"column {name!r} is given as {found[name]} and {role}; name each column once")
        found[name] = role
    if features is None:
        found |= {name: "features" for name in there if name not in {*found, *index}}
    used = [name for name, role in found.items() if role == "features"]
    if not used:
        raise ValueError(f"{path} has no column left for the features; it has {few(there)}")
    return found, used


def rows_in_memory(width: int) -> int:
    """Choose how many rows of ``width`` numbers to read at once: up to 8 MB, a power of two."""
    fit = _NUMBERS // max(1, width)
    return max(256, min(65_536, 1 << fit.bit_length() >> 1))


def shape_text(n_rows: int | None, columns: Sequence[str] | None) -> str:
    """Say how many rows and columns there are, as far as that is known."""
    rows = "rows not counted" if n_rows is None else f"{n_rows:,} rows"
    return rows if columns is None else f"{rows}, {len(columns)} columns"


def marks_of(paths: Iterable[Path]) -> dict[Path, tuple[int, ...]]:
    """Return fingerprints of files, which change whenever one is changed or replaced; not of absent files."""
    mark = attrgetter("st_dev", "st_ino", "st_size", "st_mtime_ns")
    return {path: mark(path.stat()) for path in paths if path.exists()}


class File(ABC):
    """One file of a table: what its columns hold, in its order, and what it is called in messages.

    ``n_rows`` is None until a pass has counted them; the columns in ``index`` were that of a pandas frame.
    """

    what: str
    errors: tuple[type[Exception], ...] = ()  # of reading a damaged file
    column_type: type[Column] = Column
    kinds: dict[str, Kind]
    n_rows: int | None = None
    index: tuple[str, ...] = ()
    done = 1.0  # the share that has been read, where rows are not counted yet

    def __init__(self, path: Path) -> None:
        self.path, self._marks = path, marks_of([path])  # before anything is read
        with self._readable(*self.errors):
            self._open()

    @contextmanager
    def _readable(self, *errors: type[Exception]) -> Iterator[None]:
        """Turn the errors that a damaged file causes into one ValueError that names the file."""
        try:
            yield
        except (FileNotFoundError, PermissionError, IsADirectoryError):
            raise
        except errors as error:
            raise ValueError(
                f"{self.path} is damaged, cut short, or not {self.what}; copy or write it again "
                f"({shorten(error, 160)})"
            ) from error

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
        with self._readable(*self.errors):
            for piece in self._read(n_rows, columns):
                count += _length(piece)
                if self.n_rows:
                    self.done = count / self.n_rows
                yield piece
                del piece  # so that the next one is read without this one in memory
        self._refuse_changed("while it was read; start again")
        self.n_rows = count

    def _refuse_changed(self, when: str) -> None:
        changed = self._marks.items() - marks_of(self._marks).items()
        if changed:
            raise ValueError(f"{min(changed)[0]} changed {when} when it is complete")

    def shards(self) -> Sequence[File]:
        """Split the file into parts that can be read in parallel."""
        return [self]

    def types(self) -> dict[str, Any]:
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
        check_present(name, self.pieces[0], self.table.path)
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
        self.columns, self.kinds = tuple(first.kinds), dict(first.kinds)
        for file in files:
            self.kinds |= {name: kind for name, kind in file.kinds.items() if kind not in NUMERIC}

    def __repr__(self) -> str:
        return f"<Table {self.path.name}: {shape_text(self.n_rows, self.columns)}>"

    @property
    def n_rows(self) -> int | None:
        """The number of rows; None until a pass has counted them."""
        counts = [file.n_rows for file in self.files]
        return None if None in counts else sum(filter(None, counts))

    def batches(
        self,
        n_rows: int | None = None,
        columns: Iterable[str] | None = None,
        skip: int = 0,
        shard: Shard | None = None,
    ) -> Iterator[Batch]:
        """Read some columns, ``n_rows`` rows at a time (by default what fits in 8 MB), after ``skip`` rows.

        The last batch may be shorter; of a shard, only its rows are read. Some formats also hold a piece of
        the file in memory: a block of a text file, a record batch of an Arrow file. Values that are skipped
        are not interpreted.
        """
        wanted = self.columns if columns is None else tuple(dict.fromkeys(columns))
        for name in wanted:
            check_present(name, self.kinds, self.path)
        n_rows = rows_in_memory(len(wanted)) if n_rows is None else check_count("n_rows", n_rows)
        return self._read(shard or (self.files, 0), n_rows, wanted, check_count("skip", skip, 0))

    def shards(self) -> list[Shard]:
        """Split the table into parts that :meth:`batches` can read in parallel."""
        if self.n_rows is None:
            return [(self.files, 0)]
        shards = [shard for file in self.files for shard in file.shards()]
        starts = accumulate((shard.n_rows or 0 for shard in shards), initial=0)
        return [([shard], start) for shard, start in zip(shards, starts, strict=False)]

    def _read(self, shard: Shard, n_rows: int, columns: Sequence[str], skip: int) -> Iterator[Batch]:
        """Read a shard; a batch may span two files."""
        files, begin = shard  # the number of the first row of a piece
        start = begin + skip  # of a batch
        waiting: list[Piece] = []
        for number, file in enumerate(files):
            for piece in file.pieces(n_rows, columns):
                end = begin + _length(piece)
                while start < end:
                    stop = min(end, start + n_rows)
                    taken = slice(max(0, start - begin), stop - begin)
                    waiting.append({name: values[taken] for name, values in piece.items()})
                    if stop < start + n_rows:
                        break
                    yield Batch(self, start, (number + file.done) / len(files), waiting)
                    start, waiting = stop, []
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


def check_same_columns(tables: Sequence[tuple[Any, Mapping[str, Any]]]) -> None:
    """Refuse a file whose columns or types differ from the first's; each is a path and its types."""
    for path, types in tables[1:]:
        first, wanted = tables[0]
        for name in {**wanted, **types}:
            here, there = types.get(name, "absent"), wanted.get(name, "absent")
            if here != there:
                raise ValueError(
                    f"{path}: column {name!r} is {here}, in {first} it is {there}; all files need the same "
                    "columns"
                )
