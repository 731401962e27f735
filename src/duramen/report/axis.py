"""One axis of a drawing: where a value stands, by itself or by its logarithm, and where the ticks are."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from duramen.arrays import Array
from duramen.report.markup import short

__all__ = ["Axis", "axis_of", "nice_ticks"]

_LOG_FROM = 20.0  # the largest over the middle: then most of a plain axis would be empty
_DECADES = 9.0  # of a logarithmic axis, at most
_LEAST = 0.002  # of the values: so many may be drawn at its lower end


@dataclass(frozen=True)
class Axis:
    """Values from ``low`` to ``high``, drawn from ``start`` to ``stop``."""

    low: float
    high: float
    log: bool
    start: float
    stop: float

    def shares(self, values: Array) -> Array:
        """Say where values stand, 0 at the lower end and 1 at the upper; beyond, on the end."""
        held = np.clip(values, self.low, self.high)
        low, high = self.low, self.high
        if self.log:
            held, low, high = np.log10(held), math.log10(low), math.log10(high)
        if not high / 2 - low / 2 > 0:  # the smallest numbers have no halves
            return np.where(held > low, 1.0, 0.0)
        return np.clip((held / 2 - low / 2) / (high / 2 - low / 2), 0.0, 1.0)

    def places(self, values: Array) -> Array:
        """Say where values are drawn."""
        return self.start + (self.stop - self.start) * self.shares(np.asarray(values, dtype=np.float64))

    def place(self, value: float) -> float:
        """Say where one value is drawn."""
        return float(self.places(np.array([value]))[0])

    def edges(self, n: int) -> Array:
        """Cut the axis into n parts that are drawn equally wide."""
        if self.log:
            return np.geomspace(self.low, self.high, n + 1)
        return np.linspace(self.low, self.high, n + 1)

    def ticks(self, n: int = 6) -> list[tuple[float, str]]:
        """List values to write at the axis, and how."""
        found = _log_ticks(self.low, self.high, n) if self.log else nice_ticks(self.low, self.high, n)
        return [(value, short(value)) for value in found]


def axis_of(values: Array, start: float, stop: float, also: float | None = None) -> Axis:
    """Make an axis that suits values, which are finite and zero or more; ``also`` must be on it.

    Logarithmic where they spread over orders of magnitude.
    """
    high = float(values.max(initial=0.0))
    low = float(values.min(initial=high))
    if also is not None:
        low, high = min(low, also), max(high, also)
    above = values[values > 0]
    if len(above) and high > _LOG_FROM * float(np.median(above)):
        floor = max(float(np.quantile(above, _LEAST)), high / 10**_DECADES)
        floor = min(floor, also) if also is not None and also > high / 10**_DECADES else floor
        if 0 < floor < high:
            return Axis(floor, high, True, start, stop)
    if not len(values) or low <= 0.3 * high:
        low = min(low, 0.0)
    if not high > low:
        reach = abs(high) / 2 or 1.0
        low, high = low - reach, high + reach
    return Axis(low, high, False, start, stop)


def nice_ticks(low: float, high: float, n: int) -> list[float]:
    """Choose round values within limits: about n, steps of 1, 2 or 5 times a power of ten.

    Examples
    --------
    >>> nice_ticks(0.0, 1.0, 5), nice_ticks(-3.0, 12.0, 4)
    ([0.0, 0.2, 0.4, 0.6, 0.8, 1.0], [0.0, 5.0, 10.0])
    """
    width = high / n - low / n
    if not (width > 0 and math.isfinite(width)):
        return [low]
    exponent = math.floor(math.log10(width))
    step = next(
        (m * 10.0**exponent for m in (1, 2, 5) if m * 10.0**exponent >= width * 0.999), 10.0 ** (exponent + 1)
    )
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    if not (math.isfinite(step) and 0 < last - first < 100):
        return [low, high]
    digits = max(0, -math.floor(math.log10(step)))
    return [round(k * step, digits) + 0.0 if digits < 300 else k * step for k in range(first, last + 1)]


def _log_ticks(low: float, high: float, n: int) -> list[float]:
    first, last = math.ceil(math.log10(low) - 1e-9), math.floor(math.log10(high) + 1e-9)
    decades = last - first + 1
    if decades >= 3:
        return [10.0**k for k in range(first, last + 1, max(1, math.ceil(decades / n)))]
    few = [m * 10.0**k for k in range(first - 1, last + 1) for m in (1, 2, 5)]
    return [value for value in few if low * 0.999 <= value <= high * 1.001] or [low, high]
