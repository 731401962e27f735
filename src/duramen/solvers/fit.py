"""How one family of losses is fitted to weighted points: the two halves of the alternation.

A fit evaluates the trimmed objective at a theta, and finds a better theta for
the weights that were kept there, by turns. It may remember what it computed
last: the alternation always refits at the place that was evaluated last.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import NamedTuple

import numpy as np
from scipy.optimize import minimize

from duramen.rows import Array
from duramen.solvers.problem import Problem, is_linear
from duramen.trimming import kept_sum

__all__ = ["Fit", "GradientFit", "Place"]


class Place(NamedTuple):
    """A theta, the losses there, what is kept of each weight, and the trimmed objective."""

    theta: Array
    losses: Array
    kept: Array
    objective: float


class Fit(ABC):
    """One problem being fitted."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.trim = problem.trimmer()
        self.sure = True
        """Whether the last refit went as far as it could: only then does a small gain mean little left."""

    def evaluate(self, theta: Array) -> Place:
        """Set the worst weight z aside at ``theta``."""
        losses = self.losses(theta)
        kept = self.trim(losses)
        return Place(theta, losses, kept, self.problem.objective(theta, losses, kept))

    @abstractmethod
    def losses(self, theta: Array) -> Array:
        """Compute the loss of every point."""

    @abstractmethod
    def refit(self, here: Place) -> Array:
        """Find parameters that are no worse on the weights kept here, or return those here."""

    def finished(self, theta: Array) -> Array:
        """Find the last digits of a minimum, which the objective no longer shows."""
        return theta


class GradientFit(Fit):
    """L-BFGS, for any loss with gradients: what a loss of your own, or one of very many columns, gets."""

    steps = 100  # of L-BFGS between two trimmings

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem)
        self.last: tuple[Array, Array] | None = None
        self.frame = problem.coordinates() if is_linear(problem.loss) else None

    def losses(self, theta: Array) -> Array:
        if self.last is None or not np.array_equal(self.last[0], theta):
            self.last = theta, self.problem.loss.values(theta, self.problem.X, self.problem.y)
        return self.last[1]

    def refit(self, here: Place) -> Array:
        problem, total = self.problem, self.problem.kept_weight

        def objective(step: Array) -> tuple[float, Array]:
            theta = self._after(here.theta, step)
            value = kept_sum(self.losses(theta), here.kept) + problem.penalty(theta)
            slope = problem.loss.gradient_sum(theta, problem.X, problem.y, here.kept)
            if problem.l2:
                slope = slope + problem.ridge() * theta
            if self.frame is not None:
                slope = self.frame.turned(slope) * self.frame.units()
            return value / total, slope.ravel() / total

        options = {"maxiter": self.steps, "maxfun": 2 * self.steps, "ftol": 1e-11, "gtol": 1e-10}
        nowhere = np.zeros(here.theta.size)
        found = minimize(objective, nowhere, jac=True, method="L-BFGS-B", options=options)
        self.sure = found.nit < self.steps and found.nfev < 2 * self.steps
        return self._after(here.theta, found.x) if found.fun * total < here.objective else here.theta

    def _after(self, theta: Array, step: Array) -> Array:
        """Take a step, which for linear losses is in well-conditioned coordinates."""
        step = step.reshape(theta.shape)
        return theta + (step if self.frame is None else self.frame.turned_back(step * self.frame.units()))
