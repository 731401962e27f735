"""Solving on a live coreset: from the last solution on, as good as from scratch; and the number of outliers."""

import warnings

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

import duramen as dm
from tests.dynamic.model import LOGISTIC, ROW, assert_same, every_engine, everywhere, live, rows
from tests.support import quietly

N = 3000
WIDE = dm.Anchor([1.0, 0.0, 0.0, 0.0], 9.0)  # a ball that no solution leaves


def filled(n=N, **settings):
    dyn = dm.DynamicCoreset(
        LOGISTIC, **{"size": 400, "n_outliers": 0.02, "random_state": 0, "anchor": WIDE, **settings}
    )
    dyn.insert(*rows(n))
    return dyn


@pytest.fixture(params=["solve", "fit"])
def solve(request):
    return dm.solve if request.param == "solve" else dm.DynamicCoreset.fit


@every_engine
def test_the_first_search_is_that_of_the_coreset(solve, engine):
    dyn = filled(engine=engine)
    assert dyn.solution is None
    solution, plain = solve(dyn), dm.solve(dyn.coreset())
    np.testing.assert_array_equal(solution.theta, plain.theta)
    np.testing.assert_array_equal(solution.outliers, plain.outliers)
    assert dyn.solution is solution


@every_engine
def test_the_next_starts_from_the_last_and_is_as_good(solve, engine):
    dyn = filled(engine=engine)
    last = solve(dyn)
    spent = cold = 0
    for step in range(5):
        dyn.delete(dyn.ids[step::50])
        dyn.insert(*rows(60, seed=10 + step))
        core = dyn.coreset()
        fresh, warm = dm.solve(core), solve(dyn)
        assert warm.history[0] == pytest.approx(core.objective(last.theta), rel=1e-9)
        assert warm.objective == pytest.approx(fresh.objective, rel=1e-3)
        assert dyn.solution is warm
        last, spent, cold = warm, spent + warm.n_iter, cold + fresh.n_iter
    assert spent < cold


def test_nothing_changed_and_nothing_is_left_to_do(solve):
    dyn = filled()
    first, again = solve(dyn, tol=1e-9), solve(dyn)
    assert again.n_iter <= 1
    assert again.objective == pytest.approx(first.objective, rel=1e-9)


def test_a_start_that_is_given_is_taken(solve):
    dyn = filled()
    solve(dyn)
    core, theta = dyn.coreset(), np.array([0.1, 0.2, 0.3, 0.4])
    assert solve(dyn, init=theta).history[0] == pytest.approx(core.objective(theta), rel=1e-9)
    assert solve(dyn, init="zero").history[0] == pytest.approx(core.objective(np.zeros(4)), rel=1e-9)
    several = solve(dyn, init="subsets", n_starts=3, random_state=0)
    assert len(several.start_objectives) >= 3
    assert dyn.solution is several


def test_settings_are_those_of_solve(solve):
    dyn = filled()
    plain, shrunken = solve(dyn), solve(dyn, l2=1000.0)
    assert np.linalg.norm(shrunken.theta[:3]) < np.linalg.norm(plain.theta[:3]) / 2
    assert solve(dyn, n_outliers=0).n_outliers == 0
    assert solve(dyn, loss=LOGISTIC).loss == LOGISTIC
    seen = []
    solve(dyn, callback=seen.append)
    assert seen
    kept = dyn.solution
    for wrong, kind in (
        ({"loss": dm.SmoothHingeLoss()}, ValueError),
        ({"n_starts": 0}, ValueError),
        ({"spam": 1}, TypeError),
    ):
        with pytest.raises(kind):
            solve(dyn, **wrong)
    assert dyn.solution is kept


@every_engine
def test_it_works_before_the_anchor(solve, engine):
    X, y = rows(36)
    dyn = live(36, engine=engine)
    assert dyn.anchor is None
    first = solve(dyn)
    plain = dm.solve(dm.points(X, y), LOGISTIC, 0.05)
    assert first.objective == pytest.approx(plain.objective, rel=1e-3)
    dyn.insert(rows(3, seed=3)[0], rows(3, seed=3)[1])
    assert solve(dyn).history[0] == pytest.approx(dyn.coreset().objective(first.theta), rel=1e-9)
    assert dyn.anchor_report().distance is None


def test_a_warm_start_survives_a_new_anchor(solve):
    dyn = filled()
    last = solve(dyn)
    dyn.reanchor(WIDE)
    assert dyn.solution is last
    assert solve(dyn).history[0] == pytest.approx(dyn.coreset().objective(last.theta), rel=1e-9)


@every_engine
def test_centres(solve, engine):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(2000, 2)) + 10 * rng.integers(3, size=(2000, 1))
    dyn = dm.DynamicCoreset(dm.KMeansLoss(3), 200, 0.01, engine=engine, random_state=0)
    dyn.insert(X)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # small samples make small radii
        first = solve(dyn, random_state=0)
        dyn.insert(X[:100] + 0.1)
        again = solve(dyn)
    assert again.history[0] == pytest.approx(dyn.coreset().objective(first.theta), rel=1e-9)
    assert again.objective == pytest.approx(
        dm.solve(dyn.coreset(), n_starts=3, random_state=0).objective, rel=1e-3
    )


