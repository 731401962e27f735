"""Totals over points that come and go: exact, and quick for one point at a time.

A point that came by itself is noted, and a few dozen of these are looked up and
added together: a third of the time of adding each. One that goes is taken away
at once, so that nothing of it stays.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

import numpy as np

from duramen.dynamic.sums import ExactTotals
from duramen.rows import Array

__all__ = ["Contributors", "Totals"]

_WAITING = 64  # points


class Contributors(Protocol):
    """Who knows what the points in slots contribute."""

    def contribution(self, slot: int) -> Array:
        """Compute what one point contributes: (q,)."""

    def contributions(self, slots: Array) -> Iterator[Array]:
        """Compute what points contribute: (m, q), in blocks."""

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
        self._exact, self._points = ExactTotals(n), points
        self._waiting: dict[int, None] = {}
        self._lost = False  # whether a sum left the range of float64, which later points cannot undo

    def add(self, slot: int) -> None:
        """Add what one point contributes, by and by: it must stay as it is while it is here."""
        self._waiting[slot] = None
        if len(self._waiting) >= _WAITING:
            self._settle()

    def subtract(self, slot: int) -> None:
        """Take away what one point contributes."""
        if slot in self._waiting:
            del self._waiting[slot]
        elif not self._lost:
            try:
                self._exact.subtract(self._points.contribution(slot))
            except OverflowError:
                self._lost = True

    def add_many(self, slots: Array) -> None:
        """Add what points contribute."""
        if self._lost:
            return
        try:
            for block in self._points.contributions(slots):
                self._exact.add_many(block)
        except OverflowError:
            self._lost = True

    def subtract_many(self, slots: Array) -> None:
        """Take away what points contribute."""
        self._settle()
        if self._lost:
            return
        try:
            for block in self._points.contributions(slots):
                self._exact.subtract_many(block)
        except OverflowError:
            self._lost = True

    @property
    def values(self) -> Array:
        """The totals (q,); infinite where one is beyond float64: then they say nothing."""
        self._settle()
        if self._lost:
            self._exact, self._lost = ExactTotals(len(self._exact.high)), False
            self.add_many(self._points.contributing())
        return np.full(len(self._exact.high), np.inf) if self._lost else self._exact.values

    def check(self) -> None:
        """Raise AssertionError if the totals are not those of a fresh sum, to 1e-12 of absolute values."""
        values = self.values
        if self._lost:
            return
        self._exact.check_invariants()
        fresh, mass = ExactTotals(len(values)), ExactTotals(len(values))
        for block in self._points.contributions(self._points.contributing()):
            fresh.add_many(block)
            mass.add_many(np.abs(block))
        off = np.abs(values - fresh.values)
        assert (off <= 1e-12 * mass.values).all(), "the totals drifted from a fresh sum"

    def _settle(self) -> None:
        """Add what waits."""
        if self._waiting:
            slots, self._waiting = np.array(list(self._waiting)), {}
            self.add_many(slots)
