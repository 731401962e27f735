"""Where to start with a linear loss: from zero, from the middle, or from a handful of points.

From zero the alternation does well unless outliers are many and pull together.
Outliers that pull hard lie far out, so that a fit of the half of the points that
lies nearest to the middle knows nothing of them, in however many columns; nor
does one of all points in which the farther count for less, by the square of the
distance (as in Mallows's estimators), which has all the rare kinds too. Those
that lie among the others are missed by a fit of a few points, all of them clean
by luck, as in FAST-LTS (Rousseeuw and Van Driessen 2006); in few columns, for in
many luck is rare. Which start it is, is decided on a sample, by the trimmed
objective after refining, and zero wins unless it is beaten clearly. On real data
they end in minima of about equal depth, and what tells them apart on a sample is
chance (docs/solving.md).
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from scipy import sparse

from duramen.losses.linear import LinearLoss
from duramen.losses.multinomial import SoftmaxLoss
from duramen.rows import Array
from duramen.solvers.alternating import Run, Stopping, alternate, fit_of
from duramen.solvers.problem import Problem
from duramen.trimming import kept_weights

__all__ = ["CLEARLY", "QUICK", "THOROUGH", "Effort", "Search", "damped_start", "search"]

_A_LITTLE = Stopping(max_iter=3)
_SHRINKAGE = 0.05  # of the curvature: keeps a start from fitting the rare rows of a sample
CLEARLY = 0.98  # of the objective from zero


class Effort(NamedTuple):
    """How many handfuls to fit, how many of the best to refine, and how far.

    They are as many as make a clean one as likely as ``sure``, but no more than ``handfuls``, nor than have
    ``columns`` together, which is what they cost. Refined to the end is only what comes within ``near`` times
    the objective from zero in a few iterations.
    """

    handfuls: int
    columns: float
    sure: float
    refined: int
    near: float
    stopping: Stopping


THOROUGH = Effort(30, math.inf, 1.0, 3, 1.05, Stopping(max_iter=30))
QUICK = Effort(30, 48, 0.99, 1, 1.0, Stopping(max_iter=4, tol=3e-3))


class Search(NamedTuple):
    """What was found on a sample: the ways from zero, from the centre, and the best from handfuls, if any."""

    from_zero: Run
    from_centre: Run | None = None
    from_handful: Run | None = None

    @property
    def best(self) -> Run:
        """The way from zero, unless it is beaten clearly."""
        others = [run for run in (self.from_centre, self.from_handful) if run is not None]
        best = min(others, key=_objective, default=self.from_zero)
        return best if best.objective < CLEARLY * self.from_zero.objective else self.from_zero


def _objective(run: Run) -> float:
    return run.objective


def search(part: Problem, rng: np.random.Generator, effort: Effort) -> Search:
    """Solve a sample from zero, from its middle, and from handfuls.

    Everything is shrunken a little towards zero: a sample has a few rows of each rare kind only, and a
    start that fits those perfectly, or sets them aside, stays stuck there on the full data.
    """
    zero = np.zeros(part.ridge().shape)
    part = _shrunken(part)
    from_zero = alternate(part, zero, effort.stopping)
    if part.z == 0:
        return Search(from_zero)
    handfuls = _best_handfuls(part, zero, rng, effort)
    runs = []
    far = _distances(part)
    for theta in [_central(part, zero, far), _damped(part, zero, far), *handfuls]:
        run = alternate(part, theta, _A_LITTLE)
        if run.objective < effort.near * from_zero.objective:
            run = alternate(part, run.theta, effort.stopping)
        runs.append(run)
    return Search(from_zero, min(runs[:2], key=_objective), min(runs[2:], key=_objective, default=None))


def damped_start(problem: Problem) -> Array:
    """Find where to start on points that are few: from a fit in which those far out count for less."""
    part = _shrunken(problem)
    return _damped(part, np.zeros(part.ridge().shape), _distances(part))


def _distances(part: Problem) -> Array:
    """Compute how far points lie from the middle, sparse ones from zero: squared, in each column's spread."""
    assert part.frame is not None
    with np.errstate(over="ignore", under="ignore"):
        if sparse.issparse(part.X):
            return np.asarray(part.X.multiply(1 / part.frame.spread).power(2).sum(axis=1)).ravel()
        return np.asarray(np.square((part.X - part.frame.middle) / part.frame.spread).sum(axis=1))


