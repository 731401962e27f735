"""Columns of a batch: numbers, categories or ids, whatever the file holds."""

from __future__ import annotations

import zlib
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from difflib import get_close_matches
from enum import Enum
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from duramen.extras import needed

__all__ = [
    "NUMERIC",
    "ArrowColumn",
    "BadCellError",
    "Category",
    "Column",
    "Kind",
    "NumpyColumn",
    "TextColumn",
    "absent",
    "arrow",
    "checked_names",
    "codes_of_numbers",
    "few",
    "kind_of",
    "large",
    "looks_like",
    "plain_number",
    "readable",
    "rebatched",
    "refuse_kind",
    "refuse_large",
    "shortened",
    "skipping",
]


class Kind(Enum):
    """What a column holds; the value is how a message calls it."""

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
"""The kinds that are a feature as they are."""


class BadCellError(ValueError):
    """A value that cannot be used: its row in the batch (None: all of them), and what is wrong with it."""

    def __init__(self, row: int | None, problem: str, way_out: str = "") -> None:
        super().__init__(problem)
        self.row, self.problem, self.way_out = row, problem, way_out


def few(names: Sequence[str], most: int = 8) -> str:
    """List some names, and how many more there are.

    Examples
    --------
    >>> few(["age", "size", "colour"], most=2)
    "'age', 'size' and 1 more"
    """
    shown = ", ".join(repr(name) for name in names[:most])
    return shown + (f" and {len(names) - most} more" if len(names) > most else "")


def absent(name: str, there: Sequence[str], path: Path, role: str = "") -> str:
    """Say that a column is not there, and which ones are.

    Examples
    --------
    >>> absent("agee", ["age", "size"], Path("people.csv"))
    "people.csv has no column 'agee'; did you mean 'age'? It has 'age', 'size'"
    """
    by_lower = {other.strip().lower(): other for other in reversed(there)}
    close = [by_lower[key] for key in get_close_matches(str(name).strip().lower(), list(by_lower), n=3)]
    rest = f"it has {few(there)}"
    if close:
        rest = f"did you mean {' or '.join(repr(other) for other in close)}? It has {few(there)}"
    wanted = f" ({role})" if role else ""
    return f"{path} has no column {name!r}{wanted}; {rest}"


def shortened(text: str, width: int = 60) -> str:
    """Put a text on one line, cut where it is long."""
    flat = " ".join(text.split())
    return flat if len(flat) <= width else flat[: width - 3] + "..."


def checked_names(path: Path, names: Sequence[str]) -> tuple[str, ...]:
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


def arrow(part: str) -> Any:
    """Import a part of pyarrow, or say what to install."""
    return needed(f"pyarrow.{part}" if part else "pyarrow", "reading this file", "frames")


@contextmanager
def readable(path: Path, what: str) -> Iterator[None]:
    """Turn what pyarrow raises on a damaged file into one ValueError that names the file."""
    pa = arrow("")
    try:
        yield
    except (pa.ArrowException, OSError, EOFError, UnicodeDecodeError, zlib.error) as error:
        if isinstance(error, (FileNotFoundError, PermissionError, IsADirectoryError)):
            raise
        raise ValueError(
            f"{path} is damaged, cut short, or not {what}: {shortened(str(error), 160)}"
        ) from error


def skipping(pieces: Iterable[tuple[Any, float]], n_rows: int) -> Iterator[tuple[Any, float]]:
    """Leave out the first ``n_rows`` rows of record batches."""
    for piece, done in pieces:
        if piece.num_rows > n_rows:
            yield piece.slice(n_rows), done
        n_rows = max(0, n_rows - piece.num_rows)


def rebatched(pieces: Iterable[tuple[Any, float]], n_rows: int) -> Iterator[tuple[Any, float]]:
    """Regroup record batches, each with the share of the file read, into Arrow tables of ``n_rows`` rows.

    Nothing is copied; what is left at the end comes as one shorter table.
    """
    pa = arrow("")
    waiting: list[Any] = []
    count = 0
    for rest, done in pieces:
        while count + rest.num_rows >= n_rows:
            waiting.append(rest.slice(0, n_rows - count))
            rest = rest.slice(n_rows - count)
            full, waiting, count = waiting, [], 0
            yield pa.Table.from_batches(full), done
            del full
        if rest.num_rows:
            waiting.append(rest)
            count += rest.num_rows
    if waiting:
        yield pa.Table.from_batches(waiting), 1.0


