"""Ways to fit: the paper's, which alternates around existing algorithms, and ours."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression

import duramen as dm
from duramen.arrays import Array
from duramen.points import WeightedPoints
from duramen.solvers.starts import seed as draw_seeds
from duramen.trimming import kept_weights, problem_of
from experiments.paper.data import Contaminated

__all__ = [
    "LOGISTIC",
    "Fit",
    "Yardstick",
    "alternation",
    "estimated",
    "on_coreset",
    "on_everything",
    "on_live_coreset",
    "seeded",
    "solved",
    "timed",
]

LOGISTIC = dm.LogisticLoss()
GAIN = 1e-4  # below this share of the objective an alternation ends, as in dm.solve

Solver = Callable[[WeightedPoints, dm.Loss, float, int], Array]
"""Finds parameters for weighted points with a weight of outliers, from a seed."""


class Fit(NamedTuple):
    """Parameters, on how many rows they were fitted, and the seconds of building and of solving."""

    theta: Array
    rows: int
    building: float
    solving: float

    @property
    def seconds(self) -> float:
        """From raw arrays to the parameters."""
        return self.building + self.solving


def timed(call: Callable[[], Any]) -> tuple[Any, float]:
    """Call, and return the result and the seconds it took."""
    start = time.perf_counter()
    result = call()
    return result, time.perf_counter() - start


def alternation(points: WeightedPoints, loss: dm.Loss, z: float, seed: int) -> Array:
    """Solve as the paper does: set the largest losses aside, refit with scikit-learn, until it is stable.

    No penalty; lbfgs, started where the previous fit ended.
    """
    model = LogisticRegression(C=np.inf, max_iter=1000, warm_start=True)
    kept, before = points.weights, np.inf
    while True:
        on = kept > 0
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # few rows that a plane separates
            if on.all():
                model.fit(points.X, points.y, sample_weight=kept)
            else:
                model.fit(points.X[on], points.y[on], sample_weight=kept[on])  # type: ignore[index]
        theta = np.append(model.coef_[0], model.intercept_)
        losses = loss.values(theta, points.X, points.y)
        kept = kept_weights(losses, points.weights, z)
        objective = float(losses @ kept)
        if not before - objective > GAIN * objective:
            return theta
        before = objective


def seeded(points: WeightedPoints, loss: dm.Loss, z: float, seed: int) -> Array:
    """Solve as the paper does: seeds by local search on all the points given, then k-means--."""
    rng = np.random.default_rng((seed, 1))  # the outliers were drawn by the seed alone
    seeds = draw_seeds("local-search", problem_of(points, loss, z), rng)
    return dm.solve(points, loss, z, init=seeds).theta


def solved(points: WeightedPoints, loss: dm.Loss, z: float, seed: int) -> Array:
    """Solve with ``dm.solve``."""
    return dm.solve(points, loss, z, random_state=seed).theta


def on_everything(X: Array, y: Array | None, loss: dm.Loss, z: float, seed: int, solver: Solver) -> Fit:
    """Fit all rows: what a coreset is compared with."""
    theta, seconds = timed(lambda: solver(dm.points(X, y), loss, z, seed))
    return Fit(theta, len(X), 0.0, seconds)


def on_coreset(
    X: Array,
    y: Array | None,
    loss: dm.Loss,
    z: float,
    seed: int,
    solver: Solver | None = None,
    n_starts: int = 1,
    **building: Any,
) -> Fit:
    """Build a coreset and solve on it: as the paper does, or with ``dm.solve``, which knows the anchor."""
    core, built = timed(
        lambda: dm.robust_coreset(X, y, loss=loss, n_outliers=z, random_state=seed, **building)
    )
    if solver is None:
        theta, taken = timed(lambda: dm.solve(core, n_starts=n_starts, random_state=seed).theta)
    else:
        theta, taken = timed(lambda: solver(core.points, loss, z, seed))
    return Fit(theta, len(core), built, taken)


def estimated(X: Array, y: Array, z: float, seed: int, size: int, rounds: int = 2) -> Fit:
    """Fit with the estimator, which looks at all rows again: a second coreset around the first solution."""
    model, seconds = timed(
        lambda: dm.RobustLogisticRegression(
            z, C=np.inf, coreset_size=size, n_rounds=rounds, random_state=seed
        ).fit(X, y)
    )
    return Fit(np.append(model.coef_[0], model.intercept_), size, 0.0, seconds)


def on_live_coreset(
    X: Array, y: Array | None, loss: dm.Loss, z: float, seed: int, size: int, row: Array, label: Array | None
) -> tuple[Fit, Fit]:
    """Fit with the ranked engine: all rows inserted at once, and then one more row."""
    dyn = dm.DynamicCoreset(loss, size, z / len(X), engine="ranked", random_state=seed)

    def insert(X: Array, y: Array | None) -> dm.Coreset:
        dyn.insert(X, y)
        return dyn.coreset()

    def fit(X: Array, y: Array | None) -> Fit:
        core, built = timed(lambda: insert(X, y))
        theta, taken = timed(lambda: dm.solve(core, random_state=seed).theta)
        return Fit(theta, len(core), built, taken)

    return fit(X, y), fit(row, label)


class Yardstick:
    """Measures fits of a logistic regression on all training rows, and on the test rows."""

    def __init__(self, data: Contaminated, z: int) -> None:
        self.data, self.z = data, z
        self.points = dm.points(data.X, data.y)

    def loss(self, theta: Array) -> float:
        """Evaluate f_z on all training rows."""
        return float(dm.trimmed_objective(self.points, theta, loss=LOGISTIC, n_outliers=self.z))

    def accuracy(self, theta: Array) -> float:
        """Compute the share of test rows that are classified correctly."""
        positive = self.data.X_test @ theta[:-1] + theta[-1] > 0
        return float((positive == (self.data.y_test > 0)).mean())

    def measure(self, fit: Fit) -> dict[str, float]:
        """Measure a fit."""
        return {
            "loss": self.loss(fit.theta),
            "accuracy": self.accuracy(fit.theta),
            "rows": fit.rows,
            "building": fit.building,
            "solving": fit.solving,
        }
