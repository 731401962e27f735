"""Plot a coreset: its rows in their principal plane, areas in proportion to weight, suspected rows marked.

:func:`scene_of` computes what is shown and where; :func:`draw` renders it with
matplotlib, and the report renders the same scene as SVG.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

from duramen.arrays import Array, Rows, check_count, generator, to_dense, weighted_quantiles
from duramen.coreset.display import feature_names
from duramen.extras import needed

_MAX_NUMBERS = 2e7  # in sparse rows made dense, at most
FAR = 1e150  # beyond it squares overflow

_COLOURS = ("#d98032", "#3b6fb6", "#2a9d4a", "#8c6bb1", "#8a6d3b", "#4db6ac", "#7f7f7f", "#e0b400")
_PLAIN, _SUSPECT = "#3b6fb6", "#b5179e"
_INK = 3e4  # points squared that all rows cover together, about a third of a usual frame
_AREAS = (3.0, 220.0)
_TAIL = 0.005  # of the weight on each side; the frame holds the rest, and what is near it
_BEYOND = 0.3  # of that range, which the frame may add on each side for rows that lie there
_LEAST_AREA = {"o": 0.0, "x": 14.0, "s": 28.0}  # of rows, suspected rows, rows beyond the frame


class Plane(NamedTuple):
    """Two directions through a point, unit vectors (d, 2), and the share of the variance along each."""

    middle: Array
    directions: Array
    shares: Array


def principal_plane(rows: Array, weights: Array) -> Plane:
    """Find the plane of the largest weighted variance of rows of two or more columns, made :func:`dense`."""
    from sklearn.utils.extmath import randomized_svd  # imported here, as that takes a second

    share = weights / weights.sum()
    middle = share @ rows
    spread = (rows - middle) * np.sqrt(share)[:, None]
    spread /= np.abs(spread).max(initial=0.0) or 1.0
    spread = np.vstack([spread, np.zeros_like(spread[:1])])  # two rows at least
    _, lengths, rights = randomized_svd(spread, 2, n_iter=20, random_state=0)
    variance = np.square(spread).sum() or 1.0
    return Plane(middle, rights.T, np.square(lengths) / variance)


def dense(rows: Rows) -> Array:
    """Return rows, sparse or not, as a float64 array of numbers whose squares do not overflow."""
    n, d = rows.shape
    if sparse.issparse(rows) and n * d > _MAX_NUMBERS:
        raise ValueError(
            f"{n:,} sparse rows x {d:,} columns are too many numbers to draw; pass "
            f"max_points={int(_MAX_NUMBERS // d) or 1:,} or less, or reduce the columns first"
        )
    return np.clip(to_dense(rows).astype(np.float64), -FAR, FAR)


@dataclass(frozen=True, eq=False)
class Scene:
    """What is drawn: some rows of a coreset, and where each is."""

    shown: Array  # the numbers of the rows
    suspected: Array
    beyond: Array  # whether each row lies beyond the frame: it is drawn on its edge
    places: Array  # inside the frame or on its edge, of shape (n, 2)
    low: Array  # a corner of the frame
    high: Array  # the opposite one
    areas: Array  # in proportion to weight, within limits
    groups: list[tuple[Array, str]]  # the rows that are not suspected, by label where labels are few
    centres: Array  # of the anchor, inside the frame
    axes: tuple[str, str]  # the labels of the two axes

    def shares(self, places: Array) -> Array:
        """Compute where places are in the frame, from 0 to 1 along each axis."""
        return (places - self.low) / (self.high - self.low)


def scene_of(
    core: Any,
    max_points: Any,
    random_state: Any,
    column: str = "",
    label: str = "y",
    label_text: Callable[[float], str] = "{:g}".format,
) -> Scene:
    """Choose the rows to draw, a frame, and the principal plane.

    ``column``, for a single one, ``label`` and ``label_text`` are names for axes and legend.
    """
    check_count("max_points", max_points)
    rng = generator(random_state)
    shown = rng.permutation(len(core))[: int(max_points)]
    shown = shown[np.argsort(-core.weights[shown], kind="stable")]  # heavy rows first, below the others
    rows, weights, suspected = dense(core.X[shown]), core.weights[shown], core.suspected[shown]
    classes = few_labels(core)
    centres = np.empty((0, rows.shape[1]))
    if core.anchor is not None and core.loss.has_centres:
        centres = dense(np.atleast_2d(core.anchor.theta))
    usual = usual_rows(suspected)
    if rows.shape[1] == 1:  # against y, or spread out where there is no y or few different ones
        jittered = core.y is None or classes is not None
        heights = rng.uniform(-1, 1, (len(shown), 1)) if jittered else dense(core.y[shown, None])
        places, centres = np.hstack([rows, heights]), centres * [1.0, 0.0]
        axes = column or feature_names(core)[0], "spread out at random" if jittered else label
    else:
        plane = principal_plane(rows[usual], weights[usual])
        places, centres = ((some - plane.middle) @ plane.directions for some in (rows, centres))
        first, second = (f"{share:.0%} of variance" for share in plane.shares)
        axes = f"first principal direction ({first})", f"second ({second})"
    low, high = _frame(places, usual, weights)
    groups = [(~suspected, "not suspected" if suspected.any() else "rows")]
    if classes is not None:
        labels = core.y[shown]
        groups = [(~suspected & (labels == one), f"{label} = {label_text(one)}") for one in classes]
    areas = np.clip(_INK * weights / weights.sum(), *_AREAS)
    beyond, centres_beyond = (np.any((some < low) | (some > high), axis=1) for some in (places, centres))
    places, centres = np.clip(places, low, high), centres[~centres_beyond]
    return Scene(shown, suspected, beyond, places, low, high, areas, groups, centres, axes)


def few_labels(core: Any) -> list[float] | None:
    """List the labels, if they are few whole numbers."""
    found = np.unique([0.5] if core.y is None else core.y)
    few = len(found) <= len(_COLOURS) and (found % 1 == 0).all()
    return found.tolist() if few else None


def _frame(places: Array, usual: Array, weights: Array) -> tuple[Array, Array]:
    """Choose the corners of the frame: nearly all the usual weight, and what lies not far beyond."""
    tails = [weighted_quantiles(column, weights[usual], (_TAIL, 1 - _TAIL)) for column in places[usual].T]
    low, high = np.transpose(tails)
    reach = _BEYOND * (high - low)
    low, high = np.maximum(places.min(axis=0), low - reach), np.minimum(places.max(axis=0), high + reach)
    flat = high <= low
    return low - flat, high + flat


def usual_rows(suspected: Array) -> Array:
    """Mark the rows that others are compared with: those not suspected, or all where there are none."""
    return suspected if suspected.all() else ~suspected


def draw(core: Any, ax: Any, max_points: int, random_state: Any) -> Any:
    """Draw a coreset into axes, or into new ones; return them."""
    pyplot = needed("matplotlib.pyplot", "Coreset.plot", "plot")
    scene = scene_of(core, max_points, random_state)
    axes = pyplot.subplots(layout="constrained")[1] if ax is None else ax
    colours = _COLOURS if len(scene.groups) > 1 else (_PLAIN,)
    layers = [(*group, colour, "o") for group, colour in zip(scene.groups, colours, strict=False)]
    layers.append((scene.suspected, "suspected outliers", _SUSPECT, "x"))
    for rows, name, colour, marker in layers:
        if not rows.any():
            continue
        label = f"{name} ({np.count_nonzero(rows):,})"
        for shape, some in ((marker, rows & ~scene.beyond), ("s", rows & scene.beyond)):
            areas = np.maximum(scene.areas[some], _LEAST_AREA[shape])  # a smaller cross is just a dot
            width = 1.1 if shape == "x" else 0.0
            axes.scatter(
                *scene.places[some].T, areas, colour, marker=shape, alpha=0.6, linewidths=width, label=label
            )
            label = "_beyond"  # not in the legend
    if scene.beyond.any():
        label = f"beyond the frame ({np.count_nonzero(scene.beyond):,})"
        axes.scatter([], [], None, "#7f7f7f", marker="s", label=label)
    if len(scene.centres):
        name = "the anchor's centres" if len(scene.centres) > 1 else "the anchor"
        axes.scatter(*scene.centres.T, 150, "black", marker="*", edgecolors="white", zorder=3, label=name)
    margin = 0.04 * (scene.high - scene.low)
    xlim, ylim = np.transpose([scene.low - margin, scene.high + margin])
    drawn = f"{len(scene.shown):,} of " if len(scene.shown) < len(core) else ""
    title = f"{drawn}{len(core):,} rows for {core.n_points:,} points, area by weight"
    xlabel, ylabel = scene.axes
    axes.set(xlim=xlim, ylim=ylim, xlabel=xlabel, ylabel=ylabel, title=title)
    if ylabel == "spread out at random":
        axes.set_yticks([])
    for handle in axes.legend(fontsize="small", framealpha=0.9).legend_handles:
        handle.set(sizes=[60], alpha=1)
    return axes
