"""How the columns of a table become numbers: learned once, saved with the data, applied to every batch."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np

from duramen.arrays import Array
from duramen.io.columns import BadCellError, Category, Column, refuse_where
from duramen.io.table import Batch, Table, rows_in_memory
from duramen.text import few, shorten

IMPUTE = "fill it, drop the row, or impute it (--impute mean, median or zero; in Python impute=)"
"""What to do about a missing value."""

LABEL = "the label is never imputed; drop the row"
WEIGHT = "the weight is never imputed; drop the row"
INFINITE = "is infinite", "correct it or drop the row"

_FORMAT = 1
_ROWS, _CACHE = 2048, 1 << 20  # rows filled at a time: this many, or what a core's cache holds


def category_text(category: Category) -> str:
    """Return a category as text, as in the name of a column."""
    if isinstance(category, bool):
        return "true" if category else "false"
    return str(category)


@dataclass(frozen=True)
class Number:
    """A column used as it is; ``fill`` replaces missing values (None: they are refused)."""

    name: str
    fill: float | None = None

    @property
    def names(self) -> tuple[str, ...]:
        return (self.name,)

    def to_json(self) -> dict[str, Any]:
        return {"kind": "number", **vars(self)}


@dataclass(frozen=True)
class Choice:
    """A column with one of the ``categories`` per row: one-hot as a feature, 0..k-1 as a label.

    ``of`` says what they are: "text", "number" or "flag". They are sorted.
    """

    name: str
    of: str
    categories: tuple[Category, ...]
    fill: Category | None = None

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(f"{self.name}={category_text(category)}" for category in self.categories)

    def codes(self, column: Column, way_out: str = IMPUTE) -> Array:
        """Return the place of each value among the categories; refuse missing and new values."""
        codes, values = column.distinct(self.of)
        known = {category: code for code, category in enumerate(self.categories)}
        missing = -1 if self.fill is None else known[self.fill]
        table = np.array([*(known.get(value, -2) for value in values), missing], dtype=np.int64)
        found = table[codes]  # code -1, the last entry, is for missing values
        if found.size and found.min() < 0:
            row = int(np.flatnonzero(found < 0)[0])
            if codes[row] < 0:
                raise BadCellError(row, "has no value", way_out)
            raise BadCellError(row, *self._new(values[codes[row]]))
        return found

    def _new(self, value: Category) -> tuple[str, str]:
        shown = repr(shorten(value, 60)) if isinstance(value, str) else category_text(value)
        return (
            f"holds {shown}, which was not seen when the encoding was learned",
            f"known: {few([category_text(category) for category in self.categories], 5)}; correct the value, "
            "drop the row, or learn the encoding from data that include it",
        )

    def to_json(self) -> dict[str, Any]:
        return {"kind": "choice", **vars(self), "categories": list(self.categories)}


def _part_from_json(state: dict[str, Any]) -> Any:
    kind = {"number": Number, "choice": Choice}[state["kind"]]
    settings = {name: value for name, value in state.items() if name != "kind"}
    if "categories" in settings:
        settings["categories"] = tuple(settings["categories"])
    return kind(**settings)


@dataclass(frozen=True)
class EncodedRows:
    """A batch as numbers.

    Attributes
    ----------
    X : array (n, p), float32 or float64, C-contiguous
    y : array (n,), float64, or None
    weights : array (n,), float64, or None
    ids : array (n,), int64, or list of str, or None
    """

    X: Array
    y: Array | None = None
    weights: Array | None = None
    ids: Array | list[str] | None = None

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
    text_ids : bool
        Whether ids are text; otherwise they are whole numbers.
    single : bool
        Whether X is float32, as were all numeric features when it was learned.
    impute : str or None
        What missing values become.
    """

    parts: tuple[Number | Choice, ...]
    label: str | None = None
    weight: str | None = None
    id: str | None = None
    label_choice: Choice | None = None
    text_ids: bool = False
    single: bool = False
    impute: str | None = None

    @property
    def features(self) -> tuple[str, ...]:
        """The columns that are features."""
        return tuple(part.name for part in self.parts)

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that are read."""
        rest = (self.label, self.weight, self.id)
        return (*self.features, *(name for name in rest if name is not None))

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
        """Read the columns that are needed in batches, by default of ``batch_rows``, and encode each.

        Examples
        --------
        >>> for batch, rows in encoding.read(table):  # doctest: +SKIP
        ...     store.insert(rows.X, y=rows.y)
        """
        batches = table.batches(self.batch_rows if n_rows is None else n_rows, self.columns, skip)
        return ((batch, self.rows(batch)) for batch in batches)

    def rows(self, batch: Batch) -> EncodedRows:
        """Encode a batch.

        Raises
        ------
        ValueError
            If a column is absent or holds a different kind of values, a value is missing
            and not imputed, or infinite, or a category is new. The message names the file,
            the column and the row.
        """
        y = self._labels(batch)
        weights = None
        if self.weight is not None:
            with naming_cell(batch, self.weight):
                weights = _plain_numbers(batch.column(self.weight), WEIGHT)
                refuse_where(weights < 0, "is negative", "a weight is 0 or more")
        return EncodedRows(self._matrix(batch), y, weights, self._ids(batch))

    def _matrix(self, batch: Batch) -> Array:
        plain = all(isinstance(part, Number) for part in self.parts)  # then every entry is written
        X = (np.empty if plain else np.zeros)(
            (len(batch), len(self.names)), dtype=np.float32 if self.single else np.float64
        )
        numbers: dict[int, Array] = {}
        fills: dict[int, float] = {}
        place = 0
        for part in self.parts:
            with naming_cell(batch, part.name):
                column = batch.column(part.name)
                if isinstance(part, Choice):
                    X[np.arange(len(batch)), place + part.codes(column)] = 1
                else:
                    numbers[place] = column.numbers()
                    if part.fill is not None:
                        fills[place] = part.fill
            place += len(part.names)
        if not _fill(X, numbers):
            for place, fill in fills.items():
                X[np.isnan(X[:, place]), place] = fill
            self._refuse_nonfinite(X, batch)
        return X

    def _refuse_nonfinite(self, X: Array, batch: Batch) -> None:
        bad = np.argwhere(~np.isfinite(X))
        if not len(bad):
            return
        row, place = bad[0].tolist()
        if np.isnan(X[row, place]):
            _refuse(batch, self.names[place], row, "has no value", IMPUTE)
        _refuse(batch, self.names[place], row, "is infinite, or too large", "correct it or drop the row")

    def _labels(self, batch: Batch) -> Array | None:
        if self.label is None:
            return None
        with naming_cell(batch, self.label):
            column = batch.column(self.label)
            if self.label_choice is None:
                return _plain_numbers(column, LABEL)
            return self.label_choice.codes(column, LABEL).astype(np.float64)

    def _ids(self, batch: Batch) -> Array | list[str] | None:
        if self.id is None:
            return None
        with naming_cell(batch, self.id):
            column = batch.column(self.id)
            return column.words() if self.text_ids else column.whole()

    def to_json(self) -> dict[str, Any]:
        """Return the encoding as JSON types; :meth:`from_json` reads them."""
        return {
            "format": _FORMAT,
            "features": [part.to_json() for part in self.parts],
            "label": self.label,
            "classes": self.label_choice.to_json() if self.label_choice else None,
            "weight": self.weight,
            "id": self.id,
            "ids": "text" if self.text_ids else "whole",
            "dtype": "float32" if self.single else "float64",
            "impute": self.impute,
        }

    @classmethod
    def from_json(cls, state: dict[str, Any]) -> Encoding:
        """Read what :meth:`to_json` returned; raise ValueError if it is invalid."""
        try:
            return cls(**_fields(state))
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(f"this is not an encoding that this version can read: {error}") from error


def _fields(state: dict[str, Any]) -> dict[str, Any]:
    if state["format"] != _FORMAT:
        raise ValueError(f"it has format {state['format']!r}, this version reads {_FORMAT}")
    return {
        "parts": tuple(_part_from_json(part) for part in state["features"]),
        **{role: state[role] for role in ("label", "weight", "id", "impute")},
        "label_choice": None if state["classes"] is None else _part_from_json(state["classes"]),
        "text_ids": state["ids"] == "text",
        "single": state["dtype"] == "float32",
    }


@contextmanager
def naming_cell(batch: Batch, name: str) -> Iterator[None]:
    """Name the file, the column and the row in an error about a value."""
    try:
        yield
    except BadCellError as error:
        _refuse(batch, name, error.row, error.problem, error.way_out)


def _refuse(batch: Batch, name: str, row: int | None, problem: str, way_out: str = "") -> NoReturn:
    place = "" if row is None else f" in {batch.place(row)}"
    advice = f"; {way_out}" if way_out else ""
    raise ValueError(f"{batch.table.path}: column {name!r} {problem}{place}{advice}") from None


def _plain_numbers(column: Column, way_out: str) -> Array:
    """Read labels or weights: numbers, none of them missing or infinite."""
    values = np.array(column.numbers(), dtype=np.float64)
    refuse_where(np.isnan(values), "has no value", way_out)
    refuse_where(np.isinf(values), *INFINITE)
    return values


def _fill(X: Array, numbers: dict[int, Array]) -> bool:
    """Copy columns into X, a few rows at a time, and return whether all values are finite."""
    finite = True
    rows = max(_ROWS, _CACHE // max(1, X.itemsize * X.shape[1]))
    with np.errstate(over="ignore", invalid="ignore"):
        for start in range(0, len(X), rows):
            block = X[start : start + rows]
            for place, values in numbers.items():
                block[:, place] = values[start : start + rows]
            finite = finite and bool(np.isfinite(block.sum()))
    return finite
