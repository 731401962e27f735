"""A part of the comparison: its data in several states, its contenders, and how models are judged."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from benchmarks.peers.contender import Entry
from benchmarks.peers.shared import Table
from benchmarks.peers.task import Task

__all__ = ["CLEAN", "TIMED", "Counts", "Part", "Score", "counts_of", "some_rows"]

TIMED, CLEAN = "planted", "clean"
"""The state of the data in which times are taken, and that in which memory is."""

_MOST = 10_000  # planted, and held out, as in the other experiments


class Counts(NamedTuple):
    """How many rows are planted, and how many held out."""

    planted: int
    held_out: int


class Score(NamedTuple):
    """A figure that a user would look at, beside the loss."""

    name: str
    about: str
    written: str
    low: bool
    of: Callable[[np.ndarray, Task], float]


@dataclass(frozen=True, eq=False)
class Part:
    """One problem.

    Attributes
    ----------
    title : str
    about : str
        What the data are, and how they are contaminated; a template for ``n``, ``d``, ``z`` and ``held_out``.
    tables : callable
        Loads the data from a folder, and makes up so many rows.
    states : dict
        What can be done to the data: each makes a task of the table, the counts and a seed.
    entries : list of Entry
    informed : callable
        Fits the rows of a task that nothing is wrong with.
    loss : callable
        The mean loss of parameters on rows.
    score : Score
    """

    title: str
    about: str
    tables: tuple[Callable[[Path | None], Table], Callable[..., Table]]
    states: dict[str, Callable[[Table, Counts, int], Task]]
    entries: list[Entry]
    informed: Callable[[Task], np.ndarray]
    loss: Callable[[np.ndarray, np.ndarray, np.ndarray | None], float]
    score: Score


def counts_of(rows: int) -> Counts:
    """Report how many rows are planted and held out of so many: 2% and 10%, but no more than 10,000."""
    return Counts(min(_MOST, rows // 50), min(_MOST, rows // 10))


def some_rows(table: Table, rows: int | None) -> Table:
    """Take so many random rows, if there are more."""
    if rows is None or rows >= len(table.X):
        return table
    chosen = np.sort(np.random.default_rng(0).choice(len(table.X), rows, replace=False))
    return table._replace(X=table.X[chosen], y=None if table.y is None else table.y[chosen])
