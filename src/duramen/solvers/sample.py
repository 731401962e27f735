"""A sample that stands for the points: on it starts are sought and anchors fitted."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from duramen.losses.linear import LinearLoss
from duramen.points import WeightedPoints
from duramen.rows import Array
from duramen.solvers.problem import Problem

__all__ = ["sampled"]


def sampled(problem: Problem, size: int, rng: np.random.Generator) -> Problem:
    """Draw ``size`` points in proportion to their weight, with replacement; the weight to set aside shrinks along.

    A point drawn twice has weight 2. Where two classes are told apart, each has
    its share of the sample, exactly: the rare one does not go missing. A drawn
    sample may hold somewhat more outliers than its share, so somewhat more
    may be set aside: two standard deviations.
    """
    points = problem.points
    share = size / points.total_weight
    rows, weights = _drawn(problem, size, rng)
    y = None if points.y is None else points.y[rows]
    part = WeightedPoints._trusted(points.X[rows], y, weights, points.ids[rows])
    z = problem.z * share
    return replace(problem, points=part, z=_bounded(z + 2 * z**0.5, problem, part), l2=problem.l2 * share)


def _drawn(problem: Problem, size: int, rng: np.random.Generator) -> tuple[Array, Array]:
    weights = problem.points.weights
    groups = [np.ones(len(weights), dtype=bool)]
    if isinstance(problem.loss, LinearLoss) and problem.loss.classifies and problem.points.y is not None:
        positive = problem.points.y > 0
        groups = [positive, ~positive]
    total = weights.sum()
    counts = np.zeros(len(weights), dtype=np.int64)
    for group in groups:
        steps = np.cumsum(np.where(group, weights, 0.0))
        n = max(1, round(size * steps[-1] / total))
        picks = np.searchsorted(steps, rng.random(n) * steps[-1], side="right")
        np.add.at(counts, np.minimum(picks, np.flatnonzero(group & (weights > 0))[-1]), 1)
    rows = np.flatnonzero(counts)
    return rows, counts[rows].astype(np.float64)


def _bounded(z: float, problem: Problem, part: WeightedPoints) -> float:
    """Keep z below what would leave nothing, or one class only."""
    most = part.total_weight
    if isinstance(problem.loss, LinearLoss) and problem.loss.classifies and part.y is not None:
        upper = float(part.weights[part.y > 0].sum())
        most = min(upper, most - upper)
    return min(z, 0.9 * most) if problem.z else 0.0
