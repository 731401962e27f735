"""Plot a coreset: its rows in their principal plane, as large as they weigh, suspected ones marked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from scipy import sparse

from duramen.arrays import Array, Rows
from duramen.coreset.display import feature_names
from duramen.extras import needed
from duramen.losses.bregman import BregmanLoss
from duramen.losses.centres import DistanceLoss
from duramen.seeds import generator

if TYPE_CHECKING:
    from duramen.coreset.coreset import Coreset

__all__ = ["Plane", "centres_of", "classes_of", "dense", "draw", "is_jittered", "plane_of", "scene_of"]


_MOST = 2e7  # numbers that sparse rows may become
_FAR = 1e150  # beyond it squares overflow
_EXACT = 500  # columns, or rows: up to so many, directions are found exactly


@dataclass(frozen=True, eq=False)
class Plane:
    """Where the axes are.

    Attributes
    ----------
    middle : array (d,)
        The weighted mean.
    directions : array (d, 2)
        Unit vectors; the second is zero where there is one column.
    shares : array (2,)
        Of the variance, along each; zero where there is none.
    """

    middle: Array
    directions: Array
    shares: Array

    def places(self, rows: Array) -> Array:
        """Project rows (n, d): (n, 2)."""
        return np.asarray((rows - self.middle) @ self.directions)


def plane_of(rows: Array, weights: Array) -> Plane:
    """Find the plane of the largest weighted variance of rows (n, d), as :func:`dense` gives them.

    Exactly, or, where both rows and columns are many, by random projections to
    more digits than a picture shows.
    """
    share = weights / weights.sum()
    middle = share @ rows
    spread = (rows - middle) * np.sqrt(share)[:, None]
    unit = float(np.abs(spread).max(initial=0.0)) or 1.0
    spread /= unit
    directions, variances = _leading(spread)
    total = float(np.square(spread).sum())
    return Plane(middle, _turned(directions), variances / total if total else np.zeros(2))


def dense(rows: Rows) -> Array:
    """Give rows, sparse ones too, as a float64 array of numbers whose squares do not overflow.

    Raises
    ------
    ValueError
        If sparse rows would become too large.
    """
    n, d = rows.shape
    if sparse.issparse(rows) and n * d > _MOST:
        raise ValueError(
            f"{n:,} sparse rows x {d:,} columns are {n * d:,} numbers, too many to draw; pass "
            f"max_points={max(int(_MOST // d), 1):,} or less, or reduce the columns first"
        )
    full = rows.toarray() if sparse.issparse(rows) else rows
    return np.clip(np.asarray(full, dtype=np.float64), -_FAR, _FAR)


def _leading(spread: Array) -> tuple[Array, Array]:
    """Find the first two right singular vectors, (d, 2), and the squares of their singular values."""
    n, d = spread.shape
    if d == 1:
        return np.array([[1.0, 0.0]]), np.array([float(np.square(spread).sum()), 0.0])
    if d <= _EXACT:
        values, vectors = np.linalg.eigh(spread.T @ spread)
        return vectors[:, :-3:-1], np.maximum(values[:-3:-1], 0.0)
    if n <= _EXACT:
        lengths, rights = np.linalg.svd(spread, full_matrices=False)[1:]
    else:
        from sklearn.utils.extmath import randomized_svd

        lengths, rights = randomized_svd(spread, 2, random_state=0)[1:]
    directions, variances = np.zeros((d, 2)), np.zeros(2)
    directions[:, : len(rights[:2])] = rights[:2].T
    variances[: len(rights[:2])] = np.square(lengths[:2])
    return directions, variances


def _turned(directions: Array) -> Array:
    """Choose between a direction and its opposite: the largest entry is positive."""
    largest = np.abs(directions).argmax(axis=0)
    return directions * np.where(directions[largest, [0, 1]] < 0, -1.0, 1.0)


_COLOURS = ("#d98032", "#3b6fb6", "#2a9d4a", "#8c6bb1", "#8a6d3b", "#4db6ac", "#7f7f7f", "#e0b400")
_PLAIN, _SUSPECT = "#3b6fb6", "#b5179e"
_INK = 3e4  # points squared that all rows cover together, about a third of a usual frame
_AREAS = (3.0, 220.0)
_TAIL = 0.005  # of the weight on each side; the frame holds the rest, and what is near it
_BEYOND = 0.3  # of that range, which the frame may add on each side for rows that lie there
_ARROWS = ("<", ">", "v", "^")
_LOOKS: dict[str, dict[str, float]] = {"x": {"linewidths": 1.1, "alpha": 0.8}}
_SMALLEST = {"x": 14.0, "o": 0.0}  # areas: a smaller cross is but a dot


class Group(NamedTuple):
    """Rows that look alike."""

    rows: Array
    colour: str
    marker: str
    label: str


@dataclass(frozen=True, eq=False)
class Scene:
    """What is drawn: some rows of a coreset, and where each stands."""

    core: Coreset
    shown: Array
    plane: Plane
    places: Array
    low: Array
    high: Array

    @property
    def weights(self) -> Array:
        """The weights of the rows shown."""
        return self.core.weights[self.shown]

    @property
    def suspected(self) -> Array:
        """Which of the rows shown are suspected."""
        return self.core.suspected[self.shown]

    @property
    def areas(self) -> Array:
        """How large to draw each row: in proportion to its weight, within limits."""
        return np.clip(_INK * self.weights / max(float(self.weights.sum()), 1e-300), *_AREAS)

    @property
    def sides(self) -> Array:
        """Over which side of the frame each row lies: -1 none, else left, right, below, above."""
        over = np.stack([self.places < self.low, self.places > self.high], axis=2).reshape(-1, 4)
        return np.where(over.any(axis=1), over.argmax(axis=1), -1)


def draw(core: Coreset, ax: Any, max_points: int, random_state: Any) -> Any:
    """Draw a coreset into axes, or into new ones; return them."""
    pyplot = needed("matplotlib.pyplot", "Coreset.plot", "plot")
    scene = scene_of(core, max_points, random_state)
    axes = pyplot.subplots(layout="constrained")[1] if ax is None else ax
    handles = [_draw_group(axes, scene, group) for group in _groups(scene)]
    handles += _beyond(scene) + _draw_centres(axes, scene)
    _finish(axes, scene, handles)
    return axes


def scene_of(core: Coreset, max_points: Any, random_state: Any) -> Scene:
    """Choose the rows to draw, and where they lie in a plane."""
    whole = isinstance(max_points, (int, np.integer)) and not isinstance(max_points, bool)
    if not (whole and max_points >= 1):
        raise ValueError(f"max_points={max_points!r} must be a whole number of 1 or more")
    rng = generator(random_state)
    shown = np.arange(len(core))
    if len(core) > max_points:
        shown = np.sort(rng.choice(len(core), int(max_points), replace=False))
    rows, weights = dense(core.X[shown]), core.weights[shown]
    usual = ~core.suspected[shown] & (weights > 0)
    usual = usual if usual.any() else np.ones(len(shown), dtype=bool)
    plane = plane_of(rows[usual], weights[usual])
    places = plane.places(rows)
    if rows.shape[1] == 1:
        places = np.column_stack([rows[:, 0], _second(core, shown, rng)])
    limits = [_limits(places[:, axis], places[usual, axis], weights[usual]) for axis in (0, 1)]
    low, high = np.transpose(limits)
    return Scene(core, shown, plane, places, low, high)


def _second(core: Coreset, shown: Array, rng: np.random.Generator) -> Array:
    """Give rows of one column a second coordinate: y, or chance where there is no y or few of them."""
    if is_jittered(core):
        return rng.uniform(-1, 1, len(shown))
    return dense(np.asarray(core.y)[shown, None])[:, 0]


def is_jittered(core: Coreset) -> bool:
    """Tell whether a coordinate is shaken, because nothing else says how high a point lies."""
    return core.y is None or classes_of(core) is not None


def _limits(values: Array, usual: Array, weights: Array) -> tuple[float, float]:
    """Choose one axis's limits: nearly all the usual weight, and what lies not far beyond."""
    order = np.argsort(usual)
    reached = np.cumsum(weights[order]) / weights.sum()
    ends = np.searchsorted(reached, [_TAIL, 1 - _TAIL]).clip(max=len(order) - 1)
    low, high = usual[order[ends]].tolist()
    reach = _BEYOND * (high - low)
    low, high = max(values.min(), low - reach), min(values.max(), high + reach)
    return (low, high) if high > low else (low - 1.0, high + 1.0)


