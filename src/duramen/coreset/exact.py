"""Sums without rounding: the same whatever the order and the grouping of the numbers.

What is added can be subtracted again, and leaves no trace, over the whole range of floats.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, final

import numpy as np

from duramen.arrays import Array

_BLOCK = 4096  # rows whose upper parts are added up in floats without rounding
_SPLIT = 13  # sigma >= 2**13 max|x|: then the sum of 4096 upper parts has at most 52 bits
_TALL = 2.0**1000  # from here on sigma might overflow: such columns are added up value by value
_BITS, _LIMBS, _POINT = 32, 70, 1152  # limbs of 32 bits in units of 2**-1152; two of them are head room
_LOW = (1 << _BITS) - 1
_FULL = 1 << 28  # numbers that a limb of 64 bits can surely take before carries are due
_NONFINITE = np.array([np.inf, -np.inf, np.nan])
_BIAS = sum(1 << (62 + _BITS * limb) for limb in range(_LIMBS))


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
    to integer limbs otherwise.

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

    __slots__ = ("_high", "_limbs", "_low", "_n", "_n_added")

    def __init__(self, n: int | None = None) -> None:
        self._n = n
        self._high: Any = 0.0 if n is None else np.zeros(n)
        self._low: Any = self._high
        self._limbs: Array | None = None  # of each sum; then how many of its numbers were inf, -inf and NaN
        self._n_added = 0  # to the limbs, since carries were last propagated

    def __len__(self) -> int:
        return 1 if self._n is None else self._n

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ExactSums) and self.to_bytes() == other.to_bytes()

    __hash__ = None  # type: ignore[assignment]

    @property
    def values(self) -> Any:
        """The sums, each rounded once, and infinite beyond the range of floats: (n,), or a float."""
        if self._limbs is None:
            if self._n is None:
                return self._high + self._low
            with np.errstate(over="ignore"):
                return self._high + self._low
        values = np.array([_rounded(units) for units in self._units()])
        with np.errstate(invalid="ignore"):
            values += np.where(self._limbs[:, _LIMBS:] > 0, _NONFINITE, 0.0).sum(axis=1)
        return values if self._n is not None else float(values[0])

    def add(self, row: Any, sign: int = 1) -> None:
        """Add one number to each sum, or subtract it if ``sign`` is -1."""
        if self._n is None:
            high, error = _two_sum(self._high, sign * float(row))
            low, rest = _two_sum(self._low, error)
            lost = rest != 0.0  # also NaN
        else:
            with np.errstate(over="ignore", invalid="ignore"):
                high, error = _two_sum(self._high, row if sign > 0 else -row)
                low, rest = _two_sum(self._low, error)
            lost = rest.any()
        if lost:  # the pair cannot hold it, and would hold less and less
            self._flush()
            self._add_to_limbs(np.atleast_1d(np.asarray(row, dtype=np.float64)), sign)
        else:
            self._high, self._low = high, low

    def add_rows(self, rows: Array, sign: int = 1) -> None:
        """Add all rows of an array (m, n) to the n sums, or subtract them; (m,) numbers to a single sum."""
        if self._n is None and (len(rows) == 1 or _are_small_integers(rows)):
            self.add(rows.item() if len(rows) == 1 else rows.sum(), sign)
            return
        for start in range(0, len(rows), _BLOCK):
            block = np.asarray(rows[start : start + _BLOCK], dtype=np.float64)
            largest = np.maximum(block.max(axis=0), -block.min(axis=0))
            can_split = np.max(largest, initial=0.0) < _TALL  # not NaN
            for part in _parts(block, largest) if can_split else block:
                self.add(part, sign)

    def absorb(self, other: ExactSums, at: Any = None, sign: int = 1) -> None:
        """Add other sums to those at some positions, which are distinct; by default the leading ones."""
        other._flush()
        if other._limbs is not None:
            limbs = self._make_room(other._n_added)
            limbs[slice(None) if at is None else at] += sign * other._limbs[: len(limbs)]

    def take(self, at: Array) -> ExactSums:
        """Copy the sums at some positions, or in a mask."""
        self._flush()
        limbs = self._make_room(0)[at]
        taken = ExactSums(len(limbs))
        taken._make_room(self._n_added)[:] = limbs
        return taken

    def total(self) -> ExactSums:
        """Add up all the sums to a single one."""
        self._flush()
        total = ExactSums()
        for limbs in self._make_room(0):
            total._make_room(self._n_added)[0] += limbs
        return total

    def grow(self, n: int) -> None:
        """Append sums of nothing, to ``n`` in all."""
        self._flush()
        limbs, self._n = self._make_room(0), n
        self._high = self._low = np.zeros(n)
        self._limbs = np.pad(limbs, ((0, n - len(limbs)), (0, 0)))

    def to_bytes(self) -> bytes:
        """Encode the sums: equal ones have equal bytes, however they came about."""
        units = self._units()
        counts = np.zeros((len(self), 3), dtype="<i8") if self._limbs is None else self._limbs[:, _LIMBS:]
        zeros = [(one & -one).bit_length() - 1 if one else 0 for one in units]
        digits = [_as_bytes(one >> shift) for one, shift in zip(units, zeros, strict=True)]
        head = np.array([len(units), counts.any()], dtype="<u4").tobytes()
        lengths = np.array([zeros, [len(one) for one in digits]], dtype="<u2").tobytes()
        return b"".join([head, lengths, counts.astype("<i8").tobytes() if counts.any() else b"", *digits])

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
        limbs = sums._make_room(1)
        for row, (shift, length) in enumerate(zip(zeros, lengths, strict=True)):
            mantissa = int.from_bytes(data[at : at + length], "little", signed=True)
            if shift + 8 * length > _BITS * _LIMBS:
                raise ValueError("exact sums are beyond all floats")
            limbs[row, :_LIMBS] = _to_limbs(mantissa << shift)
            at += length
        if counted:
            limbs[:, _LIMBS:] = np.frombuffer(data[8 + 4 * n : 8 + 28 * n], dtype="<i8").reshape(n, 3)
        if sums.to_bytes() != data:
            raise ValueError("exact sums are not in their shortest form")
        return sums

    def _units(self) -> list[int]:
        """Return the sums of the finite numbers as integers."""
        high, low = np.atleast_1d(self._high).tolist(), np.atleast_1d(self._low).tolist()
        pairs = [_to_units(one) + _to_units(other) for one, other in zip(high, low, strict=True)]
        if self._limbs is None:
            return pairs
        return [pair + _from_limbs(limbs[:_LIMBS]) for pair, limbs in zip(pairs, self._limbs, strict=True)]

    def _flush(self) -> None:
        """Move what is in the pair to the limbs."""
        for part in (self._high, self._low):
            if np.any(part):
                self._add_to_limbs(np.atleast_1d(part), 1)
        self._high = self._low = 0.0 if self._n is None else np.zeros(self._n)

    def _add_to_limbs(self, row: Array, sign: int) -> None:
        """Add numbers to the limbs, each to three of them."""
        limbs, rows = self._make_room(1), np.arange(len(row))
        if not np.isfinite(row).all():
            limbs[:, _LIMBS:] += sign * np.column_stack([row == np.inf, row == -np.inf, np.isnan(row)])
            row = np.where(np.isfinite(row), row, 0.0)
        mantissas, exponents = np.frexp(row)
        mantissas = (mantissas * (sign * 2.0**53)).astype(np.int64)
        first, shift = np.divmod(exponents + (_POINT - 53), _BITS)
        low, high = (mantissas & _LOW) << shift, (mantissas >> _BITS) << shift  # low is never negative
        limbs[rows, first] += low & _LOW
        limbs[rows, first + 1] += (low >> _BITS) + (high & _LOW)
        limbs[rows, first + 2] += high >> _BITS

    def _make_room(self, n_added: int) -> Array:
        """Return the limbs, after carries if they could not take so many more numbers."""
        if self._limbs is None:
            self._limbs = np.zeros((len(self), _LIMBS + 3), dtype=np.int64)
        if self._n_added + n_added > _FULL:
            for limbs in self._limbs:
                limbs[:_LIMBS] = _to_limbs(_from_limbs(limbs[:_LIMBS]))
            self._n_added = 1
        self._n_added += n_added
        return self._limbs


def _from_limbs(limbs: Array) -> int:
    """Join limbs to an integer; each may be negative, and longer than 32 bits."""
    biased = (limbs + (1 << 62)).astype("<u8").view("<u4")  # none is negative
    low, high = (int.from_bytes(part.tobytes(), "little") for part in (biased[::2], biased[1::2]))
    return low + (high << _BITS) - _BIAS


def _to_limbs(units: int) -> Array:
    """Split an integer into limbs, all of its sign."""
    digits = abs(units).to_bytes(_LIMBS * _BITS // 8, "little")
    limbs = np.frombuffer(digits, dtype="<u4").astype(np.int64)
    return limbs if units >= 0 else -limbs


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
