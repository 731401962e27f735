"""What a review found broken, and must not break again."""

import copy
import pickle
import time
import uuid

import numpy as np
import pandas as pd
import pytest

import duramen as dm
from duramen.dynamic import state
from duramen.dynamic.anchoring import same_anchor
from duramen.dynamic.ids import Ids
from tests.dynamic.model import assert_law
from tests.dynamic.test_reading import LATE, ROW, assert_same, every_engine, everywhere, live, rows, snapshot
from tests.dynamic.test_threads import run_together
from tests.support import quietly

LOGISTIC = dm.LogisticLoss()
SETTINGS = {"loss": LOGISTIC, "size": 40, "random_state": 0}
UUIDS = [uuid.UUID(int=number) for number in range(LATE)]
NAMES = [f"p{number}" for number in range(LATE)]


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
        one.insert(ROW, 1)  # it has a lock, and a life, of its own

    ways = (lambda one: pickle.loads(pickle.dumps(one)), copy.deepcopy, copy.copy)
    assert min(run_together(write, *(lambda way=way: read(way) for way in ways))) > 0


INTERRUPTED = [
    ("admit", lambda dyn: dyn.insert(*rows(5), ids=NAMES[:5])),
    ("admit_one", lambda dyn: dyn.insert(ROW, 1, ids="p0")),
    ("forget", lambda dyn: dyn.delete(NAMES[20:25])),
    ("forget", lambda dyn: dyn.delete("p20")),
]


