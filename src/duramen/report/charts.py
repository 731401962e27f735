"""Charts as inline SVG, templates that escape all values, and numbers formatted for readers."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import markupsafe
import numpy as np
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from duramen.arrays import Array
from duramen.coreset.display import interval, number, short_repr
from duramen.coreset.plot import Scene
from duramen.text import shorten

_UNPRINTABLE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\ufdd0-\ufdef\ufffe\uffff]")
_LOG_FROM = 20.0  # the largest over the median: beyond this, most of a linear axis would be empty
_DECADES = 9.0  # of a logarithmic axis, at most
_LEAST = 0.002  # share of the values that may be drawn at its lower end

_WIDTH, _HEIGHT = 560, 250  # of a chart; charts.html has the same numbers
_LEFT, _RIGHT, _TOP, _BOTTOM = 52, 14, 26, 40
_BARS = 44
_LEAST_HEIGHT = 2.0  # of a bar that is not empty

_PICTURE = np.array([860, 500])
_EDGE, _SIDE = 22, 30
_FIELD = 3.0  # area of this picture over that of a usual figure in square points, the unit of areas
_SHAPES = {  # around (0, 0)
    "cross": "M-4,-4L4,4M-4,4L4,-4",
    "beyond": "M-5,-6L5,0L-5,6Z",
    "centre": "M0,-6L6,0L0,6L-6,0Z",
}
_ARROW_TURNS = (180, 0, 90, 270)  # degrees, for left, right, below, above


def escape(text: Any) -> Markup:
    """Make text safe in HTML, between tags and in attributes; characters that HTML forbids are replaced.

    Examples
    --------
    >>> print(escape('<script>"a" & b</script>'))
    &lt;script&gt;&#34;a&#34; &amp; b&lt;/script&gt;
    >>> print(escape(Markup("<b>bold</b>")))
    <b>bold</b>
    """
    if isinstance(text, Markup):
        return text
    return markupsafe.escape(_UNPRINTABLE.sub("\N{REPLACEMENT CHARACTER}", str(text)))


def short(value: float, digits: int = 4) -> str:
    """Format a number for a table: about four digits, thousands separators, a true minus sign.

    Examples
    --------
    >>> short(12345.6), short(0.0123456), short(-2.5), short(float("nan"))
    ('12,346', '0.01235', '−2.5', 'unknown')
    """
    if math.isnan(value):
        return "unknown"
    text = f"{value:,.0f}" if 1e3 <= abs(value) < 1e15 else f"{value:,.{digits}g}"
    return ("−" + text[1:]) if text.startswith("-") else text


def large(value: float) -> str:
    """Format a number for a headline: about six digits."""
    return "unknown" if math.isnan(value) else number(value).replace("-", "−", 1)


def percent(share: float) -> str:
    """Format a share as a percentage, to two digits or whole percents.

    Examples
    --------
    >>> percent(0.5), percent(0.0213), percent(0.00004), percent(0.0), percent(1.0)
    ('50%', '2.1%', '< 0.01%', '0%', '100%')
    """
    if math.isnan(share):
        return "unknown"
    if math.isinf(share):
        return "infinite"
    if 0 < share < 1e-4:
        return "< 0.01%"
    return f"{100 * share:,.0f}%" if share >= 0.0995 else f"{100 * share:.2g}%"


def plural(count: int, one: str, many: str | None = None) -> str:
    """Return a count with its noun or verb.

    Examples
    --------
    >>> plural(1, "row"), plural(2500, "row"), plural(2, "has", "have")
    ('1 row', '2,500 rows', '2 have')
    """
    return f"{count:,} {one if count == 1 else many or one + 's'}"


def place(value: float) -> str:
    """Format a coordinate of a drawing, to a tenth of a pixel."""
    return f"{value:.1f}" if isinstance(value, float) else str(value)


@cache
def environment() -> Environment:
    """Return the environment of all templates, which escapes everything."""
    found = Environment(
        loader=PackageLoader("duramen", "report"), autoescape=True, undefined=StrictUndefined, finalize=escape
    )
    filters = (shorten, short, large, percent, plural, short_repr, interval, place)
    found.filters |= {function.__name__: function for function in filters}
    found.filters["lines"] = str.splitlines
    return found


@dataclass(frozen=True)
class Axis:
    """Values from ``low`` to ``high``, drawn from ``start`` to ``stop``."""

    low: float
    high: float
    log: bool
    start: float
    stop: float

    def place(self, values: Any) -> Any:
        """Compute where values are drawn; those beyond the axis, at its end."""
        scale = np.log10 if self.log else np.asarray
        values, low, high = (
            scale(part) for part in (np.clip(values, self.low, self.high), self.low, self.high)
        )
        return self.start + (self.stop - self.start) * np.clip((values - low) / (high - low), 0.0, 1.0)

    def edges(self, n: int) -> Array:
        """Split the axis into n parts of equal width on the page."""
        return (np.geomspace if self.log else np.linspace)(self.low, self.high, n + 1)

    def ticks(self, n: int = 6) -> list[float]:
        """List the values to label on the axis."""
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


def _chart(kind: str, **shown: Any) -> Markup:
    """Render a chart."""
    macros = environment().get_template("charts.html").make_module({"shapes": _SHAPES})
    return Markup(getattr(macros, kind)(**shown))


def histogram(
    values: Array, weights: Array, marked: Array, title: str, name: str, threshold: float | None = None
) -> Markup:
    """Draw the distribution of weight over values, with ``marked`` rows on top, in another colour.

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
    grid = [(share, floor - scale * share) for share in linear_ticks(0.0, tallest, 3)]
    bars: list[dict[str, Any]] = []
    tops = np.full(_BARS, float(floor))
    for kind, part in zip(("usual", "suspect"), shares, strict=True):
        heights = np.where(part > 0, np.maximum(scale * part, _LEAST_HEIGHT), 0.0)
        tops -= heights
        for k in np.flatnonzero(part).tolist():
            box = {"x": axis.start + k * width + 0.5, "y": tops[k], "width": width - 1, "height": heights[k]}
            bars.append({"kind": kind, "low": edges[k], "high": edges[k + 1], "share": part[k], **box})
    shown = {"title": title, "name": name, "grid": grid, "bars": bars, "threshold": threshold}
    return _chart("histogram", axis=axis, floor=floor, height=_HEIGHT, **shown)


