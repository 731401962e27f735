"""Live coresets for tests, a plain model of which rows are in one, and the oracle: a coreset of what is left."""

from __future__ import annotations

import hashlib
import pickle
from contextlib import contextmanager
from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import strategies as st

import duramen as dm
from tests.support import SUITS, assert_same_coreset, quietly, weights_of

LOGISTIC = dm.LogisticLoss()
ENGINES = ["ranked", "tree"]
ROW = np.array([0.5, -1.0, 2.0])
EARLY, LATE = 30, 300  # rows, before the first anchor and after
NAMES = [f"p{number}" for number in range(LATE)]
SETTINGS = {"loss": LOGISTIC, "size": 40, "random_state": 0}
SEEDS = st.integers(0, 2**32 - 1)
LIVES = {
    "suit": st.sampled_from(SUITS),
    "how": st.sampled_from(["given", "frozen", "found"]),
    "seed": SEEDS,
    "size": st.sampled_from([12, 40, 150]),
    "n_outliers": st.sampled_from([0, 0.1, 30]),
    "calibrate": st.booleans(),
}


def rows(n=LATE, seed=0, d=3):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    return X, np.where(X[:, 0] + rng.normal(size=n) > 0, 1, -1)


def live(n=LATE, ids=None, **settings):
    """Make a live coreset of n rows; 41 are needed for its anchor, which is sought once for all tests."""
    settings = {"size": 40, "n_outliers": 0.05, "random_state": 0, **settings}
    if n >= LATE and "anchor" not in settings:
        settings["anchor"] = _anchor(n, **settings)
    dyn = dm.DynamicCoreset(LOGISTIC, **settings)
    if n:
        dyn.insert(*rows(n), ids=ids)
    return dyn


@cache
def _anchor(n, **settings):
    dyn = dm.DynamicCoreset(LOGISTIC, **settings)
    dyn.insert(*rows(n))
    return dyn.anchor


def snapshot(dyn):
    """Return a digest of its whole state, after a check."""
    dyn.check_invariants()
    if dyn.total_weight > 0:
        dyn.coreset()
    parts = {**vars(dyn), "_lock": None}
    settings = parts.pop("_settings")  # which may be replaced by the same ones
    return hashlib.sha1(pickle.dumps(parts) + pickle.dumps(settings)).hexdigest()


@contextmanager
def refused(dyn, kind, message, *others):
    """Check that what is tried inside is refused with this message, and changes nothing."""
    before = [snapshot(one) for one in (dyn, *others)]
    with pytest.raises(kind, match=message):
        yield
    assert [snapshot(one) for one in (dyn, *others)] == before


def assert_same(dyn, other):
    """Check that both hold the same points and make the same coreset."""
    for one in (dyn, other):
        one.check_invariants()
    np.testing.assert_array_equal(dyn.ids, other.ids)
    for part in ("X", "y", "weights"):
        np.testing.assert_array_equal(getattr(dyn.points(), part), getattr(other.points(), part))
    mine, its = dyn.coreset(), other.coreset()
    np.testing.assert_array_equal(mine.ids, its.ids)
    np.testing.assert_allclose(mine.weights, its.weights, rtol=1e-9)
    np.testing.assert_array_equal(mine.suspected, its.suspected)
    assert (mine.threshold, mine.n_outliers, mine.n_points) == (its.threshold, its.n_outliers, its.n_points)


every_engine = pytest.mark.parametrize("engine", ENGINES)
both_phases = pytest.mark.parametrize("n", [EARLY, LATE], ids=["early", "late"])
everywhere = pytest.mark.parametrize(
    ("n", "engine"),
    [(EARLY, "ranked"), (LATE, "ranked"), (LATE, "tree")],
    ids=["early", "late", "tree"],  # early, engines have nothing to do
)


def rebuilt(points, settings, n_outliers, anchor, shuffle=None):
    """Build the coreset of these points by the one call, with their rows in any order."""
    order = np.arange(len(points)) if shuffle is None else shuffle.permutation(len(points))
    return quietly(
        dm.robust_coreset,
        points.X[order],
        None if points.y is None else points.y[order],
        sample_weight=points.weights[order],
        ids=points.ids[order],
        n_outliers=n_outliers,
        anchor=anchor,
        **settings,
    )


