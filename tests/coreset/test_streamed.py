"""Laws of the streamed coreset: that of all data at once, however the rows come; in little memory."""

import math
import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

import duramen as dm
from duramen.coreset import first_pass as census
from duramen.coreset import view as samples
from duramen.coreset.build import streamed_coreset
from duramen.coreset.passes import Summarizer, plan
from duramen.coreset.streaming import BottomK
from duramen.samplers.ranks import uniforms
from tests.conformance.cases import CASES
from tests.support import (
    KINDS,
    PROBLEMS,
    SAMPLERS,
    SUITS,
    Heaviest,
    assert_same_coreset,
    at_once,
    cut,
    data,
    quietly,
)

RANKED = ["uniform", "layered", "leverage", "sensitivity"]
every_suit = pytest.mark.parametrize("name, sampler", SUITS, ids=lambda value: value)
EXACT = ("threshold", "n_suspected", "n_points", "calibrated", "seed", "sampler")


def assert_law(points, batches=None, *, anchor=None, **chosen):
    """Build a coreset from batches, and compare it with that of all points at once."""
    chosen = {"size": 60, "n_outliers": 0.05, "random_state": 3, **chosen}
    batches = batches or cut(points, (100, 250))
    core = quietly(streamed_coreset, batches, anchor=anchor, **chosen)
    assert_same_coreset(core, at_once(points, anchor=anchor, **chosen))
    return core


@every_suit
@pytest.mark.parametrize("heavy", KINDS)
def test_it_is_the_coreset_of_all_data_at_once(name, sampler, heavy):
    problem, points = PROBLEMS[name], data(name, heavy=heavy)
    core = assert_law(points, loss=problem.loss, sampler=SAMPLERS[sampler], anchor=problem.anchor())
    assert len(core) == 60
    assert 0 < core.n_suspected < 60
    assert core.calibrated


@pytest.mark.parametrize("sampler", RANKED)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
@pytest.mark.filterwarnings("ignore:the ball of radius")
def test_so_it_is_for_every_loss(case, sampler):
    X, y = case.data(n=300)
    ball = case.ball(np.random.default_rng(3), 0.01)
    anchor = dm.Anchor(ball.theta, ball.radius)
    assert_law(dm.points(X, y), loss=case.loss, sampler=sampler, anchor=anchor, n_outliers=20)


@pytest.mark.parametrize("sampler", SAMPLERS)
@pytest.mark.parametrize("name", ["logistic", "huber", "k-means"])
def test_the_anchor_it_finds_makes_the_same_coreset_again(name, sampler):
    problem, points = PROBLEMS[name], data(name, n=3000)
    core = assert_law(points, cut(points, range(0, 3000, 271)), loss=problem.loss, sampler=SAMPLERS[sampler])
    assert_law(points, loss=problem.loss, sampler=SAMPLERS[sampler], anchor=core.anchor)
    near = trimmed(problem, points, core.anchor.theta)
    assert near < 1.2 * trimmed(problem, points, dm.solve(points, loss=problem.loss, n_outliers=0.05).theta)


def trimmed(problem, points, theta):
    return dm.trimmed_objective(points, theta, loss=problem.loss, n_outliers=0.05)


@settings(max_examples=120)
@given(st.data())
def test_neither_batches_nor_order_show(draw):
    name, sampler = draw.draw(st.sampled_from(SUITS))
    n = draw.draw(st.integers(1, 250))
    heavy, seed = draw.draw(st.sampled_from(KINDS)), draw.draw(st.integers(0, 5))
    points = data(name, n=n, heavy=heavy, seed=seed, whole=draw.draw(st.booleans()))
    if not points.total_weight:
        return
    cuts = draw.draw(st.lists(st.integers(0, n), max_size=12))
    order = np.random.default_rng(draw.draw(st.integers(0, 99))).permutation(n)
    if draw.draw(st.booleans()):  # the worst there is for the edge: it moves with every point
        losses = PROBLEMS[name].loss.values(PROBLEMS[name].anchor().theta, points.X, points.y)
        order = np.argsort(losses)
    heaviest = points.weights.max() / points.total_weight
    z = draw.draw(st.sampled_from([0, 0.02, 0.3, 0.9, min(heaviest, 0.5)]))
    z = float(z * points.total_weight) if draw.draw(st.booleans()) and z * points.total_weight >= 1 else z
    assert_law(
        points,
        cut(points, cuts, order),
        loss=PROBLEMS[name].loss,
        sampler=SAMPLERS[sampler],
        anchor=PROBLEMS[name].anchor(),
        size=draw.draw(st.integers(6 if sampler == "own" else 2, 80)),  # a row for each stratum
        n_outliers=z,
        suspects=draw.draw(st.sampled_from(["auto", 0, 1.0, 4.0])),
        calibrate=draw.draw(st.booleans()),
        random_state=seed,
    )