def assert_interrupted(patch, method, act, dyn, *later):
    """Cut an operation short in the ids, and see that none of the later ones goes on from there."""
    with patch.context() as patched:
        patched.setattr(Ids, method, lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            act(dyn)
    for then in later:
        with pytest.raises(RuntimeError, match="was interrupted halfway"):
            then()


@pytest.mark.parametrize(("method", "act"), INTERRUPTED)
@every_engine
def test_after_an_interrupt_nothing_is_relied_on(method, act, engine, monkeypatch):
    dyn, other = (live(0, engine=engine, anchor=live(engine=engine).anchor) for _ in range(2))
    X, y = rows()
    dyn.insert(X[10:], y[10:], ids=NAMES[10:])
    dyn.coreset()
    assert_interrupted(
        *(monkeypatch, method, act, dyn),
        *(dyn.coreset, dyn.fit, dyn.points, dyn.reanchor, dyn.check_invariants),
        *(lambda: dyn.insert(ROW, 1, ids="new"), lambda: dyn.insert(X[:2], y[:2], ids=["new", "newer"])),
        *(lambda: dyn.update("p50", ROW), lambda: dyn.update(["p50", "p51"], X[:2])),
        *(lambda: dyn.delete("p50"), lambda: dyn.delete(["p50", "p51"])),
        *(lambda: dyn.set_outliers(3), lambda: dyn.names_of("p50"), lambda: other.merge(dyn)),
    )


@pytest.mark.parametrize(("method", "n"), [("admit", 5), ("admit_one", 1)])
def test_ids_are_never_given_twice(method, n, monkeypatch):
    dyn, (X, y) = live(), rows(5)
    later = (lambda: dyn.insert(ROW, 1), lambda: dyn.insert(X, y))
    assert_interrupted(monkeypatch, method, lambda dyn: dyn.insert(X[:n], y[:n]), dyn, *later)


WHOLE = np.array([2.0, -1.0, 3.0])
TABLE = np.asfortranarray(np.vstack([ROW, WHOLE, ROW]))
FORMS = {
    "vector": (WHOLE, 1, 2.0, 700),
    "matrix": (WHOLE[None], np.array([1]), np.array([2.0]), np.array([700])),
    "list": (WHOLE.tolist(), [1], [2], [700]),
    "tuple": (tuple(WHOLE.tolist()), 1.0, 2, (700,)),
    "list of ints": ([2, -1, 3], np.int8(1), np.float32(2), np.uint16(700)),
    "ints": (WHOLE.astype(int), np.array([1.0]), np.float32(2), np.array(700)),
    "float32": (WHOLE.astype(np.float32), np.float32(1), np.int64(2), np.array([700], dtype=np.int16)),
    "row of Fortran": (TABLE[1], 1, 2.0, 700),
    "rows of Fortran": (TABLE[1:2], 1, 2.0, 700),
    "column of Fortran": (np.asfortranarray(TABLE.T)[:, 1], 1, 2.0, 700),
}


@pytest.mark.parametrize("form", FORMS)
@everywhere
def test_one_row_of_any_form_is_a_batch_of_one(form, n, engine):
    dyn, plain = live(n, engine=engine), live(n, engine=engine)
    twice, (X, y, weight, name) = np.vstack([WHOLE, ROW]), FORMS[form]
    assert dyn.insert(X, y, weight, name).tolist() == [700]
    assert dyn.insert(ROW, 1).tolist() == [701]
    plain.insert(twice, [1, 1], [2.0, 1.0], [700, 701])
    dyn.update(3, X, y, weight)
    dyn.update(name, ROW)
    plain.update([3, 700], twice, [1, 1], [2.0, 2.0])
    assert_same(dyn, plain)
    dyn.delete(name)


@pytest.mark.parametrize("names", [None, NAMES, UUIDS], ids=["numbers", "strings", "UUIDs"])
@everywhere
def test_points_are_found_by_any_collection(names, n, engine):
    names = list(range(n)) if names is None else names[:n]
    dyn, plain = (live(n, engine=engine, ids=names) for _ in range(2))
    assert len(dyn.points(set(names[:9]))) == len(dyn.points(iter(names[:9]))) == 9
    few = ({names[3]}, frozenset(names[4:6]), (name for name in names[6:9]))
    for gone in (*few, np.array([names[9]]), [names[10]], names[11], set()):
        dyn.delete(gone)
    plain.delete(names[3:12])
    for given in (names[3], [names[4]], np.array([names[5]])):
        dyn.insert(ROW, 1, ids=given)
    plain.insert(np.array([ROW] * 3), np.ones(3), ids=names[3:6])
    if engine == "ranked":
        assert_same(dyn, plain)
    dyn.delete(names[3])
    before = snapshot(dyn)
    for gone in ({names[3]}, iter([names[0], names[3]]), [names[3]], np.array([names[3]]), names[3]):
        with pytest.raises(KeyError, match="is not here"):
            dyn.delete(gone)
    for ids in ({"a", "b"}, {900, 901}, frozenset({900, 901})):  # whose rows would be anyone's
        with pytest.raises((TypeError, ValueError), match="ids"):
            dyn.insert(*rows(2), ids=ids)
    assert snapshot(dyn) == before


@everywhere
def test_a_label_or_a_weight_alone_can_be_corrected(n, engine):
    dyn, plain = (live(n, engine=engine, ids=NAMES[:n]) for _ in range(2))
    X, y = rows(n)
    dyn.update("p7", y=-y[7])
    dyn.update(["p9", "p4"], y=[-y[9], -y[4]])
    dyn.update("p8", sample_weight=3.0)
    dyn.update(["p9", "p5"], sample_weight=[2.0, 4.0])
    dyn.update(["p1", "p2"], sample_weight=0.5)
    signs, weights = [1, 1, -1, 1, -1, 1, -1], [0.5, 0.5, 1, 4, 1, 3, 2]
    for row, sign, weight in zip((1, 2, 4, 5, 7, 8, 9), signs, weights, strict=True):
        plain.update(NAMES[row], X[row], sign * y[row], weight)
    assert_same(dyn, plain)
    assert sorted(dyn.names_of(dyn.ids)) == sorted(NAMES[:n])
    with pytest.raises(ValueError, match="7"):
        dyn.update("p7", y=7)
    assert_same(dyn, plain)


@pytest.mark.parametrize("way", ["batch", "one by one"])
@pytest.mark.parametrize("anchored", [True, False])
def test_memory_of_points_that_are_gone_is_given_back(way, anchored, monkeypatch):
    monkeypatch.setattr(state, "_SMALL", 128)
    n = 3000 if way == "batch" else 1500
    dyn = live(0, size=40 if anchored else n)
    dyn.insert(*rows(n))
    if anchored:
        dyn.update(5, ROW)  # of the sample; and changed since
    extent, nbytes, made_of = dyn._state.slots.extent, dyn.nbytes, dyn.anchor_report().n_sample
    kept = np.arange(5, n, 50)
    gone = np.setdiff1d(np.arange(n), kept)
    dyn.delete(gone) if way == "batch" else [dyn.delete(one) for one in gone.tolist()]
    dyn.check_invariants()
    assert dyn._state.slots.extent <= 128 < extent / 10
    assert dyn.nbytes < nbytes / 4
    assert_law(dyn, SETTINGS, 0.05)
    if anchored:
        report = dyn.anchor_report()
        assert (report.n_points, report.n_sample) == (len(kept), made_of)
        assert report.n_late == 1 + np.count_nonzero(kept >= made_of)
        assert report.n_sample_gone == made_of - np.count_nonzero((kept < made_of) & (kept != 5))
    assert dyn.insert(*rows(200, seed=1))[0] == n
    assert_law(dyn, SETTINGS, 0.05)


def test_merging_keeps_ids_apart_and_takes_the_anchor():
    one, other, (X, y) = live(0), live(0), rows()
    other.insert(X[30:], y[30:], ids=np.arange(30, LATE))
    other.insert(ROW, 1, ids=999)
    other.delete(999)
    one.insert(X[:31], y[:31])
    kept = snapshot(one), snapshot(other)
    with pytest.raises(ValueError, match="id 30 is in both"):
        one.merge(other)
    assert (snapshot(one), snapshot(other)) == kept
    one.delete(30)
    assert (one.anchor, one.merge(other)) == (None, one)
    assert_same(one, live(anchor=other.anchor))
    assert_law(one, SETTINGS, 0.05)
    assert one.insert(ROW, 1).tolist() == [1000]
    other.delete(other.ids)
    assert live(0).merge(other).insert(ROW, 1).tolist() == [1000]


def as_good(dyn, loss):
    core, found = dyn.coreset(), quietly(dyn.fit)
    fresh = dm.solve(core.points, loss, n_outliers=core.n_outliers, random_state=0)
    assert found.objective <= 1.05 * fresh.objective


@every_engine
def test_a_solution_of_other_data_does_not_mislead(engine):
    rng, loss = np.random.default_rng(0), dm.KMeansLoss(4)
    centres = rng.normal(size=(2, 4, 2)) * 30
    old, new = (each[rng.integers(4, size=1200)] + rng.normal(size=(1200, 2)) for each in centres)
    dyn = dm.DynamicCoreset(loss, size=200, n_outliers=0.02, random_state=0, engine=engine)
    ids = dyn.insert(old)
    quietly(dyn.fit)
    for part in np.array_split(np.arange(1200), 3):
        dyn.insert(new[part])
        dyn.delete(ids[part])
        as_good(dyn, loss)


@every_engine
def test_a_solution_for_fewer_outliers_does_not_mislead(engine):
    X, y = rows(3000)
    X[:240], y[:240] = [-40.0, 3.0, 3.0], 1
    dyn = live(0, size=300, n_outliers=0, engine=engine)
    dyn.insert(X, y)
    quietly(dyn.fit)
    dyn.set_outliers(0.1)
    as_good(dyn, LOGISTIC)


@everywhere
def test_weights_too_far_apart_are_refused(n, engine):
    dyn = live(n, engine=engine)
    before, (X, y), apart = snapshot(dyn), rows(2), [1.0, 1e61]
    for act in (
        *(lambda weight=weight: dyn.insert(ROW, 1, weight) for weight in (1e-61, 1e61)),
        *(lambda weight=weight: dyn.update(3, sample_weight=weight) for weight in (1e-61, 1e61)),
        *(lambda: dyn.insert(X, y, apart), lambda: dyn.update([3, 4], sample_weight=apart)),
    ):
        with pytest.raises(ValueError, match="differ by more than 60 decades"):
            act()
        assert snapshot(dyn) == before
    dyn.delete(dyn.ids)
    dyn.insert(X, y, [1e-70, 1e-75])
    dyn.check_invariants()


class Odd(dm.RankedSampler):
    """Strata that are no numbers to us, where the first column is large."""

    def __init__(self, odd):
        self.odd = odd

    def scores(self, seen):
        return np.ones(len(seen))

    def strata(self, seen):
        plain = np.zeros(len(seen), dtype=np.asarray(self.odd).dtype)
        return np.where(seen.points.X[:, 0] > 9, self.odd, plain)


@pytest.mark.parametrize(("odd", "found"), [(np.uint64(2**63), f"stratum {2**63}"), ("north", "type <U5")])
def test_strata_that_are_no_int64_are_refused(odd, found):
    dyn, far, (X, y) = live(0, sampler=Odd(odd), anchor=live().anchor), [99.0, 0.0, 0.0], rows()
    acts = [lambda: dyn.insert(far, 1), lambda: dyn.insert([*X.tolist(), far], [*y, 1])]
    if not isinstance(odd, str):
        dyn.insert(X, y)
        acts += [lambda: dyn.update(3, far), lambda: dyn.update([3, 4], [ROW, far])]
    count = len(dyn)
    for act in acts:
        with pytest.raises(ValueError, match=found):
            act()
        dyn.check_invariants()
        assert len(dyn) == count


def test_weights_refused_with_their_rows_leave_no_trace():
    dyn = live(0, sampler=Odd(np.uint64(2**63)), anchor=live().anchor)
    dyn.insert(*rows())
    with pytest.raises(ValueError, match="stratum"):
        dyn.insert([[99.0, 0.0, 0.0], ROW], [1, 1], 1e-40)
    dyn.delete(0)
    dyn.insert(ROW, 1, 1e30)


def test_a_row_of_a_frame_has_its_columns_in_order():
    dyn, (X, y) = live(0, anchor=live().anchor), rows()
    frame = pd.DataFrame(X, columns=list("abc"))
    dyn.insert(frame, y)
    before, row = snapshot(dyn), frame.loc[7]
    for wrong in (row[["b", "a", "c"]], row.rename({"a": "x"})):
        for act in (lambda row=wrong: dyn.insert(row, 1), lambda row=wrong: dyn.update(3, row)):
            with pytest.raises(ValueError, match="the rows here have a, b, c, in this order"):
                act()
    assert snapshot(dyn) == before
    dyn.insert(row, y[7])
    dyn.update(3, row)
    assert dyn.points([3, LATE]).X.tolist() == X[[7, 7]].tolist()


@every_engine
def test_it_says_what_it_takes(engine):
    dyn, other, (X, y) = live(engine=engine), live(engine=engine, anchor=None), rows()
    before = snapshot(dyn)
    with pytest.raises(TypeError, match=r"fit takes no 'l1'; its settings are .*l2"):
        dyn.fit(l1=3)
    with pytest.raises(AttributeError):
        dyn.size = 5
    for one in (dyn, live(0)):
        with pytest.raises(TypeError, match=r"pass the parts of points: points\.X"):
            one.insert(dm.points(X, y))
    assert snapshot(dyn) == before
    dyn.insert(X, y, 2.5)
    assert dyn.total_weight == 3.5 * LATE
    for given in (other, live(size=50, engine=engine, n_outliers=0.1).coreset()):
        dyn.reanchor(given)
        assert same_anchor(dyn.anchor, given.anchor)
        dyn.check_invariants()


@pytest.mark.parametrize("single", [True, False])
def test_what_was_far_larger_leaves_no_rounding(single):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 2))
    settings = {"loss": dm.SquaredLoss(), "size": 60, "random_state": 0}
    dyn = dm.DynamicCoreset(n_outliers=0.01, anchor=dm.Anchor([1.0, 0.0, 0.0], 0.5), **settings)
    dyn.insert(X, X[:, 0] + rng.normal(size=400))
    dyn.coreset()
    huge = 1e16 * (1 + rng.random(20))
    if single:
        for label in huge:
            dyn.delete(dyn.insert(X[0], label))
    ids = dyn.insert(X[:20], huge)
    dyn.coreset()
    dyn.delete(ids)
    dyn.check_invariants()
    assert assert_law(dyn, settings, 0.01).calibrated


