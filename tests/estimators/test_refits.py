"""forget and absorb, case by case: classes, distinct rows, sizes, ids and warnings."""

import pickle
import warnings

import numpy as np
import pytest
from scipy import sparse
from sklearn.exceptions import ConvergenceWarning

import duramen as dm
from tests.estimators.cases import CASE
from tests.estimators.test_forget_and_absorb import assert_same_coreset, assert_unchanged, fitted, state
from tests.estimators.test_size_and_arguments import Halves


@pytest.mark.slow
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


@pytest.mark.slow
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


@pytest.mark.slow
def test_classes_by_name():
    case = CASE["multinomial"]
    X, y, _ = case.data()
    names = np.array(["low", "middle", "high"], dtype=object)[y]
    model = fitted(case, X, names)
    twin = fitted(case, X, y)
    before = state(model)
    unknown = r"y holds the class 'other', but the model knows \['high', 'low', 'middle'\]; call fit"
    with pytest.raises(ValueError, match=unknown):
        model.absorb(X[:2], ["low", "other"])
    with pytest.raises(ValueError, match="the class 'middle' would be left; keep some, or fit again without"):
        model.forget(np.flatnonzero(names == "middle"))
    with pytest.raises(ValueError, match="several types, int and str"):
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


class OneStratum(dm.LeverageSampler):
    """A sampler that does not know of classes, so that it misses a rare one."""

    def strata(self, anchored):
        return np.zeros(len(anchored), dtype=int)


@pytest.mark.parametrize("sampler", [OneStratum(), "leverage"], ids=["one stratum", "by class"])
def test_a_class_that_the_coreset_would_lose_is_found_again(sampler):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(20_000, 2))
    y = rng.integers(2, size=20_000)
    X[y == 1, 0] += 4
    rare = np.arange(0, 20_000, 500)
    y[rare], X[rare, 1] = 2, 30 + rng.normal(size=40)
    settings = {"coreset_size": 60, "sampler": sampler, "C": 100, "updatable": True, "random_state": 0}
    model = dm.RobustLogisticRegression(0, **settings).fit(X, y)
    assert model.coreset_size_ == 60
    live = model.dynamic_
    unseen = np.setdiff1d(rare, model.coreset_.ids)
    model.forget(np.setdiff1d(rare, unseen[:1]))  # one of them is left, and it was not in the coreset
    assert set(np.unique(model.coreset_.y)) == {0, 1, 2}
    is_lost = sampler != "leverage"
    assert (model.coreset_size_ > 60) == (model.dynamic_ is not live) == is_lost
    assert_same_coreset(model.dynamic_.coreset(), model.coreset_)
    assert model.predict(X[unseen[:1]]) == [2]


def test_few_distinct_rows():
    X = np.repeat([[0.0, 0.0], [5.0, 5.0], [9.0, 0.0]], 50, axis=0)
    model = dm.RobustKMeans(3, n_outliers=0, updatable=True, random_state=0).fit(X)
    before = state(model)
    with pytest.raises(ValueError, match="k=3 is above the number of distinct points of positive weight, 2"):
        model.forget(np.arange(50))
    assert_unchanged(model, before)
    with pytest.warns(ConvergenceWarning, match="pass n_clusters=3 or less"):
        five = dm.RobustKMeans(5, n_outliers=0, updatable=True, random_state=0).fit(X)
    five.forget(np.arange(10))
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
        with pytest.raises(TypeError, match=r"needs dense rows, but X is sparse; pass X\.toarray\(\)"):
            model.fit(sparse.csr_array(X), y > 0)
    with pytest.raises(TypeError, match=r"Halves\(\) does not; use a built-in sampler or a RankedSampler"):
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


@pytest.mark.parametrize(
    ("settings", "message"),
    [({"max_iter": 1}, "max_iter"), ({}, "of the class 7: the model hardly")],
    ids=str,
)
def test_warnings_point_to_the_call(settings, message):
    X, y, _ = CASE["multinomial"].data()
    y[:3] = 7  # wherever they lie, the model does not expect them
    model = dm.RobustLogisticRegression(100, updatable=True, random_state=0, **settings)
    for call in (lambda: model.fit(X, y), lambda: model.forget([2]), lambda: model.absorb(X[4:5], y[4:5])):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            call()
        assert message in " ".join(str(one.message) for one in caught)
        assert {one.filename for one in caught} == {__file__}
