"""Beyond the paper: a table that is streamed in, halved and restored, and its live coreset all along."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from typing import ClassVar, NamedTuple

import numpy as np

from experiments.paper.data import Table
from experiments.paper.experiment import InTrials, Plots, Records, Results
from experiments.paper.life import ALTER, COME, PARTS, REANCHOR, SINGLES, Stream, life_of, warm_up
from experiments.paper.life_pictures import draw_costs, draw_losses
from experiments.paper.pages import counted, mean_and_worst, table

__all__ = ["ENGINES", "Dynamic", "Life"]

ENGINES = ("ranked", "tree")
SAME = 1e-9  # how far apart weights may be, relatively, where ids are equal

_MOST = 0.2  # of the rows may be planted

_ABOUT = """\
# A table's life

Logistic regression on {name}, kept in a `dm.DynamicCoreset` of {size:,} rows while all of the table comes,
half of it leaves, the number of outliers changes and the half returns. The paper has no such experiment: its
[Figure 3(c)](figure3c.md) times single updates. Made by

    {command}

on {where}.

**Life.** In each of {trials} (seeds from 0) {planted:,} of {rows:,} rows, a share of {share:.4g}, get
noise on every column and labels shuffled among them, as in [Table 1](table1.md). The rows come in
no order, {batch:,} at a time. Then `reanchor()` is called once, as is advised after a first load. A random
half leaves; `set_outliers` takes z to 2, 3, 1, 1/2 and 1 times what was planted; the half returns, the last
to leave first. `n_outliers` is a fraction, so that z follows the rows. There are {stops} stops on the way. At
each the coreset is taken and solved as a user would, by `dm.solve(dyn)`, which starts from the latest
solution, and from the start too where a tenth of the rows or of z changed since. At {fitted} of them all live
rows are solved as well, by `dm.solve` from the start.

**Engines.** Ranked, the default, whose weights are calibrated; and the paper's merge-and-reduce tree, whose
weights are not. Both live the same lives.

**Loss ratio**: f_z on all live rows, over that of `dm.solve` on them; the mean over trials and stops, and in
parentheses the worst. **Updates**: what a row took in batches of {batch:,}, or the one call. **All rows**:
seconds of `dm.solve` on all live rows. **Speed-up**: these, over those of one batch or call, `coreset()` and
`dm.solve(dyn)`. All are means over trials and stops.

"""

_PICTURES = """\
![Loss above the fit of all live rows, along the life](dynamic-loss.svg)

Above: the fit on the live coreset, over that on all live rows. Lines are means over the trials, bands reach
from the least to the most. Below: how many rows are live.

![What an update, a coreset and a fit cost, along the life](dynamic-cost.svg)

What things cost along the life: means over the trials, on a logarithmic axis. A single row's cost is the
mean of {singles} that come, or go, one by one. Where more than a tenth of the rows or of z changed between
two stops, `dm.solve` of the live coreset also searches from the start, which costs more than to go on.

"""

_SINGLES = """\
## Single rows

Microseconds a row, while rows come: {singles} are inserted one by one, and deleted again. The median, and in
parentheses the mean; means over the trials. The ranked engine looks at single new rows 128 at a time, so that
one of 128 insertions pays for all: the mean has that, the median does not.

"""

_ANCHOR = """\
## The anchor

The first anchor is made of the first rows. What became of it, and what `reanchor()` changed:

"""

_ANCHOR_COLUMNS = """
Late rows came after the anchor was made. Distance: of the solution from the anchor, in radii; a fit warns
from 4 on, and `reanchor()` is advised then, or when most rows are late. The anchor's own loss ratio says how
rough a solution it is. Over all stops, fits that warned: {warned}.
"""


class Life(NamedTuple):
    """What one engine's lives were like, one a trial."""

    engine: str
    records: list[Records]

    @property
    def stops(self) -> list[list[Records]]:
        """The stops of each trial."""
        return [record["stops"] for record in self.records]

    def phases(self) -> Iterator[tuple[str, list[Records]]]:
        """Give each phase with its stops in all trials; every z is a phase of its own."""
        for (phase, times), group in groupby(
            enumerate(self.stops[0]), key=lambda pair: (pair[1]["phase"], pair[1]["times"])
        ):
            places = [place for place, _ in group]
            title = f"z x {times:g}" if phase == ALTER else phase
            yield title, [trial[place] for trial in self.stops for place in places]

    def at(self, place: int) -> list[Records]:
        """Give one stop in all trials."""
        return [trial[place] for trial in self.stops]


