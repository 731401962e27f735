"""The size chosen by error bars, invalid arguments, and fits that do not converge."""

import numpy as np
import pandas as pd
import pytest
from sklearn.exceptions import ConvergenceWarning

import duramen as dm
from tests.estimators.cases import CASE, CASES, every_case, take


@every_case
@pytest.mark.parametrize("tol", [0.05, 0.01])
def test_the_size_picked_has_the_error_asked_for(case, tol):
    X, y, _ = case.data(n=30_000)
    model = case.fit(X, y, tol=tol)
    assert model.objective_.std_error < tol * model.objective_.value
    assert model.coreset_size_ == len(model.coreset_) == model.size_trials_[-1].size
    assert model.size_trials_[-1].relative_error < tol
    assert all(trial.relative_error >= tol for trial in model.size_trials_[:-1])


@pytest.mark.slow
def test_a_smaller_tolerance_picks_a_larger_size_up_to_everything():
    X, _, _ = CASE["k-means"].data(n=20_000)
    model = dm.RobustKMeans(2, sampler="uniform", random_state=0)
    sizes = [model.set_params(tol=tol).fit(X).coreset_size_ for tol in (0.05, 0.001, 3e-4, 1e-6)]
    assert sizes == sorted(sizes)
    assert sizes[0] == 1000 < sizes[1]
    assert sizes[-1] == 20_000


def test_it_says_what_it_picked(capsys):
    X, _, _ = CASE["k-means"].data(n=20_000)
    model = dm.RobustKMeans(2, tol=0.002, verbose=True, random_state=0).fit(X)
    out = capsys.readouterr().out
    for trial in model.size_trials_:
        assert f"coreset of {trial.size:,} rows: relative standard error {trial.relative_error:.2%}" in out
    assert f"{model.coreset_size_:,} rows; " in out
    assert "converged" in out
    dm.RobustKMeans(2, coreset_size=300, random_state=0).fit(X)
    assert capsys.readouterr().out == ""


@every_case
def test_few_rows_are_all_kept(case):
    X, y, _ = case.data(n=200)
    model = case.fit(X, y)
    assert model.coreset_size_ == 200
    assert model.objective_.value == pytest.approx(model.trimmed_loss_)
    assert model.objective_.std_error == 0


@pytest.mark.slow
def test_two_rounds_undo_what_a_fit_to_few_rows_overdoes():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(50_000, 20))
    y = X @ rng.normal(size=20) / 2 + rng.logistic(size=50_000) > 0
    X[:1000] *= 30
    y[:1000] = rng.permutation(y[:1000])

    def fitted(size, seed=0, **rounds):
        model = dm.RobustLogisticRegression(0.02, coreset_size=size, C=np.inf, random_state=seed, **rounds)
        return model.fit(X, y).trimmed_loss_

    once, twice = ([fitted(400, seed, n_rounds=rounds) for seed in range(4)] for rounds in (1, 2))
    full = fitted(None)
    assert np.mean(twice) - full < 0.7 * (np.mean(once) - full)
    assert np.mean(once) / full - 1 > 0.01
    assert fitted(400) == twice[0]


def test_more_clusters_than_distinct_rows():
    X = np.repeat([[0.0, 0.0], [5.0, 5.0], [9.0, 0.0]], 50, axis=0)
    with pytest.warns(ConvergenceWarning, match=r"n_clusters=5 is above .* 3; .*pass n_clusters=3 or less"):
        model = dm.RobustKMeans(5, n_outliers=0, random_state=0).fit(X)
    assert model.cluster_centers_.shape == (5, 2)
    assert len(np.unique(model.cluster_centers_, axis=0)) == 3
    assert model.inertia_ == 0
    np.testing.assert_array_equal(model.predict(X), model.labels_)
    with pytest.raises(ValueError, match=r"n_samples=3 should be >= n_clusters=5; use fewer clusters"):
        dm.RobustKMeans(5).fit(X[::50])


def test_distinct_rows_that_a_coreset_would_miss():
    X = np.zeros((20_000, 1))
    X[:3, 0] = [50, 60, 70]
    model = dm.RobustKMeans(4, n_outliers=0, coreset_size=50, random_state=0).fit(X)
    np.testing.assert_allclose(np.sort(model.cluster_centers_[:, 0]), [0, 50, 60, 70])