@every_engine
def test_truth_discovery_is_solved_and_reported_on(engine):
    X = np.random.default_rng(0).normal(size=(400, 3)) * 0.3 + 50 * (np.arange(400) < 20)[:, None]
    dyn = dm.DynamicCoreset(dm.TruthDiscoveryLoss(), size=80, n_outliers=0.05, random_state=0, engine=engine)
    ids = dyn.insert(X)
    assert np.abs(quietly(dyn.fit).theta).max() < 0.3
    assert dyn.anchor_report().distance >= 0
    dyn.delete(ids[:200])
    assert quietly(dyn.fit).n_outliers == 10
    assert dyn.anchor_report().n_points == 200


def test_a_tree_seen_anew_is_one_fed_in_the_order_of_ids():
    dyn = live(engine="tree", n_outliers=0.1, bucket_size=16)
    dyn.insert(*rows(100, seed=1), ids=-np.arange(1, 101))
    dyn.delete(np.arange(0, 200, 3))
    dyn.update([5, -5], [ROW, 9 * ROW])
    dyn.reanchor()
    points = dyn.points()
    fresh = live(0, engine="tree", n_outliers=0.1, bucket_size=16, anchor=dyn.anchor)
    fresh.insert(points.X, points.y, points.weights, points.ids)
    assert dyn.n_suspected > 0
    assert_same(dyn, fresh)
