"""Beyond the paper: the life of a coreset while its data come and go."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cache, partial
from itertools import groupby
from typing import Any, ClassVar, NamedTuple

import numpy as np

import duramen as dm
from duramen.arrays import Array
from duramen.points import WeightedPoints
from experiments.paper.data import Table, made_up_covertype, with_planted_rows
from experiments.paper.experiment import InTrials, Plots, Records, Results
from experiments.paper.fits import LOGISTIC, timed
from experiments.paper.pages import (
    COLOURS,
    STYLES,
    band,
    counted,
    legend_below,
    mean_and_worst,
    share_axis,
    table,
)

COME, REANCHOR, LEAVE, ALTER, RETURN = (
    "all rows come",
    "`reanchor()`",
    "half of them leave",
    "z changes",
    "the half returns",
)
PARTS = 8  # stops while half of the rows leave or return; twice as many while all come
SINGLES = 256  # rows that come and go one by one at a stop; a look at new rows takes in 128

_TIMES = (2.0, 3.0, 1.0, 0.5, 1.0)  # what z is changed to, over what was planted


class Stop(NamedTuple):
    """A moment of the life: how many rows came, how many of these are gone, and z over what was planted.

    ``fitted`` says whether all live rows are fitted there, to compare with.
    """

    phase: str
    came: int
    gone: int
    times: float
    fitted: bool


def stops_of(rows: int, parts: int = PARTS) -> list[Stop]:
    """List the stops of a table's life; at the first, and at some of the others, all live rows are fitted."""
    half, quarter = rows // 2, max(1, parts // 2)
    came = [(rows * k // (2 * parts), k in (1, 2 * parts) or k % quarter == 0) for k in range(2 * parts + 1)]
    gone = [(half * k // parts, k == parts or k % 2 == 0) for k in range(parts + 1)]
    return [
        *(Stop(COME, n, 0, 1.0, fitted) for n, fitted in came[1:]),
        Stop(REANCHOR, rows, 0, 1.0, True),
        *(Stop(LEAVE, rows, n, 1.0, fitted) for n, fitted in gone[1:]),
        *(Stop(ALTER, rows, half, times, True) for times in _TIMES),
        *(Stop(RETURN, rows, n, 1.0, fitted) for n, fitted in gone[-2::-1]),
    ]


class Everything(NamedTuple):
    """What all live rows cost at their own fit, and the seconds it took."""

    loss: float
    seconds: float


class Stream:
    """Contaminated rows in the order in which they come; a row's number is its id."""

    def __init__(
        self, table: Table, z_share: float, seed: int, *, parts: int = PARTS, singles: int = SINGLES
    ) -> None:
        n = len(table.X) - singles
        self.planted, self.z_share, self.seed = round(z_share * n), z_share, seed
        self.data = with_planted_rows(table, self.planted, singles, seed)
        self.leaving = np.random.default_rng((seed, 1)).permutation(n)[: n // 2]
        self.stops = stops_of(n, parts)
        self._fits: dict[tuple[int, int, float], Everything] = {}

    def ids(self, stop: Stop) -> Array:
        """Return the ids of the rows that are live at a stop, going up."""
        live = np.arange(len(self.data.X)) < stop.came
        live[self.leaving[: stop.gone]] = False
        return np.flatnonzero(live)

    def live(self, stop: Stop) -> WeightedPoints:
        """Return the rows that are live at a stop."""
        rows: Any = self.ids(stop) if stop.gone else slice(0, stop.came)
        return dm.points(self.data.X[rows], self.data.y[rows])

    def everything(self, stop: Stop, live: WeightedPoints) -> Everything:
        """Fit all rows that are live at a stop, unless that was done before."""
        key = stop.came, stop.gone, stop.times
        if key not in self._fits:
            z = stop.times * self.z_share
            theta, seconds = timed(lambda: dm.solve(live, LOGISTIC, z, random_state=self.seed).theta)
            self._fits[key] = Everything(_loss(live, theta, z), seconds)
        return self._fits[key]

    def changes(self, dyn: dm.DynamicCoreset, before: Stop, stop: Stop, batch: int) -> Iterator[_Change]:
        """Return the calls that lead from one stop to the next, and how many rows each changes."""
        coming = np.arange(before.came, stop.came)
        for rows in (coming, self.leaving[stop.gone : before.gone][::-1]):  # the last to leave returns first
            for part in _parts(rows, batch):
                X, y = self.data.X[part], self.data.y[part]
                yield _Change(len(part), partial(dyn.insert, X, y, ids=part))
        for part in _parts(self.leaving[before.gone : stop.gone], batch):
            yield _Change(len(part), partial(dyn.delete, part))
        if stop.times != before.times:
            yield _Change(0, partial(dyn.set_outliers, stop.times * self.z_share))
        if stop.phase == REANCHOR:
            yield _Change(0, dyn.reanchor)


class _Change(NamedTuple):
    """A call, and how many rows come or go by it."""

    rows: int
    call: Callable[[], Any]


def life_of(stream: Stream, engine: str, size: int, batch: int) -> Records:
    """Run a dynamic coreset through all stops: what each showed, and the final coreset."""
    dyn = dm.DynamicCoreset(LOGISTIC, size, stream.z_share, engine=engine, random_state=stream.seed)
    seen, before, marked = [], Stop("", 0, 0, 1.0, False), None
    for stop in stream.stops:
        seen.append(_seen(stream, dyn, before, stop, batch))
        before, marked = stop, dyn.coreset() if stop.phase == REANCHOR else marked
    live = stream.live(before)
    rebuilt = dm.robust_coreset(
        live.X,
        live.y,
        loss=LOGISTIC,
        size=size,
        n_outliers=stream.z_share,
        anchor=dyn.anchor,
        random_state=stream.seed,
    )
    assert marked is not None
    core = dyn.coreset()
    return {"stops": seen, "rebuilt": _compared(core, rebuilt), "marked": _compared(core, marked)}


def _seen(stream: Stream, dyn: dm.DynamicCoreset, before: Stop, stop: Stop, batch: int) -> Records:
    """Make the changes that lead to a stop, and measure there."""
    rows, calls, seconds = 0, 0, 0.0
    for change in stream.changes(dyn, before, stop, batch):
        rows, calls, seconds = rows + change.rows, calls + 1, seconds + timed(change.call)[1]
    coreset = timed(dyn.coreset)[1]
    solution, solving = timed(partial(_solved, dyn, stream.seed))
    report = dyn.anchor_report()
    found: Records = {
        "phase": stop.phase,
        "times": stop.times,
        "points": dyn.n_points,
        "z": dyn.n_outliers,
        "changed": rows,
        "calls": calls,
        "changing": seconds,
        "coreset": coreset,
        "solving": solving,
        "late": report.late_share,
        "away": report.distance / report.radius if report.radius and report.distance is not None else None,
        "warned": report.is_outside,
        "advised": report.advised,
    }
    if stop.fitted:
        live, z = stream.live(stop), stop.times * stream.z_share
        everything = stream.everything(stop, live)
        found |= {"loss": _loss(live, solution.theta, z), "least": everything.loss}
        found |= {"everything": everything.seconds, **_one_by_one(stream, dyn)}
        if len(live) == len(stream.data.X) and dyn.anchor is not None:
            found["anchor"] = _loss(live, dyn.anchor.theta, z)
    return found


def _solved(dyn: dm.DynamicCoreset, seed: int) -> dm.Solution:
    """Solve as a user would, from the latest solution on; the report shows whether the anchor is stale."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "the solution is .* from the anchor")
        return dm.solve(dyn, random_state=seed)


def _one_by_one(stream: Stream, dyn: dm.DynamicCoreset) -> Records:
    """Insert rows one by one and delete them again: seconds of each, the median and the mean.

    New rows are looked at together; the last of these looks is part of the mean.
    """
    X, y = stream.data.X_test, stream.data.y_test
    ids = len(stream.data.X) + np.arange(len(X))
    start = time.perf_counter()
    inserts = [timed(partial(dyn.insert, X[k], y[k], ids=name))[1] for k, name in enumerate(ids.tolist())]
    assert dyn.n_suspected >= 0  # asks how all points stand
    inserting = time.perf_counter() - start
    deletes = [timed(partial(dyn.delete, one))[1] for one in ids.tolist()]
    return {
        "insert": {"median": float(np.median(inserts)), "mean": inserting / len(X)},
        "delete": {"median": float(np.median(deletes)), "mean": float(np.mean(deletes))},
    }


def _compared(one: dm.Coreset, other: dm.Coreset) -> Records:
    """Compute the share of common ids of two coresets, and how far apart their weights are."""
    _, ours, theirs = np.intersect1d(one.ids, other.ids, return_indices=True)
    apart = np.abs(one.weights[ours] / other.weights[theirs] - 1)
    return {
        "in_common": len(ours) / max(len(one), len(other)),
        "apart": float(np.max(apart, initial=0.0)),
    }


def _loss(live: WeightedPoints, theta: Array, z: float) -> float:
    return float(dm.trimmed_objective(live, theta, loss=LOGISTIC, n_outliers=z))


def _parts(rows: Array, batch: int) -> list[Array]:
    return [rows[start : start + batch] for start in range(0, len(rows), batch)]


@cache
def warm_up() -> None:
    """Run a small example once, so that imports are not counted."""
    stream = Stream(made_up_covertype(700), 0.02, 0, singles=20)
    first, then = Stop("", 0, 0, 1.0, False), Stop(COME, len(stream.data.X), 0, 1.0, True)
    for engine in ("ranked", "tree"):
        dyn = dm.DynamicCoreset(LOGISTIC, 300, 0.02, engine=engine, random_state=0)
        _seen(stream, dyn, first, then, 500)


Lives = list[tuple[str, list[list[Records]]]]
"""Engines by name, each with the stops of every trial."""

_MULTIPLES = {0.5: "½z", 1.0: "z", 2.0: "2z", 3.0: "3z"}
_TITLES = {COME: "all rows come", LEAVE: "half leave", ALTER: "z changes", RETURN: "half return"}


def draw_losses(lives: Lives, figure: Any) -> None:
    """Draw how far fits are above those of all live rows, and below it how many rows are live."""
    figure.set_size_inches(8.0, 5.0)
    above, below = figure.subplots(2, 1, sharex=True, height_ratios=(3, 1))
    stops = lives[0][1][0]
    for place, (engine, trials) in enumerate(lives):
        x, excess = _along(trials, lambda stop: stop["loss"] / stop["least"] - 1, "loss")
        band(above, x, excess, f"{engine} engine", COLOURS[place], STYLES[place])
    low, high = min(0.0, above.dataLim.ymin), above.dataLim.ymax
    above.set_ylim(low - 0.05 * (high - low), high + 0.15 * (high - low))
    above.set_ylabel("loss above the fit\nof all live rows")
    share_axis(above.yaxis)
    below.plot(range(1, len(stops) + 1), [stop["points"] / 1000 for stop in stops], "-", color="#555555")
    below.set_ylim(0, None)
    below.set_ylabel("live rows,\nthousands")
    for axes in (above, below):
        axes.grid(axis="y", alpha=0.3)
        _shade(axes, stops)
    _name_phases(above, stops)
    _course(below, stops)
    legend_below(figure, [above])


def draw_costs(lives: Lives, figure: Any) -> None:
    """Draw what updates, coresets and fits cost, one panel per engine."""
    figure.set_size_inches(8.0, 7.0)
    panels = figure.subplots(len(lives), 1, sharex=True, sharey=True)
    for axes, (engine, trials) in zip(panels, lives, strict=True):
        for place, (label, of, part) in enumerate(_COSTS):
            x, seconds = _along(trials, of, part)
            style = {"color": COLOURS[place], "markersize": 4, "label": label}
            axes.plot(x, np.mean(seconds, axis=0), STYLES[place], **style)
        x, seconds = _along(trials, lambda stop: stop["changing"] * _only_if(not stop["changed"]), "calls")
        axes.plot(x, np.mean(seconds, axis=0), "*", color="#555555", markersize=8, label=_CALLS)
        axes.set_yscale("log")
        axes.grid(axis="y", alpha=0.3)
        axes.set_ylabel(f"{engine} engine: cost")
        _shade(axes, trials[0])
    least, most = min(axes.dataLim.ymin for axes in panels), max(axes.dataLim.ymax for axes in panels)
    panels[0].set_yticks(*_UNITS)
    panels[0].set_ylim(least / 2, 6 * most)
    for axes in panels:
        axes.minorticks_off()
    _name_phases(panels[0], lives[0][1][0])
    _course(panels[-1], lives[0][1][0])
    legend_below(figure, panels)


def _only_if(fact: bool) -> float:
    """Return a factor that leaves a gap in a line where something is not so."""
    return 1.0 if fact else np.nan


_COSTS: tuple[tuple[str, Callable[[Records], float], str], ...] = (
    (
        "a row, in batches",
        lambda stop: stop["changing"] / (stop["changed"] or 1) * _only_if(stop["changed"]),
        "calls",
    ),
    ("a single insertion", lambda stop: stop["insert"]["mean"], "insert"),
    ("a single deletion", lambda stop: stop["delete"]["mean"], "delete"),
    ("coreset()", lambda stop: stop["coreset"], "coreset"),
    ("dm.solve of the live coreset", lambda stop: stop["solving"], "solving"),
    ("dm.solve of all live rows", lambda stop: stop["everything"], "everything"),
)
"""What is drawn: its name, its seconds, and what a stop must have for it."""

_CALLS = "reanchor(), set_outliers()"
_UNITS = (
    [1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1.0, 10.0],
    ["1 µs", "10 µs", "100 µs", "1 ms", "10 ms", "100 ms", "1 s", "10 s"],
)


def _along(
    trials: list[list[Records]], of: Callable[[Records], float], part: str
) -> tuple[list[int], list[list[float]]]:
    """Collect a figure where stops have it: numbers of these stops from 1, and one row per trial."""
    places = [place for place, stop in enumerate(trials[0]) if stop.get(part)]
    return [place + 1 for place in places], [[of(trial[place]) for place in places] for trial in trials]


def _spans(stops: list[Records]) -> list[tuple[str, float, float]]:
    """Return each phase with where it begins and ends; a phase begins where the one before it ended."""
    spans, start = [], 0.5
    for phase, group in groupby(stops, key=lambda stop: str(stop["phase"])):
        end = start + len(list(group))
        spans.append((phase, start, end))
        start = end
    return spans


def _shade(axes: Any, stops: list[Records]) -> None:
    """Shade every other phase, and mark where the anchor was renewed."""
    for phase, start, end in _spans(stops):
        if phase in (LEAVE, RETURN):
            axes.axvspan(start, end, color="#000000", alpha=0.05, linewidth=0)
        if phase == REANCHOR:
            axes.axvline((start + end) / 2, color="#555555", linestyle=":", linewidth=1)


def _name_phases(axes: Any, stops: list[Records]) -> None:
    """Write the phases above the picture, and what z is set to inside it."""
    for phase, start, end in _spans(stops):
        words = {"x": (start + end) / 2, "transform": axes.get_xaxis_transform(), "ha": "center"}
        if phase in _TITLES:
            axes.text(y=1.02, s=_TITLES[phase], va="bottom", **words)
        else:
            axes.text(y=0.98, s="reanchor() ", va="top", **{**words, "ha": "right"})
    for place, stop in enumerate(stops, 1):
        if stop["phase"] == ALTER:
            axes.text(
                place,
                0.98,
                _MULTIPLES[stop["times"]],
                transform=axes.get_xaxis_transform(),
                va="top",
                ha="center",
                fontsize=8,
            )


def _course(axes: Any, stops: list[Records]) -> None:
    """Let the horizontal axis be the stops."""
    axes.set_xlim(0.5, len(stops) + 0.5)
    axes.set_xticks([1, *range(4, len(stops) + 1, 4)])
    axes.set_xlabel("stops of the life")


ENGINES = ("ranked", "tree")
SAME = 1e-9  # how far apart weights may be, relatively, where ids are equal

_MOST = 0.2  # of the rows may be planted

_ABOUT = """\
# A table's life

Logistic regression on {name}, kept in a `dm.DynamicCoreset` of {size:,} rows while the whole table is
inserted, half of it leaves, the number of outliers changes and the half returns. The paper has no such
experiment: its [Figure 3(c)](figure3c.md) times single updates. Made by

    {command}

on {where}.

**Life.** In each of {trials} (seeds from 0) {planted:,} of {rows:,} rows, a share of {share:.4g}, get
noise on every column and labels shuffled among them, as in [Table 1](table1.md). The rows come in
random order, {batch:,} at a time. Then `reanchor()` is called once, as advised after the first load. A random
half leaves; `set_outliers` sets z to 2, 3, 1, 1/2 and 1 times the planted number; the half returns, the last
to leave first. `n_outliers` is a fraction, so that z follows the rows. There are {stops} stops on the way. At
each the coreset is built and solved as a user would, by `dm.solve(dyn)`, which starts from the latest
solution, and also from scratch if a tenth of the rows or of z changed since. At {fitted} of them all live
rows are solved as well, by `dm.solve` from scratch.

**Engines.** Ranked, the default, whose weights are calibrated; and the paper's merge-and-reduce tree, whose
weights are not. Both go through the same changes.

**Loss ratio**: f_z on all live rows, over that of `dm.solve` on them; the mean over trials and stops, and in
parentheses the worst. **Updates**: the time per row in batches of {batch:,}, or of the single call. **All
rows**: seconds of `dm.solve` on all live rows. **Speed-up**: these, over the time of one batch or call,
`coreset()` and `dm.solve(dyn)`. All are means over trials and stops.

"""

_PICTURES = """\
![Loss above the fit of all live rows, along the life](dynamic-loss.svg)

Above: the fit on the live coreset, over that on all live rows. Lines are means over the trials, bands reach
from the least to the most. Below: how many rows are live.

![What an update, a coreset and a fit cost, along the life](dynamic-cost.svg)

What things cost along the life: means over the trials, on a logarithmic axis. A single row's cost is the
mean of {singles} that come, or go, one by one. Where more than a tenth of the rows or of z changed between
two stops, `dm.solve` of the live coreset also searches from scratch, which costs more than continuing.

"""

_SINGLES = """\
## Single rows

Microseconds per row, while rows come: {singles} are inserted one by one, and deleted again. The median, and
in parentheses the mean; means over the trials. The ranked engine scores single new rows 128 at a time, so
that one of 128 insertions pays for all: the mean includes that, the median does not.

"""

_ANCHOR = """\
## The anchor

The first anchor is made from the first rows. How well it held, and what `reanchor()` changed:

"""

_ANCHOR_COLUMNS = """
Late rows came after the anchor was made. Distance: between the solution and the anchor, in radii; a fit warns
from 4 on, and `reanchor()` is advised then, or when most rows are late. The anchor's own loss ratio says how
rough a solution it is. Over all stops, fits that warned: {warned}.
"""


class Life(NamedTuple):
    """The lives of one engine, one per trial."""

    engine: str
    records: list[Records]

    @property
    def stops(self) -> list[list[Records]]:
        """The stops of each trial."""
        return [record["stops"] for record in self.records]

    def phases(self) -> Iterator[tuple[str, list[Records]]]:
        """Return each phase with its stops in all trials; every z is a separate phase."""
        for (phase, times), group in groupby(
            enumerate(self.stops[0]), key=lambda pair: (pair[1]["phase"], pair[1]["times"])
        ):
            places = [place for place, _ in group]
            title = f"z x {times:g}" if phase == ALTER else phase
            yield title, [trial[place] for trial in self.stops for place in places]

    def at(self, place: int) -> list[Records]:
        """Return one stop in all trials."""
        return [trial[place] for trial in self.stops]


@dataclass(frozen=True)
class Dynamic(InTrials):
    """The life of a table with such a share of outliers: one step per trial."""

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
    """Write one row per phase."""
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
        return f"{1e6 * seconds / rows:.1f} µs per row"
    return f"{1000 * seconds / sum(stop['calls'] for stop in stops):,.1f} ms"


def _speed_up(stop: Records) -> float:
    """Compare solving all live rows with one call, the coreset after it and its solution."""
    ours = stop["changing"] / stop["calls"] + stop["coreset"] + stop["solving"]
    return float(stop["everything"] / ours)


def _single_rows(lives: list[Life]) -> str:
    """Write what single rows took while rows came, one row per stop."""
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
    """Write how well the anchor held."""
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
    """Report whether the final live coreset is what a rebuild gives, and what it was before."""
    ranked, tree = (life.records for life in lives)
    lines = ["In the end, the ranked engine's coreset was compared with"]
    for other, what in (
        ("rebuilt", "`dm.robust_coreset` of the live rows, with the same anchor and seed"),
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
    after = f"The tree's depends on the order of arrival: {kept:.1%} of its ids are those after `reanchor()`."
    return "\n".join([lines[0], "", *lines[1:], "", after])