@pytest.mark.parametrize("sampler", RANKED)
def test_many_small_batches_of_many_points(sampler):
    """Held points are cut again and again; equal losses and few values of them make ties at the edge."""
    points = data(n=20_000, heavy="none", whole=True)
    batches = cut(points, range(0, 20_000, 37))
    loss, anchor = PROBLEMS["logistic"].loss, PROBLEMS["logistic"].anchor()
    assert_law(points, batches, loss=loss, sampler=sampler, anchor=anchor, n_outliers=100, size=50)


@pytest.mark.parametrize("sampler", RANKED)
def test_of_equal_losses_the_larger_ids_are_suspected(sampler):
    order = np.random.default_rng(0).permutation(500)
    points = dm.points(np.ones((500, 2)), ids=order)
    chosen = {"loss": dm.KMeansLoss(1), "anchor": dm.Anchor([[0.0, 0.0]], 0.1), "sampler": sampler}
    core = assert_law(points, cut(points, range(0, 500, 7)), size=100, n_outliers=20, suspects=1.0, **chosen)
    np.testing.assert_array_equal(core.ids[core.suspected], np.arange(480, 500))


def test_a_dynamic_coreset_that_sought_its_anchor_anew_is_the_same():
    points = data(n=3000)
    chosen = {"loss": dm.LogisticLoss(), "size": 60, "n_outliers": 0.05, "random_state": 3}
    dynamic = dm.DynamicCoreset(**chosen)
    dynamic.insert(points.X, points.y, points.weights, points.ids)
    dynamic.reanchor()
    assert_same_coreset(assert_law(points, **chosen), dynamic.coreset())


@pytest.mark.parametrize("sampler", RANKED)
def test_light_points_beside_heavy_ones_keep_their_weight(sampler):
    points = data("k-means", n=500)
    weights = np.where(np.arange(500) % 50 == 0, 1e17, 1.0 + np.arange(500) / 1000)
    points = points.with_weights(weights)
    problem = PROBLEMS["k-means"]
    chosen = {"loss": problem.loss, "sampler": sampler, "anchor": problem.anchor(), "n_outliers": 0}
    core = assert_law(points, cut(points, range(0, 500, 45)), calibrate=False, **chosen)
    light = core.own_weights < 1e10
    assert core.weights[light].sum() == pytest.approx(weights[weights < 1e10].sum(), rel=1e-9)


@pytest.mark.parametrize("sampler", RANKED)
@pytest.mark.parametrize("form", [np.float32, np.asfortranarray, sparse.csr_array])
def test_rows_of_every_form(sampler, form):
    points, problem = data("logistic", n=2000, heavy="none"), PROBLEMS["logistic"]
    X = points.X.astype(np.float32) if form is np.float32 else form(points.X)
    points = dm.points(X, points.y, ids=points.ids)
    assert_law(points, loss=problem.loss, sampler=sampler, anchor=problem.anchor())


def test_fewer_points_than_the_size_are_all_kept():
    points = data(n=50, heavy="real")
    core = assert_law(points, cut(points, (7, 7, 30)), loss=dm.LogisticLoss(), n_outliers=5)
    np.testing.assert_array_equal(core.ids, np.sort(points.ids))
    np.testing.assert_allclose(core.weights, points.weights[np.argsort(points.ids)])
    assert not core.calibrated


