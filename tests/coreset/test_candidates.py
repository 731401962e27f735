"""Laws of the coreset chosen from candidates: that of all data at once, however rows arrive; in little memory."""

import tracemalloc
from contextlib import nullcontext

import numpy as np
import pytest

import duramen as dm
from duramen.coreset import anchor_sample, first_pass
from tests.support import (
    KINDS,
    PROBLEMS,
    SAMPLERS,
    SUITS,
    assert_same_coreset,
    at_once,
    cut,
    data,
    quietly,
    streamed,
)


def assert_law(points, batches=None, *, anchor=None, **chosen):
    """Build a coreset from batches, and compare it with that of all points at once."""
    chosen = {"size": 60, "n_outliers": 0.05, "random_state": 3, **chosen}
    batches = batches or cut(points, (100, 250))
    core = quietly(streamed, batches, anchor=anchor, **chosen)
    assert_same_coreset(core, at_once(points, anchor=anchor, **chosen))
    return core


@pytest.mark.parametrize("name, sampler", SUITS, ids=lambda value: value)
@pytest.mark.parametrize("heavy", KINDS)
def test_streamed_is_the_coreset_of_all_data_at_once(name, sampler, heavy):
    problem, points = PROBLEMS[name], data(name, heavy=heavy)
    core = assert_law(points, loss=problem.loss, sampler=SAMPLERS[sampler], anchor=problem.anchor())
    assert len(core) == 60
    assert 0 < core.n_suspected < 60
    assert core.calibrated


@pytest.mark.parametrize("sampler", SAMPLERS)
@pytest.mark.parametrize("name", ["logistic", "huber", "k-means"])
def test_the_anchor_found_gives_the_same_coreset_again(name, sampler):
    problem, points = PROBLEMS[name], data(name, n=3000)
    core = assert_law(points, cut(points, range(0, 3000, 271)), loss=problem.loss, sampler=SAMPLERS[sampler])
    assert_law(points, loss=problem.loss, sampler=SAMPLERS[sampler], anchor=core.anchor)
    asked = {"loss": problem.loss, "n_outliers": 0.05}
    thetas = core.anchor.theta, dm.solve(points, **asked).theta
    near, best = (dm.trimmed_objective(points, theta, **asked) for theta in thetas)
    assert near < 1.2 * best


@pytest.mark.parametrize("sampler", ["uniform", "layered", "leverage", "sensitivity"])
def test_many_small_batches_of_many_points(sampler):
    """Held points are cut again and again; equal losses and few values of them make ties at the edge."""
    points = data(n=20_000, heavy="none", whole=True)
    batches = cut(points, range(0, 20_000, 37))
    loss, anchor = PROBLEMS["logistic"].loss, PROBLEMS["logistic"].anchor()
    assert_law(points, batches, loss=loss, sampler=sampler, anchor=anchor, n_outliers=100, size=50)


def test_a_dynamic_coreset_after_reanchor_is_the_same():
    points = data(n=3000)
    chosen = {"loss": dm.LogisticLoss(), "size": 60, "n_outliers": 0.05, "random_state": 3}
    dynamic = dm.DynamicCoreset(**chosen)
    dynamic.insert(points.X, points.y, points.weights, points.ids)
    dynamic.reanchor()
    assert_same_coreset(assert_law(points, **chosen), dynamic.coreset())


@pytest.mark.usefixtures("two_threads")
@pytest.mark.parametrize("rising", [False, True])
@pytest.mark.parametrize("sampler", ["layered", "leverage"])
def test_memory_does_not_grow_with_the_points(sampler, rising, monkeypatch):
    """Five times the points, by the same batches, take no more: also where every point is suspected for a while."""

    def peak(n_batches):
        def batches():
            for number in range(n_batches):
                rng = np.random.default_rng(number)
                scale = 2 + 2 * rising * number / n_batches
                X = np.round(scale * rng.normal(size=(2000, 8)))  # whole losses, so that layers are soon full
                yield dm.points(X, ids=2000 * number + np.arange(2000))

        tracemalloc.start()
        try:
            chosen = {"loss": dm.KMeansLoss(1), "anchor": dm.Anchor(np.zeros((1, 8)), 0.1)}
            streamed(batches, size=200, n_outliers=500, sampler=sampler, random_state=0, **chosen)
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    monkeypatch.setattr(anchor_sample, "SAMPLE", 1000)
    monkeypatch.setattr(first_pass, "SAMPLE", 1000)
    peak(2)  # what is loaded once
    few, many = peak(20), peak(100)
    assert many < 1.6 * few  # what is held is up to twice what is needed, as the last cut has it
    assert many < 100 * 2000 * 8 * 8 / 5  # a fifth of the data


@pytest.mark.parametrize("n_outliers, refuses", [(3, False), (1, True)])
def test_infinite_losses_must_be_suspected(n_outliers, refuses):
    points = data("squared", n=300, heavy="none")
    X = np.array(points.X)
    X[[20, 150, 290]] = 1e200
    points = dm.points(X, points.y, ids=points.ids)
    chosen = {"loss": dm.SquaredLoss(), "anchor": dm.Anchor([1.0, 1.0, 0.0], 0.01), "sampler": "layered"}
    chosen |= {"n_outliers": n_outliers, "suspects": 1.0}
    with pytest.raises(ValueError, match="has the loss inf") if refuses else nullcontext():
        assert assert_law(points, **chosen).n_suspected == 3
