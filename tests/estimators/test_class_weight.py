"""class_weight multiplies sample weights, with the meaning that it has in scikit-learn."""

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.utils.class_weight import compute_sample_weight

import duramen as dm
from tests.estimators.test_out_of_core import assert_same, given

NAMES = np.array(["ape", "bee", "cat"])
ASKED = ["balanced", {"ape": 0.5, "bee": 3.0}]


def rows(n=1500, k=3, seed=0):
    """Make rows of which a third are in the first class and few in the last, with weights."""
    rng = np.random.default_rng(seed)
    y = rng.choice(k, p=np.array([0.6, 0.32, 0.08])[:k] / sum([0.6, 0.32, 0.08][:k]), size=n)
    X = rng.normal(size=(n, 3)) + 1.5 * np.eye(3)[y]
    return X, NAMES[y], rng.integers(1, 4, size=n).astype(float)


def factors(asked, y, weights=None):
    """Compute the factor of each row as scikit-learn does, by weight."""
    if asked == "balanced" and weights is not None:
        totals = {name: weights[y == name].sum() for name in np.unique(y)}
        return np.array([weights.sum() / (len(totals) * totals[name]) for name in y])
    return compute_sample_weight(asked if asked == "balanced" else dict.fromkeys(NAMES, 1.0) | asked, y)


@pytest.mark.parametrize("asked", ASKED, ids=["balanced", "dict"])
@pytest.mark.parametrize("k", [2, 3])
def test_scikit_learn_finds_the_same_coefficients(k, asked):
    X, y, _ = rows(k=k)
    model = dm.RobustLogisticRegression(0, coreset_size=None, class_weight=asked, tol=1e-6).fit(X, y)
    theirs = LogisticRegression(class_weight=asked, tol=1e-10, max_iter=5000).fit(X, y)
    np.testing.assert_allclose(model.coef_, theirs.coef_, atol=2e-4)
    np.testing.assert_allclose(model.predict_proba(X), theirs.predict_proba(X), atol=2e-4)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("size", [300, "auto", None])
@pytest.mark.parametrize("n_outliers", [0, 20, 0.03])
@pytest.mark.parametrize("asked", ASKED, ids=["balanced", "dict"])
def test_it_is_the_fit_with_the_weights_multiplied_by_hand(asked, n_outliers, size, weighted):
    X, y, weights = rows()
    weights = weights if weighted else None
    settings = {"n_outliers": n_outliers, "coreset_size": size, "random_state": 0}
    model = dm.RobustLogisticRegression(**settings, class_weight=asked).fit(X, y, weights)
    by_hand = factors(asked, y, weights) * (1.0 if weights is None else weights)
    other = dm.RobustLogisticRegression(**settings).fit(X, y, by_hand)
    for name in ("coef_", "intercept_", "outliers_", "trimmed_loss_", "threshold_", "coreset_size_"):
        np.testing.assert_array_equal(getattr(model, name), getattr(other, name), err_msg=name)


@pytest.mark.usefixtures("few_sampled")
@pytest.mark.parametrize("made", ["batches", "parquet", "dask arrays"])
@pytest.mark.parametrize("asked", ["balanced", {0: 0.5, 1: 3.0}], ids=["balanced", "dict"])
def test_out_of_core_it_is_the_model_of_all_rows_in_memory(asked, made, tmp_path):
    X, names, weights = rows()
    y = NAMES.searchsorted(names)
    model = dm.RobustLogisticRegression(20, coreset_size=300, class_weight=asked, random_state=0)
    whole = dm.RobustLogisticRegression(**model.get_params()).fit(X, y, weights)
    assert_same(model.fit(*given(made, X, y, weights, tmp_path)), whole)


def test_absorbed_rows_get_the_factors_that_fit_found():
    X, y, weights = rows()
    settings = {"n_outliers": 20, "coreset_size": 300, "updatable": True, "random_state": 0}
    model = dm.RobustLogisticRegression(**settings, class_weight="balanced").fit(X[:1000], y[:1000])
    frozen = {name: 1000 / (3 * (y[:1000] == name).sum()) for name in NAMES}
    by_hand = np.array([frozen[name] for name in y])
    other = dm.RobustLogisticRegression(**settings).fit(X[:1000], y[:1000], by_hand[:1000])
    for change in (
        lambda one, hand: one.absorb(X[1000:1300], y[1000:1300], by_hand[1000:1300] if hand else None),
        lambda one, hand: one.forget(np.arange(0, 900, 3)),
        lambda one, hand: one.absorb(X[1300:], y[1300:], weights[1300:] * (by_hand[1300:] if hand else 1.0)),
    ):
        change(model, False)
        change(other, True)
        np.testing.assert_array_equal(model.coef_, other.coef_)
        np.testing.assert_array_equal(model.outliers_, other.outliers_)
        np.testing.assert_array_equal(model.dynamic_.points().weights, other.dynamic_.points().weights)


@pytest.mark.parametrize(
    ("wrong", "error", "message"),
    [
        ("equal", ValueError, "class_weight must be None, 'balanced', or a dict .*; found 'equal'"),
        ([1.0, 2.0, 3.0], TypeError, r"must be None, 'balanced', or a dict .*; found \[1.0, 2.0, 3.0\]"),
        ({"ape": 0}, ValueError, r"class_weight\['ape'\]=0 must be a positive number"),
        ({"ape": -1.0}, ValueError, r"class_weight\['ape'\]=-1.0 must be a positive number"),
        ({"ape": np.nan}, ValueError, r"class_weight\['ape'\]=nan must be a positive number"),
        ({"ape": "much"}, (TypeError, ValueError), r"class_weight\['ape'\]='much' must be a positive number"),
        ({"dog": 2.0}, ValueError, r"the label 'dog', but the classes are \['ape', 'bee', 'cat'\]; leave it"),
        (dict.fromkeys(NAMES, 1e307), ValueError, "weights add up to infinity"),
    ],
)
def test_wrong_values_are_refused_and_change_nothing(wrong, error, message):
    X, y, _ = rows()
    model = dm.RobustLogisticRegression(0, coreset_size=300, random_state=0).fit(X, y)
    before = dict(vars(model))
    model.class_weight = wrong
    with pytest.raises(error, match=message):
        model.fit(X, y)
    assert vars(model) == before | {"class_weight": wrong}
