"""Rows come, go and are corrected in any order: the state is sound, and the coreset the one built from scratch."""

import numpy as np
import pytest
from hypothesis import Phase
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

import duramen as dm
from duramen.dynamic import sorted_list as ordered
from tests.dynamic.model import LIVES, SEEDS, Model, assert_law, do_singly, suspected_by_sorting, suspects_of
from tests.support import KINDS, PROBLEMS, SAMPLERS, Heaviest, assert_same_coreset, quietly, weights_of

MOST = 400  # points; beyond them none come


class Changing(RuleBasedStateMachine):
    """What both engines have in common; a twin, where there is one, does everything row by row."""

    def __init__(self):
        super().__init__()
        self._chunk, ordered.CHUNK = ordered.CHUNK, 8
        self.dyns, self.steps, self.lazy = [], 0, False

    def teardown(self):
        ordered.CHUNK = self._chunk

    def begin(self, problem, sampler, how, seed, n_outliers, twins=1, **more):
        """Make the machines with an anchor that is given, frozen already, or found among the first rows."""
        self.problem, self.next_id = problem, 0
        self.lazy = bool(seed % 2)
        self.n_outliers = n_outliers
        self.settings = {"loss": problem.loss, "sampler": sampler, "random_state": 7} | {
            name: more.pop(name) for name in ("size", "calibrate", "suspects") if name in more
        }
        rng = np.random.default_rng(seed)
        anchor = None if how == "found" else problem.anchor()
        self.first = (problem.rows(rng, 260, True), problem.labels(rng, 260))
        if how == "frozen":
            sample = {"loss": problem.loss, "size": 20, "random_state": 0}
            kind = sampler if isinstance(sampler, (str, dm.RankedSampler)) else "uniform"
            anchor = quietly(
                dm.robust_coreset, *self.first, anchor=problem.anchor(), sampler=kind, **sample
            ).anchor
        self.more = {"anchor": anchor, **more}
        self.dyns = [self.made() for _ in range(twins)]
        self.model = Model(problem.label is not None)
        if how != "frozen":
            self.insert(*self.first, None, None)
            assert self.dyns[0].anchor is not None

    def made(self):
        return dm.DynamicCoreset(n_outliers=self.n_outliers, **self.settings, **self.more)

    @property
    def dyn(self):
        return self.dyns[0]

    def rows(self, rng, n, whole, again):
        """Make rows and labels, some of them copies of rows that are here."""
        X, y = self.problem.rows(rng, n, whole), self.problem.labels(rng, n)
        if again and len(self.model):
            chosen = rng.choice(self.model.ids, size=n)
            for row in np.flatnonzero(rng.random(n) < 0.5):
                X[row], label, _ = self.model.points[int(chosen[row])]
                if y is not None:
                    y[row] = label
        return X, y

    def some(self, rng, most):
        n = min(len(self.model), int(rng.integers(1, most + 1)))
        return rng.choice(self.model.ids, size=n, replace=False)

    def insert(self, X, y, weights, ids, alone=False):
        new = (X, y, weights, ids)
        if alone:  # a row, not a table of one
            new = (None if part is None else part[0] for part in new)
        named = self.dyn.insert(*new)
        expected = np.arange(self.next_id, self.next_id + len(X)) if ids is None else ids
        np.testing.assert_array_equal(named, expected)
        for twin in self.dyns[1:]:
            do_singly(twin, "insert", named, X, y, weights)
        self.next_id = max(self.next_id, int(named.max()) + 1)
        self.model.put(named, X, y, weights)

    @precondition(lambda self: len(self.model) < MOST)
    @rule(
        seed=SEEDS,
        most=st.sampled_from([1, 1, 5, 40]),
        kind=st.sampled_from(KINDS),
        own=st.booleans(),
        whole=st.booleans(),
        again=st.booleans(),
        alone=st.booleans(),
    )
    def come(self, seed, most, kind, own, whole, again, alone):
        rng = np.random.default_rng(seed)
        n = int(rng.integers(1, most + 1))
        ids = None
        if own:
            free = np.empty(0, dtype=np.int64)
            while len(free) < n:  # the same seed may come again, whose ids are taken
                free = np.union1d(free, np.setdiff1d(rng.integers(-1000, 10**6, size=n + 10), self.model.ids))
            ids = rng.permutation(free)[:n]
        self.insert(*self.rows(rng, n, whole, again), weights_of(rng, n, kind), ids, alone and n == 1)

    @precondition(lambda self: len(self.model))
    @rule(seed=SEEDS, most=st.sampled_from([1, 5, 60, 1000]))
    def go(self, seed, most):
        ids = self.some(np.random.default_rng(seed), most)
        self.dyn.delete(ids)
        for twin in self.dyns[1:]:
            do_singly(twin, "delete", ids)
        self.model.drop(ids)

    @precondition(lambda self: len(self.model))
    @rule(seed=SEEDS, most=st.sampled_from([1, 5, 60]), kind=st.sampled_from(KINDS), labels=st.booleans())
    def change(self, seed, most, kind, labels):
        rng = np.random.default_rng(seed)
        ids = self.some(rng, most)
        X, y = self.rows(rng, len(ids), True, True)
        y, weights = y if labels else None, weights_of(rng, len(ids), kind)
        self.dyn.update(ids, X, y, weights)
        for twin in self.dyns[1:]:
            do_singly(twin, "update", ids, X, y, weights)
        self.model.put(ids, X, y, weights)

    @precondition(lambda self: len(self.model))
    @rule(share=st.sampled_from([0.0, 0.05, 0.3, 0.7, 0.97, 1.0, 2.0]), fraction=st.booleans())
    def expect_others(self, share, fraction):
        z = min(share, 0.999) if fraction else share * self.model.total
        if z < 1 or z < self.dyn.total_weight or not self.model.total:
            for dyn in self.dyns:
                dyn.set_outliers(z)
            self.n_outliers = z
            return
        for dyn in self.dyns:
            with pytest.raises(ValueError, match="is not below the total weight"):
                dyn.set_outliers(z)

    @precondition(lambda self: len(self.model))
    @rule(given=st.booleans())
    def reanchor(self, given):
        """Reanchor: where points do not allow for an anchor, nothing changes."""
        failed = [not self.reanchored(dyn, given) for dyn in self.dyns]
        assert len(set(failed)) == 1
        if given and self.n_outliers < self.model.total and self.model.total:
            assert not failed[0]

    def reanchored(self, dyn, given):
        before = dyn.anchor
        try:
            quietly(dyn.reanchor, self.problem.anchor() if given else None)
        except ValueError:
            assert dyn.anchor is before
            return False
        return True

    @invariant()
    def it_is_sound(self):
        """After each step; or now and then, as to look at all points takes in those that wait for it."""
        self.steps += 1
        for dyn in self.dyns:
            self.model.assert_is(dyn)
            if not self.lazy or self.steps % 5 == 0:
                dyn.check_invariants()
        if self.dyns and (not self.lazy or self.steps % 5 == 0):
            self.the_split_is_what_sorting_gives()

    def the_split_is_what_sorting_gives(self):
        if self.dyn.anchor is None or not self.model.total:
            return
        points = self.dyn.points()
        loss = self.problem.loss.bind(self.dyn.anchor.frozen)
        losses = loss.values(self.dyn.anchor.theta, points.X, points.y)
        z = self.n_outliers if self.n_outliers >= 1 else self.n_outliers * points.total_weight
        suspects = self.settings.get("suspects", 1.5)
        expected = suspected_by_sorting(losses, points.ids, points.weights, z, suspects)
        threshold = losses[np.isin(points.ids, sorted(expected))].min(initial=np.inf)
        for dyn in self.dyns:
            assert suspects_of(dyn) == expected
            assert (dyn.n_suspected, dyn.threshold) == (len(expected), threshold)


