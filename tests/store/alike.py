"""A store and a dynamic coreset that did the same operations: what it means that they are alike."""

from __future__ import annotations

import contextlib
import itertools
from uuid import UUID

import numpy as np

import duramen as dm
from tests.store.support import LeftError
from tests.support import (
    PROBLEMS,
    Problem,
    assert_identical_array,
    assert_same_coreset,
    quietly,
    weights_of,
)


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
        assert_same_coreset(quietly(store.coreset), quietly(dyn.coreset), rtol=0)


def assert_same_anchors(one, other):
    """Check that two anchors are the same, bit for bit; a store does not keep the ids of the sample in its anchor."""
    assert (one is None) == (other is None)
    if one is not None:
        assert one.radius == other.radius
        assert sorted(one.frozen) == sorted(other.frozen)
        assert_identical_array(one.theta, other.theta)
        for name in one.frozen:
            assert_identical_array(np.asarray(one.frozen[name]), np.asarray(other.frozen[name]))


def next_id(dyn):
    return dyn._first_id if dyn._state is None else dyn._state.ids.next


class Life:
    """Operations by chance, done to a pair."""

    def __init__(self, pair, problem, seed, *, named=None, dtype=float, most=(1, 1, 3, 40, 120)):
        self.pair, self.problem, self.named = pair, problem, named
        self.rng, self.dtype, self.most = np.random.default_rng(seed), dtype, most
        self.notes, self.n_forgotten = {}, 0

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
        kinds = ["change", "outliers", "reanchor", "merge", "transaction", "refusal", "note", "compact"]
        what = rng.choice(kinds, p=[0.59, 0.08, 0.06, 0.06, 0.1, 0.05, 0.04, 0.02])
        if what == "change" or not len(pair.dyn):
            name, args = self.change(pair.dyn.ids)
            if pair.do(name, *args) is None and name == "delete":
                self.n_forgotten += len(args[0])
        elif what == "outliers":
            pair.do("set_outliers", float(rng.choice([0, 0.02, 0.1, 7, 10**6])))
        elif what == "reanchor":
            pair.do("reanchor", None if rng.random() < 0.5 else self.problem.anchor())
        elif what == "merge":
            self.merge(int(rng.choice(self.most)))
        elif what == "transaction":
            self.transaction(fails=bool(rng.integers(2)))
        elif what == "refusal":
            self.refusal()
        elif what == "note":
            value = [None, 1, "a", [1, {"b": None}]][rng.integers(4)]
            pair.store.note("one", value)
            self.notes = {} if value is None else {"one": value}
        else:
            pair.store.compact()

    def change(self, ids):
        """Make up the insertion, deletion or update of rows: its name and its arguments."""
        rng, n = self.rng, int(self.rng.choice(self.most))
        what = str(rng.choice(["insert", "delete", "update"], p=[0.5, 0.3, 0.2])) if len(ids) else "insert"
        if what == "insert":
            return what, (*self.rows(n), names(self.pair.count, rng, n, self.named))
        n = len(ids) if what == "delete" and rng.random() < 0.1 else min(n, len(ids))
        some = rng.choice(ids, size=n, replace=False)
        return what, (some,) if what == "delete" else (some, *self.rows(n))

    def transaction(self, *, fails):
        """Do some operations together: the dynamic coreset does them only if they are committed."""
        store, done = self.pair.store, []
        with contextlib.suppress(LeftError), store.transaction():
            for _ in range(int(self.rng.integers(5))):
                what, args = self.change(store.ids)
                quietly(getattr(store, what), *args)
                done.append((what, args))
            if fails:
                raise LeftError
        for what, args in () if fails else done:
            quietly(getattr(self.pair.dyn, what), *args)
            self.n_forgotten += len(args[0]) if what == "delete" else 0

    def refusal(self):
        """Try what cannot be done."""
        row = np.ones(self.problem.n_columns)
        label = None if self.problem.label is None else [1.0]
        wrong = [
            ("insert", [row * np.nan], label),
            ("insert", [row], label, [-1.0]),
            ("delete", [*self.pair.dyn.ids[:1], 10**15]),
            ("update", 10**15, row),
            ("set_outliers", -1),
        ]
        assert self.pair.do(*wrong[self.rng.integers(len(wrong))]) is not None

    def merge(self, n):
        other = dm.DynamicCoreset(**{**self.pair.settings, "anchor": self.pair.dyn.anchor})
        ids = names(self.pair.count, self.rng, n, self.named)
        if ids is None:
            ids = np.arange(10**6, 10**6 + n) + 10**4 * next(self.pair.count)
        quietly(other.insert, *self.rows(n), ids=ids)
        if self.rng.random() < 0.3:
            other.delete(other.ids)
        self.pair.do("merge", other)
