"""Refitting centres: Weiszfeld's iteration and its kin, and means for Bregman divergences.

All losses of the distance t to the nearest centre that are concave in t^2 are
fitted by one iteration: with the weights w h'(t) / t of the points a centre
owns, the next centre is their weighted mean. It never raises the objective,
because the tangent of h at t^2 lies above h. For k-median this is Weiszfeld's
iteration, for truth discovery the iteration of that field: the mean of the
claims, each by the reliability of its source; for k-means it is the mean
itself, and has a module of its own. The best centre for a Bregman divergence is
the mean too, whatever the divergence (Banerjee et al. 2005).
"""

from __future__ import annotations

import numpy as np
from scipy import sparse

from duramen.chunks import rows_per_chunk, sum_over_chunks
from duramen.losses.bregman import BregmanLoss
from duramen.losses.distance import DistanceLoss
from duramen.rows import Array, take_rows
from duramen.solvers.fit import Fit, Place
from duramen.solvers.nearest import nearest_of
from duramen.solvers.problem import Problem
from duramen.trimming import kept_sum

__all__ = ["BregmanFit", "DistanceFit", "cluster_sums", "refilled"]

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
        values, numbers = self.loss.assigned(theta, self.problem.X)
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
