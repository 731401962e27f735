"""The merge-and-reduce tree: its invariants after every step, and its laws."""

import copy

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

import duramen as dm
from duramen.dynamic.tree import Tree
from tests.support import Heaviest

ROOM = 400  # slots of the holder


class Table:
    """A holder of labelled rows in several clusters, with weights of which some are zero."""

    def __init__(self, room=ROOM, seed=0, zeros=True):
        rng = np.random.default_rng(seed)
        self.X = rng.normal(size=(room, 3)) + rng.choice([0.0, 8.0], size=(room, 1))
        self.y = rng.choice([-1.0, 1.0], size=room)
        self.weights = rng.exponential(size=room) + 0.1
        if zeros:
            self.weights[::7] = 0.0
        self.ids = rng.permutation(10 * room)[:room].astype(np.int64)

    def points(self, slots):
        assert len(slots)
        return dm.points(self.X[slots], self.y[slots], self.weights[slots], self.ids[slots])


ANCHOR = dm.Anchor([[0.0, 0.0, 0.0], [8.0, 8.0, 8.0]], radius=1.0)
SAMPLERS = {
    "uniform": dm.UniformSampler(),
    "layered": dm.LayeredSampler(),
    "leverage": dm.LeverageSampler(),
    "own": Heaviest(),
}


def bound(name="uniform"):
    return SAMPLERS[name].bind(dm.KMeansLoss(2), ANCHOR)


def grown(n=40, sampler=None, holder=None, **kind):
    """Make a tree of n points with all its nodes built."""
    tree = Tree(holder or Table(), sampler or bound(), 7, **({"node_size": 4, "bucket_size": 3} | kind))
    tree.add(np.arange(n))
    tree.choose(1)
    return tree


def state(tree):
    return tree.order.tolist(), tree.position.tolist(), tree.bucket_size, tree.measured


def assert_same_choice(one, two, size=5):
    for a, b in zip(one.choose(size), two.choose(size), strict=True):
        np.testing.assert_array_equal(a, b)


KINDS = st.one_of(
    st.builds(dict, bucket_size=st.integers(1, 6)), st.builds(dict, height=st.integers(1, 5)), st.just({})
)


class Comings(RuleBasedStateMachine):
    """Points come and go; the tree is compared with a list, and with a twin that works one point at a time."""

    @initialize(name=st.sampled_from(sorted(SAMPLERS)), node_size=st.integers(1, 5), kind=KINDS)
    def set_up(self, name, node_size, kind):
        self.table = Table()
        self.tree, self.twin = (Tree(self.table, bound(name), 3, node_size, **kind) for _ in range(2))
        self.node_size = node_size
        self.inside = []

    def absent(self, data, most):
        free = sorted(set(range(60)) - set(self.inside))
        return data.draw(st.lists(st.sampled_from(free), min_size=1, max_size=most, unique=True))

    def present(self, data, most):
        return data.draw(st.lists(st.sampled_from(self.inside), min_size=1, max_size=most, unique=True))

    @precondition(lambda self: len(self.inside) < 60)
    @rule(data=st.data(), most=st.sampled_from([1, 30]))
    def add(self, data, most):
        slots = self.absent(data, most)
        self.tree.add(np.array(slots))
        for slot in slots:
            self.twin.add(np.array([slot]))
        self.inside += slots

    @precondition(lambda self: self.inside)
    @rule(data=st.data(), most=st.sampled_from([1, 30]))
    def remove(self, data, most):
        slots = self.present(data, most)
        self.tree.remove(np.array(slots))
        for slot in slots:
            self.twin.remove(np.array([slot]))
        self.inside = [slot for slot in self.inside if slot not in slots]
        assert not any(np.isin(slots, node.slots).any() for node in self.tree._nodes.values())

    @rule(size=st.integers(1, 70))
    def choose(self, size):
        slots, weights = self.tree.choose(size)
        own = self.table.weights[self.inside]
        assert weights.sum() == pytest.approx(own.sum(), rel=1e-12)
        assert len(slots) == len(set(slots.tolist())) == len(weights) <= size
        assert set(slots.tolist()) <= set(self.inside)
        assert (weights > 0).all()
        if len(self.inside) <= size:
            assert len(slots) == np.count_nonzero(own)
            np.testing.assert_array_equal(weights, self.table.weights[slots])
        else:
            assert len(slots) <= self.node_size

    @rule(size=st.integers(1, 5))
    def choose_on_a_copy_without_nodes(self, size):
        """What is built lazily, here and there, is what building all of it now gives."""
        other = copy.copy(self.tree)
        other._nodes = {}
        assert_same_choice(self.tree, other, size)

    @invariant()
    def it_holds_what_came_and_did_not_go(self):
        if hasattr(self, "tree"):
            self.tree.check()
            assert state(self.tree) == state(self.twin)
            assert sorted(self.tree.order) == sorted(self.inside)
            assert len(self.tree) == len(self.inside)


