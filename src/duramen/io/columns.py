"""Columns of a batch: what they hold, and how messages name them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from difflib import get_close_matches
from enum import Enum
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from duramen.arrays import Array
from duramen.text import few, shorten

Category: TypeAlias = str | int | float | bool

EXACT = 2**53
"""float64 represents every whole number up to here."""


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


class BadCellError(ValueError):
    """A value that cannot be used: its row in the batch (None: the whole column), why, and what to do."""

    def __init__(self, row: int | None, problem: str, way_out: str = "") -> None:
        super().__init__(problem)
        self.row, self.problem, self.way_out = row, problem, way_out


def refuse_where(bad: Array, problem: str, way_out: str = "") -> None:
    """Raise BadCellError about the first row where ``bad`` is true."""
    rows = np.flatnonzero(bad)
    if rows.size:
        raise BadCellError(int(rows[0]), problem, way_out)


def absent(name: Any, there: Sequence[str], path: Path, role: str = "") -> str:
    """Return the message about a missing column, with the names of the present ones.

    Examples
    --------
    >>> absent("agee", ["age", "size"], Path("people.csv"))
    "people.csv has no column 'agee'; did you mean 'age'? It has 'age', 'size'"
    """
    by_lower = {other.strip().lower(): other for other in reversed(there)}
    close = [repr(by_lower[key]) for key in get_close_matches(str(name).strip().lower(), by_lower, n=3)]
    hint = f"did you mean {' or '.join(close)}? It" if close else "it"
    wanted = f" ({role})" if role else ""
    return f"{path} has no column {name!r}{wanted}; {hint} has {few(there)}"


def check_names(path: Path, names: Sequence[str]) -> tuple[str, ...]:
    """Refuse columns that share a name, and a table without any."""
    if not names:
        raise ValueError(f"{path} has no columns")
    twice = [name for name, count in Counter(names).items() if count > 1]
    if twice:
        raise ValueError(f"{path}: more than one column is called {few(twice)}; rename them")
    return tuple(names)


def column_roles(
    there: Sequence[Any], path: Path, roles: Mapping[str, Any], features: Iterable[Any] | None
) -> dict[Any, str]:
    """Return the role of each column that is given one; refuse absent columns and two roles for one."""
    if isinstance(features, str):
        raise TypeError(f"features={features!r} is a string; pass a list of names")
    found: dict[Any, str] = {}
    given = [(role, name) for role, name in roles.items() if name is not None]
    for role, name in [*given, *(("features", name) for name in features or ())]:
        if name not in there:
            raise ValueError(absent(name, [str(one) for one in there], path, role))
        if name in found:
            both = f"{found[name]} and {role}" if found[name] != role else f"{role}, twice"
            raise ValueError(f"column {name!r} is given as {both}; a column has one role")
        found[name] = role
    return found


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


class Column(ABC):
    """The values of one column in one batch.

    Every method raises :class:`BadCellError` if a value is not of the requested kind.
    """

    kind: Kind

    def _check(self, wanted: str) -> None:
        """Refuse a column of a kind other than "numbers", "text" or "whole numbers"."""
        if self.kind not in _KINDS_OF[wanted]:
            raise BadCellError(None, f"holds {self.kind.value}, not {wanted}")

    @abstractmethod
    def numbers(self) -> Array:
        """Return a numeric array, NaN where a value is missing; copied only if it must be."""

    @abstractmethod
    def texts(self) -> tuple[Array, list[str]]:
        """Return a code for each row (-1 where missing) and the text of each code."""

    @abstractmethod
    def whole(self) -> Array:
        """Return ids that are whole numbers, exactly."""

    def words(self) -> list[str]:
        """Return ids that are text."""
        codes, texts = self.texts()
        refuse_where(codes < 0, "has no value")
        return [texts[code] for code in codes.tolist()]

    def flags(self) -> Array:
        """Return 0, 1 or NaN (missing)."""
        values = self.numbers()
        wrong = np.flatnonzero((values != 0) & (values != 1) & (values == values))
        if wrong.size:
            raise BadCellError(int(wrong[0]), f"holds {values[wrong[0]]:g}, which is not true or false")
        return values

    def distinct(self, of: str) -> tuple[Array, list[Category]]:
        """Return a code for each row (-1 where missing) and the value of each code.

        ``of`` says what the values are: "text", "number" or "flag".
        """
        if of == "text":
            codes, values = self.texts()
            return codes, list(values)
        numbers = self.flags() if of == "flag" else self.numbers()
        known, codes = np.unique(numbers, return_inverse=True)
        codes = np.where(np.isnan(numbers), -1, codes.reshape(-1))
        plain: Callable[[Any], Category] = bool if of == "flag" else plain_number
        return codes, [plain(value) for value in known[~np.isnan(known)]]  # NaN sorts last


def refuse_large(values: Array) -> None:
    """Refuse whole numbers that float64 would round: they are ids more often than quantities."""
    if values.dtype.kind not in "iu" or values.dtype.itemsize < 8 or not values.size:
        return
    if values.max() <= EXACT and values.min() >= -EXACT:
        return
    row = int(np.flatnonzero((values > EXACT) | (values < -EXACT))[0])
    raise too_large(row, values[row])


def as_int64(values: Array) -> Array:
    """Convert whole numbers to int64; refuse one that is too large."""
    if values.dtype == np.uint64:
        over = np.flatnonzero(values > np.iinfo(np.int64).max)
        if over.size:
            raise BadCellError(int(over[0]), f"holds {values[over[0]]}, beyond the largest int64")
    return values.astype(np.int64)


def too_large(row: int, value: Any) -> BadCellError:
    """Return the error about a whole number beyond 2**53."""
    return BadCellError(
        row,
        f"holds {value}, beyond 2**53, where float64 rounds whole numbers",
        "leave the column out of the features (--features), or store it as float64 if rounding is fine",
    )


_KINDS_OF = {
    "numbers": NUMERIC | {Kind.CATEGORY},
    "text": {Kind.TEXT, Kind.EMPTY},
    "whole numbers": {Kind.WHOLE},
}


def plain_number(value: Any) -> Category:
    """Return a number as an int if it is whole."""
    number = float(value)
    return int(number) if number.is_integer() else number
