"""Pictures of a table's life: how good fits are along it, and what things cost."""

from __future__ import annotations

from collections.abc import Callable
from itertools import groupby
from typing import Any

import numpy as np

from experiments.paper.drawing import COLOURS, STYLES, band, legend_below, share_axis
from experiments.paper.experiment import Records
from experiments.paper.life import ALTER, COME, LEAVE, REANCHOR, RETURN

__all__ = ["Lives", "draw_costs", "draw_losses"]

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
    """Draw what updates, coresets and fits cost, a panel an engine."""
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
    """Give a factor that leaves a gap in a line where something is not so."""
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
    """Collect a figure where stops have it: numbers of these stops from 1, and a row a trial."""
    places = [place for place, stop in enumerate(trials[0]) if stop.get(part)]
    return [place + 1 for place in places], [[of(trial[place]) for place in places] for trial in trials]


def _spans(stops: list[Records]) -> list[tuple[str, float, float]]:
    """Give each phase with where it begins and ends; a phase begins where the one before it ended."""
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
