"""Charts as inline SVG: a histogram with a threshold, errors as dots, and the picture of the coreset."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from markupsafe import Markup

from duramen.arrays import Array
from duramen.coreset.plot import Scene
from duramen.report.markup import join, percent, short, tag

_LOG_FROM = 20.0  # the largest over the middle: then most of a linear axis would be empty
_DECADES = 9.0  # of a logarithmic axis, at most
_LEAST = 0.002  # of the values: so many may be drawn at its lower end

_WIDTH, _HEIGHT = 560, 250
_LEFT, _RIGHT, _TOP, _BOTTOM = 52, 14, 26, 40
_BARS = 44
_LEAST_HEIGHT = 2.0  # of a bar that stands for something
_STRIP, _STRIP_LEFT = 46, 110

_PICTURE_WIDTH, _PICTURE_HEIGHT, _EDGE, _SIDE = 860, 500, 22, 30
_FIELD = 3.0  # area of this picture over that of a usual figure's points squared, which areas are in
_SHAPES = {  # around (0, 0)
    "cross": "M-4,-4L4,4M-4,4L4,-4",
    "beyond": "M-5,-6L5,0L-5,6Z",
    "centre": "M0,-6L6,0L0,6L-6,0Z",
}
_ARROW_TURNS = (180, 0, 90, 270)  # degrees, for left, right, below, above


@dataclass(frozen=True)
class Axis:
    """Values from ``low`` to ``high``, drawn from ``start`` to ``stop``."""

    low: float
    high: float
    log: bool
    start: float
    stop: float

    def place(self, values: Any) -> Any:
        """Compute where values are drawn; those beyond the axis, on its end."""
        scale = np.log10 if self.log else np.asarray
        values, low, high = (
            scale(part) for part in (np.clip(values, self.low, self.high), self.low, self.high)
        )
        return self.start + (self.stop - self.start) * np.clip((values - low) / (high - low), 0.0, 1.0)

    def edges(self, n: int) -> Array:
        """Cut the axis into n parts that are drawn equally wide."""
        return (np.geomspace if self.log else np.linspace)(self.low, self.high, n + 1)

    def ticks(self, n: int = 6) -> list[float]:
        """List values to write at the axis."""
        return _log_ticks(self.low, self.high, n) if self.log else linear_ticks(self.low, self.high, n)


def axis_of(values: Array, start: float, stop: float, also: float | None = None) -> Axis:
    """Make an axis that suits values, which are finite and zero or more; ``also`` must be on it.

    Logarithmic where they spread over orders of magnitude.
    """
    ends = values if also is None else np.append(values, also)
    low, high = float(ends.min(initial=math.inf)), float(ends.max(initial=0.0))
    above = values[values > 0]
    if len(above) and high > _LOG_FROM * float(np.median(above)):
        floor = min(np.quantile(above, _LEAST), math.inf if also is None else also)
        return Axis(max(float(floor), high / 10**_DECADES), high, True, start, stop)
    if low <= 0.3 * high or not len(values):
        low = 0.0
    if not high > low:
        low, high = high / 2 or -1.0, 1.5 * high or 1.0
    return Axis(low, high, False, start, stop)


def linear_ticks(low: float, high: float, n: int) -> list[float]:
    """Choose round values within limits: about n, steps of 1, 2 or 5 times a power of ten.

    Examples
    --------
    >>> linear_ticks(0.0, 1.0, 5), linear_ticks(-3.0, 12.0, 4)
    ([0.0, 0.2, 0.4, 0.6, 0.8, 1.0], [0.0, 5.0, 10.0])
    """
    width = high / n - low / n
    if not 0 < width < math.inf:
        return [low]
    power = 10.0 ** math.floor(math.log10(width))
    step = next((m * power for m in (1, 2, 5, 10) if m * power >= width * 0.999), math.inf)
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    if not (math.isfinite(step) and first < last):
        return [low, high]
    return [float(f"{k * step:.15g}") for k in range(first, last + 1)]


def _log_ticks(low: float, high: float, n: int) -> list[float]:
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    found = [m * 10.0**k for k in powers for m in ((1, 2, 5) if len(powers) <= 4 else (1,))]
    found = [value for value in found if low * 0.999 <= value <= high * 1.001]
    return found[:: math.ceil(len(found) / n)] if found else [low, high]


def _svg(name: str, width: int, height: int, title: str, parts: Sequence[Markup]) -> Markup:
    """Wrap a drawing that fits any width; ``title`` is what a screen reader reads."""
    return tag(name, *parts, viewBox=f"0 0 {width} {height}", role="img", aria_label=title)


def _line(kind: str, x1: float, x2: float, y1: float, y2: float) -> Markup:
    return tag(f"line.{kind}", x1=x1, x2=x2, y1=y1, y2=y2)


def _text(text: str, x: float, y: float, side: str = "middle", name: str = "text") -> Markup:
    return tag(name, text, x=x, y=y, text_anchor=side)


def _axis_below(axis: Axis, floor: float, name: str) -> list[Markup]:
    """Draw an axis, its ticks, and its name."""
    drawn = [_line("axis", axis.start, axis.stop, floor, floor)]
    for value in axis.ticks():
        x = float(axis.place(value))
        side = "end" if x > axis.stop - 14 else "middle"  # the text must stay inside
        drawn += [_line("axis", x, x, floor, floor + 4), _text(short(value), x, floor + 18, side)]
    written = f"{name}, logarithmic" if axis.log else name
    return [*drawn, _text(written, (axis.start + axis.stop) / 2, floor + _BOTTOM - 4, name="text.name")]


def histogram(
    values: Array, weights: Array, marked: Array, title: str, name: str, threshold: float | None = None
) -> Markup:
    """Draw how weight is spread over values: what is ``marked`` on top, in another colour.

    Parameters
    ----------
    values : array (n,)
        Finite, zero or more.
    weights : array (n,)
        Bars show shares of their sum.
    marked : array (n,), bool
    title, name : str
        Of the chart, for a screen reader, and of the axis.
    threshold : float, optional
        Where to draw a line.
    """
    axis = axis_of(values, _LEFT, _WIDTH - _RIGHT, threshold)
    edges, within = axis.edges(_BARS), np.clip(values, axis.low, axis.high)
    shares = [
        np.histogram(within[part], edges, weights=weights[part])[0] / (float(weights.sum()) or 1.0)
        for part in (~marked, marked)
    ]
    tallest = float(np.max(shares[0] + shares[1])) or 1.0
    floor = _HEIGHT - _BOTTOM
    scale, width = (floor - _TOP) / tallest, (axis.stop - axis.start) / _BARS
    parts: list[Markup] = []
    for share in linear_ticks(0.0, tallest, 3):
        y = floor - scale * share
        text = _text(f"{100 * share:.3g}%", _LEFT - 8, y + 4, "end")
        parts += [_line("grid", _LEFT, _WIDTH - _RIGHT, y, y), text]
    parts += _axis_below(axis, floor, name)
    tops = np.full(_BARS, float(floor))
    for kind, part in zip(("usual", "suspect"), shares, strict=True):
        heights = np.where(part > 0, np.maximum(scale * part, _LEAST_HEIGHT), 0.0)
        tops -= heights
        for k in np.flatnonzero(part).tolist():
            label = tag("title", f"{short(edges[k])} to {short(edges[k + 1])}: {percent(part[k])}")
            box = {"x": axis.start + k * width + 0.5, "y": tops[k], "width": width - 1, "height": heights[k]}
            parts.append(tag(f"rect.{kind}", label, **box))
    if threshold is not None:
        x = float(axis.place(threshold))
        side, at = ("start", x + 6) if x < _WIDTH * 0.6 else ("end", x - 6)
        parts.append(_line("threshold", x, x, _TOP - 18, floor))
        parts.append(_text(f"suspected from {short(threshold)}", at, _TOP - 8, side, "text.marked"))
    return _svg("svg.chart", _WIDTH, _HEIGHT, title, parts)


def strips(groups: Sequence[tuple[str, Array]], title: str, name: str) -> Markup:
    """Draw values as dots, one line per group; infinite ones are not drawn."""
    finite = [(group, values[np.isfinite(values)]) for group, values in groups]
    axis = axis_of(np.concatenate([values for _, values in finite]), _STRIP_LEFT, _WIDTH - _RIGHT)
    floor = 12 + _STRIP * len(finite)
    parts = _axis_below(axis, floor, name)
    for place, (group, values) in enumerate(finite):
        y = 12 + _STRIP * (place + 0.5)
        golden = np.arange(len(values)) * (math.sqrt(5) - 1) / 2  # spreads dots, so that equal ones are seen
        heights = y + 20 * (golden % 1.0 - 0.5) * (len(values) > 1)
        dots = zip(axis.place(values).tolist(), heights.tolist(), strict=True)
        parts += [
            _line("grid", _STRIP_LEFT, _WIDTH - _RIGHT, y, y),
            _text(group, _STRIP_LEFT - 12, y + 4, "end"),
            tag("g.dots", *(tag("circle", cx=x, cy=y, r=3.2) for x, y in dots)),
        ]
    return _svg("svg.chart", _WIDTH, floor + _BOTTOM, title, parts)


def scatter(scene: Scene, describe: Callable[[int], str]) -> Markup:
    """Draw a scene as Coreset.plot does; ``describe`` is shown when the pointer is over a suspected row."""
    places, sides = _on_page(scene, scene.places), scene.sides
    radii = (np.sqrt(_FIELD * scene.areas / np.pi) * 0.8).tolist()
    order = np.argsort(-scene.areas, kind="stable")  # the heavy ones below
    width, height = _PICTURE_WIDTH - _SIDE - 1, _PICTURE_HEIGHT - 2
    parts = [tag("rect.frame", x=_SIDE, y=1, width=width, height=height, rx=8)]
    for number, group in enumerate(scene.groups):
        dots = (tag("circle", cx=places[k][0], cy=places[k][1], r=radii[k]) for k in order[group.rows[order]])
        parts.append(tag(f"g.class{number}", *dots))
    for k in order[scene.suspected[order]].tolist():
        title = tag("title", describe(int(scene.shown[k])))
        if sides[k] < 0:
            size = min(max(radii[k], 2.6), 8.0) / 4
            parts.append(_mark("cross", places[k], f"scale({size:.2f})", title))
        else:
            parts.append(_mark("beyond", places[k], f"rotate({_ARROW_TURNS[sides[k]]})", title))
    parts += [_mark("centre", place, "scale(1.5)") for place in _on_page(scene, scene.centres)]
    across, up = scene.axes
    parts.append(_text(across, (_SIDE + _PICTURE_WIDTH) / 2, _PICTURE_HEIGHT + 20, name="text.name"))
    turned = f"translate(19,{_PICTURE_HEIGHT / 2:.0f}) rotate(-90)"
    parts.append(tag("text.name", up, transform=turned, text_anchor="middle"))
    name = f"{len(scene.shown):,} rows of the coreset in a plane"
    return join(_legend(scene), _svg("svg.picture", _PICTURE_WIDTH, _PICTURE_HEIGHT + 30, name, parts))


def _on_page(scene: Scene, places: Array) -> list[list[float]]:
    shares = (np.clip(places, scene.low, scene.high) - scene.low) / (scene.high - scene.low)
    low = np.array([_SIDE + _EDGE, _PICTURE_HEIGHT - _EDGE])
    return (low + shares * ([_PICTURE_WIDTH - _EDGE, _EDGE] - low)).tolist()


def _mark(kind: str, place: list[float], turn: str, *inside: Markup) -> Markup:
    where = f"translate({place[0]:.1f},{place[1]:.1f}) {turn}"
    return tag(f"path.{kind}", *inside, d=_SHAPES[kind], transform=where)


def _legend(scene: Scene) -> Markup:
    """Name the marks, in HTML: text that does not shrink with the picture."""
    entries = [
        (tag(f"circle.class{number}", r=5), group.label, int(group.rows.sum()))
        for number, group in enumerate(scene.groups)
    ]
    for kind, name, count in (
        ("cross", "suspected outliers", int(scene.suspected.sum())),
        ("beyond", "beyond the frame", int((scene.sides >= 0).sum())),
        ("centre", "centres of the anchor", len(scene.centres)),
    ):
        entries.append((tag(f"path.{kind}", d=_SHAPES[kind]), name, count))
    items = (
        tag(
            "li",
            tag("svg", mark, viewBox="-7 -7 14 14", aria_hidden="true"),
            f"{name} ",
            tag("span.muted", f"{count:,}"),
        )
        for mark, name, count in entries
        if count
    )
    return tag("ul.legend", *items)
