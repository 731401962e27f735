"""Fit out of core: scans and Dask collections give the model of all rows in memory."""

import pickle
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from scipy import sparse
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning

import duramen as dm
from duramen.distributed import dask as dask_module
from duramen.estimators.fitting import TrimmedPass
from tests.estimators.cases import CASE, CASES, parametrized, take

SIZE = {"coreset_size": 300}
HUBER = replace(CASE["huber"], name="huber, auto", make=partial(dm.RobustLinearRegression, "huber"))
TRUTH = replace(CASE["truth"], name="truth, auto", make=dm.TruthDiscovery)


def cases(*quick):
    """Parametrize over all cases, of which some are in the first tier."""
    return parametrized((*CASES, HUBER, TRUTH), quick)


def cuts_of(n, seed=0):
    """Cut rows at random, with an empty part among them."""
    ends = np.sort(np.random.default_rng(seed).integers(n, size=5))
    return [slice(start, end) for start, end in zip([0, ends[0], *ends], [ends[0], *ends, n], strict=True)]


def arrays(X, y, weights):
    da = pytest.importorskip("dask.array", reason="needs duramen[dask]")
    lengths = tuple(cut.stop - cut.start for cut in cuts_of(len(X)))
    columns = [None if one is None else da.from_array(one, chunks=700) for one in (y, weights)]
    return da.from_array(X, chunks=(lengths, X.shape[1])), *columns


def frame(X, y, weights):
    dd = pytest.importorskip("dask.dataframe", reason="needs duramen[dask]")
    pandas = pytest.importorskip("pandas", reason="needs duramen[dask]")
    names = [f"x{number}" for number in range(X.shape[1])]
    whole = pandas.DataFrame(X, columns=names)
    for name, column in (("y", y), ("w", weights)):
        if column is not None:
            whole[name] = column
    cut = dd.from_pandas(whole, npartitions=5)
    return cut[names], *(None if one is None else cut[name] for name, one in (("y", y), ("w", weights)))


def files(X, y, weights, folder):
    """Write Parquet files, of several row groups; return a scan of them."""
    arrow = pytest.importorskip("pyarrow", reason="needs duramen[frames]")
    from pyarrow import parquet

    columns = {f"x{number}": column for number, column in enumerate(X.T)}
    columns.update({name: one for name, one in (("y", y), ("w", weights)) if one is not None})
    table = arrow.table(columns)
    for number, cut in enumerate(cut for cut in cuts_of(len(X)) if cut.stop > cut.start):
        part = table.slice(cut.start, cut.stop - cut.start)
        parquet.write_table(part, folder / f"{number}.parquet", row_group_size=500)
    roles = {"label": None if y is None else "y", "weight": None if weights is None else "w"}
    return dm.scan(str(folder / "*.parquet"), **roles)


def given(made, X, y, weights, folder):
    """Make the arguments of ``fit`` in one of the ways there are."""
    if made == "batches":
        cuts = cuts_of(len(X))
        return (dm.scan([tuple(take(one, cut) for one in (X, y, weights)) for cut in cuts]),)
    if made == "parquet":
        return (files(X, y, weights, folder),)
    return (arrays if made == "dask arrays" else frame)(X, y, weights)


def assert_as_in_memory(model, source, X, y=None, weights=None):
    """Fit out of core and in memory, and compare the models; return both."""
    whole = clone(model).fit(X, y, sample_weight=weights)
    assert_same(model.fit(*source), whole)
    return model, whole


