"""The first pass: its sample is a function of the points; bad rows are named by their number among all rows."""

import math

import numpy as np
import pytest

import duramen as dm
from duramen.coreset import view
from duramen.coreset.passes import plan, summarize
from duramen.samplers.base import uniforms
from tests.support import Heaviest, cut, data, streamed


def test_the_anchor_is_made_from_the_smallest_random_numbers_of_the_ids(few_sampled):
    """So that it is a function of the points, and not of how they come."""
    points = data("squared", n=5000, heavy="wild")

    def counted(batches):
        return summarize(batches(), plan(loss=dm.SquaredLoss(), size=50, random_state=5))

    found = counted(cut(points, range(0, 5000, 77)))
    live = points.take(points.weights > 0)
    seed = found.plan.problem.seed
    chance = uniforms(seed ^ view._SALT, live.ids) / live.weights
    order = np.argsort(chance)
    sample = found.sample()
    np.testing.assert_array_equal(sample.ids, np.sort(live.ids[order[:300]]))
    np.testing.assert_array_equal(sample.ids, view.anchor_sample(points, seed).ids)
    assert sample.total_weight == pytest.approx(live.total_weight, rel=0.2)
    assert sample.weights.min() >= 1 / chance[order[300]] * (1 - 1e-12)
    assert (found.n_rows, found.n_points) == (5000, len(live))
    assert found.total == math.fsum(points.weights)
    shuffled = np.random.default_rng(1).permutation(5000)
    for batches in (cut(points), cut(points, range(0, 5000, 999), shuffled)):
        assert counted(batches) == found


def test_a_sample_of_equal_weights_keeps_them(few_sampled):
    sample = view.anchor_sample(dm.points(np.zeros((1000, 1))), 3)
    np.testing.assert_array_equal(sample.weights, np.ones(300))


def refused(batches, error, match, **more):
    chosen = {"loss": dm.LogisticLoss(), "size": 50, "random_state": 0, **more}
    with pytest.raises(error, match=match):
        streamed(batches, **chosen)


def unread():
    raise AssertionError("it was read")


@pytest.mark.parametrize(
    ("error", "match", "wrong"),
    [
        (TypeError, "scores each point by itself", {"sampler": Heaviest()}),
        (TypeError, "loss must be a Loss", {"loss": "logistic"}),
        (TypeError, "calibrate=3", {"calibrate": 3}),
        (ValueError, "'best' is not known", {"sampler": "best"}),
        (ValueError, "size=0", {"size": 0}),
        (ValueError, "n_outliers=-1", {"n_outliers": -1}),
        (TypeError, "n_outliers='5%'", {"n_outliers": "5%"}),
        (ValueError, "needs to know how far", {"anchor": [0.0, 0.0], "sampler": "sensitivity"}),
        (ValueError, "NaN|finite", {"anchor": [np.nan]}),
    ],
)
def test_wrong_settings_are_refused_before_anything_is_read(error, match, wrong):
    refused(unread, error, match, **wrong)


def test_bad_data_is_refused_with_its_number_among_all_rows():
    points = data(n=300, heavy="none")
    batches = cut(points, (100, 200))
    with_nan = np.array(points.X)
    with_nan[250, 1] = np.nan
    bad = dm.WeightedPoints._from_parts(with_nan, points.y, points.weights, points.ids)
    refused(cut(bad, (100, 200)), ValueError, "X has NaN in row 250, column 1")
    labels = np.where(np.arange(300) == 140, 7, points.y)
    wrong = cut(dm.points(points.X, labels, ids=points.ids), (100,))
    refused(wrong, ValueError, "row 140 has 7", anchor=[0, 0, 0])
    mixed = np.where((np.arange(300) >= 200) & (points.y < 0), 0, points.y)
    refused(cut(dm.points(points.X, mixed, ids=points.ids), (200,)), ValueError, "do not match")
    refused(cut(dm.points(points.X)), ValueError, "needs labels")
    message = "some have 2 columns of float64, with labels, others 1 columns"
    refused(lambda: [points, dm.points([[1.0]], [1])], ValueError, message)
    refused(lambda: [points, points.X], TypeError, "found ndarray")
    refused(list, ValueError, "no points")
    refused(cut(points.with_parts(weights=np.zeros(300))), ValueError, "all weights are zero")
    refused(batches, ValueError, "not below the total weight 300", n_outliers=300)
    refused(lambda: [points, points], ValueError, "ids must be distinct")
    refused(batches, ValueError, "shape", anchor=[0.0])