Category: TypeAlias = str | int | float | bool

EXACT = 2**53
"""Up to here float64 holds every whole number."""


class Column(ABC):
    """The values of one column in one batch.

    Every method raises :class:`BadCellError` where a value is not what was asked for.
    """

    kind: Kind

    @abstractmethod
    def numbers(self) -> NDArray[Any]:
        """Return a numeric array, NaN where a value is missing; without a copy where that can be."""

    @abstractmethod
    def texts(self) -> tuple[NDArray[np.int64], list[str]]:
        """Return a code for each row (-1 where missing) and the text of each code."""

    @abstractmethod
    def whole(self) -> NDArray[np.int64]:
        """Return ids that are whole numbers, exactly."""

    @abstractmethod
    def words(self) -> list[str]:
        """Return ids that are text."""

    def flags(self) -> NDArray[Any]:
        """Return 0, 1 or NaN (missing)."""
        values = self.numbers()
        wrong = np.flatnonzero((values != 0) & (values != 1) & (values == values))
        if wrong.size:
            raise BadCellError(int(wrong[0]), f"holds {values[wrong[0]]:g}, which is not true or false")
        return values

    def distinct(self, of: str) -> tuple[NDArray[np.int64], list[Category]]:
        """Return a code for each row (-1 where missing) and the value of each code.

        ``of`` says what the values are: "text", "number" or "flag".
        """
        if of == "text":
            codes, values = self.texts()
            return codes, list(values)
        codes, numbers = codes_of_numbers(self.flags() if of == "flag" else self.numbers())
        if of == "flag":
            return codes, [bool(value) for value in numbers]
        return codes, [plain_number(value) for value in numbers]


def codes_of_numbers(values: NDArray[Any]) -> tuple[NDArray[np.int64], NDArray[Any]]:
    """Return a code for each value, -1 for NaN, and the distinct values, ascending."""
    known, codes = np.unique(values, return_inverse=True)
    kept = known[~np.isnan(known)] if known.dtype.kind == "f" else known
    codes = codes.reshape(-1).astype(np.int64)
    codes[codes >= len(kept)] = -1  # NaN sorts last
    return codes, kept


def refuse_large(values: NDArray[Any]) -> None:
    """Refuse whole numbers that float64 would round: they are ids more often than quantities."""
    if values.dtype.kind not in "iu" or values.dtype.itemsize < 8 or not values.size:
        return
    if values.max() <= EXACT and values.min() >= -EXACT:
        return
    row = int(np.flatnonzero((values > EXACT) | (values < -EXACT))[0])
    raise BadCellError(row, *large(values[row]))


def large(value: Any) -> tuple[str, str]:
    """Say what is wrong with a whole number beyond 2**53, and what to do."""
    return (
        f"holds {value}, beyond 2**53, where float64 rounds whole numbers",
        "leave the column out of the features (--features), or store it as float64 if rounding is fine",
    )


def refuse_kind(kind: Kind, wanted: str) -> None:
    """Refuse a column that as a whole is of another kind."""
    if wanted == "number" and kind not in NUMERIC and kind is not Kind.CATEGORY:
        raise BadCellError(None, f"holds {kind.value}, not numbers")
    if wanted == "text" and kind not in (Kind.TEXT, Kind.EMPTY):
        raise BadCellError(None, f"holds {kind.value}, not text")
    if wanted == "whole" and kind is not Kind.WHOLE:
        raise BadCellError(None, f"holds {kind.value}, not whole numbers")


def plain_number(value: Any) -> Category:
    """Write a whole number as an int."""
    number = float(value)
    return int(number) if number.is_integer() else number


class NumpyColumn(Column):
    """A column that is a NumPy array."""

    def __init__(self, values: NDArray[Any], kind: Kind) -> None:
        self.values, self.kind = values, kind

    def numbers(self) -> NDArray[Any]:
        refuse_kind(self.kind, "number")
        refuse_large(self.values)
        return self.values

    def texts(self) -> tuple[NDArray[np.int64], list[str]]:
        refuse_kind(self.kind, "text")
        known, codes = np.unique(self.values, return_inverse=True)
        return codes.reshape(-1).astype(np.int64), known.tolist()

    def whole(self) -> NDArray[np.int64]:
        refuse_kind(self.kind, "whole")
        if self.values.dtype == np.uint64:
            over = np.flatnonzero(self.values > np.iinfo(np.int64).max)
            if over.size:
                raise BadCellError(int(over[0]), f"holds {self.values[over[0]]}, beyond the largest int64")
        return self.values.astype(np.int64)

    def words(self) -> list[str]:
        refuse_kind(self.kind, "text")
        return [str(value) for value in self.values.tolist()]


