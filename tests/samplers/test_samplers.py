"""Laws of every sampler: total weight, unbiasedness, weights as copies; and what is refused."""

import pickle

import numpy as np
import pytest

import duramen as dm
from duramen.coreset.view import SAMPLERS
from tests.coreset.cores import build

LOGISTIC = dm.LogisticLoss()


def data(n=600):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 3)) * np.exp(rng.normal(size=(n, 1)))
    y = np.where(X[:, 0] + rng.normal(size=n) > 0, 1, -1)
    return X, y


ANCHOR = dm.Anchor([1.0, 0.0, 0.0, 0.0], radius=0.1)
every_sampler = pytest.mark.parametrize(
    "sampler", [kind() for kind in SAMPLERS.values()], ids=lambda sampler: type(sampler).__name__
)


@every_sampler
@pytest.mark.parametrize("size", [1, 2, 7, 100, 599])
def test_total_weight_is_kept(sampler, size):
    X, y = data()
    weights = np.random.default_rng(1).exponential(size=len(X))
    points = dm.points(X, y, weights)
    core = sampler.bind(LOGISTIC, ANCHOR).reduce(points, size, np.random.default_rng(0))
    assert len(core) == size
    assert core.total_weight == pytest.approx(points.total_weight, rel=1e-12)
    assert (core.weights > 0).all()
    np.testing.assert_array_equal(core.X, X[core.ids])
    np.testing.assert_array_equal(core.y, y[core.ids])


@pytest.mark.slow
@every_sampler
def test_sums_are_unbiased_over_seeds(sampler):
    """2000 seeds: the mean of the estimates is within four of its standard errors of the sum.

    Scaling to the exact total makes a ratio of the estimate, whose bias is of the order of 1/m: here 1/60
    of a standard deviation of one estimate, that of the mean of 2000 being 1/45 of it.
    """
    X, y = data(300)
    weights = np.random.default_rng(5).exponential(size=300)
    points = dm.points(X, y, weights)
    bound = sampler.bind(LOGISTIC, ANCHOR)
    heavy = weights > 2  # a weight is as good as copies
    targets = np.stack([X[:, 0], X[:, 1] ** 2, y > 0, heavy], axis=1).astype(float)
    cores = (bound.reduce(points, 60, np.random.default_rng(seed)) for seed in range(2000))
    estimates = np.array([core.weights @ targets[core.ids] for core in cores])
    error = estimates.std(axis=0) / 2000**0.5
    assert (np.abs(estimates.mean(axis=0) - weights @ targets) < 4 * error).all()


@every_sampler
def test_samplers_are_values(sampler):
    assert pickle.loads(pickle.dumps(sampler)) == sampler
    assert repr(sampler).startswith(type(sampler).__name__)


def test_uniform_and_leverage_work_alone():
    X, y = data()
    for sampler in (dm.UniformSampler(), dm.LeverageSampler()):
        assert len(sampler.reduce(dm.points(X), 20, np.random.default_rng(0))) == 20
    for sampler in (dm.LayeredSampler(), dm.SensitivitySampler()):
        with pytest.raises(ValueError, match=r"bind\(loss, anchor\)"):
            sampler.reduce(dm.points(X, y), 20, np.random.default_rng(0))


def test_leverage_does_not_depend_on_the_units_of_columns():
    X, y = data(600)
    asked = {"size": 50, "anchor": np.zeros(4), "calibrate": False, "random_state": 1}
    one, other = (build(rows, y, **asked) for rows in (X, X * [1e-6, 1.0, 1e9]))
    np.testing.assert_array_equal(one.ids, other.ids)


def test_leverage_refuses_a_frame_of_other_columns():
    X, y = data()
    anchor = build(X, y, size=10, anchor=ANCHOR, sampler="leverage").anchor
    message = r"frame has shape \(4, 4\); it does not fit 4 directions of 2 columns"
    with pytest.raises(ValueError, match=message):
        dm.LeverageSampler().scores(dm.AnchoredPoints(dm.points(X[:, :2], y), LOGISTIC, anchor, X[:, 0]))


@pytest.mark.parametrize("losses", [np.zeros(50), np.full(50, 3.0), np.r_[np.zeros(49), 1e-300]])
def test_layers_of_equal_losses(losses):
    bound = dm.LayeredSampler().bind(dm.KMedianLoss(1), dm.Anchor([[0.0]], 1.0))
    core = bound.reduce(dm.points(losses[:, None]), 10, np.random.default_rng(0))
    assert len(core) == 10
    assert core.total_weight == pytest.approx(50)


def test_wrong_scores_are_refused():
    class Wrong(dm.RankedSampler):
        def __init__(self, scores):
            self.given = scores

        def scores(self, anchored):
            return self.given

    points = dm.points(np.zeros((3, 1)))
    for scores, message in (
        (np.array([1.0, 0.0, 2.0]), "score 0.0 to id 1"),
        (np.array([1.0, np.nan, 2.0]), "score nan to id 1"),
        (np.ones(2), r"shape \(2,\) for 3 points"),
    ):
        with pytest.raises(ValueError, match=message):
            Wrong(scores).reduce(points, 2, np.random.default_rng(0))


def test_size_and_directions_are_whole_numbers():
    for size in (0, -1, 2.0, True, None):
        with pytest.raises(ValueError, match="size"):
            dm.UniformSampler().reduce(dm.points(np.zeros((3, 1))), size, np.random.default_rng(0))
    for directions in (0, -1, 2.5, "8"):
        with pytest.raises(ValueError, match="directions"):
            dm.LeverageSampler(directions)