def test_zero_weights_and_their_losses_count_for_nothing():
    points = data("squared", n=400, heavy="none")
    heavy = np.where(np.arange(400) % 3 == 0, 0.0, 1.0)
    with_zeros = points.with_weights(heavy)
    core = assert_law(with_zeros, loss=dm.SquaredLoss())
    without = with_zeros.take(heavy > 0)
    again = streamed_coreset(
        cut(without, (50,)), loss=dm.SquaredLoss(), size=60, n_outliers=0.05, random_state=3
    )
    assert_same_coreset(core, again)
    np.testing.assert_array_equal(core.anchor.theta, again.anchor.theta)


def test_the_anchor_is_made_from_the_smallest_random_numbers_of_the_ids(few_sampled):
    """So that it is a function of the points, and not of how they come."""
    points = data("squared", n=5000, heavy="wild")

    def counted(batches):
        tally = Summarizer(plan(loss=dm.SquaredLoss(), size=50, random_state=5))
        for batch in batches():
            tally.add(batch)
        return tally.summary()

    found = counted(cut(points, range(0, 5000, 77)))
    live = points.take(points.weights > 0)
    seed = found.plan.problem.seed
    chance = uniforms(seed ^ samples._SALT, live.ids) / live.weights
    order = np.argsort(chance)
    sample = found.body.sample()
    np.testing.assert_array_equal(sample.ids, np.sort(live.ids[order[:300]]))
    np.testing.assert_array_equal(sample.ids, samples.anchor_sample(points, seed).ids)
    assert sample.total_weight == pytest.approx(live.total_weight, rel=0.2)
    assert sample.weights.min() >= 1 / chance[order[300]] * (1 - 1e-12)
    assert (found.body.n_rows, found.body.n_points) == (5000, len(live))
    assert found.body.total == math.fsum(points.weights)
    shuffled = np.random.default_rng(1).permutation(5000)
    for batches in (cut(points), cut(points, range(0, 5000, 999), shuffled)):
        assert counted(batches) == found


def test_a_sample_of_equal_weights_keeps_them(few_sampled):
    sample = samples.anchor_sample(dm.points(np.zeros((1000, 1))), 3)
    np.testing.assert_array_equal(sample.weights, np.ones(300))


def test_both_passes_are_reported_and_names_are_kept():
    points, seen = data(n=300), []
    core = streamed_coreset(
        cut(points, (100, 100)),
        loss=dm.LogisticLoss(),
        size=50,
        columns=["a", "b"],
        each=lambda batch: seen.append(len(batch)),
    )
    assert seen == [100, 0, 200] * 2
    assert core.columns == ("a", "b")


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
            streamed_coreset(batches, size=200, n_outliers=500, sampler=sampler, random_state=0, **chosen)
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    monkeypatch.setattr(samples, "SAMPLE", 1000)
    monkeypatch.setattr(census, "SAMPLE", 1000)
    peak(2)  # what is loaded once
    few, many = peak(20), peak(100)
    assert many < 1.6 * few  # what is held is up to twice what is needed, as the last cut has it
    assert many < 100 * 2000 * 8 * 8 / 5  # a fifth of the data


@given(st.lists(st.lists(st.tuples(st.integers(0, 30), st.integers(0, 2)), max_size=40), max_size=30))
def test_the_smallest_numbers_are_held_with_those_that_tie(parts):
    lowest, came, start = BottomK(4), [], 0
    for part in parts:
        ids = start + np.arange(len(part))
        start += len(part)
        came += [(number, place, name) for (number, place), name in zip(part, ids.tolist(), strict=True)]
        columns = np.array(part, dtype=float).reshape(-1, 2)
        points = dm.points(np.zeros((1, 1))).take([]) if not part else dm.points(ids[:, None], ids=ids)
        lowest.add(points, columns[:, 0], columns[:, 1].astype(int))
    held = lowest.kept()
    wanted = []
    for at in range(3):
        mine = sorted(number for number, place, _ in came if place == at)
        limit = mine[min(4, len(mine)) - 1] if mine else -1
        wanted += [name for number, place, name in came if place == at and number <= limit]
    assert sorted(wanted) == ([] if held is None else sorted(held.points.ids.tolist()))


