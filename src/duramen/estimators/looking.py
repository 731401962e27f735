"""One look at rows that are not held: f_z at a solution, and the rows that it sets aside."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from duramen.estimators.data import Look
from duramen.losses.base import Loss
from duramen.points import WeightedPoints
from duramen.robust.passes.exact import ExactSums
from duramen.rows import Array
from duramen.trimming import kept_weights

__all__ = ["Looked", "Looking"]

_MARGIN = 1e-6  # more than what rounding makes of sums of weights


class _Rows(NamedTuple):
    """What is held of some rows."""

    losses: Array
    ids: Array
    weights: Array
    labels: Array | None

    def take(self, rows: Array) -> _Rows:
        """Take some of them."""
        return _Rows(*(None if column is None else column[rows] for column in self))  # type: ignore[arg-type]


class Looked(NamedTuple):
    """What was seen of some rows: those of the largest losses, and the sum over all others."""

    rows: _Rows | None
    rest: ExactSums

    def look(self, z: float) -> Look:
        """Trim weight z, once all rows were seen."""
        rows, total = self.rows, ExactSums(1)
        total.absorb(self.rest)
        if rows is None:
            return Look(float(total.values[0]), np.empty(0, dtype=np.int64), np.inf, None, None, np.empty(0))
        kept = kept_weights(rows.losses, rows.weights, z, rows.ids)
        left = kept > 0
        total.add_column(0, kept[left] * rows.losses[left])
        aside = rows.take(np.flatnonzero(kept < rows.weights))
        aside = aside.take(np.lexsort((-aside.ids, -aside.losses)))
        threshold = float(aside.losses[-1]) if len(aside.ids) else np.inf
        return Look(float(total.values[0]), aside.ids, threshold, None, aside.labels, aside.weights)


class Looking:
    """The look, under way: it holds rows of the largest (loss, id) that weigh a little more than z.

    As rows come, the edge moves up only: a row below it is kept for good, and
    its loss is added to an exact sum. At most twice as many are held: newcomers
    wait until they are as many.

    Parameters
    ----------
    loss : Loss
    theta : array
    z : float
        The weight to set aside of all rows.
    """

    def __init__(self, loss: Loss, theta: Array, z: float) -> None:
        self._loss, self._theta, self._z = loss, theta, z
        self._edge: tuple[float, int] = (-np.inf, np.iinfo(np.int64).min)
        self._held: _Rows | None = None
        self._waiting: list[_Rows] = []
        self._n_waiting = 0
        self._rest = ExactSums(1)

    def add(self, points: WeightedPoints, before: int | None = None) -> None:
        """Look at some rows."""
        values = self._loss.values(self._theta, points.X, points.y)
        losses = np.asarray(values, dtype=np.float64)
        if np.isnan(losses).any():
            name = points.ids[np.isnan(losses)][0]
            raise ValueError(f"the loss of the row with id {name} is no number; scale the columns down")
        self._take(_Rows(losses, points.ids, points.weights, points.y))

    def absorb(self, summary: Looked) -> None:
        """Take in what was seen elsewhere."""
        self._rest.absorb(summary.rest)
        if summary.rows is not None:
            self._take(summary.rows)

    def summary(self) -> Looked:
        """Give what was seen."""
        self._cut()
        return Looked(self._held, self._rest)

    def _take(self, rows: _Rows) -> None:
        if self._z == 0:
            return self._let_go(rows)
        loss, name = self._edge
        above = (rows.losses > loss) | ((rows.losses == loss) & (rows.ids > name))
        if not above.all():
            self._let_go(rows.take(~above))
            rows = rows.take(above)
        if len(rows.ids):
            self._waiting.append(rows)
            self._n_waiting += len(rows.ids)
        if self._n_waiting > (0 if self._held is None else len(self._held.ids)):
            self._cut()
        return None

    def _let_go(self, rows: _Rows) -> None:
        self._rest.add_column(0, rows.losses * rows.weights)

    def _cut(self) -> None:
        """Hold no more rows than may be set aside."""
        if not self._waiting:
            return
        rows = _joined(self._waiting if self._held is None else [self._held, *self._waiting])
        self._waiting, self._n_waiting = [], 0
        order = np.lexsort((rows.ids, rows.losses))[::-1]
        heavy = np.cumsum(rows.weights[order])
        most = int(np.searchsorted(heavy, self._z * (1 + _MARGIN), side="right")) + 1
        if most < len(order):
            self._let_go(rows.take(order[most:]))
        self._held = rows.take(order[:most])
        if most <= len(order):
            self._edge = float(self._held.losses[-1]), int(self._held.ids[-1])


def _joined(parts: list[_Rows]) -> _Rows:
    columns: Any = zip(*parts, strict=True)
    return _Rows(*(None if column[0] is None else np.concatenate(column) for column in columns))  # type: ignore[arg-type]
