"""Refit centres: k-means--, Weiszfeld's iteration and its kin, and means for Bregman divergences."""

from __future__ import annotations

import numpy as np
from scipy import sparse

from duramen.arrays import Array, row_products, take_rows
from duramen.losses.bregman import BregmanLoss
from duramen.losses.centres import DistanceLoss
from duramen.losses.nearest import FEW_COLUMNS
from duramen.parallel import rows_per_chunk, sum_over_chunks
from duramen.solvers.nearest import ScreenedCentres, nearest_of
from duramen.solvers.problem import Fit, Place, Problem
from duramen.trimming import kept_sum

__all__ = ["BregmanFit", "DistanceFit", "KMeansFit", "cluster_sums", "refilled"]


# of the mean distance: a centre this close to a point lies on it, or beside it
_COINCIDENT, _BESIDE = 1e-12, 1e-3


class DistanceFit(Fit):
    """Weighted means of the points each centre owns."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem)
        assert isinstance(problem.loss, DistanceLoss)
        self.loss = problem.loss
        self.nearest = nearest_of(problem.X, int(getattr(problem.loss, "k", 1)))
        self.squared = np.empty(0)
        # the slope of h at a distance of zero: 1 for k-median, which has a kink there
        self.kink = float(self.loss.pull(np.array([1e-200]))[0]) * 1e-100

    def restart(self) -> None:
        """Forget bounds that add up."""
        self.nearest = self.nearest.restarted()

    def losses(self, theta: Array) -> Array:
        self.nearest.move(self._centres(theta))
        self.squared = self.nearest.squared()
        return self.loss.height(self.squared)

    def refit(self, here: Place) -> Array:
        centres = self._centres(here.theta)
        pulls = here.kept * self.loss.pull(self.squared)
        if self.kink > 1e-50:
            means, mass = self._past_kinks(centres, here.kept, pulls)
        else:
            mass, total = cluster_sums(self.problem.X, self.nearest.numbers, pulls, centres)
            means = centres + total / np.where(mass > 0, mass, 1.0)[:, None]
        return refilled(means, mass, here, self.problem).reshape(here.theta.shape)

    def _past_kinks(self, centres: Array, kept: Array, pulls: Array) -> tuple[Array, Array]:
        """Take weighted means where a point under or beside a centre holds it back.

        Vardi and Zhang (2000): with R the pull of the other points, a centre on a point of weight w stays
        there if ``w >= |R|``; else it is free to move ``1 - w / |R|`` of the way that the others ask for.
        Beside a point, where its pull is finite but immense, a centre would leave it in tiny steps only,
        so it takes the free way there too. Where the points beside it do hold it, they pull like any other.
        """
        numbers, k = self.nearest.numbers, len(centres)
        distances = np.sqrt(self.squared)
        scale = kept_sum(distances, kept) / max(float(kept.sum()), np.finfo(np.float64).tiny)
        beside = np.flatnonzero(distances <= _BESIDE * scale)
        held = self.kink * np.bincount(numbers[beside], kept[beside], minlength=k)
        rest = pulls.copy()
        rest[beside] = 0.0
        mass, total = cluster_sums(self.problem.X, numbers, rest, centres)
        means = centres + _free_step(total, mass, held)
        escaping = np.linalg.norm(total, axis=1) > held
        near = beside[(distances[beside] > _COINCIDENT * scale) & ~escaping[numbers[beside]]]
        if near.size:
            more, added = cluster_sums(take_rows(self.problem.X, near), numbers[near], pulls[near], centres)
            under = held - self.kink * np.bincount(numbers[near], kept[near], minlength=k)
            moved = centres + _free_step(total + added, mass + more, under)
            means = np.where((more > 0)[:, None], moved, means)
        return means, mass + held

    def _centres(self, theta: Array) -> Array:
        return theta.reshape(-1, self.problem.points.n_columns)


def _free_step(total: Array, mass: Array, held: Array) -> Array:
    """Step as far towards the weighted means as the pull exceeds what holds the centres back."""
    pull = np.linalg.norm(total, axis=1)
    free = pull > held
    part = np.where(free, 1 - np.divide(held, pull, out=np.zeros_like(pull), where=free), 0.0)
    return part[:, None] * total / np.where(mass > 0, mass, 1.0)[:, None]


class BregmanFit(Fit):
    """Means of the points each centre owns, for any Bregman divergence."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem)
        assert isinstance(problem.loss, BregmanLoss)
        self.loss = problem.loss
        self.numbers = np.empty(0, dtype=np.intp)

    def losses(self, theta: Array) -> Array:
        values, numbers = self.loss.values_and_cache(theta, self.problem.X)
        self.numbers = numbers.astype(np.intp)
        return values

    def refit(self, here: Place) -> Array:
        mass, total = cluster_sums(self.problem.X, self.numbers, here.kept, here.theta)
        means = here.theta + total / np.where(mass > 0, mass, 1.0)[:, None]
        return self.loss.divergence.inside(refilled(means, mass, here, self.problem))


def cluster_sums(X: Array, numbers: Array, weights: Array, centres: Array) -> tuple[Array, Array]:
    """Give each cluster's weight (k,), and the weighted sum of its rows less its centre (k, d).

    The difference is taken row by row, so that data far from the origin lose no digits.
    """
    k = len(centres)

    def work(chunk: slice) -> tuple[Array, Array]:
        owners, heavy = numbers[chunk], weights[chunk]
        gaps = X[chunk] - centres.take(owners, axis=0)
        gaps[(heavy == 0).nonzero()] = 0.0  # of a row that is set aside, however far, nothing counts
        ends = np.arange(len(heavy) + 1)
        total = sparse.csc_array((heavy, owners, ends), shape=(k, len(heavy))) @ gaps
        return np.bincount(owners, heavy, minlength=k), total

    mass, total = sum_over_chunks(work, len(weights), rows_per_chunk(16 * X.shape[1]))
    return mass, total


def refilled(centres: Array, mass: Array, here: Place, problem: Problem) -> Array:
    """Put each centre that owns no kept point on the kept point with the largest loss that is left."""
    filled = mass > 0
    if filled.all():
        return centres
    empty = np.flatnonzero(~filled)
    worst = np.where(here.kept > 0, here.losses, -1.0)
    most = min(empty.size, len(worst))
    far = np.argpartition(worst, -most)[-most:]
    far = far[np.argsort(-worst[far], kind="stable")]
    far = far[worst[far] > 0]
    centres = centres.copy()
    centres[empty[: far.size]] = problem.X[far]
    return centres


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
