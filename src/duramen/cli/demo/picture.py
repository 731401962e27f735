"""The picture of the demo: where each fit draws the line, the robust coreset's rows, losses and times."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from duramen.arrays import Array
from duramen.cli.demo.data import Contaminated
from duramen.cli.demo.fits import Comparison, TimedFit
from duramen.cli.demo.plane import DemoPlane, plane_of

__all__ = ["save_picture"]

_PLUS, _MINUS, _PLANTED = "#3b6fb6", "#d98032", "#b5179e"
_ORDINARY, _TRIMMED = "#222222", "#009e73"  # told apart by their lightness too
_SHOWN = 6000  # of all rows; a coreset is drawn whole
_SOME = 20  # planted rows to show at least
_INK = 8000.0  # points squared that all of a coreset's rows cover together
_CLOSE = 3.2  # standard deviations of clean rows that are seen from near


def save_picture(sample: Contaminated, found: Comparison, path: Path) -> str:
    """Save the picture, or say what is missing; return the line to print."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError:
        return "(no picture: matplotlib is not installed; pip install 'duramen[plot]')"
    figure = Figure(figsize=(13, 8.6), layout="constrained")
    FigureCanvasAgg(figure)
    figure.suptitle(_headline(sample, found), fontsize=15)
    panels = figure.subplot_mosaic([["rows", "core"], ["loss", "time"]], height_ratios=(3, 1))
    _draw_planes(panels["rows"], panels["core"], sample, found)
    _draw_losses(panels["loss"], found)
    _draw_times(panels["time"], found)
    figure.savefig(path, dpi=120, format="png")
    return f"picture: {path.resolve()}"


def _headline(sample: Contaminated, found: Comparison) -> str:
    ordinary, robust = found.ordinary, found.robust
    planted = f"{100 * sample.z / len(sample.y):.3g}% planted rows"
    usual = f"fitted on everything as usual, {ordinary.accuracy:.0%} of the clean rows are right"
    return f"{planted}: {usual}; on {robust.n_rows:,} chosen rows, {robust.accuracy:.0%}"


def _draw_planes(left: Any, right: Any, sample: Contaminated, found: Comparison) -> None:
    """Draw the rows and the coreset in the same plane and frame, and the coreset's middle from near."""
    plane = plane_of(sample, found.ordinary.theta)
    low, high = _draw_rows(left, sample, plane)
    right.set_title(f"The {len(found.core):,} rows of the robust coreset, area by weight")
    near = right.inset_axes((0.55, 0.03, 0.43, 0.47))
    _draw_core(right, found, plane, 1.0)
    _draw_core(near, found, plane, 4.0)
    for axes in (left, right, near):
        _draw_lines(axes, found, plane)
    for axes in (left, right):
        axes.set(xlim=(low[0], high[0]), ylim=(low[1], high[1]))
        axes.set(xlabel="log-odds by the true model, in standard deviations")
    left.set(ylabel="the direction that the ordinary fit turned to")
    near.set(xlim=(-_CLOSE, _CLOSE), ylim=(-_CLOSE, _CLOSE), xticks=[], yticks=[])
    right.indicate_inset_zoom(near, edgecolor="#555555", alpha=0.8)
    _legends(left, right)


def _draw_rows(axes: Any, sample: Contaminated, plane: DemoPlane) -> tuple[Array, Array]:
    """Draw some of the rows, planted ones among them; give the corners of the frame that holds them."""
    shown = np.union1d(np.arange(min(_SHOWN, len(sample.y))), np.flatnonzero(sample.planted)[:_SOME])
    X, y, planted = (part[shown] for part in sample[:3])
    places = plane.places(X)
    looks = (
        (~planted & (y > 0), _PLUS, 5, "class +1"),
        (~planted & (y < 0), _MINUS, 5, "class −1"),
        (planted, _PLANTED, 9, "planted, labelled −1"),
    )
    for mask, colour, area, label in looks:
        axes.scatter(*places[mask].T, s=area, c=colour, alpha=0.5, linewidths=0, label=label)
    axes.set_title(f"All rows ({len(y):,} of {len(sample.y):,} shown)")
    low, high = places.min(axis=0), places.max(axis=0)
    margin = 0.06 * (high - low)
    return low - margin, high + margin


