"""Laws over every estimator: it is robust_coreset and solve, and nothing but those."""

import numpy as np
import pytest
from sklearn.cluster import KMeans
from sklearn.linear_model import LinearRegression, LogisticRegression, PoissonRegressor, Ridge

import duramen as dm
from duramen.estimators import regression
from tests.estimators.cases import CASE, CASES, LEARNED, every_case, every_default, take


@pytest.mark.parametrize("case", CASES + LEARNED, ids=lambda case: case.name)
def test_it_is_a_coreset_and_a_solution_of_it(case):
    X, y, _ = case.data()
    model = case.fit(X, y, coreset_size=600, n_rounds=1, random_state=7)
    core = dm.robust_coreset(X, y, loss=case.loss, size=600, n_outliers=case.share, random_state=7)
    np.testing.assert_array_equal(model.coreset_.ids, core.ids)
    np.testing.assert_array_equal(model.coreset_.weights, core.weights)
    theta = model.solution_.theta
    best = core.objective(dm.solve(core, l2=case.l2).theta)
    assert model.solution_.objective <= best * 1.001 + case.l2 * 1000
    assert model.objective_ == core.estimate(theta)
    assert model.coreset_size_ == 600


def test_the_table_has_every_loss_of_a_regression():
    assert {type(case.loss) for case in CASES} >= set(regression._LOSSES.values())


@every_default
def test_on_everything_it_is_the_solution_on_all_points(case):
    X, y, _ = case.data(n=800)
    model = case.fit(X, y, coreset_size=None)
    assert model.coreset_ is None
    assert model.coreset_size_ == 800
    points = dm.points(X, y)
    found = dm.trimmed_objective(
        points, model.solution_.theta, loss=model.solution_.loss, n_outliers=case.share
    )
    assert model.objective_.value == pytest.approx(found)
    assert model.objective_.std_error == 0
    full = dm.solve(points, case.loss, case.share, l2=case.l2, n_starts=model.n_init, random_state=0)
    assert model.solution_.objective <= full.objective * (1 + 1e-9)


@every_case
def test_outliers_are_the_rows_that_cost_most(case):
    X, y, _ = case.data()
    model = case.fit(X, y, coreset_size=500, n_outliers=60)
    losses = case.loss.values(model.solution_.theta, X, y)
    worst = np.lexsort((-np.arange(len(X)), -losses))[:60]
    np.testing.assert_array_equal(model.outliers_, worst)
    assert model.threshold_ == losses[worst[-1]]
    assert model.trimmed_loss_ == pytest.approx(np.delete(losses, worst).sum())
    np.testing.assert_allclose(model.losses(X) if y is None else model.losses(X, y), losses, rtol=1e-9)


@every_case
def test_planted_rows_do_no_harm(case):
    X, y, planted = case.data(n=6000)
    rows, labels = X[~planted], take(y, ~planted)
    clean = case.fit(rows, labels, n_outliers=0, coreset_size=None)
    losses = case.loss.values(clean.solution_.theta, X, y)
    harmful = planted & (losses > np.quantile(losses[~planted], 0.999))
    assert harmful.sum() > 30
    model = case.fit(X, y, n_outliers=int(harmful.sum()), coreset_size=1500)
    ours, best = (case.loss.values(one.solution_.theta, rows, labels).sum() for one in (model, clean))
    assert ours < 1.05 * best
    assert np.isin(np.flatnonzero(harmful), model.outliers_).mean() > 0.9


@every_default
def test_weight_is_copies_and_zero_is_absent(case):
    X, y, _ = case.data(n=300)
    weights = np.random.default_rng(3).integers(0, 4, size=300)
    copies = np.repeat(np.arange(300), weights)
    heavy = case.fit(X, y, sample_weight=weights, coreset_size=None)
    many = case.fit(X[copies], take(y, copies), coreset_size=None)
    assert heavy.solution_.objective == pytest.approx(many.solution_.objective, rel=1e-6)
    if case.share:
        one, two = (np.sort(model.solution_.theta, axis=0) for model in (heavy, many))
        np.testing.assert_allclose(one, two, rtol=1e-4, atol=1e-4)
    else:  # some shares of noise hardly matter
        np.testing.assert_allclose(heavy.losses(X, y), many.losses(X, y), rtol=1e-4, atol=1e-4)
    assert set(heavy.outliers_) == set(copies[many.outliers_])


@every_default
def test_a_seed_decides_everything_and_rounds_and_sizes_draw_the_same_rows(case):
    X, y, _ = case.data()
    one, two = (case.fit(X, y, coreset_size=400, random_state=5) for _ in range(2))
    np.testing.assert_array_equal(one.solution_.theta, two.solution_.theta)
    generators = [
        case.fit(X, y, coreset_size=400, random_state=make(5)).solution_.theta
        for make in (np.random.default_rng, np.random.default_rng, np.random.RandomState)
    ]
    np.testing.assert_array_equal(generators[0], generators[1])
    rounds = case.fit(X, y, coreset_size=400, random_state=5, n_rounds=2)
    assert np.isin(rounds.coreset_.ids, one.coreset_.ids).mean() > 0.4  # scores change with the anchor


