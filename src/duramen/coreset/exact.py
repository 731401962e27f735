"""Sums without rounding: the same whatever the order and the grouping of the numbers.

What is added can be subtracted again, and leaves no trace, over the whole range of floats.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, final

import numpy as np

from duramen.arrays import Array

_BLOCK = 4096  # rows whose upper parts are added up in floats without rounding
_SPLIT = 13  # sigma >= 2**13 max|x|: then the sum of 4096 upper parts has at most 52 bits
_TALL = 2.0**1000  # from here on sigma might overflow: such columns are added up value by value
_POINT = 1152  # sums are integers in units of 2**-1152, and every float is one, too
_BITS = 2240  # more than any sum of floats has
_NONFINITE = np.array([np.inf, -np.inf, np.nan])


@final
class ExactSums:
    """Exact sums of the columns of an array, in which infinities and NaN are counted.

    Parameters
    ----------
    n : int, optional
        The number of columns; without it, one sum of plain floats.

    Notes
    -----
    Each sum is an integer in units of 2**-1152, of which every float is a whole number. Its bytes
    (``int.to_bytes``) are limbs, which compiled code can add to, and hand over to ``absorb``.

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

    __slots__ = ("_is_one", "_odd", "_sums")

    def __init__(self, n: int | None = None) -> None:
        self._is_one = n is None
        self._sums: list[int] = [0] * (1 if n is None else n)
        self._odd: Array | None = None  # of each sum, how many of its numbers were inf, -inf and NaN

    def __len__(self) -> int:
        return len(self._sums)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ExactSums) and self.to_bytes() == other.to_bytes()

    __hash__ = None  # type: ignore[assignment]

    @property
    def values(self) -> Any:
        """The sums, each rounded once, and infinite beyond the range of floats: (n,), or a float."""
        values = np.array([_rounded(units) for units in self._sums])
        if self._odd is not None:
            with np.errstate(invalid="ignore"):
                values += np.where(self._odd > 0, _NONFINITE, 0.0).sum(axis=1)
        return float(values[0]) if self._is_one else values

    def add(self, row: Any, sign: int = 1) -> None:
        """Add one number to each sum, or subtract it if ``sign`` is -1."""
        if self._is_one and math.isfinite(row):
            self._sums[0] += sign * _to_units(float(row))
        else:
            self._add_block(np.array(row, dtype=np.float64).reshape(1, -1), sign)

    def add_rows(self, rows: Array, sign: int = 1) -> None:
        """Add all rows of an array (m, n) to the n sums, or subtract them; (m,) numbers to a single sum."""
        if self._is_one and (len(rows) == 1 or _are_small_integers(rows)):
            self.add(rows.item() if len(rows) == 1 else rows.sum(), sign)
            return
        for start in range(0, len(rows), _BLOCK):
            block = np.asarray(rows[start : start + _BLOCK], dtype=np.float64)
            self._add_block(block.reshape(len(block), len(self)), sign)

    def _add_block(self, block: Array, sign: int) -> None:
        """Add rows (m, n), of which there are no more than 4096."""
        finite = np.isfinite(block)
        if not finite.all():
            odd = np.stack([block == np.inf, block == -np.inf, np.isnan(block)], axis=-1)
            self._odd = self._counts() + sign * odd.sum(axis=0)
            block = np.where(finite, block, 0.0)
        for part in block if len(block) == 1 else _parts(block):
            mantissas, exponents = np.frexp(part)
            units = (mantissas * (sign * 2.0**53)).astype(np.int64).tolist()
            shifts = (exponents + (_POINT - 53)).tolist()
            self._sums = [
                have + (one << shift) for have, one, shift in zip(self._sums, units, shifts, strict=True)
            ]

    def absorb(self, other: ExactSums, at: Any = None, sign: int = 1) -> None:
        """Add other sums to those at some positions, which are distinct; by default the leading ones."""
        places = range(len(self)) if at is None else at
        for place, units in zip(places, other._sums, strict=False):
            self._sums[place] += sign * units
        if other._odd is not None:
            self._odd = self._counts()
            self._odd[places] += sign * other._odd[: len(places)]

    def take(self, at: Array) -> ExactSums:
        """Copy the sums at some positions, or in a mask."""
        rows = np.arange(len(self))[at]
        taken = ExactSums(len(rows))
        taken._sums = [self._sums[row] for row in rows.tolist()]
        taken._odd = None if self._odd is None else self._odd[rows]
        return taken

    def total(self) -> ExactSums:
        """Add up all the sums to a single one."""
        total = ExactSums()
        total._sums = [sum(self._sums)]
        total._odd = None if self._odd is None else self._odd.sum(axis=0, keepdims=True)
        return total

    def grow(self, n: int) -> None:
        """Append sums of nothing, to ``n`` in all."""
        more = n - len(self)
        self._sums.extend([0] * more)
        if self._odd is not None:
            self._odd = np.pad(self._odd, ((0, more), (0, 0)))

    def to_bytes(self) -> bytes:
        """Encode the sums: equal ones have equal bytes, however they came about."""
        units, counts = self._sums, self._counts().astype("<i8")
        zeros = [(one & -one).bit_length() - 1 if one else 0 for one in units]
        digits = [_as_bytes(one >> shift) for one, shift in zip(units, zeros, strict=True)]
        head = np.array([len(self), counts.any()], dtype="<u4").tobytes()
        lengths = np.array([zeros, [len(one) for one in digits]], dtype="<u2").tobytes()
        return b"".join([head, lengths, counts.tobytes() if counts.any() else b"", *digits])

    @classmethod
    def from_bytes(cls, data: bytes, n: int) -> ExactSums:
        """Restore a vector of n sums from what :meth:`to_bytes` returned; refuse anything else.

        Raises
        ------
        ValueError
            If these are no such bytes.
        """
        found, counted = np.frombuffer(data[:8].ljust(8, b"\xff"), dtype="<u4").tolist()
        at = 8 + (4 + 24 * counted) * n
        if found != n or counted > 1 or len(data) < at:
            raise ValueError(f"exact sums are cut off, or are not {n}")
        zeros, lengths = np.frombuffer(data[8 : 8 + 4 * n], dtype="<u2").reshape(2, n).tolist()
        if len(data) != at + sum(lengths):
            raise ValueError("exact sums have a wrong length")
        sums = cls(n)
        for row, (shift, length) in enumerate(zip(zeros, lengths, strict=True)):
            if shift + 8 * length > _BITS:
                raise ValueError("exact sums are beyond all floats")
            sums._sums[row] = int.from_bytes(data[at : at + length], "little", signed=True) << shift
            at += length
        if counted:
            counts = np.frombuffer(data[8 + 4 * n : 8 + 28 * n], dtype="<i8")
            sums._odd = counts.reshape(n, 3).astype(np.int64)
        if sums.to_bytes() != data:
            raise ValueError("exact sums are not in their shortest form")
        return sums

    def _counts(self) -> Array:
        """Return how many numbers of each sum were infinite or NaN."""
        return np.zeros((len(self), 3), dtype=np.int64) if self._odd is None else self._odd


