"""What a pass over a column keeps: its categories, its exact mean, or a sample for its median."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections import Counter
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from duramen.tables.choice import IMPUTE
from duramen.tables.column import Category, Column, plain_number
from duramen.tables.kinds import BadCellError, Kind

__all__ = ["MOST", "SeenCategories", "SeenNumbers", "seen_numbers"]

_CODE = re.compile(r"[+-]?0[0-9]")

MOST = 1000
"""Categories a column may have: beyond, it is a name or an id, not a choice."""


class SeenCategories:
    """The values of a column, and how often each was there.

    A text file does not say what a column holds: its values are gathered as text, and are
    numbers or flags if all of them, in the end, are.
    """

    def __init__(self, kind: Kind, *, typed: bool, missing: bool, way_out: str = IMPUTE) -> None:
        self.typed, self.missing, self.way_out = typed, missing, way_out
        self.of = "text"
        if typed and kind is not Kind.TEXT:
            self.of = "flag" if kind is Kind.FLAG else "number"
        self.counts: Counter[Category] = Counter()

    def add(self, column: Column, first: int) -> None:
        codes, values = column.distinct(self.of)
        absent = np.flatnonzero(codes < 0)
        if absent.size and not self.missing:
            raise BadCellError(int(absent[0]), "has no value", self.way_out)
        counts = np.bincount(codes[codes >= 0], minlength=len(values))
        for value, count in zip(values, counts.tolist(), strict=True):
            if count:
                self.counts[value] += count
        if len(self.counts) > MOST:
            raise BadCellError(
                None,
                f"has more than {MOST} categories",
                "leave the column out, or group its values first",
            )

    def result(self) -> tuple[str, tuple[Category, ...], Category | None]:
        """Return what the values are, all of them sorted, and the most frequent one (of equals the first)."""
        of, counts = self.of, self.counts
        if not self.typed:
            of, counts = _read_text(counts)
        ordered = tuple(sorted(counts))
        frequent = max(ordered, key=counts.__getitem__) if ordered else None
        return of, ordered, frequent


def _read_text(counts: Counter[Category]) -> tuple[str, Counter[Category]]:
    """Read categories of a text file as numbers or flags if every one is."""
    for of, read in (("number", _number), ("flag", _flag)):
        found: Counter[Category] = Counter()
        for text, count in counts.items():
            value = read(str(text).strip())
            if value is None:
                break
            found[value] += count
        else:
            return of, found
    return "text", counts


def _number(text: str) -> Category | None:
    if _CODE.match(text):  # 01234 is not 1234
        return None
    try:
        value = float(text)
    except ValueError:
        return None
    return plain_number(value) if np.isfinite(value) and "_" not in text else None


def _flag(text: str) -> Category | None:
    return {"true": True, "false": False}.get(text.lower())


class SeenNumbers(ABC):
    """One number learned of a column's values that are not missing."""

    def add(self, column: Column, first: int) -> None:
        """Look at the values of a batch whose first row has the number ``first``."""
        values = np.asarray(column.numbers(), dtype=np.float64)
        infinite = np.flatnonzero(np.isinf(values))
        if infinite.size:
            raise BadCellError(int(infinite[0]), "is infinite", "correct it or drop the row")
        there = np.flatnonzero(~np.isnan(values))
        self._take(values[there], first + there)

    @abstractmethod
    def _take(self, values: NDArray[Any], rows: NDArray[np.int64]) -> None:
        """Look at values, each of a row of this number."""

    @abstractmethod
    def result(self) -> float | None:
        """Return the number; None if there was no value."""


def seen_numbers(impute: str, n_columns: int) -> SeenNumbers:
    """Make what gathers one of ``n_columns`` columns for their mean or median."""
    if impute == "mean":
        return _Mean()
    return _Median(max(2_000, min(50_000, 4_000_000 // max(1, n_columns))))


class _Mean(SeenNumbers):
    """The mean, rounded once: the sum is kept as a whole number for each binary exponent.

    So neither the order of rows nor the batches change it.
    """

    def __init__(self) -> None:
        self.sums: dict[int, int] = {}
        self.count = 0

    def _take(self, values: NDArray[Any], rows: NDArray[np.int64]) -> None:
        if not values.size:
            return
        self.count += values.size
        fractions, exponents = np.frexp(values)
        lowest = int(exponents.min())
        shift = exponents - lowest
        high = np.trunc(fractions * 2.0**26)
        low = (fractions * 2.0**26 - high) * 2.0**27  # 53 bits: 26 high, 27 low, both exact
        for part, scale in ((high, 26), (low, 53)):
            sums = np.bincount(shift, weights=part)
            for step in np.flatnonzero(sums).tolist():
                exponent = lowest + step - scale
                self.sums[exponent] = self.sums.get(exponent, 0) + int(sums[step])

    def result(self) -> float | None:
        if not self.count:
            return None
        total = sum((Fraction(2) ** exponent * whole for exponent, whole in self.sums.items()), Fraction(0))
        return float(total / self.count)


class _Median(SeenNumbers):
    """The median of the values, or of the ``size`` values whose rows have the smallest keys.

    A row's key is a hash of its number, so the sample is uniform, and the same whatever the batches.
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self.keys = np.empty(0, dtype=np.uint64)
        self.values = np.empty(0)
        self.limit = np.iinfo(np.uint64).max

    def _take(self, values: NDArray[Any], rows: NDArray[np.int64]) -> None:
        keys = _keys(rows)
        near = keys <= self.limit
        self.keys = np.concatenate([self.keys, keys[near]])
        self.values = np.concatenate([self.values, values[near]])
        if len(self.keys) > 2 * self.size:
            self._shrink()

    def _shrink(self) -> None:
        if len(self.keys) > self.size:
            nearest = np.argpartition(self.keys, self.size - 1)[: self.size]
            self.keys, self.values = self.keys[nearest], self.values[nearest]
            self.limit = self.keys.max()

    def result(self) -> float | None:
        self._shrink()
        if not self.values.size:
            return None
        middle = (len(self.values) - 1) // 2, len(self.values) // 2
        low, high = np.partition(self.values, middle)[[*middle]].tolist()
        return float((Fraction(low) + Fraction(high)) / 2)  # two large numbers do not overflow


def _keys(rows: NDArray[np.int64]) -> NDArray[np.uint64]:
    """Hash row numbers: the finaliser of splitmix64, which permutes the 64-bit numbers."""
    keys = rows.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    keys = (keys ^ (keys >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    keys = (keys ^ (keys >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return keys ^ (keys >> np.uint64(31))