@pytest.mark.parametrize(
    "name, fit_intercept", [("logistic", True), ("multinomial", True), ("multinomial", False)]
)
def test_without_outliers_on_everything_it_is_scikit_learns_logistic_regression(name, fit_intercept):
    X, y, _ = CASE[name].data(share=0)
    ours = dm.RobustLogisticRegression(0, C=0.3, coreset_size=None, fit_intercept=fit_intercept).fit(X, y)
    theirs = LogisticRegression(C=0.3, tol=1e-10, max_iter=5000, fit_intercept=fit_intercept).fit(X, y)
    assert ours.coef_.shape == theirs.coef_.shape
    two = name == "logistic"
    rtol, atol = (1e-4, 1e-5) if two else (1e-3, 1e-4)
    np.testing.assert_allclose(ours.coef_, theirs.coef_, rtol=rtol, atol=atol)
    np.testing.assert_allclose(ours.predict_proba(X), theirs.predict_proba(X), atol=1e-4)
    np.testing.assert_array_equal(ours.predict(X), theirs.predict(X))
    assert ours.decision_function(X).shape == theirs.decision_function(X).shape
    if two:
        np.testing.assert_allclose(ours.intercept_, theirs.intercept_, rtol=1e-3, atol=1e-4)
        np.testing.assert_allclose(ours.decision_function(X), theirs.decision_function(X), atol=1e-3)
        np.testing.assert_allclose(ours.predict_log_proba(X), theirs.predict_log_proba(X), atol=1e-3)


# the losses of PoissonRegressor are averaged, over 3,000 rows
PEERS = [
    ("squared", 0.0, LinearRegression(), 1e-6),
    ("squared", 5.0, Ridge(alpha=5.0), 1e-6),
    ("poisson", 300.0, PoissonRegressor(alpha=0.1, tol=1e-10, max_iter=1000), 1e-3),
]


@pytest.mark.parametrize("name, alpha, theirs, rtol", PEERS, ids=str)
def test_without_outliers_on_everything_it_is_scikit_learns_regression(name, alpha, theirs, rtol):
    X, y, _ = CASE[name].data(share=0)
    ours = dm.RobustLinearRegression(name, n_outliers=0, alpha=alpha, coreset_size=None).fit(X, y)
    theirs.fit(X, y)
    np.testing.assert_allclose(ours.coef_, theirs.coef_, rtol=rtol)
    assert ours.intercept_ == pytest.approx(theirs.intercept_, rel=rtol)
    np.testing.assert_allclose(ours.predict(X), theirs.predict(X), rtol=rtol, atol=1e-6)
    assert ours.score(X, y) == pytest.approx(theirs.score(X, y), rel=rtol / 10)


@pytest.mark.slow
def test_without_outliers_on_everything_it_is_as_good_as_scikit_learns_k_means():
    X, _, _ = CASES[5].data(share=0)
    ours = dm.RobustKMeans(6, n_outliers=0, coreset_size=None, random_state=0).fit(X)
    theirs = KMeans(6, n_init=20, random_state=0).fit(X)
    assert ours.inertia_ <= 1.01 * theirs.inertia_
    assert ours.score(X) == pytest.approx(-ours.inertia_)


def test_the_huber_delta_is_in_units_of_the_residuals():
    X, y, _ = CASES[3].data(n=20_000)
    one = dm.RobustLinearRegression("huber", n_outliers=0.03, random_state=0).fit(X, y)
    thousand = dm.RobustLinearRegression("huber", n_outliers=0.03, random_state=0).fit(X, 1000 * y)
    assert one.delta_ == pytest.approx(1.35 * 0.3, rel=0.1)
    assert thousand.delta_ == pytest.approx(1000 * one.delta_, rel=0.01)
    np.testing.assert_allclose(thousand.coef_, 1000 * one.coef_, rtol=0.02, atol=10)


def test_truth_is_found_in_any_units_and_liars_are_not_believed():
    rng = np.random.default_rng(0)
    claims = rng.normal([3.0, -2.0], size=(5000, 2))
    claims[:1000] = [40.0, 40.0]
    small = dm.TruthDiscovery(0.2, random_state=0).fit(claims)
    large = dm.TruthDiscovery(0.2, random_state=0).fit(1000 * claims)
    np.testing.assert_allclose(small.truth_, [3, -2], atol=0.1)
    np.testing.assert_allclose(large.truth_, 1000 * small.truth_, rtol=1e-3)
    assert large.scale_ == pytest.approx(1000 * small.scale_)
    assert set(small.outliers_) == set(range(1000))
    trust = small.reliability([[3.0, -2.0], [3.0 + 2 * small.scale_, -2.0], [40.0, 40.0]])
    np.testing.assert_allclose(trust, [1, 0.25, 0], atol=0.1)
    assert small.score(claims[1000:]) > small.score(claims[1000:] + 1)
