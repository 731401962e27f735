"""LossTable L: the edge is where sorting puts it, after every change; and so in the dynamic coreset itself."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import duramen as dm
from duramen.dynamic.rows import Slots
from duramen.dynamic.table import LossTable
from tests.dynamic.model import (
    suspected_by_sorting,
    suspects_of,
)

EPS = np.finfo(float).eps


class Bench:
    """A table with its slots, and the losses of the points that are here in a dict of ids."""

    def __init__(self, chunk=8):
        self.slots = Slots(1, np.float64, False)
        self.table = LossTable(self.slots)
        self.slots.index._chunk = self.table.order._chunk = chunk
        self.losses: dict[int, float] = {}
        self.next_id = 0
        self.sides: dict[int, bool] = {}  # as returned by add, remove and settle

    def put(self, rng, losses, weights, together):
        n = len(losses)
        ids = self.next_id + rng.permutation(n)
        self.next_id += n
        found = self.slots.add_many(np.zeros((n, 1)), None, weights, ids)
        if together:
            heavy = found[self.slots.weights[found] > 0]
            self.table.add_many(heavy, losses[self.slots.weights[found] > 0])
            for slot, side in zip(heavy, self.table.are_suspected(heavy), strict=True):
                self.sides[int(self.slots.ids[slot])] = bool(side)
        else:
            for slot, loss in zip(found.tolist(), losses.tolist(), strict=True):
                if self.slots.weights[slot] > 0:
                    self.sides[int(self.slots.ids[slot])] = self.table.add(slot, loss)
        self.losses.update(zip(ids.tolist(), losses.tolist(), strict=True))

    def drop(self, ids, together):
        slots = self.slots.index.find_many(ids)
        heavy = slots[self.slots.weights[slots] > 0]
        if together:
            self.table.remove_many(heavy)
        else:
            for slot in heavy.tolist():
                assert self.table.remove(slot) == self.sides[int(self.slots.ids[slot])]
        self.slots.remove_many(slots)
        for name in ids.tolist():
            del self.losses[name]
            self.sides.pop(name, None)

    def settle(self, weight):
        moves = self.table.settle(weight)
        if moves is not None:
            assert len(moves.slots)
            for slot in moves.slots.tolist():
                name = int(self.slots.ids[slot])
                assert self.sides[name] is not moves.suspected, "it changed sides, and was there already"
                self.sides[name] = moves.suspected
        self.table.check(weight)

    def assert_split(self, weight):
        ids = np.array(sorted(self.losses), dtype=np.int64)
        slots = self.slots.index.find_many(ids)
        losses, weights = np.array([self.losses[int(i)] for i in ids]), self.slots.weights[slots]
        expected, held = [], 0.0
        for row in np.lexsort((ids, losses))[::-1]:
            if weights[row] > 0 and held < weight * (1 - 64 * EPS):
                expected.append(row)
                held += weights[row]
        named = set(ids[expected].tolist())
        assert {name for name, side in self.sides.items() if side} == named
        assert (
            self.table.n_suspected
            == len(named)
            == np.count_nonzero(self.table.are_suspected(slots[weights > 0]))
        )
        assert self.table.outer.value == pytest.approx(held, rel=1e-12)
        assert self.table.threshold == min((losses[row] for row in expected), default=np.inf)
        assert len(self.table) == np.count_nonzero(weights)


LOSSES = {
    "equal": lambda rng, n: np.full(n, 2.5),
    "whole": lambda rng, n: rng.integers(0, 4, size=n).astype(float),
    "real": lambda rng, n: rng.exponential(size=n),
    "extreme": lambda rng, n: rng.choice([0.0, 1.0, 1e300, np.inf], size=n),
}
WEIGHTS = {
    "ones": lambda rng, n: np.ones(n),
    "tenths": lambda rng, n: rng.integers(0, 5, size=n) / 10,
    "real": lambda rng, n: rng.exponential(size=n),
    "wild": lambda rng, n: 10.0 ** rng.uniform(-6, 6, size=n),
}


@pytest.mark.parametrize("kind", LOSSES)
@pytest.mark.parametrize("heavy", WEIGHTS)
@pytest.mark.parametrize("chunk", [32, 1000])
def test_the_edge_is_where_sorting_puts_it(kind, heavy, chunk):
    rng = np.random.default_rng([len(kind), len(heavy), chunk])
    bench = Bench(chunk)
    weight = 0.0
    for _ in range(80):
        what = rng.integers(3)
        together = bool(rng.integers(2))
        if what == 0 or len(bench.losses) < 3:
            n = int(rng.integers(1, 30))
            bench.put(rng, LOSSES[kind](rng, n), WEIGHTS[heavy](rng, n), together)
        elif what == 1:
            few = int(rng.integers(1, 1 + min(25, len(bench.losses))))
            bench.drop(rng.choice(sorted(bench.losses), size=few, replace=False), together)
        else:
            total = bench.slots.weights[bench.slots.in_use()].sum()
            weight = float(rng.choice([0.0, 0.01, 0.3, 0.9, 1.0, 1.3]) * total)
            if rng.random() < 0.5:
                weight = round(weight, 1)
        bench.settle(weight)
        bench.assert_split(weight)


def test_the_last_place_of_all_can_be_suspected():
    """Nothing lies above an infinite loss and the largest id, but for that point itself."""
    bench = Bench()
    bench.next_id = np.iinfo(np.int64).max - 2
    bench.put(np.random.default_rng(0), np.full(3, np.inf), np.ones(3), together=True)
    for weight in (1.0, 3.0, 2.0, 0.0, 2.0):
        bench.settle(weight)
        bench.assert_split(weight)
    bench.drop(np.array([np.iinfo(np.int64).max]), together=False)
    bench.settle(1.0)
    bench.assert_split(1.0)


@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(1, 30)), min_size=1, max_size=40),
    st.lists(st.integers(0, 1300), min_size=1, max_size=6),
)
def test_settling_depends_on_the_weight_alone(points, weights):
    """By whatever way the edge came there: tenths of weight, which add up with rounding."""
    losses, heavy = (np.array(column, dtype=float) for column in zip(*points, strict=True))
    bench = Bench()
    bench.put(np.random.default_rng(0), losses, heavy / 10, together=True)
    for weight in weights:
        bench.settle(weight / 10)
        bench.assert_split(weight / 10)


@pytest.mark.parametrize("suspects", [0, 1, 1.5, 3])
@pytest.mark.parametrize("whole", [True, False], ids=["ones", "real"])
@pytest.mark.parametrize("scale", [0, 1, 3], ids=["all equal", "few", "some"])
def test_a_dynamic_coreset_suspects_the_points_that_sorting_gives(suspects, whole, scale):
    """k-means on whole numbers: losses tie by the dozen."""
    rng = np.random.default_rng(3)
    loss = dm.KMeansLoss(1)
    anchor = dm.Anchor(np.zeros((1, 2)), 0.1)
    dyn = dm.DynamicCoreset(
        loss, size=30, suspects=suspects, sampler="uniform", anchor=anchor, random_state=0
    )
    here: list[int] = []
    for step in range(60):
        what = rng.integers(5)
        if what == 0 or len(here) < 20:
            n = int(rng.choice([1, 2, 30]))
            X = rng.integers(-scale, scale + 1, size=(n, 2)).astype(float)
            here += dyn.insert(X, sample_weight=None if whole else rng.exponential(size=n)).tolist()
        elif what == 1:
            gone = rng.choice(here, size=int(rng.choice([1, 2, 15])), replace=False)
            dyn.delete(gone)
            here = [name for name in here if name not in set(gone.tolist())]
        elif what == 2:
            ids = rng.choice(here, size=int(rng.choice([1, 2, 15])), replace=False)
            dyn.update(ids, rng.integers(-scale, scale + 1, size=(len(ids), 2)).astype(float))
        else:
            share = float(rng.choice([0, 0.01, 0.1, 0.5, 0.8, 0.99]))
            z = share if step % 2 else np.floor(share * dyn.total_weight)
            dyn.set_outliers(float(z) if z < dyn.total_weight else 0.0)
        if dyn.anchor is None:
            continue
        points = dyn.points()
        losses = loss.values(anchor.theta, points.X)
        expected = suspected_by_sorting(losses, points.ids, points.weights, dyn.n_outliers, suspects)
        assert suspects_of(dyn) == expected
        assert dyn.n_suspected == len(expected)
        cut = losses[np.isin(points.ids, sorted(expected))]
        assert dyn.threshold == cut.min(initial=np.inf)
        dyn.check_invariants()


def test_light_points_behind_one_that_outweighs_rounding():
    """Where 64 units of rounding of z weigh more than points do, both must decide alike about them."""
    X, weights = np.arange(30.0)[::-1, None].copy(), np.ones(30)
    weights[0] = 1e15
    settings = {"loss": dm.KMeansLoss(1), "size": 20, "sampler": "uniform", "suspects": 1, "random_state": 0}
    settings |= {"n_outliers": 1e15 + 5, "anchor": dm.Anchor([[0.0]], 1.0)}
    dyn = dm.DynamicCoreset(**settings)
    dyn.insert(X, sample_weight=weights)
    anew = dm.robust_coreset(X, sample_weight=weights, **settings)
    assert dyn.n_suspected == anew.n_suspected


# every corruption is seen


def other_loss(bench):
    slot = bench.table.order.slots()[4]
    bench.table.losses[slot] -= 1e-3


def one_less(bench):
    slot = int(bench.table.order.slots()[2])
    bench.table.order.remove(bench.table.losses[slot], int(bench.slots.ids[slot]))


def no_edge(bench):
    bench.table.edge = (np.inf, 2**63)
    bench.table.n_suspected = 0


def edge_between(bench):
    loss, name = bench.table.edge
    bench.table.edge = (loss - 1e-9, name)


def edge_moved(bench):
    below = next(bench.table.order.down_from(*bench.table.edge))
    bench.table._set_edge(int(below[0]))


def miscounted(bench):
    bench.table.n_suspected += 1


def outweighed(bench):
    bench.table.outer.add(0.5)


def light_edge(bench):
    bench.table._edge_weight *= 2


CORRUPTIONS = [
    (other_loss, "1"),
    (one_less, "1"),
    (no_edge, "3"),
    (edge_between, "2"),
    (edge_moved, "3"),
    (miscounted, "3"),
    (outweighed, "3"),
    (light_edge, "2"),
]


def settled():
    bench, rng = Bench(), np.random.default_rng(0)
    bench.put(rng, rng.exponential(size=40), np.ones(40), together=True)
    bench.settle(10.0)
    return bench


@pytest.mark.parametrize("how, number", CORRUPTIONS, ids=lambda value: getattr(value, "__name__", None))
def test_a_corruption_is_named(how, number):
    bench = settled()
    how(bench)
    with pytest.raises(AssertionError, match=f"^{number}: "):
        bench.table.check(10.0)


def test_too_much_and_too_little_are_seen():
    for weight, words in ((11.0, "4: too little"), (9.0, "4: too much")):
        with pytest.raises(AssertionError, match=words):
            settled().table.check(weight)
