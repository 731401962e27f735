"""The rows of the demo: two classes as a logistic model draws them, and what an adversary did to some."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from duramen.arrays import Array

__all__ = ["N_COLUMNS", "Contaminated", "contaminated", "n_planted"]

_CORRELATED, _HEAVY = 12, 4  # columns that share hidden causes, and columns with heavy tails
_RATES = (0.3, 0.1, 0.03, 0.01)  # of yes, in the yes-or-no columns
N_COLUMNS = _CORRELATED + _HEAVY + len(_RATES)
_CAUSES = 3
_SIGNAL = 4.0  # standard deviation of the log-odds: the true model gets 87% right
# Where planted rows go, found by trying: as far as ruins an ordinary fit and hides them from it, and at an
# angle to the true direction, so that the boundary turns; straight ahead, a fit only grows less confident.
_REACH, _ANGLE = 22.0, np.radians(30)


class Contaminated(NamedTuple):
    """Rows of two classes, some of them planted by an adversary.

    Attributes
    ----------
    X : array (n, 20)
    y : array (n,)
        Labels, -1 and 1.
    planted : array (n,), bool
    theta : array (21,)
        The model that drew the labels of the clean rows, intercept last.
    """

    X: Array
    y: Array
    planted: Array
    theta: Array

    @property
    def z(self) -> int:
        """How many rows are planted."""
        return int(np.count_nonzero(self.planted))


def n_planted(n: int, share: float) -> int:
    """Count the planted among ``n`` rows: a share of them, but at least one."""
    return max(round(share * n), 1)


def contaminated(n: int, share: float, seed: int) -> Contaminated:
    """Make ``n`` rows with 20 columns, a share of them moved far out and mislabelled.

    Twelve columns are correlated, four have heavy tails, four are yes or no and
    some of these rare. Planted rows are rows like any other, all moved by the
    same vector towards where the true model is surest of class 1, and labelled -1.
    """
    rng = np.random.default_rng(seed)
    X = np.empty((n, N_COLUMNS))  # first of all: more than memory holds fails here, at once
    mixing = _mixing(rng)
    direction = _unit(rng.normal(size=_CORRELATED))  # of the log-odds, before columns are mixed
    theta = _model(mixing, direction, rng)
    correlated, heavy, rare = np.split(X, [_CORRELATED, _CORRELATED + _HEAVY], axis=1)
    correlated[:] = rng.normal(size=correlated.shape) @ mixing
    heavy[:] = rng.standard_t(5, size=heavy.shape)
    rare[:] = rng.random(rare.shape) < _RATES
    y = np.where(X @ theta[:-1] + theta[-1] + rng.logistic(size=n) > 0, 1, -1)
    planted = np.zeros(n, dtype=bool)
    planted[rng.choice(n, n_planted(n, share), replace=False)] = True
    correlated[planted] += _shift(direction, rng) @ mixing
    y[planted] = -1
    return Contaminated(X, y, planted, theta)


def _mixing(rng: np.random.Generator) -> Array:
    """Make the matrix that turns independent columns into correlated ones of variance 1."""
    loadings = 0.6 * rng.normal(size=(_CAUSES, _CORRELATED))
    covariance = loadings.T @ loadings + 0.5 * np.eye(_CORRELATED)
    deviations = np.sqrt(covariance.diagonal())
    return np.linalg.cholesky(covariance / np.outer(deviations, deviations)).T


def _model(mixing: Array, direction: Array, rng: np.random.Generator) -> Array:
    """Choose the true coefficients, so that the classes are about equally many."""
    heavy = 0.3 * rng.choice([-1, 1], _HEAVY)
    rare = 1.0 * rng.choice([-1, 1], len(_RATES))
    return np.concatenate([_SIGNAL * np.linalg.solve(mixing, direction), heavy, rare, [-(rare @ _RATES)]])


def _shift(direction: Array, rng: np.random.Generator) -> Array:
    """Choose by what planted rows are moved: at an angle to the true direction."""
    other = rng.normal(size=len(direction))
    other = _unit(other - (other @ direction) * direction)
    return _REACH * (np.cos(_ANGLE) * direction + np.sin(_ANGLE) * other)


def _unit(vector: Array) -> Array:
    return vector / np.linalg.norm(vector)
