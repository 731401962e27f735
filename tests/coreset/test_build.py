"""Laws of robust_coreset, over samplers and losses: the split, both totals, purity, and what is kept."""

import os
import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

import duramen as dm
from duramen.coreset.view import SAMPLERS
from tests.conformance.cases import CASES
from tests.coreset.cores import Absolute, build, logistic
from tests.support import assert_identical_coreset, assert_same_coreset, quietly

K_MEANS = next(case for case in CASES if case.name == "k-means")
every_sampler = pytest.mark.parametrize("sampler", SAMPLERS)
every_loss = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)


def built(case, sampler="uniform", n=300, size=60, **more):
    X, y = case.data(n=n)
    ball = case.ball(np.random.default_rng(3), 0.01)
    asked = {"loss": case.loss, "anchor": dm.Anchor(ball.theta, ball.radius), "n_outliers": 20, **more}
    return X, y, build(X, y, size=size, sampler=sampler, **asked)


@every_loss
@every_sampler
@pytest.mark.filterwarnings("ignore:the ball of radius")
@pytest.mark.parametrize("calibrate", [False, True])
def test_both_sides_weigh_what_they_stand_for(case, sampler, calibrate):
    weights = np.random.default_rng(9).exponential(size=300)
    X, y, core = built(case, sampler, sample_weight=weights, n_outliers=0.05, calibrate=calibrate)
    losses = case.loss.values(core.anchor.theta, X, y)
    suspected = losses >= core.threshold
    assert len(core) == 60
    assert core.n_points == 300
    assert core.n_suspected == np.count_nonzero(suspected)
    np.testing.assert_array_equal(core.suspected, suspected[core.ids])
    assert core.weights[core.suspected].sum() == pytest.approx(weights[suspected].sum(), rel=1e-12)
    assert core.weights[~core.suspected].sum() == pytest.approx(weights[~suspected].sum(), rel=1e-12)
    assert core.n_outliers == pytest.approx(0.05 * weights.sum())
    assert (core.weights > 0).all()
    np.testing.assert_array_equal(core.X, X[core.ids])
    np.testing.assert_array_equal(core.own_weights, weights[core.ids])


@every_sampler
@pytest.mark.filterwarnings("ignore:the ball of radius")
@pytest.mark.parametrize("case", [CASES[0], K_MEANS], ids=lambda case: case.name)
def test_any_order_of_the_points_makes_the_same_coreset(case, sampler):
    X, y, core = built(case, sampler, n=2000)
    order = np.random.default_rng(1).permutation(2000)
    labels = None if y is None else y[order]
    asked = {"loss": case.loss, "size": 60, "n_outliers": 20, "sampler": sampler, "ids": order}
    for anchor in (core.anchor, dm.Anchor(core.anchor.theta, core.anchor.radius)):  # frozen, and not yet
        assert_same_coreset(core, build(X[order], labels, anchor=anchor, **asked))


def test_float32_rows_make_the_same_coreset_in_any_order():
    X = np.random.default_rng(0).normal(size=(33_333, 53)).astype(np.float32)
    y = np.where(X[:, 0] > 0, 1, -1)
    order = np.random.default_rng(1).permutation(len(X))
    core = build(X, y, size=500, n_outliers=50, anchor=np.eye(54)[0])
    other = build(X[order], y[order], ids=order, size=500, n_outliers=50, anchor=core.anchor)
    assert_same_coreset(core, other)


@every_sampler
def test_the_anchor_passed_back_reproduces_the_choice(sampler):
    X, y = logistic()
    asked = {"n_outliers": 40, "sampler": sampler, "random_state": 5}
    first = build(X, y, **asked)
    again = build(X, y, anchor=first.anchor, **asked)
    assert_same_coreset(first, again, rtol=1e-12)


@every_sampler
@pytest.mark.parametrize("threads", ["1", "2", "5"])
def test_the_number_of_threads_does_not_matter(sampler, threads, monkeypatch):
    X, y = logistic(70_000)
    anchor = dm.Anchor([1.0, 0.0, 0.0, 0.0], 0.01)
    plain = build(X, y, size=300, n_outliers=40, sampler=sampler, anchor=anchor)
    monkeypatch.setitem(os.environ, "DURAMEN_NUM_THREADS", threads)
    assert_identical_coreset(build(X, y, size=300, n_outliers=40, sampler=sampler, anchor=anchor), plain)


