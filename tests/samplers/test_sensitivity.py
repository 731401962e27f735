"""Sensitivities: the closed form against a semidefinite and another exact solver, and bounds against search."""

import clarabel
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import optimize, sparse

import duramen as dm
from duramen.samplers.sensitivity import quadratic_fraction
from tests.conformance.cases import CASES
from tests.coreset.cores import Absolute
from tests.support import quietly


def problem(seed, n=8, d=3, tightness=0.5, radius=1.0):
    """Draw values, gradients, bends, and sums of whose denominator the ball takes away ``tightness``."""
    rng = np.random.default_rng(seed)
    f, a = rng.exponential(size=n), rng.exponential(size=n)
    g = rng.normal(size=(n, d)) * rng.exponential(size=(n, 1))
    G = rng.normal(size=d)
    A = rng.exponential()
    F = (radius * np.linalg.norm(G) + A * radius**2 / 2) / tightness
    return f, a, g, F, A, G


def closed_form(f, a, g, F, A, G, radius=1.0):
    return quadratic_fraction(
        f, a, np.square(g).sum(axis=1), g @ G, value=F, bend=A, gradient=G, radius=radius
    )


def by_semidefinite_program(f, a, g, F, A, G, radius=1.0):
    """The paper's way (appendix D), by the S-lemma: the least t with t D - N - m (radius^2 - |x|^2) >= 0 everywhere."""
    d = len(G)
    upper = [(i, j) for j in range(d + 1) for i in range(j + 1)]

    def vector(matrix):
        return np.array([matrix[i, j] * (1 if i == j else 2**0.5) for i, j in upper])

    def form(constant, linear, square):
        matrix = np.zeros((d + 1, d + 1))
        matrix[0, 0] = constant
        matrix[0, 1:] = matrix[1:, 0] = np.asarray(linear) / 2
        matrix[1:, 1:] = np.eye(d) * square
        return vector(matrix)

    columns = [form(F, G, -A / 2), form(-(radius**2), np.zeros(d), 1.0)]
    rows = np.column_stack([-np.array(columns).T.reshape(len(upper), 2)])
    constraint = sparse.csc_matrix(np.vstack([rows, [[0.0, -1.0]]]))
    right = np.append(form(-f, -g, -a / 2), 0.0)
    settings = clarabel.DefaultSettings()
    settings.verbose = False
    settings.tol_gap_abs = settings.tol_gap_rel = settings.tol_feas = 1e-10
    cones = [clarabel.PSDTriangleConeT(d + 1), clarabel.NonnegativeConeT(1)]
    nothing = sparse.csc_matrix((2, 2))
    solver = clarabel.DefaultSolver(nothing, np.array([1.0, 0.0]), constraint, right, cones, settings)
    return solver.solve().x[0]


@given(st.integers(0, 2**32), st.integers(1, 6), st.floats(0.01, 0.99), st.floats(0.1, 3))
def test_the_closed_form_is_what_a_semidefinite_solver_finds(seed, d, tightness, radius):
    f, a, g, F, A, G = problem(seed, d=d, tightness=tightness, radius=radius)
    bounds = closed_form(f, a, g, F, A, G, radius)
    for i in range(len(f)):
        exact = by_semidefinite_program(f[i], a[i], g[i], F, A, G, radius)
        assert bounds[i] == pytest.approx(exact, rel=1e-6)


def test_there_is_no_bound_where_the_denominator_can_vanish():
    f, a, g, F, A, G = problem(0, tightness=1.0)
    assert np.isinf(closed_form(f, a, g, F * 0.999, A, G)).all()
    assert np.isfinite(closed_form(f, a, g, F * 1.001, A, G)).all()


