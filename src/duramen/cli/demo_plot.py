"""The picture of the demo: where each fit draws the line, the robust coreset's rows, losses and times."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from duramen.arrays import Array
from duramen.coreset.plot import Plane, draw

if TYPE_CHECKING:
    from duramen.cli.demo import Comparison, Contaminated

_PLUS, _MINUS, _PLANTED = "#3b6fb6", "#d98032", "#b5179e"
_ORDINARY, _TRIMMED = "#222222", "#009e73"  # different in lightness too
_LINES = (  # of the four fits: broad and pale on everything, dashed on a coreset
    {"c": _ORDINARY, "lw": 6, "alpha": 0.35},
    {"c": _TRIMMED, "lw": 6, "alpha": 0.35},
    {"c": _ORDINARY, "lw": 1.8, "ls": (0, (4, 2))},
    {"c": _TRIMMED, "lw": 1.8, "ls": (0, (4, 2))},
)
_ENOUGH = 50_000  # rows, for a mean and a covariance of a picture
_SHOWN = 6000  # of all rows; a coreset is drawn whole
_SOME = 20  # planted rows to show at least
_FAR = 100.0  # standard deviations: beyond the frame


def save_picture(sample: Contaminated, found: Comparison, path: Path) -> str:
    """Save the picture, or name what is missing; return the line to print."""
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError:
        return "(no picture: matplotlib is not installed; pip install 'duramen[plot]')"
    *fits, oracle = found.fits
    figure = Figure(figsize=(13, 8.6), layout="constrained")
    FigureCanvasAgg(figure)
    figure.suptitle(
        f"{100 * sample.z / len(sample.y):.3g}% planted rows: fitted on everything as usual, "
        f"{fits[0].accuracy:.0%} of the clean rows are right; on {fits[3].n_rows:,} chosen rows, "
        f"{fits[3].accuracy:.0%}",
        fontsize=15,
    )
    panels = figure.subplot_mosaic([["rows", "core"], ["loss", "time"]], height_ratios=(3, 1))
    _draw_planes(panels["rows"], panels["core"], sample, found)
    losses, times = [one.clean_loss for one in fits], [one.seconds for one in fits]
    _draw_bars(panels["loss"], losses, [f" {one.clean_loss:.3f}, {one.accuracy:.0%} right" for one in fits])
    _draw_bars(panels["time"], times, [f" {one.seconds:.2f} s" for one in fits])
    panels["loss"].set_yticks(range(4), [one.name for one in fits])
    panels["loss"].axvline(oracle.clean_loss, c="#555555", ls=":", lw=1.5)
    panels["loss"].set(title="Loss on clean rows (dotted: the oracle)")
    panels["time"].set(title="Seconds, building included", yticks=[])
    figure.savefig(path, dpi=120, format="png")
    return f"picture: {path.resolve()}"


def demo_plane(sample: Contaminated, theta: Array) -> Plane:
    """Find the plane of the true coefficients and of those of ``theta``, the planted rows above zero.

    In it the clean rows have variance 1, without correlation.
    """
    clean = sample.X[:_ENOUGH][~sample.planted[:_ENOUGH]]
    middle, slopes = clean.mean(axis=0), np.column_stack([sample.theta[:-1], theta[:-1]])
    spread = np.linalg.cholesky(np.cov(((clean - middle) @ slopes).T))
    directions = np.linalg.solve(spread, slopes.T).T
    planted = (sample.X[sample.planted].mean(axis=0) - middle) @ directions
    return Plane(middle, directions * np.where(planted < 0, -1.0, 1.0), np.zeros(2))


def boundary(plane: Plane, X: Array, theta: Array) -> Array:
    """Compute two distant points of the line where ``theta`` is undecided on average over rows X."""
    places = np.column_stack([plane.project(X), np.ones(len(X))])
    *normal, offset = np.linalg.lstsq(places, X @ theta[:-1] + theta[-1], rcond=None)[0]
    foot = -offset * np.array(normal) / np.dot(normal, normal)
    along = np.array([-normal[1], normal[0]]) / np.linalg.norm(normal)
    return np.asarray(foot + np.outer([-_FAR, _FAR], along))


def _draw_planes(left: Any, right: Any, sample: Contaminated, found: Comparison) -> None:
    """Draw some of the rows, and all of the coreset, in the same plane, the coreset zoomed in."""
    plane = demo_plane(sample, found.fits[0].theta)
    shown = np.union1d(np.arange(min(_SHOWN, len(sample.y))), np.flatnonzero(sample.planted)[:_SOME])
    X, y, planted = (part[shown] for part in sample[:3])
    places = plane.project(X)
    for rows, colour, area, label in (
        (~planted & (y < 0), _MINUS, 5, "class -1"),
        (~planted & (y > 0), _PLUS, 5, "class +1"),
        (planted, _PLANTED, 9, "planted, labelled -1"),
    ):
        left.scatter(*places[rows].T, s=area, c=colour, alpha=0.5, linewidths=0, label=label)
    (x0, y0), (x1, y1) = places.min(axis=0) - 1, places.max(axis=0) + 1
    left.set(xlim=(x0, x1), ylim=(y0, y1), title=f"All rows ({len(y):,} of {len(sample.y):,} shown)")
    left.set(ylabel="the direction that the ordinary fit turned to")
    draw(found.core, right, len(found.core), 0, plane)
    right.set(ylabel="", title=f"The {len(found.core):,} rows of the robust coreset, area by weight")
    for axes in (left, right):
        axes.set(xlabel="log-odds by the true model, in standard deviations")
        for one, look in zip(found.fits, _LINES, strict=False):
            axes.plot(*boundary(plane, X[~planted], one.theta).T, **look, label=one.name)
    left.legend(loc="lower right", fontsize=9, framealpha=0.95, markerscale=2)


def _draw_bars(axes: Any, values: list[float], texts: list[str]) -> None:
    bars = axes.barh(range(4), values, height=0.65, color=[_ORDINARY, _TRIMMED] * 2, alpha=0.85)
    axes.bar_label(bars, texts, fontsize=9)
    axes.set(xlim=(0, 1.35 * max(values)))
    axes.invert_yaxis()
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(axis="y", length=0)