def assert_law(dyn, settings, n_outliers, seed=0):
    """Check that the coreset is the one built from scratch from the points that are here, errors too."""
    points = dyn.points()
    if dyn.anchor is None:
        heavy = points.take(np.flatnonzero(points.weights > 0))
        if not len(heavy):
            with pytest.raises(ValueError, match="all weights are zero"):
                dyn.coreset()
            return None
        core = dyn.coreset()
        np.testing.assert_array_equal(core.ids, heavy.ids)
        np.testing.assert_array_equal(core.weights, heavy.weights)
        return core
    shuffle = np.random.default_rng(seed)
    try:
        expected = rebuilt(points, settings, n_outliers, dyn.anchor, shuffle)
    except ValueError:
        with pytest.raises(ValueError):
            quietly(dyn.coreset)
        return None
    core = quietly(dyn.coreset)
    assert_same_coreset(core, expected)
    assert core.anchor is dyn.anchor
    return core


def suspected_by_sorting(losses, ids, weights, z, suspects=1.5):
    """Take points from the top of (loss, id), while what was taken weighs less than is to be suspected."""
    total = weights.sum()
    wanted = min(min(suspects * z, (z + total) / 2), total)
    taken, weight = set(), 0.0
    for row in np.lexsort((ids, losses))[::-1]:
        if weight >= wanted * (1 - 64 * np.finfo(float).eps):
            break
        if weights[row] > 0:
            taken.add(int(ids[row]))
            weight += weights[row]
    return taken


def view_of(dyn):
    """Return the view, with all new rows scored."""
    return dyn._state.current_candidates()


def suspects_of(dyn):
    """Read the ids of the suspected from the state."""
    view = view_of(dyn)
    return set(dyn._state.slots.ids[view.suspects().rows].tolist())


class Model:
    """The live rows, in a plain dict: id -> row, label and weight."""

    def __init__(self, labelled):
        self.labelled = labelled
        self.points: dict[int, tuple[Any, Any, float]] = {}

    def __len__(self):
        return len(self.points)

    @property
    def ids(self):
        return sorted(self.points)

    @property
    def total(self):
        return float(sum(weight for _, _, weight in self.points.values()))

    def put(self, ids, X, y, weights):
        for row, name in enumerate(np.atleast_1d(ids).tolist()):
            old = self.points.get(name)
            label = None if not self.labelled else float(y[row]) if y is not None else old[1]
            weight = float(weights[row]) if weights is not None else 1.0 if old is None else old[2]
            self.points[name] = (np.array(X[row]), label, weight)

    def drop(self, ids):
        for name in np.atleast_1d(ids).tolist():
            del self.points[name]

    def assert_is(self, dyn):
        """Check that the same points are there, row by row."""
        assert dyn.ids.tolist() == self.ids
        assert len(dyn) == len(self)
        if not self.points:
            return
        found = dyn.points()
        rows, labels, weights = zip(*(self.points[name] for name in self.ids), strict=True)
        np.testing.assert_array_equal(found.X, np.array(rows))
        np.testing.assert_array_equal(found.weights, weights)
        if self.labelled:
            np.testing.assert_array_equal(found.y, labels)
        assert dyn.total_weight == pytest.approx(self.total, rel=1e-12)


def changes(problem, rng, model, steps, sizes=(1, 2, 40), between=(0, 1200)):
    """Make up changes: (what, ids, rows, labels, weights), many rows or one; about as many points stay."""
    for _ in range(steps):
        what = rng.choice(["insert", "delete", "update", "update"])
        if not between[0] <= len(model) <= between[1]:
            what = "insert" if len(model) < between[0] else "delete"
        n = int(rng.choice(sizes))
        if what == "insert":
            ids = int(max(model.ids)) + 1 + rng.permutation(n)
        else:
            ids = rng.choice(model.ids, size=min(n, len(model) // 2), replace=False)
        X, y = problem.rows(rng, len(ids), True), problem.labels(rng, len(ids))
        weights = weights_of(rng, len(ids), rng.choice(["none", "whole", "real", "wild"]))
        if what == "delete":
            model.drop(ids)
        else:
            if what == "update" and rng.random() < 0.5:
                y = None
            model.put(ids, X, y, weights)
        yield what, ids, X, y, weights


def do(dyn, what, ids, X, y, weights):
    """Do a change at once."""
    if what == "insert":
        dyn.insert(X, y, weights, ids)
    elif what == "delete":
        dyn.delete(ids)
    else:
        dyn.update(ids, X, y, weights)


def do_singly(dyn, what, ids, X=None, y=None, weights=None):
    """Do a change row by row."""
    for row, name in enumerate(ids.tolist()):
        label = None if y is None else y[row]
        weight = None if weights is None else float(weights[row])
        if what == "insert":
            dyn.insert(X[row], label, weight, name)
        elif what == "delete":
            dyn.delete(name)
        else:
            dyn.update(name, X[row], label, weight)
