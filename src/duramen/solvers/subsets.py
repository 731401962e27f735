"""Where to start with a linear loss: from zero, or from a handful of points that holds no outlier.

From zero the alternation does well unless outliers are many and pull together;
then a fit of a few points, all of them clean by luck, is a better start, as in
FAST-LTS (Rousseeuw and Van Driessen 2006). Which it is, is decided on a sample,
by the trimmed objective after refining, and zero wins unless it is beaten
clearly. On real data the two end in minima of about equal depth, and what tells
them apart on a sample is chance (docs/solving.md).
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from duramen.losses.linear import LinearLoss
from duramen.rows import Array
from duramen.solvers.alternating import Run, Stopping, alternate, fit_of
from duramen.solvers.problem import Problem

__all__ = ["CLEARLY", "QUICK", "THOROUGH", "Effort", "Search", "search"]

_SHRINKAGE = 0.05  # of the curvature: keeps a start from fitting the rare rows of a sample
CLEARLY = 0.98  # of the objective from zero


class Effort(NamedTuple):
    """How many handfuls to fit, how many of the best to refine, and how far."""

    handfuls: int
    refined: int
    stopping: Stopping


THOROUGH = Effort(30, 3, Stopping(max_iter=30))
QUICK = Effort(3, 1, Stopping(max_iter=10, tol=1e-3))


class Search(NamedTuple):
    """What was found on a sample: the way from zero, and the best of the ways from handfuls, if any."""

    from_zero: Run
    from_handful: Run | None

    @property
    def best(self) -> Run:
        """The way from zero, unless it is beaten clearly."""
        other = self.from_handful
        beaten = other is not None and other.objective < CLEARLY * self.from_zero.objective
        return other if other is not None and beaten else self.from_zero


def search(part: Problem, rng: np.random.Generator, effort: Effort) -> Search:
    """Solve a sample from zero and from handfuls.

    Everything is shrunken a little towards zero: a sample has a few rows of each rare kind only, and a
    start that fits those perfectly, or sets them aside, stays stuck there on the full data.
    """
    zero = np.zeros(part.ridge().size)
    part = _shrunken(part)
    from_zero = alternate(part, zero, effort.stopping)
    clean = (1 - part.z / part.points.total_weight) ** (len(zero) + 1)
    if part.z == 0 or clean * effort.handfuls < 0.1:  # none to be expected without an outlier
        return Search(from_zero, None)
    runs = []
    for theta in _best_handfuls(part, zero, rng, effort):
        run = alternate(part, theta, Stopping(max_iter=3))
        if run.objective < 1.05 * from_zero.objective:
            run = alternate(part, run.theta, effort.stopping)
        runs.append(run)
    return Search(from_zero, min(runs, key=lambda run: run.objective))


def _best_handfuls(part: Problem, zero: Array, rng: np.random.Generator, effort: Effort) -> list[Array]:
    judge = fit_of(part)
    fitted = []
    for number in range(effort.handfuls):  # small ones are more often clean, larger ones less noisy
        few = _handful(part, (len(zero) + 1) * (1 + number % 2), rng)
        fitted.append(judge.evaluate(alternate(few, zero, Stopping(max_iter=3)).theta))
    fitted.sort(key=lambda place: place.objective)
    return [place.theta for place in fitted[: effort.refined]]


def _handful(part: Problem, size: int, rng: np.random.Generator) -> Problem:
    weights = part.points.weights
    heavy = np.flatnonzero(weights > 0)
    share = weights[heavy] / weights[heavy].sum()
    rows = rng.choice(heavy, size=min(size, heavy.size), replace=False, p=share)
    few = part.points.take(rows)
    scale = few.total_weight / part.points.total_weight
    return replace(part, points=few, z=0.0, l2=part.l2 * scale)


def _shrunken(part: Problem) -> Problem:
    """Add a ridge, in units of each column's spread, that counts as a small share of all the data."""
    loss = part.loss
    assert isinstance(loss, LinearLoss)
    assert part.y is not None
    zeros = np.zeros(len(part.points))
    curvature = loss.curvature(zeros, loss.encode_labels(part.y, np.float64))
    bend = float(part.points.weights @ curvature)
    # a column that is constant here would share the intercept's part, and be wrong where it is not constant:
    # it has a spread too
    frame = part.coordinates()
    spread = np.append(frame.spread, 0.0)[: part.ridge().size]
    return replace(part, l2=1.0, scales=part.ridge() + _SHRINKAGE * bend * spread**2, frame=frame)
