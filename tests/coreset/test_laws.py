"""Laws of the robust coreset, over samplers and losses: the split, both totals, purity, and what is kept."""

import os
import tracemalloc
import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

import duramen as dm
from tests.conformance.cases import CASES

K_MEANS = next(case for case in CASES if case.name == "k-means")
SAMPLERS = ["uniform", "layered", "leverage", "sensitivity"]
every_sampler = pytest.mark.parametrize("sampler", SAMPLERS)
every_loss = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)


def built(case, sampler="uniform", n=300, size=60, n_outliers=20, seed=0, **more):
    X, y = case.data(n=n)
    rng = np.random.default_rng(3)
    ball = case.ball(rng, 0.01)
    settings_ = {"anchor": dm.Anchor(ball.theta, ball.radius), "random_state": seed, **more}
    core = dm.robust_coreset(
        X, y, loss=case.loss, size=size, n_outliers=n_outliers, sampler=sampler, **settings_
    )
    return X, y, core


def logistic(n=2000, z=40, seed=0, d=3):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    y = np.where(X[:, 0] + rng.normal(size=n) > 0, 1, -1)
    X[:z] *= 30
    y[:z] = np.where(X[:z, 0] > 0, -1, 1)
    return X, y


def same(core, other, rtol=1e-9):
    np.testing.assert_array_equal(core.ids, other.ids)
    np.testing.assert_allclose(core.weights, other.weights, rtol=rtol)
    np.testing.assert_array_equal(core.suspected, other.suspected)
    assert core.threshold == pytest.approx(other.threshold, rel=1e-12)


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
    for anchor in (core.anchor, dm.Anchor(core.anchor.theta, core.anchor.radius)):  # frozen, and not yet
        other = dm.robust_coreset(
            X[order],
            labels,
            loss=case.loss,
            size=60,
            n_outliers=20,
            sampler=sampler,
            anchor=anchor,
            ids=order,
            random_state=0,
        )
        same(core, other)


@every_sampler
def test_the_anchor_handed_back_reproduces_the_choice(sampler):
    X, y = logistic()
    first = dm.robust_coreset(
        X, y, loss=dm.LogisticLoss(), size=100, n_outliers=40, sampler=sampler, random_state=5
    )
    again = dm.robust_coreset(
        X,
        y,
        loss=dm.LogisticLoss(),
        size=100,
        n_outliers=40,
        sampler=sampler,
        anchor=first.anchor,
        random_state=5,
    )
    same(first, again, rtol=1e-12)
    assert first.seed == again.seed


@every_sampler
def test_a_frozen_anchor_makes_points_keep_their_place(sampler):
    """Rows that were added and taken away again leave no trace."""
    X, y = logistic(3000)
    anchor = dm.robust_coreset(
        X[:2000],
        y[:2000],
        loss=dm.LogisticLoss(),
        size=100,
        sampler=sampler,
        anchor=dm.Anchor(np.zeros(4), 0.01),
        random_state=0,
    ).anchor
    keep = np.r_[0:1500, 2500:3000]
    cores = [
        dm.robust_coreset(
            rows,
            labels,
            loss=dm.LogisticLoss(),
            size=100,
            n_outliers=40,
            sampler=sampler,
            anchor=anchor,
            ids=ids,
            sample_weight=weights,
            random_state=2,
        )
        for rows, labels, ids, weights in (
            (X[keep], y[keep], keep, None),
            (X, y, np.arange(3000), np.isin(np.arange(3000), keep).astype(float)),
        )
    ]
    same(*cores)


@every_sampler
@pytest.mark.parametrize("threads", ["1", "2", "5"])
def test_the_number_of_threads_does_not_show(sampler, threads, monkeypatch):
    X, y = logistic(70_000)
    anchor = dm.Anchor([1.0, 0.0, 0.0, 0.0], 0.01)
    settings_ = {
        "loss": dm.LogisticLoss(),
        "size": 300,
        "n_outliers": 40,
        "sampler": sampler,
        "anchor": anchor,
    }
    plain = dm.robust_coreset(X, y, random_state=0, **settings_)
    monkeypatch.setitem(os.environ, "DURAMEN_NUM_THREADS", threads)
    core = dm.robust_coreset(X, y, random_state=0, **settings_)
    np.testing.assert_array_equal(core.ids, plain.ids)
    np.testing.assert_array_equal(core.weights, plain.weights)


def test_rows_in_chunks_are_rows():
    """An Arrow table whose columns are in many pieces, and arrays in any layout, make the same coreset."""
    import pyarrow as pa

    X, y = logistic()
    names = ["a", "b", "c"]
    whole = pa.table({name: X[:, j] for j, name in enumerate(names)})
    pieces = pa.concat_tables([whole.slice(start, 137) for start in range(0, 2000, 137)])
    settings_ = {"loss": dm.LogisticLoss(), "size": 100, "n_outliers": 40, "random_state": 0}
    plain = dm.robust_coreset(X, y, **settings_)
    for rows in (
        whole,
        pieces,
        np.asfortranarray(X),
        np.repeat(X, 2, axis=0)[::2],
        X.tolist(),
        whole.to_pandas(),
    ):
        same(plain, dm.robust_coreset(rows, y, **settings_))
    assert dm.robust_coreset(pieces, y, **settings_).columns == ("a", "b", "c")
    assert plain.columns is None


