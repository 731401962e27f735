"""Threads, copies, and operations that were cut short."""

import copy
import pickle
import sys
import time
import warnings
from contextlib import contextmanager

import numpy as np
import pytest

import duramen as dm
from duramen.dynamic.candidates import LiveCandidates
from duramen.dynamic.ids import Ids
from duramen.dynamic.rows import Slots
from tests.dynamic.model import (
    LATE,
    LOGISTIC,
    ROW,
    assert_same,
    every_engine,
    everywhere,
    live,
    rows,
    snapshot,
)
from tests.support import run_together

# one writer, many readers


def consistent(core, total):
    """Check that a coreset is of one moment; ``total`` returns what n points weigh."""
    assert len(np.unique(core.ids)) == len(core.ids) <= 40
    assert core.weights.sum() == pytest.approx(total(core.n_points), rel=1e-9)
    assert (core.weights > 0).all()


@every_engine
def test_one_writes_while_others_read(engine):
    dyn = live(engine=engine, anchor=dm.Anchor(np.eye(4)[0], 99.0))

    def write():
        rng = np.random.default_rng(0)
        for step in range(15):
            dyn.insert(*rows(20, seed=step))
            dyn.insert(rng.normal(size=3), 1)
            dyn.update(dyn.ids[-3:], rng.normal(size=(3, 3)))
            dyn.update(int(dyn.ids[7]), rng.normal(size=3))
            dyn.set_outliers(0.02 + 0.001 * step)
            dyn.delete(dyn.ids[rng.permutation(len(dyn))[:21]])
            dyn.delete(int(dyn.ids[0]))
            dyn.insert(rng.normal(size=3), -1)

    def read():
        consistent(dyn.coreset(), lambda n: n)

    def count():
        assert LATE - 5 <= dyn.n_points <= LATE + 30
        assert (np.diff(dyn.ids) > 0).all()
        assert LATE - 5 <= dyn.total_weight <= LATE + 30
        assert dyn.n_suspected >= 0
        repr(dyn)
        dyn.anchor_report()

    def copies():
        points = dyn.points()
        assert len(np.unique(points.ids)) == len(points)
        assert (points.weights == 1).all()
        assert set(np.unique(points.y)) == {-1, 1}

    def fit():
        solution = dyn.fit(l2=1.0, max_iter=20)
        assert solution.total_weight == pytest.approx(round(solution.total_weight), rel=1e-9)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        counts = run_together(write, read, count, copies, fit)
    assert min(counts) > 0
    dyn.check_invariants()
    again = live(0, engine="ranked", anchor=dyn.anchor)
    points = dyn.points()
    again.insert(points.X, points.y, ids=points.ids)
    again.set_outliers(0.02 + 0.001 * 14)
    if engine == "ranked":
        assert_same(dyn, again)


@every_engine
def test_readers_are_there_when_the_anchor_is_made_and_changed(engine):
    dyn = dm.DynamicCoreset(LOGISTIC, 40, 0.05, engine=engine, random_state=0)
    dyn.insert(*rows(20))

    def write():
        for step in range(30):
            dyn.insert(*rows(10, seed=step))
            if step in (15, 25):
                dyn.reanchor()

    def read():
        core = dyn.coreset()
        assert core.weights.sum() == pytest.approx(core.n_points, rel=1e-9)
        assert dyn.threshold > 0
        dyn.anchor_report()

    run_together(write, read, read)
    assert dyn.anchor is not None
    dyn.check_invariants()


def test_two_that_merge_into_each_other_do_not_wait_forever():
    one, other = live(20), live(0)
    other.insert(*rows(20), ids=np.arange(100, 120))

    def merge(mine, its):
        def act():
            for _ in range(50):
                with pytest.raises(ValueError, match="is here already"):
                    mine.merge(its)

        return act

    one.merge(other)
    run_together(merge(one, other), lambda: merge(other, one)())
    one.check_invariants()


# what is gone, and copies


@every_engine
def test_the_last_row_that_came_alone_is_nowhere_once_deleted(engine):
    dyn = live(engine=engine)
    dyn.delete(dyn.insert(ROW, 1))
    assert ROW.tobytes() not in pickle.dumps(dyn)


@pytest.mark.parametrize("duplicate", [copy.deepcopy, lambda dyn: pickle.loads(pickle.dumps(dyn))])
@everywhere
def test_a_copy_is_equal_and_goes_its_own_way(duplicate, n, engine):
    dyn = live(n, engine=engine, anchor=dm.Anchor(np.zeros(4), 9.0))
    dyn.fit(l2=1.0)
    other = duplicate(dyn)
    assert_same(dyn, other)
    for one in (dyn, other):
        one.insert(ROW, 1)
        one.update(1, -ROW)
    assert_same(dyn, other)
    np.testing.assert_array_equal(other.solution.theta, dyn.solution.theta)
    before = snapshot(dyn)
    other.delete(range(0, n, 2))
    other.insert(*rows(50, seed=3))
    other.set_outliers(3)
    assert snapshot(dyn) == before
    dyn.delete(range(0, n, 2))
    dyn.insert(*rows(50, seed=3))
    dyn.set_outliers(3)
    assert_same(dyn, other)


@every_engine
def test_a_copy_is_not_much_larger_than_the_points(monkeypatch, engine):
    monkeypatch.undo()
    assert len(pickle.dumps(live(engine=engine))) < 200_000  # 300 rows of 40 bytes, and 100 bytes per point


