"""One column of a batch, as numbers, categories or ids, whatever the file had."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from duramen.tables.kinds import NUMERIC, BadCellError, Kind

__all__ = [
    "Category",
    "Column",
    "NumpyColumn",
    "codes_of_numbers",
    "large",
    "plain_number",
    "refuse_kind",
    "refuse_large",
]

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
