"""What a column of a file holds, and what may be made of it."""

from __future__ import annotations

from enum import Enum

__all__ = ["NUMERIC", "BadCellError", "Kind"]


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
