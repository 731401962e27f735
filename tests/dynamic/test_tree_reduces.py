"""Black boxes in the tree: those that misbehave, what reducing costs, and what a check of the tree finds."""

import math
import operator

import numpy as np
import pytest

import duramen as dm
from duramen.dynamic.tree import NodeSummary, Tree
from duramen.samplers.base import reduce_rows
from tests.dynamic.test_tree import ANCHOR, ROOM, SAMPLERS, Table, assert_same_choice, grown
from tests.support import Heaviest


class Moody(dm.Sampler):
    """It behaves for some calls."""

    def __init__(self, bad, calls):
        self.bad, self.calls = bad, calls

    def reduce(self, points, size, rng):
        self.calls -= 1
        return self.bad(points, size) if self.calls < 0 else Heaviest().reduce(points, size, rng)


def foreign(points, size):
    return dm.points(np.zeros((size, 3)), np.ones(size), ids=-1 - np.arange(size))


def tired(points, size):
    raise RuntimeError("no more")


def heavy(weight):
    return lambda points, size: points.take(slice(0, size)).with_parts(weights=np.full(size, weight))


WRONGS = {
    "foreign": (foreign, ValueError, r"Moody\(\) returned 4 points for size=4.*points it was given, each once, with their ids"),
    "too many": (lambda points, size: points.take(slice(0, size + 1)), ValueError, r"Moody\(\) returned 5 points for size=4"),
    "none": (lambda points, size: points.take(slice(0, 0)), ValueError, r"Moody\(\) returned 0 points for size=4"),
    "twice": (lambda points, size: points.take_unchecked(np.array([1, 1]), np.ones(2)), ValueError, r"Moody\(\) returned 2 points for size=\d+ \(wrong: ids \[\d+, \d+\].*each once"),
    "weightless": (heavy(0.0), ValueError, r"Moody\(\).*wrong: ids \[[\d, ]+\] with weights \[0.0.*positive weights"),
    "endless": (heavy(np.inf), ValueError, r"Moody\(\).*wrong: ids \[[\d, ]+\] with weights \[inf.*positive weights"),
    "rows only": (lambda points, size: points.X[:size], TypeError, r"Moody\(\) must return points from reduce; found ndarray"),
    "tired": (tired, RuntimeError, "no more"),
}  # fmt: skip


@pytest.mark.parametrize("calls", [0, 1, 3, 6])
@pytest.mark.parametrize("bad, error, words", WRONGS.values(), ids=WRONGS)
def test_a_black_box_that_misbehaves_is_refused_and_leaves_the_tree_valid(bad, error, words, calls):
    sampler = Moody(bad, calls)
    tree = Tree(Table(zeros=False), sampler, 7, 4, bucket_size=6)
    tree.add(np.arange(40))
    with pytest.raises(error, match=words):
        tree.choose(4)
    tree.remove(np.array([11]))
    tree.add(np.array([60]))
    sampler.calls = 10**9
    tree.check()
    again = Tree(tree._holder, Heaviest(), 7, 4, bucket_size=6)
    again.add(np.array(tree.order))
    assert_same_choice(tree, again)


def test_reduced_rows_are_found_whatever_order_they_are_in():
    points = Table(zeros=False).points(np.arange(50))
    rows, weights = reduce_rows(Heaviest(), points, 10, np.random.default_rng(0))
    assert set(np.argsort(-points.weights)[:9]) <= set(rows.tolist())
    assert weights.sum() == pytest.approx(points.total_weight, rel=1e-14)
    np.testing.assert_allclose(weights / weights[0], points.weights[rows] / points.weights[rows[0]])


# The error of merging and reducing


LOGISTIC = dm.LogisticLoss()
PROBLEMS = [
    (dm.KMeansLoss(2), ANCHOR, np.random.default_rng(0).normal(size=(20, 2, 3)) + ANCHOR.theta),
    (LOGISTIC, dm.Anchor([0.1, 0.2, -0.2, 0.0], 1.0), np.random.default_rng(0).normal(size=(20, 4))),
]


@pytest.mark.parametrize("name", SAMPLERS)
@pytest.mark.parametrize("loss, anchor, thetas", PROBLEMS, ids=["k-means", "logistic"])
def test_the_root_errs_by_no_more_than_its_levels_together(name, loss, anchor, thetas):
    """A node represents its parts with an error e_l, these represent theirs, and so on: (1 + e_0) ... (1 + e_L) - 1."""
    table = Table(zeros=False)
    tree = Tree(table, SAMPLERS[name].bind(loss, anchor), 2, 40, bucket_size=50)
    tree.add(np.arange(ROOM - 30))
    chosen = NodeSummary(*tree.choose(40))

    def costs(summary):
        losses = [loss.values(theta, table.X[summary.slots], table.y[summary.slots]) for theta in thetas]
        return np.array(losses) @ summary.weights

    def parts(level, index):
        children = [(level - 1, 2 * index), (level - 1, 2 * index + 1)]
        bucket = tree.slots()[index * tree.bucket_size : (index + 1) * tree.bucket_size]
        whole = [NodeSummary(bucket, table.weights[bucket])]
        below = [tree._nodes[child] for child in children if child in tree._nodes]
        return sum(costs(part) for part in (below if level else whole))

    errors = np.zeros(tree._top() + 1)
    for (level, index), node in tree._nodes.items():
        errors[level] = max(errors[level], np.abs(costs(node) / parts(level, index) - 1).max())
    assert (errors > 0).all()
    all_points = NodeSummary(np.arange(ROOM - 30), table.weights[: ROOM - 30])
    error = np.abs(costs(chosen) / costs(all_points) - 1).max()
    assert 0 < error <= math.prod(1 + errors) - 1


# What check finds


def change(tree, slots=None, weights=None):
    node = tree._nodes[1, 0]
    tree._nodes[1, 0] = NodeSummary(
        node.slots if slots is None else slots(node.slots),
        node.weights if weights is None else weights(node.weights),
    )


def put(value):
    return lambda array: np.append(array[:-1], array.dtype.type(value))


def put_first(array):
    return put(array[0])(array)


CORRUPTIONS = [
    (1, lambda tree: operator.setitem(tree.order, 2, -1)),
    (1, lambda tree: tree.position.append(5)),
    (2, lambda tree: setattr(tree, "bucket_size", 0)),
    (2, lambda tree: setattr(tree, "bucket_size", tree.bucket_size + 1)),
    (2, lambda tree: setattr(tree, "measured", tree.measured // 4)),
    (3, lambda tree: tree._nodes.update({(0, 99): tree._nodes[0, 0]})),
    (3, lambda tree: tree._nodes.update({(tree._top() + 1, 0): tree._nodes[tree._top(), 0]})),
    (4, lambda tree: tree._nodes.pop((0, 1))),
    (5, lambda tree: change(tree, slots=put(200))),
    (5, lambda tree: change(tree, slots=put(39))),
    (5, lambda tree: change(tree, slots=put_first)),
    (5, lambda tree: change(tree, weights=put(-1.0))),
    (5, lambda tree: change(tree, weights=lambda weights: weights * 1.001)),
    (5, lambda tree: change(tree, slots=np.flip)),
    (5, lambda tree: setattr(tree, "_seed", 8)),
]


@pytest.mark.parametrize("number, corrupt", CORRUPTIONS)
def test_check_finds(number, corrupt):
    tree = grown(40, node_size=3, bucket_size=None, height=4)
    tree.check()
    corrupt(tree)
    with pytest.raises(AssertionError, match=f"^{number}: "):
        tree.check()
