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

from duramen.losses.linear import LinearLoss
from duramen.rows import Array
from duramen.solvers.problem import Problem
from duramen.trimming import kept_sum

__all__ = ["Fit", "GradientFit", "Place", "column_sizes"]


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


class GradientFit(Fit):
    """L-BFGS, for any loss with gradients: what a loss of your own, or one of very many columns, gets.

    Steps are taken in units of the columns' size, so that columns in metres and in millimetres are alike.
    """

    steps = 30  # of L-BFGS between two trimmings

    def __init__(self, problem: Problem) -> None:
        super().__init__(problem)
        self.last: tuple[Array, Array] | None = None
        linear = isinstance(problem.loss, LinearLoss)
        self.ridge = problem.ridge() if linear else np.zeros(1)
        self.units = 1 / column_sizes(problem) if linear else np.ones(1)

    def losses(self, theta: Array) -> Array:
        if self.last is None or not np.array_equal(self.last[0], theta):
            self.last = theta, self.problem.loss.values(theta, self.problem.X, self.problem.y)
        return self.last[1]

    def refit(self, here: Place) -> Array:
        problem, shape, kept = self.problem, here.theta.shape, here.kept
        units = np.broadcast_to(self.units, here.theta.size)
        total = problem.kept_weight

        def objective(scaled: Array) -> tuple[float, Array]:
            theta = (scaled * units).reshape(shape)
            value = kept_sum(self.losses(theta), kept) + problem.penalty(theta)
            slope = problem.loss.gradient_sum(theta, problem.X, problem.y, kept)
            if problem.l2:
                slope = slope + self.ridge * theta
            return value / total, slope.ravel() * units / total

        start = here.theta.ravel() / units
        options = {"maxiter": self.steps, "gtol": 1e-9}
        found = minimize(objective, start, jac=True, method="L-BFGS-B", options=options)
        return (found.x * units).reshape(shape) if found.fun * total < here.objective else here.theta


def column_sizes(problem: Problem, rows: int = 4096) -> Array:
    """Measure the root mean square of each coefficient's column, on evenly spaced rows: (p,), none zero."""
    assert isinstance(problem.loss, LinearLoss)
    X = problem.X[:: max(1, len(problem.points) // rows)]
    squares = np.asarray(X.multiply(X).mean(axis=0) if hasattr(X, "multiply") else np.square(X).mean(axis=0))
    sizes = np.sqrt(squares.ravel().astype(np.float64))
    sizes[~(sizes > 0)] = 1.0
    return np.append(sizes, 1.0) if problem.loss.fit_intercept else sizes
