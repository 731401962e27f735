"""Sums without rounding: the same whatever the order and the grouping of the numbers.

A sum is an integer, in units of the smallest float. What is added can be
subtracted again, and leaves no trace.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, final

import numpy as np

from duramen.arrays import Array

_SMALLEST = 1074  # the smallest float is 2 ** -1074
_BLOCK = 4096  # rows whose upper parts are added up in floats without rounding
_SPLIT = 13  # sigma >= 2**13 max|x|: then the sum of 4096 upper parts has at most 52 bits
_TALL = 2.0**1000  # from here on sigma might overflow: such columns are added up value by value
_LIMB, _N_LIMBS = 32, 70  # bits of a limb, and limbs: up to 2 ** 1114
_DIGIT = (1 << _LIMB) - 1
_BELOW = 52  # bits of limbs below the smallest float, which the mantissa of a subnormal leaves empty
_ROOM = 500  # additions without a carry: a limb holds twice as many


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
        self.units += sign * _sum_in_units(np.asarray(values, dtype=np.float64))


@final
class ExactSums:
    """Several exact sums of floats, in which infinities and NaN stay what they are.

    Parameters
    ----------
    n : int
        The number of sums.

    Notes
    -----
    Each sum is a column of 70 limbs: integers, of which the j-th counts units of
    2 ** (32 j - 1126). A float is added to two of them. Carries wait until there might
    be no more room, or a sum is read.

    Examples
    --------
    >>> sums = ExactSums(1)
    >>> for value in (1e20, 1.0, -1e20, 0.5):
    ...     sums.add(np.array([value]))
    >>> sums.values
    array([1.5])
    """

    __slots__ = ("_columns", "_high", "_limbs", "_low", "_nonfinite", "_waiting")

    def __init__(self, n: int) -> None:
        self._limbs = np.zeros((_N_LIMBS, n), dtype=np.int64)
        self._columns = np.arange(n)
        self._high, self._low = np.zeros((2, n))  # single rows, as far as two floats hold their sum exactly
        self._waiting = 0  # additions since the last carry, each below 2**53
        self._nonfinite = np.zeros((3, n), dtype=np.int64)  # how many were inf, -inf and NaN

    def __len__(self) -> int:
        return len(self._columns)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ExactSums):
            return NotImplemented
        return self.units == other.units and np.array_equal(
            self._infinities, other._infinities, equal_nan=True
        )

    __hash__ = None  # type: ignore[assignment]

    @property
    def units(self) -> list[int]:
        """The sums of the finite numbers, in units of the smallest float."""
        self._settle()
        used = np.flatnonzero(self._limbs.any(axis=1))
        if not len(used):
            return [0] * len(self)
        digits = self._limbs[used[0] : used[-1] + 1].T
        plus, minus = (np.maximum(side, 0).astype("<u4") for side in (digits, -digits))
        shift = _LIMB * int(used[0])  # only zeros are shifted out to the right
        return [
            (int.from_bytes(up.tobytes(), "little") - int.from_bytes(down.tobytes(), "little"))
            << shift
            >> _BELOW
            for up, down in zip(plus, minus, strict=True)
        ]

    @property
    def values(self) -> Array:
        """The sums, each rounded once."""
        return np.array([rounded(units) for units in self.units]) + self._infinities

    @property
    def _infinities(self) -> Array:
        """What the numbers that are not finite add up to."""
        with np.errstate(invalid="ignore"):
            kinds = np.array([np.inf, -np.inf, np.nan])[:, None]
            return np.where(self._nonfinite > 0, kinds, 0.0).sum(axis=0)

    def grow(self, n: int) -> None:
        """Extend to ``n`` sums; new ones are zero."""
        self._settle()
        more = ((0, 0), (0, n - len(self)))
        self._limbs, self._nonfinite = np.pad(self._limbs, more), np.pad(self._nonfinite, more)
        self._columns, (self._high, self._low) = np.arange(n), np.zeros((2, n))

    def first(self, n: int) -> ExactSums:
        """Copy the first ``n`` sums."""
        self._settle()
        sums = ExactSums(n)
        sums._limbs[:] = self._limbs[:, :n]
        sums._nonfinite[:] = self._nonfinite[:, :n]
        return sums

    def add(self, row: Array, sign: int = 1) -> None:
        """Add one number to each sum, or subtract it if ``sign`` is -1."""
        with np.errstate(over="ignore", invalid="ignore"):
            high, error = _two_sum(self._high, row if sign > 0 else -row)
            low, rest = _two_sum(self._low, error)
        if rest.any():  # or NaN
            self.add_rows(row[None], sign)
        else:
            self._high, self._low = high, low

    def add_rows(self, rows: Array, sign: int = 1) -> None:
        """Add all rows of an array (m, n) to the n sums, or subtract them if ``sign`` is -1."""
        for start in range(0, len(rows), _BLOCK):
            block = np.asarray(rows[start : start + _BLOCK], dtype=np.float64)
            largest = _largest(block)
            if not largest.max(initial=0.0) < _TALL:  # or NaN
                tall = np.flatnonzero(~(largest < _TALL))
                for index in tall.tolist():
                    self.add_column(index, block[:, index], sign)
                block, largest = block.copy(), largest.copy()
                block[:, tall] = largest[tall] = 0.0
            for part in _parts(block, largest):
                self._add_finite(part, sign)

    def _add_finite(self, row: Array, sign: int) -> None:
        mantissas, places = np.frexp(row)
        mantissas *= sign * 2.0**53
        whole = mantissas.astype(np.int64)
        places = places + np.int64(1073)  # of the last bit, from 2 ** -1126 on
        shifts = places & (_LIMB - 1)
        lower = (whole & _DIGIT) << shifts
        upper = (whole >> _LIMB) << shifts
        upper += lower >> _LIMB
        limbs = self._limbs.reshape(-1)
        places >>= 5
        places *= len(self)
        places += self._columns
        limbs[places] += lower & _DIGIT
        places += len(self)
        limbs[places] += upper
        self._wait(1)

    def _wait(self, n: int) -> None:
        self._waiting += n
        if self._waiting > _ROOM:
            self._carry()

    def _settle(self) -> None:
        """Add the pair to the limbs, and carry."""
        for part in (self._high, self._low):
            if part.any():
                self._add_finite(part, 1)
                part[:] = 0.0
        if self._waiting:
            self._carry()

    def _carry(self) -> None:
        """Make every limb a digit from -2**31 to 2**31: then all but a few are zero."""
        self._waiting, limbs = 0, self._limbs
        used = np.flatnonzero(limbs.any(axis=1))
        for place in range(used[0] if len(used) else _N_LIMBS, _N_LIMBS - 1):
            if place > used[-1] and not limbs[place].any():
                break
            carries = (limbs[place] + (1 << (_LIMB - 1))) >> _LIMB
            limbs[place] -= carries << _LIMB
            limbs[place + 1] += carries

    def add_column(self, index: int, values: Array, sign: int = 1) -> None:
        """Add many numbers to one sum, or subtract them if ``sign`` is -1."""
        numbers = np.asarray(values, dtype=np.float64)
        finite = np.isfinite(numbers)
        if not finite.all():
            kinds = (numbers == np.inf, numbers == -np.inf, np.isnan(numbers))
            self._nonfinite[:, index] += sign * np.count_nonzero(kinds, axis=1)
            numbers = numbers[finite]
        self.add_units(index, sign * _sum_in_units(numbers))

    def add_units(self, index: int, units: int) -> None:
        """Add a number of smallest floats to one sum."""
        digits = abs(units << _BELOW).to_bytes(_LIMB // 8 * _N_LIMBS, "little")
        self._limbs[:, index] += (1 if units > 0 else -1) * np.frombuffer(digits, "<u4").astype(np.int64)
        self._wait(1)

    def absorb(self, other: ExactSums, indices: Iterable[int] | None = None) -> None:
        """Add other sums: one by one, or to those at ``indices``."""
        other._settle()
        for place, index in enumerate(range(len(other)) if indices is None else indices):
            self._limbs[:, index] += other._limbs[:, place]
            self._nonfinite[:, index] += other._nonfinite[:, place]
            self._wait(1)

    def less(self, indices: Iterable[int], values: Array) -> float:
        """Compute the sum of the sums at ``indices``, less some finite numbers."""
        units = self.units
        return rounded(sum(units[index] for index in indices) - _sum_in_units(values))

    def to_bytes(self) -> bytes:
        """Return the sums as bytes: the exponent and the signed mantissa of each, without padding."""
        parts = [len(self).to_bytes(4, "little"), self._infinities.astype("<f8").tobytes()]
        for units in self.units:
            zeros = (units & -units).bit_length() - 1 if units else 0
            mantissa = units >> zeros
            digits = mantissa.to_bytes(mantissa.bit_length() // 8 + 1, "little", signed=True)
            parts += [zeros.to_bytes(2, "little"), len(digits).to_bytes(2, "little"), digits]
        return b"".join(parts)

    @classmethod
    def from_bytes(cls, data: bytes) -> ExactSums:
        """Read what :meth:`to_bytes` returned."""
        n = int.from_bytes(data[:4], "little")
        sums, at = cls(n), 4 + 8 * n
        infinities = np.frombuffer(data[4:at], dtype="<f8")
        sums._nonfinite += [infinities == np.inf, infinities == -np.inf, np.isnan(infinities)]
        for index in range(n):
            zeros, length = np.frombuffer(data, dtype="<u2", count=2, offset=at).tolist()
            digits = data[at + 4 : at + 4 + length]
            sums.add_units(index, int.from_bytes(digits, "little", signed=True) << zeros)
            at += 4 + length
        return sums


def _sum_in_units(numbers: Array) -> int:
    """Add up finite floats, in units of the smallest float."""
    if len(numbers) < 8:
        return sum(map(in_units, numbers.tolist()))
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
