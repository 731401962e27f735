"""Calibration: totals are met, factors stay within bounds, and nothing breaks on odd columns."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import duramen as dm
from duramen.coreset.coreset import Calibration
from duramen.coreset.view import calibration_features
from tests.conformance.cases import CASES


def sample(m=2000, q=5, seed=0):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(m, q)), rng.exponential(size=m) + 0.5


def test_totals_that_many_points_speak_for_are_met():
    columns, weights = sample()
    shift = 0.02 * np.arange(1, 6)  # up to four standard errors
    totals = weights.sum() * (weights @ columns / weights.sum() + shift)
    new = Calibration(columns, weights).weights(totals)
    assert new.sum() == pytest.approx(weights.sum(), rel=1e-13)
    # met but for the ridge: a total that m points speak for is met to 10 / m of the way
    np.testing.assert_allclose(new @ columns / new.sum(), totals / weights.sum(), atol=0.05 * shift.max())
    assert (new / weights > 1 / 3.1).all()
    assert (new / weights < 3.1).all()
    alone = Calibration(columns, weights).weights(weights @ columns)  # which meet the totals
    np.testing.assert_allclose(alone, weights, rtol=1e-9)


@given(st.integers(0, 2**32), st.integers(1, 60), st.integers(1, 8), st.floats(-50, 50))
def test_weights_stay_positive_and_add_up_whatever_is_asked(seed, m, q, wish):
    """Also for totals that no weights can reach, columns without spread, and more columns than points."""
    rng = np.random.default_rng(seed)
    columns = rng.choice([0.0, 1.0, 1e6], p=[0.6, 0.3, 0.1], size=(m, q))
    columns *= rng.choice([0.0, 1e-9, 1.0], size=q)
    columns[:, 0] = 7.0
    weights = rng.exponential(size=m) + 1e-6
    totals = weights @ columns + wish * weights.sum() * columns.std(axis=0)
    new = Calibration(columns, weights).weights(totals)
    assert (new > 0).all()
    assert new.sum() == pytest.approx(weights.sum(), rel=1e-12)
    factors = new / weights
    assert factors.max() / factors.min() <= 9 * (1 + 1e-9)


def test_residuals_are_those_of_a_regression_without_the_point():
    """Against leaving each point out by hand, without a ridge to speak of (2000 points speak for each column)."""
    columns, weights = sample(m=400, q=2)
    values = columns @ [1.0, -2.0] + np.random.default_rng(1).normal(size=400)
    left = Calibration(columns, weights).residuals(values)
    design = np.column_stack([np.ones(400), columns])
    for i in (0, 7, 200):
        keep = np.arange(400) != i
        root = np.sqrt(weights[keep])
        slopes = np.linalg.lstsq(design[keep] * root[:, None], values[keep] * root, rcond=None)[0]
        assert left[i] == pytest.approx(values[i] - design[i] @ slopes, rel=0.15, abs=0.1)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_what_is_known_of_points_adds_up(case):
    """The totals over all points are the sums of the columns of each."""
    X, y = case.data()
    theta = case.theta(np.random.default_rng(0))
    points, anchor = dm.points(X, y), dm.Anchor(theta, 1.0)
    weights = np.random.default_rng(1).exponential(size=len(X))
    weights[::5] = 0
    losses, marks = case.loss.values_and_cache(theta, X, y)
    np.testing.assert_array_equal(losses, case.loss.values(theta, X, y))
    for size in (10**6, 100, 10):
        known = calibration_features(case.loss, anchor, size, points)
        expected = weights @ known.columns(points)
        assert known.n_columns == len(expected)
        assert known.n_columns * 10 <= size or known.n_columns == 1
        for given_marks in (marks, None)[: 1 if known.centres else 2]:
            totals = known.totals(points.with_parts(weights=weights), losses, given_marks)
            np.testing.assert_allclose(totals, expected, rtol=1e-9, atol=1e-9)