class Ranked(Changing):
    """The ranked engine, held against the one call."""

    @initialize(**LIVES, suspects=st.sampled_from([0, 1, 1.5, 3]))
    def set_up(self, suit, how, seed, size, n_outliers, calibrate, suspects):
        name, sampler = suit
        kinds = {"size": size, "calibrate": calibrate, "suspects": suspects}
        quietly(self.begin, PROBLEMS[name], SAMPLERS[sampler], how, seed, n_outliers, **kinds)

    @precondition(lambda self: len(self.model))
    @rule(seed=SEEDS)
    def the_coreset_is_the_one_built_anew(self, seed):
        core = assert_law(self.dyn, self.settings, self.n_outliers, seed)
        assert core is None or self.dyn.coreset() is core

    @precondition(lambda self: len(self.model) < MOST and self.dyn.anchor is not None)
    @rule(seed=SEEDS, n=st.integers(1, 30), kind=st.sampled_from(KINDS))
    def take_another_in(self, seed, n, kind):
        rng = np.random.default_rng(seed)
        X, y = self.rows(rng, n, True, True)
        weights = weights_of(rng, n, kind)
        ids = np.arange(n) + self.next_id + 1000
        self.more = {"anchor": self.dyn.anchor}
        other = self.made()
        quietly(other.insert, X, y, weights, ids)
        assert self.dyn.merge(other) is self.dyn
        self.model.put(ids, X, y, weights)
        self.next_id = int(ids[-1]) + 1
        assert len(other) == n
        other.check_invariants()

    def teardown(self):
        try:
            if len(self.dyns) and len(self.model):
                assert_law(self.dyn, self.settings, self.n_outliers)
        finally:
            super().teardown()


