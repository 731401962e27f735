"""Where to start with centres: seedings, with and without an eye on outliers.

Plain k-means++ draws far points, and outliers are far. Two remedies:

* thresholded k-means++ (Bhaskara, Vadgama and Xu 2019): a point's cost counts
  only up to a threshold, OPT / z for a guess of the optimum OPT. All guesses in
  a geometric row are tried, and the one with the lowest trimmed cost wins.
* local search (Gupta et al. 2017): swap a centre for a point while that lowers
  the trimmed cost, z set aside afresh for each swap. Candidates are drawn by
  their thresholded cost, as in Lattanzi and Sohler (2019), instead of all tried,
  and a swap is judged after a few refits.

Costs are those of the loss itself, so that all of them serve k-median and
Bregman clustering too.
"""

from __future__ import annotations

import functools
from dataclasses import replace
from typing import Any

import numpy as np

from duramen.losses.bregman import BregmanLoss
from duramen.losses.distance import DistanceLoss
from duramen.losses.nearest import FEW_COLUMNS, squared_differences
from duramen.rows import Array
from duramen.solvers.alternating import Stopping, alternate
from duramen.solvers.centres import cluster_sums
from duramen.solvers.problem import Problem
from duramen.trimming import trimmed_sum

__all__ = ["SEEDINGS", "local_search", "plus_plus", "random_centres", "thresholded"]

_GUESSES = 4.0 ** -np.arange(6)  # of the optimum, as shares of the cost of one centre
_SWAPS = 20  # candidates tried at least, and twice as many as centres: measured, in docs/solving.md
_AT_ONCE = 1 << 14  # rows up to which the costs of several centres are computed together
_REFITS = 5  # iterations before a swap is judged


class _Costs:
    """The cost of every point under single centres."""

    def __init__(self, problem: Problem) -> None:
        self.X, self.weights, self.z = problem.X, problem.points.weights, problem.z
        self.k = int(getattr(problem.loss, "k", 1))
        loss: Any = problem.loss
        self.loss, self.one = loss, replace(loss, k=1) if hasattr(loss, "k") else loss

    def centre(self, row: int) -> Array:
        """Make a centre of a data point, moved off the edge of the domain where the loss has one."""
        here = np.asarray(self.X[row], dtype=np.float64)
        if isinstance(self.loss, BregmanLoss) and self.loss.divergence.outside_centres(here[None]).any():
            return self.loss.divergence.inside(0.9 * here + 0.1 * self._middle)
        return here

    @functools.cached_property
    def _middle(self) -> Array:
        mass, total = cluster_sums(
            self.X, np.zeros(len(self.X), dtype=np.intp), self.weights, np.zeros((1, self.X.shape[1]))
        )
        return total[0] / mass[0]

    def theta(self, centres: Array) -> Array:
        """Give centres (k, d) the shape that the loss takes."""
        return centres.reshape(self.loss.parameter_shape(centres.shape[1]))

    def centres(self, theta: Array) -> Array:
        """Give theta the shape (k, d)."""
        return theta.reshape(self.k, -1)

    def of(self, centre: Array) -> Array:
        """Compute the cost of every point under one centre."""
        theta = centre.reshape(self.one.parameter_shape(len(centre)))
        return self.one.values(theta, self.X).astype(np.float64)

    def of_each(self, centres: Array) -> Array:
        """Compute the cost of every point under each of some centres: (q, n)."""
        few = len(self.X) <= _AT_ONCE and self.X.shape[1] <= FEW_COLUMNS
        if not (few and isinstance(self.loss, DistanceLoss)):
            return np.stack([self.of(centre) for centre in centres])
        with np.errstate(over="ignore", under="ignore", invalid="ignore"):
            return self.loss.height(squared_differences(self.X, centres)).astype(np.float64, copy=False)

    def table(self, theta: Array) -> Array:
        """Compute the cost of every point under each centre: (k, n)."""
        return self.of_each(self.centres(theta))

    def trimmed(self, costs: Array) -> float:
        return trimmed_sum(costs, self.weights, self.z)

    def draw(self, costs: Array, n: int, rng: np.random.Generator) -> Array:
        """Draw rows in proportion to weight times cost; by weight alone where nothing costs anything."""
        steps = np.cumsum(self.weights * costs)
        if not (0 < steps[-1] < np.inf):
            steps = np.cumsum(self.weights)
        picks = np.searchsorted(steps, rng.random(n) * steps[-1], side="right")
        return np.minimum(picks, len(steps) - 1)