@dataclass(frozen=True)
class Dynamic(InTrials):
    """The life of a table with such a share of outliers: one step a trial."""

    table: Table
    z_share: float
    trials: int = 3
    size: int = 4000
    batch: int = 500
    parts: int = PARTS
    singles: int = SINGLES
    name: ClassVar[str] = "dynamic"

    def __post_init__(self) -> None:
        if not 0 < self.z_share < _MOST:
            raise ValueError(
                f"z_share={self.z_share:g} must be above 0 and below {_MOST:g}: z becomes three times that"
            )
        rows, needed = len(self.table.X), 2 * max(self.size, self.parts)
        if rows - self.singles < needed:
            raise ValueError(
                f"{rows:,} rows, less {self.singles} that come one by one, are fewer than the {needed:,} "
                f"that size={self.size} asks for; take more rows, or a smaller size"
            )

    @property
    def settings(self) -> Records:
        counts = {"rows": len(self.table.X), "size": self.size, "batch": self.batch}
        stops = {"parts": self.parts, "singles": self.singles}
        return {"data": self.table.name, "z_share": self.z_share, **counts, **stops}

    def _trial(self, seed: int) -> Records:
        warm_up()
        stream = Stream(self.table, self.z_share, seed, parts=self.parts, singles=self.singles)
        lives = {engine: life_of(stream, engine, self.size, self.batch) for engine in ENGINES}
        return {"rows": len(stream.data.X), "planted": stream.planted, "lives": lives}

    def page(self, results: Results, command: str) -> str:
        first, lives = results.of()[0], _lives(results)
        stops = lives[0].stops[0]
        about = _ABOUT.format(
            name=self.table.name,
            size=self.size,
            command=command,
            where=results.where(),
            trials=counted(self.trials, "trial"),
            planted=first["planted"],
            rows=first["rows"],
            share=self.z_share,
            batch=self.batch,
            stops=len(stops),
            fitted=sum("loss" in stop for stop in stops),
        )
        sections = [f"## {life.engine.capitalize()}\n\n{_phases(life)}" for life in lives]
        end = f"## The end\n\n{_end(lives)}\n"
        pictures = _PICTURES.format(singles=self.singles)
        return (
            about
            + pictures
            + "\n".join(
                [*sections, _SINGLES.format(singles=self.singles) + _single_rows(lives), _anchor(lives), end]
            )
        )

    def summary(self, results: Results) -> str:
        lives = _lives(results)
        heading = f"The life of {self.table.name}, {counted(self.trials, 'trial')}\n"
        return "\n".join(
            [heading, *(f"{life.engine}\n\n{_phases(life)}" for life in lives), _end(lives) + "\n"]
        )

    def plots(self, results: Results) -> Plots:
        lives = [(life.engine, life.stops) for life in _lives(results)]
        return {"dynamic-loss": partial(draw_losses, lives), "dynamic-cost": partial(draw_costs, lives)}


def _lives(results: Results) -> list[Life]:
    return [Life(engine, [trial["lives"][engine] for trial in results.of()]) for engine in ENGINES]


def _phases(life: Life) -> str:
    """Write one row a phase."""
    rows = []
    for title, stops in life.phases():
        fitted = [stop for stop in stops if "loss" in stop]
        rows.append(
            [
                title,
                _range(stop["points"] for stop in stops),
                _range(stop["z"] for stop in stops),
                mean_and_worst(stop["loss"] / stop["least"] for stop in fitted),
                _updates(stops),
                *(f"{1000 * _mean(stops, part):,.1f}" for part in ("coreset", "solving")),
                f"{_mean(fitted, 'everything'):.2f}",
                f"x {np.mean([_speed_up(stop) for stop in fitted]):,.1f}",
            ]
        )
    head = (
        *("phase", "rows:", "z:", "loss ratio:", "updates:", "`coreset()`, ms:", "`dm.solve`, ms:"),
        *("all rows, s:", "speed-up:"),
    )
    return table(head, rows)


def _range(numbers: Iterable[float]) -> str:
    """Write from where to where numbers went, in the order of the life."""
    listed = list(numbers)
    first, last = round(listed[0]), round(listed[-1])
    return f"{first:,}" if first == last else f"{first:,} to {last:,}"