def _nearer_half(part: Problem, far: Array) -> Array:
    """Give the weights of the half that lies nearest."""
    points = part.points
    return kept_weights(far, points.weights, points.total_weight / 2, points.ids)


def _damped(part: Problem, zero: Array, far: Array) -> Array:
    """Fit all points, those beyond the usual distance by the less weight the farther they lie.

    Usual is what half of the weight does not exceed; the least distance there is, where that is none.
    """
    points = part.points
    usual = far[_nearer_half(part, far) > 0].max()
    usual = usual if usual > 0 else far[far > 0].min(initial=np.inf)
    with np.errstate(under="ignore"):
        weights = points.weights * np.divide(usual, far, out=np.ones(len(far)), where=far > usual)
    rows = np.flatnonzero(weights)
    share = weights.sum() / points.total_weight
    near = replace(part, points=points.pick(rows, weights[rows]), z=0.0, l2=part.l2 * share)
    return alternate(near, zero, _A_LITTLE).theta


def _central(part: Problem, zero: Array, far: Array) -> Array:
    """Fit the half of the weight that lies nearest to the middle, which outliers far out are not in."""
    points = part.points
    kept = _nearer_half(part, far)
    rows = np.flatnonzero(kept)
    half = replace(part, points=points.pick(rows, kept[rows]), z=0.0, l2=part.l2 / 2)
    return alternate(half, zero, _A_LITTLE).theta


def _best_handfuls(part: Problem, zero: Array, rng: np.random.Generator, effort: Effort) -> list[Array]:
    n_handfuls = _n_handfuls(part, zero.size, effort)
    if not n_handfuls:
        return []
    judge = fit_of(part)
    fitted = []
    for number in range(n_handfuls):  # small ones are more often clean, larger ones less noisy
        few = _handful(part, (zero.size + 1) * (1 + number % 2), rng)
        fitted.append(judge.evaluate(alternate(few, zero, _A_LITTLE).theta))
    fitted.sort(key=lambda place: place.objective)
    return [place.theta for place in fitted[: effort.refined]]


def _n_handfuls(part: Problem, p: int, effort: Effort) -> int:
    """Choose how many handfuls of p + 1 points and more to fit."""
    clean = (1 - part.z / part.points.total_weight) ** (p + 1)  # the chance of one
    most = int(min(effort.handfuls, effort.columns / p))
    if clean * most < 0.1:  # none to be expected without an outlier
        return 0
    if effort.sure == 1:
        return most
    return min(most, math.ceil(math.log1p(-effort.sure) / math.log1p(-min(clean, 1 - 1e-9))))


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
    bend = float(part.points.weights @ _curvature_at_zero(part))
    # a column that is constant here would share the intercept's part, and be wrong where it is not constant:
    # it has a spread too
    frame = part.coordinates()
    spread = np.append(frame.spread, 0.0)[: part.ridge().shape[-1]]
    return replace(part, l2=1.0, scales=part.ridge() + _SHRINKAGE * bend * spread**2, frame=frame)


def _curvature_at_zero(part: Problem) -> Array:
    """Compute the second derivative of each loss in its predictor, where all predictors are zero."""
    assert part.y is not None
    if isinstance(part.loss, SoftmaxLoss):
        share = 1 / part.loss.n_classes
        return np.full(len(part.points), share * (1 - share))
    assert isinstance(part.loss, LinearLoss)
    return part.loss.curvature(np.zeros(len(part.points)), part.loss.encode_labels(part.y, np.float64))
