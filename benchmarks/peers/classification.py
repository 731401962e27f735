"""Classification: Covertype with planted rows, with wrong labels, and clean."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from sklearn.linear_model import LogisticRegression, SGDClassifier

import duramen as dm
from benchmarks.peers import ours
from benchmarks.peers.contender import (
    Contender,
    Entry,
    Learner,
    Refitted,
    Screened,
    linear_theta,
    trimmed,
    warm,
)
from benchmarks.peers.part import Counts, Part, Score
from benchmarks.peers.shared import Contaminated, Table, covertype, made_up_covertype, with_planted_rows
from benchmarks.peers.streams import River
from benchmarks.peers.task import ARRIVALS, Task

__all__ = ["PART", "task_of"]

_LOSS = dm.LogisticLoss()

_ABOUT = """\
{name}: {n:,} training rows of {d} standardised columns (Covertype: class 2 against the rest), and
{held_out:,} clean rows to test on. *Planted*: {z:,} of the training rows have noise of standard
deviation 10 on every column, and labels shuffled among them. *Wrong labels*: the {z:,} rows about whose
class the informed fit is most certain have the other label, and their columns are unchanged. *Clean*:
nothing is done to the rows, and every method that takes z is still given {z:,}.
"""


def task_of(data: Contaminated, z: int, seed: int) -> Task:
    """Put rows that come later behind the training rows."""
    X, y = (
        np.concatenate([old, new[:ARRIVALS]]) for old, new in ((data.X, data.X_test), (data.y, data.y_test))
    )
    return Task(X, y, data.planted, z, data.X_test, data.y_test, seed)


def _planted(table: Table, counts: Counts, seed: int) -> Task:
    return task_of(with_planted_rows(table, counts.planted, counts.held_out, seed), counts.planted, seed)


def _clean(table: Table, counts: Counts, seed: int) -> Task:
    return task_of(with_planted_rows(table, 0, counts.held_out, seed), counts.planted, seed)


def _mislabelled(table: Table, counts: Counts, seed: int) -> Task:
    task = _clean(table, counts, seed)
    X, y = task.first(task.n)
    theta = _informed(task)
    wrong = np.zeros(task.n, dtype=bool)
    wrong[np.argsort(-y * (X @ theta[:-1] + theta[-1]))[: counts.planted]] = True
    y[wrong] *= -1
    return replace(task, planted=wrong)


def _logistic(**settings: Any) -> Any:
    return partial(LogisticRegression, max_iter=1000, warm_start=True, **settings)


def _informed(task: Task) -> np.ndarray:
    return linear_theta(_logistic()().fit(*task.clean()))


def _loss(theta: np.ndarray, X: np.ndarray, y: np.ndarray | None) -> float:
    return float(_LOSS.values(theta, X, y).mean())


def _losses(model: Any, X: np.ndarray, y: np.ndarray) -> np.ndarray:
    return np.logaddexp(0, -y * model.decision_function(X))


def _accuracy(theta: np.ndarray, task: Task) -> float:
    positive = task.X_test @ theta[:-1] + theta[-1] > 0
    return float((positive == (task.y_test > 0)).mean())


def _refitted(task: Task, **settings: Any) -> Contender:
    return Refitted(task, warm(_logistic(**settings)), linear_theta)


def _trimmed(task: Task) -> Contender:
    return Refitted(task, trimmed(warm(_logistic()), _losses, task.z), linear_theta)


def _screened(task: Task) -> Contender:
    return Screened(task, warm(_logistic()), linear_theta)


def _sgd(task: Task) -> Contender:
    return Learner(task, SGDClassifier(loss="log_loss", random_state=task.seed), linear_theta)


def _river(task: Task) -> Contender:
    from river.linear_model import LogisticRegression as OneByOne

    def theta_of(model: Any) -> np.ndarray:
        return np.append([model.weights.get(j, 0.0) for j in range(task.X.shape[1])], model.intercept)

    return River(task, OneByOne(), theta_of)


PART = Part(
    title="Classification",
    about=_ABOUT,
    tables=(covertype, made_up_covertype),
    states={"planted": _planted, "wrong labels": _mislabelled, "clean": _clean},
    entries=[
        *ours.entries(
            ours.Problem(
                dm.RobustLogisticRegression,
                "RobustLogisticRegression(n_outliers=z)",
                linear_theta,
                _LOSS,
                {"l2": 1.0},
            )
        ),
        Entry("lbfgs", "`LogisticRegression()`", _refitted),
        Entry(
            "newton-cholesky",
            '`LogisticRegression(solver="newton-cholesky")`',
            partial(_refitted, solver="newton-cholesky"),
        ),
        Entry("sgd", '`SGDClassifier(loss="log_loss")`', _sgd, "`partial_fit`", "fitted from scratch"),
        Entry(
            "isolation-forest",
            "`IsolationForest` and `LogisticRegression`",
            _screened,
            "judged by the forest; fitted again, from the last model on",
            "fitted from scratch",
        ),
        Entry("trimming", "`LogisticRegression` trimmed by hand", _trimmed),
        Entry(
            "river",
            "`river.linear_model.LogisticRegression()`",
            _river,
            "`learn_one`",
            "fitted from scratch",
            package="river",
        ),
    ],
    informed=_informed,
    loss=_loss,
    score=Score("accuracy", "share of the test rows whose class is predicted", ".2%", False, _accuracy),
)
