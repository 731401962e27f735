"""Classes of one to nine rows among thousands: they are in every coreset, and the model predicts them."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import duramen as dm

NAMES = np.array(["ape", "bee", "cat", "doe"])


def rows(n=5000, n_rare=3, seed=0, k=4):
    """Make k clusters, of which the last has few rows."""
    rng = np.random.default_rng(seed)
    y = rng.integers(k - 1, size=n)
    y[rng.choice(n, n_rare, replace=False)] = k - 1
    return 6 * np.eye(k)[y] + rng.normal(size=(n, k)), y


@settings(max_examples=8, deadline=None)
@given(
    n_rare=st.integers(1, 9),
    seed=st.integers(0, 1000),
    n_outliers=st.sampled_from([0, 20, 0.02]),
    contaminated=st.booleans(),
)
def test_a_coreset_holds_every_class_with_its_weight(n_rare, seed, n_outliers, contaminated):
    X, y = rows(n_rare=n_rare, seed=seed)
    loss = dm.SoftmaxLoss(4)
    n_outliers, loss = (0, dm.ContaminatedLoss(loss)) if contaminated else (n_outliers, loss)
    settings = {"loss": loss, "size": 250, "n_outliers": n_outliers, "random_state": seed}
    core = dm.robust_coreset(X, y, **settings, calibrate=False)
    assert np.isin(np.arange(4), core.y).all()
    if not n_outliers:  # so few that all are kept, with their own weight
        np.testing.assert_allclose(core.weights[core.y == 3], 1.0)
    order = np.random.default_rng(seed).permutation(len(X))
    again = dm.robust_coreset(X[order], y[order], ids=order, **settings, calibrate=False, anchor=core.anchor)
    np.testing.assert_array_equal(again.ids, core.ids)
    np.testing.assert_allclose(again.weights, core.weights)
    assert dm.solve(core, l2=1.0).theta.shape[0] == 4


@pytest.mark.parametrize("n_rare", [1, 9])
@pytest.mark.parametrize("size", [250, "auto", None])
@pytest.mark.parametrize("n_outliers", ["auto", 0, 20, 0.02])
@pytest.mark.filterwarnings("ignore:n_outliers=.* set aside")
def test_models_know_a_rare_class(n_outliers, size, n_rare):
    X, y = rows(n_rare=n_rare)
    model = dm.RobustLogisticRegression(n_outliers, coreset_size=size, random_state=0).fit(X, NAMES[y])
    assert model.classes_.tolist() == NAMES.tolist()
    assert model.predict_proba(X).shape == (5000, 4)
    assert (model.predict(X) == NAMES[y])[y < 3].mean() > 0.99
    if n_outliers in ("auto", 0) and n_rare > 1:
        assert (model.predict(X[y == 3]) == "doe").mean() > 0.6
    assert size != 250 or 200 < model.coreset_size_ <= 250  # it did not have to grow


@pytest.mark.usefixtures("few_sampled")
@pytest.mark.filterwarnings("ignore:n_outliers=.* set aside")
@pytest.mark.parametrize("made", ["memory", "scan"])
@pytest.mark.parametrize(("k", "n_outliers"), [(4, 0), (4, 20), (2, 0), (4, "auto"), (2, "auto")])
def test_a_class_that_the_anchors_sample_lacks(k, n_outliers, made):
    X, y = rows(n_rare=2, k=k, seed=5)
    data = (X, y) if made == "memory" else (dm.scan([(X[:2000], y[:2000]), (X[2000:], y[2000:])]),)
    model = dm.RobustLogisticRegression(n_outliers, coreset_size=250, random_state=0)
    assert np.isin(np.arange(k), model.fit(*data).coreset_.y).all()
    assert model.coreset_size_ <= 250


def test_the_weights_of_a_rare_class_are_right_on_average():
    X, y = rows(n_rare=150)
    losses = X[:, 0] ** 2
    sums = []
    for seed in range(60):
        core = dm.robust_coreset(X, y, loss=dm.SoftmaxLoss(4), size=120, random_state=seed, calibrate=False)
        assert core.weights[core.y == 3].sum() == pytest.approx(150)
        sums.append(core.weights @ core.X[:, 0] ** 2)
    error = np.std(sums) / 60**0.5
    assert abs(np.mean(sums) - losses.sum()) < 4 * error  # once in 16,000 seeds


def test_most_of_a_class_is_not_set_aside_silently():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(4000, 2)), np.array(["often"] * 3900 + ["seldom"] * 100)
    message = r"n_outliers=90 set aside (\d+) of the 100 rows \(by weight\) of the class 'seldom': .*\"auto\""
    with pytest.warns(UserWarning, match=message):
        model = dm.RobustLogisticRegression(90, random_state=0).fit(X, y)
    assert (y[model.outliers_] == "seldom").sum() > 50
    dm.RobustLogisticRegression(30, random_state=0).fit(X, y)  # warnings are errors


@pytest.mark.parametrize("kind", ["classes", "numbers", "centres"])
@pytest.mark.parametrize("seed", range(3))
def test_more_rounds_are_never_worse_where_rows_are_few(kind, seed):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(1500, 40))
    y = X[:, 0] + rng.normal(size=1500)
    make = {
        "classes": lambda **s: dm.RobustLogisticRegression(30, **s),
        "numbers": lambda **s: dm.RobustLinearRegression(n_outliers=30, **s),
        "centres": lambda **s: dm.RobustKMeans(3, n_outliers=30, **s),
    }[kind]
    labels = y > 0 if kind == "classes" else y
    fits = [make(coreset_size=120, n_rounds=r, random_state=seed).fit(X, labels) for r in (1, 2, 3)]
    objectives = [one.trimmed_loss_ + one.solution_.penalty for one in fits]
    assert objectives == sorted(objectives, reverse=True)


def test_a_fit_on_all_rows_says_so(capsys):
    X, y = rows(n=900)
    model = dm.RobustLogisticRegression(0, verbose=True, random_state=0).fit(X, y)
    assert "fitted on all 900 rows" in capsys.readouterr().out
    assert model.coreset_size_ == model.coreset_.n_points == 900
    assert "all 900 points x 4 columns, none left out" in repr(model.coreset_)
