"""Laws of the solver, over every loss."""

import warnings
from functools import partial

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from sklearn.exceptions import ConvergenceWarning

import duramen as dm
from duramen.trimming import kept_weights
from tests.conformance.cases import CASES, LINEAR

Z = 4.0


def problem(case, seed=0, n=120, weighted=False):
    """Make points of which a few lie far off."""
    X, y = case.data(seed, n)
    rng = np.random.default_rng(seed + 1)
    far = rng.choice(n, 4, replace=False)
    X[far] = X[far] * 8 if case.positive else X[far] + 20
    weights = rng.integers(0, 4, size=n).astype(float) if weighted else None
    return dm.points(X, y, weights, ids=rng.permutation(10 * n)[:n])


def start(case, points, seed=0):
    theta = case.theta(np.random.default_rng(seed))
    if case.label is not None or theta.ndim == 1:
        return theta
    return points.X[np.random.default_rng(seed).choice(len(points), len(theta), False)]


def objective(case, points, theta, z):
    """Evaluate what is minimised: f_z, and the prior of a loss that has one."""
    prior = (case.loss.ridge(0.0, points.n_columns) * theta**2).sum() / 2 if case.loss.freezes else 0.0
    return dm.trimmed_objective(points, theta, loss=case.loss, n_outliers=z) + prior


def one_way(case, points):
    """Choose what to set aside, and a start, that lead to the same solution however sums are rounded.

    A contaminated loss has many local minima, more still if it is trimmed too: it is started from fits of its base.
    """
    return (0.0, None) if case.loss.freezes else (Z, start(case, points))


def note(runs, first, case, points, step):
    """Evaluate the objective after a step, in a list for each start."""
    runs.setdefault(step.start, first.copy()).append(objective(case, points, step.theta, Z))


@pytest.fixture(params=CASES, ids=lambda case: case.name)
def case(request):
    return request.param


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (1, 2))])
def test_the_objective_never_rises(case, seed, weighted):
    points = problem(case, seed, weighted=weighted)
    for init in (None, start(case, points, seed)):
        first = [] if init is None else [objective(case, points, init, Z)]
        runs = {}  # a contaminated loss has several starts
        watch = partial(note, runs, first, case, points)
        solution = dm.solve(points, case.loss, Z, init=init, random_state=seed, callback=watch)
        for run in runs.values():
            assert (np.diff(run) <= 1e-12 * np.abs(run[1:])).all()
        best = min(runs.values(), key=lambda run: run[-1], default=first)[len(first) :]
        np.testing.assert_allclose(solution.history[len(solution.history) - len(best) :], best, rtol=1e-9)
        assert (np.diff(solution.history) <= 0).all()


def test_a_solution_says_what_it_is(case):
    points = problem(case, weighted=True)
    solution = dm.solve(points, case.loss, Z, random_state=0)
    assert solution.objective == pytest.approx(objective(case, points, solution.theta, Z), rel=1e-12)
    assert solution.history[-1] == solution.objective
    assert solution.n_iter == len(solution.history) - 1
    assert solution.n_outliers == pytest.approx(Z)
    assert solution.converged
    losses = case.loss.values(solution.theta, points.X, points.y)
    kept = kept_weights(losses, points.weights, Z, points.ids)
    assert set(solution.outliers) == set(points.ids[kept < points.weights])
    place = {name: row for row, name in enumerate(points.ids)}
    rows = [place[name] for name in solution.outliers]
    assert (np.diff(losses[rows]) <= 0).all()
    np.testing.assert_allclose(solution.aside, points.weights[rows] - kept[rows])
    assert repr(case.loss) in repr(solution)
    with pytest.raises(ValueError, match="read-only"):
        solution.theta[...] = 0


def test_equal_seeds_give_equal_solutions_and_inputs_stay(case):
    points = problem(case, weighted=True)
    before = [np.array(part) for part in (points.X, points.weights, points.ids)]
    first, second = (dm.solve(points, case.loss, Z, random_state=7) for _ in range(2))
    np.testing.assert_array_equal(first.theta, second.theta)
    np.testing.assert_array_equal(first.outliers, second.outliers)
    for part, copy in zip((points.X, points.weights, points.ids), before, strict=True):
        np.testing.assert_array_equal(part, copy)


def test_weights_are_copies(case):
    points = problem(case, weighted=True)
    z, init = one_way(case, points)
    times = points.weights.astype(int)
    copied = dm.points(
        np.repeat(points.X, times, axis=0), None if points.y is None else np.repeat(points.y, times)
    )
    one, two = (dm.solve(part, case.loss, z, init=init, tol=1e-9) for part in (points, copied))
    assert one.objective == pytest.approx(two.objective, rel=1e-7)
    np.testing.assert_allclose(one.theta, two.theta, rtol=1e-3, atol=1e-4)


def test_neither_zero_weights_nor_the_order_of_the_points_matter(case):
    points = problem(case, weighted=True)
    z, init = one_way(case, points)
    present = points.take(points.weights > 0)
    assert len(present) < len(points)
    turned = points.take(np.random.default_rng(3).permutation(len(points)))
    one, *others = (dm.solve(p, case.loss, z, init=init, tol=1e-9) for p in (points, present, turned))
    for two in others:
        assert one.objective == pytest.approx(two.objective, rel=1e-9)
        np.testing.assert_array_equal(np.sort(one.outliers), np.sort(two.outliers))


