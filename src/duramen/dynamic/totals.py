"""Totals over points that come and go, with no drift."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import numpy as np

from duramen.chunks import for_each_chunk
from duramen.dynamic.sums import ExactTotals
from duramen.rows import Array

__all__ = ["Contributors", "Totals"]


_BLOCK = 1 << 13  # points whose contributions are summed together
_SHARE = 1e-11  # of a total, by which it may be off


class Contributors(Protocol):
    """Who knows what the points in slots contribute."""

    def contribution(self, slot: int) -> Array:
        """Compute what one point contributes: (q,)."""

    def contributions(self, slots: Array) -> Array:
        """Compute what points contribute: (m, q)."""

    def contributing(self) -> Array:
        """Give the slots of all points that contribute."""


class Totals:
    """The sums of what points contribute: q numbers each.

    Parameters
    ----------
    n : int
        How many numbers, q.
    points : Contributors
    """

    def __init__(self, n: int, points: Contributors) -> None:
        self._points = points
        self._begin(n)

    def _begin(self, n: int) -> None:
        self._exact = ExactTotals(n)
        self._peak = np.zeros(n)  # the largest that a sum was, or what went into it
        self._moves = 0
        self._lost = False  # whether a sum left the range of float64, which later points cannot undo

    def add(self, slot: int) -> None:
        """Add what one point contributes."""
        self._move(self._points.contribution(slot), self._exact.add)

    def subtract(self, slot: int) -> None:
        """Take away what one point contributes."""
        self._move(self._points.contribution(slot), self._exact.subtract)

    def add_many(self, slots: Array) -> None:
        """Add what points contribute."""
        for total, largest in self._sums(slots):
            self._move(total.high, self._exact.add, largest)
            self._move(total.low, self._exact.add)

    def subtract_many(self, slots: Array) -> None:
        """Take away what points contribute."""
        for total, largest in self._sums(slots):
            self._move(total.high, self._exact.subtract, largest)
            self._move(total.low, self._exact.subtract)

    def _move(self, part: Array, move: Callable[[Array], None], largest: Array | None = None) -> None:
        if self._lost:
            return
        try:
            move(part)
        except OverflowError:
            self._lost = True
            return
        self._moves += 1
        np.maximum(self._peak, np.abs(part) if largest is None else largest, out=self._peak)
        np.maximum(self._peak, np.abs(self._exact.high), out=self._peak)

    def _sums(self, slots: Array) -> list[tuple[ExactTotals, Array]]:
        """Sum blocks of points, on all cores and in the order of memory; also the largest values of each."""
        found: dict[int, tuple[ExactTotals, Array]] = {}
        slots = np.sort(slots)

        def work(chunk: slice) -> None:
            block = self._points.contributions(slots[chunk])
            total = ExactTotals(block.shape[1])
            total.add_many(block)
            found[chunk.start] = (total, np.maximum(block.max(axis=0), -block.min(axis=0)))

        try:
            for_each_chunk(work, len(slots), _BLOCK, fixed=True)
        except OverflowError:
            self._lost = True
        return [found[start] for start in sorted(found)]

    @property
    def values(self) -> Array:
        """The totals (q,); infinite where one is beyond float64: then they say nothing."""
        if self._lost or self._is_in_doubt():
            self._begin(len(self._peak))
            self.add_many(self._points.contributing())
            self._moves, self._peak = 1, np.abs(self._exact.high)
        return np.full(len(self._peak), np.inf) if self._lost else self._exact.values

    def _is_in_doubt(self) -> bool:
        """Tell whether what passed through was so much larger than what is left that rounding may show.

        A move errs by 2^-103 of the largest sum (docs in :mod:`duramen.dynamic.sums`).
        """
        left = np.abs(self._exact.high)
        return bool((self._peak * (self._moves * 2.0**-103) > _SHARE * left).any())

    def check(self) -> None:
        """Raise AssertionError if the totals are not those of a fresh sum, to 1e-12 of absolute values."""
        values = self.values
        if self._lost:
            return
        self._exact.check_invariants()
        fresh, mass = ExactTotals(len(values)), ExactTotals(len(values))
        everyone = self._points.contributing()
        for start in range(0, len(everyone), _BLOCK):
            block = self._points.contributions(everyone[start : start + _BLOCK])
            fresh.add_many(block)
            mass.add_many(np.abs(block))
        off = np.abs(values - fresh.values)
        assert (off <= 1e-12 * mass.values).all(), "the totals drifted from a fresh sum"
