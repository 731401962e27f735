"""Sums without rounding: the same whatever the order and the grouping of the numbers.

A sum is an integer, in units of the smallest float. What is added can be
subtracted again, and leaves no trace.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, final

import numpy as np

from duramen.arrays import Array

_SMALLEST = 1074  # the smallest float is 2 ** -1074
_BLOCK = 4096  # rows whose upper parts are added up in floats without rounding
_SPLIT = 13  # sigma >= 2**13 max|x|: then the sum of 4096 upper parts has at most 52 bits
_TALL = 2.0**1000  # from here on sigma might overflow: such columns are added up value by value


def in_units(value: float) -> int:
    """Convert a finite float to units of the smallest one."""
    top, bottom = value.as_integer_ratio()  # bottom is a power of two
    return top << (_SMALLEST + 1 - bottom.bit_length())


def rounded(units: int) -> float:
    """Round a number of smallest floats to the nearest float."""
    try:
        return units / (1 << _SMALLEST)
    except OverflowError:
        return np.inf if units > 0 else -np.inf


@final
class ExactSum:
    """The exact sum of finite floats.

    Examples
    --------
    >>> total = ExactSum()
    >>> total.add_many(np.array([1e20, 0.1, 1e-300]))
    >>> total.add(-1e20)
    >>> total.value
    0.1
    """

    __slots__ = ("units",)

    def __init__(self) -> None:
        self.units = 0

    @property
    def value(self) -> float:
        """The sum, rounded once; infinite beyond the range of floats."""
        return rounded(self.units)

    def add(self, value: float) -> None:
        """Add one number."""
        self.units += in_units(value)

    def add_many(self, values: Array, sign: int = 1) -> None:
        """Add an array of numbers, or subtract them if ``sign`` is -1."""
        self.units += sign * sum_in_units(values)


@final
class ExactSums:
    """Exact sums of the columns of an array, in which infinities and NaN are preserved.

    Parameters
    ----------
    n : int
        The number of columns.

    Notes
    -----
    Rows are added to two floats per column, as long as these hold the sum exactly,
    and to integers otherwise.

    Examples
    --------
    >>> sums = ExactSums(1)
    >>> for value in (1e20, 1.0, -1e20, 0.5):
    ...     sums.add(np.array([value]))
    >>> sums.values
    array([1.5])
    """

    __slots__ = ("_high", "_low", "_nonfinite", "_units")

    def __init__(self, n: int) -> None:
        self._units = [0] * n
        self._high, self._low = np.zeros((2, n))
        self._nonfinite = np.zeros((3, n), dtype=np.int64)  # how many were inf, -inf and NaN

    def __len__(self) -> int:
        return len(self._units)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ExactSums):
            return NotImplemented
        return sums_to_bytes(self.units, self.infinities) == sums_to_bytes(other.units, other.infinities)

    __hash__ = None  # type: ignore[assignment]

    @property
    def units(self) -> list[int]:
        """The sums of the finite numbers, in units of the smallest float."""
        for part in (self._high, self._low):
            self._add_units(part.tolist())
            part[:] = 0.0
        return self._units

    @property
    def values(self) -> Array:
        """The sums, each rounded once."""
        return np.array([rounded(units) for units in self.units]) + self.infinities

    @property
    def infinities(self) -> Array:
        """The sums of the numbers that are not finite."""
        with np.errstate(invalid="ignore"):
            kinds = np.array([np.inf, -np.inf, np.nan])[:, None]
            total = np.where(self._nonfinite > 0, kinds, 0.0).sum(axis=0)
        return np.where(np.isnan(total), np.nan, total)  # all NaN alike

    def add(self, row: Array, sign: int = 1) -> None:
        """Add one number to each sum, or subtract it if ``sign`` is -1."""
        with np.errstate(over="ignore", invalid="ignore"):
            high, error = _two_sum(self._high, row if sign > 0 else -row)
            low, rest = _two_sum(self._low, error)
        if not rest.any():
            self._high, self._low = high, low
            return
        kinds = np.array([row == np.inf, row == -np.inf, np.isnan(row)])  # the pair cannot hold it
        self._nonfinite += sign * kinds
        self._add_units(np.where(kinds.any(axis=0), 0.0, row).tolist(), sign)

    def _add_units(self, row: list[float], sign: int = 1) -> None:
        self._units = [mine + sign * in_units(one) for mine, one in zip(self._units, row, strict=True)]

    def add_rows(self, rows: Array, sign: int = 1) -> None:
        """Add all rows of an array (m, n) to the n sums, or subtract them if ``sign`` is -1."""
        for start in range(0, len(rows), _BLOCK):
            block = np.asarray(rows[start : start + _BLOCK], dtype=np.float64)
            largest = _largest(block)
            can_split = largest.max(initial=0.0) < _TALL  # not NaN
            for part in _parts(block, largest) if can_split else block:
                self.add(part, sign)

    def absorb(self, other: ExactSums) -> None:
        """Add the leading sums of ``other`` to these."""
        self._units = [mine + one for mine, one in zip(self._units, other.units, strict=False)]
        self._nonfinite += other._nonfinite[:, : len(self)]

    @classmethod
    def of(cls, units: Sequence[int], infinities: Array) -> ExactSums:
        """Restore sums from their units and infinities."""
        sums = cls(len(units))
        sums._units = list(units)
        sums._nonfinite += [infinities == np.inf, infinities == -np.inf, np.isnan(infinities)]
        return sums


def sums_to_bytes(units: Sequence[int], infinities: Array | None = None) -> bytes:
    """Encode exact sums: the exponent and the signed mantissa of each, without padding."""
    beside = np.zeros(len(units)) if infinities is None else infinities
    parts = [len(units).to_bytes(4, "little"), beside.astype("<f8").tobytes()]
    for one in units:
        zeros = (one & -one).bit_length() - 1 if one else 0
        mantissa = one >> zeros
        digits = mantissa.to_bytes(mantissa.bit_length() // 8 + 1, "little", signed=True)
        parts += [zeros.to_bytes(2, "little"), len(digits).to_bytes(2, "little"), digits]
    return b"".join(parts)


def sums_from_bytes(data: bytes) -> tuple[list[int], Array]:
    """Read what :func:`sums_to_bytes` returned: units and infinities."""
    n = int.from_bytes(data[:4], "little")
    units, at = [], 4 + 8 * n
    for _ in range(n):
        zeros, length = np.frombuffer(data, dtype="<u2", count=2, offset=at).tolist()
        units.append(int.from_bytes(data[at + 4 : at + 4 + length], "little", signed=True) << zeros)
        at += 4 + length
    return units, np.frombuffer(data[4 : 4 + 8 * n], dtype="<f8")


def sum_in_units(numbers: Array) -> int:
    """Add up finite floats, in units of the smallest float."""
    if len(numbers) == 1:
        return in_units(numbers.item())
    with np.errstate(over="ignore"):
        size = float(np.abs(numbers).sum())
    if size < 2.0**53 and np.array_equal(numbers, np.floor(numbers)):  # all integers below are floats
        return int(numbers.sum()) << _SMALLEST
    if not size < _TALL:
        return sum(map(in_units, numbers.tolist()))
    blocks = (numbers[start : start + _BLOCK] for start in range(0, len(numbers), _BLOCK))
    return sum(in_units(float(part)) for block in blocks for part in _parts(block, _largest(block)))


def _two_sum(a: Array, b: Array) -> tuple[Array, Array]:
    """Add two arrays: their sum rounded, and the error, which is exact (Knuth)."""
    total = a + b
    back = total - a
    return total, (a - (total - back)) + (b - back)


def _largest(block: Array) -> Any:
    """Find the largest absolute values along the first axis."""
    return np.maximum(block.max(axis=0), -block.min(axis=0))


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
