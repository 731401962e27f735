"""The paper's Figure 3(c): how much faster an update is than starting over, by the height of the tree."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any, ClassVar

import numpy as np

import duramen as dm
from experiments.paper import fits
from experiments.paper.data import Contaminated, Table, made_up_covertype, with_planted_rows
from experiments.paper.experiment import InTrials, Plots, Records, Results
from experiments.paper.fits import LOGISTIC
from experiments.paper.pages import COLOURS, band, counted, legend_below, table

__all__ = ["Figure3c"]

RANKED = "ranked"  # stands where a height is meant

_CHANGES = 6  # timed for each tree: deletes and inserts alternately
_ROOM = 50  # places that the last bucket keeps free, so that a few inserts do not open another

_ABOUT = """\
# Figure 3(c)

An update against starting over: logistic regression with {z:,} outliers on {name}, {rows:,} rows of
{columns} columns, with single rows inserted and deleted. Without a coreset, each change means solving
everything again. With the paper's merge-and-reduce tree it means rebuilding the nodes above the changed
bucket, from the bottom up, and solving the root. The higher the tree, the smaller its buckets: n / 2^(h - 1)
points at height h. The paper draws this in Figure 3(c) but gives no numbers to compare with. Made by

    {command}

on {where}.

**An update** is one change, the coreset after it, and the solution of that:

    dyn.insert(row, label)      # or dyn.delete(one), alternately
    core = dyn.coreset()
    dm.solve(core, random_state=seed)

`dyn` is a `dm.DynamicCoreset(dm.LogisticLoss(), {size}, {z})` with `engine="tree"` and a `bucket_size`, or
ranked, which has no height.

**Speed-up**: seconds of solving all rows over those of an update. All rows are solved in two ways: by
`dm.solve(dm.points(X, y), dm.LogisticLoss(), {z}, random_state=seed)`, the best of three runs, {ours:.2f} s
(mean over the trials); and as in the paper, alternately trimming and refitting with scikit-learn, timed once,
{papers:.2f} s. No solver starts from the previous solution. Each of {trials} (seeds from 0)
contaminates the rows independently, with noise on every column and shuffled labels, and finds one anchor on
the first rows for all of them; its figures are the medians of {changes} changes.

![Speed-up of an update against the height of the tree](figure3c.svg)

Speed-up over `dm.solve` on all rows. Lines are means over the trials, bands reach from
the least to the most. Dashed: the ranked engine.

{seen}

"""

_FIGURES = """
Milliseconds: means over the trials. A coreset keeps {size:,} rows, and so does a node: where a bucket is not
much larger, another level makes it no cheaper to build and adds a node to every path. The last column is the
speed-up of the change and the coreset alone, without solving, over `dm.robust_coreset` of all rows from the
same anchor ({rebuild:.0f} ms).
"""


@dataclass(frozen=True)
class Figure3c(InTrials):
    """Figure 3(c), on a table with so many outliers: one step per trial."""

    table: Table
    z: int
    trials: int = 3
    heights: tuple[int, ...] = tuple(range(1, 11))
    size: int = 4000
    name: ClassVar[str] = "figure3c"

    @property
    def settings(self) -> Records:
        counts = {"z": self.z, "rows": len(self.table.X), "size": self.size}
        return {"data": self.table.name, **counts, "heights": list(self.heights)}

    def _trial(self, seed: int) -> Records:
        _warm_up()
        data = with_planted_rows(self.table, self.z, _CHANGES, seed)
        return _timed_life(data, self.z, self.size, self.heights, seed)

    def page(self, results: Results, command: str) -> str:
        trials = _Trials(results.of())
        about = _ABOUT.format(
            z=self.z,
            name=self.table.name,
            rows=len(self.table.X) - _CHANGES,
            columns=self.table.X.shape[1],
            command=command,
            where=results.where(),
            ours=np.mean(trials.each(_everything)),
            papers=np.mean(trials.each(_alternation)),
            size=self.size,
            trials=counted(self.trials, "trial"),
            changes=_CHANGES,
            seen=self._seen(trials),
        )
        rebuild = 1000 * float(np.mean(trials.each(_rebuild)))
        return about + self._figures(trials) + _FIGURES.format(size=self.size, rebuild=rebuild)

    def summary(self, results: Results) -> str:
        trials = _Trials(results.of())
        heading = f"An update on {self.table.name}, {self.z:,} outliers, {counted(self.trials, 'trial')}"
        return f"{heading}\n\n{self._figures(trials)}\n{self._seen(trials)}\n"

    def plots(self, results: Results) -> Plots:
        return {"figure3c": partial(self._draw, _Trials(results.of()))}

    def _figures(self, trials: _Trials) -> str:
        """Write one row per height."""
        head = (
            *("height", "bucket:", "insert and coreset:", "delete and coreset:", "solving:"),
            *("over `dm.solve`:", "from, to:", "over the paper's solver:", "over a rebuild:"),
        )
        return table(head, [self._row(trials, height) for height in (*map(str, self.heights), RANKED)])

    def _row(self, trials: _Trials, height: str) -> list[str]:
        bucket = trials.records[0]["updates"][height]["bucket"]
        ups = trials.speed_ups(height)
        return [
            height,
            "" if bucket is None else f"{bucket:,}",
            *(f"{1000 * trials.median(height, part):.1f}" for part in ("insert", "delete", "solve")),
            f"x {np.mean(ups):.1f}",
            f"{min(ups):.1f} to {max(ups):.1f}",
            f"x {np.mean(trials.speed_ups(height, _alternation)):.1f}",
            f"x {np.mean(trials.against_rebuild(height)):.1f}",
        ]

    def _seen(self, trials: _Trials) -> str:
        """Report which height is best, and how the ranked engine compares."""
        means = {height: float(np.mean(trials.speed_ups(str(height)))) for height in self.heights}
        best = max(means, key=lambda height: means[height])
        ranked = float(np.mean(trials.speed_ups(RANKED)))
        return (
            f"Over `dm.solve`, the best tree has height {best}: x {means[best]:.1f}. The ranked engine "
            f"comes to x {ranked:.1f}, {ranked / means[best]:.1f} times as much."
        )

    def _draw(self, trials: _Trials, figure: Any) -> None:
        figure.set_size_inches(6.4, 4.0)
        axes = figure.subplots()
        ups = np.transpose([trials.speed_ups(str(height)) for height in self.heights])
        band(axes, self.heights, ups, "tree engine", COLOURS[0])
        ends = min(self.heights) - 0.4, max(self.heights) + 0.4
        ranked = np.array(trials.speed_ups(RANKED))
        band(axes, ends, np.stack([ranked, ranked], axis=1), "ranked engine", COLOURS[1], "--")
        axes.set_xlim(*ends)
        axes.set_ylim(0, None)
        axes.set_xticks(self.heights)
        axes.set_xlabel("height of the tree")
        axes.set_ylabel("speed-up over dm.solve on all rows")
        axes.grid(axis="y", alpha=0.3)
        legend_below(figure, [axes])


class _Trials:
    """The seconds of all trials, and what follows from them."""

    def __init__(self, records: list[Records]) -> None:
        self.records = records

    def each(self, seconds: Callable[[Records], float]) -> list[float]:
        """Return one figure per trial."""
        return [seconds(trial) for trial in self.records]

    def median(self, height: str, part: str) -> float:
        """Average the trials' medians of one part of an update: insert, delete or solve."""
        return float(np.mean([np.median(trial["updates"][height][part]) for trial in self.records]))

    def speed_ups(self, height: str, baseline: Callable[[Records], float] | None = None) -> list[float]:
        """Compare solving everything with an update and solving its coreset, trial by trial."""
        over = baseline or _everything
        return [
            over(trial) / (_change(trial, height) + float(np.median(trial["updates"][height]["solve"])))
            for trial in self.records
        ]

    def against_rebuild(self, height: str) -> list[float]:
        """Compare rebuilding the coreset with an update of it, trial by trial."""
        return [_rebuild(trial) / _change(trial, height) for trial in self.records]


