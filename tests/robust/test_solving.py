"""Where a coreset is solved from."""

import numpy as np
import pytest

import duramen as dm


@pytest.mark.parametrize("seed", range(3))
def test_solving_falls_back_on_the_anchor_where_outliers_mislead_the_start_from_zero(seed):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(20_000, 3))
    y = np.where(2 * X[:, 0] + rng.logistic(size=20_000) > 0, 1, -1)
    X[:2000] = [30.0, 0.0, 0.0] + 0.1 * rng.normal(size=(2000, 3))
    y[:2000] = -1
    core = dm.robust_coreset(X, y, loss=dm.LogisticLoss(), size=1000, n_outliers=2000, random_state=seed)
    solution = dm.solve(core)
    assert solution.objective < 0.9 * dm.solve(core, init="zero").objective
    assert np.mean(solution.outliers < 2000) > 0.99
    assert len(solution.start_objectives) == 2
    np.testing.assert_allclose(solution.theta, [2, 0, 0, 0], atol=0.5)  # about six standard errors