def _mean(stops: list[Records], part: str) -> float:
    return float(np.mean([stop[part] for stop in stops]))


def _updates(stops: list[Records]) -> str:
    """Write what a row took, or the one call where no rows came or went."""
    seconds, rows = (sum(stop[part] for stop in stops) for part in ("changing", "changed"))
    if rows:
        return f"{1e6 * seconds / rows:.1f} µs a row"
    return f"{1000 * seconds / sum(stop['calls'] for stop in stops):,.1f} ms"


def _speed_up(stop: Records) -> float:
    """Compare solving all live rows with one call, the coreset after it and its solution."""
    ours = stop["changing"] / stop["calls"] + stop["coreset"] + stop["solving"]
    return float(stop["everything"] / ours)


def _single_rows(lives: list[Life]) -> str:
    """Write what single rows took while rows came, one row a stop."""
    fitted = [
        place for place, stop in enumerate(lives[0].stops[0]) if stop["phase"] == COME and "insert" in stop
    ]
    rows = []
    for place in fitted:
        cells = [f"{lives[0].stops[0][place]['points']:,}"]
        for life in lives:
            for kind in ("insert", "delete"):
                median, mean = (
                    1e6 * np.mean([stop[kind][part] for stop in life.at(place)])
                    for part in ("median", "mean")
                )
                cells.append(f"{median:.0f} ({mean:.0f})")
        rows.append(cells)
    kinds = [f"{life.engine}, {kind}:" for life in lives for kind in ("insert", "delete")]
    return table(("rows:", *kinds), rows)


def _anchor(lives: list[Life]) -> str:
    """Write what became of the anchor."""
    again = next(place for place, stop in enumerate(lives[0].stops[0]) if stop["phase"] == REANCHOR)
    places = {"before `reanchor()`": again - 1, "after it": again, "in the end": -1}
    rows = []
    for life in lives:
        for title, place in places.items():
            stops = life.at(place)
            away = [stop["away"] for stop in stops if stop["away"] is not None]
            rows.append(
                [
                    f"{life.engine}, {title}",
                    f"{_mean(stops, 'late'):.0%}",
                    f"{np.mean(away):.1f}" if away else "",
                    _of(stop["warned"] for stop in stops),
                    _of(stop["advised"] for stop in stops),
                    mean_and_worst(stop["anchor"] / stop["least"] for stop in stops),
                    mean_and_worst(stop["loss"] / stop["least"] for stop in stops),
                ]
            )
    head = (
        *("when", "late rows:", "distance:", "fits that warned:", "`reanchor()` advised:"),
        *("anchor's loss ratio:", "loss ratio:"),
    )
    warned = ", ".join(
        f"{_of(stop['warned'] for trial in life.stops for stop in trial)} {life.engine}" for life in lives
    )
    return _ANCHOR + table(head, rows) + _ANCHOR_COLUMNS.format(warned=warned)


def _of(facts: Iterable[bool]) -> str:
    listed = list(facts)
    return f"{sum(listed)} of {len(listed)}"


def _end(lives: list[Life]) -> str:
    """Say whether the live coreset was in the end what is built anew, and what it had been before."""
    ranked, tree = (life.records for life in lives)
    lines = ["In the end, the ranked engine's coreset was compared with"]
    for other, what in (
        ("anew", "`dm.robust_coreset` of the live rows, built anew with the same anchor and seed"),
        ("marked", "the one right after `reanchor()`, before half of the same rows left and returned"),
    ):
        facts = [record[other] for record in ranked]
        same = [one["in_common"] == 1.0 and one["apart"] <= SAME for one in facts]
        verdict = "**the same**" if all(same) else "**NOT THE SAME**"
        common, apart = min(one["in_common"] for one in facts), max(one["apart"] for one in facts)
        lines.append(
            f"* {what}: {verdict} in {_of(same)} trials; {common:.1%} of the ids in common, weights at most "
            f"{apart:.1e} apart, relatively (asked: {SAME:g})."
        )
    kept = min(record["marked"]["in_common"] for record in tree)
    after = f"The tree's depends on how its points came: {kept:.1%} of its ids are those after `reanchor()`."
    return "\n".join([lines[0], "", *lines[1:], "", after])
