"""The contenders: each makes a first model, one with a row more and, if it can, one with a row less.

Rows that come stand behind the training rows, so that a contender which fits again
gets a longer view of the same array: making room for a row is not counted. A row
that leaves changes places with the last one, which is not counted either.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any, NamedTuple

import numpy as np

from benchmarks.peers.task import Task

__all__ = [
    "Contender",
    "Entry",
    "Forgetting",
    "Learner",
    "Refit",
    "Refitted",
    "Screened",
    "centres_of",
    "cold",
    "linear_theta",
    "trimmed",
    "warm",
]

Refit = Callable[[Any, Any, Any], Any]
"""Makes a model of rows, labels and the last model (None at first)."""

_GAIN = 1e-4  # below this share of the objective an alternation ends, as in dm.solve


class Contender(ABC):
    """One way to fit a task."""

    share = 1.0
    """The share of the rows that the first model is given; its time is extrapolated to all."""

    def __init__(self, task: Task) -> None:
        self.task, self._arrived = task, 0

    @abstractmethod
    def fit(self) -> None:
        """Make the first model."""

    @abstractmethod
    def absorb(self) -> None:
        """Take the next row, and update the model."""

    @property
    @abstractmethod
    def theta(self) -> np.ndarray:
        """The parameters of the model: coefficients with the intercept last, or centres."""

    def held(self) -> tuple[int, int]:
        """Count the bytes of rows and tables that must be kept to absorb a row, and to forget one."""
        return self.task.nbytes, self.task.nbytes

    def next_row(self) -> int:
        """Report which row comes next."""
        self._arrived += 1
        return self.task.n + self._arrived - 1


class Forgetting(Contender):
    """A contender that can forget a row without starting over."""

    @abstractmethod
    def forget(self) -> None:
        """Forget a row, and update the model."""


class Refitted(Forgetting):
    """Refits all current rows, from the last model on if that helps."""

    def __init__(self, task: Task, refit: Refit, theta_of: Callable[[Any], np.ndarray]) -> None:
        super().__init__(task)
        self._refit, self._theta_of = refit, theta_of
        self._model, self._count = None, task.n

    def fit(self) -> None:
        self._model = self._refit(*self.task.first(self._count), self._model)

    def absorb(self) -> None:
        self._count += 1
        self.fit()

    def forget(self) -> None:
        self._count -= 1
        self.fit()

    @property
    def theta(self) -> np.ndarray:
        return self._theta_of(self._model)


class Learner(Contender):
    """A model of scikit-learn's that learns from a row it is shown, and keeps no row."""

    def __init__(self, task: Task, model: Any, theta_of: Callable[[Any], np.ndarray]) -> None:
        super().__init__(task)
        self._model, self._theta_of = model, theta_of

    def fit(self) -> None:
        self._model.fit(*self.task.first(self.task.n))

    def absorb(self) -> None:
        i = self.next_row()
        y = None if self.task.y is None else self.task.y[i : i + 1]
        self._model.partial_fit(self.task.X[i : i + 1], y)

    def held(self) -> tuple[int, int]:
        return 0, self.task.nbytes

    @property
    def theta(self) -> np.ndarray:
        return self._theta_of(self._model)


class Screened(Contender):
    """Rows that an isolation forest rejects are left out first; the others are fitted.

    A row that comes is judged by the forest as it stands, and the model fitted again.
    """

    def __init__(self, task: Task, refit: Refit, theta_of: Callable[[Any], np.ndarray]) -> None:
        super().__init__(task)
        self._refit, self._theta_of = refit, theta_of

    def fit(self) -> None:
        from sklearn.ensemble import IsolationForest

        task = self.task
        rows, labels = task.first(task.n)
        self._forest = IsolationForest(contamination=task.z / task.n, random_state=task.seed)
        kept = self._forest.fit_predict(rows) == 1
        self._n_kept = int(kept.sum())
        self._X = np.empty((self._n_kept + len(task.X) - task.n, task.X.shape[1]))
        np.compress(kept, rows, axis=0, out=self._X[: self._n_kept])
        self._y = None if labels is None else np.r_[labels[kept], task.y[task.n :]]
        self._model = self._refit(*self._rows(), None)

    def absorb(self) -> None:
        i = self.next_row()
        if self._forest.predict(self.task.X[i : i + 1])[0] == 1:
            self._X[self._n_kept] = self.task.X[i]
            if self._y is not None:
                self._y[self._n_kept] = self.task.y[i]
            self._n_kept += 1
        self._model = self._refit(*self._rows(), self._model)

    def _rows(self) -> tuple[np.ndarray, np.ndarray | None]:
        return self._X[: self._n_kept], None if self._y is None else self._y[: self._n_kept]

    @property
    def theta(self) -> np.ndarray:
        return self._theta_of(self._model)


def cold(make: Callable[[], Any]) -> Refit:
    """Fit a new model each time."""
    return lambda X, y, last: make().fit(X, y)


def warm(make: Callable[[], Any]) -> Refit:
    """Continue fitting a model that has ``warm_start``."""
    return lambda X, y, last: (make() if last is None else last).fit(X, y)


def trimmed(refit: Refit, losses: Callable[[Any, Any, Any], np.ndarray], z: int) -> Refit:
    """Alternately fit and set the z largest losses aside, as one would write it by hand."""

    def alternate(X: Any, y: Any, last: Any) -> Any:
        def lowest(values: np.ndarray) -> np.ndarray:
            return np.sort(np.argpartition(values, len(X) - z)[: len(X) - z])

        kept = np.arange(len(X)) if last is None else lowest(losses(last, X, y))
        before = np.inf
        while True:
            last = refit(X[kept], None if y is None else y[kept], last)
            values = losses(last, X, y)
            kept = lowest(values)
            objective = float(values[kept].sum())
            if before - objective < _GAIN * objective:
                return last
            before = objective

    return alternate


def linear_theta(model: Any) -> np.ndarray:
    """Put coefficients and intercept into one vector."""
    return np.append(np.ravel(model.coef_), model.intercept_)


def centres_of(model: Any) -> np.ndarray:
    """Return the centres of a clustering."""
    return np.asarray(model.cluster_centers_, dtype=np.float64)


class Entry(NamedTuple):
    """A contender in the tables: its name, how it is made, and what is done when rows come and go."""

    key: str
    name: str
    make: Callable[[Task], Contender]
    absorbs: str = "fitted again, from the last model on"
    forgets: str = "fitted again, from the last model on"
    ours: bool = False
    package: str | None = None

    @property
    def is_here(self) -> bool:
        """Whether the package that it needs is installed."""
        return self.package is None or find_spec(self.package.removesuffix("-cpu")) is not None
