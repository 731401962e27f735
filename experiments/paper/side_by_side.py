"""Tables with the paper, our run of its methods, and our best, side by side."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from experiments.paper.experiment import Records
from experiments.paper.pages import Reported, mean_and_worst, table

__all__ = ["Cell", "Sheet", "as_reported", "at_sizes"]

_EVERYTHING = ("full", "ours")
_EVERYTHING_NAMED = (("everything, as in the paper", "full"), ("everything, `dm.solve`", "ours"))


def as_reported(reported: Mapping[tuple[str, int], Reported]) -> list[tuple[str, str]]:
    """Name the rows of the paper's methods, plain and robust, and their fits."""
    return [
        (f"{method}{mark}", f"{method}{mark} {size} paper") for method, size in reported for mark in ("", "+")
    ]


def at_sizes(sizes: Iterable[int], *ways: str) -> list[tuple[str, str]]:
    """Name the rows of our own methods, each at every size, and their fits."""
    listed = list(sizes)
    return [(way, f"{way} {size}") for way in ways for size in listed]


@dataclass(frozen=True)
class Cell:
    """What one way to fit came to, trial by trial, over the paper's algorithm on everything."""

    ratios: list[float]
    speed_ups: list[float]
    over_ours: list[float]
    rows: list[int]
    building: list[float]
    solving: list[float]
    accuracies: list[float]

    @property
    def ratio(self) -> float:
        """The mean loss ratio."""
        return float(np.mean(self.ratios))

    @property
    def speed_up(self) -> float:
        """The mean speed-up."""
        return float(np.mean(self.speed_ups))

    def written(self, asked: Reported | None = None) -> list[str]:
        """Write loss ratio and speed-up, each marked where it is worse than ``asked``."""
        ratio = mean_and_worst(self.ratios)
        speed_up = _times(self.speed_up)
        if asked is not None and self.ratio > asked.ratio:
            ratio += " MISSED"
        if asked is not None and self.speed_up < asked.speed_up:
            speed_up += " MISSED"
        return [ratio, speed_up]


class Sheet:
    """The fits of all trials, by the names of the ways to fit.

    A trial's record has ``full`` (the paper's algorithm on everything), ``ours``
    (our solver on everything) and ``fits``, each with loss, building and solving;
    accuracy where there are labels.
    """

    def __init__(self, trials: list[Records]) -> None:
        self.trials = trials

    def cell(self, name: str) -> Cell:
        """Collect what one way to fit came to; ``full`` and ``ours`` are those on everything."""
        pairs = [
            (trial, trial[name] if name in _EVERYTHING else trial["fits"][name]) for trial in self.trials
        ]
        return Cell(
            ratios=[one["loss"] / trial["full"]["loss"] for trial, one in pairs],
            speed_ups=[_seconds(trial["full"]) / _seconds(one) for trial, one in pairs],
            over_ours=[_seconds(trial["ours"]) / _seconds(one) for trial, one in pairs],
            rows=[one["rows"] for _, one in pairs],
            building=[one["building"] for _, one in pairs],
            solving=[one["solving"] for _, one in pairs],
            accuracies=[one["accuracy"] for _, one in pairs if "accuracy" in one],
        )

    def baseline(self, which: str, name: str) -> float:
        """Average a figure of a fit on everything, ``full`` or ``ours``; "seconds" is one too."""
        fits = [trial[which] for trial in self.trials]
        return float(np.mean([_seconds(one) if name == "seconds" else one[name] for one in fits]))

    def side_by_side(self, reported: Mapping[tuple[str, int], Reported]) -> str:
        """Write the paper's rows: the paper, its methods here, and our best."""
        rows = []
        for (method, size), paper in reported.items():
            cells = [f"{method}+", f"{size:,}", f"{paper.ratio:.3f}", _times(paper.speed_up)]
            for column in ("paper", "best"):
                cells += self.cell(f"{method}+ {size} {column}").written(paper)
            rows.append(cells)
        head = (
            *("method", "rows:", "paper: loss ratio:", "speed-up:"),
            *("its methods here: loss ratio:", "speed-up:", "at our best: loss ratio:", "speed-up:"),
        )
        return table(head, rows)

    def listed(self, names: list[tuple[str, str]], *, accuracy: bool) -> str:
        """Write every figure of some ways to fit, under the names they have in the table."""
        rows = []
        for title, name in [*_EVERYTHING_NAMED, *names]:
            cell = self.cell(name)
            accuracies = [f"{np.mean(cell.accuracies):.2%}"] if accuracy else []
            parts = [f"{1000 * np.mean(part):,.0f}" for part in (cell.building, cell.solving)]
            rows.append(
                [
                    title,
                    f"{np.mean(cell.rows):,.0f}",
                    mean_and_worst(cell.ratios),
                    *accuracies,
                    *(parts if any(cell.building) else ["", ""]),
                    f"{1000 * np.mean(np.add(cell.building, cell.solving)):,.0f}",
                    _times(cell.speed_up),
                    _times(float(np.mean(cell.over_ours))),
                ]
            )
        title = ["accuracy:"] if accuracy else []
        head = (
            *("method", "rows:", "loss ratio:", *title, "building, ms:", "solving:", "both:"),
            *("speed-up:", "over our solver:"),
        )
        return table(head, rows)

    def verdict(self, reported: Mapping[tuple[str, int], Reported]) -> str:
        """Report in how many of the paper's rows each column is as good, and which it misses."""
        lines = []
        for column, title in (("paper", "The paper's methods here"), ("best", "Our best")):
            cells = {
                (method, size): (self.cell(f"{method}+ {size} {column}"), paper)
                for (method, size), paper in reported.items()
            }
            worse = [key for key, (cell, paper) in cells.items() if cell.ratio > paper.ratio]
            slower = [key for key, (cell, paper) in cells.items() if cell.speed_up < paper.speed_up]
            lines.append(
                f"{title}: loss ratio at least as good as the paper's in {len(cells) - len(worse)} of "
                f"{len(cells)} rows{_named(worse)}, speed-up in {len(cells) - len(slower)} of "
                f"{len(cells)}{_named(slower)}."
            )
        return "\n".join(lines) + "\n"


def _seconds(one: Records) -> float:
    return float(one["building"] + one["solving"])


def _named(keys: list[tuple[str, int]]) -> str:
    return f" (missed: {', '.join(f'{method}+ {size:,}' for method, size in keys)})" if keys else ""


def _times(factor: float) -> str:
    return f"x {factor:.1f}" if factor < 1000 else f"x {factor:,.0f}"