def assert_same(model, whole, rtol=1e-6):
    """Compare all attributes of two models, except those with one value per row."""
    np.testing.assert_array_equal(model.coreset_.ids, whole.coreset_.ids)
    np.testing.assert_allclose(model.coreset_.weights, whole.coreset_.weights, rtol=rtol)
    np.testing.assert_array_equal(model.outliers_, whole.outliers_)
    assert model.outliers_.dtype == whole.outliers_.dtype
    names = ("coef_", "intercept_", "cluster_centers_", "truth_", "scale_", "delta_", "inertia_")
    for name in (*names, "trimmed_loss_", "threshold_"):
        if hasattr(whole, name):
            mine, its = getattr(model, name), getattr(whole, name)
            np.testing.assert_allclose(mine, its, rtol, atol=1e-9, err_msg=name)
    for name in ("value", "std_error"):
        mine, its = getattr(model.objective_, name), getattr(whole.objective_, name)
        np.testing.assert_allclose(mine, its, rtol=rtol)
    assert hasattr(model, "classes_") == hasattr(whole, "classes_")
    if hasattr(whole, "classes_"):
        np.testing.assert_array_equal(model.classes_, whole.classes_)
    for name in ("coreset_size_", "n_features_in_"):
        assert getattr(model, name) == getattr(whole, name), name
    assert [trial.size for trial in model.size_trials_] == [trial.size for trial in whole.size_trials_]
    theirs = set(vars(whole)) - {"labels_", "feature_names_in_"}
    assert set(vars(model)) - {"feature_names_in_"} == theirs


@pytest.mark.usefixtures("few_sampled")
@pytest.mark.parametrize("made", ["batches", "parquet", "dask arrays", "dask frame"])
@cases("logistic", "k-means", "huber, auto", "truth, auto")
def test_it_is_the_model_of_all_rows_in_memory(case, made, tmp_path):
    X, y, _ = case.data(1200)
    model = case.make(random_state=0, **SIZE)
    assert_as_in_memory(model, given(made, X, y, None, tmp_path), X, y)
    assert model.coreset_size_ < 1200
    named = made in ("parquet", "dask frame")
    assert hasattr(model, "feature_names_in_") == named
    if named:
        assert list(model.feature_names_in_) == ["x0", "x1", "x2"] == list(model.coreset_.columns)


@pytest.mark.usefixtures("few_sampled")
@pytest.mark.parametrize("made", ["batches", "dask frame"])
@cases("logistic", "truth, auto")
def test_so_it_is_with_weights_of_which_some_are_zero(case, made, tmp_path):
    X, y, _ = case.data(2000, seed=1)
    weights = np.random.default_rng(0).integers(0, 5, size=2000) / 2
    source = given(made, X, y, weights, tmp_path)
    assert_as_in_memory(case.make(random_state=0, **SIZE), source, X, y, weights)


@pytest.mark.slow
@pytest.mark.parametrize("name, tol", [("logistic", 0.0015), ("squared", 0.0007), ("k-means", 0.0003)])
def test_the_same_sizes_are_tried(name, tol, tmp_path):
    X, y, _ = CASE[name].data(30_000, seed=2)
    model = CASE[name].make(random_state=0, tol=tol)
    assert_as_in_memory(model, given("batches", X, y, None, tmp_path), X, y)
    assert len(model.size_trials_) > 1