def scatter(scene: Scene, describe: Callable[[int], str]) -> Markup:
    """Draw a scene as Coreset.plot does; ``describe`` is shown when the pointer is over a suspected row."""
    places, sides = _on_page(scene, scene.places), scene.sides
    radii = (np.sqrt(_FIELD * scene.areas / np.pi) * 0.8).tolist()
    order = np.argsort(-scene.areas, kind="stable")  # heavy ones at the back
    dots = [
        {"label": group.label, "dots": [(places[k], radii[k]) for k in order[group.rows[order]]]}
        for group in scene.groups
    ]
    marks = []
    for k in order[scene.suspected[order]].tolist():
        inside = sides[k] < 0
        size = min(max(radii[k], 2.6), 8.0) / 4
        turn = f"scale({size:.2f})" if inside else f"rotate({_ARROW_TURNS[sides[k]]})"
        what = {"kind": "cross" if inside else "beyond", "title": describe(int(scene.shown[k]))}
        marks.append({"x": places[k][0], "y": places[k][1], "turn": turn, **what})
    return _chart(
        "scatter",
        title=f"{len(scene.shown):,} rows of the coreset in a plane",
        dots=dots,
        marks=marks,
        centres=_on_page(scene, scene.centres),
        axes=scene.axes,
        counts={
            "cross": int(scene.suspected.sum()),
            "beyond": int((sides >= 0).sum()),
            "centre": len(scene.centres),
        },
    )


def _on_page(scene: Scene, places: Array) -> list[list[float]]:
    shares = (np.clip(places, scene.low, scene.high) - scene.low) / (scene.high - scene.low)
    low, high = np.array([_SIDE + _EDGE, _PICTURE[1] - _EDGE]), np.array([_PICTURE[0] - _EDGE, _EDGE])
    return (low + shares * (high - low)).tolist()