def test_a_solution_is_where_a_solver_stays(case):
    points = problem(case)
    first = dm.solve(points, case.loss, Z, random_state=0, tol=1e-10, max_iter=2000)
    again = dm.solve(points, case.loss, Z, init=first.theta, tol=1e-10, max_iter=2000)
    assert again.n_iter <= 3
    assert again.objective == pytest.approx(first.objective, rel=1e-7)


def test_more_outliers_cost_less_from_the_same_start(case):
    points = problem(case)
    init = start(case, points)
    first = dm.solve(points, case.loss, 0, init=init)
    for z in (1, 4, 10):
        then = dm.solve(points, case.loss, z, init=first.theta)
        assert then.objective < first.objective
        first = then


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_types_and_layouts_agree(case, dtype):
    points = problem(case)
    init = start(case, points)
    X = points.X.astype(dtype)
    plain = dm.solve(dm.points(X, points.y), case.loss, Z, init=init)
    turned = dm.solve(dm.points(np.asfortranarray(X), points.y), case.loss, Z, init=init)
    # a mixture's parameters grow to hundreds here: in single precision its objective is known to 1e-6 of itself
    rel = 1e-5 if case.loss.freezes and dtype is np.float32 else 1e-6
    assert plain.objective == pytest.approx(turned.objective, rel=rel)
    assert plain.theta.dtype == np.float64
    exact = dm.solve(points, case.loss, Z, init=init)
    assert plain.objective == pytest.approx(exact.objective, rel=1e-3)


def test_the_number_of_threads_does_not_matter(case, monkeypatch):
    points = problem(case, n=3000)
    init = start(case, points)
    thetas = []
    for threads in ("1", "2", "5"):
        monkeypatch.setenv("DURAMEN_NUM_THREADS", threads)
        thetas.append(dm.solve(points, case.loss, Z, init=init).theta)
        np.testing.assert_allclose(thetas[0], thetas[-1], rtol=1e-6, atol=1e-8)


def test_the_best_of_several_starts_is_kept(case):
    points = problem(case)
    solution = dm.solve(points, case.loss, Z, n_starts=3, random_state=1)
    n_starts = len(solution.start_objectives)
    assert n_starts == 3 or (case.loss.base is not None and n_starts < 3)  # those of its base may meet
    assert solution.objective == pytest.approx(solution.start_objectives.min(), rel=1e-9)


def test_an_anchor_is_close_to_the_solution(case):
    points = problem(case, n=4000)
    anchor = dm.find_anchor(points, case.loss, Z, random_state=0)
    assert anchor.theta.shape == case.loss.parameter_shape(case.columns)
    solution = dm.solve(points, case.loss, Z, random_state=0)
    at_anchor = dm.trimmed_objective(points, anchor.theta, loss=case.loss, n_outliers=Z)
    assert at_anchor <= 1.25 * solution.objective
    assert anchor.radius > 0
    assert set(anchor.ids) <= set(points.ids)
    again = dm.find_anchor(points, case.loss, Z, random_state=0)
    np.testing.assert_array_equal(anchor.theta, again.theta)
    assert anchor.radius == again.radius


@pytest.mark.slow
@pytest.mark.parametrize(
    "linear",  # at a kink the gradient need not vanish: test_oracles.py compares quantiles with scikit-learn's
    [case for case in LINEAR if case.loss.fitter != "smoothed"],
    ids=lambda case: case.name,
)
@settings(max_examples=30)
@given(
    seed=st.integers(0, 1000),
    l2=st.sampled_from([0.0, 0.3, 10.0]),
    z=st.sampled_from([0, 1, 2.5, 0.2]),
    scale=st.sampled_from([1e-4, 1.0, 1e4]),
    offset=st.sampled_from([0.0, 1e3, 1e6]),
)
def test_linear_losses_settle_where_the_gradient_vanishes(linear, seed, l2, z, scale, offset):
    """However the columns are scaled, and wherever they lie: compared in centred units of the columns."""
    X, y = linear.data(seed, 60)
    X = X * [scale, 1.0, 1.0] + (offset if linear.loss.fit_intercept else 0.0)
    points = dm.points(X, y)
    loss = linear.loss.unmeasured().measure(points)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        solution = dm.solve(points, loss, z, l2=l2, random_state=seed, tol=1e-12, max_iter=1000)
    if solution.status is dm.Status.UNBOUNDED:  # of 60 rows, a fifth set aside may be all that overlap
        assert l2 == 0
        assert linear.label in ("sign", "class")
    assume(solution.status is not dm.Status.UNBOUNDED)
    assert solution.converged
    losses = loss.values(solution.theta, X, y)
    kept = kept_weights(losses, points.weights, solution.n_outliers, points.ids)
    left = loss.gradient_sum(solution.theta, X, y, kept) + loss.ridge(l2, 3) * solution.theta
    if loss.freezes:
        left, noise = loss.split(left, 3)
        assert np.abs(noise).max() <= 1e-4 * kept.sum()
    if linear.loss.fit_intercept:
        left[..., :-1] -= X.mean(axis=0) * left[..., -1:]
    spread = np.append(X.std(axis=0), 1.0)[: left.shape[-1]]
    several = isinstance(loss, dm.SoftmaxLoss | dm.ContaminatedLoss)
    pulls = kept.sum() if several else np.abs(loss.slopes(solution.theta, X, y)) @ kept
    assert np.abs(left / spread).max() <= 1e-4 * max(1.0, pulls)
