"""Rows go and come: the coreset is what building it anew would give, and a change that fails changes nothing."""

import pickle
import warnings

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.utils.estimator_checks import parametrize_with_checks

import duramen as dm
from duramen.estimators import base
from tests.estimators.cases import CASES
from tests.estimators.test_scikit_learn import known_failures
from tests.estimators.test_size_and_arguments import Halves

every = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
CASE = {case.name: case for case in CASES}

CHECKED = [
    dm.RobustLogisticRegression(updatable=True),
    dm.RobustLinearRegression(updatable=True),
    dm.RobustKMeans(updatable=True),
    dm.RobustKMedians(updatable=True),
    dm.RobustBregmanClustering(updatable=True),
    dm.TruthDiscovery(updatable=True),
]


def fitted(case, X, y, **settings):
    return case.fit(X, y, updatable=True, **{"coreset_size": 500, **settings})


def some(y, rows):
    return None if y is None else y[rows]


def assert_same_coreset(one, two):
    """Rows are chosen alike; weights agree but for the rounding of sums."""
    np.testing.assert_array_equal(one.ids, two.ids)
    np.testing.assert_allclose(one.weights, two.weights, rtol=1e-9 if one.X.dtype == np.float64 else 1e-6)
    np.testing.assert_array_equal(one.suspected, two.suspected)


def assert_is_a_fit_of(case, model, X, y, ids, weights=None, n_outliers=0.02):
    """All that is fitted is about these rows, as their ids name them."""
    np.testing.assert_array_equal(model.dynamic_.ids, ids)
    theta = model.solution_.theta
    losses = case.loss.values(theta, X, y)
    worst = np.lexsort((-ids, -losses))[: round(n_outliers * len(X))]
    if weights is None:
        np.testing.assert_array_equal(model.outliers_, ids[worst])
        assert model.threshold_ == pytest.approx(losses[worst[-1]])
    objective = dm.trimmed_objective(dm.points(X, y, weights), theta, loss=case.loss, n_outliers=n_outliers)
    assert model.trimmed_loss_ == pytest.approx(objective)
    assert model.objective_ == model.coreset_.estimate(theta)
    assert model.coreset_size_ == len(model.coreset_)
    assert_same_coreset(model.coreset_, model.dynamic_.coreset())
    assert model.dynamic_.solution is model.solution_
    if hasattr(model, "labels_"):
        np.testing.assert_array_equal(model.labels_, model.predict(X))


def rebuilt(case, model, X, y, ids, weights=None, n_outliers=0.02):
    return dm.robust_coreset(
        X,
        y,
        loss=case.loss,
        size=model.dynamic_.size,
        n_outliers=n_outliers,
        anchor=model.coreset_.anchor,
        sample_weight=weights,
        ids=ids,
        random_state=0,
    )


def state(model):
    """Take down all that a failure must leave as it was."""
    live = model.dynamic_
    core = live.coreset()
    return dict(vars(model)), live.ids, core.ids, core.weights, live.solution, live.anchor, live.n_outliers


def assert_unchanged(model, before):
    attributes, ids, rows, weights, *others = before
    assert list(vars(model)) == list(attributes)
    assert all(vars(model)[name] is value for name, value in attributes.items())
    live, core = model.dynamic_, model.dynamic_.coreset()
    np.testing.assert_array_equal(live.ids, ids)
    np.testing.assert_array_equal(core.ids, rows)
    np.testing.assert_array_equal(core.weights, weights)
    assert [live.solution, live.anchor, live.n_outliers] == others
    live.check_invariants()


@parametrize_with_checks(CHECKED, expected_failed_checks=known_failures)
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")  # of data with few distinct rows
@pytest.mark.filterwarnings("ignore:all rows of the class")  # of three rows, of which one is an outlier
def test_scikit_learns_own_checks(estimator, check):
    if check.func.__name__ == "check_array_api_input":
        pytest.skip("NumPy arrays are needed: scikit-learn runs this check only under SCIPY_ARRAY_API=1")
    check(estimator)