def test_sparse_and_single_precision_rows():
    X, y = logistic()
    X = X.astype(np.float32).astype(np.float64) * (np.random.default_rng(0).random(X.shape) < 0.5)
    settings_ = {
        "loss": dm.LogisticLoss(),
        "size": 100,
        "n_outliers": 40,
        "random_state": 0,
        "anchor": [1.0, 0, 0, 0],
    }
    plain = dm.robust_coreset(X, y, **settings_)
    thin = dm.robust_coreset(sparse.csr_array(X), y, **settings_)
    same(plain, thin)
    assert sparse.issparse(thin.X)
    single = dm.robust_coreset(X.astype(np.float32), y, **settings_)
    assert single.X.dtype == np.float32
    np.testing.assert_array_equal(single.ids, plain.ids)
    np.testing.assert_allclose(single.weights, plain.weights, rtol=1e-3)


@every_sampler
def test_without_outliers_it_is_the_samplers_own(sampler):
    X, y = logistic(z=0)
    core = dm.robust_coreset(
        X,
        y,
        loss=dm.LogisticLoss(),
        size=100,
        sampler=sampler,
        anchor=dm.Anchor(np.zeros(4), 0.01),
        calibrate=False,
        random_state=0,
    )

    class Replay:
        def integers(self, high):
            return core.seed

    by_itself = {
        "uniform": dm.UniformSampler,
        "layered": dm.LayeredSampler,
        "leverage": dm.LeverageSampler,
        "sensitivity": dm.SensitivitySampler,
    }[sampler]()
    own = by_itself.bind(dm.LogisticLoss(), core.anchor).reduce(dm.points(X, y), 100, Replay())
    np.testing.assert_array_equal(core.ids, own.ids)
    np.testing.assert_allclose(core.weights, own.weights, rtol=1e-12)
    assert not core.suspected.any()
    assert core.threshold == np.inf
    plain = dm.robust_coreset(
        X,
        y,
        loss=dm.LogisticLoss(),
        size=100,
        sampler=sampler,
        anchor=core.anchor,
        n_outliers=40,
        suspects=0,
        calibrate=False,
        random_state=0,
    )
    np.testing.assert_array_equal(core.ids, plain.ids)
    assert plain.n_outliers == 40


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


def test_beta_zero_keeps_all_the_suspected():
    X, y = logistic()
    core = dm.robust_coreset(X, y, loss=dm.LogisticLoss(), size=200, beta=0, n_outliers=40, random_state=0)
    assert np.count_nonzero(core.suspected) == core.n_suspected == 60
    np.testing.assert_array_equal(core.weights[core.suspected], 1.0)
    assert len(core) == 200


@pytest.mark.parametrize(
    ("size", "z", "expected"), [(100, 40, 20), (100, 4, 6), (1000, 40, 60), (2, 40, 1), (10, 900, 2)]
)
def test_how_the_size_is_shared(size, z, expected):
    X, y = logistic()
    core = dm.robust_coreset(X, y, loss=dm.LogisticLoss(), size=size, n_outliers=z, random_state=0)
    assert np.count_nonzero(core.suspected) == expected
    assert len(core) == size


def test_inputs_are_not_changed():
    X, y = logistic()
    weights, ids, theta = np.ones(2000), np.arange(2000) * 3, np.zeros(4)
    before = [array.copy() for array in (X, y, weights, ids, theta)]
    dm.robust_coreset(
        X, y, loss=dm.LogisticLoss(), size=100, n_outliers=40, sample_weight=weights, ids=ids, anchor=theta
    )
    for array, copy in zip((X, y, weights, ids, theta), before, strict=True):
        np.testing.assert_array_equal(array, copy)


@pytest.mark.parametrize("sampler", ["uniform", "layered", "leverage"])
def test_memory_is_at_most_64_bytes_a_row(sampler, two_threads):
    n = 1_000_000
    X = np.random.default_rng(0).normal(size=(n, 10)).astype(np.float32)
    y = np.where(X[:, 0] > 0, 1, -1)
    anchor = dm.Anchor(np.eye(11)[0], 0.1)

    def call():
        dm.robust_coreset(
            X,
            y,
            loss=dm.LogisticLoss(),
            size=1000,
            n_outliers=0.02,
            sampler=sampler,
            anchor=anchor,
            random_state=0,
        )

    tracemalloc.start()
    call()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak <= 64 * n + (16 << 20)  # and the scratch memory of four chunks


class Absolute(dm.Loss):
    """A loss with nothing but values."""

    def values(self, theta, X, y=None):
        return np.abs(X[:, 0] - theta[0])

    def vc_dimension(self, n_columns):
        return 2


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
    core = dm.robust_coreset(X, y, loss=dm.LogisticLoss(), size=400, n_outliers=40, random_state=0)
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
@given(st.integers(0, 10**6), st.sampled_from(SAMPLERS), st.integers(1, 12), st.integers(0, 3), st.booleans())
def test_small_and_odd_data(seed, sampler, n, z, flat):
    """A few points, many of them equal: a whole coreset, or one clear error where none can be."""
    rng = np.random.default_rng(seed)
    X = np.zeros((n, 2)) if flat else rng.integers(0, 2, size=(n, 2)).astype(float)
    size = int(rng.integers(1, 14))

    def call():
        with warnings.catch_warnings():  # where all losses are zero, no ball is small enough
            warnings.filterwarnings("ignore", message="the ball of radius")
            return dm.robust_coreset(
                X,
                loss=dm.KMedianLoss(1),
                size=size,
                n_outliers=z,
                sampler=sampler,
                random_state=seed,
                anchor=dm.Anchor(np.zeros((1, 2)), 1e-3),
            )

    if z >= n:
        with pytest.raises(ValueError, match=r"n_outliers=.* is not below the total weight"):
            call()
    elif size == 1 and z > 0 and np.ceil(min(1.5 * z, (z + n) / 2)) < n:  # both sides have points
        with pytest.raises(ValueError, match="size=1 is below 2"):
            call()
    else:
        core = call()
        assert core.total_weight == pytest.approx(n)
        assert len(core) == min(size, n)
        assert np.isfinite(core.estimate(np.ones((1, 2))).std_error)
