"""The estimators behave as scikit-learn's own do: its checks, its tools, its conventions."""

import warnings

import joblib
import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

import duramen as dm
from tests.estimators.cases import CASE, CASES, every_case

QUICK = [dm.RobustLinearRegression(), dm.RobustKMeans(n_init=1)]
SLOW = [
    dm.RobustLogisticRegression(),
    dm.RobustLinearRegression("huber"),
    dm.RobustLinearRegression("poisson"),
    dm.RobustLinearRegression("quantile"),
    dm.RobustKMedians(n_init=1),
    dm.RobustBregmanClustering(n_init=1),
    dm.RobustBregmanClustering(divergence="kl", n_init=1),
    dm.TruthDiscovery(),
    dm.RobustLogisticRegression(updatable=True),
    dm.RobustLinearRegression(updatable=True),
    dm.RobustKMeans(n_init=1, updatable=True),
    dm.RobustKMedians(n_init=1, updatable=True),
    dm.RobustBregmanClustering(n_init=1, updatable=True),
    dm.TruthDiscovery(updatable=True),
]  # n_init=1: the checks are about the interface, and fit hundreds of times


def known_failures(estimator):
    if getattr(estimator, "divergence", None) == "kl":
        return {"check_clustering": "its data are negative, and the kl divergence takes 0 or more"}
    return {}


def run_check(estimator, check):
    if check.func.__name__ == "check_array_api_input":
        pytest.skip("NumPy arrays are needed: scikit-learn runs this check only under SCIPY_ARRAY_API=1")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # of data with few distinct rows
        warnings.filterwarnings("ignore", ".* set aside .* of the class")  # of few rows
        warnings.filterwarnings("ignore", "the model hardly explains the labels")  # which are random
        check(estimator)


@parametrize_with_checks(QUICK)
def test_scikit_learns_own_checks(estimator, check):
    run_check(estimator, check)


@pytest.mark.slow
@parametrize_with_checks(SLOW, expected_failed_checks=known_failures)
def test_scikit_learns_own_checks_of_the_others(estimator, check):
    run_check(estimator, check)


@every_case
class TestEveryEstimator:
    def test_feature_names_are_kept_and_their_order_is_insisted_on(self, case):
        X, y, _ = case.data()
        frame = pd.DataFrame(X, columns=["age", "height", "visits"])
        model = case.fit(frame, y, coreset_size=500)
        assert model.feature_names_in_.tolist() == ["age", "height", "visits"]
        assert model.coreset_.columns == ("age", "height", "visits")
        assert model.n_features_in_ == 3
        plain = case.fit(X, y, coreset_size=500)
        np.testing.assert_allclose(model.solution_.theta, plain.solution_.theta, rtol=1e-9, atol=1e-12)
        model.score(frame, y)
        with pytest.raises(ValueError, match=r"feature names.*\n?.*order|order.*feature names"):
            model.score(frame[["height", "age", "visits"]], y)
        with pytest.raises(ValueError, match=r"(?s)unseen.*weight"):
            model.score(frame.rename(columns={"age": "weight"}), y)
        with pytest.raises(ValueError, match=r"2 features.*expecting 3"):
            plain.score(X[:, :2], y)

    @pytest.mark.slow
    def test_cross_validation_and_grid_search(self, case):
        X, y, _ = case.data(n=1200)
        model = case.make(n_outliers=0.02, coreset_size=300, random_state=0)
        assert np.isfinite(cross_val_score(model, X, y, cv=3, n_jobs=1)).all()
        search = GridSearchCV(model, {"n_outliers": [0.0, 0.02]}, cv=3).fit(X, y)
        assert search.best_params_["n_outliers"] in (0.0, 0.02)
        assert len(search.best_estimator_.outliers_) == 1200 * search.best_params_["n_outliers"]


def test_in_a_pipeline_weights_and_all():
    case = CASE["logistic"]
    X, y, planted = case.data()
    weights = np.random.default_rng(1).random(len(X)) + 0.5
    model = make_pipeline(StandardScaler(), dm.RobustLogisticRegression(n_outliers=0.02, random_state=0))
    model.fit(X, y, robustlogisticregression__sample_weight=weights)
    assert model.score(X[~planted], y[~planted]) > 0.7  # 0.74 with the true coefficients
    assert model[-1].coreset_.total_weight == pytest.approx(weights.sum())


def assert_are_distances(found, X, model):
    np.testing.assert_allclose(found, np.linalg.norm(X[:, None] - model.cluster_centers_, axis=2), rtol=1e-9)


def test_clusterings_transform_and_name_their_features():
    X, _, _ = CASE["k-means"].data()
    frame = pd.DataFrame(X, columns=list("abc"))
    model = dm.RobustKMeans(2, coreset_size=500, random_state=0).set_output(transform="pandas")
    distances = model.fit_transform(frame)
    assert distances.columns.tolist() == ["robustkmeans0", "robustkmeans1"]
    assert_are_distances(distances, X, model)
    np.testing.assert_array_equal(distances.to_numpy().argmin(axis=1), model.labels_)
    np.testing.assert_array_equal(model.predict(frame), model.labels_)
    median = dm.RobustKMedians(2, coreset_size=500, random_state=0).fit(X)
    assert_are_distances(median.transform(X), X, median)


@pytest.mark.parametrize("case", CASES[:5], ids=lambda case: case.name)
def test_sparse_rows_give_what_dense_ones_give(case):
    X, y, _ = case.data()
    X[np.abs(X) < 1] = 0
    dense, thin = (case.fit(rows, y, coreset_size=500) for rows in (X, sparse.csr_matrix(X)))
    np.testing.assert_allclose(thin.coef_, dense.coef_, rtol=1e-3, atol=1e-3)
    np.testing.assert_allclose(thin.predict(sparse.csr_array(X)[:100]), thin.predict(X[:100]))


@every_case
def test_single_precision_is_kept(case):
    X, y, _ = case.data()
    model = case.fit(X.astype(np.float32), y, coreset_size=500)
    assert model.coreset_.X.dtype == np.float32
    assert model.trimmed_loss_ == pytest.approx(case.fit(X, y, coreset_size=500).trimmed_loss_, rel=0.01)


def test_fitting_in_threads_gives_what_fitting_alone_gives():
    X, y, _ = CASE["logistic"].data()
    model = dm.RobustLogisticRegression(coreset_size=400, random_state=0)
    alone = model.fit(X, y).coef_
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = joblib.Parallel(n_jobs=2, backend="threading")(
            joblib.delayed(clone(model).fit)(X, y) for _ in range(4)
        )
    for one in found:
        np.testing.assert_array_equal(one.coef_, alone)


@pytest.mark.parametrize("loss", ["squared", "huber", "quantile"])
def test_with_fewer_rows_than_columns_a_weight_is_as_many_copies(loss):
    rng = np.random.default_rng(0)
    X, y, weights = rng.random((9, 20)), rng.integers(0, 3, 9), np.array([3, 1, 2, 1, 0, 4, 1, 2, 3])
    copies = dm.RobustLinearRegression(loss, random_state=0).fit(X.repeat(weights, 0), y.repeat(weights))
    order = rng.permutation(9)
    model = clone(copies).fit(X[order], y[order], sample_weight=weights[order])
    np.testing.assert_allclose(model.predict(X), copies.predict(X), rtol=1e-9, atol=1e-9)


def test_labels_whose_squares_overflow_are_fitted():
    X, y = np.eye(3, 5), np.array([1e200, -1e200, 2e200])
    model = dm.RobustLinearRegression("quantile", random_state=0).fit(X, y)
    assert np.isfinite(model.predict(X)).all()
