"""What is measured of every contender, trial by trial; nothing here is a ratio to one of ours yet."""

from __future__ import annotations

import gc
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.peers.apart import fitted_apart
from benchmarks.peers.contender import Contender, Entry, Forgetting
from benchmarks.peers.part import CLEAN, TIMED, Counts, Part
from benchmarks.peers.shared import Table, timed
from benchmarks.peers.task import Task

__all__ = ["Figures", "Measured", "measure"]

_QUICK, _MOST_FITS = 1.0, 3  # seconds below which a first model is timed again, and how often it is at most
_LONG, _MOST_CHANGES = 0.5, 30  # the same for single changes


@dataclass
class Figures:
    """The figures of one contender: lists have one for each trial.

    Attributes
    ----------
    losses : dict
        By state: the mean loss on the clean training rows, over that of the informed fit.
    scores : dict
        By state.
    first, absorb, forget : list of float
        Seconds; ``forget`` is empty if a contender can only fit from scratch.
    peak : list of int
        Bytes beyond the data during the first fit; empty where it could not be seen.
    held : tuple
        Bytes to keep so as to absorb, and to forget.
    share : float
        Of the rows that the first model was shown.
    """

    losses: dict[str, list[float]] = field(default_factory=dict)
    scores: dict[str, list[float]] = field(default_factory=dict)
    first: list[float] = field(default_factory=list)
    absorb: list[float] = field(default_factory=list)
    forget: list[float] = field(default_factory=list)
    peak: list[int] = field(default_factory=list)
    held: tuple[int, int] = (0, 0)
    share: float = 1.0

    def judge(self, state: str, loss: float, score: float) -> None:
        """Record how good a model was."""
        self.losses.setdefault(state, []).append(loss)
        self.scores.setdefault(state, []).append(score)


@dataclass
class Measured:
    """A part with its figures: one for each entry that took part, and the informed fit's."""

    part: Part
    data: str
    n: int
    d: int
    counts: Counts
    nbytes: int
    nbytes_clean: int
    entries: list[Entry]
    figures: dict[str, Figures]
    informed: Figures

    def as_json(self) -> dict[str, Any]:
        """Return everything that was measured, as plain values."""
        contenders = {
            entry.key: {"name": entry.name, "ours": entry.ours, **asdict(self.figures[entry.key])}
            for entry in self.entries
        }
        return {
            "data": self.data,
            "rows": self.n,
            "columns": self.d,
            "planted": self.counts.planted,
            "bytes": self.nbytes,
            "bytes_clean": self.nbytes_clean,
            "informed": asdict(self.informed),
            "contenders": contenders,
        }


def measure(
    key: str, part: Part, table: Table, counts: Counts, entries: list[Entry], seeds: Iterable[int]
) -> Measured:
    """Run the trials of a part, contender after contender."""
    figures = {entry.key: Figures() for entry in entries}
    informed = Figures()
    for seed in seeds:
        for state, make in part.states.items():
            task = make(table, counts, seed)
            say = _reporter(f"{key}, seed {seed}, {state}")
            best = part.informed(task)
            judge = _judge(part, task, best)
            informed.judge(state, *judge(best))
            if state == CLEAN:
                clean = task.nbytes
                thetas = _apart(key, entries, task, figures, say)
            else:
                thetas = _together(entries, task, figures, say, with_times=state == TIMED)
            if state == TIMED:
                n, d, nbytes = *task.first(task.n)[0].shape, task.nbytes
            for name, theta in thetas.items():
                figures[name].judge(state, *judge(theta))
    return Measured(part, table.name, n, d, counts, nbytes, clean, entries, figures, informed)


def _judge(part: Part, task: Task, best: np.ndarray) -> Callable[[np.ndarray], tuple[float, float]]:
    """Return a function for the loss of parameters, over that of the informed fit, and their score."""
    X, y = task.clean()
    least = part.loss(best, X, y)
    return lambda theta: (part.loss(theta, X, y) / least, part.score.of(theta, task))


def _apart(
    key: str, entries: list[Entry], task: Task, figures: dict[str, Figures], say: Callable[..., None]
) -> dict[str, np.ndarray]:
    """Fit each in its own process, and record the memory."""
    thetas = {}
    with tempfile.TemporaryDirectory() as folder:
        task.save(Path(folder))
        for entry in entries:
            theta, peak = fitted_apart(key, entry.key, Path(folder))
            thetas[entry.key] = theta
            if peak is not None:
                figures[entry.key].peak.append(peak)
            say(entry)
    return thetas


def _together(
    entries: list[Entry],
    task: Task,
    figures: dict[str, Figures],
    say: Callable[..., None],
    *,
    with_times: bool,
) -> dict[str, np.ndarray]:
    """Fit here, after a few rows to warm up on; time first models and single changes if asked to."""
    thetas = {}
    for entry in entries:
        gc.collect()
        if with_times:
            entry.make(task.few()).fit()
            contender = _timed_first(entry, task, figures[entry.key])
        else:
            contender = entry.make(task)
            contender.fit()
        thetas[entry.key] = contender.theta.copy()  # some change theirs in place
        if with_times:
            _timed_changes(contender, figures[entry.key])
        say(entry)
    return thetas


def _timed_first(entry: Entry, task: Task, figures: Figures) -> Contender:
    """Time first models: the best of up to three, as long as they are quick."""
    took: list[float] = []
    while sum(took) < _QUICK and len(took) < _MOST_FITS:
        contender = entry.make(task)
        time.sleep(0.03)  # so that BLAS threads are no longer busy-waiting
        took.append(timed(contender.fit)[1] / contender.share)
    figures.first.append(min(took))
    figures.share = contender.share
    return contender


def _timed_changes(contender: Contender, figures: Figures) -> None:
    figures.absorb.append(_median_seconds(contender.absorb))
    if isinstance(contender, Forgetting):
        figures.forget.append(_median_seconds(contender.forget))
    figures.held = contender.held()


def _median_seconds(change: Callable[[], None]) -> float:
    """Time a change, again and again if it is quick; of several, the first only warms up."""
    took: list[float] = []
    while sum(took) < _LONG and len(took) < _MOST_CHANGES:
        took.append(timed(change)[1])
    return float(np.median(took[1:] or took))


def _reporter(where: str) -> Callable[[Entry], None]:
    """Return a function that reports on stderr that an entry is done, and how long it took."""
    last = time.perf_counter()

    def say(entry: Entry) -> None:
        nonlocal last
        before, last = last, time.perf_counter()
        print(f"{where}: {entry.key} {last - before:.1f} s", file=sys.stderr, flush=True)

    return say