class Tree(Changing):
    """The tree, with a twin to which everything happens row by row."""

    @initialize(
        name=st.sampled_from(["logistic", "k-means", "k-median", "squared"]),
        sampler=st.sampled_from(["uniform", "layered", "leverage", "auto", Heaviest()]),
        how=st.sampled_from(["given", "frozen", "found"]),
        seed=SEEDS,
        size=st.sampled_from([2, 6, 20]),
        n_outliers=st.sampled_from([0, 0.1, 30]),
        shape=st.sampled_from([{}, {"bucket_size": 1}, {"bucket_size": 5}, {"height": 1}, {"height": 4}]),
    )
    def set_up(self, name, sampler, how, seed, size, n_outliers, shape):
        kinds = {"size": size, "engine": "tree", **shape}
        quietly(self.begin, PROBLEMS[name], sampler, how, seed, n_outliers, twins=2, **kinds)

    @precondition(lambda self: len(self.model))
    @rule()
    def both_choose_the_same(self):
        if self.n_outliers >= self.model.total or not self.model.total:
            for dyn in self.dyns:
                with pytest.raises(ValueError):
                    dyn.coreset()
            return
        core, other = (quietly(dyn.coreset) for dyn in self.dyns)
        assert_same_coreset(core, other, rtol=0)
        np.testing.assert_array_equal(core.weights, other.weights)
        assert set(core.ids.tolist()) <= set(self.model.points)
        assert len(core) <= self.settings["size"]
        weights = {name: weight for name, (_, _, weight) in self.model.points.items()}
        outer = suspects_of(self.dyn)
        np.testing.assert_array_equal(core.suspected, [name in outer for name in core.ids.tolist()])
        for side, names in ((core.suspected, outer), (~core.suspected, set(weights) - outer)):
            own = sum(weights[name] for name in names)
            assert core.weights[side].sum() == pytest.approx(own, rel=1e-9)
        np.testing.assert_array_equal(core.own_weights, [weights[name] for name in core.ids.tolist()])

    @invariant()
    def deleted_points_are_in_no_node(self):
        for dyn in self.dyns:
            if dyn.anchor is None:
                continue
            engine, slots = dyn._state.candidates.engine, dyn._state.slots
            used = set(slots.in_use().tolist())
            for node in engine._nodes.values():
                assert set(node.slots.tolist()) <= used


# rows are made by seeds, which do not shrink: it would take minutes to no avail
PHASES = (Phase.explicit, Phase.generate)
TestRanked = Ranked.TestCase
TestRanked.settings = hypothesis_settings(max_examples=10, stateful_step_count=20, phases=PHASES)
TestTree = Tree.TestCase
TestTree.settings = hypothesis_settings(max_examples=3, stateful_step_count=20, phases=PHASES)


@pytest.mark.slow
class TestRankedLonger(Ranked.TestCase):
    settings = hypothesis_settings(max_examples=45, stateful_step_count=20, phases=PHASES)


@pytest.mark.slow
class TestTreeLonger(Tree.TestCase):
    settings = hypothesis_settings(max_examples=20, stateful_step_count=20, phases=PHASES)
