"""How the columns of a table become numbers: learned once, saved with the data, applied to every batch."""

from __future__ import annotations

import statistics
import warnings
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import asdict, dataclass
from fractions import Fraction
from functools import partial
from operator import methodcaller
from pathlib import Path
from typing import Any

import numpy as np

from duramen.arrays import Array
from duramen.errors import RowError
from duramen.files import json_types
from duramen.io.tables import (
    INFINITE,
    MISSING,
    NUMERIC,
    Batch,
    Category,
    Column,
    Kind,
    Table,
    check_names,
    check_present,
    column_roles,
    listed_names,
    refuse_where,
    rows_in_memory,
)
from duramen.text import few, shorten

_FORMAT = 1
_MOST_CATEGORIES = 1000  # with more, a column holds names or ids, not categories
_CHOICES = (Kind.TEXT, Kind.FLAG, Kind.CATEGORY)  # one-hot for "auto", and classes as a label
_TEXT_IDS = (Kind.TEXT, Kind.CODE, Kind.MIXED)  # text as ids


def category_text(category: Category) -> str:
    """Return a category as text, as in the name of a column."""
    return str(category).lower() if isinstance(category, bool) else str(category)


@dataclass(frozen=True)
class Number:
    """A column used as it is; ``fill`` replaces missing values (None: they are refused)."""

    name: str
    fill: float | None = None
    kind: str = "number"

    @property
    def names(self) -> tuple[str, ...]:
        return (self.name,)

    def encode(self, column: Column, dtype: Any = np.float64, hint: str = "impute") -> Array:
        """Return finite numbers."""
        with np.errstate(over="ignore", invalid="ignore"):
            values = np.asarray(column.numbers(), dtype=dtype)
            if np.isfinite(values.sum()):
                return values
        if self.fill is not None:
            values = np.where(np.isnan(values), self.fill, values)
        refuse_where(np.isnan(values), MISSING, hint=hint)
        refuse_where(np.isinf(values), INFINITE)
        return values


@dataclass(frozen=True)
class Choice:
    """A column with one of the ``categories`` per row: one-hot as a feature, 0..k-1 as a label.

    ``of`` says what they are: "text", "number" or "flag". They are sorted.
    """

    name: str
    of: str
    categories: tuple[Category, ...]
    fill: Category | None = None
    kind: str = "choice"

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(f"{self.name}={category_text(category)}" for category in self.categories)

    def encode(self, column: Column, hint: str = "impute") -> Array:
        """Return the place of each value among the categories; refuse missing and new values."""
        codes, values = column.distinct(self.of)
        known: dict[Any, int] = {category: code for code, category in enumerate(self.categories)}
        table = np.array([*(known.get(value, -2) for value in values), known.get(self.fill, -1)])
        found = table[codes]  # code -1, the last entry, is for missing values
        refuse_where(found == -1, MISSING, hint=hint)
        if (found < 0).any():
            row = int(np.argmin(found))
            raise RowError(
                "holds {value!r}, which was not seen when the encoding was learned in {row}; known: {known}; "
                "correct the value, drop the row, or learn the encoding from data that include it",
                row,
                value=shorten(category_text(values[codes[row]]), 60),
                known=few([*map(category_text, self.categories)], 5),
            )
        return found


def _part_from_json(state: dict[str, Any]) -> Any:
    if state["kind"] == "number":
        return Number(**state)
    return Choice(**{**state, "categories": tuple(state["categories"])})


@dataclass(frozen=True)
class EncodedRows:
    """A batch as numbers.

    X is C-contiguous, float32 or float64; labels and weights are float64; ids are int64, or a list of str.
    """

    X: Array
    y: Array | None
    weights: Array | None
    ids: Array | list[str] | None

    def __len__(self) -> int:
        return len(self.X)


