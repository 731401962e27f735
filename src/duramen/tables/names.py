"""Names and values in messages."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from difflib import get_close_matches
from pathlib import Path

__all__ = ["absent", "checked_names", "few", "shortened"]


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
    twice = sorted(name for name, count in Counter(names).items() if count > 1)
    if twice:
        raise ValueError(f"{path}: more than one column is called {few(twice)}; rename them")
    return tuple(names)
