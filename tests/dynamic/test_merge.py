"""Merging: summaries of disjoint data become what one machine would have had."""

import itertools

import numpy as np
import pandas as pd
import pytest

import duramen as dm
from duramen.coreset.view import SAMPLERS
from tests.coreset.cores import CityBlock
from tests.dynamic.model import LATE, ROW, assert_same, every_engine, live, refused, rows, snapshot

X, Y = rows()
HALF = LATE // 2


def part(first, stop, **settings):
    dyn = live(0, **settings)
    if stop > first:
        dyn.insert(X[first:stop], Y[first:stop], ids=np.arange(first, stop))
    return dyn


@pytest.mark.parametrize("sampler", [*SAMPLERS, "tree"])
@pytest.mark.parametrize("cuts", [[150], [10], [0], [100, 200, 250]], ids=str)
def test_parts_are_merged_into_what_one_machine_would_have(sampler, cuts):
    kind = {"engine": "tree"} if sampler == "tree" else {"sampler": sampler}
    whole, edges = live(**kind), [0, *cuts, LATE]
    parts = [part(*edge, anchor=whole.anchor, **kind) for edge in itertools.pairwise(edges)]
    for one in parts[1:]:
        before = snapshot(one)
        assert parts[0].merge(one) is parts[0]
        assert snapshot(one) == before
    assert_same(parts[0], whole)


def test_the_order_of_merging_and_past_points_do_not_matter():
    whole = live()
    one, other = part(0, HALF, anchor=whole.anchor), part(HALF, LATE, anchor=whole.anchor)
    gone = one.insert(*rows(30, seed=4), ids=np.arange(1000, 1030))
    one.delete(gone)
    assert_same(other.merge(one), whole)
    other.delete(np.arange(HALF))
    other.merge(one)
    assert_same(other, whole)


@every_engine
def test_weights_and_z_are_those_of_all(engine):
    anchor = live(engine=engine).anchor
    one, other = (live(0, anchor=anchor, engine=engine, n_outliers=0.1) for _ in range(2))
    one.insert(X[:HALF], Y[:HALF], np.full(HALF, 2.0))
    other.insert(X[HALF:], Y[HALF:], np.full(HALF, 0.5), np.arange(HALF, LATE))
    other.set_outliers(5)
    one.merge(other)
    assert one.total_weight == 2.5 * HALF
    assert one.n_outliers == pytest.approx(0.25 * HALF)
    assert one.coreset().total_weight == pytest.approx(2.5 * HALF)
    one.check_invariants()


@every_engine
def test_without_an_anchor_it_is_found_when_there_are_enough(engine):
    one, other = part(0, 20, engine=engine), part(20, 40, engine=engine)
    one.merge(other)
    assert one.anchor is None
    assert_same(one, part(0, 40, engine=engine))
    one.merge(part(40, 80, engine=engine))
    whole = part(0, 80, engine=engine)
    assert one.anchor is not None
    np.testing.assert_array_equal(one.anchor.theta, whole.anchor.theta)
    assert_same(one, whole)
    anchor = one.anchor
    one.merge(part(80, 100, engine=engine))  # which has none yet
    assert one.anchor is anchor
    assert_same(one, part(0, 100, engine=engine, anchor=anchor))


@every_engine
def test_empty_ones(engine):
    full, empty = live(engine=engine), live(0, engine=engine)
    before = snapshot(full)
    full.merge(empty)
    full.merge(live(0, engine=engine).merge(live(0, engine=engine)))
    emptied = part(1000, 1000, engine=engine)
    emptied.insert(ROW, 1)
    emptied.delete(0)
    full.merge(emptied)
    assert snapshot(full) == before
    empty.merge(full)
    assert_same(empty, full)
    np.testing.assert_array_equal(empty.anchor.theta, full.anchor.theta)
    assert snapshot(full) == before


