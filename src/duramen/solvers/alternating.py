"""Alternating minimisation: set weight z aside, refit on the rest, until nothing is gained.

Neither half can raise the objective: setting aside takes the weights that cost
most at this theta, refitting takes a theta that costs less on these weights.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from scipy import sparse

from duramen.losses.bregman import BregmanLoss
from duramen.losses.clustering import KMeansLoss
from duramen.losses.distance import DistanceLoss
from duramen.losses.linear import LinearLoss
from duramen.rows import Array
from duramen.solvers.centres import BregmanFit, DistanceFit
from duramen.solvers.fit import Fit, GradientFit, Place
from duramen.solvers.kmeans import KMeansFit
from duramen.solvers.newton import NewtonFit
from duramen.solvers.problem import Problem
from duramen.solvers.solution import Status, Step

__all__ = ["Run", "Stopping", "alternate", "fit_of"]

_NEWTON_COLUMNS = 1000  # beyond, and for sparse rows beyond half of it, L-BFGS takes less (docs/solving.md)
_ROUNDING = 1e-12  # a rise by less, relative to the objective, is rounding
_PERFECT = 1e-10  # of the first objective: nothing left to fit
_HALVINGS = 20


@dataclass(frozen=True)
class Stopping:
    """When to stop: after ``max_iter`` iterations, once one gains less than ``tol``, or by a callback."""

    max_iter: int = 300
    tol: float = 1e-4
    callback: Callable[[Step], Any] | None = None
    start: int = 0


class Run(NamedTuple):
    """Where one alternation ended."""

    theta: Array
    objective: float
    history: list[float]
    status: Status


def fit_of(problem: Problem) -> Fit:
    """Choose how to refit: by Newton steps, by means of clusters, or by L-BFGS where neither applies."""
    loss = problem.loss
    if isinstance(loss, LinearLoss):
        most = _NEWTON_COLUMNS // (2 if sparse.issparse(problem.X) else 1)
        return NewtonFit(problem) if problem.points.n_columns <= most else GradientFit(problem)
    if isinstance(loss, KMeansLoss):
        return KMeansFit(problem)
    if isinstance(loss, DistanceLoss):
        return DistanceFit(problem)
    if isinstance(loss, BregmanLoss):
        return BregmanFit(problem)
    return GradientFit(problem)


def alternate(problem: Problem, theta: Array, stopping: Stopping) -> Run:
    """Alternate from ``theta`` until an iteration gains less than ``tol`` times the objective."""
    fit = fit_of(problem)
    here = fit.evaluate(theta)
    history = [here.objective]
    for n_iter in range(1, stopping.max_iter + 1):
        there = fit.evaluate(fit.refit(here))
        if not there.objective < here.objective:
            there = _shorter(fit, here, there)
        gain = here.objective - there.objective
        if not gain > 0:
            return Run(here.theta, here.objective, history, Status.SETTLED)
        here = there
        history.append(here.objective)
        step = Step(stopping.start, n_iter, here.objective, here.theta)
        if stopping.callback is not None and stopping.callback(step):
            return Run(here.theta, here.objective, history, Status.STOPPED)
        if here.objective <= _PERFECT * history[0]:
            return Run(here.theta, here.objective, history, _at_zero(fit, here))
        if gain <= stopping.tol * here.objective:
            return Run(here.theta, here.objective, history, Status.CONVERGED)
    return Run(here.theta, here.objective, history, Status.MAX_ITER)


def _shorter(fit: Fit, here: Place, there: Place) -> Place:
    """Halve a step that raised the objective, unless by rounding only, until it lowers it."""
    for _ in range(_HALVINGS):
        if there.objective - here.objective <= _ROUNDING * abs(here.objective):
            break
        there = fit.evaluate((here.theta + there.theta) / 2)
    return there


def _at_zero(fit: Fit, here: Place) -> Status:
    """Tell a perfect fit from one that only becomes so as theta grows without end."""
    linear = isinstance(fit.problem.loss, LinearLoss)
    if linear and here.objective > 0 and fit.evaluate(2 * here.theta).objective < here.objective:
        return Status.UNBOUNDED
    return Status.PERFECT