def classes_of(core: Coreset) -> Array | None:
    """List the labels, if they are few whole numbers."""
    if core.y is None:
        return None
    found = np.unique(core.y)
    return found if len(found) <= len(_COLOURS) and (found == np.round(found)).all() else None


def _groups(scene: Scene) -> list[Group]:
    usual, classes = ~scene.suspected, classes_of(scene.core)
    if classes is None or scene.core.y is None:
        label = "not suspected" if scene.suspected.any() else "rows"
        groups = [Group(usual, _PLAIN, "o", label)]
    else:
        labels = scene.core.y[scene.shown]
        groups = [
            Group(usual & (labels == one), colour, "o", f"y = {one:g}")
            for one, colour in zip(classes, _COLOURS, strict=False)
        ]
    groups.append(Group(scene.suspected, _SUSPECT, "x", "suspected outliers"))
    return [group for group in groups if group.rows.any()]


def _draw_group(axes: Any, scene: Scene, group: Group) -> Any:
    """Draw a group's rows, the heavy ones below; give what stands for it in the legend."""
    rows = np.flatnonzero(group.rows)
    rows = rows[np.argsort(-scene.areas[rows], kind="stable")]
    sides = scene.sides[rows]
    places = np.clip(scene.places[rows], scene.low, scene.high)
    for side, marker in enumerate((*_ARROWS, group.marker)):
        here = sides == (side if side < len(_ARROWS) else -1)
        look = _LOOKS.get(marker, {"linewidths": 0.0, "alpha": 0.5})
        areas = np.maximum(scene.areas[rows[here]], _SMALLEST.get(marker, 28.0))
        axes.scatter(*places[here].T, s=areas, c=group.colour, marker=marker, **look)
    return _handle(group.marker, group.colour, f"{group.label} ({np.count_nonzero(group.rows):,})")


