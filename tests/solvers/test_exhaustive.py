"""Tiny trimmed problems, against every way to choose the outliers."""

from itertools import combinations

import numpy as np
import pytest
from scipy.optimize import minimize

import duramen as dm
from tests.conformance.cases import CASES, Case

N, Z = 9, 2
TRIALS = 5
NAMES = ["logistic", "squared", "huber", "poisson", "one mean", "bregman, one centre, squared"]
pytestmark = pytest.mark.slow


def two_means(X):
    """Find the best two means by trying every way to part the points: (ways, points) is which side each is on."""
    X = X - X.mean(axis=0)
    side = (np.arange(2 ** (len(X) - 1))[:, None] >> np.arange(len(X))) & 1
    explained = sum(
        np.square(part @ X).sum(axis=1) / np.maximum(part.sum(axis=1), 1) for part in (side, 1 - side)
    )
    return np.square(X).sum() - explained.max()


def fitted(loss, X, y, l2):
    """Minimise the untrimmed objective, by a general optimiser from several places."""
    if loss == dm.KMeansLoss(2):
        return two_means(X)
    shape = loss.parameter_shape(X.shape[1])

    def objective(flat):
        theta = flat.reshape(shape)
        ridge = l2 / 2 * float(theta[:-1] @ theta[:-1]) if l2 else 0.0
        return loss.values(theta, X, y).sum() + ridge

    starts = [np.zeros(int(np.prod(shape)))]
    if y is None:
        starts = [X.mean(axis=0), np.median(X, axis=0)]
    return min(minimize(objective, start, method="BFGS").fun for start in starts)


def exhaustive(loss, X, y, l2):
    rows = np.arange(len(X))
    kept = (np.setdiff1d(rows, out) for out in combinations(rows, Z))
    return min(fitted(loss, X[keep], None if y is None else y[keep], l2) for keep in kept)


@pytest.mark.parametrize("name", [*NAMES, "truth discovery", "two means"])
def test_as_good_as_every_outlier_set(name, record_property):
    """The solver finds the best of all outlier sets, within a few millionths."""
    case = next((case for case in CASES if case.name == name), Case(name, dm.KMeansLoss(2), None, columns=2))
    loss, l2 = case.loss, 0.5 if case.label else 0.0
    excess = []
    for seed in range(TRIALS):
        X, y = case.data(seed, N)
        X = X[:, :2].copy()
        if case.label == "sign":
            y[:3], y[3:6] = 1, -1  # so that no outliers leave one class only
        best, chosen = exhaustive(loss, X, y, l2), {"n_starts": 10, "tol": 1e-10, "max_iter": 2000}
        solution = dm.solve(dm.points(X, y), loss, Z, l2=l2, random_state=seed, **chosen)
        excess.append(float(solution.objective / best - 1))
    record_property("exhaustive", (name, float(np.mean(np.array(excess) <= 1e-5)), max(0.0, *excess)))
    assert min(excess) >= -1e-5
    assert max(excess) <= 1e-5