KINDS = {
    "lipschitz": lambda loss, X, y: loss.lipschitz(X, y),
    "smooth": lambda loss, X, y: loss.smoothness(X, y),
    "hessian": lambda loss, X, y: loss.hessian_lipschitz(X, y),
    "auto": lambda loss, X, y: True,
}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("radius", [0.01, 0.1, 0.5])
def test_sensitivities_bound_every_share_in_the_ball(case, kind, radius):
    """Against random parameters, and the best of an ascent on the share itself from the best of them."""
    X, y = case.data(n=30)
    if KINDS[kind](case.loss, X, y) is None:
        with pytest.raises(dm.MissingPropertyError, match=r"use one of .*auto|LayeredSampler"):
            dm.SensitivitySampler(kind).check(case.loss, dm.points(X, y))
        return
    rng = np.random.default_rng(0)
    weights = rng.exponential(size=30)
    ball = case.ball(rng, radius)
    anchor = dm.Anchor(ball.theta, ball.radius)
    bounds = quietly(dm.SensitivitySampler(kind).sensitivities, dm.points(X, y, weights), case.loss, anchor)
    if np.isinf(bounds).all():
        assert radius == 0.5  # the largest of these balls alone may be too large
        return
    assert np.isfinite(bounds).all()

    def shares(theta):
        values = case.loss.values(theta, X, y)
        return values / (weights @ values)

    if radius == 0.01 and kind == "auto" and case.name in ("logistic", "k-means", "truth discovery", "huber"):
        assert weights @ bounds < 1.5  # so that this is not a test of wild bounds
    assert (bounds >= shares(ball.theta) * (1 - 1e-12)).all()
    probes = [*ball.sample(100, rng), *sphere(ball, 100, rng)]
    found = np.array([shares(theta) for theta in probes])
    assert (found <= bounds * (1 + 1e-9)).all()
    row = int(np.argmax((found / bounds).max(axis=0)))
    start = probes[int(np.argmax(found[:, row]))]

    def cost(flat):
        return -shares(ball.project(flat.reshape(start.shape)))[row]

    best = optimize.minimize(cost, start.ravel(), method="Nelder-Mead", options={"maxiter": 300})
    assert -best.fun <= bounds[row] * (1 + 1e-9)


def sphere(ball, n, rng):
    for theta in ball.sample(n, rng):
        step = theta - ball.theta
        yield ball.theta + step * (ball.radius / np.linalg.norm(step, axis=-1, keepdims=True)) * (1 - 1e-12)


def test_auto_is_the_best_of_all_kinds():
    X, y = CASES[0].data(n=50)
    points, anchor = dm.points(X, y), dm.Anchor(np.zeros(4), 0.05)
    best = dm.SensitivitySampler("auto").sensitivities(points, dm.LogisticLoss(), anchor)
    for kind in ("lipschitz", "smooth", "hessian"):
        found = dm.SensitivitySampler(kind).sensitivities(points, dm.LogisticLoss(), anchor)
        assert (best <= found * (1 + 1e-12)).all()


def test_the_lipschitz_form_is_that_of_the_design():
    """(f_i + alpha_i l) / (F - A l), for a loss that is not convex, where tangents tell nothing."""
    X = np.random.default_rng(0).normal(size=(40, 2)) * 5
    loss = dm.KMedianLoss(2)
    theta = np.array([[-3.0, 0.0], [3.0, 0.0]])
    f = loss.values(theta, X)
    bounds = dm.SensitivitySampler("lipschitz").sensitivities(dm.points(X), loss, dm.Anchor(theta, 0.2))
    np.testing.assert_allclose(bounds, (f + 0.2) / (f.sum() - 40 * 0.2), rtol=1e-12)


