"""The trimmed objective against brute force, sorting and a linear program."""

import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog

import duramen as dm
from duramen.trimming import kept_weights, outlier_weight, trimmed_sum


@st.composite
def trimmed_problems(draw):
    losses = np.array(
        draw(st.lists(st.integers(0, 4).map(float) | st.floats(0, 10), min_size=1, max_size=12))
    )
    n = len(losses)
    heavy = st.sampled_from([0.0, 0.5, 1.0, 1.0, 2.0, 3.25])
    weights = np.array(draw(st.lists(heavy, min_size=n, max_size=n)))
    z = draw(st.floats(0, 1)) * weights.sum()
    ids = np.array(draw(st.permutations(range(n)))) * 3 - 5
    return losses, weights, z, ids


def by_sorting(losses, weights, z, ids):
    """The definition: order by (loss, id), keep clip(total - z - weight before, 0, weight)."""
    order = np.lexsort([ids, losses])
    before = np.cumsum(weights[order]) - weights[order]
    kept = np.empty_like(weights)
    kept[order] = np.clip(weights.sum() - z - before, 0, weights[order])
    return kept


@given(trimmed_problems())
def test_kept_weights_are_what_sorting_gives_and_the_inputs_stay(problem):
    losses, weights, z, ids = problem
    copies = [part.copy() for part in (losses, weights, ids)]
    for part in (losses, weights, ids):
        part.flags.writeable = False
    kept = kept_weights(losses, weights, z, ids)
    np.testing.assert_allclose(kept, by_sorting(*problem), atol=1e-12)
    assert all((part == copy).all() for part, copy in zip((losses, weights, ids), copies, strict=True))
    assert not np.shares_memory(kept, weights)
    kept[:] = -1  # the caller's own


@given(trimmed_problems())
def test_the_sum_is_the_least_of_all_ways_to_set_aside(problem):
    """A linear program: choose 0 <= kept <= weight in sum total - z, at the least cost."""
    losses, weights, z, _ = problem
    all_kept = {"A_eq": np.ones((1, len(losses))), "b_eq": [weights.sum() - z]}
    best = linprog(losses, bounds=[(0, w) for w in weights], **all_kept)
    assert trimmed_sum(losses, weights, z) == pytest.approx(best.fun, abs=1e-6)


