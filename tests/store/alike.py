"""A store and a dynamic coreset that did the same operations: what it means that they are alike."""

from __future__ import annotations

import itertools
from uuid import UUID

import numpy as np

import duramen as dm
from tests.support import PROBLEMS, Problem, assert_identical_array, quietly, weights_of


class Truth(Problem):
    """One vector of means, as long as a row."""

    n_columns = 2


ALL = {
    **PROBLEMS,
    "poisson": Problem("poisson", dm.PoissonLoss(), (0.1, -0.1, 0.0), "count"),
    "truth": Truth("truth", dm.TruthDiscoveryLoss(), (0.5, -0.5)),
}
TREE = {"engine": "tree", "bucket_size": 16}


def labels_of(problem, rng, n):
    return rng.poisson(1.0, size=n) if problem.label == "count" else problem.labels(rng, n)


def names(count, rng, n, kind):
    """Make names that were never there: plain, of all alphabets, or UUIDs; None for numbers."""
    if kind is None:
        return None
    if kind == "uuid":
        return [UUID(int=next(count) << 64 | int(rng.integers(2**62))) for _ in range(n)]
    marks = ["", "ü", "名", "\ud800", "\x00", "😀", "'; --"] if kind == "odd" else [""]
    return [f"{marks[next(count) % len(marks)]}c{next(count)}" for _ in range(n)]


class Pair:
    """A store, and the dynamic coreset that does all that it does."""

    def __init__(self, path, *, audit=False, **settings):
        self.path, self.settings = path, settings
        self.store = dm.open_store(path, create=True, audit=audit, synchronous="normal", **settings)
        self.dyn = dm.DynamicCoreset(**settings)
        self.count = itertools.count()

    def do(self, what, *args, **kwargs):
        """Do it to both; what one raises, the other has to raise."""
        mine, wrong = _outcome(getattr(self.store, what), args, kwargs)
        theirs, expected = _outcome(getattr(self.dyn, what), args, kwargs)
        assert type(wrong) is type(expected), (wrong, expected)
        assert str(wrong) == str(expected)
        if isinstance(theirs, np.ndarray):
            np.testing.assert_array_equal(mine, theirs)
        return wrong

    def reopen(self, **needed):
        """Close and open again; the solution is no part of what is kept."""
        self.store.close()
        self.store = dm.open_store(self.path, synchronous="normal", **needed)
        self.dyn._solution = None

    def assert_alike(self):
        assert_alike(self.store, self.dyn)


def _outcome(call, args, kwargs):
    try:
        return quietly(call, *args, **kwargs), None
    except (ValueError, TypeError, KeyError) as error:
        return None, error


def assert_alike(store, dyn):
    """Hold all that can be asked of one against the other, bit by bit."""
    np.testing.assert_array_equal(store.ids, dyn.ids)
    for name in ("n_points", "n_outliers", "total_weight", "n_suspected", "threshold", "columns", "engine"):
        assert getattr(store, name) == getattr(dyn, name), name
    for name in ("size", "seed", "loss", "anchor_after"):
        assert getattr(store, name) == getattr(dyn, name), name
    assert repr(store.anchor_report()) == repr(dyn.anchor_report())
    assert_same_anchors(store.anchor, dyn.anchor)
    assert next_id(store) == next_id(dyn)
    if len(dyn):
        for name in ("X", "weights", "ids", "y"):
            assert_identical_array(getattr(store.points(), name), getattr(dyn.points(), name))
        named = dyn._state.ids.names is not None
        assert named == (store._state.ids.names is not None)
        if named:
            assert store.names_of(dyn.ids).tolist() == dyn.names_of(dyn.ids).tolist()
    if dyn.total_weight > dyn.n_outliers:
        mine, theirs = quietly(store.coreset), quietly(dyn.coreset)
        for name in ("ids", "weights", "X", "y", "suspected", "own_weights", "inclusion", "groups"):
            np.testing.assert_array_equal(getattr(mine, name), getattr(theirs, name), err_msg=name)
        for name in ("threshold", "n_points", "n_suspected", "n_outliers", "columns", "sampler"):
            assert getattr(mine, name) == getattr(theirs, name), name


def assert_same_anchors(one, other):
    assert (one is None) == (other is None)
    if one is not None:
        assert one.radius == other.radius
        np.testing.assert_array_equal(one.theta, other.theta)
        assert sorted(one.frozen) == sorted(other.frozen)
        for name, part in one.frozen.items():
            np.testing.assert_array_equal(part, other.frozen[name], err_msg=name)
            assert np.asarray(part).dtype == np.asarray(other.frozen[name]).dtype


def next_id(dyn):
    return dyn._first_id if dyn._state is None else dyn._state.ids.next


class Life:
    """Operations by chance, done to a pair."""

    def __init__(self, pair, problem, seed, *, named=None, dtype=float, most=(1, 1, 3, 40, 120)):
        self.pair, self.problem, self.named = pair, problem, named
        self.rng, self.dtype, self.most = np.random.default_rng(seed), dtype, most

    def rows(self, n):
        rng = self.rng
        X = self.problem.rows(rng, n, bool(rng.integers(2))).astype(self.dtype)
        kind = str(rng.choice(["none", "whole", "real", "wild"], p=[0.5, 0.2, 0.2, 0.1]))
        return X, labels_of(self.problem, rng, n), weights_of(rng, n, kind)

    def insert(self, n):
        self.pair.do("insert", *self.rows(n), ids=names(self.pair.count, self.rng, n, self.named))

    def some(self, n):
        ids = self.pair.dyn.ids
        return self.rng.choice(ids, size=min(n, len(ids)), replace=False)

    def step(self):
        rng, pair = self.rng, self.pair
        what = rng.choice(
            ["insert", "delete", "update", "outliers", "reanchor", "merge"],
            p=[0.4, 0.25, 0.15, 0.08, 0.06, 0.06],
        )
        n = int(rng.choice(self.most))
        if what == "insert" or not len(pair.dyn):
            self.insert(n)
        elif what == "delete":
            pair.do("delete", self.some(n if rng.random() < 0.9 else 10**6))
        elif what == "update":
            ids = self.some(n)
            pair.do("update", ids, *self.rows(len(ids)))
        elif what == "outliers":
            pair.do("set_outliers", float(rng.choice([0, 0.02, 0.1, 7])))
        elif what == "reanchor":
            pair.do("reanchor", None if rng.random() < 0.5 else self.problem.anchor())
        else:
            self.merge(n)

    def merge(self, n):
        other = dm.DynamicCoreset(**{**self.pair.settings, "anchor": self.pair.dyn.anchor})
        ids = names(self.pair.count, self.rng, n, self.named)
        if ids is None:
            ids = np.arange(10**6, 10**6 + n) + 10**4 * next(self.pair.count)
        quietly(other.insert, *self.rows(n), ids=ids)
        if self.rng.random() < 0.3:
            other.delete(other.ids)
        self.pair.do("merge", other)
