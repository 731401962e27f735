"""Refit centres: k-means--, Weiszfeld's iteration and its variants, and means for Bregman divergences."""

from __future__ import annotations

from typing import Any

import numpy as np

from duramen.arrays import Array, row_products, take_rows
from duramen.losses.centres import CentreLoss
from duramen.losses.nearest import sum_by_centre
from duramen.parallel import rows_per_chunk, sum_over_chunks
from duramen.solvers.nearest import nearest_of
from duramen.solvers.problem import Fit, Iterate, Problem
from duramen.trimming import kept_sum

# of the mean distance: a centre this close to a point lies on it, or beside it
_COINCIDENT, _BESIDE = 1e-12, 1e-3
_CORRECTIONS = 64  # after so many, sums are computed from scratch
_CANCELLED = 1e4  # how many times the cost its terms may be: cancellation then loses four digits


class MeanFit(Fit):
    """Means of the points each centre owns: the best centres for any Bregman divergence."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem)
        assert isinstance(problem.loss, CentreLoss)
        self.loss: Any = problem.loss
        self.numbers = np.empty(0, dtype=np.intp)  # of the centre that owns each point

    def losses(self, theta: Array) -> Array:
        values, numbers = self.loss.values_and_cache(theta, self.problem.X)
        self.numbers = numbers.astype(np.intp)
        return values

    def refit(self, here: Iterate) -> Array:
        centres = here.theta.reshape(-1, self.problem.points.n_columns)
        mass, means = self.means(centres, here.kept)
        return self.loss.inside(refill(means, mass, here, self.problem)).reshape(here.theta.shape)

    def means(self, centres: Array, weights: Array) -> tuple[Array, Array]:
        """Compute the weight of each cluster, and the weighted mean of its points."""
        mass, total = cluster_sums(self.problem.X, self.numbers, weights, centres)
        return mass, centres + total / np.where(mass > 0, mass, 1.0)[:, None]


class DistanceFit(MeanFit):
    """Means weighted by the slope of each point's loss: Weiszfeld's iteration and its variants."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem)
        self.nearest = nearest_of(problem.X, self.loss.n_centres)
        self.numbers = self.nearest.numbers
        self.squared = np.empty(0)
        # the slope of h at a distance of zero: 1 for k-median, which has a kink there
        self.kink = float(self.loss.pull(np.array([1e-200]))[0]) * 1e-100

    def restart(self) -> None:
        self.nearest.restart()

    def losses(self, theta: Array) -> Array:
        self.nearest.move(theta.reshape(-1, self.problem.points.n_columns))
        self.squared = self.nearest.squared()
        return self.loss.height(self.squared)

    def means(self, centres: Array, weights: Array) -> tuple[Array, Array]:
        pulls = weights * self.loss.pull(self.squared)
        if self.kink > 1e-50:
            return self._past_kinks(centres, weights, pulls)
        return super().means(centres, pulls)

    def _past_kinks(self, centres: Array, kept: Array, pulls: Array) -> tuple[Array, Array]:
        """Compute weighted means where a point under or beside a centre holds it back.

        Vardi and Zhang (2000): with R the pull of the other points, a centre on a point of weight w stays
        there if ``w >= |R|``; else it moves ``1 - w / |R|`` of the way that the others pull it.
        Beside a point, where its pull is finite but immense, a centre would leave it in tiny steps only,
        so it moves as freely there too. Where the points beside it do hold it, they pull like any other.
        """
        numbers, k = self.numbers, len(centres)
        distances = np.sqrt(self.squared)
        scale = kept_sum(distances, kept) / max(float(kept.sum()), np.finfo(np.float64).tiny)
        beside = np.flatnonzero(distances <= _BESIDE * scale)
        hold = self.kink * np.bincount(numbers[beside], kept[beside], minlength=k)
        rest = pulls.copy()
        rest[beside] = 0.0
        mass, total = cluster_sums(self.problem.X, numbers, rest, centres)
        means = centres + _free_step(total, mass, hold)
        escaping = np.linalg.norm(total, axis=1) > hold
        near = beside[(distances[beside] > _COINCIDENT * scale) & ~escaping[numbers[beside]]]
        if near.size:
            more, added = cluster_sums(take_rows(self.problem.X, near), numbers[near], pulls[near], centres)
            under = hold - self.kink * np.bincount(numbers[near], kept[near], minlength=k)
            moved = centres + _free_step(total + added, mass + more, under)
            means = np.where((more > 0)[:, None], moved, means)
        return mass + hold, means


def _free_step(total: Array, mass: Array, hold: Array) -> Array:
    """Step as far towards the weighted means as the pull exceeds what holds the centres back."""
    pull = np.linalg.norm(total, axis=1)
    free = pull > hold
    part = np.where(free, 1 - np.divide(hold, pull, out=np.zeros_like(pull), where=free), 0.0)
    return part[:, None] * total / np.where(mass > 0, mass, 1.0)[:, None]


def cluster_sums(X: Array, numbers: Array, weights: Array, centres: Array) -> tuple[Array, Array]:
    """Compute the weight of each cluster (k,), and the weighted sum of its rows less its centre (k, d).

    The difference is taken row by row, so that data far from the origin lose no digits.
    """

    def work(chunk: slice) -> tuple[Array, Array]:
        gaps = X[chunk] - centres.take(numbers[chunk], axis=0)
        return _sum_clusters(gaps, numbers[chunk], weights[chunk], len(centres))

    mass, total = sum_over_chunks(work, len(weights), rows_per_chunk(16 * X.shape[1]))
    return mass, total


