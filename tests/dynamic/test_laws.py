"""Laws of the dynamic coreset: a function of the points that are here, whatever way they came; and no trace of others."""

import copy
import pickle

import numpy as np
import pytest

import duramen as dm
from duramen.dynamic import sorted_list
from tests.dynamic.model import ROW, Model, assert_law, assert_same, changes, do, do_singly, live, rows
from tests.support import PROBLEMS, SAMPLERS, SUITS, Heaviest, assert_same_coreset, quietly, weights_of

every_suit = pytest.mark.parametrize("name, sampler", SUITS, ids=lambda value: value)
every_sampler = pytest.mark.parametrize("sampler", SAMPLERS)
LOGISTIC = PROBLEMS["logistic"]
KINDS = ("ranked", "uniform tree", "own tree")


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch):
    """Limit the chunks of sorted lists to a few dozen points."""
    monkeypatch.setattr(sorted_list, "CHUNK", 32)


def made(problem=LOGISTIC, sampler="auto", n_outliers=0.1, size=60, seed=3, **more):
    """Make a dynamic coreset, and the settings of the one call."""
    settings = {"loss": problem.loss, "size": size, "sampler": SAMPLERS.get(sampler, sampler)}
    settings |= {"calibrate": more.pop("calibrate", True), "random_state": seed}
    if more.get("engine") == "tree":
        settings.pop("calibrate")
    dyn = dm.DynamicCoreset(n_outliers=n_outliers, **settings, **more)
    return dyn, settings


def of_kind(kind, **more):
    """Make one of either engine."""
    if kind == "ranked":
        return made(**more)[0]
    return made(
        sampler=Heaviest() if kind == "own tree" else "uniform", engine="tree", bucket_size=16, **more
    )[0]


def filled(problem=LOGISTIC, n=400, heavy="real", data_seed=0, **more):
    dyn, settings = made(problem, **more)
    rng = np.random.default_rng(data_seed)
    X, y, weights = problem.rows(rng, n), problem.labels(rng, n), weights_of(rng, n, heavy)
    quietly(dyn.insert, X, y, weights)
    return dyn, settings, (X, y, weights)


@every_suit
@pytest.mark.parametrize(
    "calibrate", [True, pytest.param(False, marks=pytest.mark.slow)], ids=["calibrated", "as drawn"]
)
def test_the_coreset_is_the_one_built_from_scratch(name, sampler, calibrate):
    problem = PROBLEMS[name]
    dyn, settings, (X, y, weights) = filled(problem, sampler=sampler, calibrate=calibrate)
    model, rng = Model(problem.label is not None), np.random.default_rng(1)
    model.put(np.arange(400), X, y, weights)
    n_outliers = 0.1
    for step, change in enumerate(changes(problem, rng, model, 12)):
        (do_singly if step % 4 == 3 else do)(dyn, *change)
        if step % 3 == 0:
            n_outliers = [0.0, 3, 0.3, 0.9 * dyn.total_weight][step // 3]
            dyn.set_outliers(n_outliers)
        if step % 2:
            core = assert_law(dyn, settings, n_outliers, step)
            assert calibrate or not core.calibrated
    model.assert_is(dyn)
    dyn.check_invariants()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", PROBLEMS)
def test_rows_in_single_precision_too(name, dtype):
    problem, rng = PROBLEMS[name], np.random.default_rng(0)
    dyn, settings = made(problem)
    X, y = problem.rows(rng, 500).astype(dtype), problem.labels(rng, 500)
    quietly(dyn.insert, X[:300], None if y is None else y[:300])
    for row in range(300, 400):
        dyn.insert(X[row], None if y is None else y[row])
    dyn.insert(X[400:], None if y is None else y[400:])
    dyn.delete(np.arange(250, 350))
    assert dyn.points().X.dtype == dtype
    assert_law(dyn, settings, 0.1)
    dyn.check_invariants()


def test_nothing_but_weights_of_zero():
    dyn, settings, _ = filled(n=300, sampler="uniform", n_outliers=0)
    dyn.update(np.arange(300), LOGISTIC.rows(np.random.default_rng(0), 300), sample_weight=np.zeros(300))
    assert_law(dyn, settings, 0)
    dyn.insert(np.ones(2), 1)
    core = assert_law(dyn, settings, 0)
    assert core.ids.tolist() == [300]


@every_sampler
def test_a_row_that_came_and_went_leaves_nothing(sampler):
    dyn, settings, _ = filled(sampler=sampler)
    before, rng = dyn.coreset(), np.random.default_rng(5)
    X, y = LOGISTIC.rows(rng, 200) * 1e4, LOGISTIC.labels(rng, 200)
    for row in range(50):
        (name,) = dyn.insert(X[row], y[row], 10.0 ** (row - 25))
        dyn.delete(name)
    assert_same_coreset(dyn.coreset(), before, rtol=1e-12)
    ids = dyn.insert(X, y)
    assert not np.array_equal(dyn.coreset().ids, before.ids)
    dyn.delete(rng.permutation(ids))
    assert_same_coreset(dyn.coreset(), before, rtol=1e-12)
    points = dyn.points([7, 3, 11])
    dyn.update([7, 3, 11], X[:3], y[:3], [5.0, 0.0, 2.0])
    dyn.update([7, 3, 11], points.X, points.y, points.weights)
    assert_same_coreset(dyn.coreset(), before, rtol=1e-12)
    assert_law(dyn, settings, 0.1)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("n", [40, 300])
def test_weight_zero_is_absent(kind, n):
    rng = np.random.default_rng(1)
    X, y = LOGISTIC.rows(rng, 2 * n), LOGISTIC.labels(rng, 2 * n)
    weights = weights_of(rng, 2 * n, "real") * (np.arange(2 * n) % 2)
    with_zeros, without = of_kind(kind), of_kind(kind)
    with_zeros.insert(X, y, weights)
    without.insert(X[1::2], y[1::2], weights[1::2], np.arange(1, 2 * n, 2))
    assert_same_coreset(with_zeros.coreset(), without.coreset(), rtol=1e-12)
    assert (len(with_zeros), len(without)) == (2 * n, n)
    with_zeros.update(np.arange(5), X[:5], y[:5], np.zeros(5))
    without.delete([1, 3])
    assert_same_coreset(with_zeros.coreset(), without.coreset(), rtol=1e-12)


@pytest.mark.parametrize("kind", KINDS)
def test_inputs_are_never_changed_nor_kept(kind):
    rng = np.random.default_rng(0)
    X, y, weights = LOGISTIC.rows(rng, 300), LOGISTIC.labels(rng, 300), weights_of(rng, 300, "real")
    ids, theta = rng.permutation(1000)[:300], np.array(LOGISTIC.theta)
    arrays = (X, y, weights, ids, theta)
    before = [array.copy() for array in arrays]
    dyn = of_kind(kind, anchor=theta)
    dyn.insert(X, y, weights, ids)
    dyn.insert(X[0], y[0], 2.0, 5000)
    dyn.update(ids[:50], X[50:100], y[50:100], weights[:50])
    dyn.update(ids[0], X[1])
    core, points = dyn.coreset(), dyn.points()
    dyn.delete(ids[:70])
    for array, copied in zip(arrays, before, strict=True):
        np.testing.assert_array_equal(array, copied)
        array[:] = 0
    dyn.check_invariants()
    kept = copy.deepcopy(core)
    dyn.delete(dyn.ids[:100])
    dyn.insert(np.full((50, 2), 9.0), np.ones(50))
    assert_same_coreset(core, kept, rtol=0)
    assert points.X.shape == (301, 2)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["logistic", "k-median", "softmax"])
