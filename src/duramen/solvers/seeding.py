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
from typing import Any, NamedTuple

import numpy as np

from duramen.arrays import Array, draw_distinct_rows, draw_rows
from duramen.losses.base import ignore_overflow
from duramen.losses.centres import FEW_COLUMNS, squared_differences
from duramen.trimming import Problem, Trimmer, kept_sum

_GUESSES = 4.0 ** -np.arange(6)  # of the optimum, as shares of the cost of one centre
_AT_ONCE = 1 << 14  # rows up to which the costs of several centres are computed together
_ROUNDING = 1e-9  # of all weight at the cap: far more than sums over the points lose to rounding


class Costs:
    """The cost of every point under single centres."""

    def __init__(self, problem: Problem) -> None:
        self.X, self.weights, self.z = problem.X, problem.points.weights, problem.z
        loss: Any = problem.loss
        self.k = loss.n_centres
        self.loss, self.one = loss, loss.of_one_centre()
        small = len(self.X) <= _AT_ONCE and self.X.shape[1] <= FEW_COLUMNS
        self.few = small and hasattr(loss, "height")
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
        if not self.few:
            costs = np.empty((len(centres), len(self.X)))
            for row, centre in zip(costs, centres, strict=True):
                row[:] = self.one.values(centre.reshape(self.one.parameter_shape(len(centre))), self.X)
            return costs
        with ignore_overflow():
            squared = squared_differences(self._columns, centres)
            return self.loss.height(squared).astype(np.float64, copy=False)

    @functools.cached_property
    def _columns(self) -> Array:
        return np.asfortranarray(self.X)

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


class CheapestTwo(NamedTuple):
    """For each column of a table (k, n) of costs: the cheapest centre, its cost, and that of the next one."""

    first: Array
    least: Array
    second: Array

    @classmethod
    def of(cls, table: Array) -> CheapestTwo:
        """Find them in a table, which is overwritten."""
        first, every = table.argmin(axis=0), np.arange(table.shape[1])
        least = table[first, every]
        table[first, every] = np.inf
        return cls(first, least, table.min(axis=0))


def least_needed(costs: Costs, cheapest: CheapestTwo, new: Array) -> int:
    """Find the centre whose replacement by a new one leaves the least trimmed cost.

    Capped costs alone would make a centre on a far cluster of outliers look necessary. But they bound the
    trimmed cost: whatever weight z is set aside, it saves at most z caps more than capping does, so

        trimmed cost >= sum of w min(cost, cap) - z cap,

    for any cap. With one near the largest cost that is kept, few centres are left to evaluate.
    """
    least, without = np.minimum(cheapest.least, new), np.minimum(cheapest.second, new)
    cap = costs.largest_kept(least)
    with ignore_overflow():  # an infinite cap bounds nothing
        capped = np.minimum(least, cap)
        rises = costs.weights * (np.minimum(without, cap) - capped)
        saved = (costs.z + _ROUNDING * float(costs.weights.sum())) * cap
        bounds = np.bincount(cheapest.first, rises, minlength=costs.k) + (costs.weights @ capped - saved)
    best = np.inf, costs.k
    for centre in np.argsort(bounds):
        if not bounds[centre] > best[0]:
            left = costs.trimmed_sum(np.where(cheapest.first == centre, without, least))
            best = min(best, (left, int(centre)))
    return best[1]
