"""A black box of the user's own reduces the suspected inliers."""

import numpy as np
import pytest

import duramen as dm
from tests.coreset.test_laws import logistic
from tests.samplers.test_samplers import OneInSo


def test_a_black_box_of_your_own():
    X, y = logistic()
    core = dm.robust_coreset(
        X, y, loss=dm.LogisticLoss(), size=100, n_outliers=40, sampler=OneInSo(), random_state=0
    )
    assert len(core) == 100
    assert core.weights[~core.suspected].sum() == pytest.approx(1940)
    estimate = core.estimate(core.anchor.theta)
    assert np.isnan(estimate.std_error)
    assert estimate.value == core.objective(core.anchor.theta)
    assert dm.solve(core).theta.shape == (4,)


def test_a_black_box_that_invents_points_is_told():
    class Inventive(dm.Sampler):
        def reduce(self, points, size, rng):
            return dm.points(np.zeros((size, 3)), np.ones(size), ids=-1 - np.arange(size))

    X, y = logistic()
    with pytest.raises(ValueError, match=r"Inventive\(\) gave 80 points .* with their ids"):
        dm.robust_coreset(X, y, loss=dm.LogisticLoss(), size=100, n_outliers=40, sampler=Inventive())
