"""Charts as inline SVG, templates that escape all values, and numbers formatted for readers."""

from __future__ import annotations

import math
import re
from functools import cache
from importlib.metadata import version
from typing import Any, NamedTuple

import numpy as np
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from duramen.arrays import Array, weighted_quantiles
from duramen.coreset.display import facts, interval, number, short_repr
from duramen.text import plural, shorten

_UNPRINTABLE = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\ufdd0-\ufdef\ufffe\uffff]")
_LOG_FROM = 20.0  # the largest over the median: beyond this, most of a linear axis would be empty
_DECADES = 9.0  # of a logarithmic axis, at most
_LEAST = 0.002  # share of the values that may be drawn at its lower end
_BARS = 44
_TICKS = 6  # on an axis, about


def printable(text: Any) -> str:
    """Replace characters that HTML forbids, in what is to be escaped.

    Examples
    --------
    >>> printable(f"a{chr(0)}b"), printable(Markup("<b>bold</b>"))
    ('a�b', Markup('<b>bold</b>'))
    """
    if isinstance(text, Markup):
        return text
    return _UNPRINTABLE.sub("\N{REPLACEMENT CHARACTER}", str(text))


def short(value: float, digits: int = 4) -> str:
    """Format a number: about so many digits, thousands separators, a true minus sign.

    Examples
    --------
    >>> short(12345.6), short(0.0123456), short(-2.5), short(float("nan"))
    ('12,346', '0.01235', '−2.5', 'unknown')
    """
    if math.isnan(value):
        return "unknown"
    return f"{'−' if value < 0 else ''}{number(abs(value), digits)}"


def percent(share: float) -> str:
    """Format a share as a percentage, to two digits or whole percents.

    Examples
    --------
    >>> percent(0.5), percent(0.0213), percent(0.00004), percent(0.0), percent(1.0)
    ('50%', '2.1%', '< 0.01%', '0%', '100%')
    """
    if not math.isfinite(share):
        return "infinite" if share > 0 else "unknown"
    if 0 < share < 1e-4:
        return "< 0.01%"
    return f"{100 * share:,.0f}%" if share >= 0.0995 else f"{100 * share:.2g}%"


@cache
def environment() -> Environment:
    """Return the environment of all templates, which escapes everything."""
    found = Environment(
        loader=PackageLoader("duramen", "report"),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=printable,
    )
    for function in (shorten, short, percent, plural, short_repr, interval, facts):
        found.filters[function.__name__] = function
    found.globals.update(
        bars_of=bars_of, weighted_quantiles=weighted_quantiles, infinity=math.inf, version=version("duramen")
    )
    return found


class Axis(NamedTuple):
    """Values from ``low`` to ``high``, logarithmic or not."""

    low: float
    high: float
    log: bool

    def place(self, values: Any) -> Any:
        """Compute where values are on the axis, from 0 to 1; those beyond it, at its end."""
        scale = np.log10 if self.log else np.asarray
        return np.interp(scale(np.maximum(values, self.low)), scale([self.low, self.high]), [0.0, 1.0])

    def edges(self) -> Array:
        """Split the axis into bars of equal width."""
        return (np.geomspace if self.log else np.linspace)(self.low, self.high, _BARS + 1)

    def ticks(self) -> list[float]:
        """List the values to label on the axis."""
        if not self.log:
            return linear_ticks(self.low, self.high, _TICKS)
        exponents = linear_ticks(math.log10(self.low), math.log10(self.high), _TICKS)
        ticks = [float(f"{10.0**exponent:.0e}") for exponent in exponents]
        return [tick for tick in ticks if self.low <= tick <= self.high] or [self.low, self.high]


def axis_of(values: Array, also: float | None = None) -> Axis:
    """Make an axis that suits values, which are finite and zero or more; ``also`` must be on it.

    Logarithmic where they spread over orders of magnitude.
    """
    ends = values if also is None else np.append(values, also)
    high, above = ends.max(initial=0.0), ends[ends > 0]
    if len(above) and high > _LOG_FROM * np.median(above):
        return Axis(max(np.quantile(above, _LEAST).item(), high / 10**_DECADES), high, True)
    low = ends.min(initial=high)
    return Axis(low if 0.3 * high < low < high else 0.0, high or 1.0, False)


def linear_ticks(low: float, high: float, n: int) -> list[float]:
    """Choose round values within limits: about n, steps of 1, 2 or 5 times a power of ten.

    Examples
    --------
    >>> linear_ticks(0.0, 1.0, 5), linear_ticks(-3.0, 12.0, 4)
    ([0.0, 0.2, 0.4, 0.6, 0.8, 1.0], [0.0, 5.0, 10.0])
    """
    width = high / n - low / n
    if not 1e-300 < width < math.inf:
        return [low]
    step = min(m * 10.0 ** math.ceil(math.log10(0.999 * width / m)) for m in (1, 2, 5))
    ticks = step * np.arange(math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9) + 1)
    return [float(f"{tick:.15g}") for tick in ticks] or [low, high]


def bars_of(
    values: Array, weights: Array | None, marked: Array, threshold: float = math.inf
) -> tuple[Any, ...]:
    """Compute a histogram of weight over values, with ``marked`` rows apart and ``threshold`` on the axis.

    Values that are negative or not finite are left out. Returns the axis, its edges, two shares of the weight
    per bar, the tallest bar, the shares to label, and the threshold if it is finite.
    """
    valid = (values >= 0) & (values < math.inf)
    limit = None if threshold == math.inf else threshold
    axis = axis_of(values[valid], limit)
    edges, inside = axis.edges(), np.clip(values[valid], axis.low, axis.high)
    weights = None if weights is None else weights[valid]
    bars = np.histogram2d(inside, marked[valid], (edges, [0, 0.5, 1]), weights=weights)[0]
    shares = bars / (bars.sum() or 1.0)
    tallest = shares.sum(axis=1).max() or 1.0
    return axis, edges, shares.tolist(), tallest, linear_ticks(0.0, tallest, 3), limit
