"""The paper's Figure 3(a) and (b): loss and accuracy against the size, plain and robust."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import numpy as np

from duramen.arrays import Array
from experiments.paper import fits
from experiments.paper.data import Contaminated, Table, with_planted_rows
from experiments.paper.experiment import InTrials, Plots, Records, Results
from experiments.paper.fits import LOGISTIC, Fit, Yardstick
from experiments.paper.pages import (
    COLOURS,
    SAMPLERS,
    STYLES,
    TITLE,
    band,
    counted,
    legend_below,
    loss_axis,
    share_axis,
    size_axis,
    table,
)

__all__ = ["Figure3"]

SIZES = (250, 500, 1000, 2000, 4000, 8000, 16_000)
_OURS = ("default", "two rounds")
_WAYS = (*(f"{method}{mark}" for method in SAMPLERS for mark in ("", "+")), *_OURS)

_ABOUT = """\
# Figure 3(a) and (b): loss and accuracy against the size

Figures 3(a) and 3(b) of {paper},
on {name}. Data, contamination, loss and what is counted are those of [Table 1](table1.md); sizes begin at
{least:,} rows. Made by

    {command}

on {where}.

A coreset with `+` is robust; the one without is the same sampler with `suspects=0`. Both have weights as
drawn and are solved by the paper's alternation with the same number of outliers: what differs is the choice
of rows. Our own lines have calibrated weights and `dm.solve`: the default, and the estimator with two rounds.
Losses are on all {rows:,} training rows, and accuracy on {held_out:,} clean test rows; both are compared with
those of the fit without a coreset, which classified {accuracy:.2%} correctly. {trials} (seeds from 0).
"""

_CAPTION_A = """\
Loss on all rows, above that of the fit without a coreset: means over the trials, and a band from the
least to the most. The axis is linear up to 1%, then logarithmic."""
_CAPTION_B = """\
Accuracy on clean test rows, less that of the fit without a coreset: means over the trials, and a
band from the least to the most."""


@dataclass(frozen=True)
class Figure3(InTrials):
    """Figures 3(a) and 3(b), on a table and with so many outliers and test rows."""

    table: Table
    z: int
    held_out: int
    trials: int = 5
    name: ClassVar[str] = "figure3"

    @property
    def settings(self) -> Records:
        counts = {"z": self.z, "held_out": self.held_out, "rows": len(self.table.X)}
        return {"data": self.table.name, **counts, "sizes": list(self.sizes)}

    @property
    def sizes(self) -> tuple[int, ...]:
        """Sizes that the rows allow: a coreset is less than half of them."""
        return tuple(size for size in SIZES if 2 * size <= len(self.table.X) - self.held_out)

    def _trial(self, seed: int) -> Records:
        data = with_planted_rows(self.table, self.z, self.held_out, seed)
        yardstick = Yardstick(data, self.z)
        full = fits.on_everything(data.X, data.y, LOGISTIC, self.z, seed, fits.alternation)
        found = {name: yardstick.measure(fit) for name, fit in self._fits(data, seed)}
        return {"full": yardstick.measure(full), "fits": found}

    def _fits(self, data: Contaminated, seed: int) -> Iterator[tuple[str, Fit]]:
        fit = partial(fits.on_coreset, data.X, data.y, LOGISTIC, self.z, seed)
        for size in self.sizes:
            for method, sampler in SAMPLERS.items():
                drawn = partial(fit, fits.alternation, sampler=sampler, size=size, calibrate=False)
                yield f"{method} {size}", drawn(suspects=0)
                yield f"{method}+ {size}", drawn()
            yield f"default {size}", fit(size=size)
            yield f"two rounds {size}", fits.estimated(data.X, data.y, self.z, seed, size)

    def page(self, results: Results, command: str) -> str:
        about = _ABOUT.format(
            name=self.table.name,
            paper=TITLE,
            least=self.sizes[0],
            command=command,
            where=results.where(),
            rows=len(self.table.X) - self.held_out,
            held_out=self.held_out,
            accuracy=np.mean([trial["full"]["accuracy"] for trial in results.of()]),
            trials=counted(self.trials, "trial"),
        )
        return "\n".join(
            [
                about,
                f"## Figure 3(a)\n\n![Loss against the size, by sampler](figure3a.svg)\n\n{_CAPTION_A}\n",
                f"## Figure 3(b)\n\n![Accuracy against the size, by sampler](figure3b.svg)\n\n{_CAPTION_B}\n",
                "## Plain against robust\n",
                self._compared(results),
                "## Loss ratio (worst trial)\n\n" + self._losses(results),
                "## Accuracy, percentage points beside the fit without a coreset\n\n"
                + self._accuracies(results),
            ]
        )

    def summary(self, results: Results) -> str:
        heading = (
            f"Loss ratio on {self.table.name} by size, {self.z:,} outliers, {counted(self.trials, 'trial')}"
        )
        return f"{heading}\n\n{self._losses(results)}\n{self._compared(results)}"

    def plots(self, results: Results) -> Plots:
        return {
            "figure3a": partial(self._draw, results, _above, partial(loss_axis, linear=0.01)),
            "figure3b": partial(self._draw, results, _beside, _accuracy_axis),
        }

    def _draw(
        self,
        results: Results,
        figure_of: Callable[[Records, Records], float],
        finish: Callable[[Any], None],
        figure: Any,
    ) -> None:
        """Draw one panel per sampler: plain, robust and ours."""
        figure.set_size_inches(10, 4.2)
        panels = figure.subplots(1, len(SAMPLERS), sharey=True)
        for axes, method in zip(panels, SAMPLERS, strict=True):
            lines = {
                f"{method}": "plain",
                f"{method}+": "robust (+)",
                **{way: f"ours: {way}" for way in _OURS},
            }
            for (way, label), colour, style in zip(lines.items(), COLOURS, STYLES, strict=False):
                band(axes, self.sizes, self._figures(results, way, figure_of), label, colour, style)
            axes.axhline(0, color="black", linewidth=0.8)
            axes.set_title(method)
            size_axis(axes, self.sizes)
            axes.tick_params(axis="x", labelrotation=45)
        finish(panels[0])
        for axes in panels[1:]:
            axes.grid(axis="y", alpha=0.3)
        legend_below(figure, panels, columns=4)

    def _figures(self, results: Results, way: str, figure_of: Callable[[Records, Records], float]) -> Array:
        """Collect a figure, one row per trial and one column per size."""
        trials = results.of()
        return np.array(
            [[figure_of(one["fits"][f"{way} {size}"], one["full"]) for size in self.sizes] for one in trials]
        )

    def _losses(self, results: Results) -> str:
        rows = []
        for way in _WAYS:
            ratios = 1 + self._figures(results, way, _above)
            rows.append(
                [way, *(f"{a:.3f} ({b:.3f})" for a, b in zip(ratios.mean(0), ratios.max(0), strict=True))]
            )
        return table(["method", *(f"{size:,}:" for size in self.sizes)], rows)

    def _accuracies(self, results: Results) -> str:
        rows = []
        for way in _WAYS:
            points = 100 * self._figures(results, way, _beside)
            rows.append(
                [way, *(f"{a:+.2f} ({b:+.2f})" for a, b in zip(points.mean(0), points.min(0), strict=True))]
            )
        return table(["method", *(f"{size:,}:" for size in self.sizes)], rows)

    def _compared(self, results: Results) -> str:
        """Report at which sizes the robust coreset has the lower mean loss, and at which the plain one."""
        lines = []
        for method in SAMPLERS:
            plain, robust = (self._figures(results, f"{method}{mark}", _above).mean(0) for mark in ("", "+"))
            better = [size for size, a, b in zip(self.sizes, robust, plain, strict=True) if a <= b]
            worse = [size for size in self.sizes if size not in better]
            lines.append(
                f"- {method}: the robust coreset has no higher mean loss at {_named(better)}"
                + (f", the plain one at {_named(worse)}." if worse else ".")
            )
        return "\n".join(lines) + "\n"


def _above(one: Records, full: Records) -> float:
    """How far a loss is above that of the fit without a coreset, as a share of it."""
    return float(one["loss"] / full["loss"] - 1)


def _beside(one: Records, full: Records) -> float:
    """How far an accuracy is from that of the fit without a coreset."""
    return float(one["accuracy"] - full["accuracy"])


def _accuracy_axis(axes: Any) -> None:
    share_axis(axes.yaxis)
    axes.set_ylabel("accuracy less the full fit's (points)")
    axes.grid(axis="y", alpha=0.3)


def _named(sizes: list[int]) -> str:
    return ", ".join(f"{size:,}" for size in sizes) + " rows" if sizes else "no size"
