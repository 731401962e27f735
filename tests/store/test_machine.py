"""Operations in any order, in transactions or not, undone or not, with the file closed and opened in between."""

import shutil
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import Phase
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

import duramen as dm
from tests.store.alike import ALL, TREE, Life, Pair, names
from tests.support import quietly

SEEDS = st.integers(0, 2**32 - 1)
SUITS = {
    "logistic": {},
    "k-means": {},
    "huber": {"sampler": "layered"},
    "softmax": {"sampler": "uniform", **TREE},
    "k-median": {"engine": "tree", "height": 2},
}
MOST = 300  # points


class UndoneError(Exception):
    """What ends a transaction."""


class Stored(RuleBasedStateMachine):
    """A store and a dynamic coreset, which does what was committed."""

    def __init__(self):
        super().__init__()
        self.folder = Path(tempfile.mkdtemp())
        self.pair = self.life = None

    def teardown(self):
        if self.pair is not None:
            self.pair.store.close()
        shutil.rmtree(self.folder)

    @initialize(
        name=st.sampled_from(sorted(SUITS)),
        seed=SEEDS,
        named=st.sampled_from([None, None, "odd", "uuid"]),
        n=st.sampled_from([0, 10, 100]),
        audit=st.booleans(),
        n_outliers=st.sampled_from([0, 0.1, 5]),
    )
    def set_up(self, name, seed, named, n, audit, n_outliers):
        settings = {"loss": ALL[name].loss, "size": 25, "n_outliers": n_outliers, "random_state": 3}
        self.pair = Pair(self.folder / "data.duramen", audit=audit, **settings, **SUITS[name])
        self.life = Life(self.pair, ALL[name], seed, named=named, most=(1, 1, 3, 30))
        self.notes, self.forgotten, self.audit = {}, 0, audit
        if n:
            self.life.insert(n)

    @property
    def n(self):
        return len(self.pair.dyn)

    def chance(self, seed):
        self.life.rng = np.random.default_rng(seed)
        return self.life.rng

    @precondition(lambda self: self.n < MOST)
    @rule(seed=SEEDS, n=st.sampled_from([1, 3, 40]))
    def insert(self, seed, n):
        self.chance(seed)
        self.life.insert(n)

    @precondition(lambda self: self.n)
    @rule(seed=SEEDS, n=st.sampled_from([1, 5, 60, 1000]))
    def delete(self, seed, n):
        self.chance(seed)
        some = self.life.some(n)
        assert self.pair.do("delete", some) is None
        self.forgotten += len(some)

    @precondition(lambda self: self.n)
    @rule(seed=SEEDS, n=st.sampled_from([1, 5, 60]))
    def update(self, seed, n):
        self.chance(seed)
        some = self.life.some(n)
        self.pair.do("update", some, *self.life.rows(len(some)))

    @rule(z=st.sampled_from([0, 0.02, 0.3, 4, 10**6]))
    def set_outliers(self, z):
        self.pair.do("set_outliers", z)

    @rule(given=st.booleans())
    def reanchor(self, given):
        self.pair.do("reanchor", self.life.problem.anchor() if given else None)

    @precondition(lambda self: self.n < MOST)
    @rule(seed=SEEDS, n=st.sampled_from([1, 40]))
    def merge(self, seed, n):
        self.chance(seed)
        self.life.merge(n)

    @rule(seed=SEEDS, fails=st.booleans(), steps=st.integers(0, 4))
    def transaction(self, seed, fails, steps):
        """Do some operations together: the dynamic coreset does them only if they are committed."""
        rng, store, done, count = self.chance(seed), self.pair.store, [], 0
        try:
            with store.transaction():
                for _ in range(steps):
                    ids = store.ids
                    what = str(rng.choice(["insert", "delete", "update"])) if len(ids) else "insert"
                    some = rng.choice(ids, size=min(len(ids), 7), replace=False) if len(ids) else ids
                    args = (some,) if what == "delete" else (some, *self.life.rows(len(some)))
                    if what == "insert":
                        args = (*self.life.rows(5), names(self.pair.count, rng, 5, self.life.named))
                    quietly(getattr(store, what), *args)
                    done.append((what, args))
                    count += len(some) if what == "delete" else 0
                if fails:
                    raise UndoneError  # noqa: TRY301
        except UndoneError:
            self.pair.dyn._solution = None
        else:
            self.forgotten += count
            for what, args in done:
                quietly(getattr(self.pair.dyn, what), *args)

    @rule(what=st.sampled_from(["row", "id", "weight", "unknown", "z"]))
    def refused(self, what):
        row = np.ones(self.life.problem.n_columns)
        label = None if self.life.problem.label is None else [1.0]
        here = self.pair.dyn.ids[:1]
        error = {
            "row": lambda: self.pair.do("insert", [row * np.nan], label),
            "id": lambda: self.pair.do("delete", [*here, 10**15]),
            "weight": lambda: self.pair.do("insert", [row], label, [-1.0]),
            "unknown": lambda: self.pair.do("update", 10**15, row),
            "z": lambda: self.pair.do("set_outliers", -1),
        }[what]()
        assert error is not None

    @rule(value=st.sampled_from([None, 1, "a", [1, {"b": None}]]))
    def note(self, value):
        self.pair.store.note("one", value)
        self.notes = {} if value is None else {"one": value}

    @rule()
    def reopen(self):
        self.pair.reopen()

    @rule()
    def compact(self):
        self.pair.store.compact()

    @rule()
    def check(self):
        assert f"{self.n:,} points" in self.pair.store.check()

    @rule()
    def read(self):
        """Somebody else reads the same."""
        with dm.open_store(self.pair.path, read_only=True) as reader:
            assert reader.ids.tolist() == self.pair.dyn.ids.tolist()
            assert reader.notes == self.notes
            if self.n:
                np.testing.assert_array_equal(reader.points().X, self.pair.dyn.points().X)

    @invariant()
    def they_are_alike(self):
        if self.pair is not None:
            self.pair.assert_alike()
            assert self.pair.store.notes == self.notes
            assert len(self.pair.store.forgotten) == (self.forgotten if self.audit else 0)


# rows are made by seeds, which do not shrink: it would take minutes to no avail
SETTINGS = hypothesis_settings(
    max_examples=3, stateful_step_count=25, phases=(Phase.explicit, Phase.generate)
)


class TestStored(Stored.TestCase):
    settings = SETTINGS


@pytest.mark.slow
class TestStoredForLonger(Stored.TestCase):
    settings = hypothesis_settings(SETTINGS, max_examples=20)