@dataclass(frozen=True)
class Encoding:
    """Which columns are the features, the label, the weight and the id, and how each becomes numbers.

    Made by :func:`learn_encoding`; two encodings are equal if they encode the same way.

    Attributes
    ----------
    parts : tuple of Number or Choice
        One for each feature.
    label, weight, id : str or None
        Names of columns.
    label_choice : Choice or None
        The classes of a label that is not a number.
    ids : {"whole", "text"}
    dtype : {"float32", "float64"}
        Of X: float32 if all numeric features were when it was learned.
    impute : str or None
        What missing values become.
    """

    parts: tuple[Number | Choice, ...]
    label: str | None = None
    weight: str | None = None
    id: str | None = None
    label_choice: Choice | None = None
    ids: str = "whole"
    dtype: str = "float64"
    impute: str | None = None

    @property
    def features(self) -> tuple[str, ...]:
        """The columns that are features."""
        return tuple(part.name for part in self.parts)

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that are read."""
        columns = (*self.features, self.label, self.weight, self.id)
        return tuple(name for name in columns if name is not None)

    @property
    def names(self) -> tuple[str, ...]:
        """The columns of X: "age", "colour=red", ..."""
        return tuple(name for part in self.parts for name in part.names)

    @property
    def batch_rows(self) -> int:
        """How many rows to read at once: at most 8 MB of numbers, categories one-hot, and 65,536 rows."""
        return rows_in_memory(max(len(self.names), len(self.columns)))

    @property
    def classes(self) -> list[Category] | None:
        """What the labels 0, 1, ... stand for; None where labels are numbers."""
        return list(self.label_choice.categories) if self.label_choice else None

    def read(
        self, table: Table, n_rows: int | None = None, skip: int = 0
    ) -> Iterator[tuple[Batch, EncodedRows]]:
        """Read the columns that are needed in batches, by default of ``batch_rows``, and encode each."""
        batches = table.batches(self.batch_rows if n_rows is None else n_rows, self.columns, skip)
        return ((batch, self.rows(batch)) for batch in batches)

    def rows(self, batch: Batch) -> EncodedRows:
        """Encode a batch; an error about a value names the file, the column and the row."""
        label = self.label_choice or Number("")
        return EncodedRows(
            self._matrix(batch),
            _read(batch, self.label, lambda column: label.encode(column, hint="drop").astype(np.float64)),
            _read(batch, self.weight, _weights),
            _read(batch, self.id, methodcaller("words" if self.ids == "text" else "whole")),
        )

    def _matrix(self, batch: Batch) -> Array:
        X = np.zeros((len(batch), len(self.names)), dtype=self.dtype)
        place = 0  # of the part's first column
        for part in self.parts:
            if isinstance(part, Choice):
                X[np.arange(len(X)), place + _read(batch, part.name, part.encode)] = 1
            else:
                X[:, place] = _read(batch, part.name, partial(part.encode, dtype=X.dtype))
            place += len(part.names)
        return X

    def to_json(self) -> dict[str, Any]:
        """Return the encoding as JSON types; :meth:`from_json` reads them."""
        state = {"format": _FORMAT, **asdict(self)}
        state |= {"features": state.pop("parts"), "classes": state.pop("label_choice")}
        return json_types(state, "an encoding")

    @classmethod
    def from_json(cls, state: dict[str, Any]) -> Encoding:
        """Read what :meth:`to_json` returned; raise ValueError if it is invalid."""
        try:
            return cls._from_fields(**state)
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(f"this is not an encoding that this version can read: {error}") from error

    @classmethod
    def _from_fields(cls, format: int, features: Any, classes: Any, **fields: Any) -> Encoding:
        if format != _FORMAT:
            raise ValueError(f"its format is {format!r}")
        parts = tuple(map(_part_from_json, features))
        return cls(parts, label_choice=classes and _part_from_json(classes), **fields)


def _read(batch: Batch, name: str | None, read: Callable[[Column], Any]) -> Any:
    """Read a column of a batch, None without a name; an error about a value names file, column and row."""
    if name is None:
        return None
    try:
        return read(batch.column(name))
    except RowError as error:
        _about(batch.table, name, error.at(batch.place))
        raise


def _weights(column: Column) -> Array:
    values = Number("").encode(column, hint="drop")
    refuse_where(values < 0, "is negative in {row}; a weight is 0 or more")
    return values


def learn_encoding(
    table: Table,
    label: str | None = None,
    features: Iterable[str] | None = None,
    weight: str | None = None,
    id: str | None = None,
    one_hot: Iterable[str] | str = (),
    impute: str | None = None,
    each: Callable[[Batch], Any] | None = None,
    classes: bool = False,
) -> Encoding:
    """Decide how a table's columns become numbers.

    Parameters
    ----------
    table : Table
        From :func:`open_table`. It is read, once, only if something must be learned:
        categories, classes, means or medians.
    label : str, optional
        The column of labels. Numbers stay as they are; text, true/false and Arrow
        dictionaries become 0..k-1 in sorted order (``Encoding.classes``).
    features : iterable of str, optional
        The columns of X, in this order; default: all that have no other role.
    weight, id : str, optional
        The columns of weights (0 or more) and of ids (whole numbers or text).
    one_hot : iterable of str, or "auto"
        Features that become one column of 0 and 1 for each of their values; "auto": all
        that hold text, true/false or Arrow dictionaries.
    impute : {None, "mean", "median", "zero"}
        None refuses missing values. Otherwise a missing number becomes the column's mean,
        its median, or 0, and a missing category the most frequent one. The median is
        exact up to some 2,000 to 50,000 values per column (fewer the more columns there are);
        for longer tables it is that of a uniform sample of that size.
        Labels, weights and ids are never imputed.
    each : callable, optional
        Called with every batch of the pass, for progress.
    classes : bool
        Whether labels that are numbers become 0..k-1, too.

    Examples
    --------
    >>> import numpy as np, tempfile
    >>> from pathlib import Path
    >>> from duramen.io import open_table
    >>> file = Path(tempfile.mkdtemp()) / "data.npz"
    >>> np.savez(file, age=np.array([30, 40]), colour=np.array(["red", "blue"]))
    >>> learn_encoding(open_table(file), one_hot=["colour"]).names
    ('age', 'colour=blue', 'colour=red')
    """
    if impute not in (None, "mean", "median", "zero"):
        raise ValueError(f"impute={impute!r} must be 'mean', 'median', 'zero' or None")
    if table.n_rows == 0:
        raise ValueError(f"{table.path} has no rows")
    named = {"label": label, "weight": weight, "id": id}
    roles, used = column_roles(table.columns, table.path, named, features, table.index)
    if one_hot == "auto":
        chosen = [name for name in used if table.kinds[name] in _CHOICES]
    else:
        chosen = listed_names(one_hot, "one_hot")
    for name in chosen:
        check_present(name, used, Path("the list of features"), " (one_hot)")
    numbers = [name for name in used if name not in chosen]
    roles |= {**dict.fromkeys(used, "number"), **dict.fromkeys(chosen, "feature")}
    if features is None:
        _warn(table, roles)
    for name, role in roles.items():
        _check_kind(table, name, role, may_be_id=id is None)
    learners: dict[str, Any] = {name: _Categories(table, name, filled=impute is not None) for name in chosen}
    if impute in ("mean", "median"):
        learners |= {name: number_learner(impute, len(numbers)) for name in numbers}
    if label is not None and (classes or table.kinds[label] in _CHOICES):
        learners[label] = _Categories(table, label, label=True)
    for batch in table.batches(columns=learners) if learners else ():
        for name, learner in learners.items():
            _read(batch, name, learner.add)
        if each is not None:
            each(batch)
    found: dict[Any, Any] = {}
    for name, learner in learners.items():
        found[name] = learner.result(name)
        if found[name] is None:
            raise _about(table, name, RowError("has no value in any row", hint="features"))
    constant = None if impute is None else 0.0
    encoding = Encoding(
        tuple(found.get(name) or Number(name, constant) for name in used),
        label,
        weight,
        id,
        found.get(label),
        ids="whole" if id is None else form_of_ids(table, id),
        dtype="float32" if {table.kinds[name] for name in numbers} == {Kind.SINGLE} else "float64",
        impute=impute,
    )
    check_names(table.path, encoding.names)
    return encoding


def _warn(table: Table, roles: dict[str, str]) -> None:
    """Warn of columns that may not be meant to have, or to lack, the role of a feature."""
    index = [name for name in table.index if name not in roles]
    if index:
        warnings.warn(
            f"{table.path}: {few(index)} was the index of a pandas frame, and is not used as a feature; "
            "name it among the features if it is one, or as the id",
            stacklevel=3,
        )
    for name in roles if "id" not in roles.values() else ():
        if roles[name] == "number" and name.strip().lower() == "id" and table.kinds[name] is Kind.WHOLE:
            advice = "if it identifies the rows, pass it as the id"
            warnings.warn(f"{table.path}: column {name!r} is a feature; {advice}", stacklevel=3)


_FEATURES = frozenset(Kind) - {Kind.TIME, Kind.OTHER}
_ROLES: dict[str, tuple[Collection[Kind], str]] = {  # what a column of each role may hold, and why
    "feature": (_FEATURES, ", which cannot be a feature"),
    "number": (NUMERIC, ", not numbers"),
    "label": (_FEATURES - {Kind.MIXED}, "; labels are numbers, text or true/false"),
    "weight": (NUMERIC, "; weights are numbers"),
    "id": (
        (Kind.WHOLE, *_TEXT_IDS),
        "; ids are whole numbers or text, so that no two become equal by rounding",
    ),
}


def _check_kind(table: Table, name: str, role: str, *, may_be_id: bool = False) -> None:
    """Refuse a column that cannot have a role; in a text file the error says where its first text is."""
    kind, (kinds, why) = table.kinds[name], _ROLES[role]
    if kind in kinds:
        return
    where = "" if kind in NUMERIC else table.why_text(name)
    hint = ""
    if role in ("feature", "number"):
        hint = "text" if kind in _FEATURES else "time"
        if may_be_id and kind in _TEXT_IDS:
            hint = "text id"
    raise _about(
        table, name, RowError("holds {kind}{where}{why}", hint=hint, kind=kind.value, where=where, why=why)
    )


def _about(table: Table, name: str, error: RowError) -> RowError:
    """Return an error as one about a column of a table."""
    error.column = name
    return error.inside(f"{table.path}: column {name!r} ")


def form_of_ids(table: Table, id: str) -> str:
    """Return whether ids are "text" or "whole" numbers; refuse others."""
    _check_kind(table, id, "id")
    return "text" if table.kinds[id] in _TEXT_IDS else "whole"


class _Categories:
    """The values of a column, and how often each occurs.

    A text file does not declare what a column holds: its values are collected as text, and
    become numbers or flags if all of them can.
    """

    def __init__(self, table: Table, name: str, *, filled: bool = False, label: bool = False) -> None:
        self.filled, self.label = filled, label
        self.of = {Kind.TEXT: "text", Kind.FLAG: "flag"}.get(table.kinds[name], "number")
        if not table.typed and not (label and self.of == "number"):
            self.of = ""  # it is known when all values are
        self.counts: Counter[Category] = Counter()

    def add(self, column: Column) -> None:
        codes, values = column.distinct(self.of or "text")
        counts = np.bincount(codes + 1)[1:].tolist()  # without missing values
        self.counts.update(dict(zip(values, counts, strict=True)))
        if len(self.counts) > _MOST_CATEGORIES:
            hint = "numbers" if self.label else "group"
            raise RowError(f"has more than {_MOST_CATEGORIES:,} different values", hint=hint)

    def result(self, name: str) -> Choice | None:
        of, counts = self.of, dict(self.counts)
        if not of:
            from duramen.io.arrow import parse_categories

            of, counts = parse_categories(counts)
        if of == "flag":
            counts = {bool(value): count for value, count in counts.items()}
        if not counts:
            return None
        categories = tuple(sorted(counts))
        frequent = max(categories, key=counts.__getitem__)  # the first of ties
        return Choice(name, of, categories, frequent if self.filled else None)


def number_learner(impute: str, n_columns: int) -> _Mean | _Median:
    """Return the learner for the mean or median of one of ``n_columns`` columns."""
    return _Mean() if impute == "mean" else _Median(max(2_000, min(50_000, 4_000_000 // n_columns)))


def _present(column: Column) -> Array:
    """Return the values that are not missing; refuse infinity."""
    values = np.asarray(column.numbers(), dtype=np.float64)
    refuse_where(np.isinf(values), INFINITE)
    return values[~np.isnan(values)]


class _Mean:
    """The mean, rounded once: of an exact sum, which depends neither on the order nor on the batches."""

    def __init__(self) -> None:
        self.total, self.count = Fraction(0), 0

    def add(self, column: Column) -> None:
        values = _present(column)
        self.count += len(values)
        fractions, exponents = np.frexp(values)
        whole = (fractions * 2.0**53).astype(np.int64)
        for exponent in np.unique(exponents).tolist():
            self.total += sum(whole[exponents == exponent].tolist()) * Fraction(2) ** (exponent - 53)

    def result(self, name: str) -> Number | None:
        return Number(name, float(self.total / self.count)) if self.count else None


class _Median:
    """The median of the values, or of a uniform sample of ``size`` of them, the same for any batches."""

    def __init__(self, size: int) -> None:
        self.size, self.rng = size, np.random.default_rng(0x6D656469616E)
        self.sample = np.empty((2, 0))  # random keys, and the values of the smallest

    def add(self, column: Column) -> None:
        values = _present(column)
        both = np.hstack([self.sample, [self.rng.random(len(values)), values]])
        self.sample = both[:, np.argsort(both[0])[: self.size]]

    def result(self, name: str) -> Number | None:
        values = self.sample[1].tolist()
        if not values:
            return None
        middle = statistics.median_low(values), statistics.median_high(values)
        return Number(name, statistics.mean(middle))  # two large numbers do not overflow