def _beyond(scene: Scene) -> list[Any]:
    """Say in the legend how many rows lie beyond the frame, if any do."""
    beyond = int(np.count_nonzero(scene.sides >= 0))
    return [_handle(">", "#7f7f7f", f"beyond the frame ({beyond:,})")] if beyond else []


def centres_of(scene: Scene) -> Array:
    """Say where the anchor's centres are that lie inside the frame: (m, 2), none where it has no centres."""
    core = scene.core
    if core.anchor is None or not isinstance(core.loss, (DistanceLoss, BregmanLoss)):
        return np.empty((0, 2))
    centres = dense(np.atleast_2d(core.anchor.theta))
    places = scene.plane.places(centres)
    if centres.shape[1] == 1:
        places = np.hstack([centres, np.zeros_like(centres)])
    return places[((places >= scene.low) & (places <= scene.high)).all(axis=1)]


def _draw_centres(axes: Any, scene: Scene) -> list[Any]:
    """Mark the anchor's centres, where it has some."""
    places = centres_of(scene)
    if not len(places):
        return []
    axes.scatter(*places.T, s=150, c="black", marker="*", edgecolors="white", linewidths=1.0, zorder=3)
    name = "the anchor's centres" if len(places) > 1 else "the anchor"
    return [_handle("*", "black", name, edge="white", size=11)]


def _handle(marker: str, colour: str, label: str, edge: str | None = None, size: float = 6) -> Any:
    line = needed("matplotlib.lines", "Coreset.plot", "plot").Line2D
    edges = {"markeredgecolor": edge or colour}
    return line([], [], linestyle="none", marker=marker, color=colour, markersize=size, label=label, **edges)


def _finish(axes: Any, scene: Scene, handles: list[Any]) -> None:
    """Set limits, labels, title and legend."""
    margin = 0.04 * (scene.high - scene.low)
    (left, below), (right, above) = scene.low - margin, scene.high + margin
    axes.set(xlim=(left, right), ylim=(below, above))
    _name_axes(axes, scene)
    core = scene.core
    some = f"{len(scene.shown):,} of " if len(scene.shown) < len(core) else ""
    axes.set_title(f"{some}{len(core):,} rows for {core.n_points:,} points, area by weight")
    axes.legend(handles=handles, loc=_free_corner(scene), fontsize="small", framealpha=0.9)


def _name_axes(axes: Any, scene: Scene) -> None:
    if scene.core.points.n_columns > 1:
        first, second = (f"{share:.0%} of variance" for share in scene.plane.shares)
        axes.set(xlabel=f"first principal direction ({first})", ylabel=f"second ({second})")
        return
    axes.set_xlabel(feature_names(scene.core)[0])
    if is_jittered(scene.core):
        axes.set(ylabel="spread out at random", yticks=[])
    else:
        axes.set_ylabel("y")


def _free_corner(scene: Scene) -> str:
    """Find the corner where the least is drawn."""
    x, y = np.clip((scene.places - scene.low) / (scene.high - scene.low), 0, 1).T
    corners = {
        "upper right": (x > 0.6) & (y > 0.7),
        "upper left": (x < 0.4) & (y > 0.7),
        "lower right": (x > 0.6) & (y < 0.3),
        "lower left": (x < 0.4) & (y < 0.3),
    }
    return min(corners, key=lambda corner: float(scene.areas[corners[corner]].sum()))