def unfit():
    anchored = live()
    anchor, hinge = anchored.anchor, dm.DynamicCoreset(dm.SmoothHingeLoss(), 40, random_state=0)
    plain = dm.DynamicCoreset(dm.LogisticLoss(fit_intercept=False), 40, random_state=0)
    elsewhere = part(HALF, LATE, anchor=dm.Anchor(np.ones(4), 1.0), sampler="uniform")
    yield "itself", anchored, anchored, "id 0 of row 0 is here already"
    yield "loss", live(40), hinge, "LogisticLoss.*SmoothHingeLoss"
    yield "intercept", live(40), plain, "cannot be merged"
    yield (
        "seed",
        live(40),
        live(40, random_state=1),
        "one with seed .* and one with seed .* cannot be merged.*the same random_state",
    )
    yield "anchor", part(0, HALF, anchor=anchor), elsewhere, r"anchors differ; other.reanchor\(this.anchor\)"
    apart = [dm.DynamicCoreset(dm.ContaminatedLoss(), 40, random_state=0) for _ in range(2)]
    apart[0].insert(X[:HALF], Y[:HALF])
    far = apart[0].anchor.freeze(distance=2 * apart[0].anchor.frozen["distance"])  # all else is the same
    apart[1].insert(X[HALF:], Y[HALF:], ids=np.arange(HALF, LATE))
    apart[1].reanchor(far)
    yield "distance", *apart, r"anchors differ; other.reanchor\(this.anchor\)"
    yield "base", apart[0], dm.DynamicCoreset(dm.LogisticLoss(), 40, random_state=0), "cannot be merged"
    yield "ids", part(0, 20), part(19, 30), "id 19 of row 0 is here already"
    yield (
        "late ids",
        part(0, 200, anchor=anchor),
        part(150, LATE, anchor=anchor),
        "id 150 of row 0 is here already",
    )
    wide = live(0)
    wide.insert(rows(20, d=5)[0], Y[:20], ids=np.arange(100, 120))
    yield "width", live(40), wide, "X has 5 columns; the rows here have 3"
    zeros = live(0)
    zeros.insert(X[:20], Y[:20] > 0, ids=np.arange(100, 120))
    yield "labels", live(40), zeros, "0.*1.*-1"
    named = [live(0), live(0)]
    for dyn, columns, first in zip(named, ("abc", "xyz"), (0, 20), strict=True):
        dyn.insert(pd.DataFrame(X[:20], columns=list(columns)), Y[:20], ids=np.arange(first, first + 20))
    yield "columns", *named, "columns 'x', 'y', 'z'; the rows here have 'a', 'b', 'c'"


REFUSED = [
    *("itself", "loss", "intercept", "seed", "anchor", "distance", "base"),
    *("ids", "late ids", "width", "labels", "columns"),
]


@pytest.mark.parametrize("number", range(len(REFUSED)), ids=REFUSED)
def test_what_does_not_fit_is_refused_and_changes_nothing(number):
    name, one, other, message = list(unfit())[number]
    assert name == REFUSED[number]
    with refused(one, ValueError, message, other):
        one.merge(other)


def test_other_things_cannot_be_merged():
    dyn = live(40)
    for other in (None, dm.points(X), dyn.coreset(), "dyn"):
        with pytest.raises(TypeError, match=f"merge takes a DynamicCoreset; found {type(other).__name__}"):
            dyn.merge(other)


def test_other_anchors_can_be_made_the_same():
    one, other = part(0, HALF), part(HALF, LATE)
    with pytest.raises(ValueError, match="the anchors differ"):
        one.merge(other)
    other.reanchor(one.anchor)
    assert_same(one.merge(other), live(anchor=one.anchor))


@every_engine
def test_custom_losses(engine):
    settings = {"size": 40, "random_state": 0, "engine": engine, "sampler": "uniform"}
    settings["anchor"] = dm.Anchor(np.zeros(3), 1.0)
    loss = CityBlock()
    one, other, whole, foreign = (
        dm.DynamicCoreset(mine, **settings) for mine in (loss, loss, loss, CityBlock())
    )
    one.insert(X[:HALF])
    other.insert(X[HALF:], ids=np.arange(HALF, LATE))
    whole.insert(X)
    assert_same(one.merge(other), whole)
    foreign.insert(ROW, ids=1000)
    with pytest.raises(ValueError, match=r"CityBlock.*cannot be merged"):
        one.merge(foreign)