@pytest.mark.parametrize("n_outliers", [0, 1, pytest.param(0.3, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", ["multinomial", pytest.param("k-medians", marks=pytest.mark.slow)])
def test_any_number_of_outliers_will_do(name, n_outliers, tmp_path):
    X, y, _ = CASE[name].data(1000)
    model = CASE[name].make(random_state=0, n_outliers=n_outliers, **SIZE)
    assert_as_in_memory(model, given("dask arrays", X, y, None, tmp_path), X, y)


@pytest.mark.parametrize("n", [1, 250])
def test_a_coreset_may_be_all_rows(n):
    X = np.random.default_rng(0).normal(size=(n, 2))
    assert_as_in_memory(dm.RobustKMeans(1, 0, random_state=0), [dm.scan([X])], X)


@pytest.mark.parametrize("made", ["parquet", "dask frame"])
def test_single_precision_stays(made, tmp_path):
    X = CASE["k-means"].data(1000)[0].astype(np.float32)
    model = dm.RobustKMeans(2, random_state=0, **SIZE)
    assert_as_in_memory(model, given(made, X, None, None, tmp_path), X)
    assert model.coreset_.X.dtype == np.float32


def test_text_classes_of_files_are_the_classes(tmp_path):
    X, y, _ = CASE["multinomial"].data(1000)
    names = np.array(["no", "yes", "maybe"])[y]
    model = dm.RobustLogisticRegression(random_state=0, **SIZE)
    _, whole = assert_as_in_memory(model, [files(X, names, None, tmp_path)], X, names)
    pandas = pytest.importorskip("pandas", reason="needs duramen[frames]")
    rows = pandas.DataFrame(X[:50], columns=["x0", "x1", "x2"])
    np.testing.assert_array_equal(model.predict(rows), whole.predict(X[:50]))


def test_sparse_rows_will_do_where_they_do_in_memory():
    X, y, _ = CASE["logistic"].data(1000)
    X[np.abs(X) < 0.7] = 0
    rows = sparse.csr_array(X)
    scan = dm.scan([(rows[cut], y[cut]) for cut in cuts_of(1000)])
    assert_as_in_memory(dm.RobustLogisticRegression(random_state=0, **SIZE), [scan], rows, y)


@cases("multinomial", "k-means", "truth, auto")
def test_all_that_workers_receive_and_return_can_be_pickled(case, monkeypatch):
    X, y, _ = case.data(1000)
    reduce_partition = dask_module._reduce_partition

    def send(shared, *blocks):
        return pickle.loads(pickle.dumps(reduce_partition(pickle.loads(pickle.dumps(shared)), *blocks)))

    monkeypatch.setattr(dask_module, "_reduce_partition", send)
    assert_as_in_memory(case.make(random_state=0, **SIZE), arrays(X, y, None)[:2], X, y)


@pytest.mark.parametrize("labels", [[-1, 1], [3, 7], [False, True]])
def test_classes_of_numbers_have_their_names(labels, tmp_path):
    X, y, _ = CASE["logistic"].data(1000)
    y = np.array(labels)[y]
    model = dm.RobustLogisticRegression(random_state=0, **SIZE)
    _, whole = assert_as_in_memory(model, given("dask arrays", X, y, None, tmp_path), X, y)
    assert model.classes_.dtype == whole.classes_.dtype
    np.testing.assert_array_equal(model.predict(X), whole.predict(X))


@pytest.mark.parametrize("case", [CASE["logistic"], HUBER], ids=lambda case: case.name)
def test_a_generator_gives_the_same_seeds(case):
    X, y, _ = case.data(1500)
    whole = case.make(random_state=np.random.default_rng(5), **SIZE).fit(X, y)
    scan = dm.scan([(X, y)])
    assert_same(case.make(random_state=np.random.default_rng(5), **SIZE).fit(scan), whole)
    assert np.isfinite(case.make(random_state=None, **SIZE).fit(scan).trimmed_loss_)


class Counted:
    """Batches that count how often they are read."""

    def __init__(self, *batches):
        self.batches, self.n_passes = batches, 0

    def __call__(self):
        self.n_passes += 1
        return iter(self.batches)


@pytest.mark.parametrize(
    "case, n_rounds, n_passes",
    [
        (CASE["logistic"], 2, 4),
        (CASE["multinomial"], 1, 3),
        (CASE["k-means"], 3, 5),
        (HUBER, 2, 5),
        (TRUTH, 2, 4),
    ],
    ids=lambda value: getattr(value, "name", value),
)
def test_there_are_as_many_passes_as_documented(case, n_rounds, n_passes):
    X, y, _ = case.data(1000)
    batches, seen = Counted((X[:400], take(y, slice(400))), (X[400:], take(y, slice(400, None)))), []
    scan = dm.scan(batches, progress=lambda number, share, rows: seen.append((number, rows)))
    case.make(random_state=None, n_rounds=n_rounds, **SIZE).fit(scan)
    assert batches.n_passes == n_passes
    assert seen == [(number, rows) for number in range(1, n_passes + 1) for rows in (400, 1000)]


def test_few_distinct_rows_are_found_wherever_they_are():
    X = np.repeat([[0.0, 0.0], [1.0, 1.0], [5.0, 5.0]], [700, 200, 100], axis=0)
    scan = dm.scan([X[:500], X[500:950], X[950:]])
    with pytest.warns(ConvergenceWarning, match="distinct rows"):
        model = dm.RobustKMeans(5, 0, random_state=0, **SIZE).fit(scan)
    np.testing.assert_allclose(model.cluster_centers_, [[0, 0], [1, 1], [5, 5], [5, 5], [5, 5]], atol=1e-9)


def test_a_class_that_is_set_aside_as_a_whole_is_warned_of():
    X = np.random.default_rng(0).normal(size=(900, 2))
    y = np.digitize(X[:, 0], [-0.5, 0.5])
    X[-5:], y[-5:] = 40, 3
    scan = dm.scan([(X[:400], y[:400]), (X[400:], y[400:])])
    with pytest.warns(UserWarning, match="set aside 5 of the 5 rows .* of the class 3"):
        dm.RobustLogisticRegression(8, random_state=0, **SIZE).fit(scan)


def test_own_ids_name_the_outliers(tmp_path):
    X, _, _ = CASE["k-means"].data(800)
    ids = np.random.default_rng(0).permutation(10_000)[:800]
    scan = dm.scan([dm.points(X[:300], ids=ids[:300]), dm.points(X[300:], ids=ids[300:])])
    model = dm.RobustKMeans(2, 10, random_state=0, **SIZE).fit(scan)
    worst = ids[np.argsort(model.losses(X))[::-1][:10]]
    np.testing.assert_array_equal(model.outliers_, worst)


def test_labels_are_not_kept():
    X, _, _ = CASE["k-means"].data(800)
    model = dm.RobustKMeans(2, random_state=0, **SIZE).fit(X)
    assert len(model.labels_) == 800
    labels = model.labels_
    model.fit(dm.scan([X]))
    assert not hasattr(model, "labels_")
    np.testing.assert_array_equal(model.predict(X), labels)
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(again.cluster_centers_, model.cluster_centers_)
    with pytest.raises(TypeError, match="call fit, and then predict on batches"):
        model.fit_predict(dm.scan([X]))


def test_names_of_an_earlier_fit_are_gone(tmp_path):
    X, y, _ = CASE["logistic"].data(600)
    model = dm.RobustLogisticRegression(random_state=0, **SIZE).fit(files(X, y, None, tmp_path))
    assert hasattr(model, "feature_names_in_")
    assert not hasattr(model.fit(dm.scan([(X, y)])), "feature_names_in_")


X_SMALL = np.random.default_rng(0).normal(size=(60, 2))
Y_SMALL = (X_SMALL[:, 0] > 0).astype(float)


def broken(value, where=37):
    X = X_SMALL.copy()
    X[where, 1] = value
    return X


LOGISTIC, LINEAR, KMEANS = dm.RobustLogisticRegression, dm.RobustLinearRegression, dm.RobustKMeans
ROWS, LABELLED = [X_SMALL], [(X_SMALL, Y_SMALL)]


@pytest.mark.parametrize(
    "model, batches, error, message",
    [
        (KMEANS(2, coreset_size=None), ROWS, TypeError, "coreset_size=None keep all rows"),
        (KMEANS(2, updatable=True), ROWS, TypeError, "updatable=True and .* keep all rows"),
        (KMEANS(2, coreset_size="large"), ROWS, ValueError, "coreset_size='large'"),
        (KMEANS(2, n_outliers=60), ROWS, ValueError, "not below the total weight 60"),
        (KMEANS(90), ROWS, ValueError, "n_samples=60 should be >= n_clusters=90"),
        (KMEANS(2), [X_SMALL[:30], broken(np.nan)[30:]], ValueError, "batch 1: X has NaN in row 7, column 1"),
        (KMEANS(2), [sparse.csr_array(X_SMALL)], TypeError, "X must be dense"),
        (KMEANS(2), [], ValueError, "there are no rows with positive weight"),
        (KMEANS(2), [(X_SMALL, None, np.zeros(60))], ValueError, "no rows with positive weight"),
        (LOGISTIC(), ROWS, ValueError, r"name their column in dm.scan"),
        (LOGISTIC(), [(X_SMALL, X_SMALL[:, 0])], ValueError, "is not a class"),
        (LOGISTIC(), [(X_SMALL, np.ones(60))], ValueError, "rows of positive weight belong to one class, 1"),
        (LOGISTIC(30), LABELLED, ValueError, "could set aside the whole class"),
        (LOGISTIC(C=-1), LABELLED, ValueError, "C=-1"),
        (LINEAR("poisson"), [(X_SMALL, -Y_SMALL)], ValueError, "PoissonLoss|label"),
        (LINEAR("cubic"), LABELLED, ValueError, "loss='cubic' is not known"),
        (LINEAR("huber", delta=-1), LABELLED, ValueError, "delta"),
        (dm.RobustBregmanClustering(2, "kl"), ROWS, ValueError, "0 or more|negative"),
        (dm.TruthDiscovery(scale=0), ROWS, ValueError, "scale=0 must be"),
    ],
    ids=str,
)
def test_what_cannot_be_fitted_is_refused_and_nothing_changes(model, batches, error, message):
    model = clone(model)
    with pytest.raises(error, match=message):
        model.fit(dm.scan(batches))
    assert not [name for name in vars(model) if name.endswith("_")]


def test_labels_and_weights_beside_a_scan_are_refused():
    scan, (dX, dy, _) = dm.scan([(X_SMALL, Y_SMALL)]), arrays(X_SMALL, Y_SMALL, None)
    for model, X, y, weights, error, message in (
        (
            LOGISTIC(),
            scan,
            Y_SMALL,
            None,
            TypeError,
            r"y cannot be passed with .* dm.scan\(..., label=, weight=, id=\)",
        ),
        (KMEANS(2), scan, None, Y_SMALL, TypeError, r"sample_weight cannot be passed with .* weight=, id=\)"),
        (LOGISTIC(), dX, Y_SMALL, None, TypeError, "y must be a Dask Series, or"),
        (LOGISTIC(), dX, None, None, ValueError, "labels are needed"),
        (LOGISTIC(), dX, dy[:50], None, ValueError, "pass one value for each row"),
    ):
        with pytest.raises(error, match=message):
            model.fit(X, y, sample_weight=weights)


def test_text_is_not_a_label_of_a_regression(tmp_path):
    with pytest.raises(ValueError, match="labels must be numbers; those of the scan are text"):
        dm.RobustLinearRegression().fit(files(X_SMALL, np.where(Y_SMALL, "a", "b"), None, tmp_path))


def test_the_last_pass_keeps_few_rows_however_many_there_are():
    rng, z = np.random.default_rng(0), 50
    trimmed, all_losses = TrimmedPass(dm.KMeansLoss(1), np.zeros((1, 1)), z), []
    for number in range(40):
        X = rng.integers(30, size=(500, 1)).astype(float)  # with ties
        trimmed.add(dm.points(X, ids=500 * number + np.arange(500)))
        all_losses.append((X**2).ravel())
        assert len(trimmed.summary().ids) == z
    losses = np.concatenate(all_losses)
    found, order = trimmed.summary(), np.lexsort((np.arange(20_000), losses))[::-1]
    np.testing.assert_array_equal(found.ids, order[:z])
    assert found.trimmed_loss == losses[order[z:]].sum()
    assert found.losses[-1] == losses[order[z - 1]]
