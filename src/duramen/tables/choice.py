"""One column's part of an encoding: a number as it is, or a choice among categories."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from duramen.tables.column import Category, Column
from duramen.tables.kinds import BadCellError
from duramen.tables.names import few, shortened

__all__ = ["IMPUTE", "LABEL", "Choice", "Number", "part_of", "spelled"]

IMPUTE = "fill it, drop the row, or ask for imputing (--impute mean, median or zero; in Python impute=)"
"""What to do about a missing value."""

LABEL = "the label is never imputed; drop the row"
"""The same of a label."""


def spelled(category: Category) -> str:
    """Write a category as in the name of a column."""
    if isinstance(category, bool):
        return "true" if category else "false"
    return str(category)


@dataclass(frozen=True)
class Number:
    """A column used as it is; ``fill`` stands in for what is missing (None: refused)."""

    name: str
    fill: float | None = None

    width = 1

    @property
    def names(self) -> tuple[str, ...]:
        return (self.name,)

    def to_json(self) -> dict[str, Any]:
        return {"name": self.name, "kind": "number", "fill": self.fill}


@dataclass(frozen=True)
class Choice:
    """A column with one of the ``categories`` a row: one-hot as a feature, 0..k-1 as a label.

    ``of`` says what they are: "text", "number" or "flag". They are sorted.
    """

    name: str
    of: str
    categories: tuple[Category, ...]
    fill: Category | None = None

    @property
    def width(self) -> int:
        return len(self.categories)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(f"{self.name}={spelled(category)}" for category in self.categories)

    def codes(self, column: Column, way_out: str = IMPUTE) -> NDArray[np.int64]:
        """Return the place of each value among the categories; one that is missing or new is refused."""
        codes, values = column.distinct(self.of)
        known = {category: code for code, category in enumerate(self.categories)}
        missing = -1 if self.fill is None else known[self.fill]
        table = np.array([*(known.get(value, -2) for value in values), missing], dtype=np.int64)
        found = table[codes]  # -1, the last, is what is missing
        if found.size and found.min() < 0:
            row = int(np.flatnonzero(found < 0)[0])
            if codes[row] < 0:
                raise BadCellError(row, "has no value", way_out)
            raise BadCellError(row, *self._new(values[codes[row]]))
        return found

    def _new(self, value: Category) -> tuple[str, str]:
        shown = repr(shortened(value)) if isinstance(value, str) else spelled(value)
        return (
            f"holds {shown}, which was not there when the encoding was learned",
            f"known are {few([spelled(category) for category in self.categories], 5)}; correct the value, "
            "leave the row out, or learn the encoding anew from data that have it",
        )

    def to_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "kind": "choice",
            "of": self.of,
            "categories": list(self.categories),
            "fill": self.fill,
        }


def part_of(state: dict[str, Any]) -> Number | Choice:
    """Read what ``to_json`` wrote."""
    if state["kind"] == "number":
        fill = state["fill"]
        return Number(str(state["name"]), None if fill is None else float(fill))
    if state["kind"] != "choice" or state["of"] not in ("text", "number", "flag"):
        raise ValueError(f"unknown part {state['kind']!r}")
    return Choice(str(state["name"]), state["of"], tuple(state["categories"]), state["fill"])
