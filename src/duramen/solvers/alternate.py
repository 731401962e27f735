"""Alternating minimisation: set weight z aside, refit on the rest, until nothing is gained.

Neither half can raise the objective: setting aside takes the weights that cost
most at this theta, refitting takes a theta that costs less on these weights.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

from duramen.arrays import Array
from duramen.losses.bregman import BregmanLoss
from duramen.losses.centres import DistanceLoss, KMeansLoss
from duramen.losses.linear import LinearLoss
from duramen.losses.softmax import SoftmaxLoss
from duramen.solvers.lloyd import BregmanFit, DistanceFit, KMeansFit
from duramen.solvers.newton import NewtonFit, SoftmaxFit
from duramen.solvers.problem import Fit, GradientFit, Place, Problem, Status, Step, is_linear
from duramen.trimming import kept_sum

__all__ = ["Run", "Stopping", "alternate", "fit_of"]


_NEWTON_COLUMNS = 1000  # beyond, and for sparse rows beyond half of it, L-BFGS takes less (docs/solving.md)
_SOFTMAX = 400  # parameters of all classes together; beyond, L-BFGS takes less (docs/solving.md)
_ALL_DIGITS = 1e-13  # a tolerance that asks for theta's last digits, too
_ROUNDING = 1e-12  # a rise by less, relative to the objective, is rounding
_NOTHING = 1e-9  # a unit of weight: losses of classes and counts are that small only where nothing stops them
_HALVINGS = 20
_PATIENCE = 10  # iterations that gain little by steps cut short, before they count as the end


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
    if isinstance(loss, SoftmaxLoss) and np.prod(loss.parameter_shape(problem.points.n_columns)) <= _SOFTMAX:
        return SoftmaxFit(problem)
    return GradientFit(problem)


def alternate(problem: Problem, theta: Array, stopping: Stopping, fit: Fit | None = None) -> Run:
    """Alternate from ``theta`` until an iteration gains less than ``tol`` times the objective.

    A ``fit`` of this problem that earlier alternations used remembers where to look; the result is the same.
    """
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        if fit is None:
            fit = fit_of(problem)
        elif isinstance(fit, (KMeansFit, DistanceFit)):
            fit.restart()
        run = _alternate(fit, theta, stopping)
        if run.status.converged and stopping.tol <= _ALL_DIGITS:
            run = run._replace(theta=fit.finished(run.theta))
        return run._replace(status=_judged(problem, run))


def _alternate(fit: Fit, theta: Array, stopping: Stopping) -> Run:
    here = fit.evaluate(theta)
    history, little = [here.objective], 0
    for n_iter in range(1, stopping.max_iter + 1):
        there = fit.evaluate(fit.refit(here))
        if not there.objective < here.objective:
            there = _shorter(fit, here, there)
        gain = here.objective - there.objective
        if not gain > 0:
            return Run(here.theta, here.objective, history, Status.SETTLED)
        here = there
        history.append(here.objective)
        if stopping.callback is not None and stopping.callback(_step(stopping.start, n_iter, here)):
            return Run(here.theta, here.objective, history, Status.STOPPED)
        little = little + 1 if gain <= stopping.tol * here.objective else 0
        if little and (fit.sure or little == _PATIENCE):
            return Run(here.theta, here.objective, history, Status.CONVERGED)
        if _next_to_zero(fit.problem, here.objective) and _falls_for_ever(fit.problem, here):
            break
    return Run(here.theta, here.objective, history, Status.MAX_ITER)


def _step(start: int, n_iter: int, here: Place) -> Step:
    theta = here.theta.view()
    theta.flags.writeable = False
    return Step(start, n_iter, here.objective, theta)


def _shorter(fit: Fit, here: Place, there: Place) -> Place:
    """Halve a step that raised the objective, unless by rounding only, until it lowers it."""
    for _ in range(_HALVINGS):
        if there.objective - here.objective <= _ROUNDING * abs(here.objective):
            break
        there = fit.evaluate((here.theta + there.theta) / 2)
    return there


def _judged(problem: Problem, run: Run) -> Status:
    """Tell a minimum from an objective that only falls towards zero as theta grows."""
    small = is_linear(problem.loss) and run.objective <= 1e-2 * problem.kept_weight
    if run.status is not Status.STOPPED and small and _falls_for_ever(problem, run):
        return Status.UNBOUNDED
    return run.status


def _next_to_zero(problem: Problem, objective: float) -> bool:
    return is_linear(problem.loss) and objective <= _NOTHING * problem.kept_weight


def _falls_for_ever(problem: Problem, here: Place | Run) -> bool:
    """Tell whether twice the theta costs less, though not nothing: as for classes that can be told apart."""
    if not is_linear(problem.loss) or problem.l2 or not here.objective > 0:
        return False
    try:
        losses = problem.loss.values(2 * here.theta, problem.X, problem.y)
    except ValueError:  # so far out that predictors overflow
        return False
    twice = kept_sum(losses, problem.trimmer()(losses))
    return 0 < twice < 0.9 * here.objective
