"""Sums without rounding: the same whatever the order and the grouping of the numbers.

What is added can be subtracted again, and leaves no trace, over the whole range of floats.
"""

from __future__ import annotations

import itertools
import math
import sys
from collections.abc import Iterator
from typing import Any, final

import numpy as np

from duramen.arrays import Array

_BLOCK = 4096  # rows whose upper parts are added up in floats without rounding
_SPLIT = 13  # sigma >= 2**13 max|x|: then the sum of 4096 upper parts has at most 52 bits
_TALL = 2.0**1000  # from here on sigma might overflow: such columns are added up value by value
_POINT = 1074  # integers are in units of 2**-1074, the smallest float
_FINITE = 2200  # bits of a sum of finite numbers, at most: there would have to be 2**102 of them
# a number that is not finite counts as one far beyond these: 2**64 of a kind are less than one of the next
_NONFINITE = ((np.nan, 1 << 2368), (-np.inf, 1 << 2304), (np.inf, 1 << 2240))


@final
class ExactSums:
    """Exact sums of the columns of an array, in which infinities and NaN are counted.

    Parameters
    ----------
    n : int, optional
        The number of columns; without it, one sum of plain floats.

    Notes
    -----
    Rows are added to two floats per column, as long as these hold the sum exactly, and
    to an integer per column otherwise.

    Examples
    --------
    >>> total = ExactSums()
    >>> for value in (1e300, 1.0, -1e300, 0.5, 1e-300):
    ...     total.add(value)
    >>> total.values
    1.5
    >>> sums = ExactSums(2)
    >>> sums.add_rows(np.array([[0.1, 5.0], [1e20, 6.0], [-1e20, 7.0]]))
    >>> sums.values
    array([ 0.1, 18. ])
    """

    __slots__ = ("_high", "_low", "_n", "_units")

    def __init__(self, n: int | None = None, units: Array | None = None) -> None:
        self._n, self._units = n, units  # the integer of each sum: what the pair could not hold
        self._high: Any
        self._low: Any
        self._clear()

    def __len__(self) -> int:
        return 1 if self._n is None else self._n

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ExactSums) and np.array_equal(self._exact(), other._exact())

    @property
    def values(self) -> Any:
        """The sums, each rounded once, and infinite beyond the range of floats: (n,), or a float."""
        if self._units is None:
            if self._n is None:
                return self._high + self._low  # plain floats do not warn
            with np.errstate(over="ignore"):
                return self._high + self._low
        values = [_rounded(units) for units in self._exact()]
        return values[0] if self._n is None else np.array(values, np.float64)

    def parts(self) -> Array:
        """Return floats (n, k) that add up to each sum: the same ones for equal sums."""
        floats = [_floats_of(units) or [0.0] for units in self._exact()]
        return np.array(list(itertools.zip_longest(*floats, fillvalue=0.0)), np.float64).T

    @classmethod
    def of_parts(cls, parts: Array, n: int) -> ExactSums:
        """Restore ``n`` sums from their parts."""
        if parts.dtype != np.float64 or len(parts) != n:
            raise ValueError(f"these are not the parts of {n} exact sums: {parts.dtype}, shape {parts.shape}")
        sums = cls(n)
        sums.add_rows(parts.T)
        return sums

    def add(self, row: Any, sign: int = 1) -> None:
        """Add one number to each sum, or subtract it if ``sign`` is -1."""
        if self._n is None:
            high, error = _two_sum(self._high, sign * float(row))
            low, rest = _two_sum(self._low, error)
            lost = rest != 0.0  # also NaN
        else:
            with np.errstate(over="ignore", invalid="ignore"):
                high, error = _two_sum(self._high, sign * row)
                low, rest = _two_sum(self._low, error)
            lost = rest.any()
        if lost:  # the pair cannot hold it, and would hold less and less
            self._units = self._exact() + sign * _to_units(row)
            self._clear()
        else:
            self._high, self._low = high, low

    def add_rows(self, rows: Array, sign: int = 1) -> None:
        """Add all rows of an array (m, n) to the n sums, or subtract them; (m,) numbers to a single sum."""
        if self._n is None and len(rows) == 1:
            self.add(rows.item(), sign)
            return
        for start in range(0, len(rows), _BLOCK):
            block = np.asarray(rows[start : start + _BLOCK], np.float64)
            if self._n is None and _are_small_integers(block):
                self.add(block.sum(), sign)
                continue
            largest = np.abs(block).max(axis=0)
            can_split = np.max(largest, initial=0.0) < _TALL  # not NaN
            for part in _parts(block, largest) if can_split else block:
                self.add(part, sign)

    def absorb(self, other: ExactSums, at: Any = ...) -> None:
        """Add other sums to those at some positions, which are distinct; by default to all."""
        self._units = units = self._exact()
        units[at] += other._exact()
        self._clear()

    def take(self, at: Array) -> ExactSums:
        """Copy the sums at some positions, or in a mask."""
        units = self._exact()[at]
        return ExactSums(len(units), units)

    def total(self) -> ExactSums:
        """Add up all the sums to a single one."""
        return ExactSums(units=np.array([self._exact().sum()], object))

    def grow(self, n: int) -> None:
        """Append sums of nothing, to ``n`` in all."""
        self._units = np.append(self._exact(), np.zeros(n - len(self), object))
        self._n = n
        self._clear()

    def _exact(self) -> Array:
        """Return the sums as integers."""
        units = np.zeros(len(self), object) if self._units is None else self._units
        for part in (self._high, self._low):
            if np.any(part):
                units = units + _to_units(part)
        return units

    def _clear(self) -> None:
        self._high = self._low = 0.0 if self._n is None else np.zeros(self._n)


