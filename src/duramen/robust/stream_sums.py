"""Sums over more points than are held at once: in two floats each, so that no batch is lost in rounding."""

from __future__ import annotations

from typing import Any, final

import numpy as np

from duramen.rows import Array

__all__ = ["RunningSum", "sums_by_place"]

_WHOLE = 2.0**53  # whole numbers below it add up without rounding


@final
class RunningSum:
    """A sum, of numbers or of arrays of one shape, that keeps what each addition rounds away.

    Examples
    --------
    >>> total = RunningSum()
    >>> for value in (1e20, 1.0, 0.5):
    ...     total.add(value)
    >>> float(total.less(np.array([1e20])))
    1.5
    """

    def __init__(self) -> None:
        self._high: Any = np.float64(0.0)
        self._low: Any = np.float64(0.0)

    def add(self, high: Any, low: Any = 0.0) -> None:
        """Add a number or an array, and what an earlier sum rounded away of it."""
        with np.errstate(over="ignore", invalid="ignore"):
            self._high, rounded = _two_sum(self._high, np.asarray(high, dtype=np.float64))
            self._low = self._low + rounded + low

    @property
    def value(self) -> Any:
        """The sum, rounded once."""
        with np.errstate(over="ignore", invalid="ignore"):
            rounded = self._high + self._low
        return np.where(np.isfinite(self._high), rounded, self._high)[()]

    @property
    def parts(self) -> tuple[Any, Any]:
        """The sum in two parts, for another to add."""
        return self._high, self._low

    def less(self, values: Array) -> float:
        """Compute what is left of a sum of numbers without ``values``, also where that is little."""
        left = RunningSum()
        left.add(self._high, self._low)
        high, low = _pair_sum(values)
        left.add(-high, -low)
        return float(left.value)


def sums_by_place(weights: Array, places: Array, n_places: int) -> tuple[Array, Array]:
    """Sum the weights at each place, 0 and up, into two arrays: sums, and what they were rounded by."""
    sums = np.bincount(places, weights, minlength=n_places)
    rounded = np.zeros(len(sums))
    if float(weights.sum()) < _WHOLE and np.array_equal(weights, np.floor(weights)):
        return sums, rounded
    if n_places == 1:
        sums[0], rounded[0] = _pair_sum(weights)
        return sums, rounded
    order = np.argsort(places.astype(np.int16) if n_places < 2**15 else places, kind="stable")
    ends = np.cumsum(np.bincount(places, minlength=n_places))
    for place in np.flatnonzero(sums):
        start = ends[place - 1] if place else 0
        sums[place], rounded[place] = _pair_sum(weights[order[start : ends[place]]])
    return sums, rounded


def _pair_sum(values: Array) -> tuple[float, float]:
    """Add up numbers two by two, and what every addition rounds away."""
    high = np.asarray(values, dtype=np.float64)
    low = np.zeros(len(high))
    while len(high) > 1:
        if len(high) % 2:
            high, low = np.append(high, 0.0), np.append(low, 0.0)
        high, rounded = _two_sum(high[::2], high[1::2])
        low = low[::2] + low[1::2] + rounded
    return (float(high[0]), float(low[0])) if len(high) else (0.0, 0.0)


def _two_sum(one: Any, other: Any) -> tuple[Any, Any]:
    """Add, and give exactly what that rounds away (Knuth)."""
    total = one + other
    part = total - one
    return total, (one - (total - part)) + (other - part)
