"""Rows in every form that people have them, and what can be asked of a live coreset."""

import numpy as np
import pandas as pd
import polars as pl
import pytest

from duramen.dynamic import state
from tests.dynamic.model import (
    EARLY,
    LATE,
    NAMES,
    ROW,
    SETTINGS,
    assert_law,
    assert_same,
    every_engine,
    everywhere,
    live,
    refused,
    rows,
    snapshot,
)

# one row in every form

TABLE = np.asfortranarray(np.vstack([ROW, ROW + 1, ROW]))
FORMS = {
    "vector": (ROW, 1, 2),
    "list": (ROW.tolist(), [1], [2.0]),
    "tuple": (tuple(ROW), (1,), 2.0),
    "matrix": (ROW[None], np.int64(1), np.float32(2)),
    "rows": ([ROW.tolist()], 1.0, np.array(2.0)),
    "strided": (np.repeat(ROW, 2)[::2], np.array(1), np.int8(2)),
    "float32": (ROW.astype(np.float32), True, 2),
    "pandas Series": (pd.Series(ROW, index=list("abc")), pd.Series([1]), pd.Series([2.0])),
    "pandas frame": (pd.DataFrame([ROW], columns=list("abc")), 1, 2),
    "polars frame": (pl.DataFrame([ROW], schema=list("abc"), orient="row"), pl.Series([1]), 2),
    "integers": ([2, -1, 3], np.int8(1), np.float32(2)),
    "array of integers": (np.array([2, -1, 3]), np.array([1.0]), np.float32(2)),
    "row of Fortran": (TABLE[1], 1, 2.0),
    "rows of Fortran": (TABLE[1:2], 1, 2.0),
    "column of Fortran": (np.asfortranarray(TABLE.T)[:, 1], 1, 2.0),
}


@pytest.mark.parametrize("form", FORMS)
@everywhere
def test_one_row_of_any_form_is_a_batch_of_one(form, n, engine):
    dyn, plain = live(n, engine=engine), live(n, engine=engine)
    X, y, weight = FORMS[form]
    row = np.asarray(X, dtype=float).reshape(3)
    assert dyn.insert(X, y, weight).tolist() == [n]
    assert dyn.insert(ROW, 1).tolist() == [n + 1]
    plain.insert(np.vstack([row, ROW]), [1, 1], [2.0, 1.0])
    dyn.update(3, X, y, weight)
    dyn.update(n, ROW)
    plain.update([3, n], np.vstack([row, ROW]), [1, 1], [2.0, 2.0])
    assert_same(dyn, plain)
    point = dyn.points(3)
    assert (point.X.tolist(), point.y.tolist(), point.weights.tolist()) == ([row.tolist()], [1], [2])


@every_engine
def test_tables_of_float32_stay_so(engine):
    X, y = rows()
    dyn = live(0, engine=engine)
    dyn.insert(X.astype(np.float32), y)
    dyn.insert(ROW, 1)
    dyn.update(2, ROW.astype(np.float32))
    assert dyn.points().X.dtype == dyn.coreset().X.dtype == np.float32
    half = live(0, engine=engine)
    half.insert(X.astype(np.float32)[:150], y[:150])
    half.insert(X[150:], y[150:])  # which loses digits
    half.insert(ROW, 1)
    half.update(2, ROW)
    assert_same(dyn, half)
    with pytest.raises(ValueError, match="X as float32 has inf in row 1, column 0"):
        half.insert([[0, 0, 0], [1e300, 0, 0]], [1, 1])
    assert_same(dyn, half)


@everywhere
def test_numbers_whose_sum_overflows_are_numbers(engine, n):
    dyn, plain = live(n, engine=engine), live(n, engine=engine)
    huge = np.full(3, 1e308)
    dyn.insert(huge, 1)
    plain.insert(huge[None], [1])
    for one in (dyn, plain):
        one.check_invariants()
        np.testing.assert_array_equal(one.points(n).X, huge[None])


@everywhere
def test_empty_batches_do_nothing(n, engine):
    dyn = live(n, engine=engine)
    dyn.coreset()
    before = snapshot(dyn)
    for ids in (None, []):
        got = dyn.insert(np.empty((0, 3)), [], ids=ids)
        assert (got.shape, got.dtype) == ((0,), np.int64)
    dyn.delete([])
    dyn.delete(np.empty(0, dtype=int))
    dyn.update([], np.empty((0, 3)))
    dyn.update([], np.empty((0, 3)), [], [])
    assert len(dyn.points([])) == 0
    assert snapshot(dyn) == before


