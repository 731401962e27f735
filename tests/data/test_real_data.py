"""The lowest layer on the real data: right numbers, and bounds that hold on real rows."""

import numpy as np
import pytest
from sklearn.metrics import log_loss
from sklearn.metrics.pairwise import pairwise_distances_argmin_min

import duramen as dm

pytestmark = [pytest.mark.data, pytest.mark.slow]


def test_logistic_loss_on_covertype(covertype):
    X, y = covertype
    rng = np.random.default_rng(0)
    theta = 0.1 * rng.normal(size=X.shape[1] + 1)
    values = dm.LogisticLoss().values(theta, X, y)
    m = X @ theta[:-1] + theta[-1]
    assert values.mean() == pytest.approx(log_loss(y, 1 / (1 + np.exp(-m))), rel=1e-10)


def test_equal_rows_of_covertype_have_equal_losses(covertype):
    """Rounded to whole numbers, many rows are equal; a loss that depends on the place would tell them apart."""
    X, y = covertype
    rounded = np.round(X[:200_000, :10] / 2) * 2 * np.pi
    keys = np.column_stack([rounded, y[: len(rounded)]])
    _, group = np.unique(keys, axis=0, return_inverse=True)
    theta = np.random.default_rng(1).normal(size=11)
    values = dm.LogisticLoss().values(theta, rounded, y[: len(rounded)])
    lowest, highest = np.full(group.max() + 1, np.inf), np.full(group.max() + 1, -np.inf)
    np.minimum.at(lowest, group.ravel(), values)
    np.maximum.at(highest, group.ravel(), values)
    assert len(lowest) < len(values) / 2
    np.testing.assert_array_equal(lowest, highest)


@pytest.mark.parametrize("radius", [0.01, 0.3])
def test_deviation_holds_on_covertype(covertype, radius):
    X, y = (part[:50_000] for part in covertype)
    loss = dm.LogisticLoss()
    rng = np.random.default_rng(2)
    ball = dm.Ball(0.1 * rng.normal(size=X.shape[1] + 1), radius)
    bound, anchor = loss.deviation(ball, X, y), loss.values(ball.theta, X, y)
    assert (bound <= loss.lipschitz(X) * radius * (1 + 1e-9)).all()
    for theta in ball.sample(20, rng):
        assert (np.abs(loss.values(theta, X, y) - anchor) <= bound).all()
    for row in range(0, 50_000, 5_000):  # the worst theta of these rows
        step = radius * np.append(X[row], 1) / np.linalg.norm(np.append(X[row], 1)) * -y[row]
        change = np.abs(loss.values(ball.theta + step, X, y) - anchor)
        assert (change <= bound).all()
        assert change[row] == pytest.approx(bound[row], rel=1e-9)


def test_k_means_on_the_survey(survey):
    points = dm.points(survey)
    assert points.X.shape == (541_508, survey.num_columns)
    X = (points.X - points.X.mean(axis=0)) / points.X.std(axis=0)
    centres = X[np.random.default_rng(3).choice(len(X), 10, replace=False)]
    number, distance = pairwise_distances_argmin_min(X, centres)
    loss = dm.KMedianLoss(10)
    np.testing.assert_allclose(loss.values(centres, X), distance, rtol=1e-6, atol=1e-6)
    assert (loss.nearest(centres, X) == number).mean() > 0.9999
    ball = dm.Ball(centres, 0.5)
    for theta in ball.sample(3, np.random.default_rng(4)):
        change = np.abs(loss.values(theta, X) - loss.values(centres, X))
        assert (change <= loss.deviation(ball, X)).all()