def test_arrow_tables_in_pieces_and_arrays_in_any_layout_make_the_same_coreset():
    import pyarrow as pa

    X, y = logistic()
    table = pa.table({name: X[:, j] for j, name in enumerate("abc")})
    pieces = pa.concat_tables([table.slice(start, 137) for start in range(0, 2000, 137)])
    plain = build(X, y, n_outliers=40)
    layouts = (np.asfortranarray(X), np.repeat(X, 2, axis=0)[::2], X.tolist())
    for rows in (table, pieces, table.to_pandas(), *layouts):
        assert_same_coreset(plain, build(rows, y, n_outliers=40))
    assert build(pieces, y, n_outliers=40).columns == ("a", "b", "c")
    assert plain.columns is None


def test_sparse_and_single_precision_rows():
    X, y = logistic()
    X = X.astype(np.float32).astype(np.float64) * (np.random.default_rng(0).random(X.shape) < 0.5)
    asked = {"n_outliers": 40, "anchor": [1.0, 0, 0, 0]}
    plain, thin = build(X, y, **asked), build(sparse.csr_array(X), y, **asked)
    assert sparse.issparse(thin.X)
    assert_same_coreset(plain, thin)
    single = build(X.astype(np.float32), y, **asked)
    assert single.X.dtype == np.float32
    np.testing.assert_array_equal(single.ids, plain.ids)
    np.testing.assert_allclose(single.weights, plain.weights, rtol=1e-3)


@pytest.mark.parametrize("size", [300, 1000])
def test_all_points_are_kept_where_the_size_allows(size):
    weights = np.random.default_rng(0).exponential(size=300)
    weights[7] = 0
    X, _, core = built(K_MEANS, size=size, sample_weight=weights)
    np.testing.assert_array_equal(core.ids, np.delete(np.arange(300), 7))
    np.testing.assert_array_equal(core.weights, np.delete(weights, 7))
    assert core.n_points == 299
    assert not core.calibrated
    theta = core.anchor.theta + 0.3
    truth = dm.trimmed_objective(dm.points(X, weights=weights), theta, loss=core.loss, n_outliers=20)
    assert core.objective(theta) == pytest.approx(truth, rel=1e-12)
    assert core.estimate(theta).std_error == 0


@every_sampler
def test_inputs_are_not_changed(sampler):
    X, y = logistic()
    weights, ids, theta = np.ones(2000), np.arange(2000) * 3, np.zeros(4)
    before = [array.copy() for array in (X, y, weights, ids, theta)]
    build(X, y, n_outliers=40, sample_weight=weights, ids=ids, sampler=sampler, anchor=dm.Anchor(theta, 0.01))
    for array, copy in zip((X, y, weights, ids, theta), before, strict=True):
        np.testing.assert_array_equal(array, copy)


@pytest.mark.parametrize("sampler", ["uniform", "layered", "leverage"])
def test_memory_is_at_most_64_bytes_per_row(sampler, two_threads):
    n = 1_000_000
    X = np.random.default_rng(0).normal(size=(n, 10)).astype(np.float32)
    y = np.where(X[:, 0] > 0, 1, -1)
    tracemalloc.start()
    build(X, y, size=1000, n_outliers=0.02, sampler=sampler, anchor=dm.Anchor(np.eye(11)[0], 0.1))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak <= 64 * n + (16 << 20)  # and the scratch memory of four chunks


def test_a_loss_with_nothing_but_values():
    X = np.random.default_rng(0).normal(size=(3000, 1))
    core = dm.robust_coreset(X, loss=Absolute(), size=200, n_outliers=30, anchor=[0.0], random_state=0)
    assert core.calibrated
    assert core.objective([0.0]) == pytest.approx(np.sort(np.abs(X[:, 0]))[:-30].sum(), rel=0.02)
    with pytest.raises(ValueError, match="anchor="):
        dm.robust_coreset(X, loss=Absolute(), size=200)


def test_theorem_1_needs_nothing_of_a_loss():
    X = np.random.default_rng(0).normal(size=(20_000, 1))
    core = dm.robust_coreset(X, loss=Absolute(), beta=0.5, n_outliers=0.1, random_state=0)
    assert len(core) == dm.theory.uniform_size(0.5, n_points=20_000, n_outliers=2000, vc_dimension=2)
    np.testing.assert_allclose(core.weights, 20_000 / len(core))
    assert core.anchor is None
    assert not core.suspected.any()
    assert core.estimate([0.0]).low < core.objective([0.0])
    assert "Absolute" in repr(core)