def _sum_clusters(gaps: Array, numbers: Array, weights: Array, k: int) -> tuple[Array, Array]:
    gaps[(weights == 0).nonzero()] = 0.0  # a row that is set aside, however far, does not count
    return np.bincount(numbers, weights, minlength=k), sum_by_centre(gaps, numbers, weights, k)


def refill(centres: Array, mass: Array, here: Iterate, problem: Problem) -> Array:
    """Move each centre without kept points to the kept point with the largest remaining loss."""
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


class KMeansFit(DistanceFit):
    """Means of the kept points of each cluster, updated by the rows that changed."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem)
        self.kept = problem.points.weights.copy()
        self.aside = np.empty(0, dtype=np.intp)  # rows whose weight is set aside
        self.sums = _ClusterSums(problem.X, self.numbers, self.kept)

    def restart(self) -> None:
        super().restart()
        self.sums.corrections = _CORRECTIONS

    def evaluate(self, theta: Array) -> Iterate:
        self.sums.update(*self._trim(self.nearest.move(theta)), theta)
        return Iterate(theta, np.empty(0), self.kept, self.sums.cost(theta))

    def refit(self, here: Iterate) -> Array:
        mass, means = self.sums.means()
        if not mass.all():
            here = here._replace(losses=self.nearest.squared())
        return refill(means, mass, here, self.problem)

    def _trim(self, moved: Array) -> tuple[Array, Array]:
        """Set weight aside; return the rows that may have changed, and what was kept of them before."""
        weights = self.problem.points.weights
        aside, kept = np.empty(0, dtype=np.intp), np.empty(0)
        if self.problem.z > 0:
            above, left = self.trim.among(self.nearest.beyond, self.nearest.squared)
            touched = (left < weights.take(above)).nonzero()[0]
            aside, kept = above.take(touched), left.take(touched)
        changed = np.zeros(len(weights), dtype=bool)
        for rows in (moved, self.aside, aside):
            changed[rows] = True
        rows = changed.nonzero()[0]
        before = self.kept.take(rows)
        self.kept[self.aside] = weights.take(self.aside)
        self.kept[aside] = kept
        self.aside = aside
        return rows, before


class _ClusterSums:
    """For each cluster: weight, weighted sum and sum of squares of its rows less an origin.

    ``numbers`` and ``kept``, the cluster of each row and its kept weight, change in place.
    """

    def __init__(self, X: Array, numbers: Array, kept: Array) -> None:
        self.X, self.numbers, self.kept = X, numbers, kept
        self.corrections = _CORRECTIONS  # since the sums were computed from scratch
        self.sums: list[Array] = []

    def update(self, rows: Array, before: Array, centres: Array) -> None:
        """Account for the change of ``rows``, of which ``before`` was kept; all others are unchanged."""
        if self.corrections >= _CORRECTIONS:
            self._fill(centres)
            return
        numbers, kept = self.numbers.take(rows), self.kept.take(rows)
        changed = ((self.owners.take(rows) != numbers) | (before != kept)).nonzero()[0]
        if changed.size > len(self.kept) // 8:
            self._fill(centres)
            return
        if changed.size:
            rows, numbers = rows.take(changed), numbers.take(changed)
            owners = np.concatenate((self.owners.take(rows), numbers))
            weights = np.concatenate((-before.take(changed), kept.take(changed)))
            self.owners[rows] = numbers
            parts = self._sum(np.concatenate((rows, rows)), owners, weights)
            self.sums = [one + other for one, other in zip(self.sums, parts, strict=True)]
        self.corrections += 1

    def means(self) -> tuple[Array, Array]:
        """Compute the weight of each cluster (zero where it keeps no point), and the mean of its points."""
        mass, total, counts = self.sums
        mass = np.where(counts > 0, mass, 0.0)
        return mass, self.origins + total[:, :-1] / np.where(mass > 0, mass, 1.0)[:, None]

    def cost(self, centres: Array) -> float:
        """Evaluate the cost of all kept points."""
        cost, terms = self._cost(centres)
        if cost * _CANCELLED < terms:
            self._fill(centres)
            cost, _ = self._cost(centres)
        return max(float(cost), 0.0)

    def _cost(self, centres: Array) -> tuple[float, float]:
        mass, total, _ = self.sums
        gaps = centres - self.origins
        shift = float(mass @ row_products(gaps, gaps))
        cross = 2 * float((gaps * total[:, :-1]).sum())
        squares = float(total[:, -1].sum())
        return squares - cross + shift, squares + abs(cross) + shift

    def _fill(self, centres: Array) -> None:
        self.origins, self.corrections = centres, 0
        self.owners = self.numbers.copy()  # the cluster that each row is counted in
        self.sums = self._sum(None, self.numbers, self.kept)

    def _sum(self, rows: Array | None, numbers: Array, weights: Array) -> list[Array]:
        """Sum over ``rows`` (None for all), for each cluster.

        Return its weight (k,), the sums of the gaps to its origin and, last, of their squares (k, d + 1), and
        how many points have weight, less those that lose it (k,).
        """
        k, d = self.origins.shape

        def work(chunk: slice) -> tuple[Array, ...]:
            owners, parts = numbers[chunk], weights[chunk]
            block = self.X[chunk] if rows is None else take_rows(self.X, rows[chunk])
            gaps = np.empty((len(block), d + 1))
            np.subtract(block, self.origins.take(owners, axis=0), out=gaps[:, :d])
            gaps[:, d] = row_products(gaps[:, :d], gaps[:, :d])
            counts = np.bincount(owners, np.sign(parts), minlength=k)
            return *_sum_clusters(gaps, owners, parts, k), counts

        return list(sum_over_chunks(work, len(weights), rows_per_chunk(24 * d)))
