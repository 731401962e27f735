"""The nearest of k moving centres, remembered from one iteration to the next.

For each row we keep an upper bound on the distance to its own centre and a
lower bound on the distance to every other (Hamerly 2010). When the centres
move, the first grows by the move of its centre, the second falls by the longest
move of any. While the first is below the second, the row's nearest centre is
what it was, and the row is not even looked at: in the last iterations that is
nearly all of them. All distances that are given out are computed from the
differences themselves.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext

import numpy as np

from duramen.ball import lengths
from duramen.chunks import for_each_chunk, one_blas_thread, rows_per_chunk
from duramen.losses.nearest import FEW_COLUMNS, first_least, nearest_squared, squared_differences
from duramen.rows import Array, row_products, take_rows

__all__ = ["NearestCentres"]

_SAFE = 1e-9  # bounds are loosened by this, relatively, for what rounding does to them


class NearestCentres:
    """Each row's nearest centre, kept up to date as the centres move.

    ``reach + moved[numbers]`` bounds the distance of a row to its own centre
    from above, ``others - travelled`` the distance to every other from below:
    the row's entries stay as they are while it is not looked at.
    """

    def __init__(self, X: Array) -> None:
        self.X = X
        self.centres = np.empty((0, X.shape[1]))
        self.numbers = np.zeros(len(X), dtype=np.intp)
        self.reach = np.zeros(len(X))
        self.others = np.zeros(len(X))
        self.moved = np.empty(0)  # how far each centre has moved, step by step
        self.travelled = 0.0  # the longest of each step's moves, added up

    def move(self, centres: Array) -> Array:
        """Take the centres (k, d) to a new place; return the rows that were compared with all of them."""
        before, self.centres = self.centres, centres.copy()
        if not len(before):
            self.moved = np.zeros(len(centres))
            return self._compare(np.arange(len(self.X)))
        steps = lengths(centres - before) * (1 + _SAFE)
        self.moved = self.moved + steps
        self.travelled += float(steps.max())
        doubt = self._rows_where(lambda at: self.others[at] - self.reach[at] <= self._shift(at))
        if doubt.size:
            self.squared(doubt)  # makes their upper bounds exact
            doubt = doubt[self.others[doubt] - self.reach[doubt] <= self._shift(doubt)]
        return self._compare(doubt)

    def squared(self, rows: Array | None = None) -> Array:
        """Compute the squared distances of rows (None for all) to their own centres."""
        squared = np.empty(len(self.X) if rows is None else len(rows))

        def work(chunk: slice) -> None:
            which = chunk if rows is None else rows[chunk]
            numbers = self.numbers[which]
            squared[chunk] = _gaps(_block(self.X, which), self.centres, numbers)
            self.reach[which] = np.sqrt(squared[chunk]) - self.moved.take(numbers)

        with _quiet():
            for_each_chunk(work, len(squared), rows_per_chunk(32 * self.X.shape[1]))
        return squared

    def beyond(self, distance: float) -> Array:
        """Find the rows whose own centre may be at ``distance`` or more."""
        return self._rows_where(lambda at: self.reach[at] >= distance - self.moved.take(self.numbers[at]))

    def _shift(self, at: slice | Array) -> Array:
        return (self.moved + self.travelled).take(self.numbers[at])

    def _rows_where(self, test: Callable[[slice], Array]) -> Array:
        found: dict[int, Array] = {}

        def work(chunk: slice) -> None:
            found[chunk.start] = np.flatnonzero(test(chunk)) + chunk.start

        for_each_chunk(work, len(self.X))
        return np.concatenate([found[start] for start in sorted(found)])

    def _compare(self, rows: Array) -> Array:
        """Compare rows with all centres."""
        k, d = self.centres.shape
        shift = np.median(self.centres, axis=0)
        compare = _by_differences if d <= FEW_COLUMNS else _by_products
        everything = len(rows) == len(self.X)

        def work(chunk: slice) -> None:
            which = chunk if everything else rows[chunk]
            numbers, squared, others = compare(_block(self.X, which), self.centres, shift)
            self.numbers[which] = numbers
            self.reach[which] = np.sqrt(squared) - self.moved.take(numbers)
            self.others[which] = others * (1 - _SAFE) + self.travelled

        calm = nullcontext() if d <= FEW_COLUMNS else one_blas_thread()  # few columns make no products
        with calm, _quiet():
            for_each_chunk(work, len(rows), rows_per_chunk(8 * (3 * d + 2 * k)))
        return rows


def _quiet() -> np.errstate:
    return np.errstate(over="ignore", under="ignore", invalid="ignore")


def _block(X: Array, which: slice | Array) -> Array:
    rows = X[which] if isinstance(which, slice) else take_rows(X, which)
    return np.require(rows, dtype=np.float64, requirements=["C", "A"])


def _by_differences(block: Array, centres: Array, shift: Array) -> tuple[Array, Array, Array]:
    costs = squared_differences(block, centres)
    least, first = first_least(costs)
    costs[first, np.arange(len(first))] = np.inf
    return first, least, np.sqrt(costs.min(axis=0))


def _by_products(block: Array, centres: Array, shift: Array) -> tuple[Array, Array, Array]:
    """Screen by one product, of rows and centres relative to ``shift``; settle what is close exactly."""
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
