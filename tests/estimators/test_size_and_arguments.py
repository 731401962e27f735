"""The size that is picked by error bars; arguments that make no sense; fits that do not end well."""

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

import duramen as dm
from tests.estimators.cases import CASES

every = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)


@every
@pytest.mark.parametrize("tol", [0.05, 0.01])
def test_the_size_picked_has_the_error_asked_for(case, tol):
    X, y, _ = case.data(n=30_000)
    model = case.fit(X, y, tol=tol)
    assert model.objective_.std_error < tol * model.objective_.value
    assert model.coreset_size_ == len(model.coreset_) == model.size_trials_[-1].size
    assert model.size_trials_[-1].relative_error < tol
    assert all(trial.relative_error >= tol for trial in model.size_trials_[:-1])


def test_a_smaller_tolerance_picks_a_larger_size_up_to_everything():
    X, _, _ = CASES[5].data(n=20_000)
    sizes = [
        dm.RobustKMeans(2, sampler="uniform", tol=tol, random_state=0).fit(X).coreset_size_
        for tol in (0.05, 0.001, 3e-4, 1e-6)
    ]
    assert sizes[0] == 1000
    assert sizes == sorted(sizes)
    assert sizes[1] > 1000
    assert sizes[-1] == 20_000


def test_it_says_what_it_picked(capsys):
    X, _, _ = CASES[5].data(n=20_000)
    model = dm.RobustKMeans(2, tol=0.002, verbose=True, random_state=0).fit(X)
    said = capsys.readouterr().out
    for trial in model.size_trials_:
        assert f"coreset of {trial.size:,} rows: relative standard error {trial.relative_error:.2%}" in said
    assert f"{model.coreset_size_:,} rows picked" in said
    assert "converged" in said
    dm.RobustKMeans(2, coreset_size=300, random_state=0).fit(X)
    assert capsys.readouterr().out == ""


@every
def test_few_rows_are_all_kept(case):
    X, y, _ = case.data(n=200)
    model = case.fit(X, y)
    assert model.coreset_size_ == 200
    assert model.objective_.value == pytest.approx(model.trimmed_loss_)
    assert model.objective_.std_error == 0


def test_two_rounds_undo_what_a_fit_to_few_rows_overdoes():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(50_000, 20))
    y = X @ rng.normal(size=20) / 2 + rng.logistic(size=50_000) > 0
    X[:1000] *= 30
    y[:1000] = rng.permutation(y[:1000])
    found = {
        rounds: [
            dm.RobustLogisticRegression(coreset_size=400, n_rounds=rounds, C=np.inf, random_state=seed)
            .fit(X, y)
            .trimmed_loss_
            for seed in range(4)
        ]
        for rounds in (1, 2)
    }
    full = dm.RobustLogisticRegression(coreset_size=None, C=np.inf, random_state=0).fit(X, y).trimmed_loss_
    excess = {rounds: np.mean(losses) / full - 1 for rounds, losses in found.items()}
    assert excess[2] < 0.7 * excess[1]
    assert excess[1] > 0.01
    default = dm.RobustLogisticRegression(coreset_size=400, C=np.inf, random_state=0).fit(X, y)
    assert default.trimmed_loss_ == found[2][0]


def test_more_clusters_than_distinct_rows():
    X = np.repeat([[0.0, 0.0], [5.0, 5.0], [9.0, 0.0]], 50, axis=0)
    with pytest.warns(ConvergenceWarning, match=r"n_clusters=5 is above .* 3: .*take n_clusters=3 or less"):
        model = dm.RobustKMeans(5, n_outliers=0, random_state=0).fit(X)
    assert model.cluster_centers_.shape == (5, 2)
    assert len(np.unique(model.cluster_centers_, axis=0)) == 3
    assert model.inertia_ == 0
    np.testing.assert_array_equal(model.predict(X), model.labels_)
    with pytest.raises(ValueError, match=r"n_samples=3 should be >= n_clusters=5; take fewer clusters"):
        dm.RobustKMeans(5).fit(X[::50])


def test_distinct_rows_that_a_coreset_would_miss():
    X = np.zeros((20_000, 1))
    X[:3, 0] = [50, 60, 70]
    model = dm.RobustKMeans(4, n_outliers=0, coreset_size=50, random_state=0).fit(X)
    np.testing.assert_allclose(np.sort(model.cluster_centers_[:, 0]), [0, 50, 60, 70])


def test_a_fit_that_does_not_end_says_what_to_do():
    X, y, _ = CASES[0].data()
    with pytest.warns(ConvergenceWarning, match=r"max_iter=1 .* raise max_iter"):
        model = dm.RobustLogisticRegression(max_iter=1, random_state=0).fit(X, y)
    assert model.n_iter_ == 1
    separable = np.arange(20.0)[:, None]
    with pytest.warns(ConvergenceWarning, match=r"no minimum; .*a finite C"):
        dm.RobustLogisticRegression(0, C=np.inf).fit(separable, np.arange(20) > 9)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"coreset_size": 0}, "coreset_size=0 must be a whole number of 1 or more, 'auto', or None"),
        ({"coreset_size": "many"}, "coreset_size='many' must be a whole number"),
        ({"coreset_size": 2.5}, "coreset_size=2.5 must be a whole number"),
        ({"tol": 0}, "tol=0 must be a positive number"),
        ({"tol": "1%"}, "tol='1%' must be a positive number"),
        ({"n_rounds": 0}, "n_rounds=0 must be a whole number of 1 or more"),
        ({"n_init": 0}, "n_starts=0|n_init=0"),
        ({"max_iter": 0}, "max_iter=0 must be a whole number"),
        ({"n_outliers": -1}, "n_outliers=-1 must be 0 or more"),
        ({"n_outliers": 100_000}, "n_outliers=100000 is not below the total weight|could set aside"),
        ({"sampler": "best"}, "sampler='best' is not known; take one of"),
        ({"random_state": "seed"}, "random_state='seed' must be None, a seed"),
    ],
)
@pytest.mark.parametrize("case", [CASES[0], CASES[2], CASES[5], CASES[8]], ids=lambda case: case.name)
def test_settings_that_make_no_sense_are_refused_by_name(case, settings, message):
    X, y, _ = case.data(n=300)
    with pytest.raises(ValueError, match=message):
        case.fit(X, y, **settings)


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (dm.RobustLogisticRegression(C=0), "C=0 must be a positive number"),
        (dm.RobustLogisticRegression(C="1"), "C='1' must be a positive number"),
        (dm.RobustLinearRegression(alpha=-1), "alpha=-1 must be zero or a positive"),
        (dm.RobustLinearRegression("absolute"), r"loss='absolute' is not known; take one of \['squared'"),
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
    X, y, _ = CASES[0].data(n=300)
    with pytest.raises((ValueError, TypeError), match=message):
        model.fit(X, y - 5 if getattr(model, "loss", "") == "poisson" else y)


@every
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
        return few.weighing(np.full(len(few), points.total_weight / len(few)))


def test_a_sampler_without_error_bars_needs_a_size():
    X, _, _ = CASES[5].data()
    with pytest.raises(ValueError, match=r"goes by error bars, and Halves\(\) gives none; pass a number"):
        dm.RobustKMeans(2, sampler=Halves()).fit(X)
    assert dm.RobustKMeans(2, sampler=Halves(), coreset_size=300).fit(X).coreset_size_ == 300
