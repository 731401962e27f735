"""Starting centres: seedings, plain and robust against outliers.

Plain k-means++ draws far points, and outliers are far. Two remedies:

* thresholded k-means++ (Bhaskara, Vadgama and Xu 2019): a point's cost counts
  only up to a threshold, OPT / z for a guess of the optimum OPT. A geometric
  series of guesses is tried, and the one with the lowest trimmed cost wins.
* local search (Gupta et al. 2017): swap a centre for a point while that lowers
  the trimmed cost, with z set aside again for each swap. Candidates are drawn by
  their thresholded cost, as in Lattanzi and Sohler (2019), instead of trying all.

Costs are those of the loss itself, so all seedings serve k-median and Bregman
clustering too.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from duramen.arrays import Array, draw_distinct_rows, draw_rows
from duramen.losses.base import ignore_overflow
from duramen.losses.centres import least_two, squared_differences
from duramen.parallel import for_each_chunk, rows_per_chunk
from duramen.solvers.alternate import Stopping, alternate, fit_of
from duramen.trimming import Problem, Trimmer, kept_sum

_GUESSES = 4.0 ** -np.arange(6)  # of the optimum, as shares of the cost of one centre
_ROUNDING = 1e-9  # of all weight at the cap: far more than sums over the points lose to rounding
_SWAPS = 20  # candidates tried at least, and twice as many as centres: measured, in docs/solving.md
_REFITS = Stopping(max_iter=5)  # before a swap is judged


class Costs:
    """The cost of every point of a problem under single centres."""

    def __init__(self, problem: Problem) -> None:
        self.problem, self.X, self.weights, self.z = problem, problem.X, problem.points.weights, problem.z
        loss: Any = problem.loss
        self.loss, self.k, self.one = loss, loss.n_centres, loss.of_one_centre()
        self.trim = Trimmer(self.weights, self.z, np.arange(len(self.weights)))

    def centres_at(self, rows: Array) -> Array:
        """Make centres (q, d) from data points, moved off the edge of the domain where the loss has one."""
        centres = np.asarray(self.X[rows], dtype=np.float64, order="C")
        edge = self.loss.outside(centres).any(axis=1)
        if edge.any():
            centres[edge] = self.loss.inside(0.9 * centres[edge] + 0.1 * self._mean)
        return centres

    @functools.cached_property
    def _mean(self) -> Array:
        return np.average(self.X, axis=0, weights=self.weights)

    def of(self, centre: Array) -> Array:
        """Compute the cost of every point under one centre."""
        return self.of_each(centre[None])[0]

    def of_each(self, centres: Array) -> Array:
        """Compute the cost of every point under each of several centres: (q, n)."""
        costs = np.empty((len(centres), len(self.X)))

        def work(chunk: slice) -> None:
            costs[:, chunk] = self.loss.height(squared_differences(self.X[chunk], centres))

        if hasattr(self.loss, "height"):
            with ignore_overflow():
                for_each_chunk(work, len(self.X), rows_per_chunk(8 * (self.X.shape[1] + 3 * len(centres))))
        else:
            for row, centre in zip(costs, centres, strict=True):
                row[:] = self.one.values(centre[None], self.X)
        return costs

    def trimmed_sum(self, costs: Array) -> float:
        """Sum weight times cost once weight z is set aside."""
        return kept_sum(costs, self.trim(costs))

    def largest_kept(self, costs: Array) -> float:
        """Find the largest cost of the points that are not set aside entirely."""
        return float(costs[self.trim(costs) > 0].max(initial=0.0))

    def draw(self, costs: Array, n: int, rng: np.random.Generator) -> Array:
        """Draw rows in proportion to weight times cost; by weight alone if all costs are zero."""
        steps = np.cumsum(self.weights * costs)
        if not (0 < steps[-1] < np.inf):
            steps = np.cumsum(self.weights)
        return draw_rows(steps, n, rng)

    def draw_centre(self, rng: np.random.Generator) -> Array:
        """Draw a point by weight, as a centre."""
        return self.centres_at(self.draw(np.ones(len(self.weights)), 1, rng))[0]


def random_centres(costs: Costs, rng: np.random.Generator) -> Array:
    """Draw k points by their weight."""
    rows = draw_distinct_rows(costs.weights, costs.k, rng)
    return costs.centres_at(np.resize(rows, costs.k))


def plus_plus(costs: Costs, rng: np.random.Generator) -> Array:
    """Seed by k-means++, without regard to outliers: each centre is a point drawn by its cost so far."""
    return _grow(costs, np.inf, rng)[0]


def thresholded(costs: Costs, rng: np.random.Generator, rounds: int = 1) -> Array:
    """Seed by k-means++ with costs capped at a guess of the optimum over z, ``rounds`` times per guess."""
    if costs.z == 0:
        return _grow(costs, np.inf, rng)[0]
    first = costs.of(costs.draw_centre(rng))
    caps = costs.trimmed_sum(first) * _GUESSES / costs.z
    tried = [_grow(costs, cap, rng) for _ in range(rounds) for cap in caps]
    scores = [costs.trimmed_sum(least) for _, least in tried]
    return tried[int(np.argmin(scores))][0]


def _grow(costs: Costs, cap: float, rng: np.random.Generator) -> tuple[Array, Array]:
    """Add centres one by one: of a few points drawn by their capped cost, the one that leaves the least.

    Return the centres, and the cost of every point under its cheapest.
    """
    tries = 2 + int(np.log(costs.k))
    centres = [costs.draw_centre(rng)]
    least = costs.of(centres[0])
    while len(centres) < costs.k:
        rows = costs.draw(np.minimum(least, cap), tries, rng)
        candidates = costs.centres_at(rows)
        left = costs.of_each(candidates)
        np.minimum(left, least, out=left)
        chosen = int(np.argmin(np.minimum(left, cap) @ costs.weights))
        centres.append(candidates[chosen])
        least = left[chosen]
    return np.stack(centres), least


def local_search(costs: Costs, rng: np.random.Generator) -> Array:
    """Swap centres of the thresholded seeding for points, while that lowers the trimmed cost.

    A swap is judged after a few refits.
    """
    problem, fit, shape = costs.problem, fit_of(costs.problem), costs.problem.zero().shape
    run = alternate(problem, thresholded(costs, rng).reshape(shape), Stopping(), fit)
    cheapest = None
    for _ in range(min(max(_SWAPS, 2 * costs.k), 3 * _SWAPS)):
        swapped = run.theta.reshape(costs.k, -1).copy()
        cheapest = cheapest or least_two(costs.of_each(swapped))
        cap = run.objective / max(costs.z, 1.0)
        centre = costs.centres_at(costs.draw(np.minimum(cheapest[1], cap), 1, rng))[0]
        swapped[least_needed(costs, *cheapest, costs.of(centre))] = centre
        tried = alternate(problem, swapped.reshape(shape), _REFITS, fit)
        if tried.objective < run.objective:
            run, cheapest = tried, None
    return run.theta


def least_needed(costs: Costs, first: Array, cost: Array, second: Array, new: Array) -> int:
    """Find the centre whose replacement by a new one leaves the least trimmed cost.

    ``first`` is the cheapest centre of each point, ``cost`` its cost, and ``second`` that of the next one.
    Capped costs alone would make a centre on a far cluster of outliers look necessary. But they bound the
    trimmed cost: whatever weight z is set aside, it saves at most z caps more than capping does, so

        trimmed cost >= sum of w min(cost, cap) - z cap,

    for any cap. With one near the largest cost that is kept, few centres are left to evaluate.
    """
    least, without = np.minimum(cost, new), np.minimum(second, new)
    cap = costs.largest_kept(least)
    with ignore_overflow():  # an infinite cap bounds nothing
        capped = np.minimum(least, cap)
        rises = costs.weights * (np.minimum(without, cap) - capped)
        saved = (costs.z + _ROUNDING * float(costs.weights.sum())) * cap
        bounds = np.bincount(first, rises, minlength=costs.k) + (costs.weights @ capped - saved)
    best = np.inf, costs.k
    for centre in np.argsort(bounds):
        if not bounds[centre] > best[0]:
            left = costs.trimmed_sum(np.where(first == centre, without, least))
            best = min(best, (left, int(centre)))
    return best[1]


SEEDINGS: dict[str, Callable[[Costs, np.random.Generator], Array]] = {
    "local-search": local_search,
    "thresholded": thresholded,
    "k-means++": plus_plus,
    "random": random_centres,
}


def seed(name: str, problem: Problem, rng: np.random.Generator) -> Array:
    """Choose centres by the seeding of that name."""
    return SEEDINGS[name](Costs(problem), rng).reshape(problem.zero().shape)
