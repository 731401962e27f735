"""Alternating minimisation: set weight z aside, refit on the rest, until nothing is gained.

Neither half can raise the objective: trimming sets aside the weight that costs
most at this theta, and refitting finds a theta that costs less on the rest.
"""

from __future__ import annotations

import enum
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from duramen.arrays import Array, read_only
from duramen.losses.base import ignore_overflow
from duramen.solvers.lloyd import DistanceFit, KMeansFit, MeanFit
from duramen.solvers.newton import GradientFit, MixtureFit, NewtonFit, with_frame
from duramen.trimming import Fit, Iterate, Problem, kept_sum

_ROUNDING = 1e-12  # a rise by less, relative to the objective, is rounding
# per unit of kept weight: below the first the objective may fall for ever; below the second it does, so stop
_SMALL, _NOTHING = 1e-2, 1e-9
_HALVINGS = 20
_SHARES = 4.0 ** -np.arange(6)  # how much smooth losses differ from one with kinks
_STEPS, _GAIN = 30, 1e-2  # the most steps for each, and the gain that counts, relative to that share


class Status(enum.Enum):
    """Why a solver stopped; the value describes it."""

    CONVERGED = "the objective fell by less than tol of itself"
    SETTLED = "no further step lowers the objective"
    UNBOUNDED = "the objective has no minimum: it falls towards zero as theta grows"
    MAX_ITER = "max_iter was reached"
    STOPPED = "stopped by the callback"

    @property
    def converged(self) -> bool:
        """Whether there was nothing left to gain."""
        return self in (Status.CONVERGED, Status.SETTLED)


class Step(NamedTuple):
    """The state of a solver after ``n_iter`` iterations of start number ``start``, for a callback."""

    start: int
    n_iter: int
    objective: float
    theta: Array


class Stopping(NamedTuple):
    """When to stop; after ``patience`` iterations with little gain, if steps are shortened."""

    max_iter: int = 300
    tol: float = 1e-4
    callback: Callable[[Step], Any] | None = None
    start: int = 0
    patience: int = 10


class Run(NamedTuple):
    """The result of one alternation."""

    theta: Array
    history: list[float]
    status: Status

    @property
    def objective(self) -> float:
        """The final objective."""
        return self.history[-1]


def alternate(problem: Problem, theta: Array, stopping: Stopping) -> Run:
    """Alternate from ``theta`` until an iteration gains less than ``tol`` times the objective."""
    with ignore_overflow():
        fit = fit_of(with_frame(problem))
        here = fit.evaluate(theta)
        history, little, status = [here.objective], 0, Status.MAX_ITER
        for n_iter in range(1, stopping.max_iter + 1):
            there = _without_rise(fit, here, fit.refit(here))
            gain = here.objective - there.objective
            if not gain > 0:
                status = Status.SETTLED
                break
            here = there
            history.append(here.objective)
            little = little + 1 if gain <= stopping.tol * here.objective else 0
            step = Step(stopping.start, n_iter, here.objective, read_only(here.theta))
            if stopping.callback is not None and stopping.callback(step):
                return Run(here.theta, history, Status.STOPPED)
            if little and (fit.sure or little == stopping.patience):
                status = Status.CONVERGED
                break
            if _is_unbounded(problem, here, _NOTHING):
                break
        return Run(here.theta, history, Status.UNBOUNDED if _is_unbounded(problem, here, _SMALL) else status)


def fit_of(problem: Problem) -> Fit:
    """Make the fit that the loss names, or L-BFGS where that takes less time."""
    loss = problem.loss
    if loss.fitter not in FITS:
        raise TypeError(f"{loss!r} names the fitter {loss.fitter!r}; expected one of {', '.join(FITS)}")
    fit = FITS[loss.fitter]
    for name in fit.needs:
        if not hasattr(loss, name):
            raise TypeError(
                f"the fitter {loss.fitter!r} needs {name!r}, which {loss!r} does not have; define it, "
                "or leave fitter at 'gradient'"
            )
    return fit(problem) if fit.suits(problem) else GradientFit(problem)


def _without_rise(fit: Fit, here: Iterate, there: Iterate) -> Iterate:
    """Halve a step that raised the objective by more than rounding, until it no longer does."""
    for _ in range(_HALVINGS):
        if there.objective - here.objective <= _ROUNDING * abs(here.objective):
            break
        there = fit.evaluate((here.theta + there.theta) / 2)
    return there


def _is_unbounded(problem: Problem, here: Iterate, small: float) -> bool:
    """Return whether a small objective still falls as theta is doubled, as for separable classes."""
    is_small = 0 < here.objective <= small * problem.kept_weight
    with suppress(ValueError):  # so far out that predictors overflow
        if is_small and problem.loss.has_predictors and not np.any(problem.ridge):
            return 0 < problem.at(2 * here.theta).objective < 0.9 * here.objective
    return False


class SmoothedFit(Fit):
    """Fits of smooth losses, ever closer to a loss with kinks, each from the last one."""

    needs = ("smoothed",)
    level = 0

    def refit(self, here: Iterate) -> Iterate:
        problem = self.problem
        mean = kept_sum(here.losses, here.kept) / problem.kept_weight
        kept = problem.points.with_parts(weights=here.kept)
        while mean > 0:
            share, self.sure = _SHARES[self.level], self.level == len(_SHARES) - 1
            smooth = replace(problem, points=kept, z=0.0, loss=self.loss.smoothed(mean, share))
            # as closely as a loss that differs in part by this share deserves
            stopping = Stopping(_STEPS, _GAIN * share, patience=_STEPS)
            there = self.evaluate(alternate(smooth, here.theta, stopping).theta)
            self.level += not self.sure
            if self.sure or there.objective < here.objective:
                return there
        return here


FITS: dict[str, type[Fit]] = {
    "newton": NewtonFit,
    "mixture": MixtureFit,
    "smoothed": SmoothedFit,
    "kmeans": KMeansFit,
    "distance": DistanceFit,
    "mean": MeanFit,
    "gradient": GradientFit,
}
"""How to refit, by the name that a loss has as its ``fitter``."""
