"""Sums that do not drift: what was added can be taken away again.

A float that rows are added to and subtracted from for days keeps the rounding
errors of everything that ever passed through it. These sums are kept in two
floats each, ``high + low``: 107 bits, where ``high`` is the sum rounded to one
float. One contribution goes in by the addition of a float to such a pair
(Joldes, Muller, Popescu 2017, Algorithm 4), which errs by at most 2^-105 of its
result. Many go in together: Rump, Ogita and Oishi's extraction (2008) splits
every value of a block at one power of two, so that the upper parts add up
without any rounding, whatever their order; then it splits the lower parts again.

Two promises follow, for single and for joint contributions alike.

1. After k contributions, singly or jointly, the error is at most k 2^-103 times
   the sum of the absolute values of all that was moved.
2. Where all contributions are multiples of one power of two, g, and the absolute
   values that stand here never add up to 2^103 g, nothing is rounded at all: what
   is added and taken away again leaves exactly 0.0. So it is with a million
   values that are 0 or lie within a factor of a billion of each other.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NoReturn, final

import numpy as np

from duramen.arrays import Array

__all__ = ["ExactSum", "ExactTotals"]

_BLOCK = 4096  # rows split at one power of two; twice as many are 2^13
_SPLIT = 13  # sigma >= 2^13 max|x|: then 4096 upper parts add up below it, without rounding
_FINER = 2.0 ** (_SPLIT - 53)  # lower parts are at most 2^-53 sigma: the next sigma
_TALL = 1000  # from 2^1000 on, sigma might overflow: such columns are summed at 2^-64 of their height


@final
class ExactSum:
    """A sum of floats in two floats; see the module for how exact it is.

    Contributions must be finite, which is the caller's business. A sum that
    leaves the range of float64 raises OverflowError and remains what it was.

    Attributes
    ----------
    high, low : float
        The sum is high + low, and high is that, rounded.

    Invariants
    ----------
    1. high == high + low: low is at most half a unit in the last place.
    2. Both are finite.

    Examples
    --------
    >>> total = ExactSum()
    >>> total.add(1e20)
    >>> total.add(0.1)
    >>> total.subtract(1e20)
    >>> total
    ExactSum(0.1)
    """

    __slots__ = ("high", "low")

    def __init__(self) -> None:
        self.high = 0.0
        self.low = 0.0

    @property
    def value(self) -> float:
        """The sum, rounded to one float."""
        return self.high

    def __repr__(self) -> str:
        return f"ExactSum({self.high!r})"

    def add(self, value: float) -> None:
        """Add one value."""
        high, low = _moved(self.high, self.low, float(value))
        if high - high != 0.0:  # infinite, or NaN
            _refuse("the sum")
        self.high, self.low = high, low

    def subtract(self, value: float) -> None:
        """Take one value away."""
        self.add(-value)

    def add_many(self, values: Array) -> None:
        """Add an array of values, as exactly as one by one; cost: eleven passes, in blocks."""
        self._move_many(values, 1.0)

    def subtract_many(self, values: Array) -> None:
        """Take an array of values away, as exactly as one by one."""
        self._move_many(values, -1.0)

    def difference(self, values: Array) -> float:
        """Compute what would be left without ``values``, to the last digits also where little is left.

        Examples
        --------
        >>> total = ExactSum()
        >>> total.add_many(np.array([1e16, 1.0, 0.5]))
        >>> total.difference(np.array([1e16, 1.0]))
        0.5
        """
        left = self.copy()
        left.subtract_many(values)
        return left.value

    def copy(self) -> ExactSum:
        """Return a sum of its own with the same value, to the last bit."""
        made = ExactSum()
        made.high, made.low = self.high, self.low
        return made

    def check_invariants(self) -> None:
        """Raise AssertionError if high is not the sum rounded, or a part is not finite."""
        if self.high + self.low != self.high or self.low - self.low != 0.0:
            raise AssertionError(f"high={self.high!r} is not the sum of itself and low={self.low!r}, rounded")

    def _move_many(self, values: Array, sign: float) -> None:
        moved = self.copy()
        with np.errstate(over="ignore", invalid="ignore"):
            for part in _parts(np.asarray(values).ravel()):
                moved.add(sign * float(part))
        self.high, self.low = moved.high, moved.low


@final
class ExactTotals:
    """The sums of n columns, each in two floats: :class:`ExactSum` in NumPy arrays.

    Contributions must be finite, which is the caller's business. If one sum
    leaves the range of float64, OverflowError is raised and all remain what
    they were.

    Parameters
    ----------
    n : int
        How many columns.

    Attributes
    ----------
    high, low : array (n,)
        The sums are high + low, and high is that, rounded.

    Invariants
    ----------
    1. high == high + low: low is at most half a unit in the last place.
    2. Both are finite.

    Examples
    --------
    >>> totals = ExactTotals(2)
    >>> totals.add_many(np.array([[1e20, 1.0], [0.1, 2.0], [0.2, 3.0]]))
    >>> totals.subtract(np.array([1e20, 1.0]))
    >>> totals.values
    array([0.3, 5. ])
    """

    __slots__ = ("_zeros", "high", "low")

    def __init__(self, n: int) -> None:
        self.high = np.zeros(n)
        self.low = np.zeros(n)
        self._zeros = np.zeros(n)

    @property
    def values(self) -> Array:
        """The sums (n,), each rounded to one float; a copy."""
        return self.high.copy()

    def __repr__(self) -> str:
        return f"ExactTotals({self.high.tolist()})"

    def add(self, row: Array) -> None:
        """Add one contribution (n,)."""
        self._move(np.asarray(row))

    def subtract(self, row: Array) -> None:
        """Take one contribution (n,) away."""
        self._move(np.negative(row))

    def add_many(self, rows: Array) -> None:
        """Add contributions (m, n), as exactly as one by one.

        Cost: eleven passes, in blocks of at most 4096 rows; scratch memory is two blocks.
        """
        self._move_many(rows, 1.0)

    def subtract_many(self, rows: Array) -> None:
        """Take contributions (m, n) away, as exactly as one by one."""
        self._move_many(rows, -1.0)

    def copy(self) -> ExactTotals:
        """Return totals of their own with the same values, to the last bit."""
        made = ExactTotals(len(self.high))
        made.high, made.low = self.high.copy(), self.low.copy()
        return made

    def check_invariants(self) -> None:
        """Raise AssertionError, naming the column, if a high is not its sum rounded or not finite."""
        good = (self.high + self.low == self.high) & np.isfinite(self.low)
        if not good.all():
            column = int(np.flatnonzero(~good)[0])
            raise AssertionError(
                f"column {column}: high={self.high[column]!r} is not the sum of itself "
                f"and low={self.low[column]!r}, rounded"
            )

    def _move(self, row: Array) -> None:
        if row.shape != self.high.shape:
            raise ValueError(f"a contribution must have shape {self.high.shape}; found {row.shape}")
        with np.errstate(over="ignore", invalid="ignore"):
            self._keep(*_moved(self.high, self.low, row))

    def _move_many(self, rows: Array, sign: float) -> None:
        rows = np.asarray(rows)
        if rows.shape[1:] != self.high.shape:
            raise ValueError(f"contributions must have shape (m, {len(self.high)}); found {rows.shape}")
        high, low = self.high, self.low
        with np.errstate(over="ignore", invalid="ignore"):
            for part in _parts(rows):
                high, low = _moved(high, low, sign * part)
            self._keep(high, low)

    def _keep(self, high: Array, low: Array) -> None:
        if self._zeros.dot(high) != 0.0:  # 0 * inf is NaN; a quarter of the time that isfinite takes
            _refuse(f"the sum of column {int(np.flatnonzero(~np.isfinite(high))[0])}")
        self.high, self.low = high, low


def _moved(high: Any, low: Any, value: Any) -> tuple[Any, Any]:
    """Add a value to a sum in two floats: floats, or arrays of them."""
    total = high + value
    back = total - high
    lost = (high - (total - back)) + (value - back) + low
    rounded = total + lost
    return rounded, lost - (rounded - total)


def _parts(values: Array) -> Iterator[Any]:
    """Yield numbers, or rows of them, whose sum is that of the values along the first axis.

    Three for each block; see the module. Only the third is rounded, by at most
    2^-108 of the block's largest value.
    """
    scratch = np.empty((2, *values[:_BLOCK].shape))
    for start in range(0, len(values), _BLOCK):
        block = np.asarray(values[start : start + _BLOCK], dtype=np.float64)
        exponent = np.frexp(np.maximum(block.max(axis=0), -block.min(axis=0)))[1]
        shift = (exponent > _TALL) * np.int32(-64)
        if shift.any():
            parts = _block_parts(np.ldexp(block, shift), exponent + shift, scratch[:, : len(block)])
            yield from (np.ldexp(part, -shift) for part in parts)
        else:
            yield from _block_parts(block, exponent, scratch[:, : len(block)])


def _block_parts(block: Array, exponent: Any, scratch: Array) -> Iterator[Any]:
    """Split each value at sigma, a power of two above them all, and what remains once more."""
    upper, lower = scratch
    sigma = np.ldexp(1.0, exponent + _SPLIT)
    for finer in (1.0, _FINER):
        np.add(block, sigma * finer, out=upper)
        upper -= sigma * finer
        yield upper.sum(axis=0)
        block = np.subtract(block, upper, out=lower)
    yield lower.sum(axis=0)


def _refuse(what: str) -> NoReturn:
    raise OverflowError(
        f"{what} left the range of float64, up to 1.8e308; contributions must be finite: scale them down"
    )
