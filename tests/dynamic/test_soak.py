"""A long life: a hundred thousand operations, a million rows that came and went, and nothing drifted."""

import math

import numpy as np
import pytest

import duramen as dm
from duramen.dynamic import sorted_list as ordered
from tests.dynamic.model import Model, assert_law, view_of
from tests.support import PROBLEMS, weights_of

OPERATIONS = 100_000


class Life:
    """Random operations on a dynamic coreset of about a thousand points, with the model beside it."""

    def __init__(self, name, seed, **more):
        self.problem, self.rng = PROBLEMS[name], np.random.default_rng(seed)
        self.settings = {"loss": self.problem.loss, "size": 50, "random_state": 5, **more}
        self.rows, self.labels = self.problem.rows(self.rng, 5000), self.problem.labels(self.rng, 5000)
        self.weights = np.concatenate([weights_of(self.rng, 1250, kind) for kind in ("whole", "real") * 2])
        self.weights[::50] = weights_of(self.rng, 100, "wild")
        self.n_outliers = 0.05
        self.dyn = dm.DynamicCoreset(n_outliers=self.n_outliers, **self.settings)
        self.model, self.here, self.place = Model(self.problem.label is not None), [], {}
        self.insert(1000)
        assert self.dyn.anchor is not None

    def insert(self, n):
        X, y, weights = self.made(n)
        self.came(self.dyn.insert(X, y, weights), X, y, weights)

    def came(self, ids, X, y, weights):
        self.model.put(ids, X, y, weights)
        for name in ids.tolist():
            self.place[name] = len(self.here)
            self.here.append(name)

    def went(self, ids):
        self.model.drop(ids)
        for name in ids.tolist():
            place, last = self.place.pop(name), self.here.pop()
            if last != name:
                self.here[place], self.place[last] = last, place

    def made(self, n):
        """Take rows from a pool, so that many come again; a quarter of the time with weights."""
        place = int(self.rng.integers(len(self.rows) - n))
        part = slice(place, place + n)
        weights = self.weights[part] if place % 4 == 0 else None
        return self.rows[part], None if self.labels is None else self.labels[part], weights

    def some(self, n):
        places = self.rng.integers(len(self.here), size=n).tolist()
        return np.array(sorted({self.here[place] for place in places}))

    def step(self, what):
        """Do one operation: singly most of the time."""
        many = int(self.rng.integers(2, 60)) if self.rng.random() < 0.04 else 0
        if what < 0.33:
            if many:
                self.insert(many)
            else:
                X, y, _ = self.made(1)
                self.came(self.dyn.insert(X[0], None if y is None else y[0]), X, y, None)
        elif what < 0.64 + 0.1 * (len(self.model) > 1200) - 0.1 * (len(self.model) < 800):
            ids = self.some(many or 1)
            self.dyn.delete(ids if many else int(ids[0]))
            self.went(ids)
        elif what < 0.999:
            ids = self.some(many or 1)
            X, y, weights = self.made(len(ids))
            if many:
                self.dyn.update(ids, X, y, weights)
            else:
                weights = None if weights is None else weights[:1]
                self.dyn.update(
                    int(ids[0]),
                    X[0],
                    None if y is None else y[0],
                    None if weights is None else float(weights[0]),
                )
            self.model.put(ids, X, y, weights)
        else:
            self.n_outliers = float(self.rng.choice([0.0, 0.01, 0.05, 0.4, 40.0]))
            self.dyn.set_outliers(self.n_outliers)

    def check(self):
        self.model.assert_is(self.dyn)
        self.dyn.check_invariants()
        assert_law(self.dyn, self.settings, self.n_outliers)


@pytest.mark.slow
@pytest.mark.parametrize("name, share", [("logistic", 0.92), ("k-means", 0.08)])
def test_a_hundred_thousand_operations(name, share, monkeypatch):
    monkeypatch.setattr(ordered, "CHUNK", 64)
    life = Life(name, 11, sampler="leverage" if name == "logistic" else "layered")
    for number, what in enumerate(np.random.default_rng(12).random(int(share * OPERATIONS))):
        life.step(what)
        if number % 4000 == 0:
            life.check()
    life.check()


def fresh_totals(dyn):
    """Sum what is known of the points that are not suspected, from the definitions; and the absolute values."""
    points, theta = dyn.points(), dyn.anchor.theta
    losses = dyn.loss.values(theta, points.X, points.y)
    outer = dyn._state.slots.ids[view_of(dyn).suspects.slots()]
    rows = np.flatnonzero(~np.isin(points.ids, outer) & (points.weights > 0))
    columns = [losses[:, None]]
    if hasattr(dyn.loss, "k"):
        nearest = dyn.loss.nearest(theta, points.X)
        columns.append((nearest[:, None] == np.arange(dyn.loss.k)).astype(float))
    columns.append(dyn.loss.gradients(theta, points.X, points.y).reshape(len(points), -1))
    terms = np.hstack(columns)[rows] * points.weights[rows, None]
    sums = [math.fsum(column) for column in terms.T]
    return np.array(sums), np.abs(terms).sum(axis=0)


@pytest.mark.slow
@pytest.mark.parametrize("name, far", [("logistic", 1e8), ("k-means", 1.0), ("k-means", 1e8)])
def test_totals_after_a_million_updates(name, far):
    """Relative to each total, not to what was moved: two floats a sum keep 32 digits."""
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
