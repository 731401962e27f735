"""Balls and the distance of parameters."""

import copy
import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import duramen as dm
from duramen.losses.base import distance, dual_norms

shapes = st.sampled_from([(1,), (4,), (1, 3), (5, 2)])
seeds = st.integers(0, 2**32 - 1)


def test_the_distance_of_centres_is_the_largest_over_centres():
    one, two = np.zeros((3, 2)), np.array([[3.0, 4.0], [0.0, 1.0], [6.0, 8.0]])
    assert distance(one, two) == 10.0
    assert distance(one.ravel(), two.ravel()) == pytest.approx(np.sqrt(25 + 1 + 100))
    with pytest.raises(ValueError, match=r"\(2,\) and \(3,\) cannot be compared"):
        distance([0, 0], [0, 0, 0])


@given(shapes, seeds)
def test_distance_is_a_metric(shape, seed):
    a, b, c = np.random.default_rng(seed).normal(size=(3, *shape))
    assert distance(a, b) == distance(b, a) > 0 == distance(a, a)
    assert distance(a, c) <= distance(a, b) + distance(b, c) + 1e-12


@given(shapes, seeds)
def test_the_dual_norm_is_the_largest_change_over_the_unit_ball(shape, seed):
    rng = np.random.default_rng(seed)
    g = rng.normal(size=shape)
    ball = dm.Ball(np.zeros(shape), 1.0)
    norm = dual_norms(g[None])[0]
    assert max((g * theta).sum() for theta in ball.sample(50, rng)) <= norm + 1e-12
    steepest = g / np.linalg.norm(g, axis=-1, keepdims=True)
    assert (g * steepest).sum() == pytest.approx(norm)


@given(shapes, seeds, st.floats(0, 100))
def test_projection(shape, seed, radius):
    rng = np.random.default_rng(seed)
    ball = dm.Ball(rng.normal(size=shape), radius)
    far = 50 * rng.normal(size=shape)
    near = ball.project(far)
    assert distance(ball.theta, near) <= radius * (1 + 1e-12) + 1e-14
    np.testing.assert_allclose(ball.project(near), near, atol=1e-9)
    inside = ball.theta + (near - ball.theta) / 2
    np.testing.assert_allclose(ball.project(inside), inside, rtol=1e-15)
    assert near in ball
    assert all(theta in ball for theta in ball.sample(20, rng))


def test_far_from_the_origin_and_far_away():
    rng = np.random.default_rng(0)
    ball = dm.Ball(1e8 + rng.normal(size=50), 1e-7)
    assert all(theta in ball for theta in ball.sample(50, rng))
    np.testing.assert_array_equal(dm.Ball([0.0, 0.0], 1.0).project([1e200, 0.0]), [1.0, 0.0])
    with pytest.raises(ValueError, match=r"shapes \(1,\) and \(2,\) cannot be compared"):
        dm.Ball([0.0, 0.0], 1.0).project([5.0])


def test_samples_fill_the_ball_evenly():
    """The share within half the radius is 2^-d: 0.25 in the plane, +-0.01 at three deviations of 20,000 draws."""
    ball = dm.Ball(np.zeros((2, 2)), 3.0)
    draws = ball.sample(20_000, np.random.default_rng(0))
    for centre in range(2):
        inner = (np.linalg.norm(draws[:, centre], axis=1) < 1.5).mean()
        assert inner == pytest.approx(0.25, abs=0.01)


def test_it_keeps_its_own_copy_and_copies_are_frozen_too():
    theta = np.array([1.0, 2.0])
    ball = dm.Ball(theta, 1)
    theta[0] = 5
    for each in (ball, copy.deepcopy(ball), pickle.loads(pickle.dumps(ball))):
        assert each.theta.tolist() == [1.0, 2.0]
        assert each.radius == 1.0
        with pytest.raises(ValueError, match="read-only"):
            each.theta[0] = 1


@pytest.mark.parametrize(
    "theta, radius, message",
    [
        ([0.0], "wide", r"radius='wide' must be zero"),
        ([0.0], -1.0, r"radius=-1.0 must be zero or a positive finite number"),
        ([0.0], np.inf, r"radius=inf"),
        ([0.0], np.nan, r"radius=nan"),
        (3.0, 1, r"found shape \(\)"),
        (np.zeros((2, 2, 2)), 1, r"found shape \(2, 2, 2\)"),
        ([], 1, r"found shape \(0,\)"),
        ([np.nan], 1, r"theta must be finite"),
    ],
)
def test_what_is_no_ball(theta, radius, message):
    with pytest.raises(ValueError, match=message):
        dm.Ball(theta, radius)