def test_a_solution_without_a_minimum_warns_under_the_name_of_the_caller(solve):
    X = rows(20)[0]
    dyn = live(0, n_outliers=0)
    dyn.insert(X, np.where(X[:, 0] > 0, 1, -1))
    with pytest.warns(ConvergenceWarning, match="no minimum"):
        solve(dyn)


# z


@pytest.mark.parametrize("z", [0, 0.1, 12])
@everywhere
def test_a_count_stays_and_a_fraction_follows(z, n, engine):
    dyn = live(n, n_outliers=z, engine=engine)
    for _ in range(3):
        expected = z if z >= 1 else z * len(dyn)
        assert dyn.n_outliers == pytest.approx(expected)
        assert dyn.coreset().n_outliers == pytest.approx(expected)
        if dyn.anchor is not None:
            assert (dyn.n_suspected > 0) == (z > 0)
        dyn.delete(dyn.ids[::5])
        dyn.insert(ROW, 1, 5.0)
        dyn.delete(dyn.ids[-1])
    dyn.set_outliers(0.2)
    assert dyn.n_outliers == pytest.approx(0.2 * len(dyn)) == dyn.coreset().n_outliers
    dyn.set_outliers(np.float32(0.1))
    assert dyn.n_outliers == pytest.approx(0.1 * len(dyn), rel=1e-12)
    dyn.set_outliers(np.int64(3))
    dyn.insert(*rows(n, seed=1))
    assert dyn.n_outliers == 3 == dyn.coreset().n_outliers
    dyn.set_outliers(0)
    assert (dyn.n_suspected, dyn.threshold) == (0, np.inf)
    dyn.check_invariants()


@every_engine
def test_a_count_may_exceed_the_points_while_they_come(engine):
    X, y = rows()
    dyn = live(0, n_outliers=50, engine=engine)
    dyn.insert(X[:20], y[:20])
    core = dyn.coreset()
    assert (len(core), core.n_outliers, dyn.n_outliers) == (20, 50, 50)
    with pytest.raises(ValueError, match=r"n_outliers=50(\.0)? is not below the total weight 20"):
        dyn.fit()
    dyn.insert(X[20:], y[20:])
    assert_same(dyn, live(n_outliers=50, engine=engine))
    dyn.delete(dyn.ids[:-50])
    dyn.check_invariants()
    message = r"n_outliers=50(\.0)? is not below the total weight 50"
    for act in (dyn.coreset, dyn.reanchor):
        with pytest.raises(ValueError, match=message):
            act()
    dyn.set_outliers(10)
    assert dyn.coreset().n_outliers == 10


def as_good(dyn, loss):
    core, found = dyn.coreset(), quietly(dyn.fit, random_state=0)
    fresh = dm.solve(core.points, loss, n_outliers=core.n_outliers, random_state=0)
    assert found.objective <= 1.05 * fresh.objective


@every_engine
def test_a_solution_of_other_data_does_not_mislead(engine):
    rng, loss = np.random.default_rng(0), dm.KMeansLoss(4)
    centres = rng.normal(size=(2, 4, 2)) * 30
    old, new = (each[rng.integers(4, size=1200)] + rng.normal(size=(1200, 2)) for each in centres)
    dyn = dm.DynamicCoreset(loss, size=200, n_outliers=0.02, random_state=0, engine=engine)
    ids = dyn.insert(old)
    quietly(dyn.fit, random_state=0)
    for part in np.array_split(np.arange(1200), 3):
        dyn.insert(new[part])
        dyn.delete(ids[part])
        as_good(dyn, loss)


@every_engine
def test_a_solution_for_fewer_outliers_does_not_mislead(engine):
    X, y = rows(3000)
    X[:240], y[:240] = [-40.0, 3.0, 3.0], 1
    dyn = live(0, size=300, n_outliers=0, engine=engine)
    dyn.insert(X, y)
    quietly(dyn.fit, random_state=0)
    dyn.set_outliers(0.1)
    as_good(dyn, LOGISTIC)


@every_engine
def test_truth_discovery_is_solved_and_reported_on(engine):
    X = np.random.default_rng(0).normal(size=(400, 3)) * 0.3 + 50 * (np.arange(400) < 20)[:, None]
    dyn = dm.DynamicCoreset(dm.TruthDiscoveryLoss(), size=80, n_outliers=0.05, random_state=0, engine=engine)
    ids = dyn.insert(X)
    assert np.abs(quietly(dyn.fit).theta).max() < 0.3
    assert dyn.anchor_report().distance >= 0
    dyn.delete(ids[:200])
    assert quietly(dyn.fit).n_outliers == 10
    assert dyn.anchor_report().n_points == 200