# cut short

CUTS = {
    "one": (Slots.add, lambda dyn: dyn.insert(ROW, 1)),
    "many": (LiveCandidates.add, lambda dyn: dyn.insert(*rows(20, seed=1))),
    "delete one": (LiveCandidates.remove, lambda dyn: dyn.delete(3)),
    "delete many": (Slots.remove, lambda dyn: dyn.delete([3, 4])),
    "update": (LiveCandidates.add, lambda dyn: dyn.update(3, ROW + 1e200)),  # too large to wait
    "look": (LiveCandidates.add, lambda dyn: (dyn.insert(ROW, 1), dyn.coreset())),
    "outliers": (LiveCandidates.settle, lambda dyn: dyn.set_outliers(40)),
    "ids": (Ids.admit, lambda dyn: dyn.insert(*rows(5))),
    "one id": (Ids.admit, lambda dyn: dyn.insert(ROW, 1)),
    "forget ids": (Ids.forget, lambda dyn: dyn.delete([3, 4])),
    "forget one id": (Ids.forget, lambda dyn: dyn.delete(3)),
}


@contextmanager
def interrupting(method):
    """Interrupt the call of a method."""

    def interrupted(*given, **more):
        raise KeyboardInterrupt

    owner, name = vars(sys.modules[method.__module__])[method.__qualname__.split(".")[0]], method.__name__
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(owner, name, interrupted)
        with pytest.raises(KeyboardInterrupt):
            yield


def cut_short(cut, **settings):
    """Interrupt an operation in the middle."""
    method, act = CUTS[cut]
    dyn = live(**settings)
    dyn.coreset()
    with interrupting(method):
        act(dyn)
    return dyn


LATER = {
    "insert": lambda dyn: dyn.insert(ROW, 1),
    "insert many": lambda dyn: dyn.insert(*rows(9)),
    "delete": lambda dyn: dyn.delete(7),
    "delete many": lambda dyn: dyn.delete([7, 8]),
    "update": lambda dyn: dyn.update(7, ROW),
    "update many": lambda dyn: dyn.update([7, 8], [ROW, ROW]),
    "set_outliers": lambda dyn: dyn.set_outliers(3),
    "reanchor": lambda dyn: dyn.reanchor(),
    "points": lambda dyn: dyn.points(),
    "coreset": lambda dyn: dyn.coreset(),
    "fit": lambda dyn: dyn.fit(),
    "merge": lambda dyn: dyn.merge(live(5, ids=np.arange(5000, 5005), anchor=dyn.anchor)),
    "be merged": lambda dyn: live(5, ids=np.arange(5000, 5005), anchor=dyn.anchor).merge(dyn),
    "check": lambda dyn: dyn.check_invariants(),
}


@pytest.mark.parametrize("cut", ["one", "ids", "forget one id"])
@pytest.mark.parametrize("later", LATER)
@every_engine
def test_after_an_operation_cut_short_every_other_says_so(engine, later, cut):
    dyn = cut_short(cut, engine=engine)
    with pytest.raises(RuntimeError, match=r"was interrupted halfway.*build it again"):
        LATER[later](dyn)


@pytest.mark.parametrize("cut", CUTS)
def test_any_operation_can_be_cut_short(cut):
    dyn = cut_short(cut)
    with pytest.raises(RuntimeError, match="was interrupted halfway"):
        dyn.insert(ROW, 1)
    with pytest.raises(RuntimeError, match="was interrupted halfway"):
        pickle.loads(pickle.dumps(dyn)).points()


def test_a_first_insertion_cut_short_leaves_it_empty():
    dyn, anchor = live(0), live().anchor
    with interrupting(LiveCandidates.__init__):
        dyn.insert(*rows())
    assert len(dyn) == 0
    dyn.insert(*rows())
    np.testing.assert_array_equal(dyn.anchor.theta, anchor.theta)
    assert_same(dyn, live())


@every_engine
def test_a_new_anchor_cut_short_leaves_the_old_one(engine):
    dyn = live(engine=engine)
    before = snapshot(dyn)
    with interrupting(LiveCandidates.add):
        dyn.reanchor()
    assert snapshot(dyn) == before


@every_engine
def test_copies_are_whole_while_another_thread_writes(engine):
    dyn, stop = live(engine=engine), time.monotonic() + 0.8

    def write():
        number = 1000
        while time.monotonic() < stop:
            pair = [number, number + 1]
            dyn.insert(*rows(2, seed=number), ids=pair)
            dyn.insert(ROW, 1, 0.0, -number)  # one by one, and weighs nothing
            dyn.delete(-number)
            dyn.delete(pair if number % 4 else dyn.ids[:2])
            number += 2

    def read(duplicate):
        one = duplicate(dyn)
        one.check_invariants()
        ids = one.ids[one.ids >= 0]
        np.testing.assert_array_equal(ids[::2] + 1, ids[1::2])
        assert one.total_weight == len(ids) == one.coreset().n_points
        one.insert(ROW, 1)  # it has its own lock and state

    ways = (lambda one: pickle.loads(pickle.dumps(one)), copy.deepcopy, copy.copy)
    assert min(run_together(write, *(lambda way=way: read(way) for way in ways))) > 0
