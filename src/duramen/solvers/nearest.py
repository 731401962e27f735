"""The nearest of k moving centres, remembered from one iteration to the next.

For each row we keep an upper bound on the distance to its own centre and a
lower bound on the distance to every other (Hamerly 2010). When the centres
move, the first grows by the move of its centre, the second falls by the longest
move of any. While the first is below the second, the row's nearest centre is
what it was, and the row is skipped: in the last iterations nearly all are. All
distances that are returned are computed from the differences themselves.

For few rows, keeping bounds takes longer than screening all centres of all rows
by one product, so these have their own class.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from functools import partial

import numpy as np

from duramen.arrays import Array, row_products, take_rows
from duramen.losses.base import ignore_overflow, lengths
from duramen.losses.nearest import FEW_COLUMNS, first_least, nearest_squared, squared_differences
from duramen.parallel import for_each_chunk, one_blas_thread, rows_per_chunk

_SAFE = 1e-9  # relative slack of all bounds, for rounding
_MARGIN = 0.05  # of a distance: how far centres may move before the rows beyond it are found again
_FEW = 1 << 18  # rows times centres up to which one product takes less time than bounds: measured
_MODERATE = 1e150  # coordinates up to here have finite squares
_VANISHING = 1e-300  # squares below it may have lost their digits


def nearest_of(X: Array, k: int) -> ScreenedCentres | NearestCentres:
    """Choose how to find the nearest of k moving centres."""
    few = len(X) * k <= _FEW and X.shape[1] <= FEW_COLUMNS
    if few and max(float(X.max()), -float(X.min())) <= _MODERATE:
        return ScreenedCentres(X)
    return NearestCentres(X)


class _MovingCentres:
    """The nearest centre of each row, its ``numbers``, as ``centres`` move."""

    def __init__(self, X: Array) -> None:
        self.X = X
        self.centres = np.empty((0, X.shape[1]))
        self.numbers = np.zeros(len(X), dtype=np.intp)

    def restart(self) -> None:
        """Reset all that depends on earlier moves."""

    def squared(self, rows: Array | None = None) -> Array:
        """Compute the squared distances of rows (None for all) to their own centres."""
        squared = np.empty(len(self.X) if rows is None else len(rows))

        def work(chunk: slice) -> None:
            which = chunk if rows is None else rows[chunk]
            squared[chunk] = _gaps(_block(self.X, which), self.centres, self.numbers[which])

        with ignore_overflow():
            for_each_chunk(work, len(squared), rows_per_chunk(32 * self.X.shape[1]))
        return squared

    def _at_least(self, level: float, rows: Array) -> tuple[Array, Array]:
        squared = self.squared(rows)
        far = squared >= level
        return (rows, squared) if far.all() else (rows[far], squared[far])


class ScreenedCentres(_MovingCentres):
    """Each row's nearest centre, by one product of all rows and centres.

    With x and c relative to a fixed point, ``|c|^2 - 2 <x, c>`` ranks the centres c of a row x. Where
    rounding leaves several that may be nearest, the differences themselves decide, as they do in
    :class:`NearestCentres`: both find the same centres.
    """

    def __init__(self, X: Array) -> None:
        super().__init__(X)
        # the largest rounding error of a score, relative to |x|^2 + |c|^2; doubled, for a difference
        self.unit = 2 * 8 * (X.shape[1] + 8) * float(np.finfo(np.float64).eps)

    def move(self, centres: Array) -> Array:
        """Move the centres (k, d) to new places; return the rows whose nearest centre changed."""
        if self.centres.shape != centres.shape:
            self._begin(centres)
        self.centres = centres.copy()
        moved = centres - self.shift
        sizes = row_products(moved, moved)
        self.rounding = self.unit * float(sizes.max()) + _VANISHING
        np.multiply(moved, -2.0, out=self.factors[:, :-1])
        self.factors[:, -1] = sizes
        np.dot(self.factors, self.columns, out=self.scores)
        self.scores.min(axis=0, out=self.least)
        np.less_equal(self.scores, self.least + (self.doubt + self.rounding), out=self.near)
        if np.count_nonzero(self.near) == len(self.X):
            rows = (~self.near.take(self.numbers * len(self.X) + self.every)).nonzero()[0]
            self.numbers[rows] = self.near.take(rows, axis=1).argmax(axis=0)
            return rows
        numbers = self.near.argmax(axis=0)
        close = (self.near.sum(axis=0) != 1).nonzero()[0]
        numbers[close] = first_least(squared_differences(_block(self.X, close), centres))[1]
        rows = (numbers != self.numbers).nonzero()[0]
        self.numbers[rows] = numbers[rows]
        return rows

    def beyond(self, level: float) -> tuple[Array, Array]:
        """Find the rows whose squared distance is ``level`` or more, and these squared distances."""
        return self._at_least(level, (self.least + self.most >= level - self.rounding).nonzero()[0])

    def _begin(self, centres: Array) -> None:
        n, k = len(self.X), len(centres)
        self.shift = np.median(centres, axis=0)  # a far centre must not move it away from the others
        there = self.X - self.shift
        squares = row_products(there, there)
        self.columns = np.vstack((there.T, np.ones(n)))
        self.doubt = self.unit * squares
        self.most = squares + self.doubt
        self.numbers[:], self.every = 0, np.arange(n)
        self.factors = np.empty((k, self.X.shape[1] + 1))
        self.scores, self.near, self.least = np.empty((k, n)), np.empty((k, n), dtype=bool), np.empty(n)


class NearestCentres(_MovingCentres):
    """Each row's nearest centre, with bounds that are kept up to date as the centres move.

    ``reach + moved[numbers]`` bounds the distance of a row to its own centre
    from above. ``slack`` is the gap from ``reach`` to a lower bound on the
    distance to every other centre: the row certainly keeps its centre while
    ``slack > moved[numbers] + travelled``. The entries of a row stay as they are
    while it is skipped.
    """

    def __init__(self, X: Array) -> None:
        super().__init__(X)
        self.reach, self.slack = np.zeros(len(X)), np.zeros(len(X))
        self.restart()

    def restart(self) -> None:
        self.centres = self.centres[:0]
        self.moved = np.empty(0)  # how far each centre has moved, step by step
        self.travelled = 0.0  # the longest of each step's moves, added up
        self.far_level, self.far_until = -1.0, -1.0
        self.far_rows = np.empty(0, dtype=np.intp)  # rows that may lie beyond the level, up to far_until

    def move(self, centres: Array) -> Array:
        """Move the centres (k, d) to new places; return the rows whose nearest centre changed."""
        before, self.centres = self.centres, centres.copy()
        if not len(before):
            self.moved = np.zeros(len(centres))
            self._settle(None)
            return np.arange(len(self.X))
        steps = lengths(centres - before) * (1 + _SAFE)
        self.moved = self.moved + steps
        self.travelled += float(steps.max())
        limits = self.moved + self.travelled
        return self._settle(self._rows_where(lambda at: self.slack[at] <= limits.take(self.numbers[at])))

    def beyond(self, level: float) -> tuple[Array, Array]:
        """Find the rows whose squared distance is ``level`` or more, and these squared distances."""
        # the candidates are found with a margin, and stay valid until the centres have moved by it
        if self.far_level != level or self.travelled > self.far_until:
            distance = float(np.sqrt(level))
            least = distance * (1 - _MARGIN) * (1 - _SAFE)
            self.far_rows = self._rows_where(
                lambda at: self.reach[at] >= least - self.moved.take(self.numbers[at])
            )
            self.far_level, self.far_until = level, self.travelled + _MARGIN * distance
        return self._at_least(level, self.far_rows)

    def _rows_where(self, test: Callable[[slice], Array]) -> Array:
        found: dict[int, Array] = {}

        def work(chunk: slice) -> None:
            found[chunk.start] = np.flatnonzero(test(chunk)) + chunk.start

        with ignore_overflow():
            for_each_chunk(work, len(self.X))
        return np.concatenate([found[start] for start in sorted(found)])

    def _settle(self, rows: Array | None) -> Array:
        """Measure rows (None for all); compare those that may have changed centres with all centres."""
        k, d = self.centres.shape
        few = d <= FEW_COLUMNS
        compare = _by_differences if few else partial(_by_products, shift=np.median(self.centres, axis=0))
        limits = self.moved + self.travelled
        half = np.empty(0) if rows is None else _half_gaps(self.centres)
        changed: dict[int, Array] = {}

        def work(chunk: slice) -> None:
            which: slice | Array = chunk
            if rows is None:
                block = _block(self.X, chunk)
            else:
                block, which = self._narrow(rows[chunk], limits, half)
            numbers, squared, others = compare(block, self.centres)
            reach = np.sqrt(squared) - self.moved.take(numbers)
            if isinstance(which, np.ndarray):
                changed[chunk.start] = which[numbers != self.numbers[which]]
            self.numbers[which] = numbers
            self.reach[which] = reach
            self.slack[which] = others * (1 - _SAFE) + self.travelled - reach

        calm = nullcontext() if few else one_blas_thread()  # with few columns there are no products
        with calm, ignore_overflow():
            for_each_chunk(
                work, len(self.X) if rows is None else len(rows), rows_per_chunk(8 * (3 * d + 2 * k))
            )
        return np.concatenate([changed[start] for start in sorted(changed)]) if changed else self.numbers[:0]

    def _narrow(self, rows: Array, limits: Array, half: Array) -> tuple[Array, Array]:
        """Make the upper bounds of rows exact, and keep those that are still in doubt."""
        block, numbers = _block(self.X, rows), self.numbers.take(rows)
        own = np.sqrt(_gaps(block, self.centres, numbers))
        reach = own - self.moved.take(numbers)
        slack = self.slack.take(rows) + (self.reach.take(rows) - reach)
        # triangle inequality: no other centre is closer than its gap to the row's own centre, less ``own``
        np.maximum(slack, 2 * half.take(numbers) - own + self.travelled - reach, out=slack)
        self.reach[rows], self.slack[rows] = reach, slack
        doubt = np.flatnonzero(~(slack > limits.take(numbers)))
        return block.take(doubt, axis=0), rows.take(doubt)


def _half_gaps(centres: Array) -> Array:
    """Halve the distance of each centre to its nearest other: a row closer than that has no nearer centre."""
    gaps = squared_differences(centres, centres)
    gaps.reshape(-1)[:: len(gaps) + 1] = np.inf
    return np.sqrt(gaps.min(axis=0)) / 2 * (1 - _SAFE)


def _block(X: Array, which: slice | Array) -> Array:
    rows = X[which] if isinstance(which, slice) else take_rows(X, which)
    if rows.dtype == np.float64 and rows.flags.c_contiguous and rows.flags.aligned:
        return rows
    return np.require(rows, dtype=np.float64, requirements=["C", "A"])


def _by_differences(block: Array, centres: Array) -> tuple[Array, Array, Array]:
    costs = squared_differences(block, centres)
    least, first = first_least(costs)
    costs[first, np.arange(len(first))] = np.inf
    return first, least, np.sqrt(costs.min(axis=0))


def _by_products(block: Array, centres: Array, shift: Array) -> tuple[Array, Array, Array]:
    """Screen by one product, of rows and centres relative to ``shift``; decide close cases exactly."""
    there, moved = block - shift, centres - shift
    sizes, squares = row_products(moved, moved), row_products(there, there)
    scores = (-2 * moved) @ there.T
    scores += sizes[:, None]
    least, first = first_least(scores)
    scores[first, np.arange(len(first))] = np.inf
    second = scores.min(axis=0)
    rounding = 8 * (block.shape[1] + 8) * np.finfo(np.float64).eps * (squares + sizes.max())
    squared = _gaps(block, centres, first)
    others = np.sqrt(np.maximum(second + squares - rounding, 0.0))
    close = np.flatnonzero(~(second - least > 2 * rounding))
    if close.size:
        squared[close], first[close] = nearest_squared(block[close], centres)
        others[close] = 0.0
    return first, squared, others


def _gaps(block: Array, centres: Array, numbers: Array) -> Array:
    gap = centres.take(numbers, axis=0)
    gap -= block
    return row_products(gap, gap)