def test_solve_knows_the_coresets_loss_and_outliers():
    X, y = logistic()
    core = build(X, y, size=400, n_outliers=40)
    solution = dm.solve(core)
    again = dm.solve(core.points, dm.LogisticLoss(), 40, init="zero")
    np.testing.assert_array_equal(dm.solve(core, init="zero").theta, again.theta)
    assert solution.objective <= again.objective  # zero is one of its starts
    assert solution.objective == pytest.approx(core.objective(solution.theta))
    assert dm.solve(core, n_outliers=0).objective > solution.objective
    assert dm.solve(core, loss=dm.LogisticLoss(), n_outliers=0.02, n_starts=2).theta.shape == (4,)
    with pytest.raises(ValueError, match=r"made for LogisticLoss.*leave loss out"):
        dm.solve(core, loss=dm.SmoothHingeLoss())


@settings(max_examples=100)
@given(
    st.integers(0, 10**6), st.sampled_from([*SAMPLERS]), st.integers(1, 12), st.integers(0, 3), st.booleans()
)
def test_small_and_odd_data(seed, sampler, n, z, flat):
    """A few points, many of them equal: a complete coreset, or one clear error where none can be."""
    rng = np.random.default_rng(seed)
    X = np.zeros((n, 2)) if flat else rng.integers(0, 2, size=(n, 2)).astype(float)
    size = int(rng.integers(1, 14))

    def call():
        asked = {"loss": dm.KMedianLoss(1), "size": size, "n_outliers": z, "sampler": sampler}
        return quietly(build, X, anchor=dm.Anchor(np.zeros((1, 2)), 1e-3), random_state=seed, **asked)

    if z >= n:
        with pytest.raises(ValueError, match=r"n_outliers=.* is not below the total weight"):
            call()
    elif size == 1 and z > 0 and np.ceil(min(1.5 * z, (z + n) / 2)) < n:  # both sides have points
        with pytest.raises(ValueError, match="size=1 is too small"):
            call()
    else:
        core = call()
        assert core.total_weight == pytest.approx(n)
        assert len(core) == min(size, n)
        assert np.isfinite(core.estimate(np.ones((1, 2))).std_error)


class OneInSo(dm.Sampler):
    """A black box: every n-th point, in the given order."""

    def reduce(self, points, size, rng):
        part = points.take(np.linspace(0, len(points) - 1, size).astype(int))
        return dm.points(part.X, part.y, np.full(size, points.total_weight / size), part.ids)


def test_a_custom_black_box():
    X, y = logistic()
    core = build(X, y, n_outliers=40, sampler=OneInSo())
    assert len(core) == 100
    assert core.weights[~core.suspected].sum() == pytest.approx(1940)
    estimate = core.estimate(core.anchor.theta)
    assert np.isnan(estimate.std_error)
    assert estimate.value == core.objective(core.anchor.theta)
    assert dm.solve(core).theta.shape == (4,)


@pytest.mark.parametrize("seed", range(3))
def test_solving_falls_back_on_the_anchor_where_outliers_mislead_the_start_from_zero(seed):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(20_000, 3))
    y = np.where(2 * X[:, 0] + rng.logistic(size=20_000) > 0, 1, -1)
    X[:2000] = [30.0, 0.0, 0.0] + 0.1 * rng.normal(size=(2000, 3))
    y[:2000] = -1
    core = build(X, y, size=1000, n_outliers=2000, random_state=seed)
    solution = dm.solve(core)
    assert solution.objective < 0.9 * dm.solve(core, init="zero").objective
    assert np.mean(solution.outliers < 2000) > 0.99
    assert len(solution.start_objectives) == 3  # from zero, the anchor, and the middle
    np.testing.assert_allclose(solution.theta, [2, 0, 0, 0], atol=0.5)  # about six standard errors


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_noise_far_out_on_a_fifth_of_the_rows_does_not_mislead_the_start(seed):
    """From zero, noise on many columns is what the first steps follow; from the middle, nothing is seen of it."""
    rng = np.random.default_rng(seed)
    n, z, truth = 40_000, 8000, np.append(np.full(10, 0.6), np.zeros(30))
    X = rng.normal(size=(n, 40))
    y = np.where(X @ truth + rng.logistic(size=n) > 0, 1, -1)
    X[:z] += 10 * rng.normal(size=(z, 40))
    y[:z] = rng.permutation(y[:z])
    points, loss = dm.points(X, y), dm.LogisticLoss()
    best = dm.solve(points, loss, z, init=np.append(truth, 0.0)).objective
    core = build(X, y, size=4000, n_outliers=z, random_state=seed)
    thetas = dm.solve(core).theta, dm.solve(core, init="zero").theta
    found, blind = (dm.trimmed_objective(points, theta, loss=loss, n_outliers=z) for theta in thetas)
    assert found < 1.2 * best  # 1.06 to 1.15
    assert found < 0.85 * blind  # which is at 1.48 to 1.75
