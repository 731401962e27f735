"""Ways to fit a logistic regression with outliers: on everything, on a coreset, with scikit-learn alone."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from sklearn.linear_model import LogisticRegression

import duramen as dm
from experiments.paper.fits import GAIN, alternation

__all__ = ["GAIN", "LOSS", "PEERS", "Fit", "Setting", "on_coreset", "on_everything"]

LOSS = dm.LogisticLoss()


class Fit(NamedTuple):
    """A model: its parameters, how many rows it was fitted on, and what it set aside if it tells."""

    theta: np.ndarray
    size: int
    outliers: np.ndarray | None = None


class Setting(NamedTuple):
    """One way to fit on a coreset; ``rounds`` is None for the functions, for the estimator also "default"."""

    size: int | str
    rounds: int | str | None = None

    @property
    def way(self) -> str:
        return "functions" if self.rounds is None else "estimator"


def on_everything(X: np.ndarray, y: np.ndarray, z: int, seed: int) -> Fit:
    """Fit all rows, trimmed: the baseline."""
    return Fit(dm.solve(dm.points(X, y), LOSS, z, random_state=seed).theta, len(X))


def on_coreset(X: np.ndarray, y: np.ndarray, z: int, seed: int, setting: Setting) -> Fit:
    """Fit a coreset, by the functions or by the estimator."""
    if setting.rounds is None:
        core = dm.robust_coreset(X, y, loss=LOSS, size=setting.size, n_outliers=z, random_state=seed)
        return Fit(dm.solve(core, random_state=seed).theta, len(core))
    rounds = {} if setting.rounds == "default" else {"n_rounds": setting.rounds}
    model = dm.RobustLogisticRegression(
        z, C=np.inf, coreset_size=setting.size, random_state=seed, **rounds
    ).fit(X, y)
    return Fit(_theta_of(model), model.coreset_size_, model.outliers_)


def by_scikit_learn(X: np.ndarray, y: np.ndarray, z: int) -> Fit:
    """Fit all rows, blind to outliers."""
    return Fit(_theta_of(LogisticRegression(C=np.inf, max_iter=1000).fit(X, y)), len(X))


def trimmed_by_scikit_learn(X: np.ndarray, y: np.ndarray, z: int) -> Fit:
    """Fit, and set the z largest losses aside, by turns: as one would write it."""
    return Fit(alternation(dm.points(X, y), LOSS, z, 0), len(X))


PEERS = {
    "`LogisticRegression`, blind to outliers": by_scikit_learn,
    "trimming around `LogisticRegression`": trimmed_by_scikit_learn,
}


def _theta_of(model: LogisticRegression | dm.RobustLogisticRegression) -> np.ndarray:
    return np.append(model.coef_[0], model.intercept_)
