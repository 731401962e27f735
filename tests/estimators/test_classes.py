"""Classes of every kind: strings, booleans, integers; rare ones, and those seen only among the suspected."""

import numpy as np
import pytest

import duramen as dm


def two_classes(n=4000, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 2))
    return X, X[:, 0] + 0.5 * rng.logistic(size=n) > 0


@pytest.mark.parametrize(
    ("name", "classes"),
    [
        ("booleans", np.array([False, True])),
        ("integers", np.array([-7, 40])),
        ("strings", np.array(["no", "yes"])),
        ("objects", np.array(["no", "yes"], dtype=object)),
        ("floats", np.array([1.0, 2.0])),
    ],
)
def test_labels_of_every_kind_give_the_same_fit(name, classes):
    X, positive = two_classes()
    y = classes[positive.astype(int)]
    model = dm.RobustLogisticRegression(coreset_size=800, random_state=0).fit(X, y)
    plain = dm.RobustLogisticRegression(coreset_size=800, random_state=0).fit(X, positive.astype(int))
    np.testing.assert_array_equal(model.coef_, plain.coef_)
    np.testing.assert_array_equal(model.classes_, classes)
    assert model.predict(X[:5]).dtype == classes.dtype
    np.testing.assert_array_equal(model.predict(X), classes[plain.predict(X)])
    assert model.score(X, y) == plain.score(X, positive.astype(int)) > 0.75
    assert model.predict_proba(X).shape == (len(X), 2)
    np.testing.assert_allclose(model.losses(X, y), plain.losses(X, positive.astype(int)))


def test_more_than_two_classes_by_name():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(9000, 2))
    names = np.array(["a", "b", "c"])
    y = names[np.argmax(X @ [[2.0, -1, -1], [0, 2, -2]] + rng.gumbel(size=(9000, 3)), axis=1)]
    X[:180] *= 50
    y[:180] = rng.permutation(y[:180])
    model = dm.RobustLogisticRegression(random_state=0).fit(X, y)
    assert model.coef_.shape == (3, 2)
    assert model.score(X[180:], y[180:]) > 0.75
    proba = model.predict_proba(X)
    np.testing.assert_allclose(proba.sum(axis=1), 1)
    np.testing.assert_array_equal(model.classes_[proba.argmax(axis=1)], model.predict(X))
    assert (model.outliers_ < 180).mean() > 0.4  # a third to a half of shuffled rows are not wrong


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("share", [1.02, 1.2, 1.45])
def test_a_class_seen_only_among_the_suspected(share, seed):
    """Rows of one class lie where the other is certain: all cost more than any other, and are suspected."""
    rng = np.random.default_rng(seed)
    n, z = 20_000, 200
    X, positive = rng.normal(size=(n, 2)), np.zeros(n, dtype=bool)
    rare = round(share * z)
    positive[:rare] = True
    X[:rare] = [9.0, 9.0] + 0.1 * rng.normal(size=(rare, 2))
    with pytest.warns(UserWarning, match=rf"set aside 200 of the {rare} rows .* of the class True"):
        model = dm.RobustLogisticRegression(z, coreset_size=500, random_state=seed).fit(X, positive)
    assert model.classes_.tolist() == [False, True]
    assert np.isfinite(model.coef_).all()
    assert model.predict_proba(X).shape == (n, 2)
    anchor = dm.Anchor([0.0, 0.0, -9.0], 1.0)  # at which that class is all but impossible
    chosen = {"loss": dm.LogisticLoss(), "size": 500, "n_outliers": z, "random_state": 0}
    core = dm.robust_coreset(X, positive.astype(int), anchor=anchor, **chosen)
    assert core.suspected[core.y > 0].all()
    assert (core.y > 0).any()


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (1, 2))])
def test_a_class_of_few_rows_among_many(seed):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(30_000, 3))
    y = rng.integers(2, size=30_000)
    X[y == 1, 0] += 4
    y[:6], X[:6, 1] = 2, 30.0
    message = r"n_outliers=0\.02 set aside 6 of the 6 rows \(by weight\) of the class 2: .* fewer outliers"
    with pytest.warns(UserWarning, match=message):
        lost = dm.RobustLogisticRegression(n_outliers=0.02, coreset_size=300, random_state=seed).fit(X, y)
    assert lost.classes_.tolist() == [0, 1, 2]
    assert lost.predict_proba(X).shape == (30_000, 3)
    kept = dm.RobustLogisticRegression(1, coreset_size=300, C=100, random_state=seed).fit(X, y)
    assert (kept.predict(X[:6]) == 2).all()


def test_a_class_of_object_type_that_is_set_aside_is_named():
    X, positive = two_classes(n=3000)
    y = np.array(["no", "yes"], dtype=object)[positive.astype(int)]
    y[:2] = "rare"
    with pytest.warns(UserWarning, match="set aside 2 of the 2 rows .* of the class 'rare'"):
        dm.RobustLogisticRegression(300, random_state=0).fit(X * [1, 3], y)


def test_probabilities_where_predictors_overflow():
    X, positive = two_classes()
    model = dm.RobustLogisticRegression(0.02, coreset_size=500, random_state=0).fit(X, positive)
    far = np.array([[1e308, 0.0], [-1e308, 0.0]])
    with np.errstate(over="ignore"):
        np.testing.assert_array_equal(model.predict_proba(far), [[0, 1], [1, 0]])
        assert model.predict_log_proba(far)[0, 1] == 0


@pytest.mark.parametrize("size", [30.0, 1e4, 1e308])
def test_far_beyond_all_rows_the_model_is_as_sure_as_at_the_farthest(size):
    X, positive = two_classes()
    model = dm.RobustLogisticRegression(coreset_size=1000, random_state=0).fit(X, positive)
    with np.errstate(over="ignore"):
        found = model.predict_proba([[size, 0.0], [-size, 0.0]])
    assert (found[[0, 1], [1, 0]] > 0.9).all()
    np.testing.assert_allclose(found.sum(axis=1), 1)


OFTEN = np.array(["often"] * 98 + ["rare"] * 2)


@pytest.mark.parametrize(
    ("y", "message"),
    [
        (np.full(100, "only"), "two or more classes .* rows of positive weight belong to one class, 'only'"),
        (np.array(["a", 1] * 50, dtype=object), "labels of several types, int and str; convert them to one"),
        (OFTEN, r"n_outliers=0\.02 could set aside the whole class 'rare', of weight 2"),
        (OFTEN.astype(object), r"n_outliers=0\.02 could set aside the whole class 'rare', of weight 2"),
        (np.random.default_rng(0).normal(size=100), "continuous"),
    ],
)
def test_unusable_classes_are_named(y, message):
    with pytest.raises(ValueError, match=message):
        dm.RobustLogisticRegression(0.02).fit(two_classes(n=100)[0], y)


def test_classes_without_weight_are_absent_and_unknown_ones_refused():
    X, positive = two_classes(n=100)
    y = np.where(positive, "often", "seldom")
    y[:3] = "rare"
    model = dm.RobustLogisticRegression().fit(X, y, sample_weight=(y != "rare").astype(float))
    assert model.classes_.tolist() == ["often", "seldom"]
    with pytest.raises(ValueError, match=r"the class '\?', but the model knows \['often', 'seldom'\]"):
        model.losses(X, ["?"] * 100)
