"""Our own: an estimator by default and one that keeps its rows, a coreset and a solver, a live coreset."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np

import duramen as dm
from benchmarks.peers.contender import Contender, Entry, Forgetting, Refit, Refitted, cold
from benchmarks.peers.task import Task

__all__ = ["Problem", "entries"]

_SIZE = 4000  # rows of a coreset; of few rows a fifth


class Problem(NamedTuple):
    """What the four ways solve: an estimator and how its call is written, the loss, and how it is solved."""

    estimator: Callable[..., Any]
    written: str
    theta_of: Callable[[Any], np.ndarray]
    loss: dm.Loss
    solving: dict[str, Any]


def entries(problem: Problem) -> list[Entry]:
    """List them; the first and the last are what others are compared with."""
    keeping = problem.written.replace(")", ", updatable=True)")
    again, rebuilt = "fitted again", "built and solved again, from the same anchor"
    live = partial(Live, problem=problem)
    return [
        Entry("estimator", f"`{problem.written}`", partial(_estimator, problem), again, again, True),
        Entry("updatable", f"`{keeping}`", partial(Updatable, problem=problem), "`absorb`", "`forget`", True),
        Entry("coreset", "`robust_coreset` and `solve`", partial(_coreset, problem), rebuilt, rebuilt, True),
        Entry("dynamic", "`DynamicCoreset`", live, "`insert` and `fit`", "`delete` and `fit`", True),
    ]


def _size(task: Task) -> int:
    return min(_SIZE, task.n // 5)


def _estimator(problem: Problem, task: Task) -> Contender:
    make = partial(problem.estimator, n_outliers=task.z, random_state=task.seed)
    return Refitted(task, cold(make), problem.theta_of)


def _coreset(problem: Problem, task: Task) -> Contender:
    return Refitted(task, _rebuilt(problem, task), lambda model: model[1].theta)


def _rebuilt(problem: Problem, task: Task) -> Refit:
    """Build a coreset and solve on it; later from the same anchor, and from the last solution on."""

    def refit(X: Any, y: Any, last: Any) -> tuple[dm.Coreset, dm.Solution]:
        core = dm.robust_coreset(
            X,
            y,
            loss=problem.loss,
            size=_size(task),
            n_outliers=task.z,
            anchor=None if last is None else last[0].anchor,
            random_state=task.seed,
        )
        start = problem.solving if last is None else {**problem.solving, "init": last[1].theta, "n_starts": 1}
        return core, dm.solve(core, random_state=task.seed, **start)

    return refit


class _Keeping(Forgetting):
    """Keeps the rows in its own dynamic coreset, and deletes them in random order."""

    def __init__(self, task: Task, problem: Problem) -> None:
        super().__init__(task)
        self._problem = problem
        self._live: dm.DynamicCoreset
        self._leaving = iter(np.random.default_rng(task.seed).permutation(task.n).tolist())

    def held(self) -> tuple[int, int]:
        """Count rows, labels and weights, and the tables beside them."""
        columns = self.task.X.shape[1] + (self.task.y is not None) + 1
        held = len(self._live) * 8 * columns + self._live.nbytes
        return held, held


class Updatable(_Keeping):
    """An estimator with ``updatable=True``."""

    def fit(self) -> None:
        task = self.task
        model = self._problem.estimator(n_outliers=task.z, random_state=task.seed, updatable=True)
        self._model = model.fit(*task.first(task.n))
        self._live = model.dynamic_

    def absorb(self) -> None:
        i, task = self.next_row(), self.task
        self._model.absorb(task.X[i : i + 1], None if task.y is None else task.y[i : i + 1])

    def forget(self) -> None:
        self._model.forget(next(self._leaving))

    @property
    def theta(self) -> np.ndarray:
        return self._problem.theta_of(self._model)


class Live(_Keeping):
    """A dynamic coreset, solved on after each change."""

    def fit(self) -> None:
        task = self.task
        self._live = dm.DynamicCoreset(
            self._problem.loss, _size(task), task.z / task.n, random_state=task.seed
        )
        self._live.insert(*task.first(task.n))
        self._solve()

    def absorb(self) -> None:
        i, task = self.next_row(), self.task
        self._live.insert(task.X[i], None if task.y is None else task.y[i])
        self._solve(n_starts=1)

    def forget(self) -> None:
        self._live.delete(next(self._leaving))
        self._solve(n_starts=1)

    def _solve(self, **settings: Any) -> None:
        """Solve, without the warning of a solution far from the anchor."""
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "the solution is .* from the anchor", UserWarning)
            self._solution = self._live.fit(
                **{**self._problem.solving, **settings}, random_state=self.task.seed
            )

    @property
    def theta(self) -> np.ndarray:
        return self._solution.theta