def test_no_more_than_twice_the_smallest_are_ever_held():
    rng, lowest = np.random.default_rng(0), BottomK(50)
    for start in range(0, 40_000, 40):
        points = dm.points(np.zeros((40, 1)), ids=start + np.arange(40))
        falling = rng.random(40) - start  # each is smaller than all before
        lowest.add(points, falling, rng.integers(3, size=40))
        assert len(lowest) <= 2 * 3 * 50 + 40


def refused(batches, error, match, **more):
    chosen = {"loss": dm.LogisticLoss(), "size": 50, "random_state": 0, **more}
    with pytest.raises(error, match=match):
        streamed_coreset(batches, **chosen)


def test_a_black_box_is_refused_before_anything_is_read():
    def unread():
        raise AssertionError("it was read")

    refused(unread, TypeError, "scores each point by itself", sampler=Heaviest())
    refused(unread, TypeError, "calibrate=3", calibrate=3)
    refused(unread, ValueError, "'best' is not known", sampler="best")
    refused(unread, ValueError, "size=0", size=0)
    refused([data()], TypeError, "function")


def test_bad_data_is_refused_with_its_number_among_all_rows():
    points = data(n=300, heavy="none")
    batches = cut(points, (100, 200))
    with_nan = np.array(points.X)
    with_nan[250, 1] = np.nan
    bad = dm.WeightedPoints._from_parts(with_nan, points.y, points.weights, points.ids)
    refused(cut(bad, (100, 200)), ValueError, "X has NaN in row 250, column 1")
    labels = np.where(np.arange(300) == 140, 7, points.y)
    refused(
        cut(dm.points(points.X, labels, ids=points.ids), (100,)),
        ValueError,
        "row 140 has 7",
        anchor=[0, 0, 0],
    )
    mixed = np.where((np.arange(300) >= 200) & (points.y < 0), 0, points.y)
    refused(cut(dm.points(points.X, mixed, ids=points.ids), (200,)), ValueError, "do not go together")
    refused(cut(dm.points(points.X)), ValueError, "needs labels")
    refused(
        lambda: [points, dm.points([[1.0]], [1])],
        ValueError,
        "some have 2 columns of float64, with labels, others 1 columns",
    )
    refused(lambda: [points, points.X], TypeError, "found ndarray")
    refused(list, ValueError, "no points")
    refused(cut(points.with_weights(np.zeros(300))), ValueError, "all weights are zero")
    refused(batches, ValueError, "not below the total weight 300", n_outliers=300)
    refused(lambda: [points, points], ValueError, "ids must be distinct")
    refused(batches, ValueError, "needs to know how far", anchor=[0.0, 0.0, 0.0], sampler="sensitivity")
    refused(batches, ValueError, "shape", anchor=[0.0])


def test_batches_that_are_gone_the_second_time_are_missed():
    once = iter([data(n=300)])
    refused(lambda: once, ValueError, "first pass had 300 rows.* and pass 2 had 0 and 0")


@pytest.mark.parametrize("n_outliers, refuses", [(3, False), (1, True)])
def test_infinite_losses_must_be_suspected(n_outliers, refuses):
    points = data("squared", n=300, heavy="none")
    X = np.array(points.X)
    X[[20, 150, 290]] = 1e200
    points = dm.points(X, points.y, ids=points.ids)
    chosen = {"loss": dm.SquaredLoss(), "anchor": dm.Anchor([1.0, 1.0, 0.0], 0.01), "sampler": "layered"}
    chosen |= {"n_outliers": n_outliers, "suspects": 1.0}
    if refuses:
        refused(cut(points, (100, 200)), ValueError, "has the loss inf", **chosen)
    else:
        assert assert_law(points, **chosen).n_suspected == 3
