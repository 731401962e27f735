"""A life of a store: operations that follow from a seed, and the plain model that they are compared with."""

from __future__ import annotations

import copy
import pickle
import shutil
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

import duramen as dm

COLUMNS = 6
_RANKED = {"loss": dm.LogisticLoss(), "size": 30, "n_outliers": 3, "random_state": 5}
_TREE = {"loss": dm.KMeansLoss(2), "size": 12, "n_outliers": 2, "random_state": 5, "engine": "tree"}
KINDS: dict[str, dict[str, Any]] = {
    "ranked": _RANKED,
    "ranked, names": {**_RANKED, "audit": True},
    "tree": {**_TREE, "bucket_size": 16},
    "tree, names": {**_TREE, "bucket_size": 16, "audit": True},
    "fraction": {**_RANKED, "loss": dm.HuberLoss(), "n_outliers": 0.05},
}
MOST = 150  # points


class Step(NamedTuple):
    """One operation."""

    what: str
    ids: Any = None
    X: Any = None
    y: Any = None
    weights: Any = None
    value: Any = None


@dataclass
class Life:
    """What a store of some kind should hold after its first ``k`` operations."""

    kind: str
    seed: int
    k: int = 0
    points: dict[Any, tuple] = field(default_factory=dict)
    next: int = 0
    n_outliers: float = 0.0
    n_reanchored: int = 0
    notes: dict[str, Any] = field(default_factory=dict)
    was_many: bool = False

    def __post_init__(self):
        self.n_outliers = KINDS[self.kind]["n_outliers"]

    @property
    def named(self):
        return "names" in self.kind

    @property
    def labelled(self):
        return not isinstance(KINDS[self.kind]["loss"], dm.KMeansLoss)

    def copy(self):
        return copy.copy(self)._parted()

    def _parted(self):
        self.points, self.notes = dict(self.points), dict(self.notes)
        return self

    # what comes next

    def plan(self):
        """The next operation: one step, or several that are one transaction."""
        rng = np.random.default_rng([self.seed, self.k])
        ahead, steps = self.copy(), []
        for _ in range(int(rng.integers(2, 6)) if rng.random() < 0.2 else 1):
            steps.append(ahead._step(rng))
            ahead.take(steps[-1])
        return steps

    def _step(self, rng):
        n = len(self.points)
        if n < 15:
            return self.inserted(rng, int(rng.integers(5, 30)))
        if n > MOST:
            return Step("delete", ids=self.some(rng, n // 2))
        what = rng.random()
        if what < 0.35:
            return self.inserted(rng, None)
        if what < 0.45:
            return self.inserted(rng, int(rng.integers(2, 40)))
        if what < 0.6:
            return Step("delete", ids=self.some(rng, 1))
        if what < 0.68:
            return Step("delete", ids=self.some(rng, int(rng.integers(2, 8))))
        if what < 0.8:
            return self.updated(rng, 1)
        if what < 0.88:
            return self.updated(rng, int(rng.integers(2, 8)))
        if what < 0.94:
            return Step("set_outliers", value=float(rng.choice([1, 2, 4, 0.02, 0.1])))
        if what < 0.97 or not self.was_many:
            return Step("note", value=int(rng.integers(1000)))
        return Step("reanchor")

    def some(self, rng, n):
        return [list(self.points)[one] for one in rng.choice(len(self.points), n, replace=False)]

    def rows(self, rng, n):
        shape = (COLUMNS,) if n is None else (n, COLUMNS)
        X = rng.normal(size=shape)
        y = (X[..., 0] + rng.normal(size=shape[:-1]) > 0) * 1.0 if self.labelled else None
        return X, y, rng.uniform(0.5, 2.0, size=shape[:-1])

    def inserted(self, rng, n):
        X, y, weights = self.rows(rng, n)
        fresh = [f"row {self.next + one}" for one in range(n or 1)] if self.named else None
        return Step("insert", fresh, X, y, weights)

    def updated(self, rng, n):
        X, y, weights = self.rows(rng, n)
        return Step("update", self.some(rng, n), X, y, weights if rng.random() < 0.5 else None)

    # what it does

    def took(self, steps):
        """The life after one operation more."""
        after = self.copy()
        for step in steps:
            after.take(step)
        after.k += 1
        return after

    def take(self, step):
        if step.what in ("insert", "update"):
            X = np.atleast_2d(step.X)
            ids = step.ids if step.ids is not None else list(range(self.next, self.next + len(X)))
            y = [None] * len(X) if step.y is None else np.atleast_1d(step.y).tolist()
            weights = [None] * len(X) if step.weights is None else np.atleast_1d(step.weights).tolist()
            for one, row, label, weight in zip(ids, X, y, weights, strict=True):
                kept = self.points[one][2] if weight is None else weight
                self.points[one] = (row.tobytes(), label, kept)
            self.next += len(X) if step.what == "insert" else 0
        elif step.what == "delete":
            for one in step.ids:
                del self.points[one]
        elif step.what == "set_outliers":
            self.n_outliers = step.value
        elif step.what == "reanchor":
            self.n_reanchored += 1
        elif step.what == "note":
            self.notes["last"] = step.value
        self.was_many = self.was_many or len(self.points) >= 60

    def held(self):
        """All of it, to be compared."""
        return self.points, self.n_outliers, self.n_reanchored, self.notes


def perform(steps, dyn):
    """Do an operation to a store, or to a dynamic coreset in memory."""
    if len(steps) > 1 and isinstance(dyn, dm.store.Store):
        with dyn.transaction():
            for step in steps:
                perform([step], dyn)
        return
    for step in steps:
        if step.what == "insert":
            dyn.insert(step.X, step.y, step.weights, step.ids)
        elif step.what == "delete":
            dyn.delete(step.ids if len(step.ids) > 1 else step.ids[0])
        elif step.what == "update":
            dyn.update(step.ids, step.X, step.y, step.weights)
        elif step.what == "set_outliers":
            dyn.set_outliers(step.value)
        elif step.what == "reanchor":
            dyn.reanchor()
        elif step.what == "compact":
            if isinstance(dyn, dm.store.Store):
                dyn.compact()
        elif isinstance(dyn, dm.store.Store):
            dyn.note("last", step.value)


def make(path, kind, **more):
    return dm.open_store(path, create=True, **KINDS[kind], **more)


def mirror(kind):
    """A dynamic coreset in memory, with the settings of a store of this kind."""
    return dm.DynamicCoreset(**{name: value for name, value in KINDS[kind].items() if name != "audit"})


def held(store):
    """What a store holds, in the form of :meth:`Life.held`."""
    points = {}
    if len(store):
        there = store.points()
        names = there.ids.tolist() if store._state.ids.names is None else store.names_of(there.ids)
        labels = [None] * len(there) if there.y is None else there.y.tolist()
        for one, row, label, weight in zip(names, there.X, labels, there.weights.tolist(), strict=True):
            points[one] = (row.tobytes(), label, weight)
    n_found = sum(event.what == "found anew" for event in store.history)
    return points, store._n_outliers, n_found, store.notes


def assert_equivalent(store, dyn):
    """A store and a dynamic coreset that did the same are the same, seen from outside."""
    assert (store.anchor is None) == (dyn.anchor is None)
    if dyn.anchor is not None:
        np.testing.assert_allclose(store.anchor.theta, dyn.anchor.theta, rtol=1e-9, atol=1e-12)
        assert store.anchor.radius == dyn.anchor.radius
        assert store._state.sample == dyn._state.sample
        assert store.n_suspected == dyn.n_suspected
        np.testing.assert_allclose(store.threshold, dyn.threshold, rtol=1e-9)
    if len(dyn):
        mine, theirs = store.coreset(), dyn.coreset()
        np.testing.assert_array_equal(mine.ids, theirs.ids)
        np.testing.assert_allclose(mine.weights, theirs.weights, rtol=1e-9)


# fixed scripts of operations, and the task of a child process that follows one


class Script:
    """Fixed operations, and what is there after each."""

    def __init__(self, kind, plans, begin=None):
        self.kind = kind
        life, dyn = (Life(kind, 7), mirror(kind)) if begin is None else begin
        self.operations, self.lives, self.cores = [], [life], [_seen(dyn)]
        for plan in plans:
            rng = np.random.default_rng(len(self.lives))
            ahead, steps = life.copy(), []
            for one in plan:
                steps.append(one(ahead, rng))
                ahead.take(steps[-1])
            perform(steps, dyn)
            life = life.took(steps)
            self.operations.append(steps)
            self.lives.append(life)
            self.cores.append(_seen(dyn))
        self.dyn = dyn

    def found(self, store):
        """After which operations a store may be: several, where one changed nothing that is compared."""
        there = held(store)
        return [k for k, life in enumerate(self.lives) if life.held() == there]


def _seen(dyn):
    """A copy of it, with the coreset made."""
    if not len(dyn):
        return None
    dyn.coreset()
    return copy.copy(dyn)


def insert(n):
    return lambda life, rng: life.inserted(rng, n)


def delete(n):
    return lambda life, rng: Step("delete", ids=life.some(rng, n))


def update(n):
    return lambda life, rng: life.updated(rng, n)


def step(what, value=None):
    return lambda life, rng: Step(what, value=value)


BEGINNING = [[insert(20)], [insert(45)], [insert(None)], [step("compact")]]
REST = [
    [insert(None)],
    [insert(None)],
    [delete(1)],
    [update(1)],
    [insert(10)],
    [delete(4)],
    [insert(None), delete(2), update(2), step("set_outliers", 2.0), step("note", 5)],
    [step("reanchor")],
    [step("compact")],
    [insert(None)],
]


def scripts_of(kind, folder):
    """The beginning of a store, and its later life from the file that the beginning left."""
    begun = Script(kind, BEGINNING)
    with make(folder / "a.duramen", kind) as store:
        for steps in begun.operations:
            perform(steps, store)
    later = Script(kind, REST, (begun.lives[-1], begun.dyn))
    for name, script in (("begun", begun), ("later", later)):
        (folder / name).write_bytes(pickle.dumps(script.operations))
    return folder, {"begun": begun, "later": later}


def order(scripts, which, folder, **more):
    """Return the task of a child, with the files that it begins with."""
    source, known = scripts
    folder.mkdir()
    path = folder / "a.duramen"
    if which == "later":
        shutil.copy(source / "a.duramen", path)
    said = {"do": "script", "script": str(source / which), "kind": known[which].kind, "path": str(path)}
    return {**said, "create": which == "begun", "seed": 0, "n": -1, "mode": 0, **more}


def opened(path, script, which):
    """Open what is left; a store whose making was cut short is made."""
    return make(path, script.kind) if which == "begun" else dm.open_store(path)
