"""A long life: a hundred thousand operations, a million rows that came and went, and nothing drifted."""

import math

import numpy as np
import pytest

import duramen as dm
from duramen.dynamic import sorted_list as ordered
from tests.dynamic.model import Model, assert_law, changes, do, do_singly, view_of
from tests.support import PROBLEMS, weights_of

OPERATIONS = 100_000


@pytest.mark.slow
@pytest.mark.parametrize("name, share", [("logistic", 0.92), ("k-means", 0.08)])
def test_a_hundred_thousand_operations(name, share, monkeypatch):
    monkeypatch.setattr(ordered, "CHUNK", 64)
    problem, rng = PROBLEMS[name], np.random.default_rng(11)
    settings = {"loss": problem.loss, "size": 50, "random_state": 5}
    settings["sampler"] = "leverage" if name == "logistic" else "layered"
    dyn, model = dm.DynamicCoreset(n_outliers=0.05, **settings), Model(problem.label is not None)
    first = problem.rows(rng, 1000), problem.labels(rng, 1000), weights_of(rng, 1000, "real")
    model.put(dyn.insert(*first), *first)
    sizes, n = (1,) * 25 + (50,), int(share * OPERATIONS)
    for number, change in enumerate(changes(problem, rng, model, n, sizes, between=(800, 1200))):
        (do_singly if len(change[1]) == 1 else do)(dyn, *change)
        if number % 1000 == 0:
            n_outliers = float(rng.choice([0.0, 0.01, 0.05, 0.4, 40.0]))
            dyn.set_outliers(n_outliers)
        if number % 4000 == 0 or number == n - 1:
            model.assert_is(dyn)
            dyn.check_invariants()
            assert_law(dyn, settings, n_outliers)


def fresh_totals(dyn):
    """Sum what is known of the points that are not suspected, from the definitions; and the absolute values."""
    points, theta, loss = dyn.points(), dyn.anchor.theta, dyn.loss.bind(dyn.anchor.frozen)
    losses = loss.values(theta, points.X, points.y)
    outer = dyn._state.slots.ids[view_of(dyn).suspects().rows]
    rows = np.flatnonzero(~np.isin(points.ids, outer) & (points.weights > 0))
    columns = [losses[:, None]]
    if hasattr(dyn.loss, "k"):
        nearest = dyn.loss.nearest(theta, points.X)
        columns.append((nearest[:, None] == np.arange(dyn.loss.k)).astype(float))
    columns.append(loss.gradients(theta, points.X, points.y).reshape(len(points), -1))
    terms = np.hstack(columns)[rows] * points.weights[rows, None]
    sums = [math.fsum(column) for column in terms.T]
    return np.array(sums), np.abs(terms).sum(axis=0)


@pytest.mark.slow
@pytest.mark.parametrize("name, far", [("logistic", 1e8), ("k-means", 1.0), ("k-means", 1e8)])
def test_totals_after_a_million_updates(name, far):
    """Relative to each total, not to what was moved: sums are exact."""
    problem, rng = PROBLEMS[name], np.random.default_rng(9)
    dyn = dm.DynamicCoreset(
        problem.loss, size=200, n_outliers=0.01, sampler="uniform", anchor=problem.anchor(), random_state=0
    )
    n, moved = 20_000, 0
    X, y = problem.rows(rng, n), problem.labels(rng, n)
    dyn.insert(X, y)
    while moved < 1_000_000:
        few = int(rng.choice([2, 50, 5_000, 20_000]))
        ids = np.arange(n) if few == n else rng.choice(n, size=few, replace=False)
        rows = problem.rows(rng, few)
        if far > 1 and moved < 900_000:
            rows[rng.random(few) < 0.2] *= far
        dyn.update(ids, rows, problem.labels(rng, few), rng.exponential(size=few))
        moved += few
    for row in range(3000):
        label = None if y is None else y[row]
        dyn.update(row, X[row] * (far if row % 3 == 0 else 1.0), label, 0.5 + row % 7)
    dyn.update(np.arange(n), X, y, rng.exponential(size=n))
    for row in range(500):
        dyn.update(row, X[row], None if y is None else y[row], 1.0)
    totals, (expected, mass) = view_of(dyn).engine.totals, fresh_totals(dyn)
    np.testing.assert_allclose(totals, expected, rtol=1e-9)
    assert (np.abs(totals - expected) <= 1e-13 * mass).all()
    dyn.delete(np.arange(50, n))
    few, _ = fresh_totals(dyn)
    np.testing.assert_allclose(view_of(dyn).engine.totals, few, rtol=1e-9)


@pytest.mark.parametrize("comes", ["together", "singly"])
@pytest.mark.parametrize("goes", ["together", "singly"])
@pytest.mark.parametrize("name", PROBLEMS)
def test_far_rows_that_came_and_went_leave_the_totals(name, comes, goes):
    """What a point contributes must be the same number, bit for bit, by whatever path it is added or taken."""
    problem, rng = PROBLEMS[name], np.random.default_rng(2)
    dyn = dm.DynamicCoreset(
        problem.loss, size=200, sampler="uniform", anchor=problem.anchor(), random_state=0
    )
    X, y = problem.rows(rng, 300), problem.labels(rng, 300)
    dyn.insert(X, y, rng.exponential(size=300))
    far, labels, weights = problem.rows(rng, 150) * 1e8, problem.labels(rng, 150), rng.exponential(size=150)
    if comes == "together":
        ids = dyn.insert(far, labels, weights)
    else:
        label = [None] * 150 if labels is None else labels
        ids = np.concatenate([dyn.insert(*row) for row in zip(far, label, weights.tolist(), strict=True)])
    for part in [ids] if goes == "together" else ids.tolist():
        dyn.delete(part)
    expected, _ = fresh_totals(dyn)
    totals = view_of(dyn).engine.totals
    np.testing.assert_allclose(totals, expected[: len(totals)], rtol=1e-9)
    dyn.check_invariants()