def _everything(trial: Records) -> float:
    return float(min(trial["everything"]))


def _alternation(trial: Records) -> float:
    return float(trial["alternation"])


def _rebuild(trial: Records) -> float:
    return float(min(trial["rebuilt"]))


def _change(trial: Records, height: str) -> float:
    """Return the seconds of a change of either kind, with the coreset after it."""
    one = trial["updates"][height]
    return float(np.median(one["insert"]) + np.median(one["delete"])) / 2


@cache
def _warm_up() -> None:
    """Do a little of it, once, so that imports are not counted."""
    data = with_planted_rows(made_up_covertype(1000), 10, _CHANGES, 0)
    _timed_life(data, 10, 300, (1,), 0)


def _timed_life(data: Contaminated, z: int, size: int, heights: tuple[int, ...], seed: int) -> Records:
    """Keep the rows in every way, and time changes."""
    everything = partial(fits.on_everything, data.X, data.y, LOGISTIC, z, seed)
    papers = everything(fits.alternation).seconds
    baseline = [everything(fits.solved).seconds]
    dyn = dm.DynamicCoreset(LOGISTIC, size, z, engine="ranked", random_state=seed)
    dyn.insert(data.X, data.y)
    updates = {RANKED: {"bucket": None, **_updates(dyn, data, seed)}}
    baseline.append(everything(fits.solved).seconds)
    n_inliers = len(dyn) - dyn.n_suspected
    for height in heights:
        bucket = -(-(n_inliers + _ROOM) // 2 ** (height - 1))
        _plant(dyn, bucket)
        updates[str(height)] = {"bucket": bucket, **_updates(dyn, data, seed)}
    baseline.append(everything(fits.solved).seconds)
    build = partial(
        dm.robust_coreset, data.X, data.y, loss=LOGISTIC, size=size, n_outliers=z, anchor=dyn.anchor
    )
    rebuilds = [fits.timed(build)[1] for _ in range(3)]
    return {"everything": baseline, "alternation": papers, "rebuilt": rebuilds, "updates": updates}


def _plant(dyn: dm.DynamicCoreset, bucket: int) -> None:
    """Put all points into a new tree with such buckets at once, as a store does when it is opened.

    Filling a ``DynamicCoreset(engine="tree", bucket_size=bucket)`` handles each of half a million rows by
    itself, with the same result.
    """
    state, anchor = dyn._state, dyn.anchor
    assert state is not None
    assert anchor is not None
    dyn._settings = state.settings = replace(dyn._settings, tree=True, bucket_size=bucket)
    state.restore(anchor, np.array(sorted(state.sample), dtype=np.int64))
    state.version += 1


def _updates(dyn: dm.DynamicCoreset, data: Contaminated, seed: int) -> Records:
    """Alternately delete and insert rows, and solve the coreset each time: seconds of each."""
    dyn.coreset()
    leaving = np.random.default_rng(seed).choice(dyn.ids, _CHANGES, replace=False).tolist()
    took: dict[str, list[float]] = {"insert": [], "delete": [], "solve": []}
    for turn, name in enumerate(leaving):
        start = time.perf_counter()
        if turn % 2:
            dyn.insert(data.X_test[turn], data.y_test[turn])
        else:
            dyn.delete(name)
        core = dyn.coreset()
        took["insert" if turn % 2 else "delete"].append(time.perf_counter() - start)
        took["solve"].append(fits.timed(partial(dm.solve, core, random_state=seed))[1])
    return took
