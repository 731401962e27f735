"""Text for messages and tables: long values cut short, long lists abridged."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


def shorten(text: Any, width: int = 100) -> str:
    """Return text on one line of at most ``width`` characters.

    Examples
    --------
    >>> shorten("a    long name", 8)
    'a lon...'
    """
    line = " ".join(str(text).split())
    return line if len(line) <= width else f"{line[: width - 3]}..."


def few(names: Sequence[Any], most: int = 8) -> str:
    """List some names, and how many more there are.

    Examples
    --------
    >>> few(["age", "size", "colour"], most=2)
    "'age', 'size' and 1 more"
    """
    shown = ", ".join(map(repr, names[:most]))
    return shown + (f" and {len(names) - most} more" if len(names) > most else "")


def plural(count: int, one: str, many: str | None = None) -> str:
    """Return a count with its noun or verb.

    Examples
    --------
    >>> plural(1, "row"), plural(2500, "row"), plural(2, "has", "have")
    ('1 row', '2,500 rows', '2 have')
    """
    return f"{count:,} {one if count == 1 else many or one + 's'}"