SHAPES = {
    "spread": lambda rng, n: rng.random(n),
    "ties": lambda rng, n: rng.integers(0, 50, size=n).astype(float),
    "equal": lambda rng, n: np.full(n, 2.5),
    "two values": lambda rng, n: rng.choice([1.0, 2.0], size=n),
    "heavy tail": lambda rng, n: rng.pareto(0.3, size=n),
    "sorted": lambda rng, n: np.sort(rng.random(n)),
    "waves": lambda rng, n: np.sin(np.arange(n) * 2 * np.pi / 64) + 1,  # in step with the sample's stride
    "infinite": lambda rng, n: np.where(rng.random(n) < 0.1, np.inf, rng.random(n)),
}
WEIGHTS = {
    "unit": lambda rng, n: np.ones(n),
    "random": lambda rng, n: rng.random(n),
    "mostly zero": lambda rng, n: np.where(rng.random(n) < 0.99, 0.0, 1.0),
    "one giant": lambda rng, n: np.where(np.arange(n) == n // 2, 10.0 * n, 1.0),
}


@settings(max_examples=60)
@given(st.integers(0, 2**32 - 1), st.sampled_from([*SHAPES]), st.sampled_from([*WEIGHTS]), st.floats(0, 1))
def test_selection_on_many_points_is_what_sorting_gives(seed, shape, weighting, share):
    rng = np.random.default_rng(seed)
    n = int(rng.integers(4_097, 30_000))
    losses, weights, ids = SHAPES[shape](rng, n), WEIGHTS[weighting](rng, n), rng.permutation(n)
    z = share * weights.sum()
    z = np.floor(z) if weighting == "unit" else z
    kept = kept_weights(losses, weights, z, ids)
    np.testing.assert_allclose(kept, by_sorting(losses, weights, z, ids), atol=1e-9 * weights.sum())


def test_kept_weights_by_hand():
    # of equal losses the larger id goes first
    assert kept_weights(np.zeros(4), np.ones(4), 1.5, ids=[7, 30, 2, 9]).tolist() == [1.0, 0.0, 1.0, 0.5]
    assert kept_weights(np.zeros(3), np.ones(3), 1).tolist() == [1.0, 1.0, 0.0]
    # a heavy inlier does not blur the rest, and a tiny weight is set aside like any other
    assert kept_weights([3.0, 1.0, 2.0], [1, 1e17, 1], 1.5).tolist() == [0, 1e17, 0.5]
    assert kept_weights([np.inf, np.inf, 1.0], [1.0, 1e-20, 5.0], 1.0).tolist() == [0.0, 0.0, 5.0]
    assert kept_weights([3.0, 2.0, 1.0], [1e-20, 1.0, 1.0], 1.0).tolist() == [0.0, 0.0, 1.0]
    # an infinite loss can be set aside
    assert trimmed_sum([1.0, np.inf], [1.0, 1.0], 1.0) == 1.0
    assert trimmed_sum([1.0, np.inf], [1.0, 1.0], 0.5) == np.inf


def test_no_trace_of_weight_stays_on_an_outlier():
    points = dm.points(np.r_[np.full((29, 1), 1e12), np.ones((71, 1))])
    scores = [dm.trimmed_objective(points, [[0.0]], loss=dm.KMeansLoss(1), n_outliers=z) for z in (29, 0.29)]
    assert scores == [71.0, 71.0]  # 0.29 * 100 is 28.999999999999996
    heavy = dm.points([[0.0], [1e3]], weights=[1e15, 3.0])
    assert dm.trimmed_objective(heavy, [[0.0]], loss=dm.KMeansLoss(1), n_outliers=1) == 2e6
    assert trimmed_sum([np.inf] * 3 + [1.0], [0.1, 0.1, 0.1, 1.0], 0.3) == 1.0  # 0.1 + 0.1 + 0.1 is above 0.3
    for seed in range(300):
        rng = np.random.default_rng(seed)
        weights, losses = rng.random(100), rng.random(100)
        outliers = rng.choice(100, 10, replace=False)
        losses[outliers] = 1e20 * (1 + rng.random(10))
        kept = np.delete(np.arange(100), outliers)
        z = rng.permutation(weights[outliers]).sum()
        assert trimmed_sum(losses, weights, z) == pytest.approx(weights[kept] @ losses[kept], rel=1e-12)


MANY = pytest.param(1_000_000, 300_000, 0.7, marks=pytest.mark.slow)


@pytest.mark.parametrize("n, m, weight", [(200_000, 70_001, 0.1), (100_000, 30_000, 0.3), MANY])
def test_no_trace_stays_among_many_tied_outliers(n, m, weight):
    """Adding 0.1 up seventy thousand times in one go is off by a millionth of it."""
    weights, losses = np.full(n, weight), np.zeros(n)
    losses[:m] = np.inf
    for z in (m * weight, weights[:m].sum(), m / n * weights.sum(), float(np.longdouble(weight) * m)):
        assert trimmed_sum(losses, weights, z) == 0.0


@pytest.mark.parametrize("n_outliers", [0, 0.1])
def test_of_no_points_the_objective_is_zero(n_outliers):
    weightless = dm.points([[1.0], [2.0]], weights=[0, 0])
    for points in (weightless, weightless.take([])):
        assert dm.trimmed_objective(points, [[0.0]], loss=dm.KMeansLoss(1), n_outliers=n_outliers) == 0.0


def test_periodic_losses_take_no_longer():
    """A sample in step with the period would find one value a round: 2048 rounds of half a million points."""
    losses = np.tile(np.arange(2048.0), 256)
    weights = np.ones(len(losses))
    start = time.perf_counter()
    np.argsort(losses)
    sorting = time.perf_counter() - start
    start = time.perf_counter()
    kept = kept_weights(losses, weights, 5.0)
    assert time.perf_counter() - start < 20 * sorting + 0.1  # it takes a fraction; the trap took 100 times it
    assert np.flatnonzero(kept == 0).tolist() == [2048 * turn - 1 for turn in range(252, 257)]


def test_float32_losses_are_summed_in_float64():
    losses = np.full(1_000_003, 0.1, dtype=np.float32)
    expected = 1e6 * float(np.float32(0.1))
    assert trimmed_sum(losses, np.ones(len(losses)), 3) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize(
    "losses, weights, z, ids, message",
    [
        (np.arange(4.0), np.ones(4), -1.0, None, "must lie between 0 and the total weight 4"),
        (np.arange(4.0), np.ones(4), 4.5, None, "must lie between 0 and the total weight 4"),
        (np.arange(4.0), np.ones(4), np.nan, None, "must lie between 0 and the total weight 4"),
        ([0.0, 1.0, np.nan], np.ones(3), 1, None, "nan in row 2"),
        ([0.0, 1.0], np.ones(3), 1, None, r"one entry per point each; found shapes \(2,\), \(3,\), \(2,\)"),
        (np.ones(3), np.ones(3), 1, range(5), r"ids must have one entry per point each; found shapes \(3,\), \(3,\), \(5,\)"),
        ([1.0, 2.0], [-1.0, 5.0], 1, None, "weights must not be negative; row 0 has -1"),
        ([3.0, 1.0, 2.0], [1e308] * 3, 1.0, None, "add up to infinity"),
        ([3.0, 1.0, 2.0], [1.0, np.inf, 1.0], 1.0, None, "add up to infinity"),
    ],
)  # fmt: skip
def test_bad_arguments_are_named(losses, weights, z, ids, message):
    with pytest.raises(ValueError, match=message):
        kept_weights(losses, weights, z, ids)


@pytest.mark.parametrize(
    "given, expected", [(0, 0.0), (0.25, 25.0), (1, 1.0), (1.0, 1.0), (99.5, 99.5), (np.int64(7), 7.0)]
)
def test_counts_and_fractions(given, expected):
    assert outlier_weight(given, 100.0) == expected
    assert outlier_weight(0.5, 0.8) == 0.4


@pytest.mark.parametrize(
    "given, error, message",
    [
        (120, ValueError, r"n_outliers=120 is not below the total weight 100; pass a count, or a fraction"),
        (100, ValueError, r"not below the total weight"),
        (-1, ValueError, r"n_outliers=-1 must be 0 or more"),
        (-0.1, ValueError, r"must be 0 or more"),
        (np.nan, ValueError, r"n_outliers=nan"),
        (np.inf, ValueError, r"n_outliers=inf is not below"),
        (np.nextafter(1, 0), ValueError, r"is not below the total weight"),
        (True, TypeError, r"n_outliers=True is not a number"),
        ("2%", TypeError, r"n_outliers='2%' is not a number"),
        (None, TypeError, r"n_outliers=None is not a number"),
    ],
)
def test_a_wrong_number_of_outliers_is_named(given, error, message):
    with pytest.raises(error, match=message):
        outlier_weight(given, 100.0)


def test_the_objective_on_points():
    rng = np.random.default_rng(0)
    X, theta = rng.normal(size=(200, 3)), rng.normal(size=(2, 3))
    weights, ids = rng.random(200), rng.permutation(200) - 17
    points = dm.points(X, weights=weights, ids=ids)
    loss = dm.KMedianLoss(2)
    losses = loss.values(theta, X)
    for n_outliers in (0, 0.1, 5, 50.5):
        kept = by_sorting(losses, weights, outlier_weight(n_outliers, weights.sum()), ids)
        found = dm.trimmed_objective(points, theta, loss=loss, n_outliers=n_outliers)
        assert found == pytest.approx(kept @ losses)
    with pytest.raises(ValueError, match="not below the total weight"):
        dm.trimmed_objective(points, theta, loss=loss, n_outliers=200)
    with pytest.raises(
        TypeError, match=r"points must be WeightedPoints, found ndarray; make them with dm.points\(X, y\)"
    ):
        dm.trimmed_objective(X, theta, loss=loss)


def test_rounding_does_not_decide_whether_there_is_enough_weight():
    weights = np.array([1.0, *[1e-16] * 6])  # of which the sum is 1, up to rounding
    for some in (weights, weights[::-1]):
        assert outlier_weight(1, float(some.sum()), some) == 1
        with pytest.raises(ValueError, match="not below the total weight"):
            outlier_weight(1, float(some.sum()), some[some == 1])