def random_centres(problem: Problem, rng: np.random.Generator) -> Array:
    """Draw k points by their weight."""
    costs = _Costs(problem)
    heavy = np.flatnonzero(costs.weights > 0)
    share = costs.weights[heavy] / costs.weights[heavy].sum()
    rows = rng.choice(heavy, size=min(costs.k, heavy.size), replace=False, p=share)
    return costs.theta(np.stack([costs.centre(row) for row in np.resize(rows, costs.k)]))


def plus_plus(problem: Problem, rng: np.random.Generator) -> Array:
    """k-means++, blind to outliers: each centre is a point drawn by its cost so far."""
    costs = _Costs(problem)
    return costs.theta(_grown(costs, np.inf, rng))


def thresholded(problem: Problem, rng: np.random.Generator, rounds: int = 1) -> Array:
    """k-means++ with costs capped at a guess of the optimum over z; the best of several guesses.

    Each guess is tried ``rounds`` times.
    """
    costs = _Costs(problem)
    return costs.theta(_best_guess(costs, rng, rounds))


def local_search(problem: Problem, rng: np.random.Generator) -> Array:
    """Swap centres of the thresholded seeding for points, while that lowers the trimmed cost."""
    costs = _Costs(problem)
    run = alternate(problem, costs.theta(_best_guess(costs, rng)), Stopping())
    for _ in range(min(max(_SWAPS, 2 * costs.k), 3 * _SWAPS)):
        table = costs.table(run.theta)
        cap = run.objective / max(costs.z, 1.0)
        row = costs.draw(np.minimum(table.min(axis=0), cap), 1, rng)[0]
        swapped = costs.centres(run.theta).copy()
        swapped[_least_missed(costs, table, costs.of(costs.centre(row)))] = costs.centre(row)
        tried = alternate(problem, costs.theta(swapped), Stopping(max_iter=_REFITS))
        if tried.objective < run.objective:
            run = tried
    return run.theta


SEEDINGS = {
    "local-search": local_search,
    "thresholded": thresholded,
    "k-means++": plus_plus,
    "random": random_centres,
}


def _best_guess(costs: _Costs, rng: np.random.Generator, rounds: int = 1) -> Array:
    if costs.z == 0:
        return _grown(costs, np.inf, rng)
    first = costs.of(costs.centre(costs.draw(np.ones(len(costs.weights)), 1, rng)[0]))
    caps = costs.trimmed(first) * _GUESSES / costs.z
    tried = [_grown(costs, cap, rng) for _ in range(rounds) for cap in caps]
    scores = [costs.trimmed(costs.table(centres).min(axis=0)) for centres in tried]
    return tried[int(np.argmin(scores))]


def _grown(costs: _Costs, cap: float, rng: np.random.Generator) -> Array:
    """Add centre after centre: of a few points drawn by their capped cost, the one that leaves the least."""
    tries = 2 + int(np.log(costs.k))
    centres = [costs.centre(costs.draw(np.ones(len(costs.weights)), 1, rng)[0])]
    least = costs.of(centres[0])
    while len(centres) < costs.k:
        rows = costs.draw(np.minimum(least, cap), tries, rng)
        candidates = np.stack([costs.centre(row) for row in rows])
        left = np.minimum(least, costs.of_each(candidates))
        chosen = int(np.argmin(np.minimum(left, cap) @ costs.weights))
        centres.append(candidates[chosen])
        least = left[chosen]
    return np.stack(centres)


def _least_missed(costs: _Costs, table: Array, new: Array) -> int:
    """Find the centre of ``table`` (k, n) without which, once a new one is there, the trimmed cost is least.

    By the trimmed cost itself: capped costs would make a centre on a far cluster of outliers look needed.
    """
    first, every = table.argmin(axis=0), np.arange(table.shape[1])
    least = np.minimum(table[first, every], new)
    table[first, every] = np.inf
    without = np.minimum(table.min(axis=0), new)
    left = [costs.trimmed(np.where(first == centre, without, least)) for centre in range(len(table))]
    return int(np.argmin(left))
