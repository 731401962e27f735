"""Sums without any rounding: however numbers are grouped, in whatever order they come, the same."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, final

import numpy as np

from duramen.arrays import Array

__all__ = ["ExactSums"]


_LOWEST = 1074  # the smallest float is 2 ** -1074: sums are whole numbers of it
_HALF = 27  # bits: halves of mantissas, so that sums of 2**26 of them are whole numbers below 2**53
_MOST_ROWS = 1 << 25
_WHOLE = 2.0**53


@final
class ExactSums:
    """Several sums of floats, each exact.

    Parameters
    ----------
    n : int
        How many.

    Examples
    --------
    >>> sums = ExactSums(1)
    >>> for value in (1e20, 1.0, -1e20, 0.5):
    ...     sums.add([value])
    >>> sums.values
    array([1.5])
    """

    __slots__ = ("_odd", "_wholes")

    def __init__(self, n: int) -> None:
        self._wholes = [0] * n
        self._odd = np.zeros(n)  # what is infinite or no number, added up as floats are

    def __len__(self) -> int:
        return len(self._wholes)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ExactSums):
            return NotImplemented
        return self._wholes == other._wholes and np.array_equal(self._odd, other._odd, equal_nan=True)

    __hash__ = None  # type: ignore[assignment]

    def grow(self, n: int) -> None:
        """Let there be ``n`` sums; new ones are zero."""
        more = n - len(self)
        self._wholes += [0] * more
        self._odd = np.append(self._odd, np.zeros(more))

    def add(self, values: Any) -> None:
        """Add one number to each sum."""
        numbers = np.asarray(values, dtype=np.float64)
        finite = np.isfinite(numbers)
        if not finite.all():
            with np.errstate(invalid="ignore"):
                self._odd = self._odd + np.where(finite, 0.0, numbers)
            numbers = np.where(finite, numbers, 0.0)
        mantissas, exponents = np.frexp(numbers)
        halves = (mantissas * _WHOLE).astype(np.int64).tolist()
        for place, (whole, exponent) in enumerate(zip(halves, exponents.tolist(), strict=True)):
            if whole:
                self._wholes[place] += _shifted(whole, exponent - 53)

    def add_rows(self, rows: Array) -> None:
        """Add all rows of an array (m, n) to the n sums, column by column."""
        for start in range(0, len(rows), _MOST_ROWS):
            block = rows[start : start + _MOST_ROWS]
            for place in range(len(self)):
                self.add_column(place, block[:, place])

    def add_column(self, place: int, values: Array) -> None:
        """Add many numbers, at most 2**25, to one sum."""
        numbers = np.asarray(values, dtype=np.float64)
        finite = np.isfinite(numbers)
        if not finite.all():
            with np.errstate(invalid="ignore"):
                self._odd[place] += numbers[~finite].sum()
            numbers = numbers[finite]
        self._wholes[place] += _whole_sum(numbers)

    def absorb(self, other: ExactSums, places: Iterable[int] | None = None) -> None:
        """Add other sums: one by one, or to those at ``places``."""
        where = range(len(other)) if places is None else places
        with np.errstate(invalid="ignore"):
            for mine, (whole, odd) in zip(where, zip(other._wholes, other._odd, strict=True), strict=True):
                self._wholes[mine] += whole
                self._odd[mine] += odd

    @property
    def values(self) -> Array:
        """The sums, each rounded once."""
        return np.array([_rounded(whole) for whole in self._wholes]) + self._odd

    def less(self, places: Iterable[int], values: Array) -> float:
        """Compute what is left of the sums at ``places``, together, without some numbers."""
        rest = ExactSums(1)
        for place in places:
            rest._wholes[0] += self._wholes[place]
            rest._odd[0] += self._odd[place]
        rest.add_column(0, -values)
        return float(rest.values[0])

    def to_bytes(self) -> bytes:
        """Return the sums as bytes: of each its sign, mantissa and exponent, as short as they are."""
        parts = [len(self).to_bytes(4, "little"), self._odd.astype("<f8").tobytes()]
        for whole in self._wholes:
            zeros = (whole & -whole).bit_length() - 1 if whole else 0
            mantissa = whole >> zeros
            digits = mantissa.to_bytes(mantissa.bit_length() // 8 + 1, "little", signed=True)
            parts += [zeros.to_bytes(2, "little"), len(digits).to_bytes(2, "little"), digits]
        return b"".join(parts)

    @classmethod
    def from_bytes(cls, data: bytes) -> ExactSums:
        """Read what :meth:`to_bytes` returned."""
        n = int.from_bytes(data[:4], "little")
        made, at = cls(n), 4 + 8 * n
        made._odd = np.frombuffer(data[4:at], dtype="<f8").astype(np.float64)
        for place in range(n):
            zeros, length = (int.from_bytes(data[at + 2 * k : at + 2 * k + 2], "little") for k in (0, 1))
            digits = data[at + 4 : at + 4 + length]
            made._wholes[place] = int.from_bytes(digits, "little", signed=True) << zeros
            at += 4 + length
        return made


def _shifted(whole: int, exponent: int) -> int:
    """Turn whole times 2**exponent into a number of smallest floats."""
    shift = exponent + _LOWEST
    return whole << shift if shift >= 0 else whole >> -shift  # the bits that go are zeros


def _whole_sum(numbers: Array) -> int:
    """Add up finite floats, as a number of smallest floats."""
    if not len(numbers):
        return 0
    if numbers[0] == 1.0 and (numbers == 1.0).all():
        return len(numbers) << _LOWEST
    with np.errstate(over="ignore"):
        size = float(np.abs(numbers).sum())
    if size < _WHOLE and np.array_equal(numbers, np.floor(numbers)):
        return int(numbers.sum()) << _LOWEST
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
            total += _shifted(int(sums[place]) << (53 - scale), place + least - 53)
    return total


def _rounded(whole: int) -> float:
    """Turn a number of smallest floats into the nearest float."""
    try:
        return whole / (1 << _LOWEST)
    except OverflowError:
        return np.inf if whole > 0 else -np.inf