def _draw_core(axes: Any, found: Comparison, plane: DemoPlane, zoom: float) -> None:
    """Draw the robust coreset's rows by weight, the suspected ones as crosses."""
    core = found.core
    assert core.y is not None
    places, usual = plane.places(core.X), ~core.suspected
    areas = zoom * np.clip(_INK * core.weights / core.total_weight, 0.5, 60.0)
    for label, colour in ((1, _PLUS), (-1, _MINUS)):
        mask = usual & (core.y == label)
        axes.scatter(*places[mask].T, s=areas[mask], c=colour, alpha=0.45, linewidths=0)
    crosses = {"marker": "x", "linewidths": 0.8, "alpha": 0.75, "label": "suspected outliers"}
    axes.scatter(*places[~usual].T, s=14, c=_PLANTED, **crosses)


def _draw_lines(axes: Any, found: Comparison, plane: DemoPlane) -> None:
    for one in found.fits:
        axes.plot(*plane.boundary(one.theta).T, **_line(one, found), label=one.name)


def _line(one: TimedFit, found: Comparison) -> dict[str, Any]:
    """Choose how a boundary looks: broad and pale on everything, dashed on a coreset."""
    if one in (found.ordinary, found.trimmed):
        return {"c": _colour(one, found), "ls": "-", "lw": 6, "alpha": 0.35}
    return {"c": _colour(one, found), "ls": (0, (4, 2)), "lw": 1.8}


def _colour(one: TimedFit, found: Comparison) -> str:
    return _TRIMMED if one in (found.trimmed, found.robust) else _ORDINARY


def _legends(left: Any, right: Any) -> None:
    handles, labels = left.get_legend_handles_labels()
    looks = {"fontsize": 9, "framealpha": 0.95, "markerscale": 2.5}
    rows = left.legend(handles[:3], labels[:3], loc="upper left", bbox_to_anchor=(0.24, 1), **looks)
    left.legend(handles[3:], labels[3:], loc="lower right", title="boundaries", **looks)
    left.add_artist(rows)
    marks, names = right.get_legend_handles_labels()
    right.legend(marks[:1], names[:1], loc="upper left", bbox_to_anchor=(0.24, 1), **looks)


def _draw_losses(axes: Any, found: Comparison) -> None:
    """Draw the clean loss of each fit as a bar, and the ideal as a line to reach."""
    losses = [one.clean_loss for one in found.fits]
    bars = axes.barh(range(4), losses, height=0.65)
    for bar, one in zip(bars, found.fits, strict=True):
        bar.set(color=_colour(one, found), alpha=0.85)
        text = f" {one.clean_loss:.3f}, {one.accuracy:.0%} right"
        axes.text(one.clean_loss, bar.get_y() + bar.get_height() / 2, text, va="center", fontsize=9)
    axes.axvline(found.ideal.clean_loss, c="#555555", ls=":", lw=1.5)
    axes.set_yticks(range(4), [one.name for one in found.fits])
    axes.set(xlim=(0, 1.35 * max(losses)), title="Loss on clean rows (dotted: told which rows are planted)")
    _bare(axes)


def _draw_times(axes: Any, found: Comparison) -> None:
    """Draw the seconds of each fit as a dot, on a logarithmic scale."""
    for place, one in enumerate(found.fits):
        axes.plot(one.seconds, place, "o", ms=10, c=_colour(one, found), alpha=0.85)
        axes.text(1.15 * one.seconds, place, f"{one.seconds:.2f} s", va="center", fontsize=9)
    seconds = [one.seconds for one in found.fits]
    axes.set(xscale="log", xlim=(0.6 * min(seconds), 2.2 * max(seconds)), ylim=(-0.6, 3.6), yticks=range(4))
    axes.set(yticklabels=[], title="Seconds, building included (logarithmic scale)")
    axes.xaxis.set_major_formatter("{x:g}")
    axes.grid(axis="x", which="both", alpha=0.25)
    _bare(axes)


def _bare(axes: Any) -> None:
    axes.invert_yaxis()
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(axis="y", length=0)
