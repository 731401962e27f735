"""What the default of a classifier learns: shares of noise and their error bars, and which rows are outliers."""

import numpy as np
import pytest
from scipy import sparse
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss

import duramen as dm


def flipped(n=20_000, d=4, share=0.1, seed=0, steep=3.0):
    """Make rows of which some have the other label, at random; and those that have."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    y = steep * X[:, 0] + rng.logistic(size=n) > 0
    wrong = rng.random(n) < share
    return X, np.where(y ^ wrong, "yes", "no"), wrong


def clustered(n=6000, share=0.1, seed=0):
    """Make rows of which some lie far out on one side, with the label of the other."""
    X, y, _ = flipped(n, share=0.0, seed=seed)
    far = np.arange(n) < share * n
    X[far] = np.random.default_rng(seed).normal(size=(far.sum(), 4)) / 10 + [8, 0, 0, 0]
    y[far] = "no"
    return X, y, far


@pytest.mark.parametrize("size", [None, 4000])
def test_error_bars_hold_the_truth_and_are_as_long_as_the_spread_over_tables(size):
    share = 0.1  # a label that is noise is the right one half the time
    found = []
    for seed in range(12):
        X, y, _ = flipped(seed=seed)
        model = dm.RobustLogisticRegression(coreset_size=size, random_state=seed).fit(X, y)
        found.append(model.contamination_)
    values, errors = np.array([one[:2] for one in found]).T
    assert (np.abs(values - 2 * share) < 3.5 * errors).all()
    assert 0.5 < values.std() / errors.mean() < 1.6
    sides = np.array([one.by_class["yes"].value for one in found])
    assert np.abs(sides.mean() - 2 * share) < 0.03


def test_it_says_how_much_is_noise_near_and_far_and_in_each_class():
    X, y, far = clustered()
    model = dm.RobustLogisticRegression(random_state=0).fit(X, y)
    found = model.contamination_
    assert found.low < 0.1 < found.high
    assert found.far.value > 5 * found.near.value
    assert found.by_class["no"].value > 5 * found.by_class["yes"].value
    assert list(found.by_class) == ["no", "yes"]
    assert float(found) == found.value
    assert all(name in repr(found) for name in ("near", "far", "of 'no'"))
    probability = model.outlier_probability(X, y)
    assert (probability[far] > 0.9).all()
    assert (probability[~far] > 0.5).mean() < 0.01
    np.testing.assert_array_equal(np.sort(model.outliers_), np.flatnonzero(probability > 0.5))
    assert (np.diff(probability[model.outliers_]) <= 0).all()
    assert (model.threshold_, model.slope_) == (np.inf, 1.0)


def test_outlier_probability_is_bayes_rule():
    X, y, _ = clustered(2000)
    model = dm.RobustLogisticRegression(coreset_size=None).fit(X, y)
    loss, theta = model.solution_.loss, model.solution_.theta
    shares = loss.shares(theta, X)
    base = loss.split(theta, 4)[0]
    sigmoid = 1 / (1 + np.exp(-(X @ base[:4] + base[4])))
    rest = 1 - shares.sum(axis=1)
    is_yes = y == "yes"
    noise = np.where(is_yes, shares[:, 1], shares[:, 0])
    explained = rest * np.where(is_yes, sigmoid, 1 - sigmoid)
    np.testing.assert_allclose(model.outlier_probability(X, y), noise / (noise + explained), rtol=1e-9)
    np.testing.assert_allclose(model.losses(X, y), -np.log(noise + explained), rtol=1e-9)


def test_nothing_is_known_of_the_outliers_and_the_model_is_good():
    X, y, far = clustered()
    X_test, y_test, _ = clustered(20_000, share=0.0, seed=1)
    plain = LogisticRegression().fit(X, y)
    oracle = LogisticRegression().fit(X[~far], y[~far])
    model = dm.RobustLogisticRegression(random_state=0).fit(X, y)
    ours, theirs, best = (log_loss(y_test, one.predict_proba(X_test)) for one in (model, plain, oracle))
    assert theirs > 1.5 * best
    assert ours < 1.02 * best
    assert model.score(X_test, y_test) > 0.99 * oracle.score(X_test, y_test)


def test_margins_are_mended_where_rows_are_few_for_their_parameters():
    losses = []
    for seed in range(3):
        X, y, _ = flipped(5400, d=100, share=0.05, seed=seed)
        model, plain = (
            make().fit(X[:400], y[:400]) for make in (dm.RobustLogisticRegression, LogisticRegression)
        )
        assert 0 < model.slope_ < 0.9
        losses.append([log_loss(y[400:], one.predict_proba(X[400:])) for one in (model, plain)])
    ours, theirs = np.mean(losses, axis=0)
    assert ours < 0.9 * theirs


def test_a_count_is_the_trimmed_objective_and_can_be_recalibrated():
    X, y, _ = flipped(8000)
    X_test, y_test, _ = flipped(20_000, seed=1)
    cut, mended = (
        dm.RobustLogisticRegression(800, recalibrate=mends, coreset_size=None).fit(X, y)
        for mends in (False, True)
    )
    for name in ("theta", "outliers"):
        np.testing.assert_array_equal(getattr(cut.solution_, name), getattr(mended.solution_, name))
    np.testing.assert_array_equal(cut.outliers_, mended.outliers_)
    assert mended.slope_ < 1
    np.testing.assert_allclose(mended.coef_, mended.slope_ * cut.coef_)
    before, after = (log_loss(y_test, one.predict_proba(X_test)) for one in (cut, mended))
    assert after < 0.8 * before
    assert not hasattr(cut, "contamination_")
    assert 0 < mended.contamination_.value < 0.4
    with pytest.raises(
        ValueError, match=r'n_outliers=800 has no probabilities .*"auto", or recalibrate=True'
    ):
        cut.outlier_probability(X, y)
    assert mended.outlier_probability(X, y).shape == (8000,)


@pytest.mark.parametrize("wrong", ["automatic", -1, 1e9, None])
def test_other_values_are_refused_with_the_way_out(wrong):
    X, y, _ = flipped(200)
    with pytest.raises((TypeError, ValueError), match="n_outliers"):
        dm.RobustLogisticRegression(wrong).fit(X, y)
    with pytest.raises(NotFittedError):
        dm.RobustLogisticRegression().outlier_probability(X, y)


def test_sparse_rows_and_several_classes():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(4000, 5)) * (rng.random((4000, 5)) < 0.4)
    y = np.array(["a", "b", "c"])[np.argmax(4 * X[:, :3] + rng.gumbel(size=(4000, 3)), axis=1)]
    wrong = rng.random(4000) < 0.1
    y[wrong] = rng.permutation(y[wrong])
    dense, scattered = (
        dm.RobustLogisticRegression(coreset_size=None).fit(rows, y) for rows in (X, sparse.csr_array(X))
    )
    np.testing.assert_allclose(
        scattered.predict_proba(sparse.csr_array(X)), dense.predict_proba(X), atol=1e-5
    )
    np.testing.assert_allclose(dense.predict_proba(X).sum(axis=1), 1)
    assert dense.decision_function(X).shape == (4000, 3)
    found = dense.contamination_
    assert abs(found.value - 0.1) < 4 * found.std_error
    picked = np.argsort(-dense.outlier_probability(X, y))[:100]
    assert wrong[picked].mean() > 0.5


def test_rows_that_are_forgotten_no_longer_count_as_noise():
    X, y, far = clustered(3000)
    model = dm.RobustLogisticRegression(coreset_size=800, updatable=True, random_state=0).fit(X, y)
    before = model.contamination_.value
    model.forget(np.flatnonzero(far))
    assert model.contamination_.value < 0.5 * before
    model.absorb(X[far], y[far])
    assert model.contamination_.value == pytest.approx(before, rel=0.3)
