"""Samples that stand for the points: on them starts are sought and anchors fitted."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from duramen.losses.linear import LinearLoss
from duramen.points import WeightedPoints
from duramen.rows import Array
from duramen.solvers.problem import Problem
from duramen.trimming import trimmed_sum

__all__ = ["Sampler"]


class Sampler:
    """Draw points in proportion to their weight, with replacement; the weight to set aside shrinks along.

    A point drawn twice has weight 2. Where two classes are told apart, each has
    its share of the sample, exactly: the rare one does not go missing. A sample
    may hold more outliers than its share, so two standard deviations more may
    be set aside.
    """

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.total = problem.points.total_weight
        weights = problem.points.weights
        even = bool((weights == weights[0]).all())
        self.classes = isinstance(problem.loss, LinearLoss) and problem.loss.classifies
        if self.classes:
            assert problem.y is not None
            positive = problem.y > 0
            self.strata = [_Stratum(weights, np.flatnonzero(side), even) for side in (positive, ~positive)]
        else:
            self.strata = [_Stratum(weights, None, even)]

    def draw(self, size: int, rng: np.random.Generator) -> Problem:
        """Draw ``size`` points."""
        points, share = self.problem.points, size / self.total
        rows, counts = np.unique(
            np.concatenate([stratum.draw(share, rng) for stratum in self.strata]), return_counts=True
        )
        part = points.pick(rows, counts.astype(np.float64))
        z = min(self._aside(size), 0.9 * self._most(part))
        return replace(self.problem, points=part, z=z, l2=self.problem.l2 * share)

    def score(self, samples: list[Problem], theta: Array) -> float:
        """Evaluate the trimmed objective on all samples together.

        One of them alone may hold more outliers than may be set aside there.
        """
        losses = np.concatenate([part.loss.values(theta, part.X, part.y) for part in samples])
        weights = np.concatenate([part.points.weights for part in samples])
        return trimmed_sum(losses, weights, min(self._aside(weights.sum()), 0.9 * weights.sum()))

    def _aside(self, size: float) -> float:
        """Give the weight to set aside in a sample: its share, and two standard deviations."""
        z = self.problem.z * size / self.total
        return float(z + 2 * z**0.5)

    def _most(self, part: WeightedPoints) -> float:
        """Weigh what must not all be set aside: everything, or a class."""
        if not self.classes:
            return part.total_weight
        assert part.y is not None
        return float(np.bincount(part.y > 0, part.weights, minlength=2).min())


class _Stratum:
    """Rows (None for all) to draw from by weight; where all weigh the same, nothing is looked up."""

    def __init__(self, weights: Array, rows: Array | None, even: bool) -> None:
        self.rows, self.even = rows, even
        self.n = len(weights) if rows is None else len(rows)
        self.weights = weights if even or rows is None else weights[rows]
        self.total = self.n * float(weights[0]) if even else float(self.weights.sum())

    def draw(self, share: float, rng: np.random.Generator) -> Array:
        n = max(1, round(share * self.total))
        if self.even:
            picks = rng.integers(self.n, size=n)
        else:
            steps = np.cumsum(self.weights)
            picks = np.searchsorted(steps, rng.random(n) * steps[-1], side="right")
            picks = np.minimum(picks, np.flatnonzero(self.weights)[-1])
        return picks if self.rows is None else self.rows[picks]
