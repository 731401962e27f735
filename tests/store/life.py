"""A life of a store: operations that follow from a seed, the plain model of what they leave, and a dynamic coreset beside it."""

from __future__ import annotations

import copy
import dataclasses
import pickle
import shutil
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from uuid import UUID

import numpy as np

import duramen as dm
from tests.store.support import LeftError
from tests.support import (
    PROBLEMS,
    Problem,
    assert_identical_anchor,
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

_LOGISTIC = Problem("logistic", dm.LogisticLoss(), (0.0,) * 7, "sign")
_HUBER = Problem("huber", dm.HuberLoss(), (0.0,) * 7, "real")
_KMEANS = Problem("k-means", dm.KMeansLoss(2), ((0.0,) * 6, (1.0,) * 6))
_RANKED = {"loss": _LOGISTIC.loss, "size": 30, "n_outliers": 3, "random_state": 5}
_TREE = {"loss": _KMEANS.loss, "size": 12, "n_outliers": 2, "random_state": 5, **TREE}
KINDS: dict[str, dict[str, Any]] = {
    "ranked": _RANKED,
    "ranked, names": {**_RANKED, "audit": True},
    "tree": _TREE,
    "tree, names": {**_TREE, "audit": True},
    "fraction": {**_RANKED, "loss": _HUBER.loss, "n_outliers": 0.05},
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
    """What a store should hold after its first ``k`` operations, and those to come.

    ``named`` is a kind of names: plain, of all alphabets, UUIDs, or None for numbers. With ``wild``, rows tie, and
    weights are of all sizes.
    """

    problem: Problem | None
    settings: dict[str, Any]
    seed: int
    named: str | None = None
    dtype: Any = float
    wild: bool = False
    k: int = 0
    points: dict[Any, tuple] = field(default_factory=dict)
    next: int = 0
    n_reanchored: int = 0
    n_deleted: int = 0
    notes: dict[str, Any] = field(default_factory=dict)
    was_many: bool = False

    def __post_init__(self):
        self.n_outliers = self.settings.get("n_outliers", 0)

    @classmethod
    def of(cls, kind, seed):
        """Begin the life of a store of a kind."""
        problem = next(one for one in (_LOGISTIC, _HUBER, _KMEANS) if one.loss == KINDS[kind]["loss"])
        return cls(problem, KINDS[kind], seed, "plain" if "names" in kind else None)

    def copy(self):
        made = copy.copy(self)
        made.points, made.notes = dict(self.points), dict(self.notes)
        return made

    # what comes next

    def rng(self):
        return np.random.default_rng([self.seed, self.k])

    def plan(self):
        """The next operation: one step, or several that are one transaction."""
        rng = self.rng()
        ahead, steps = self.copy(), []
        for _ in range(int(rng.integers(2, 6)) if rng.random() < 0.2 else 1):
            steps.append(ahead._step(rng))
            ahead.take(steps[-1])
        return steps

    def _step(self, rng):
        n, few = len(self.points), int(rng.choice([1, 1, 2, 7]))
        if n < 15:
            return self.inserted(rng, int(rng.integers(40, 60) if self.wild else rng.integers(5, 30)))
        if n > MOST:
            return Step("delete", ids=self.some(rng, n // 2))
        kinds = ["insert", "delete", "update", "set_outliers", "note", "reanchor", "merge"]
        what = rng.choice(kinds, p=[0.44, 0.2, 0.18, 0.06, 0.03, 0.05, 0.04])
        if what == "insert":
            return self.inserted(rng, [None, None, None, 3, 40][rng.integers(5)])
        if what == "delete":
            return Step("delete", ids=self.some(rng, n if rng.random() < 0.05 else few))
        if what == "update":
            return self.updated(rng, few)
        if what == "set_outliers":
            total = sum(weight for _, _, weight in self.points.values())
            return Step(what, value=float(rng.choice([z for z in (0, 0.02, 0.1, 1, 2, 4) if z < total])))
        if what == "merge":
            step = self.inserted(rng, few)
            ids = step.ids or list(range(self.next + 100, self.next + 100 + few))
            return step._replace(what="merge", ids=ids, value=self.settings)
        if what == "note" or not self.was_many:
            return Step("note", value=[None, 1, "a", [1, {"b": None}]][rng.integers(4)])
        return Step("reanchor", value=None if rng.random() < 0.5 else self.problem.anchor())

    def some(self, rng, n):
        return [list(self.points)[one] for one in rng.choice(len(self.points), n, replace=False)]

    def rows(self, rng, n):
        """Make n rows with labels and weights; one alone if n is None."""
        kind = (
            str(rng.choice(["none", "whole", "real", "wild"], p=[0.5, 0.2, 0.2, 0.1]))
            if self.wild
            else "real"
        )
        X = self.problem.rows(rng, n or 1, self.wild and rng.random() < 0.5).astype(self.dtype)
        y = (
            rng.poisson(1.0, size=n or 1)
            if self.problem.label == "count"
            else self.problem.labels(rng, n or 1)
        )
        parts = X, y, weights_of(rng, n or 1, kind)
        return tuple(part[0] if n is None and part is not None else part for part in parts)

    def names(self, rng, n):
        """Make names that were never there; None for numbers."""
        numbers = range(self.next, self.next + n)
        if self.named == "uuid":
            return [UUID(int=one << 64 | int(rng.integers(2**62))) for one in numbers]
        marks = ["", "ü", "名", "\ud800", "\x00", "😀", "'; --"] if self.named == "odd" else [""]
        return [f"{marks[one % len(marks)]}row {one}" for one in numbers] if self.named else None

    def inserted(self, rng, n):
        return Step("insert", self.names(rng, n or 1), *self.rows(rng, n))

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
        if step.what in ("insert", "update", "merge"):
            X = np.atleast_2d(step.X)
            ids = step.ids or range(self.next, self.next + len(X))
            y = [None] * len(X) if step.y is None else np.atleast_1d(step.y).tolist()
            weights = [None] * len(X) if step.weights is None else np.atleast_1d(step.weights).tolist()
            for one, row, label, weight in zip(ids, X, y, weights, strict=True):
                before = self.points.get(one, (None, None, 1.0))[2]
                self.points[one] = (row.tobytes(), label, before if weight is None else weight)
            if step.what != "update":
                self.next = self.next + len(X) if self.named else ids[-1] + 1
        elif step.what == "delete":
            self.n_deleted += len(step.ids)
            for one in step.ids:
                del self.points[one]
        elif step.what == "set_outliers":
            self.n_outliers = step.value
        elif step.what == "reanchor":
            self.n_reanchored += step.value is None
        elif step.what == "note":
            self.notes = {} if step.value is None else {"last": step.value}
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
        elif step.what == "merge":
            other = dm.DynamicCoreset(**{**in_memory(step.value), "anchor": dyn.anchor})
            other.insert(step.X, step.y, step.weights, step.ids)
            dyn.merge(other)
        elif step.what == "delete":
            dyn.delete(step.ids if len(step.ids) > 1 else step.ids[0])
        elif step.what == "update":
            dyn.update(step.ids, step.X, step.y, step.weights)
        elif step.what == "set_outliers":
            dyn.set_outliers(step.value)
        elif step.what == "reanchor":
            dyn.reanchor(step.value)
        elif step.what == "compact":
            if isinstance(dyn, dm.store.Store):
                dyn.compact()
        elif isinstance(dyn, dm.store.Store):
            dyn.note("last", step.value)


def left(store, steps):
    """Do steps in a transaction, and leave it with an error: it is undone."""
    with store.transaction():
        perform(steps, store)
        raise LeftError


def make(path, kind, **more):
    return dm.open_store(path, create=True, **KINDS[kind], **more)


def in_memory(settings):
    """Return those settings of a store that a dynamic coreset in memory has, too."""
    return {name: value for name, value in settings.items() if name != "audit"}


def mirror(kind):
    """A dynamic coreset in memory, with the settings of a store of this kind."""
    return dm.DynamicCoreset(**in_memory(KINDS[kind]))


def held(store):
    """What a store holds, in the form of :meth:`Life.held`."""
    points = {}
    if len(store):
        there = store.points()
        names = there.ids.tolist() if not store._state.ids.names else store.names_of(there.ids)
        labels = [None] * len(there) if there.y is None else there.y.tolist()
        for one, row, label, weight in zip(names, there.X, labels, there.weights.tolist(), strict=True):
            points[one] = (row.tobytes(), label, weight)
    n_found = sum(event.what == "found again" for event in store.history)
    return points, store._state.n_outliers, n_found, store.notes


def on_disk(path):
    """What a reader finds in the file of a store."""
    with dm.open_store(path, read_only=True) as reader:
        assert reader.check()
        return held(reader)


class Pair:
    """A store, the dynamic coreset that does all that it does, and the life that they may follow."""

    def __init__(self, path, problem, *, seed=0, named=None, dtype=float, **settings):
        self.path, self.settings = path, in_memory(settings)
        self.store = dm.open_store(path, create=True, synchronous="normal", **settings)
        self.dyn = dm.DynamicCoreset(**self.settings)
        self.life = Life(problem, settings, seed, named, dtype, wild=True)

    def do(self, what, *args, **kwargs):
        """Do it to both; what one returns or raises, the other has to. Return what was raised."""
        return self._both(self.dyn, lambda one: getattr(one, what)(*args, **kwargs))

    def perform(self, steps):
        """Do them all to both; or none, if one is refused."""
        refused = self._both(copy.copy(self.dyn), lambda one: perform(steps, one))
        if refused is None:
            quietly(perform, steps, self.dyn)
        self.life = self.life.took([] if refused else steps)

    def _both(self, dyn, call):
        (mine, wrong), (theirs, expected) = (_outcome(call, one) for one in (self.store, dyn))
        assert type(wrong) is type(expected), (wrong, expected)
        assert str(wrong) == str(expected)
        if isinstance(theirs, np.ndarray):
            np.testing.assert_array_equal(mine, theirs)
        return wrong

    def insert(self, n):
        self.perform([self.life.inserted(self.life.rng(), n)])

    def reopen(self, **needed):
        """Close and open again; the solution is not kept."""
        self.store.close()
        self.store = dm.open_store(self.path, synchronous="normal", **needed)
        self.dyn._solution = None

    def assert_alike(self):
        assert_alike(self.store, self.dyn)


def _outcome(call, one):
    try:
        return quietly(call, one), None
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
    if dyn._state is not None:
        assert store._state.sample == dyn._state.sample
    if len(dyn):
        for name in ("X", "weights", "ids", "y"):
            assert_identical_array(getattr(store.points(), name), getattr(dyn.points(), name))
        named = bool(dyn._state.ids.names)
        assert named == bool(store._state.ids.names)
        if named:
            assert store.names_of(dyn.ids).tolist() == dyn.names_of(dyn.ids).tolist()
    if dyn.total_weight > dyn.n_outliers:
        assert_same_coreset(quietly(store.coreset), quietly(dyn.coreset), rtol=0)


def assert_same_anchors(one, other):
    """Check that two anchors are the same, bit for bit; a store does not keep the ids of the sample in its anchor."""
    if one is not None and other is not None:
        one, other = (dataclasses.replace(anchor, ids=()) for anchor in (one, other))
    assert_identical_anchor(one, other)


def next_id(dyn):
    return dyn._first_id if dyn._state is None else dyn._state.ids.next


# fixed scripts of operations, and the task of a child process that follows one


class Script:
    """Fixed operations, and what is there after each."""

    def __init__(self, kind, plans, begin=None):
        self.kind = kind
        life, dyn = (Life.of(kind, 7), mirror(kind)) if begin is None else begin
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
    task = {"do": "script", "script": str(source / which), "kind": known[which].kind, "path": str(path)}
    return {**task, "create": which == "begun", "seed": 0, "n": -1, "mode": 0, **more}


def opened(path, script, which):
    """Open what is left; a store whose making was cut short is made."""
    return make(path, script.kind) if which == "begun" else dm.open_store(path)