def test_a_fit_that_does_not_end_says_what_to_do():
    X, y, _ = CASE["logistic"].data()
    with pytest.warns(ConvergenceWarning, match=r"after 1 iterations \(max_iter\).* raise max_iter"):
        model = dm.RobustLogisticRegression(max_iter=1, random_state=0).fit(X, y)
    assert model.n_iter_ == 1
    separable = np.arange(30.0)[:, None]
    for classes in (separable[:, 0] > 9, separable[:, 0] // 10):
        with pytest.warns(ConvergenceWarning, match=r"no minimum; pass a finite C"):
            dm.RobustLogisticRegression(0, C=np.inf, random_state=0).fit(separable, classes)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"coreset_size": 0}, "coreset_size=0 must be a whole number of 2 or more, 'auto', or None"),
        ({"coreset_size": 1}, "coreset_size=1 must be a whole number of 2 or more"),
        ({"coreset_size": np.array([3, 4])}, "coreset_size=.* must be a whole number"),
        ({"random_state": 0.0}, "random_state=0.0 must be None, a seed"),
        ({"coreset_size": "many"}, "coreset_size='many' must be a whole number"),
        ({"coreset_size": 2.5}, "coreset_size=2.5 must be a whole number"),
        ({"tol": 0}, "tol=0 must be a positive number"),
        ({"tol": "1%"}, "tol='1%' must be a positive number"),
        ({"n_rounds": 0}, "n_rounds=0 must be a whole number, 1 or more"),
        ({"n_init": 0}, "n_starts=0|n_init=0"),
        ({"max_iter": 0}, "max_iter=0 must be a whole number"),
        ({"n_outliers": -1}, "n_outliers=-1 must be 0 or more"),
        ({"n_outliers": 100_000}, "n_outliers=100000 is not below the total weight|could set aside"),
        ({"sampler": "best"}, "sampler='best' is not known; use one of"),
        ({"random_state": "seed"}, "random_state='seed' must be None, a seed"),
    ],
)
@pytest.mark.parametrize("case", [CASE["logistic"], CASE["k-means"]], ids=lambda case: case.name)
def test_settings_that_make_no_sense_are_refused_by_name(case, settings, message):
    X, y, _ = case.data(n=300)
    with pytest.raises(ValueError, match=message):
        case.fit(X, y, **settings)


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (dm.RobustLogisticRegression(C=0), "C=0 must be a positive number"),
        (dm.RobustLogisticRegression(C=1e-320), "C=1e-320 must be a positive number, 1e-300"),
        (dm.RobustLogisticRegression(C="1"), "C='1' must be a positive number"),
        (dm.RobustLinearRegression(alpha=-1), "alpha=-1 must be zero or a positive"),
        (dm.RobustLinearRegression("absolute"), r"loss='absolute' is not known; use one of \['squared'"),
        (dm.RobustLinearRegression("huber", delta=0), "delta=0 must be a positive"),
        (dm.RobustLinearRegression("poisson"), "labels of 0 or more"),
        (dm.RobustKMeans(0), "n_clusters=0 must be a whole number"),
        (dm.RobustKMeans(2.5), "n_clusters=2.5 must be a whole number"),
        (dm.RobustBregmanClustering(divergence="cosine"), "divergence='cosine'"),
        (dm.RobustBregmanClustering(divergence="kl"), "Negative values in data"),
        (dm.TruthDiscovery(scale=0), "scale=0 must be a positive number, or 'auto'"),
    ],
    ids=str,
)
def test_parameters_of_their_own_are_refused_by_name(model, message):
    X, y, _ = CASE["logistic"].data(n=300)
    with pytest.raises((ValueError, TypeError), match=message):
        model.fit(X, y - 5 if getattr(model, "loss", "") == "poisson" else y)


@every_case
def test_bad_rows_are_named(case):
    X, y, _ = case.data(n=300)
    X[17, 2] = np.nan
    for size in (None, 100, "auto"):
        with pytest.raises(ValueError, match="X has NaN in row 17, column 2"):
            case.fit(X, y, coreset_size=size)
    X[17, 2] = np.inf
    with pytest.raises(ValueError, match="X has inf in row 17, column 2"):
        case.fit(X, y)
    X[17, 2] = 0 if not case.positive else 1
    with pytest.raises(ValueError, match=r"sample_weight|weights"):
        case.fit(X, y, sample_weight=np.full(300, -1.0))
    model = case.fit(X, y)
    X[17, 2] = np.nan
    with pytest.raises(ValueError, match="X has NaN in row 17, column 2"):
        model.losses(X) if y is None else model.losses(X, y)


class Halves(dm.Sampler):
    """A black box: the first rows, all of one weight."""

    def reduce(self, points, size, rng):
        few = points.take(slice(0, size))
        return few.with_parts(weights=np.full(len(few), points.total_weight / len(few)))


def test_a_sampler_without_error_bars_needs_a_size():
    X, _, _ = CASE["k-means"].data()
    with pytest.raises(ValueError, match=r"needs error bars, but Halves\(\) gives none; pass a number"):
        dm.RobustKMeans(2, sampler=Halves()).fit(X)
    assert dm.RobustKMeans(2, sampler=Halves(), coreset_size=300).fit(X).coreset_size_ == 300


class OneClass(dm.Sampler):
    """A black box that keeps only one class, or one row again and again."""

    def reduce(self, points, size, rng):
        return points.take(np.flatnonzero(points.y > 0)[:size] if points.y is not None else slice(0, 1))


@pytest.mark.parametrize("case", [CASE["logistic"], CASE["k-means"]], ids=lambda case: case.name)
def test_a_sampler_that_leaves_out_too_much_is_refused(case):
    X, y, _ = case.data(n=500)
    with pytest.raises(ValueError, match=r"leaves out whole classes, or keeps too few .*another sampler"):
        case.fit(X, y, sampler=OneClass(), coreset_size=50, n_outliers=0)


