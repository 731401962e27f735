"""What pages of figures share: tables, means with their worst, the machine."""

from __future__ import annotations

import datetime
import os
import platform
from collections.abc import Callable, Iterable

import numpy as np
import sklearn

from duramen import __version__

__all__ = ["counted", "machine", "mean_and_worst", "table"]


def counted(number: int, what: str) -> str:
    """Write a number of things.

    Examples
    --------
    >>> counted(1, "trial"), counted(5000, "trial")
    ('1 trial', '5,000 trials')
    """
    return f"{number:,} {what}{'s' * (number != 1)}"


def mean_and_worst(
    figures: Iterable[float], digits: int = 4, *, worst: Callable[[list[float]], float] = max
) -> str:
    """Write the mean, and the worst in parentheses.

    Examples
    --------
    >>> mean_and_worst([1.0, 1.5], 2)
    '1.25 (1.50)'
    """
    listed = list(figures)
    return f"{np.mean(listed):.{digits}f} ({worst(listed):.{digits}f})"


def table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """Write a Markdown table; a column whose head ends in a colon stands to the right.

    Examples
    --------
    >>> print(table(["method", "rows:"], [["GSP+", "4,000"]]), end="")
    | method |  rows |
    | ------ | ----: |
    | GSP+   | 4,000 |
    """
    names, listed = list(head), [list(row) for row in rows]
    right = [name.endswith(":") for name in names]
    titles = [name.rstrip(":") for name in names]
    widths = [max(3, *(len(row[column]) for row in (titles, *listed))) for column in range(len(names))]
    rules = ["-" * (width - 1) + (":" if r else "-") for width, r in zip(widths, right, strict=True)]
    lines = []
    for row in (titles, rules, *listed):
        cells = [
            cell.rjust(width) if r else cell.ljust(width)
            for cell, width, r in zip(row, widths, right, strict=True)
        ]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def machine() -> str:
    """Say when, with what and on what this runs, and how busy the machine is with other things."""
    versions = (
        f"Python {platform.python_version()}, NumPy {np.__version__}, scikit-learn {sklearn.__version__}, "
        f"duramen {__version__}"
    )
    load = f", load average {os.getloadavg()[0]:.1f} before the run" if hasattr(os, "getloadavg") else ""
    return f"{datetime.date.today().isoformat()}, {os.cpu_count()} cores{load}; {versions}"
