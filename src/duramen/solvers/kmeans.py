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
from duramen.rows import Array, row_products, take_rows
from duramen.solvers.centres import refilled
from duramen.solvers.fit import Fit, Place
from duramen.solvers.nearest import NearestCentres
from duramen.solvers.problem import Problem

__all__ = ["KMeansFit"]

_CORRECTIONS = 64  # after so many, sums are taken afresh
_CANCELLED = 1e4  # how many times the cost its terms may be: the digits lost are those of 1e4


class KMeansFit(Fit):
    """Means of the kept points of each cluster, and all of it kept up to date."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem)
        self.nearest = NearestCentres(problem.X)
        self.kept = problem.points.weights.copy()
        self.aside = np.empty(0, dtype=np.intp)  # rows of which weight is set aside
        self.sums = _ClusterSums(problem.X)

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
        changed = np.flatnonzero((self.owners.take(rows) != numbers.take(rows)) | (before != kept.take(rows)))
        rows, before = rows.take(changed), before.take(changed)
        if rows.size > len(kept) // 8:
            self._fill(kept, numbers, centres)
            return
        self._add(rows, self.owners[rows], -before)
        self._add(rows, numbers[rows], kept[rows])
        self.owners[rows] = numbers[rows]
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

    def _add(self, rows: Array, numbers: Array, weights: Array) -> None:
        def work(chunk: slice) -> tuple[Array, ...]:
            return self._sums(take_rows(self.X, rows[chunk]), numbers[chunk], weights[chunk])

        if not rows.size:
            return
        mass, total, squares, counts = sum_over_chunks(work, len(rows), rows_per_chunk(24 * self.X.shape[1]))
        self.mass = self.mass + mass
        self.total = self.total + total
        self.squares = self.squares + squares
        self.counts = self.counts + counts

    def _sums(self, block: Array, numbers: Array, weights: Array) -> tuple[Array, Array, Array, Array]:
        """Sum over a block; ``counts`` is how many points have weight, less those that lose it."""
        k = len(self.origins)
        gaps = block - self.origins.take(numbers, axis=0)
        gaps[weights == 0] = 0.0  # of a row that is set aside, however far, nothing counts
        ends = np.arange(len(weights) + 1)
        total = sparse.csc_array((weights, numbers, ends), shape=(k, len(weights))) @ gaps
        mass = np.bincount(numbers, weights, minlength=k)
        squares = np.bincount(numbers, weights * row_products(gaps, gaps), minlength=k)
        counts = np.bincount(numbers, np.sign(weights), minlength=k)
        return mass, total, squares, counts
