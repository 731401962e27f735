"""The table of losses: its edge in the outermost places, and what a check of it finds."""

import numpy as np
import pytest

import duramen as dm
from tests.dynamic.model import ENGINES, assert_same, live, rows, suspected_by_sorting, suspects_of, view_of


def test_the_last_place_of_all_can_be_suspected():
    """Nothing lies above an infinite loss and the largest id, but for that point itself."""
    dyn, most = live(), np.iinfo(np.int64).max
    dyn.insert(np.full((3, 3), 1e308), [-1] * 3, ids=[most - 2, most, most - 1])
    assert np.isinf(dyn.loss.values(dyn.anchor.theta, *rows_of(dyn, [most, most - 1])[:2])).any()
    for n_outliers in (1, 3, 2, 0, 2):
        dyn.set_outliers(n_outliers)
        assert_split(dyn)
    dyn.delete(most)
    assert_split(dyn)


def rows_of(dyn, ids=None):
    points = dyn.points(ids)
    return points.X, points.y, points.weights, points.ids


def assert_split(dyn):
    X, y, weights, ids = rows_of(dyn)
    losses = dyn.loss.values(dyn.anchor.theta, X, y)
    assert suspects_of(dyn) == suspected_by_sorting(losses, ids, weights, dyn.n_outliers)
    dyn.check_invariants()


def test_light_points_behind_one_that_outweighs_rounding():
    """Where 64 units of rounding of z weigh more than points do, both must decide alike about them."""
    X, weights = np.arange(30.0)[::-1, None].copy(), np.ones(30)
    weights[0] = 1e15
    settings = {"loss": dm.KMeansLoss(1), "size": 20, "sampler": "uniform", "suspects": 1, "random_state": 0}
    settings |= {"n_outliers": 1e15 + 5, "anchor": dm.Anchor([[0.0]], 1.0)}
    dyn = dm.DynamicCoreset(**settings)
    dyn.insert(X, sample_weight=weights)
    rebuilt = dm.robust_coreset(X, sample_weight=weights, **settings)
    assert dyn.n_suspected == rebuilt.n_suspected


# every corruption is seen


def other_loss(table):
    table.scores.losses[table.order.slots()[4]] -= 1e-3


def other_rank(table):
    table.scores.ranks[table.order.slots()[4]] *= 1 + 1e-6


def one_less(table):
    slots = table.order.slots()[2:3]
    table.order.remove(table.scores.losses[slots], slots)


def other_suspect(table):
    table.suspects().weights[3] = 2.0


CORRUPTIONS = [
    (other_loss, "1"),
    (other_rank, "1"),
    (one_less, "1"),
    (lambda table: vars(table).update(edge=(np.inf, 2**63), n_suspected=0), "3"),
    (lambda table: vars(table).update(edge=(table.edge[0] - 1e-9, table.edge[1])), "2"),
    (lambda table: vars(table).update(n_suspected=table.n_suspected + 1), "3"),
    (lambda table: table.above.add(0.5), "3"),
    (lambda table: vars(table).update(_edge_weight=2.0), "2"),
    (other_suspect, "4"),
    (lambda table: vars(table).update(_suspects=table.suspects().__class__(*np.zeros((4, 0)))), "4"),
    (lambda table: table.engine.remove(table.engine.slots()[:1]), "5"),
]


def settled():
    """Make candidates of 40 points, all of weight one, of which ten are suspected."""
    dyn = live(0, n_outliers=10, suspects=1, anchor=dm.Anchor(np.eye(4)[0], 1.0), sampler="uniform", size=20)
    dyn.insert(*rows(40))
    dyn.check_invariants()
    return dyn, view_of(dyn)


@pytest.mark.parametrize("how, number", CORRUPTIONS)
def test_a_corruption_is_named(how, number):
    dyn, table = settled()
    how(table)
    with pytest.raises(AssertionError, match=f"^{number}: "):
        dyn.check_invariants()


@pytest.mark.parametrize("n_outliers", [9, 11])
def test_too_much_and_too_little_are_seen(n_outliers):
    dyn, _ = settled()
    dyn._state.n_outliers = n_outliers
    with pytest.raises(AssertionError, match=f"3: n_suspected is 10, not {n_outliers}"):
        dyn.check_invariants()


@pytest.mark.parametrize("engine", ENGINES)
def test_heavy_rows_that_came_and_went_leave_the_light_ones(engine):
    """Sums of 1 and 1e40, or of 1 and the smallest floats, leave nothing behind."""
    X, light = np.random.default_rng(0).normal(size=(60, 2)), np.ones(60)
    light[:20] = 5e-324
    settings = {"size": 20, "n_outliers": 0.05, "engine": engine, "random_state": 0}
    settings["anchor"] = dm.Anchor([[0.0, 0.0]], 1.0)
    dyn, fresh = (dm.DynamicCoreset(dm.KMeansLoss(1), **settings) for _ in range(2))
    dyn.insert(X, sample_weight=light)
    heavy = dyn.insert(np.vstack([X[:3], X[:3] + 50]), sample_weight=[1e40] * 6)
    dyn.coreset()
    dyn.delete(heavy[:3])
    dyn.coreset()
    dyn.delete(heavy[3:])
    fresh.insert(X, sample_weight=light)
    assert dyn.total_weight == fresh.total_weight
    if engine == "ranked":
        assert_same(dyn, fresh)
    dyn.check_invariants()


def test_three_rows_of_weight_1e40_come_and_go():
    """Insert rows of weight 1 and three of 1e40, take a coreset, delete the three: the light rows are left."""
    X = np.random.default_rng(0).normal(size=(200, 2))
    settings = {"size": 30, "n_outliers": 5, "anchor": dm.Anchor([[0.0, 0.0]], 1.0), "random_state": 0}
    dyn, fresh = (dm.DynamicCoreset(dm.KMeansLoss(1), **settings) for _ in range(2))
    dyn.insert(X)
    heavy = dyn.insert(X[:3] + 9, sample_weight=[1e40] * 3)
    dyn.coreset()
    dyn.delete(heavy)
    fresh.insert(X)
    assert dyn.total_weight == 200
    assert_same(dyn, fresh)


def test_light_points_above_heavy_ones_are_told_apart():
    """The weight above the edge is what is left of 3e40 and 50: it is subtracted without rounding."""
    X, weights = np.c_[np.arange(60.0), np.zeros(60)], np.ones(60)
    weights[10:13] = 1e40
    settings = {"loss": dm.KMeansLoss(1), "size": 20, "suspects": 1, "random_state": 0}
    dyn = dm.DynamicCoreset(n_outliers=0.5, anchor=dm.Anchor([[0.0, 0.0]], 1.0), **settings)
    dyn.insert(X, sample_weight=weights)
    assert dyn.n_suspected == 49
    dyn.set_outliers(20)
    assert dyn.n_suspected == 20
    dyn.check_invariants()
