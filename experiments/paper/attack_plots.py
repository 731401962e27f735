"""The pictures of the attacks: one panel an adversary, one line a way to fit."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from duramen.arrays import Array
from experiments.paper.adversary import ATTACKS
from experiments.paper.attack_sheet import LINES, MEASURES, Measure, Sheet
from experiments.paper.drawing import COLOURS, STYLES, band, legend_below, loss_axis, share_axis
from experiments.paper.experiment import Plots

__all__ = ["plots"]


def plots(sheet: Sheet) -> Plots:
    """Name the pictures, and how to draw each."""
    _, loss, objective = MEASURES
    return {
        "attacks-accuracy": partial(_draw_accuracy, sheet),
        "attacks-loss": partial(_draw_lost, sheet, loss, "loss on clean rows,\nabove the informed fit's"),
        "attacks-objective": partial(
            _draw_lost, sheet, objective, "trimmed objective,\nabove the best trimmed fit's"
        ),
    }


def _draw_accuracy(sheet: Sheet, figure: Any) -> None:
    """Draw accuracies, and that of a fit without the planted rows; each panel has its own axis."""
    panels = figure.subplots(1, len(ATTACKS))
    for axes, attack in zip(panels, ATTACKS, strict=True):
        told = sheet.each(attack.name, lambda record: record["informed"]["accuracy"]).mean(axis=0)
        axes.plot(sheet.shares, told, color="0.6", linewidth=3, label="informed, without the planted rows")
        share_axis(axes.yaxis)
    _draw(sheet, partial(_accuracy, sheet), panels, figure)
    panels[0].set_ylabel("accuracy on clean test rows")


def _draw_lost(sheet: Sheet, measure: Measure, label: str, figure: Any) -> None:
    """Draw what is lost, all panels with the same axis."""
    panels = figure.subplots(1, len(ATTACKS), sharey=True)
    _draw(sheet, partial(sheet.lost, measure), panels, figure)
    loss_axis(panels[0], linear=0.01, label=label)


def _accuracy(sheet: Sheet, way: str, attack: str) -> Array:
    return sheet.each(attack, lambda record: record["fits"][way]["accuracy"])


def _draw(sheet: Sheet, figures: Callable[[str, str], Array], panels: Any, figure: Any) -> None:
    """Draw one panel an attack: one line a way to fit."""
    figure.set_size_inches(10, 4.4)
    for axes, attack in zip(panels, ATTACKS, strict=True):
        for way, colour, style in zip(LINES, COLOURS, STYLES, strict=False):
            band(axes, sheet.shares, figures(way, attack.name), way, colour, style)
        axes.set_title(attack.title)
        share_axis(axes.xaxis)
        axes.set_xlabel("planted rows")
        axes.grid(axis="y", alpha=0.3)
    legend_below(figure, panels, columns=4)