def _to_units(value: float) -> int:
    """Convert a finite float to an integer, exactly."""
    top, bottom = value.as_integer_ratio()  # bottom is a power of two
    return top << (_POINT + 1 - bottom.bit_length())


def _rounded(units: int) -> float:
    try:
        return units / (1 << _POINT)
    except OverflowError:
        return np.inf if units > 0 else -np.inf


def _as_bytes(mantissa: int) -> bytes:
    return mantissa.to_bytes(mantissa.bit_length() // 8 + 1, "little", signed=True)


def _are_small_integers(numbers: Array) -> bool:
    """Return whether all partial sums are integers that floats hold."""
    with np.errstate(over="ignore", invalid="ignore"):
        return float(np.abs(numbers).sum()) < 2.0**53 and np.array_equal(numbers, np.floor(numbers))


def _parts(block: Array) -> Iterator[Any]:
    """Yield rows that add up to exactly the sum of the rows of a block.

    Every value is split at sigma, a power of two far above them all: upper parts
    add up without rounding, whatever their order (Rump, Ogita and Oishi 2008). What
    remains, 40 bits below, is split again until nothing is left.
    """
    largest = np.abs(block).max(axis=0, initial=0.0)
    if not largest.max(initial=0.0) < _TALL:
        yield from block
        return
    upper, lower = np.empty((2, *block.shape))
    sigma = np.ldexp(1.0, np.frexp(largest)[1] + _SPLIT)
    while block.any():
        np.add(block, sigma, out=upper)
        upper -= sigma
        yield upper.sum(axis=0)
        block = np.subtract(block, upper, out=lower)
        sigma = sigma * 2.0 ** (_SPLIT - 53)