def test_reanchoring_is_inserting_everything_again(name, kind):
    """In a tree points are in the order of arrival: the same, if none ever changed sides."""
    problem, rng = PROBLEMS[name], np.random.default_rng(6)
    more = {"problem": problem, "n_outliers": 0.1 if kind == "ranked" else 0}
    dyn = of_kind(kind, **more)
    X, y = problem.rows(rng, 500), problem.labels(rng, 500)
    quietly(dyn.insert, X, y, weights_of(rng, 500, "real"))
    first = dyn.anchor
    dyn.delete(np.arange(100, 300))
    dyn.update(np.arange(50), problem.rows(rng, 50))
    quietly(dyn.reanchor)
    assert dyn.anchor is not first
    fresh, points = of_kind(kind, anchor=dyn.anchor, **more), dyn.points()
    fresh.insert(points.X, points.y, points.weights, points.ids)
    assert fresh.anchor.theta.tolist() == dyn.anchor.theta.tolist()
    one, other = quietly(dyn.coreset), quietly(fresh.coreset)
    assert_same_coreset(one, other, rtol=1e-12)
    dyn.check_invariants()


# what is gone is gone

PATTERN = np.array([0.1234567890123, 7.654321098765e-3])
FAR = np.array([1.234567890123e5, -7.654321098765e4])


def assert_nowhere(dyn, *patterns):
    """Look through everything that is reachable: each number by itself, in either precision."""
    held = pickle.dumps(dyn)
    for number in np.concatenate(patterns):
        assert np.float64(number).tobytes() not in held, f"{number} is still here"


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "name",
    ["logistic", "k-means", *(pytest.param(name, marks=pytest.mark.slow) for name in ("squared", "softmax"))],
)
@pytest.mark.parametrize("n", [30, 300], ids=["before the anchor", "with it"])
@pytest.mark.parametrize("what", ["delete", "update"])
@pytest.mark.parametrize("act", [do, do_singly], ids=["many", "one by one"])
def test_a_row_that_is_gone_is_nowhere(kind, name, n, what, act):
    problem, rng = PROBLEMS[name], np.random.default_rng(0)
    dyn = of_kind(kind, problem=problem)
    X, y = problem.rows(rng, n), problem.labels(rng, n)
    quietly(dyn.insert, X, y)
    labels, weight = None if y is None else y[:2], 0.777123456789  # recognisable, too
    ids = np.array([n, n + 1])
    act(dyn, "insert", ids, np.array([PATTERN, FAR]), labels, [weight, weight])
    assert PATTERN.tobytes() in pickle.dumps(dyn)
    quietly(dyn.coreset)
    act(dyn, what, ids, X[:2], labels, [1.0, 1.0])
    assert_nowhere(dyn, PATTERN, FAR, [weight])
    dyn.check_invariants()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("n", [30, 300], ids=["before the anchor", "with it"])
def test_an_id_that_is_gone_is_nowhere(kind, n):
    """Nor is its loss or its rank, which would tell about the row."""
    dyn, rng = of_kind(kind), np.random.default_rng(0)
    dyn.insert(LOGISTIC.rows(rng, n), LOGISTIC.labels(rng, n))
    names = np.array([0x1234567890ABCDE, 0x2345678901BCDEF])
    dyn.insert(np.array([PATTERN, FAR]), [1, -1], ids=names)
    losses = (
        []
        if dyn.anchor is None
        else dyn.loss.values(dyn.anchor.theta, np.array([PATTERN, FAR]), np.array([1, -1]))
    )
    dyn.delete(names)
    held = pickle.dumps(dyn)
    assert not any(name.tobytes() in held for name in names), "an id is still here"
    assert not any(np.float64(one).tobytes() in held for one in losses), "a loss is still here"


def test_a_reanchored_tree_is_one_filled_in_the_order_of_ids():
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