@every
class TestEveryEstimator:
    @pytest.mark.parametrize("dtype", [np.float64, np.float32])
    @pytest.mark.parametrize(
        ("n", "settings"),
        [
            (3000, {}),
            (3000, {"n_rounds": 1}),
            (3000, {"coreset_size": "auto"}),
            (200, {"coreset_size": "auto"}),
            (3000, {"sampler": "uniform", "coreset_size": 300}),
        ],
        ids=str,
    )
    def test_what_is_kept_gives_the_coreset_of_the_fit(self, case, n, settings, dtype):
        X, y, _ = case.data(n=n)
        X = X.astype(dtype)
        model = fitted(case, X, y, **settings)
        assert_same_coreset(model.dynamic_.coreset(), model.coreset_)
        plain = case.fit(X, y, **{"coreset_size": 500, **settings})
        np.testing.assert_array_equal(model.solution_.theta, plain.solution_.theta)
        np.testing.assert_array_equal(model.outliers_, plain.outliers_)
        assert not hasattr(plain, "dynamic_")
        report = model.dynamic_.anchor_report
        assert case.name == "truth" or report().n_late == 0

    def test_forgotten_rows_leave_no_trace_in_the_coreset(self, case):
        X, y, planted = case.data()
        model = fitted(case, X, y)
        gone = np.concatenate([np.flatnonzero(planted)[:30], model.coreset_.ids[:100], [7, 2999]])
        gone = np.unique(gone)
        left = np.setdiff1d(np.arange(3000), gone)
        anchor = model.coreset_.anchor
        assert model.forget(gone[::-1]) is model
        assert_same_coreset(model.coreset_, rebuilt(case, model, X[left], some(y, left), left))
        assert dm.dynamic.anchoring.same_anchor(model.coreset_.anchor, anchor)
        assert_is_a_fit_of(case, model, X[left], some(y, left), left)

    def test_rows_that_are_absorbed_are_as_good_as_there_from_the_start(self, case):
        X, y, _ = case.data(n=3600)
        model = fitted(case, X[:3000], some(y, slice(3000)))
        assert model.absorb(X[3000:3400], some(y, slice(3000, 3400))) is model
        np.testing.assert_array_equal(model.absorbed_ids_, np.arange(3000, 3400))
        model.absorb(X[3400:], some(y, slice(3400, None)))
        np.testing.assert_array_equal(model.absorbed_ids_, np.arange(3400, 3600))
        assert_same_coreset(model.coreset_, rebuilt(case, model, X, y, np.arange(3600)))
        assert_is_a_fit_of(case, model, X, y, np.arange(3600))
        assert model.trimmed_loss_ < 1.03 * case.fit(X, y, coreset_size=500).trimmed_loss_

    def test_to_absorb_and_forget_again_is_to_do_nothing(self, case):
        X, y, _ = case.data(n=3100)
        model = fitted(case, X[:3000], some(y, slice(3000)))
        before = model.coreset_, model.solution_.theta, model.trimmed_loss_
        model.absorb(X[3000:], some(y, slice(3000, None))).forget(model.absorbed_ids_)
        assert_same_coreset(model.coreset_, before[0])
        assert model.trimmed_loss_ == pytest.approx(before[2], rel=0.01)

    def test_weights_and_rows_without_any(self, case):
        X, y, _ = case.data(n=2200)
        weights = np.random.default_rng(1).integers(0, 3, size=2200).astype(float)
        weights[[0, 1999, 2000, 2199]] = 0
        model = fitted(case, X[:2000], some(y, slice(2000)), sample_weight=weights[:2000])
        model.absorb(X[2000:], some(y, slice(2000, None)), weights[2000:])
        np.testing.assert_array_equal(model.absorbed_ids_, np.arange(2000, 2200))
        live = np.flatnonzero(weights)
        assert_same_coreset(model.coreset_, rebuilt(case, model, X[live], some(y, live), live, weights[live]))
        gone = live[::7]
        model.forget(gone)
        left = np.setdiff1d(live, gone)
        core = rebuilt(case, model, X[left], some(y, left), left, weights[left])
        assert_same_coreset(model.coreset_, core)
        assert_is_a_fit_of(case, model, X[left], some(y, left), left, weights[left])
        with pytest.raises(KeyError, match="id 2199 is not here"):
            model.forget(2199)
        model.absorb(X[:1], some(y, slice(1)))
        assert model.absorbed_ids_ == [2200]

    def test_everything_is_kept_where_everything_was_fitted_on(self, case):
        X, y, _ = case.data(n=800, share=0.01)  # fewer than are set aside, whichever rows are taken
        model = fitted(case, X[:700], some(y, slice(700)), coreset_size=None)
        model.forget(np.arange(100)).absorb(X[700:], some(y, slice(700, None)))
        assert model.coreset_ is None
        assert model.coreset_size_ == 700
        assert model.objective_.std_error == 0
        rest = np.arange(100, 800)
        np.testing.assert_array_equal(model.dynamic_.coreset().ids, rest)
        found = case.fit(X[rest], some(y, rest), coreset_size=None)
        assert model.trimmed_loss_ <= 1.05 * found.trimmed_loss_

    def test_few_rows_are_all_kept_until_they_are_many(self, case):
        X, y, _ = case.data(n=900)
        model = fitted(case, X[:300], some(y, slice(300)))
        first = model.dynamic_
        model.forget(np.arange(20)).absorb(X[300:500], some(y, slice(300, 500)))
        assert model.coreset_size_ == 480
        assert model.dynamic_ is first
        model.absorb(X[500:], some(y, slice(500, None)))
        assert model.dynamic_ is not first
        left = np.arange(20, 900)
        assert_is_a_fit_of(case, model, X[left], some(y, left), left, n_outliers=0.02)
        anew = case.fit(
            X, y, coreset_size=500, sample_weight=(np.arange(900) >= 20).astype(float)
        )  # as if the model had been fitted to these rows
        assert_same_coreset(model.coreset_, anew.coreset_)
        np.testing.assert_allclose(model.solution_.theta, anew.solution_.theta)

    def test_a_failure_changes_nothing(self, case, monkeypatch):
        X, y, _ = case.data()
        model = fitted(case, pd.DataFrame(X, columns=list("abc")), y)
        before = state(model)
        bad = X[:5].copy()
        bad[3, 1] = np.nan
        new = pd.DataFrame(X[:5], columns=list("abc"))
        with pytest.raises(ValueError, match="NaN in row 3, column 1"):
            model.absorb(pd.DataFrame(bad, columns=list("abc")), some(y, slice(5)))
        with pytest.raises(ValueError, match="feature names"):
            model.absorb(new[["b", "a", "c"]], some(y, slice(5)))
        with pytest.raises(ValueError, match=r"(?i)weight"):
            model.absorb(new, some(y, slice(5)), sample_weight=-np.ones(5))
        with pytest.raises(KeyError, match="id 3000 is not here; it was deleted or never inserted"):
            model.forget([5, 3000])
        with pytest.raises(ValueError, match="distinct"):
            model.forget([5, 5])
        with pytest.raises(ValueError, match="no rows would be left"):
            model.forget(np.arange(3000))
        assert_unchanged(model, before)

        def failing(*_):
            raise KeyboardInterrupt

        monkeypatch.setattr(base, "refit", failing)
        for change in (
            lambda: model.forget(np.arange(0, 3000, 3)),
            lambda: model.absorb(new, some(y, slice(5))),
        ):
            with pytest.raises(KeyboardInterrupt):
                change()
            assert_unchanged(model, before)
        monkeypatch.undo()
        monkeypatch.setattr(type(model), "_say", failing)  # when all but this is done
        for change in (lambda: model.forget([5]), lambda: model.absorb(new, some(y, slice(5)))):
            with pytest.raises(KeyboardInterrupt):
                change()
            assert_unchanged(model, before)
        monkeypatch.undo()
        model.absorb(new, some(y, slice(5)))
        np.testing.assert_array_equal(model.absorbed_ids_, np.arange(3000, 3005))
        assert model.coreset_.columns == ("a", "b", "c")

    def test_without_rows_kept_it_says_what_to_do(self, case):
        X, y, _ = case.data(n=300)
        for change in (lambda model: model.forget([0]), lambda model: model.absorb(X, y)):
            with pytest.raises(NotFittedError):
                change(case.make(updatable=True))
            with pytest.raises(ValueError, match=r"fitted with updatable=False.* set updatable=True and fit"):
                change(case.fit(X, y))

    def test_pickled_and_cloned(self, case):
        X, y, _ = case.data()
        model = fitted(case, X, y)
        twin = pickle.loads(pickle.dumps(model))
        fresh = clone(model)
        assert fresh.updatable is True
        assert not hasattr(fresh, "dynamic_")
        for one in (model, twin, fresh.fit(X, y)):
            one.forget(np.arange(500))
        for one in (twin, fresh):
            np.testing.assert_array_equal(one.coreset_.weights, model.coreset_.weights)
            np.testing.assert_array_equal(one.solution_.theta, model.solution_.theta)

    def test_a_fit_starts_over(self, case):
        X, y, _ = case.data(n=1000)
        model = fitted(case, X, y)
        model.forget([0, 1]).absorb(X[:2], some(y, slice(2)))
        model.fit(X, y)
        np.testing.assert_array_equal(model.dynamic_.ids, np.arange(1000))
        assert not hasattr(model, "absorbed_ids_")
        model.set_params(updatable=False).fit(X, y)
        assert not hasattr(model, "dynamic_")

    def test_settings_changed_after_a_fit_wait_for_the_next(self, case):
        X, y, _ = case.data()
        one, two = fitted(case, X, y), fitted(case, X, y)
        two.set_params(n_outliers=0.3, n_init=3, random_state=99, coreset_size=100, sampler="uniform")
        for name in ("C", "alpha", "fit_intercept", "n_clusters", "scale"):
            if name in two.get_params():
                two.set_params(**{name: 7.0})
        two.dynamic_.set_outliers(5)
        for model in (one, two):
            model.forget([3]).absorb(X[3:4], some(y, slice(3, 4)))
        np.testing.assert_allclose(one.solution_.theta, two.solution_.theta, rtol=1e-4)
        assert len(one.outliers_) == len(two.outliers_) == 60
        assert one.trimmed_loss_ == pytest.approx(two.trimmed_loss_)

    def test_after_a_new_anchor_to_forget_nobody_is_to_fit_again(self, case):
        X, y, _ = case.data()
        model = fitted(case, X, y).forget(np.arange(300))
        model.dynamic_.reanchor()
        model.forget([])
        assert model.coreset_.anchor is model.dynamic_.anchor
        left = np.arange(300, 3000)
        assert_same_coreset(model.coreset_, rebuilt(case, model, X[left], some(y, left), left))
        assert_is_a_fit_of(case, model, X[left], some(y, left), left)


