"""A federation under random changes: its coreset is what one machine would make of all rows."""

import pickle

import numpy as np
import pytest
from hypothesis import Phase
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

import duramen as dm
from duramen.distributed import Federation, Site
from tests.distributed.sites import MOST, NAMES, assert_law
from tests.dynamic.model import LIVES, SEEDS, Model
from tests.support import KINDS, PROBLEMS, SAMPLERS, quietly, weights_of


class Changing(RuleBasedStateMachine):
    """Three sites: one in step with the federation, one that suspects for itself, one that knows nothing."""

    @initialize(**LIVES)
    def set_up(self, suit, how, seed, size, n_outliers, calibrate):
        name, sampler = suit
        self.problem, self.n_outliers, self.next_id = PROBLEMS[name], n_outliers, 0
        self.settings = {"loss": self.problem.loss, "sampler": SAMPLERS[sampler], "random_state": 7}
        self.settings |= {"size": size, "calibrate": calibrate}
        holders = (
            dm.DynamicCoreset(**self.settings),
            dm.DynamicCoreset(**self.settings, n_outliers=0.2),
            dm.DynamicCoreset(self.problem.loss, 30, sampler="uniform", engine="tree", random_state=1),
        )
        self.sites = {name: Site(rows) for name, rows in zip(NAMES, holders, strict=True)}
        self.where = {name: Model(self.problem.label is not None) for name in NAMES}
        rng = np.random.default_rng(seed)
        anchor = None if how == "found" else self.problem.anchor()
        first = self.problem.rows(rng, 200, True), self.problem.labels(rng, 200)
        if how == "frozen":
            kind = {"sampler": SAMPLERS[sampler], "random_state": 0}
            anchor = quietly(
                dm.robust_coreset, *first, anchor=anchor, loss=self.problem.loss, size=20, **kind
            ).anchor
        self.given = anchor
        wires = (
            self.sites["berlin"],
            lambda plan: self.sites["paris"].answer(pickle.dumps(plan)),
            self.sites["quito"].summary,
        )
        self.federation = Federation(
            dict(zip(NAMES, wires, strict=True)), anchor=anchor, n_outliers=n_outliers, **self.settings
        )
        self.put("berlin", *first, None)

    @property
    def n_rows(self):
        return sum(map(len, self.where.values()))

    def put(self, name, X, y, weights, ids=None):
        if ids is None:
            ids = np.arange(self.next_id, self.next_id + len(X))
            self.next_id += len(X)
        quietly(self.sites[name].insert, X, y, weights, ids)
        self.where[name].put(ids, X, y, weights)

    def some(self, rng, name, most):
        ids = self.where[name].ids
        return rng.choice(ids, size=min(len(ids), int(rng.integers(1, most + 1))), replace=False)

    def everything(self):
        """Return all rows of all sites, as the model has them."""
        points = {name: row for model in self.where.values() for name, row in model.points.items()}
        rows, labels, weights = zip(*points.values(), strict=True)
        y = labels if self.problem.label is not None else None
        return dm.points(np.array(rows), y, weights, list(points))

    @precondition(lambda self: self.n_rows < MOST)
    @rule(
        name=st.sampled_from(NAMES), seed=SEEDS, most=st.sampled_from([1, 1, 60]), kind=st.sampled_from(KINDS)
    )
    def come(self, name, seed, most, kind):
        rng = np.random.default_rng(seed)
        n = int(rng.integers(1, most + 1))
        X, y = self.problem.rows(rng, n, bool(seed % 2)), self.problem.labels(rng, n)
        self.put(name, X, y, weights_of(rng, n, kind))

    @rule(name=st.sampled_from(NAMES), seed=SEEDS, most=st.sampled_from([1, 20, 1000]))
    def go(self, name, seed, most):
        if len(self.where[name]):
            ids = self.some(np.random.default_rng(seed), name, most)
            self.sites[name].delete(ids)
            self.where[name].drop(ids)

    @rule(name=st.sampled_from(NAMES), seed=SEEDS, kind=st.sampled_from(KINDS), labels=st.booleans())
    def change(self, name, seed, kind, labels):
        if len(self.where[name]):
            rng = np.random.default_rng(seed)
            ids = self.some(rng, name, 20)
            X, y = self.problem.rows(rng, len(ids), True), self.problem.labels(rng, len(ids))
            y, weights = y if labels else None, weights_of(rng, len(ids), kind)
            quietly(self.sites[name].update, ids, X, y, weights)
            self.where[name].put(ids, X, y, weights)

    @rule(name=st.sampled_from(NAMES), to=st.sampled_from(NAMES), seed=SEEDS)
    def move(self, name, to, seed):
        """Rows move to another site; a site may be empty then."""
        if name != to and len(self.where[name]):
            ids = self.some(np.random.default_rng(seed), name, 1000)
            points = self.sites[name].rows.points(ids)
            self.sites[name].delete(ids)
            self.where[name].drop(ids)
            self.put(to, points.X, points.y, points.weights, ids)

    @rule(z=st.sampled_from([0, 0.02, 0.3, 0.9, 3, 50]))
    def expect_others(self, z):
        self.federation.set_outliers(z)
        self.n_outliers = z

    @precondition(lambda self: self.n_rows)
    @rule(given=st.booleans())
    def reanchor(self, given):
        before = self.federation.anchor
        try:
            quietly(self.federation.reanchor, self.problem.anchor() if given else None)
        except ValueError:
            assert self.federation.anchor is before
        else:
            assert self.federation.anchor is not before

    @precondition(lambda self: self.n_rows)
    @rule()
    def the_coreset_is_that_of_all_rows(self):
        assert_law(self.federation, self.everything(), self.settings, self.n_outliers, self.given)
        for name in NAMES:
            assert len(self.sites[name]) == len(self.where[name])

    def teardown(self):
        for site in getattr(self, "sites", {}).values():
            site.rows.check_invariants()
        if hasattr(self, "where") and self.n_rows:
            self.the_coreset_is_that_of_all_rows()


# rows are made by seeds, which do not shrink: it would take minutes to no avail
TestChanging = pytest.mark.slow(Changing.TestCase)
TestChanging.settings = hypothesis_settings(
    max_examples=40, stateful_step_count=20, phases=(Phase.explicit, Phase.generate)
)