_WHOLE = r"^-?(0|[1-9][0-9]*)$"
_DIGITS = r"^-?[0-9]+$"
_NUMBER = r"^[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?$"


def kind_of(dtype: Any) -> Kind:
    """Tell what a column of an Arrow type holds."""
    types = arrow("types")
    if types.is_dictionary(dtype):
        inner = kind_of(dtype.value_type)
        return Kind.CATEGORY if inner in (Kind.WHOLE, Kind.REAL, Kind.SINGLE) else inner
    tests = {
        Kind.EMPTY: types.is_null,
        Kind.FLAG: types.is_boolean,
        Kind.WHOLE: types.is_integer,
        Kind.REAL: lambda held: types.is_float64(held) or types.is_decimal(held),
        Kind.SINGLE: types.is_floating,
        Kind.TEXT: _is_text,
        Kind.TIME: lambda held: types.is_temporal(held) or types.is_duration(held),
    }
    return next((kind for kind, test in tests.items() if test(dtype)), Kind.OTHER)


def _is_text(dtype: Any) -> bool:
    types = arrow("types")
    view = getattr(types, "is_string_view", None)
    return types.is_string(dtype) or types.is_large_string(dtype) or bool(view and view(dtype))


class ArrowColumn(Column):
    """A column of the file's own type."""

    def __init__(self, values: Any, kind: Kind) -> None:
        self.kind = kind
        self.values = values.chunk(0) if values.num_chunks == 1 else _joined(values)

    def numbers(self) -> NDArray[Any]:
        refuse_kind(self.kind, "number")
        pa, types = arrow(""), arrow("types")
        values = self.values
        if types.is_dictionary(values.type):
            values = values.dictionary_decode()
        if types.is_decimal(values.type) or types.is_null(values.type):
            values = values.cast(pa.float64())
        if types.is_boolean(values.type) and values.null_count:
            values = values.cast(pa.uint8())
        if types.is_int64(values.type) or types.is_uint64(values.type):
            _refuse_large(values)
        return values.to_numpy(zero_copy_only=False)

    def texts(self) -> tuple[NDArray[np.int64], list[str]]:
        refuse_kind(self.kind, "text")
        values = _as_text(self.values).dictionary_encode()
        codes = values.indices.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64)
        return codes, values.dictionary.to_pylist()

    def whole(self) -> NDArray[np.int64]:
        refuse_kind(self.kind, "whole")
        _refuse_missing(self.values)
        pa = arrow("")
        try:
            return self.values.cast(pa.int64()).to_numpy(zero_copy_only=False)
        except pa.ArrowInvalid:
            values = self.values.to_numpy(zero_copy_only=False)
            row = int(np.flatnonzero(values > np.iinfo(np.int64).max)[0])
            raise BadCellError(row, f"holds {values[row]}, beyond the largest int64") from None

    def words(self) -> list[str]:
        refuse_kind(self.kind, "text")
        _refuse_missing(self.values)
        return _as_text(self.values).to_pylist()


