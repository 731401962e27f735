"""The points of the smallest numbers among all that have come: what a sample by ranks is drawn from."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, final

import numpy as np

from duramen.points import WeightedPoints
from duramen.rows import Array

__all__ = ["Held", "Lowest", "joined"]


class Held(NamedTuple):
    """Points, the number by which each stays, and its place: which of several lists it is on."""

    points: WeightedPoints
    numbers: Array
    places: Array

    def by_id(self) -> Held:
        """Put all in the order of the ids."""
        rows = np.argsort(self.points.ids)
        return Held(self.points.pick(rows, self.points.weights[rows]), self.numbers[rows], self.places[rows])


@final
class Lowest:
    """The ``most`` points of the smallest numbers at each place, and those that tie with the last of them.

    A function of the points that came, not of how. At most twice as many are
    held: newcomers wait until they are as many, and then all are cut together.

    Parameters
    ----------
    most : int
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._limits = np.empty(0)  # at each place, the number that none may exceed any more
        self._parts: list[Held] = []
        self._waiting, self._count = 0, 0

    def add(self, points: WeightedPoints, numbers: Array, places: Array) -> None:
        """Look at more points, and copy those that may stay; an infinite number means absence."""
        missing = int(places.max(initial=-1)) + 1 - len(self._limits)
        if missing > 0:
            self._limits = np.append(self._limits, np.full(missing, np.inf))
        limits = self._limits[0] if len(self._limits) == 1 else self._limits[places]
        rows = np.flatnonzero(numbers <= limits)
        rows = rows[numbers[rows] < np.inf]
        rows = rows[self._lowest(numbers[rows], places[rows])]
        if not len(rows):
            return
        self._parts.append(Held(points.pick(rows, points.weights[rows]), numbers[rows], places[rows]))
        self._waiting, self._count = self._waiting + len(rows), self._count + len(rows)
        if self._waiting > max(len(self) // 2, self._most):
            self._cut()

    @property
    def limit(self) -> float | None:
        """The number that none may exceed any more, where all are on one list; None if that is not known."""
        return float(self._limits[0]) if len(self._limits) == 1 and self._limits[0] < np.inf else None

    def __len__(self) -> int:
        return self._count

    def held(self) -> Held | None:
        """Give the points that are left; None where none ever came."""
        if self._waiting:
            self._cut()
        return self._parts[0] if self._parts else None

    def _cut(self) -> None:
        numbers = np.concatenate([part.numbers for part in self._parts])
        places = np.concatenate([part.places for part in self._parts])
        points = joined([part.points for part in self._parts])
        rows = self._lowest(numbers, places)
        if len(rows) < len(numbers):
            points, numbers, places = points.pick(rows, points.weights[rows]), numbers[rows], places[rows]
        self._parts, self._waiting, self._count = [Held(points, numbers, places)], 0, len(numbers)

    def _lowest(self, numbers: Array, places: Array) -> Array:
        """Find the smallest numbers of each place, and lower the limits to what was found."""
        if len(numbers) <= self._most:
            return np.arange(len(numbers))
        for place in np.flatnonzero(np.bincount(places) >= self._most):
            mine = numbers if len(self._limits) == 1 else numbers[places == place]
            self._limits[place] = np.partition(mine, self._most - 1)[self._most - 1]
        return np.flatnonzero(numbers <= self._limits[places])


def joined(parts: Sequence[WeightedPoints]) -> WeightedPoints:
    """Join points of several batches; raise ValueError if an id stands in two of them."""
    if len(parts) == 1:
        return parts[0]
    ids = np.concatenate([part.ids for part in parts])
    try:
        return WeightedPoints.concat(parts)
    except ValueError:
        names, counts = np.unique(ids, return_counts=True)
        again = names[counts > 1]
        if not again.size:
            raise
        raise ValueError(f"ids must be distinct; id {again[0]} stands in more than one row") from None
