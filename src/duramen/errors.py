"""Errors about rows of data: they know their row, so that callers can number or place it in their own way.

>>> error = RowError("X has {value} in {row}", 3, value="NaN")
>>> str(error), str(error.moved(1000)), str(error.at(lambda row: f"line {row + 2}"))
('X has NaN in row 3', 'X has NaN in row 1003', 'X has NaN in line 1005')
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

HINTS = {
    "drop": "fill or drop such rows first",
    "impute": "fill it, drop the row, or impute it with impute='mean', 'median' or 'zero'",
    "features": "leave the column out of features=",
    "large": "leave the column out of features=, or store it as float64 if rounding is fine",
    "group": "leave the column out of features=, or group its values first",
    "numbers": "use a loss for numbers, or group its values first",
    "time": "turn it into numbers first (for instance days since a date), or leave it out of features=",
    "text": "encode it with one_hot=[{column!r}], leave it out of features=, or correct it",
    "text id": "encode it with one_hot=[{column!r}], use it as the ids with id={column!r}, "
    "leave it out of features=, or correct it",
}
"""What to do, by the name of a hint; the command line has its own words for them."""


class RowError(ValueError):
    """A value that cannot be used: a ValueError that knows the row and the column.

    Parameters
    ----------
    text : str
        The message, with places in braces: ``{row}``, ``{earlier}``, and the names of ``values``.
    row : int, optional
        The row, from 0; None if the error is about a whole column.
    column : str, optional
        The name of the column, for hints.
    hint : str
        A key of :data:`HINTS`, whose advice ends the message; as an attribute, the advice itself.
    earlier : int, optional
        Another row that the message names, such as the first of two equal ids.
    values
        What the places in the text stand for.
    """

    def __init__(
        self,
        text: str,
        row: int | None = None,
        *,
        column: Any = None,
        hint: str = "",
        earlier: int | None = None,
        **values: Any,
    ) -> None:
        super().__init__(text)  # the state of a pickle has the rest
        self.row, self.column, self._hint, self.earlier = row, column, hint, earlier
        self.places: dict[str, str] = {}  # how rows are shown, other than as "row 3"
        self.prefix, self.values = "", values

    @property
    def hint(self) -> str:
        """What to do; empty where the message says it."""
        return self._advice(HINTS)

    def _advice(self, hints: Mapping[str, str]) -> str:
        return hints[self._hint].format(column=self.column) if self._hint else ""

    def __str__(self) -> str:
        return self.message(HINTS)

    def message(self, hints: Mapping[str, str]) -> str:
        """Return the message with the advice of ``hints``, in whose texts ``{column}`` is the column."""
        rows = {"row": f"row {self.row}", "earlier": f"row {self.earlier}", **self.places}
        text = self.prefix + self.args[0].format(**rows, column=self.column, **self.values)
        advice = self._advice(hints)
        return f"{text}; {advice}" if advice else text

    def moved(self, before: int) -> RowError:
        """Add ``before`` to the numbers of rows; change and return the error."""
        if self.row is not None:
            self.row += before
        if self.earlier is not None:
            self.earlier += before
        return self

    def at(self, place: Callable[[int], str]) -> RowError:
        """Show rows by a function of their numbers; change and return the error."""
        rows = {"row": self.row, "earlier": self.earlier}
        self.places = {name: place(row) for name, row in rows.items() if row is not None}
        return self

    def inside(self, prefix: str) -> RowError:
        """Begin the message with ``prefix``; change and return the error."""
        self.prefix = prefix + self.prefix
        return self


def prefixed(prefix: str, error: Exception) -> Exception:
    """Return an error whose message begins with a prefix: of its type, or a base type that takes a message.

    Examples
    --------
    >>> prefixed("partition 3: ", KeyError("no id 7"))
    KeyError('partition 3: no id 7')
    """
    if isinstance(error, RowError):
        return error.inside(prefix)
    text = f"{prefix}{error.args[0] if len(error.args) == 1 else error}"
    for kind in type(error).__mro__:
        with suppress(Exception):
            made = kind(text)
            if str(made) in (text, repr(text)):
                return made
    return RuntimeError(text)


@contextmanager
def rows_from(before: int) -> Iterator[None]:
    """Add ``before``, the number of rows before a batch, to the row in an error about it."""
    try:
        yield
    except RowError as error:
        error.moved(before)
        raise
