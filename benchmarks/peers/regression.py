"""Regression: Covertype's elevation from the other columns; planted rows, wrong labels, or clean."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.linear_model import HuberRegressor, LinearRegression, Ridge, SGDRegressor

import duramen as dm
from benchmarks.peers import ours
from benchmarks.peers.classification import task_of
from benchmarks.peers.contender import (
    Contender,
    Entry,
    Forgetting,
    Learner,
    Refitted,
    Screened,
    cold,
    linear_theta,
    trimmed,
    warm,
)
from benchmarks.peers.part import Counts, Part, Score
from benchmarks.peers.shared import Table, covertype, made_up_covertype, with_planted_rows
from benchmarks.peers.task import Task

__all__ = ["PART"]

_OFF = (5.0, 15.0)  # by how much a wrong label is too large, in standard deviations

_ABOUT = """\
{name}: {n:,} training rows of {d} standardised columns (Covertype: elevation, in standard deviations,
from the others), and {held_out:,} clean rows to test on. *Planted*: as for classification. *Wrong
labels*: those of {z:,} random rows are too large by 5 to 15 standard deviations. *Clean*: nothing is
done to the rows, and every method that takes z is still given {z:,}.
"""


def _elevation(folder: Path | None = None) -> Table:
    table = covertype(folder)
    return Table(table.name, np.ascontiguousarray(table.X[:, 1:]), table.X[:, 0].copy())


def _made_up(rows: int = 581_012) -> Table:
    """Make normal rows whose labels follow a linear model with as much noise as signal."""
    table = made_up_covertype(rows)
    rng = np.random.default_rng(1)
    theta = rng.normal(size=table.X.shape[1])
    theta /= np.linalg.norm(theta)
    return table._replace(y=table.X @ theta + rng.normal(size=rows))


def _planted(table: Table, counts: Counts, seed: int) -> Task:
    return task_of(with_planted_rows(table, counts.planted, counts.held_out, seed), counts.planted, seed)


def _clean(table: Table, counts: Counts, seed: int) -> Task:
    return task_of(with_planted_rows(table, 0, counts.held_out, seed), counts.planted, seed)


def _mislabelled(table: Table, counts: Counts, seed: int) -> Task:
    task = _clean(table, counts, seed)
    rng = np.random.default_rng(seed)
    wrong = np.zeros(task.n, dtype=bool)
    wrong[rng.choice(task.n, counts.planted, replace=False)] = True
    task.y[: task.n][wrong] += rng.uniform(*_OFF, size=counts.planted)
    return replace(task, planted=wrong)


def _informed(task: Task) -> np.ndarray:
    return linear_theta(LinearRegression().fit(*task.clean()))


def _loss(theta: np.ndarray, X: np.ndarray, y: np.ndarray | None) -> float:
    return float(np.mean((y - X @ theta[:-1] - theta[-1]) ** 2))


def _r2(theta: np.ndarray, task: Task) -> float:
    return 1 - _loss(theta, task.X_test, task.y_test) / float(np.var(task.y_test))


def _squares(model: Any, X: np.ndarray, y: np.ndarray) -> np.ndarray:
    return (y - model.predict(X)) ** 2


def _refitted(task: Task, model: Any) -> Contender:
    return Refitted(task, cold(model), linear_theta)


def _huber(task: Task) -> Contender:
    return Refitted(task, warm(partial(HuberRegressor, max_iter=1000, warm_start=True)), linear_theta)


def _trimmed(task: Task) -> Contender:
    return Refitted(task, trimmed(cold(LinearRegression), _squares, task.z), linear_theta)


def _screened(task: Task) -> Contender:
    return Screened(task, cold(LinearRegression), linear_theta)


def _sgd(task: Task) -> Contender:
    return Learner(task, SGDRegressor(loss="huber", random_state=task.seed), linear_theta)


class NormalEquations(Forgetting):
    """Least squares from two sums, which a row can be added to and taken from; no row is kept."""

    def fit(self) -> None:
        X, y = self.task.first(self.task.n)
        d = X.shape[1]
        self._moments, self._products = np.empty((d + 1, d + 1)), np.empty(d + 1)
        self._moments[:d, :d] = X.T @ X
        self._moments[:d, d] = self._moments[d, :d] = X.sum(axis=0)
        self._moments[d, d] = len(X)
        self._products[:] = *(X.T @ y), y.sum()
        self._solve()

    def absorb(self) -> None:
        self._add(self.next_row(), 1)

    def forget(self) -> None:
        self._add(0, -1)

    def _add(self, i: int, sign: int) -> None:
        row = np.append(self.task.X[i], 1.0)
        self._moments += sign * np.outer(row, row)
        self._products += sign * self.task.y[i] * row
        self._solve()

    def _solve(self) -> None:
        """Find the shortest solution: of Covertype's columns some depend on others."""
        self._theta = np.linalg.lstsq(self._moments, self._products, rcond=None)[0]

    def held(self) -> tuple[int, int]:
        return self._moments.nbytes, self._moments.nbytes

    @property
    def theta(self) -> np.ndarray:
        return self._theta


PART = Part(
    title="Regression",
    about=_ABOUT,
    tables=(_elevation, _made_up),
    states={"planted": _planted, "wrong labels": _mislabelled, "clean": _clean},
    entries=[
        *ours.entries(
            ours.Problem(
                dm.RobustLinearRegression,
                "RobustLinearRegression(n_outliers=z)",
                linear_theta,
                dm.SquaredLoss(),
                {},
            )
        ),
        Entry(
            "linear",
            "`LinearRegression()`",
            partial(_refitted, model=LinearRegression),
            "fitted again",
            "fitted again",
        ),
        Entry("ridge", "`Ridge()`", partial(_refitted, model=Ridge), "fitted again", "fitted again"),
        Entry(
            "normal-equations",
            "normal equations in NumPy",
            NormalEquations,
            "added to the sums",
            "taken from the sums, if its values are still known",
        ),
        Entry("huber", "`HuberRegressor()`", _huber),
        Entry("sgd", '`SGDRegressor(loss="huber")`', _sgd, "`partial_fit`", "fitted from scratch"),
        Entry(
            "isolation-forest",
            "`IsolationForest` and `LinearRegression`",
            _screened,
            "judged by the forest; fitted again",
            "fitted from scratch",
        ),
        Entry("trimming", "`LinearRegression` trimmed by hand", _trimmed),
    ],
    informed=_informed,
    loss=_loss,
    score=Score("R2", "the share of the variance of the test labels that is explained", ".4f", False, _r2),
)
