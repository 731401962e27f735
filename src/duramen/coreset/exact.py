"""Sums without rounding: the same whatever the order and the grouping of the numbers."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, final

import numpy as np

from duramen.arrays import Array

_SMALLEST = 1074  # the smallest float is 2 ** -1074: sums are integer multiples of it
_HALF = 27  # bits: halves of mantissas, so that sums of 2**26 of them are integers below 2**53
_MOST_ROWS = 1 << 25
_EXACT = 2.0**53  # all integers below are floats


@final
class ExactSums:
    """Several sums of floats, each exact.

    Parameters
    ----------
    n : int
        The number of sums.

    Examples
    --------
    >>> sums = ExactSums(1)
    >>> for value in (1e20, 1.0, -1e20, 0.5):
    ...     sums.add([value])
    >>> sums.values
    array([1.5])
    """

    __slots__ = ("_nonfinite", "_units")

    def __init__(self, n: int) -> None:
        self._units = [0] * n  # in units of the smallest float
        self._nonfinite = np.zeros(n)  # infinities and NaN, added up as floats

    def __len__(self) -> int:
        return len(self._units)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ExactSums):
            return NotImplemented
        return self._units == other._units and np.array_equal(
            self._nonfinite, other._nonfinite, equal_nan=True
        )

    __hash__ = None  # type: ignore[assignment]

    def grow(self, n: int) -> None:
        """Extend to ``n`` sums; new ones are zero."""
        more = n - len(self)
        self._units += [0] * more
        self._nonfinite = np.append(self._nonfinite, np.zeros(more))

    def add(self, values: Any) -> None:
        """Add one number to each sum."""
        numbers = np.asarray(values, dtype=np.float64)
        finite = np.isfinite(numbers)
        if not finite.all():
            with np.errstate(invalid="ignore"):
                self._nonfinite += np.where(finite, 0.0, numbers)
            numbers = np.where(finite, numbers, 0.0)
        for index, value in enumerate(numbers.tolist()):
            top, bottom = value.as_integer_ratio()  # bottom is a power of two
            self._units[index] += top << (_SMALLEST + 1 - bottom.bit_length())

    def add_rows(self, rows: Array) -> None:
        """Add all rows of an array (m, n) to the n sums, column by column."""
        for start in range(0, len(rows), _MOST_ROWS):
            block = rows[start : start + _MOST_ROWS]
            for index in range(len(self)):
                self.add_column(index, block[:, index])

    def add_column(self, index: int, values: Array) -> None:
        """Add many numbers, at most 2**25, to one sum."""
        numbers = np.asarray(values, dtype=np.float64)
        finite = np.isfinite(numbers)
        if not finite.all():
            with np.errstate(invalid="ignore"):
                self._nonfinite[index] += numbers[~finite].sum()
            numbers = numbers[finite]
        self._units[index] += _sum_in_units(numbers)

    def absorb(self, other: ExactSums, indices: Iterable[int] | None = None) -> None:
        """Add other sums: one by one, or to those at ``indices``."""
        mine = range(len(other)) if indices is None else indices
        with np.errstate(invalid="ignore"):
            for index, units, rest in zip(mine, other._units, other._nonfinite, strict=True):
                self._units[index] += units
                self._nonfinite[index] += rest

    @property
    def values(self) -> Array:
        """The sums, each rounded once."""
        return np.array([_rounded(units) for units in self._units]) + self._nonfinite

    def less(self, indices: Iterable[int], values: Array) -> float:
        """Compute the sum of the sums at ``indices``, less some numbers."""
        rest = ExactSums(1)
        for index in indices:
            rest._units[0] += self._units[index]
            rest._nonfinite[0] += self._nonfinite[index]
        rest.add_column(0, -values)
        return float(rest.values[0])

    def to_bytes(self) -> bytes:
        """Return the sums as bytes: the exponent and the signed mantissa of each, without padding."""
        parts = [len(self).to_bytes(4, "little"), self._nonfinite.astype("<f8").tobytes()]
        for units in self._units:
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
        sums._nonfinite = np.frombuffer(data[4:at], dtype="<f8").astype(np.float64)
        for index in range(n):
            zeros, length = np.frombuffer(data, dtype="<u2", count=2, offset=at).tolist()
            digits = data[at + 4 : at + 4 + length]
            sums._units[index] = int.from_bytes(digits, "little", signed=True) << zeros
            at += 4 + length
        return sums


def _sum_in_units(numbers: Array) -> int:
    """Add up finite floats, in units of the smallest float."""
    if not len(numbers):
        return 0
    with np.errstate(over="ignore"):
        size = float(np.abs(numbers).sum())
    if size < _EXACT and np.array_equal(numbers, np.floor(numbers)):
        return int(numbers.sum()) << _SMALLEST
    mantissas, exponents = np.frexp(numbers)
    mantissas *= 2.0**_HALF
    high = np.floor(mantissas)
    low = (mantissas - high) * 2.0 ** (53 - _HALF)
    least = int(exponents.min())
    exponents -= least
    total = 0
    for part, scale in ((high, _HALF), (low, 53)):
        sums = np.bincount(exponents, part)
        for place in np.flatnonzero(sums).tolist():
            shift = place + least - scale + _SMALLEST
            units = int(sums[place])
            total += units << shift if shift >= 0 else units >> -shift  # the bits shifted out are zeros
    return total


def _rounded(units: int) -> float:
    """Round a number of smallest floats to the nearest float."""
    try:
        return units / (1 << _SMALLEST)
    except OverflowError:
        return np.inf if units > 0 else -np.inf
