"""The estimators behave as scikit-learn's own do: its checks, its tools, its conventions."""

import io
import pickle
import warnings

import joblib
import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

import duramen as dm
from tests.estimators.cases import CASES

CHECKED = [
    dm.RobustLogisticRegression(),
    dm.RobustLinearRegression(),
    dm.RobustLinearRegression("huber"),
    dm.RobustLinearRegression("poisson"),
    dm.RobustKMeans(n_init=1),
    dm.RobustKMedians(n_init=1),
    dm.RobustBregmanClustering(n_init=1),
    dm.RobustBregmanClustering(divergence="kl", n_init=1),
    dm.TruthDiscovery(),
]  # n_init=1: the checks are about the interface, and fit hundreds of times; what more starts find is elsewhere


def known_failures(estimator):
    if getattr(estimator, "divergence", None) == "kl":
        return {"check_clustering": "its data are negative, and the kl divergence takes 0 or more"}
    return {}


@parametrize_with_checks(CHECKED, expected_failed_checks=known_failures)
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")  # of data with few distinct rows
@pytest.mark.filterwarnings("ignore:all rows of the class")  # of three rows, of which one is an outlier
def test_scikit_learns_own_checks(estimator, check):
    if check.func.__name__ == "check_array_api_input":
        pytest.skip("NumPy arrays are needed: scikit-learn runs this check only under SCIPY_ARRAY_API=1")
    check(estimator)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
class TestEveryEstimator:
    def test_clone_has_the_same_parameters_and_fits_alike(self, case):
        X, y, _ = case.data()
        one = case.fit(X, y, coreset_size=500)
        two = clone(one).fit(X, y)
        assert {**one.get_params(), "sampler": None} == {**two.get_params(), "sampler": None}
        np.testing.assert_array_equal(one.solution_.theta, two.solution_.theta)

    @pytest.mark.parametrize("through", ["pickle", "joblib"])
    def test_pickled_it_is_the_same(self, case, through):
        X, y, _ = case.data()
        one = case.fit(X, y, coreset_size=500)
        if through == "pickle":
            two = pickle.loads(pickle.dumps(one))
        else:
            file = io.BytesIO()
            joblib.dump(one, file)
            file.seek(0)
            two = joblib.load(file)
        np.testing.assert_array_equal(one.outliers_, two.outliers_)
        assert one.score(X, y) == two.score(X, y)
        assert one.objective_ == two.objective_
        np.testing.assert_array_equal(one.coreset_.ids, two.coreset_.ids)

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

    def test_cross_validation_and_grid_search(self, case):
        X, y, _ = case.data(n=1200)
        model = case.make(n_outliers=0.02, coreset_size=300, random_state=0)
        assert np.isfinite(cross_val_score(model, X, y, cv=3, n_jobs=1)).all()
        search = GridSearchCV(model, {"n_outliers": [0.0, 0.02]}, cv=3).fit(X, y)
        assert search.best_params_["n_outliers"] in (0.0, 0.02)
        assert len(search.best_estimator_.outliers_) == 1200 * search.best_params_["n_outliers"]

    def test_before_fit_nothing_is_predicted(self, case):
        X, y, _ = case.data(n=100)
        with pytest.raises(NotFittedError):
            case.make().score(X, y)

    def test_repr_names_what_was_set(self, case):
        assert "n_outliers=7" in repr(case.make(n_outliers=7))


def test_in_a_pipeline_weights_and_all():
    case = CASES[0]
    X, y, planted = case.data()
    weights = np.random.default_rng(1).random(len(X)) + 0.5
    model = make_pipeline(StandardScaler(), dm.RobustLogisticRegression(n_outliers=0.02, random_state=0))
    model.fit(X, y, robustlogisticregression__sample_weight=weights)
    assert model.score(X[~planted], y[~planted]) > 0.7  # 0.74 with the true coefficients
    assert model[-1].coreset_.total_weight == pytest.approx(weights.sum())


def test_clusterings_transform_and_name_their_features():
    X, _, _ = CASES[5].data()
    frame = pd.DataFrame(X, columns=list("abc"))
    model = dm.RobustKMeans(2, coreset_size=500, random_state=0).set_output(transform="pandas")
    distances = model.fit_transform(frame)
    assert distances.columns.tolist() == ["robustkmeans0", "robustkmeans1"]
    np.testing.assert_allclose(
        distances, np.linalg.norm(X[:, None] - model.cluster_centers_[None], axis=2), rtol=1e-9
    )
    np.testing.assert_array_equal(distances.to_numpy().argmin(axis=1), model.labels_)
    np.testing.assert_array_equal(model.predict(frame), model.labels_)
    median = dm.RobustKMedians(2, coreset_size=500, random_state=0).fit(X)
    np.testing.assert_allclose(
        median.transform(X), np.linalg.norm(X[:, None] - median.cluster_centers_[None], axis=2), rtol=1e-9
    )


@pytest.mark.parametrize("case", CASES[:5], ids=lambda case: case.name)
def test_sparse_rows_give_what_dense_ones_give(case):
    X, y, _ = case.data()
    X[np.abs(X) < 1] = 0
    dense, thin = (case.fit(rows, y, coreset_size=500) for rows in (X, sparse.csr_matrix(X)))
    np.testing.assert_allclose(thin.coef_, dense.coef_, rtol=1e-3, atol=1e-3)
    np.testing.assert_allclose(thin.predict(sparse.csr_array(X)[:100]), thin.predict(X[:100]))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_single_precision_is_kept(case):
    X, y, _ = case.data()
    model = case.fit(X.astype(np.float32), y, coreset_size=500)
    assert model.coreset_.X.dtype == np.float32
    assert model.trimmed_loss_ == pytest.approx(case.fit(X, y, coreset_size=500).trimmed_loss_, rel=0.01)


def test_fitting_in_threads_gives_what_fitting_alone_gives():
    X, y, _ = CASES[0].data()
    model = dm.RobustLogisticRegression(coreset_size=400, random_state=0)
    alone = model.fit(X, y).coef_
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = joblib.Parallel(n_jobs=2, backend="threading")(
            joblib.delayed(clone(model).fit)(X, y) for _ in range(4)
        )
    for one in found:
        np.testing.assert_array_equal(one.coef_, alone)
