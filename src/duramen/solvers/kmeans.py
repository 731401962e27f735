"""k-means-- (Chawla and Gionis 2013), with the work of an iteration in proportion to what changes in it.

An iteration needs, of all rows: whose nearest centre changed, and which are set
aside. Bounds on distances (:mod:`duramen.solvers.nearest`) leave few rows to
look at for either. What the centres need of the rest is three sums for each
cluster, over its kept points x relative to a fixed origin o near its centre:

    M = sum w,   S = sum w (x - o),   Q = sum w |x - o|^2,

from which the mean is o + S / M, and the cost of a centre c is
Q - 2 <c - o, S> + M |c - o|^2. Rows that change hands are subtracted here and
added there; after many of these, or when a centre has gone far from its origin,
the sums are taken afresh, so that rounding does not add up.
"""

from __future__ import annotations

import numpy as np
from scipy import sparse

from duramen.chunks import rows_per_chunk, sum_over_chunks
from duramen.losses.nearest import FEW_COLUMNS
from duramen.rows import Array, row_products, take_rows
from duramen.solvers.centres import refilled
from duramen.solvers.fit import Fit, Place
from duramen.solvers.nearest import ScreenedCentres, nearest_of
from duramen.solvers.problem import Problem

__all__ = ["KMeansFit"]

_CORRECTIONS = 64  # after so many, sums are taken afresh
_FEW_ROWS = 512  # up to here one count of all sums takes less time than sparse products
_CANCELLED = 1e4  # how many times the cost its terms may be: the digits lost are those of 1e4