def test_a_model_that_was_misled_recovers():
    """2.7% of the first rows are planted, and 2% are set aside; of all rows they are 1.3%."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60_000, 2))
    y = X[:, 0] + rng.logistic(size=60_000) > 0
    X[:800, 0], y[:800] = 40, False
    start = dm.RobustLogisticRegression(0.02, updatable=True, random_state=0).fit(X[:30_000], y[:30_000])
    assert start.coef_[0, 0] < 0.1
    more = pickle.loads(pickle.dumps(start)).absorb(X[30_000:], y[30_000:])
    fewer = start.forget(np.arange(400))
    for model in (more, fewer):
        assert model.coef_[0, 0] == pytest.approx(1, abs=0.15)
    assert np.isin(np.arange(800), more.outliers_).all()
    assert np.isin(np.arange(400, 800), fewer.outliers_).all()


def test_single_precision_stays():
    case = CASE["squared"]
    X, y, _ = case.data()
    model = fitted(case, X.astype(np.float32), y).absorb(X, y)
    assert model.coreset_.X.dtype == np.float32
    with pytest.raises(ValueError, match="X as float32 has inf in row 1"):
        model.absorb([[0.0, 0.0, 0.0], [0.0, 1e50, 0.0]], [0.0, 0.0])


def test_scales_stay_those_of_the_fit():
    X, y, _ = CASE["huber"].data()
    huber = dm.RobustLinearRegression("huber", updatable=True, random_state=0).fit(X, y)
    delta = huber.delta_
    assert huber.absorb(X, 10 * y).delta_ == delta
    truth = dm.TruthDiscovery(updatable=True, coreset_size=300, random_state=0).fit(5 * X)
    scale, units = truth.scale_, truth.losses(5 * X[:9])
    truth.forget(np.arange(500)).absorb(5 * X[:500])
    assert truth.scale_ == scale
    np.testing.assert_allclose(truth.losses(5 * X[:9]), units, rtol=0.2)
    assert len(truth.outliers_) == 60


def test_classes_by_name():
    case = CASE["multinomial"]
    X, y, _ = case.data()
    names = np.array(["low", "middle", "high"], dtype=object)[y]
    model = fitted(case, X, names)
    twin = fitted(case, X, y)
    before = state(model)
    with pytest.raises(
        ValueError, match=r"y holds the class 'other', and the model knows \['high', 'low', 'middle'\]; fit"
    ):
        model.absorb(X[:2], ["low", "other"])
    with pytest.raises(ValueError, match="the class 'middle' would be left; keep some, or fit again without"):
        model.forget(np.flatnonzero(names == "middle"))
    with pytest.raises(ValueError, match="several kinds, int and str"):
        model.absorb(X[:2], np.array(["low", 1], dtype=object))
    with pytest.raises(ValueError, match="requires y"):
        model.absorb(X[:2])
    assert_unchanged(model, before)
    model.absorb(X[:9], names[:9]).forget(np.arange(9))
    twin.absorb(X[:9], y[:9]).forget(np.arange(9))
    assert model.score(X, names) == pytest.approx(twin.score(X, y), abs=0.01)


def test_two_classes_of_which_one_would_be_too_light():
    X, y, _ = CASE["logistic"].data()
    model = fitted(CASE["logistic"], X, y, n_outliers=100)
    before = state(model)
    ones = np.flatnonzero(y == 1)
    with pytest.raises(ValueError, match=r"n_outliers=100 could set aside the whole class 1, of weight 90"):
        model.forget(ones[90:])
    with pytest.raises(ValueError, match="no rows of the class 1 would be left"):
        model.forget(ones)
    share = fitted(CASE["logistic"], X, y, n_outliers=0.3)
    with pytest.raises(ValueError, match=r"n_outliers=0\.3 could set aside the whole class 1"):
        share.absorb(np.tile(X[y == 0], (3, 1)), np.zeros(3 * (y == 0).sum(), dtype=int))
    assert_unchanged(model, before)


def test_a_class_that_the_coreset_would_lose_is_looked_for_anew():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(20_000, 2))
    y = rng.integers(2, size=20_000)
    X[y == 1, 0] += 4
    rare = np.arange(0, 20_000, 500)
    y[rare], X[rare, 1] = 2, 30 + rng.normal(size=40)
    model = dm.RobustLogisticRegression(0, coreset_size=60, C=100, updatable=True, random_state=0).fit(X, y)
    assert model.coreset_size_ == 60
    live = model.dynamic_
    unseen = np.setdiff1d(rare, model.coreset_.ids)
    model.forget(np.setdiff1d(rare, unseen[:1]))  # one of them is left, and it was not in the coreset
    assert set(np.unique(model.coreset_.y)) == {0, 1, 2}
    assert model.coreset_size_ > 60
    assert model.dynamic_ is not live
    assert_same_coreset(model.dynamic_.coreset(), model.coreset_)
    assert model.predict(X[unseen[:1]]) == [2]


def test_few_distinct_rows():
    X = np.repeat([[0.0, 0.0], [5.0, 5.0], [9.0, 0.0]], 50, axis=0)
    model = dm.RobustKMeans(3, n_outliers=0, updatable=True, random_state=0).fit(X)
    before = state(model)
    with pytest.raises(
        ValueError, match=r"2 distinct rows would be left for 3 clusters; .*n_clusters=2 or less"
    ):
        model.forget(np.arange(50))
    assert_unchanged(model, before)
    with pytest.warns(ConvergenceWarning, match="take n_clusters=3 or less"):
        five = dm.RobustKMeans(5, n_outliers=0, updatable=True, random_state=0).fit(X)
    five.forget(np.arange(10))
    assert five.cluster_centers_.shape == (5, 2)
    with pytest.warns(ConvergenceWarning, match=r"n_clusters=5 was above .* it has 3 clusters.* fit again"):
        five.absorb([[50.0, 50.0]])
    assert five.cluster_centers_.shape == (5, 2)


def test_too_few_rows_for_the_outliers():
    X, _, _ = CASE["k-means"].data()
    model = fitted(CASE["k-means"], X, None, n_outliers=60)
    before = state(model)
    with pytest.raises(ValueError, match="n_outliers=60 is not below the total weight 60"):
        model.forget(np.arange(60, 3000))
    assert_unchanged(model, before)
    assert len(model.forget(np.arange(100, 3000)).outliers_) == 60


def test_a_size_by_error_bars_grows_with_the_error():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(20_000, 2))
    model = dm.RobustKMeans(1, n_outliers=0, sampler="uniform", tol=0.03, updatable=True, random_state=0)
    model.fit(X)
    assert model.coreset_size_ == 1000
    live = model.dynamic_
    model.absorb(rng.normal(size=(1000, 2)))
    assert model.dynamic_ is live
    assert [trial.size for trial in model.size_trials_] == [1000]
    model.absorb(rng.standard_t(2.2, size=(5000, 2)))
    assert model.dynamic_ is not live
    assert model.coreset_size_ > 1000
    assert model.size_trials_[-1].relative_error < 0.03 or model.coreset_size_ == 26_000
    np.testing.assert_array_equal(model.dynamic_.ids, np.arange(26_000))


def test_what_cannot_be_kept_is_refused():
    X, y, _ = CASE["squared"].data(n=300)
    for model in (dm.RobustLinearRegression(updatable=True), dm.RobustLogisticRegression(updatable=True)):
        with pytest.raises(TypeError, match=r"keeps dense rows, and X is sparse; pass X\.toarray\(\)"):
            model.fit(sparse.csr_array(X), y > 0)
    with pytest.raises(TypeError, match=r"Halves\(\) does not; take one of ours, make it a RankedSampler"):
        dm.RobustKMeans(2, sampler=Halves(), coreset_size=50, updatable=True).fit(X)
    with pytest.raises(TypeError, match="updatable='yes' must be True or False"):
        dm.RobustKMeans(2, updatable="yes").fit(X)
    model = dm.RobustLinearRegression(updatable=True).fit(X, y)
    with pytest.raises(TypeError, match=r"(?i)sparse"):
        model.absorb(sparse.csr_array(X), y)
    assert model.predict(sparse.csr_array(X)).shape == (300,)


def test_rows_that_the_user_put_in_are_reckoned_with():
    X, _, _ = CASE["k-means"].data()
    model = fitted(CASE["k-means"], X[:2000], None)
    model.dynamic_.insert(X[2000:2010])
    model.absorb(X[2010:2020])
    np.testing.assert_array_equal(model.absorbed_ids_, np.arange(2010, 2020))
    np.testing.assert_array_equal(model.dynamic_.ids, np.arange(2020))
    assert len(model.labels_) == 2020


def test_labels_are_in_the_order_of_the_ids():
    X, _, _ = CASE["k-means"].data()
    model = fitted(CASE["k-means"], X, None).forget([0, 5, 2999])
    left = np.setdiff1d(np.arange(3000), [0, 5, 2999])
    np.testing.assert_array_equal(model.labels_, model.predict(X[left]))
    assert model.inertia_ == model.trimmed_loss_


@pytest.mark.parametrize(
    ("settings", "message"), [({"max_iter": 1}, "max_iter"), ({}, "class 7 were set aside")], ids=str
)
def test_warnings_point_to_the_call(settings, message):
    X, y, _ = CASE["multinomial"].data()
    y[:3] = 7  # wherever they lie, nobody would expect them
    model = dm.RobustLogisticRegression(100, updatable=True, random_state=0, **settings)
    for call in (
        lambda: model.fit(X, y),
        lambda: model.forget([2]),
        lambda: model.absorb(X[4:5], y[4:5]),
    ):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            call()
        assert message in " ".join(str(one.message) for one in caught)
        assert {one.filename for one in caught} == {__file__}
