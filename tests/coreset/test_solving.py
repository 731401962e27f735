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
    assert len(solution.start_objectives) == 3  # from zero, the anchor, and the middle
    np.testing.assert_allclose(solution.theta, [2, 0, 0, 0], atol=0.5)  # about six standard errors


@pytest.mark.parametrize("seed", range(3))
def test_noise_far_out_on_a_fifth_of_the_rows_does_not_mislead_the_start(seed):
    """From zero, noise on many columns is what the first steps follow; from the middle, nothing is seen of it."""
    rng = np.random.default_rng(seed)
    n, z, truth = 40_000, 8000, np.append(np.full(10, 0.6), np.zeros(30))
    X = rng.normal(size=(n, 40))
    y = np.where(X @ truth + rng.logistic(size=n) > 0, 1, -1)
    X[:z] += 10 * rng.normal(size=(z, 40))
    y[:z] = rng.permutation(y[:z])
    points, loss = dm.points(X, y), dm.LogisticLoss()
    best = dm.solve(points, loss, z, init=np.append(truth, 0.0)).objective
    core = dm.robust_coreset(X, y, loss=loss, size=4000, n_outliers=z, random_state=seed)
    solutions = dm.solve(core), dm.solve(core, init="zero")
    found, blind = (
        dm.trimmed_objective(points, solution.theta, loss=loss, n_outliers=z) for solution in solutions
    )
    assert found < 1.2 * best  # 1.06 to 1.15
    assert found < 0.85 * blind  # which is at 1.48 to 1.75