def _units_of(value: float) -> int:
    """Convert a float to an integer, exactly."""
    if not math.isfinite(value):
        return _NONFINITE[0 if value != value else 1 if value < 0 else 2][1]
    top, bottom = value.as_integer_ratio()  # bottom is a power of two
    return top << (_POINT + 1 - bottom.bit_length())


def _to_units(values: Any) -> Array:
    return np.array([_units_of(value) for value in np.atleast_1d(values).tolist()], object)


def _split(units: int) -> tuple[list[float], int]:
    """Split an integer into the numbers that are not finite, one of each kind, and the rest."""
    kinds: list[float] = []
    for number, unit in _NONFINITE if units.bit_length() > _FINITE else ():
        count = (units + unit // 2) // unit
        units -= count * unit
        kinds += [number] * (count > 0)
    return kinds, units


def _rounded(units: int) -> float:
    """Round an integer to the nearest float."""
    kinds, units = _split(units)
    if kinds:
        return sum(kinds)
    try:
        return units / (1 << _POINT)
    except OverflowError:
        return math.inf if units > 0 else -math.inf


def _floats_of(units: int) -> list[float]:
    """Split an integer into floats, the largest first; of those that are not finite, one of each kind."""
    floats, units = _split(units)
    largest = sys.float_info.max
    while units:
        floats.append(min(max(_rounded(units), -largest), largest))
        units -= _units_of(floats[-1])
    return floats


def _are_small_integers(numbers: Array) -> bool:
    """Return whether all partial sums are integers that floats hold."""
    with np.errstate(over="ignore", invalid="ignore"):
        return float(np.abs(numbers).sum()) < 2.0**53 and np.array_equal(numbers, np.floor(numbers))


def _two_sum(a: Any, b: Any) -> tuple[Any, Any]:
    """Add two numbers or arrays: their sum rounded, and the error, which is exact (Knuth)."""
    total = a + b
    back = total - a
    return total, (a - (total - back)) + (b - back)


def _parts(block: Array, largest: Any) -> Iterator[Any]:
    """Yield numbers, or rows of them, that add up to exactly the sum of a block along its first axis.

    Every value is split at sigma, a power of two far above them all: upper parts
    add up without rounding, whatever their order (Rump, Ogita and Oishi 2008). What
    remains, 40 bits below, is split again until nothing is left.
    """
    upper, lower = np.empty((2, *block.shape))
    sigma = np.ldexp(1.0, np.frexp(largest)[1] + _SPLIT)
    while block.any():
        np.add(block, sigma, out=upper)
        upper -= sigma
        yield upper.sum(axis=0)
        block = np.subtract(block, upper, out=lower)
        sigma = sigma * 2.0 ** (_SPLIT - 53)