class KMeansFit(Fit):
    """Means of the kept points of each cluster, and all of it kept up to date."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem)
        self.nearest = nearest_of(problem.X, getattr(problem.loss, "k", 1))
        self.kept = problem.points.weights.copy()
        self.aside = np.empty(0, dtype=np.intp)  # rows of which weight is set aside
        self.sums = _ClusterSums(problem.X)

    def restart(self) -> None:
        """Forget what rounding makes dependent on the way that was taken: sums, and bounds that add up."""
        self.sums = _ClusterSums(self.problem.X)
        self.nearest = self.nearest.restarted()

    def losses(self, theta: Array) -> Array:
        self.nearest.move(theta)
        return self.nearest.squared()

    def evaluate(self, theta: Array) -> Place:
        moved = self.nearest.move(theta)
        rows, before = self._trim(moved)
        self.sums.update(rows, before, self.kept, self.nearest.numbers, theta)
        return Place(theta, np.empty(0), self.kept, self.sums.cost(theta))

    def refit(self, here: Place) -> Array:
        mass, means = self.sums.means()
        if not mass.all():
            here = here._replace(losses=self.nearest.squared())
        return refilled(means, mass, here, self.problem)

    def _trim(self, moved: Array) -> tuple[Array, Array]:
        """Set aside anew; return the rows that may count differently, and what was kept of them before."""
        weights = self.problem.points.weights
        if isinstance(self.nearest, ScreenedCentres):
            return self._trim_few(moved, weights)
        aside, kept = np.empty(0, dtype=np.intp), np.empty(0)
        if self.problem.z > 0:
            above, left = self.trim.among(self._beyond, self.nearest.squared)
            touched = np.flatnonzero(left < weights.take(above))
            aside, kept = above.take(touched), left.take(touched)
        mark = np.zeros(len(weights), dtype=bool)
        for rows in (moved, self.aside, aside):
            mark[rows] = True
        rows = np.flatnonzero(mark)
        before = self.kept.take(rows)
        self.kept[self.aside] = weights.take(self.aside)
        self.kept[aside] = kept
        self.aside = aside
        return rows, before

    def _trim_few(self, moved: Array, weights: Array) -> tuple[Array, Array]:
        """Do the same in fewer steps, each on all rows."""
        before, self.kept = self.kept, weights.copy()
        if self.problem.z > 0:
            above, left = self.trim.among(self._beyond, self.nearest.squared)
            self.kept[above] = left
        mark = before != self.kept
        mark[moved] = True
        rows = mark.nonzero()[0]
        return rows, before.take(rows)

    def _beyond(self, level: float) -> tuple[Array, Array]:
        rows, squared = self.nearest.beyond(float(np.sqrt(level)))
        above = squared >= level
        return (rows, squared) if above.all() else (rows[above], squared[above])


class _ClusterSums:
    """The sums M, S and Q of each cluster."""

    def __init__(self, X: Array) -> None:
        self.X = X
        self.owners = np.empty(0, dtype=np.intp)  # the cluster that each row is counted in
        self.corrections = 0

    def update(self, rows: Array, before: Array, kept: Array, numbers: Array, centres: Array) -> None:
        """Follow what happened to ``rows``, of which ``before`` was kept; all others are as they were."""
        if not len(self.owners) or self.corrections >= _CORRECTIONS:
            self._fill(kept, numbers, centres)
            return
        changed = ((self.owners.take(rows) != numbers.take(rows)) | (before != kept.take(rows))).nonzero()[0]
        rows, before = rows.take(changed), before.take(changed)
        if rows.size > len(kept) // 8:
            self._fill(kept, numbers, centres)
            return
        if rows.size:
            now = numbers.take(rows)
            self._exchange(rows, (self.owners.take(rows), -before), (now, kept.take(rows)))
            self.owners[rows] = now
        self.corrections += 1
        self.kept, self.numbers = kept, numbers

    def means(self) -> tuple[Array, Array]:
        """Give each cluster's weight (zero where it keeps no point), and the mean of its points."""
        mass = np.where(self.counts > 0, self.mass, 0.0)
        return mass, self.origins + self.total / np.where(mass > 0, mass, 1.0)[:, None]

    def cost(self, centres: Array) -> float:
        """Evaluate the cost of all kept points."""
        cost, terms = self._cost(centres)
        if cost * _CANCELLED < terms:
            self._fill(self.kept, self.numbers, centres)
            cost, _ = self._cost(centres)
        return max(float(cost), 0.0)

    def _cost(self, centres: Array) -> tuple[float, float]:
        gaps = centres - self.origins
        shift = self.mass @ row_products(gaps, gaps)
        cross = 2 * float((gaps * self.total).sum())
        squares = float(self.squares.sum())
        return squares - cross + shift, squares + abs(cross) + shift

    def _fill(self, kept: Array, numbers: Array, centres: Array) -> None:
        self.origins, self.corrections = centres, 0
        self.kept, self.numbers, self.owners = kept, numbers, numbers.copy()

        def work(chunk: slice) -> tuple[Array, ...]:
            return self._sums(self.X[chunk], numbers[chunk], kept[chunk])

        rows = rows_per_chunk(24 * self.X.shape[1])
        self.mass, self.total, self.squares, self.counts = sum_over_chunks(work, len(kept), rows)

    def _exchange(self, rows: Array, before: tuple[Array, Array], after: tuple[Array, Array]) -> None:
        """Add rows twice: to the clusters, with the weights, given as ``before``, then as ``after``."""
        if len(rows) <= _FEW_ROWS and self.X.shape[1] <= FEW_COLUMNS:
            parts = self._both_sums(take_rows(self.X, rows), before, after)
        else:
            parts = [self._chunked(rows, *side) for side in (before, after)]
        for mass, total, squares, counts in parts:
            self.mass = self.mass + mass
            self.total = self.total + total
            self.squares = self.squares + squares
            self.counts = self.counts + counts

    def _chunked(self, rows: Array, numbers: Array, weights: Array) -> tuple[Array, ...]:
        def work(chunk: slice) -> tuple[Array, ...]:
            return self._sums(take_rows(self.X, rows[chunk]), numbers[chunk], weights[chunk])

        return sum_over_chunks(work, len(rows), rows_per_chunk(24 * self.X.shape[1]))

    def _sums(self, block: Array, numbers: Array, weights: Array) -> tuple[Array, Array, Array, Array]:
        """Sum over a block; ``counts`` is how many points have weight, less those that lose it."""
        k = len(self.origins)
        gaps = block - self.origins.take(numbers, axis=0)
        gaps[(weights == 0).nonzero()] = 0.0  # of a row that is set aside, however far, nothing counts
        ends = np.arange(len(weights) + 1)
        total = sparse.csc_array((weights, numbers, ends), shape=(k, len(weights))) @ gaps
        mass = np.bincount(numbers, weights, minlength=k)
        squares = np.bincount(numbers, weights * row_products(gaps, gaps), minlength=k)
        counts = np.bincount(numbers, np.sign(weights), minlength=k)
        return mass, total, squares, counts

    def _both_sums(
        self, block: Array, before: tuple[Array, Array], after: tuple[Array, Array]
    ) -> list[tuple[Array, ...]]:
        """Do what ``_sums`` does, twice for a short block, in one count: sums in the order of the rows."""
        (k, d), width = self.origins.shape, self.origins.shape[1] + 3
        numbers, weights = np.concatenate((before[0], after[0])), np.concatenate((before[1], after[1]))
        gaps = np.concatenate((block, block)) - self.origins.take(numbers, axis=0)
        gaps[(weights == 0).nonzero()] = 0.0
        terms = np.empty((len(weights), width))
        np.multiply(gaps, weights[:, None], out=terms[:, :d])
        np.multiply(row_products(gaps, gaps), weights, out=terms[:, d])
        terms[:, d + 1], terms[:, d + 2] = weights, np.sign(weights)
        numbers[len(block) :] += k
        places = (numbers * width)[:, None] + np.arange(width)
        sums = np.bincount(places.ravel(), terms.ravel(), minlength=2 * k * width).reshape(2, k, width)
        total, (squares, mass, counts) = sums[:, :, :d].copy(), sums[:, :, d:].transpose(2, 0, 1).copy()
        return [(mass[side], total[side], squares[side], counts[side]) for side in (0, 1)]
