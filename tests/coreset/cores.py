"""Small coresets to try things on, and data to build them from."""

from __future__ import annotations

import dataclasses
import functools

import numpy as np
from scipy import sparse

import duramen as dm


def logistic_core(**changes):
    """Make 60 rows of two classes for 400 points, 10 of them far out and mislabelled."""
    return dataclasses.replace(_logistic_core(), **changes)


@functools.cache
def _logistic_core():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 3))
    y = np.where(X[:, 0] + rng.normal(size=400) > 0, 1, -1)
    X[:10], y[:10] = X[:10] + 50, -1
    return dm.robust_coreset(X, y, loss=dm.LogisticLoss(), size=60, n_outliers=10, random_state=0)


@functools.cache
def kmeans_core(n_outliers=0, size=50, **given):
    """Make rows of three clusters."""
    rng = np.random.default_rng(1)
    X = 10 * rng.normal(size=(3, 4))[rng.integers(3, size=500)] + rng.normal(size=(500, 4))
    return dm.robust_coreset(
        X, loss=dm.KMeansLoss(3), size=size, n_outliers=n_outliers, random_state=1, **given
    )


@functools.cache
def sparse_core(dtype=np.float64):
    """Make sparse rows with an empty one among them."""
    rng = np.random.default_rng(2)
    X = sparse.random(300, 40, density=0.05, format="csr", random_state=rng, dtype=dtype)
    y = rng.integers(0, 2, size=300)
    return dm.robust_coreset(X, y, loss=dm.LogisticLoss(), size=50, n_outliers=0.02, random_state=0)


def own_loss_core():
    """Make a coreset of a loss that no file can hold."""
    X = np.random.default_rng(3).normal(size=(200, 2))
    return dm.robust_coreset(X, loss=CityBlock(), size=20, anchor=np.zeros(2), random_state=0)


class CityBlock(dm.Loss):
    """A custom loss."""

    def __repr__(self):
        return "CityBlock()"

    def parameter_shape(self, n_columns):
        return (n_columns,)

    def values(self, theta, X, y=None):
        return np.abs(X - theta).sum(axis=1)


class Absolute(dm.Loss):
    """A loss with nothing but values."""

    def values(self, theta, X, y=None):
        return np.abs(X[:, 0] - theta[0])

    def vc_dimension(self, n_columns):
        return 2


def logistic(n=2000, z=40, seed=0, d=3):
    """Make rows of two classes, the first ``z`` of them far out and mislabelled."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    y = np.where(X[:, 0] + rng.normal(size=n) > 0, 1, -1)
    X[:z] *= 30
    y[:z] = np.where(X[:z, 0] > 0, -1, 1)
    return X, y


def build(X, y=None, **settings):
    """Build a coreset of 100 rows for logistic regression, unless the settings say otherwise."""
    defaults = {"loss": dm.LogisticLoss(), "size": 100, "random_state": 0}
    return dm.robust_coreset(X, y, **defaults | settings)