@pytest.mark.parametrize(
    ("loss", "anchor"),
    [
        (dm.KMedianLoss(2), dm.Anchor([[-1.0, 1.0], [1.0, 1.0]], 100.0)),
        (dm.BregmanLoss(1, "kl"), dm.Anchor([[1.0, 1.0]], 2.0)),  # the ball leaves the domain: infinite costs
    ],
    ids=repr,
)
def test_a_ball_too_large_is_said_and_points_are_drawn_by_what_they_can_cost(loss, anchor):
    """Over 200 seeds the share of samples that a point is in grows with f + deviation."""
    rng = np.random.default_rng(0)
    points = dm.points(np.exp(rng.normal(size=(100, 2))))
    with pytest.warns(UserWarning, match=f"radius {anchor.radius:g} is too large"):
        frozen = dm.robust_coreset(points.X, loss=loss, size=10, sampler="sensitivity", anchor=anchor).anchor
    sampler = dm.SensitivitySampler().bind(loss, frozen)
    counts = np.zeros(100)
    for seed in range(200):
        core = sampler.reduce(points, 10, np.random.default_rng(seed))
        counts[core.ids] += 1
        assert core.total_weight == pytest.approx(100)
    cost = loss.values(anchor.theta, points.X) + loss.deviation(anchor.ball, points.X)
    if np.isfinite(cost).all():
        share = np.maximum(cost / loss.values(anchor.theta, points.X).mean(), 1)
        expected = 200 * 10 * share / share.sum()
        assert np.abs(counts - expected).max() < 5 * expected.max() ** 0.5
    else:
        assert counts.min() > 0


@pytest.mark.parametrize("place", [0, 40_000])
def test_a_suspected_row_of_infinite_loss_changes_nothing(place):
    """At any position: neither the choice nor whether there is a bound depends on it."""
    X = np.random.default_rng(0).normal(size=(70_000, 3)).astype(np.float32)
    plain = np.delete(X, place, axis=0)
    X[place] = 3.4e38
    anchor = dm.Anchor([[-1.0, 0, 0], [1.0, 0, 0]], 0.1)
    asked = {"loss": dm.KMeansLoss(2), "anchor": anchor, "sampler": "sensitivity", "random_state": 0}
    core = dm.robust_coreset(X, size=500, n_outliers=1, suspects=1, **asked)
    other = dm.robust_coreset(plain, ids=np.delete(np.arange(70_000), place), size=499, **asked)
    np.testing.assert_array_equal(core.ids[~core.suspected], other.ids)


def test_bounds_are_of_the_points_given_whatever_the_anchor_froze():
    X = np.random.default_rng(0).normal(size=(2000, 2))
    loss, anchor = dm.KMeansLoss(1), dm.Anchor(np.zeros((1, 2)), 0.01)
    stale = dm.robust_coreset(X, loss=loss, size=50, anchor=anchor, sampler="sensitivity").anchor
    few = dm.points(X[:200] * 0.1)
    fresh = dm.SensitivitySampler().sensitivities(few, loss, anchor)
    np.testing.assert_allclose(dm.SensitivitySampler().sensitivities(few, loss, stale), fresh)
    assert fresh.sum() >= 1


@pytest.mark.parametrize("scale", [1e-80, 1e-40, 1e40, 1e80])
def test_sensitivities_do_not_see_the_unit_of_length(scale):
    X = np.random.default_rng(0).normal(size=(50, 2))
    plain, scaled = (
        dm.SensitivitySampler().sensitivities(
            dm.points(X * s), dm.KMeansLoss(1), dm.Anchor(np.zeros((1, 2)), 0.1 * s)
        )
        for s in (1.0, scale)
    )
    np.testing.assert_allclose(scaled, plain, rtol=1e-6)


def test_a_wrong_kind_and_a_loss_without_any_constant_are_refused():
    with pytest.raises(ValueError, match="kind='convex' must be one of auto, lipschitz, smooth, hessian"):
        dm.SensitivitySampler("convex")
    asked = {"loss": Absolute(), "size": 2, "anchor": dm.Anchor([0.0], 1.0), "sampler": "sensitivity"}
    with pytest.raises(dm.MissingPropertyError, match=r"Absolute.*LayeredSampler\(\) needs only values"):
        dm.robust_coreset(np.zeros((5, 1)), **asked)
