"""The points of the largest losses among all that have come: whoever may be suspected when all have."""

from __future__ import annotations

from typing import final

import numpy as np

from duramen.robust.passes.lowest import joined
from duramen.rows import Array
from duramen.sampling import Seen

__all__ = ["Suspects", "by_id", "picked"]

_MARGIN = 1e-6  # more than what rounding makes of sums of weights


@final
class Suspects:
    """The points of the largest (loss, id) that together weigh a little more than ``weight``.

    As points come, the edge moves up only: a point below it is an inlier for good.
    At most twice as many are held: newcomers wait until they are as many.

    Parameters
    ----------
    weight : float
        How much weight to suspect of all that will come.
    floor : float
        A loss below which nobody will be suspected.
    """

    def __init__(self, weight: float, floor: float = -np.inf) -> None:
        self._weight = weight
        self._enough = weight * (1 + _MARGIN)
        self._floor = floor
        self._edge: tuple[float, int] | None = None  # the loss and the id of the last that may be suspected
        self._parts: list[Seen] = []
        self._waiting, self._held = 0, 0  # how many have come since the last cut, and were left by it

    def among(self, seen: Seen) -> Array:
        """Find the rows that may be suspected; the others are inliers."""
        points, losses = seen.points, seen.losses
        if not self._weight:
            return np.empty(0, dtype=np.intp)
        if self._edge is None:
            rows = np.flatnonzero(losses >= self._floor)
        else:
            loss, name = self._edge
            rows = np.flatnonzero(losses >= loss)
            rows = rows[(losses[rows] > loss) | (points.ids[rows] > name)]
        rows = rows[points.weights[rows] > 0]
        if float(points.weights[rows].sum()) > self._enough:
            rows = np.sort(rows[self._top(losses[rows], points.ids[rows], points.weights[rows])])
        return rows

    def add(self, seen: Seen) -> Seen | None:
        """Hold points that may be suspected; give those that no longer may."""
        self._parts.append(seen)
        self._waiting += len(seen)
        return self.cut() if self._waiting > self._held else None

    def held(self) -> Seen | None:
        """Give all who may be suspected, in the order of their ids; None where nobody may be."""
        return by_id(self._joined()) if self._parts else None

    def cut(self) -> Seen | None:
        """Hold no more than are needed; give the others, if there are any."""
        if not self._parts:
            return None
        held = self._joined()
        points = held.points
        self._parts, self._waiting, self._held = [held], 0, len(held)
        if not float(points.weights.sum()) > self._enough:
            return None
        top = self._top(held.losses, points.ids, points.weights)
        self._edge = float(held.losses[top[-1]]), int(points.ids[top[-1]])
        if len(top) == len(held):
            return None
        self._parts, self._held = [picked(held, top)], len(top)
        rest = np.ones(len(held), dtype=bool)
        rest[top] = False
        return picked(held, np.flatnonzero(rest))

    def _joined(self) -> Seen:
        one = self._parts[0]
        if len(self._parts) == 1:
            return one
        losses = np.concatenate([part.losses for part in self._parts])
        return Seen(joined([part.points for part in self._parts]), one.loss, one.anchor, losses)

    def _top(self, losses: Array, ids: Array, weights: Array) -> Array:
        """Find the largest (loss, id), going down, until they weigh enough."""
        order = np.lexsort((ids, losses))[::-1]
        heavy = np.cumsum(weights[order])
        return order[: int(np.searchsorted(heavy, self._enough, side="right")) + 1]


def picked(seen: Seen, rows: Array) -> Seen:
    """Copy some rows of what was seen."""
    points = seen.points.pick(rows, seen.points.weights[rows])
    return Seen(points, seen.loss, seen.anchor, seen.losses[rows])


def by_id(seen: Seen) -> Seen:
    """Put what was seen in the order of the ids."""
    ids = seen.points.ids
    return seen if (ids[1:] > ids[:-1]).all() else picked(seen, np.argsort(ids))