TestComings = Comings.TestCase
TestComings.settings = settings(max_examples=20, stateful_step_count=25)


@pytest.mark.slow
class TestComingsLonger(Comings.TestCase):
    settings = settings(max_examples=60, stateful_step_count=25)


def test_the_seed_and_the_arrangement_decide():
    assert_same_choice(grown(), grown())
    other = Tree(Table(), bound(), 8, 4, bucket_size=3)
    other.add(np.arange(40))
    assert not np.array_equal(grown().choose(4)[0], other.choose(4)[0])


def test_an_empty_tree_chooses_nothing():
    tree = Tree(Table(), bound(), 0, 3)
    for _ in range(2):
        slots, weights = tree.choose(5)
        assert (slots.shape, slots.dtype.kind, weights.shape) == ((0,), "i", (0,))
        tree.check()
        tree.add(np.array([3]))
        tree.remove(np.array([3]))
    tree.add(np.empty(0, dtype=int))
    assert len(tree) == 0


def test_points_that_weigh_nothing_stand_for_nothing():
    table = Table()
    table.weights[:] = 0.0
    table.weights[17] = 2.5
    tree = grown(holder=table)
    for size in (3, 100):
        slots, weights = tree.choose(size)
        assert (slots.tolist(), weights.tolist()) == ([17], [2.5])
    tree.remove(np.array([17]))
    assert len(tree.choose(3)[0]) == 0
    tree.check()


def test_what_was_chosen_is_the_callers():
    tree = grown()
    slots, weights = tree.choose(4)
    slots[:], weights[:] = 0, 0.0
    tree.check()


@pytest.mark.parametrize("height", [1, 2, 4, 7])
def test_the_height_is_kept_to_within_a_level(height):
    tree = Tree(Table(1000), bound(), 0, 2, height=height)
    for slot in range(1000):
        tree.add(np.array([slot]))
        if slot >= 2 ** (height + 1):
            assert height <= tree._top() + 1 <= height + 1
    for slot in range(1000 - 2 ** (height + 1)):
        tree.remove(np.array([slot]))
        assert height - 1 <= tree._top() + 1 <= height + 1


@pytest.mark.parametrize("height", [1, 2, 3])
def test_no_node_outlives_the_buckets_it_was_built_on(height):
    """The first bucket is not touched while points come and go at the end; only its size changes."""
    tree = grown(32, bucket_size=None, height=height)
    for slot in range(31, 2, -1):
        tree.remove(np.array([slot]))
        tree.check()
    for slot in range(3, 40):
        tree.choose(1)
        tree.add(np.array([slot]))
        tree.check()


def test_a_bucket_holds_eight_node_sizes_by_default():
    tree = grown(81, node_size=5, bucket_size=None)
    assert (len(tree), tree.bucket_size, tree._width(0)) == (81, 40, 3)
    assert tree.nbytes >= 4 * 162 + sum(12 * len(tree._nodes[0, i].slots) for i in range(3))