@every_case
def test_a_fit_that_fails_leaves_the_estimator_as_it_was(case):
    X, y, _ = case.data(n=300)
    model = case.fit(pd.DataFrame(X, columns=list("abc")), y)
    before = dict(vars(model))
    bad = X[:, :2].copy()
    bad[5, 1] = np.nan
    for rows, settings in ((bad, {}), (X, {"n_outliers": 10**6})):
        model.set_params(**settings)
        with pytest.raises(ValueError):
            model.fit(rows, y)
        model.set_params(n_outliers=0.02)
        assert list(vars(model)) == list(before)
        assert all(vars(model)[name] is value for name, value in before.items() if name != "n_outliers")


@every_case
def test_rows_without_weight_may_hold_anything(case):
    X, y, _ = case.data(n=300)
    weights = np.ones(300)
    weights[::3] = 0
    live = np.flatnonzero(weights)
    short = case.fit(X[live], take(y, live))
    X[::3] = -7e7 if not case.positive else 7e7
    long = case.fit(X, y, sample_weight=weights)
    np.testing.assert_allclose(long.solution_.theta, short.solution_.theta, rtol=1e-6, atol=1e-9)
    np.testing.assert_array_equal(long.outliers_, live[short.outliers_])
    np.testing.assert_array_equal(np.sort(long.coreset_.ids), live)
    if hasattr(long, "labels_"):
        np.testing.assert_array_equal(long.labels_, long.predict(X))
    with pytest.raises(ValueError, match=r"(?i)zero"):
        case.fit(X, y, sample_weight=np.zeros(300))


def test_one_weight_for_all_rows():
    X, y, _ = CASE["logistic"].data(n=300)
    two = dm.RobustLogisticRegression(random_state=0).fit(X, y, sample_weight=2.0)
    assert two.coreset_.total_weight == 600


@pytest.mark.slow
def test_what_a_small_coreset_led_to_does_not_mislead_a_larger_one():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(20_000, 30))
    y = rng.poisson(np.exp(X @ rng.normal(size=30) / 30**0.5 + 0.5)).astype(float)
    X[:6000] *= 10
    y[:6000] = 0
    model = dm.RobustLinearRegression("poisson", n_outliers=6000, random_state=0)
    small, full = (model.set_params(coreset_size=size).fit(X, y).trimmed_loss_ for size in ("auto", None))
    assert small < 1.1 * full


@pytest.mark.slow
def test_scales_are_medians_by_weight_of_rows_taken_by_chance():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(40_000, 2))
    y = X[:, 0] + np.where(np.arange(40_000) % 2, 1.0, 0.01) * rng.normal(size=40_000)
    huber = dm.RobustLinearRegression("huber", random_state=0)
    weights = np.tile([0.0, 1.0], 20_000)
    half = huber.fit(X[1::2], y[1::2]).delta_
    assert huber.fit(X, y, sample_weight=weights).delta_ == pytest.approx(half, rel=0.05)
    assert half == pytest.approx(1.35, rel=0.1)
    y[0] = 1e12
    assert huber.set_params(n_outliers=1).fit(X, y).delta_ < 2
    truth = dm.TruthDiscovery(random_state=0)
    claims = X * np.where(np.arange(40_000) % 2, 1.0, 0.01)[:, None]
    alone = truth.fit(claims[1::2]).scale_
    assert truth.fit(claims, sample_weight=weights).scale_ == pytest.approx(alone, rel=0.05)
    scale = truth.fit(X).scale_
    assert truth.fit((X * 1e20).astype(np.float32)).scale_ == pytest.approx(1e20 * scale, rel=1e-3)
    assert np.isfinite(truth.truth_).all()
    with pytest.raises(ValueError, match="scale=1e-50 is too small: claims divided by it overflow float32"):
        dm.TruthDiscovery(scale=1e-50).fit(X.astype(np.float32))
    X[77, 1] = np.nan
    with pytest.raises(ValueError, match="X has NaN in row 77, column 1"):
        truth.fit(X)


def test_settings_changed_after_a_fit_wait_for_the_next():
    X, y, _ = CASES[4].data(n=300)
    counts = dm.RobustLinearRegression("poisson", random_state=0).fit(X, y)
    before = counts.predict(X)
    np.testing.assert_array_equal(counts.set_params(loss="squared").predict(X), before)
    X, y, _ = CASE["logistic"].data(n=300)
    model = dm.RobustLogisticRegression(random_state=0).fit(X, y)
    before = model.losses(X, y)
    np.testing.assert_array_equal(model.set_params(fit_intercept=False).losses(X, y), before)
    huber = dm.RobustLinearRegression("huber", random_state=0).fit(X, X[:, 0])
    assert huber.delta_ > 0
    assert not hasattr(huber.set_params(loss="squared").fit(X, X[:, 0]), "delta_")
