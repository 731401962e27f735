"""river: models that learn from one row at a time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.peers.contender import Contender
from benchmarks.peers.task import Task

__all__ = ["STREAM", "River"]

STREAM = 100_000  # rows that are streamed at most: the time for all is that of these, by proportion


class River(Contender):
    """A model of river's: each row becomes a dict, and is learnt from once."""

    def __init__(self, task: Task, model: Any, theta_of: Callable[[Any], np.ndarray]) -> None:
        super().__init__(task)
        self._model, self._theta_of = model, theta_of
        self._shown = min(task.n, STREAM)
        self.share = self._shown / task.n

    def fit(self) -> None:
        for i in range(self._shown):
            self._learn(i)

    def absorb(self) -> None:
        self._learn(self.next_row())

    def _learn(self, i: int) -> None:
        row = dict(enumerate(self.task.X[i].tolist()))
        if self.task.y is None:
            self._model.learn_one(row)
        else:
            self._model.learn_one(row, bool(self.task.y[i] > 0))

    def held(self) -> tuple[int, int]:
        return 0, self.task.nbytes

    @property
    def theta(self) -> np.ndarray:
        return self._theta_of(self._model)
