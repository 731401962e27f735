"""Drawings as inline SVG: a histogram with a threshold, and errors as dots, one line a kind of probe."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from duramen.arrays import Array
from duramen.report.axis import Axis, axis_of, nice_ticks
from duramen.report.markup import Markup, escape, percent, short

__all__ = ["histogram", "strips", "svg"]

_WIDTH, _HEIGHT = 560, 250
_LEFT, _RIGHT, _TOP, _BOTTOM = 52, 14, 26, 40
_BARS = 44
_FAINTEST = 2.0  # the least height of a bar that stands for something
_STRIP = 46


def svg(width: int, height: int, title: str, parts: Sequence[str], kind: str = "chart") -> Markup:
    """Wrap parts of a drawing that fits any width; ``title`` is for those who cannot see it."""
    box = f'viewBox="0 0 {width} {height}" role="img" aria-label="{escape(title)}"'
    return Markup(f'<svg class="{kind}" {box}>{"".join(parts)}</svg>')


def histogram(
    values: Array, heavy: Array, marked: Array, title: str, below: str, threshold: float | None = None
) -> Markup:
    """Draw how weight is spread over values: what is ``marked`` on top, in another colour.

    Parameters
    ----------
    values : array (n,)
        Finite, zero or more.
    heavy : array (n,)
        What each weighs; bars show shares of the sum.
    marked : array (n,), bool
    title, below : str
        For those who cannot see it, and what is written under the axis.
    threshold : float, optional
        Where to draw a line.
    """
    axis = axis_of(values, _LEFT, _WIDTH - _RIGHT, threshold)
    edges = axis.edges(_BARS)
    place = np.minimum((axis.shares(values) * _BARS).astype(np.intp), _BARS - 1)
    total = float(heavy.sum()) or 1.0
    usual, other = (np.bincount(place, heavy * part, minlength=_BARS) / total for part in (~marked, marked))
    tallest = float((usual + other).max()) or 1.0
    floor = _HEIGHT - _BOTTOM
    parts = _heights(tallest, floor) + _under(axis, floor, below, _HEIGHT)
    scale = (floor - _TOP) / tallest
    for bin_, (low, high) in enumerate(zip(usual.tolist(), other.tolist(), strict=True)):
        if low or high:
            said = f"{short(edges[bin_])} to {short(edges[bin_ + 1])}: {percent(low + high)}"
            parts.append(_column(axis, bin_, (low * scale, high * scale), floor, said))
    if threshold is not None:
        parts.append(_line(axis.place(threshold), floor, f"suspected from {short(threshold)}"))
    return svg(_WIDTH, _HEIGHT, title, parts)


def _column(axis: Axis, place: int, heights: tuple[float, float], floor: float, said: str) -> str:
    wide = (axis.stop - axis.start) / _BARS
    left, top, drawn = axis.start + place * wide, floor, []
    for height, kind in zip(heights, ("usual", "suspect"), strict=True):
        if height:
            tall = max(height, _FAINTEST)
            top -= tall
            box = f'x="{left + 0.5:.1f}" y="{top:.1f}" width="{wide - 1:.1f}" height="{tall:.1f}"'
            drawn.append(f'<rect class="{kind}" {box}/>')
    return f"<g><title>{escape(said)}</title>{''.join(drawn)}</g>"


def _heights(tallest: float, floor: float) -> list[str]:
    """Draw lines across at round shares."""
    drawn = []
    for share in nice_ticks(0.0, tallest, 3):
        y = floor - (floor - _TOP) * share / tallest
        if y >= _TOP - 1:
            text = f"{100 * share:.3g}%"
            drawn.append(
                f'<line class="grid" x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>'
                f'<text x="{_LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{text}</text>'
            )
    return drawn


def _under(axis: Axis, floor: float, below: str, height: float) -> list[str]:
    """Draw the axis, its ticks, and what it is."""
    drawn = [
        f'<line class="axis" x1="{axis.start:.0f}" x2="{axis.stop:.0f}" y1="{floor:.0f}" y2="{floor:.0f}"/>'
    ]
    for value, text in axis.ticks():
        x = axis.place(value)
        drawn.append(f'<line class="axis" x1="{x:.1f}" x2="{x:.1f}" y1="{floor:.0f}" y2="{floor + 4:.0f}"/>')
        drawn.append(
            f'<text x="{x:.1f}" y="{floor + 18:.0f}" text-anchor="{_anchored(axis, x)}">{escape(text)}</text>'
        )
    middle = (axis.start + axis.stop) / 2
    scale = ", logarithmic" if axis.log else ""
    drawn.append(
        f'<text class="name" x="{middle:.0f}" y="{height - 4:.0f}" text-anchor="middle">'
        f"{escape(below + scale)}</text>"
    )
    return drawn


def _anchored(axis: Axis, x: float) -> str:
    """See that a tick's text stays inside."""
    return "end" if x > axis.stop - 14 else "middle"


def _line(x: float, floor: float, text: str) -> str:
    """Draw the threshold, with its text on the side where there is room."""
    right = x < _WIDTH * 0.6
    side, at = ("start", x + 6) if right else ("end", x - 6)
    return (
        f'<line class="threshold" x1="{x:.1f}" x2="{x:.1f}" y1="{_TOP - 18}" y2="{floor:.0f}"/>'
        f'<text class="marked" x="{at:.1f}" y="{_TOP - 8}" text-anchor="{side}">{escape(text)}</text>'
    )


def strips(groups: Sequence[tuple[str, Array]], title: str, below: str) -> Markup:
    """Draw values as dots, one line a group; those that are infinite are not drawn."""
    finite = [(name, values[np.isfinite(values)]) for name, values in groups]
    everything = np.concatenate([values for _, values in finite]) if finite else np.empty(0)
    left = 110
    axis = axis_of(everything, left, _WIDTH - _RIGHT)
    floor = 12 + _STRIP * len(finite)
    height = floor + _BOTTOM
    parts = _under(axis, floor, below, height)
    for number, (name, values) in enumerate(finite):
        y = 12 + _STRIP * (number + 0.5)
        parts.append(
            f'<line class="grid" x1="{left}" x2="{_WIDTH - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>'
            f'<text x="{left - 12}" y="{y + 4:.1f}" text-anchor="end">{escape(name)}</text>'
        )
        dots = zip(axis.places(values).tolist(), _apart(len(values)), strict=True)
        drawn = "".join(f'<circle cx="{x:.1f}" cy="{y + up:.1f}" r="3.2"/>' for x, up in dots)
        parts.append(f'<g class="dots">{drawn}</g>')
    return svg(_WIDTH, height, title, parts)


def _apart(n: int) -> list[float]:
    """Move dots a little up and down, so that equal ones are seen; the golden ratio spreads them evenly."""
    golden = (math.sqrt(5) - 1) / 2
    return [0.0] if n == 1 else [round(20 * ((k * golden) % 1.0 - 0.5), 1) for k in range(n)]
