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

import math
from collections.abc import Callable, Iterator
from typing import Any, NoReturn, final

import numpy as np

from duramen.arrays import Array
from duramen.parallel import for_each_chunk

_BLOCK = 4096  # rows split at one power of two; twice as many are 2^13
_SPLIT = 13  # sigma >= 2^13 max|x|: then 4096 upper parts add up below it, without rounding
_FINER = 2.0 ** (_SPLIT - 53)  # lower parts are at most 2^-53 sigma: the next sigma
_TALL = 1000  # from 2^1000 on, sigma might overflow: such columns are summed at 2^-64 of their height
_JOINT = 1 << 13  # points whose contributions are summed together
_SHARE = 1e-11  # of a total, by which it may be off


@final
class ExactSum:
    """A sum of floats in two floats; the module docstring says how exact it is.

    Contributions must be finite. A sum that leaves the range of float64 raises
    OverflowError and keeps its value. To subtract, add the negative.

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
    >>> total.add(-1e20)
    >>> total.value
    0.1
    """

    __slots__ = ("high", "low")

    def __init__(self) -> None:
        self.high = 0.0
        self.low = 0.0

    @property
    def value(self) -> float:
        """The sum, rounded to one float."""
        return self.high

    def add(self, value: float) -> None:
        """Add one value."""
        self._keep(*_moved(self.high, self.low, float(value)))

    def add_many(self, values: Array) -> None:
        """Add an array of values, as exactly as one by one; cost: eleven passes, in blocks."""
        if np.size(values) == 1:
            self.add(values.item())
            return
        high, low = self.high, self.low
        with np.errstate(over="ignore", invalid="ignore"):
            for part in _parts(np.asarray(values).ravel()):
                high, low = _moved(high, low, float(part))
        self._keep(high, low)

    def _keep(self, high: float, low: float) -> None:
        if high - high != 0.0:  # infinite, or NaN
            _refuse("the sum")
        self.high, self.low = high, low

    def check_invariants(self) -> None:
        """Raise AssertionError if high is not the sum rounded, or a part is not finite."""
        rounded = self.high + self.low == self.high and math.isfinite(self.low)
        assert rounded, f"high={self.high!r} is not the sum of itself and low={self.low!r}, rounded"


@final
class ExactTotals:
    """The sums of n columns, each in two floats: :class:`ExactSum` in NumPy arrays, with its invariants.

    If one sum leaves the range of float64, OverflowError is raised and all keep their values.

    Attributes
    ----------
    high, low : array (n,)
        The sums are high + low, and high is that, rounded.

    Examples
    --------
    >>> totals = ExactTotals(2)
    >>> totals.add_many(np.array([[1e20, 1.0], [0.1, 2.0], [0.2, 3.0]]))
    >>> totals.add(-np.array([1e20, 1.0]))
    >>> totals.high
    array([0.3, 5. ])
    """

    __slots__ = ("_zeros", "high", "low")

    def __init__(self, n: int) -> None:
        self.high = np.zeros(n)
        self.low = np.zeros(n)
        self._zeros = np.zeros(n)

    def add(self, row: Array) -> None:
        """Add one contribution (n,)."""
        with np.errstate(over="ignore", invalid="ignore"):
            self._keep(*_moved(self.high, self.low, row))

    def add_many(self, rows: Array) -> None:
        """Add contributions (m, n), as exactly as one by one.

        Cost: eleven passes, in blocks of at most 4096 rows; scratch memory is two blocks.
        """
        high, low = self.high, self.low
        with np.errstate(over="ignore", invalid="ignore"):
            for part in _parts(rows):
                high, low = _moved(high, low, part)
            self._keep(high, low)

    def check_invariants(self) -> None:
        """Raise AssertionError, naming the column, if a high is not its sum rounded or not finite."""
        for column, (high, low) in enumerate(zip(self.high.tolist(), self.low.tolist(), strict=True)):
            rounded = high + low == high and math.isfinite(low)
            assert rounded, f"column {column}: high={high!r} is not the sum of itself and low={low!r}"

    def _keep(self, high: Array, low: Array) -> None:
        if self._zeros.dot(high) != 0.0:  # 0 * inf is NaN; a quarter of the time that isfinite takes
            _refuse(f"the sum of column {int(np.flatnonzero(~np.isfinite(high))[0])}")
        self.high, self.low = high, low


class Totals:
    """The sums of q numbers that each point contributes, computed afresh when rounding may show.

    ``contributions(slots)`` computes what points contribute, (m, q), and ``members()``
    returns the slots of all points that do.
    """

    def __init__(self, n: int, contributions: Callable[[Array], Array], members: Callable[[], Array]) -> None:
        self._contributions, self._members = contributions, members
        self._reset(n)

    def _reset(self, n: int) -> None:
        self._exact = ExactTotals(n)
        self._peak = np.zeros(n)  # the largest that a sum was, or what went into it
        self._moves = 0
        self._lost = False  # whether a sum left the range of float64, which later points cannot undo

    def add(self, row: Array) -> None:
        """Add the contribution of one point."""
        self._move(row, np.abs(row))

    def add_many(self, slots: Array, sign: int = 1) -> None:
        """Add the contributions of points, or subtract them if ``sign`` is -1."""
        for total, largest in self._sums(slots):
            self._move(sign * total.high, largest)
            self._move(sign * total.low, largest)

    def _move(self, part: Array, largest: Array) -> None:
        if self._lost:
            return
        try:
            self._exact.add(part)
        except OverflowError:
            self._lost = True
            return
        self._moves += 1
        np.maximum(self._peak, largest, out=self._peak)
        np.maximum(self._peak, np.abs(self._exact.high), out=self._peak)

    def _sums(self, slots: Array) -> list[tuple[ExactTotals, Array]]:
        """Sum blocks of points, on all cores and in the order of memory; also the largest values of each."""
        found: dict[int, tuple[ExactTotals, Array]] = {}
        slots = np.sort(slots)

        def work(chunk: slice) -> None:
            block = self._contributions(slots[chunk])
            total = ExactTotals(block.shape[1])
            total.add_many(block)
            found[chunk.start] = (total, np.maximum(block.max(axis=0), -block.min(axis=0)))

        try:
            for_each_chunk(work, len(slots), _JOINT, fixed=True)
        except OverflowError:
            self._lost = True
        return [found[start] for start in sorted(found)]

    @property
    def values(self) -> Array:
        """The totals (q,); infinite where one is beyond float64: then they say nothing."""
        if self._lost or self._is_in_doubt():
            self._reset(len(self._peak))
            self.add_many(self._members())
            self._moves, self._peak = 1, np.abs(self._exact.high)
        return np.full(len(self._peak), np.inf) if self._lost else self._exact.high.copy()

    def _is_in_doubt(self) -> bool:
        """Return whether past sums were so much larger than those left that rounding may show.

        A move errs by 2^-103 of the largest sum.
        """
        left = np.abs(self._exact.high)
        return bool((self._peak * (self._moves * 2.0**-103) > _SHARE * left).any())

    def check(self) -> None:
        """Raise AssertionError if the totals are not those of a fresh sum, to 1e-12 of absolute values."""
        values = self.values
        if self._lost:
            return
        self._exact.check_invariants()
        fresh, mass, members = ExactTotals(len(values)), ExactTotals(len(values)), self._members()
        for start in range(0, len(members), _JOINT):
            block = self._contributions(members[start : start + _JOINT])
            fresh.add_many(block)
            mass.add_many(np.abs(block))
        off = np.abs(values - fresh.high)
        assert (off <= 1e-12 * mass.high).all(), "the totals drifted from a fresh sum"


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