class TextColumn(Column):
    """A column of a text file: it is read as what is asked for."""

    def __init__(self, values: Any, kind: Kind) -> None:
        self.kind = kind
        self.values = values.chunk(0) if values.num_chunks == 1 else _joined(values)

    def numbers(self) -> NDArray[Any]:
        pa, compute = arrow(""), arrow("compute")
        if self.kind is Kind.FLAG:
            return self.flags()
        values = self._cast(pa.float64(), "a number").to_numpy(zero_copy_only=False)
        with np.errstate(invalid="ignore"):
            over = np.flatnonzero((np.abs(values) >= EXACT) & np.isfinite(values))
        if over.size:
            texts = compute.utf8_trim_whitespace(self.values.take(pa.array(over)))
            spelled = compute.match_substring_regex(texts, _DIGITS).to_numpy(zero_copy_only=False)
            for place in np.flatnonzero(spelled):
                text = texts[int(place)].as_py()
                if abs(int(text)) > EXACT:
                    raise BadCellError(int(over[place]), *large(text))
        return values

    def flags(self) -> NDArray[Any]:
        pa = arrow("")
        return self._cast(pa.bool_(), "true or false").cast(pa.uint8()).to_numpy(zero_copy_only=False)

    def texts(self) -> tuple[NDArray[np.int64], list[str]]:
        return self._typed().texts()

    def whole(self) -> NDArray[np.int64]:
        pa, compute = arrow(""), arrow("compute")
        _refuse_missing(self.values)
        fine = compute.match_substring_regex(self.values, _WHOLE).to_numpy(zero_copy_only=False)
        if not fine.all():
            row = int(np.flatnonzero(~fine)[0])
            shown = shortened(self.values[row].as_py())
            raise BadCellError(row, f"holds {shown!r}, which is not a plain whole number")
        return self._cast(pa.int64(), "an int64").to_numpy(zero_copy_only=False)

    def words(self) -> list[str]:
        return self._typed().words()

    def _typed(self) -> ArrowColumn:
        pa = arrow("")
        return ArrowColumn(pa.chunked_array([self.values]), Kind.TEXT)

    def _cast(self, dtype: Any, what: str) -> Any:
        pa, compute = arrow(""), arrow("compute")
        try:
            return self.values.cast(dtype)
        except pa.ArrowInvalid:
            trimmed = compute.utf8_trim_whitespace(self.values)
        try:
            return trimmed.cast(dtype)
        except pa.ArrowInvalid:
            row = _first_failing(trimmed, dtype)
        shown = shortened(self.values[row].as_py())
        raise BadCellError(row, f"holds {shown!r}, which is not {what}") from None


def looks_like(values: Any) -> Kind:
    """Tell what the texts of a column look like, as ``kind_of`` does of a typed one."""
    pa, compute = arrow(""), arrow("compute")
    values = values.drop_null()
    if not len(values):
        return Kind.EMPTY
    trimmed = compute.utf8_trim_whitespace(values)
    if _castable(trimmed, pa.float64()):
        if not _all(compute.match_substring_regex(trimmed, _DIGITS)):
            return Kind.REAL
        return Kind.WHOLE if _all(compute.match_substring_regex(trimmed, _WHOLE)) else Kind.CODE
    if _castable(trimmed, pa.bool_()):
        return Kind.FLAG
    if any(_castable(trimmed, dtype) for dtype in (pa.timestamp("ns"), pa.timestamp("ns", "UTC"))):
        return Kind.TIME
    numbers = compute.match_substring_regex(trimmed, _NUMBER).to_numpy(zero_copy_only=False)
    return Kind.MIXED if 2 * numbers.sum() > len(numbers) else Kind.TEXT


def _joined(values: Any) -> Any:
    """Make one array of a column in several pieces."""
    pa = arrow("")
    if pa.types.is_dictionary(values.type):  # the pieces may number their values differently
        values = pa.chunked_array(
            [piece.dictionary_decode() for piece in values.chunks], type=values.type.value_type
        )
    joined = values.combine_chunks()
    return joined if isinstance(joined, pa.Array) else joined.chunk(0)


def _as_text(values: Any) -> Any:
    pa = arrow("")
    if pa.types.is_dictionary(values.type):
        values = values.dictionary_decode()
    return values.cast(pa.large_string())


def _refuse_large(values: Any) -> None:
    compute = arrow("compute")
    ends = compute.min_max(values)
    low, high = ends["min"].as_py(), ends["max"].as_py()
    if low is None or (low >= -EXACT and high <= EXACT):
        return
    over = compute.or_kleene(compute.greater(values, EXACT), compute.less(values, -EXACT))
    row = int(np.flatnonzero(over.fill_null(False).to_numpy(zero_copy_only=False))[0])
    raise BadCellError(row, *large(values[row].as_py()))


def _refuse_missing(values: Any) -> None:
    if values.null_count:
        raise BadCellError(
            int(np.flatnonzero(values.is_null().to_numpy(zero_copy_only=False))[0]), "has no value"
        )


def _castable(values: Any, dtype: Any) -> bool:
    try:
        values.cast(dtype)
    except arrow("").ArrowInvalid:
        return False
    return True


def _all(mask: Any) -> bool:
    return bool(mask.to_numpy(zero_copy_only=False).all())


def _first_failing(values: Any, dtype: Any) -> int:
    """Find the first value that cannot be cast, by halving; the cost is that of two casts."""
    low, high = 0, len(values)
    while high - low > 1:
        middle = (low + high) // 2
        if _castable(values.slice(low, middle - low), dtype):
            low = middle
        else:
            high = middle
    return low