def test_an_empty_one_answers():
    dyn = live(0)
    assert (len(dyn), dyn.n_points, dyn.total_weight, dyn.n_outliers, dyn.n_suspected) == (0, 0, 0, 0, 0)
    assert (dyn.anchor, dyn.anchor_after, dyn.solution, dyn.nbytes) == (None, None, None, 0)
    assert dyn.threshold == np.inf
    assert dyn.ids.dtype == np.int64
    assert 0 not in dyn
    assert repr(dyn).endswith("on 0 points, weight 0\n  no anchor yet: the coreset is all points")
    dyn.insert(np.empty((0, 3)), [])
    dyn.delete([])
    live(0).update([], np.empty((0, 3)))
    dyn.check_invariants()
    for ask in (dyn.coreset, dyn.points, dyn.fit, dyn.reanchor, lambda: dyn.names_of([])):
        with pytest.raises(ValueError, match="there are no points here; insert some first"):
            ask()


# data frames


@pytest.mark.parametrize("make", [pd.DataFrame, pl.DataFrame])
@everywhere
def test_columns_keep_their_names(make, n, engine):
    X, y = rows(n)
    frame = make(dict(zip("abc", X.T, strict=True)))
    dyn = live(0, engine=engine)
    dyn.insert(frame, y)
    assert dyn.coreset().columns == ("a", "b", "c")
    assert_same(dyn, live(n, engine=engine))
    dyn.insert(frame[:1], 1)
    dyn.insert(ROW, 1)
    dyn.update([0], frame[1:2])
    assert dyn.coreset().columns == ("a", "b", "c")
    for other in ("acb", "abx"):
        wrong, words = make(dict(zip(other, X.T, strict=True))), str([*other])[1:-1]
        for change in (lambda w=wrong: dyn.insert(w, y), lambda w=wrong: dyn.update(range(n), w)):
            with refused(dyn, ValueError, f"X has the columns {words}; the rows here have 'a', 'b', 'c'"):
                change()


# questions


def test_membership_takes_any_id():
    dyn = live(EARLY)
    for one in (0, 29, np.int64(3), np.uint8(4), np.array(5)):
        assert one in dyn
    for none in (30, -1, 2**63, -(2**80), "ann", 1.0, True, None, np.nan, object()):
        assert none not in dyn
    dyn.delete(3)
    assert 3 not in dyn


@everywhere
def test_points_come_in_the_order_asked_for(n, engine):
    ids = np.random.default_rng(1).permutation(n) * 7 - 50
    X, y = rows(n)
    dyn = live(n, ids=ids, engine=engine)
    assert dyn.ids.tolist() == sorted(ids.tolist())
    order = np.argsort(ids)
    got = dyn.points()
    np.testing.assert_array_equal(got.ids, ids[order])
    np.testing.assert_array_equal(got.X, X[order])
    got = dyn.points(ids[[9, 2, 5]])
    assert got.ids.tolist() == ids[[9, 2, 5]].tolist()
    np.testing.assert_array_equal(got.X, X[[9, 2, 5]])
    np.testing.assert_array_equal(got.y, y[[9, 2, 5]])
    with pytest.raises(KeyError, match="have integer ids and no names"):
        dyn.names_of(ids[:2])


@every_engine
def test_the_repr(engine):
    dyn = live(EARLY, engine=engine)
    assert repr(dyn) == (
        "DynamicCoreset: LogisticLoss(fit_intercept=True) on 30 points x 3, weight 30\n"
        "  no anchor yet: the coreset is all points"
    )
    dyn = live(engine=engine, sampler="uniform")
    assert repr(dyn) == (
        "DynamicCoreset: LogisticLoss(fit_intercept=True) on 300 points x 3, weight 300\n"
        f"  size 40, {engine} by UniformSampler(); weight 15 may be set aside, 23 points are suspected"
    )
    core = dyn.coreset()
    assert (core.n_suspected, core.threshold, core.n_outliers) == (dyn.n_suspected, dyn.threshold, 15)
    assert dyn.coreset() is core
    assert dyn.engine == engine


@every_engine
def test_bytes_are_few_and_counted(engine):
    few, many = live(0, engine=engine), live(0, engine=engine)
    few.insert(*rows(2000))
    many.insert(*rows(6000))
    for dyn in (few, many):
        dyn.coreset()
    assert 20 < (many.nbytes - few.nbytes) / 4000 <= 96


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


def test_a_row_of_a_frame_has_its_columns_in_order():
    dyn, (X, y) = live(0, anchor=live().anchor), rows()
    frame = pd.DataFrame(X, columns=list("abc"))
    dyn.insert(frame, y)
    row = frame.loc[7]
    for wrong in (row[["b", "a", "c"]], row.rename({"a": "x"})):
        for act in (lambda row=wrong: dyn.insert(row, 1), lambda row=wrong: dyn.update(3, row)):
            with refused(dyn, ValueError, "the rows here have 'a', 'b', 'c', in this order"):
                act()
    dyn.insert(row, y[7])
    dyn.update(3, row)
    assert dyn.points([3, LATE]).X.tolist() == X[[7, 7]].tolist()
