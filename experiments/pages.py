"""What the pages of the experiments share: figures, targets and their verdicts, tables, the machine."""

from __future__ import annotations

import datetime
import os
import platform
from collections.abc import Callable, Iterable
from typing import NamedTuple

import numpy as np
import sklearn

import duramen as dm

__all__ = ["Target", "machine", "row", "spread", "table"]


class Target(NamedTuple):
    """What a figure should reach: ``asked``, or better still ``aim``."""

    asked: float
    aim: float | None = None
    at_most: bool = True

    def reached(self, figure: float, goal: float | None = None) -> bool:
        """Tell whether a figure is as good as ``goal``, or as what was asked."""
        goal = self.asked if goal is None else goal
        return figure <= goal if self.at_most else figure >= goal

    def verdict(self, figure: float) -> str:
        """Say whether the figure, as measured and not as printed, does what was asked."""
        if not self.reached(figure):
            return "MISSED"
        return "met, the aim too" if self.aim is not None and self.reached(figure, self.aim) else "met"


def spread(figures: Iterable[float], digits: int = 4, *, worst: Callable[..., float] = max) -> str:
    """Write the mean, and the worst in parentheses."""
    listed = list(figures)
    return f"{np.mean(listed):.{digits}f} ({worst(listed):.{digits}f})"


def row(cells: Iterable[str]) -> str:
    """Write a row of a Markdown table."""
    return "| " + " | ".join(cells) + " |"


def table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """Write a Markdown table; a column whose head ends in a colon stands to the right."""
    names = list(head)
    rules = ["---:" if name.endswith(":") else "---" for name in names]
    lines = [row(name.rstrip(":") for name in names), row(rules), *map(row, rows)]
    return "\n".join(lines) + "\n"


def machine() -> str:
    """Say when, with what and on what this runs, and how busy the machine is with other things."""
    versions = (
        f"Python {platform.python_version()}, NumPy {np.__version__}, scikit-learn {sklearn.__version__}, "
        f"duramen {dm.__version__}"
    )
    load = f", load average {os.getloadavg()[0]:.1f} before the run" if hasattr(os, "getloadavg") else ""
    return f"{datetime.date.today().isoformat()}, {os.cpu_count()} cores{load}; {versions}"
