"""Laws of fitting on data beyond memory: the model of all rows at once, from scans and from Dask collections."""

import pickle
from dataclasses import replace

import numpy as np
import pytest
from scipy import sparse
from sklearn.exceptions import ConvergenceWarning

import duramen as dm
from duramen.coreset import first_pass as census
from duramen.coreset import view as samples
from duramen.estimators import fitting as data
from duramen.estimators import out_of_core as gathering
from duramen.estimators.out_of_core import TrimmedPass
from tests.estimators.cases import CASES

SIZE = {"coreset_size": 300}
MADE = ["batches", "parquet", "dask arrays", "dask frame"]
AUTO = [
    *CASES,
    replace(
        CASES[3], name="huber, auto", make=lambda **settings: dm.RobustLinearRegression("huber", **settings)
    ),
    replace(CASES[8], name="truth, auto", make=dm.TruthDiscovery),
]
every_case = pytest.mark.parametrize("case", AUTO, ids=lambda case: case.name)


@pytest.fixture
def few_sampled(monkeypatch):
    """Let samples be samples, of data that is small."""
    for module in (samples, census, data):
        monkeypatch.setattr(module, "SAMPLE", 400)


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
    """Write Parquet files, of several row groups; give a scan of them."""
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
    """Give data to ``fit`` in one of the ways there are."""
    if made == "batches":
        whole = [X, y, weights]
        return (
            dm.scan([tuple(None if one is None else one[cut] for one in whole) for cut in cuts_of(len(X))]),
        )
    if made == "parquet":
        return (files(X, y, weights, folder),)
    return (arrays if made == "dask arrays" else frame)(X, y, weights)


def assert_same(model, whole, rtol=1e-6):
    """Compare all that two models have, but for what is one value a row."""
    np.testing.assert_array_equal(model.coreset_.ids, whole.coreset_.ids)
    np.testing.assert_allclose(model.coreset_.weights, whole.coreset_.weights, rtol=rtol)
    np.testing.assert_array_equal(model.outliers_, whole.outliers_)
    assert model.outliers_.dtype == whole.outliers_.dtype
    names = ("coef_", "intercept_", "cluster_centers_", "truth_", "scale_", "delta_", "inertia_")
    for name in (*names, "trimmed_loss_", "threshold_"):
        if hasattr(whole, name):
            np.testing.assert_allclose(
                getattr(model, name), getattr(whole, name), rtol, atol=1e-9, err_msg=name
            )
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
@pytest.mark.parametrize("made", MADE)
@every_case
def test_it_is_the_model_of_all_rows_at_once(case, made, tmp_path):
    X, y, _ = case.data(2000)
    whole = case.fit(X, y, **SIZE)
    assert whole.coreset_size_ < 2000
    model = case.make(random_state=0, **SIZE).fit(*given(made, X, y, None, tmp_path))
    assert_same(model, whole)
    named = made in ("parquet", "dask frame")
    assert hasattr(model, "feature_names_in_") == named
    if named:
        assert list(model.feature_names_in_) == ["x0", "x1", "x2"] == list(model.coreset_.columns)


@pytest.mark.usefixtures("few_sampled")
@pytest.mark.parametrize("made", ["batches", "dask frame"])
@every_case
def test_so_it_is_with_weights_of_which_some_are_zero(case, made, tmp_path):
    X, y, _ = case.data(2000, seed=1)
    weights = np.random.default_rng(0).integers(0, 5, size=2000) / 2
    whole = case.fit(X, y, weights, **SIZE)
    assert_same(case.make(random_state=0, **SIZE).fit(*given(made, X, y, weights, tmp_path)), whole)


@pytest.mark.parametrize(
    "case, tol",
    [(CASES[0], 0.0015), (CASES[2], 0.0007), (CASES[5], 0.0003)],
    ids=["logistic", "squared", "k-means"],
)
def test_sizes_that_are_tried_are_the_same(case, tol, tmp_path):
    X, y, _ = case.data(30_000, seed=2)
    whole = case.fit(X, y, tol=tol)
    model = case.make(random_state=0, tol=tol).fit(*given("batches", X, y, None, tmp_path))
    assert len(whole.size_trials_) > 1
    assert_same(model, whole)


@pytest.mark.parametrize("n_outliers", [0, 1, 0.3])
@pytest.mark.parametrize("case", [CASES[1], CASES[6]], ids=lambda case: case.name)
def test_any_number_of_outliers_will_do(case, n_outliers, tmp_path):
    X, y, _ = case.data(1000)
    settings = {"n_outliers": n_outliers, **SIZE}
    whole = case.fit(X, y, **settings)
    model = case.make(random_state=0, **settings).fit(*given("dask arrays", X, y, None, tmp_path))
    assert_same(model, whole)


@pytest.mark.parametrize("n", [1, 250])
def test_data_that_a_coreset_holds_as_a_whole_will_do_too(n, tmp_path):
    X = np.random.default_rng(0).normal(size=(n, 2))
    whole = dm.RobustKMeans(1, 0, random_state=0).fit(X)
    assert_same(dm.RobustKMeans(1, 0, random_state=0).fit(dm.scan([X])), whole)


def test_single_precision_stays_so(tmp_path):
    X, _, _ = CASES[5].data(2000)
    X = X.astype(np.float32)
    whole = dm.RobustKMeans(2, random_state=0, **SIZE).fit(X)
    for made in ("parquet", "dask frame"):
        model = dm.RobustKMeans(2, random_state=0, **SIZE).fit(*given(made, X, None, None, tmp_path))
        assert model.coreset_.X.dtype == np.float32
        assert_same(model, whole)


def test_text_classes_of_files_are_the_classes(tmp_path):
    X, y, _ = CASES[1].data(2000)
    names = np.array(["no", "yes", "maybe"])[y]
    whole = dm.RobustLogisticRegression(random_state=0, **SIZE).fit(X, names)
    model = dm.RobustLogisticRegression(random_state=0, **SIZE).fit(files(X, names, None, tmp_path))
    assert_same(model, whole)
    pandas = pytest.importorskip("pandas", reason="needs duramen[frames]")
    rows = pandas.DataFrame(X[:50], columns=["x0", "x1", "x2"])
    np.testing.assert_array_equal(model.predict(rows), whole.predict(X[:50]))


def test_sparse_rows_will_do_where_they_do_in_memory():
    X, y, _ = CASES[0].data(1000)
    X[np.abs(X) < 0.7] = 0
    rows = sparse.csr_array(X)
    whole = dm.RobustLogisticRegression(random_state=0, **SIZE).fit(rows, y)
    scan = dm.scan([(rows[cut], y[cut]) for cut in cuts_of(1000)])
    assert_same(dm.RobustLogisticRegression(random_state=0, **SIZE).fit(scan), whole)


@every_case
def test_all_that_workers_get_and_give_can_travel(case, monkeypatch):
    X, y, _ = case.data(1000)
    whole, gathered = case.fit(X, y, **SIZE), gathering._gathered

    def sent(points, shared):
        return pickle.loads(pickle.dumps(gathered(points, pickle.loads(pickle.dumps(shared)))))

    monkeypatch.setattr(gathering, "_gathered", sent)
    rows, labels, _ = arrays(X, y, None)
    assert_same(case.make(random_state=0, **SIZE).fit(rows, labels), whole)


def test_an_error_on_a_worker_begins_with_the_name_of_the_partition():
    da = pytest.importorskip("dask.array", reason="needs duramen[dask]")
    X = da.from_array(broken(np.inf), chunks=(20, 2))
    with pytest.raises(
        ValueError, match=r"partition 1 of 3 \(rows 20 to 39\): X has inf in row 17, column 1"
    ):
        dm.RobustKMeans(2).fit(X)


@pytest.mark.parametrize("labels", [[-1, 1], [3, 7], [False, True]])
def test_classes_of_numbers_have_their_names(labels, tmp_path):
    X, y, _ = CASES[0].data(1000)
    y = np.array(labels)[y]
    whole = dm.RobustLogisticRegression(random_state=0, **SIZE).fit(X, y)
    model = dm.RobustLogisticRegression(random_state=0, **SIZE).fit(
        *given("dask arrays", X, y, None, tmp_path)
    )
    assert_same(model, whole)
    assert model.classes_.dtype == whole.classes_.dtype
    np.testing.assert_array_equal(model.predict(X), whole.predict(X))


@pytest.mark.parametrize("case", [CASES[0], AUTO[-2]], ids=lambda case: case.name)
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
    [(CASES[0], 2, 4), (CASES[1], 1, 3), (CASES[5], 3, 5), (AUTO[-2], 2, 5), (AUTO[-1], 2, 4)],
    ids=lambda value: getattr(value, "name", value),
)
def test_there_are_as_many_passes_as_is_said(case, n_rounds, n_passes):
    X, y, _ = case.data(2000)
    batches, seen = (
        Counted((X[:900], None if y is None else y[:900]), (X[900:], None if y is None else y[900:])),
        [],
    )
    scan = dm.scan(batches, progress=lambda number, share, rows: seen.append((number, rows)))
    case.make(random_state=0, n_rounds=n_rounds, **SIZE).fit(scan)
    assert batches.n_passes == n_passes
    assert seen == [(number, rows) for number in range(1, n_passes + 1) for rows in (900, 2000)]


def test_few_distinct_rows_are_told_wherever_they_are():
    X = np.repeat([[0.0, 0.0], [1.0, 1.0], [5.0, 5.0]], [700, 200, 100], axis=0)
    scan = dm.scan([X[:500], X[500:950], X[950:]])
    with pytest.warns(ConvergenceWarning, match="distinct rows"):
        model = dm.RobustKMeans(5, 0, random_state=0, **SIZE).fit(scan)
    np.testing.assert_allclose(model.cluster_centers_, [[0, 0], [1, 1], [5, 5], [5, 5], [5, 5]], atol=1e-9)


def test_a_class_that_is_set_aside_as_a_whole_is_told():
    X = np.random.default_rng(0).normal(size=(900, 2))
    y = np.digitize(X[:, 0], [-0.5, 0.5])
    X[-5:], y[-5:] = 40, 3
    with pytest.warns(UserWarning, match="all rows of the class 3 were set aside"):
        dm.RobustLogisticRegression(8, random_state=0, **SIZE).fit(
            dm.scan([(X[:400], y[:400]), (X[400:], y[400:])])
        )


def test_own_ids_name_the_outliers(tmp_path):
    X, _, _ = CASES[5].data(800)
    ids = np.random.default_rng(0).permutation(10_000)[:800]
    scan = dm.scan([dm.points(X[:300], ids=ids[:300]), dm.points(X[300:], ids=ids[300:])])
    model = dm.RobustKMeans(2, 10, random_state=0, **SIZE).fit(scan)
    worst = ids[np.argsort(model.losses(X))[::-1][:10]]
    np.testing.assert_array_equal(model.outliers_, worst)


def test_labels_are_not_kept_and_the_way_out_is_said():
    X, _, _ = CASES[5].data(800)
    model = dm.RobustKMeans(2, random_state=0, **SIZE).fit(X)
    assert len(model.labels_) == 800
    labels = model.labels_
    model.fit(dm.scan([X]))
    assert not hasattr(model, "labels_")
    with pytest.raises(AttributeError, match="call predict on batches"):
        _ = model.labels_
    np.testing.assert_array_equal(model.predict(X), labels)
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(again.cluster_centers_, model.cluster_centers_)
    with pytest.raises(AttributeError, match="has no attribute 'labels_'"):
        _ = dm.RobustKMeans(2).labels_
    with pytest.raises(TypeError, match="call fit, and then predict on batches"):
        model.fit_predict(dm.scan([X]))


def test_names_of_an_earlier_fit_are_gone(tmp_path):
    X, y, _ = CASES[0].data(600)
    model = dm.RobustLogisticRegression(random_state=0, **SIZE).fit(files(X, y, None, tmp_path))
    assert hasattr(model, "feature_names_in_")
    assert not hasattr(model.fit(dm.scan([(X, y)])), "feature_names_in_")


X_SMALL = np.random.default_rng(0).normal(size=(60, 2))
Y_SMALL = (X_SMALL[:, 0] > 0).astype(float)


def broken(value, where=37):
    X = X_SMALL.copy()
    X[where, 1] = value
    return X


@pytest.mark.parametrize(
    "make, batches, error, told",
    [
        (
            lambda: dm.RobustKMeans(2, coreset_size=None),
            [X_SMALL],
            TypeError,
            "coreset_size=None keeps all rows",
        ),
        (lambda: dm.RobustKMeans(2, updatable=True), [X_SMALL], TypeError, "updatable=True keeps all rows"),
        (lambda: dm.RobustKMeans(2, coreset_size="large"), [X_SMALL], ValueError, "coreset_size='large'"),
        (lambda: dm.RobustKMeans(2, n_outliers=60), [X_SMALL], ValueError, "not below the total weight 60"),
        (lambda: dm.RobustKMeans(90), [X_SMALL], ValueError, "n_samples=60 should be >= n_clusters=90"),
        (
            lambda: dm.RobustKMeans(2),
            [X_SMALL[:30], broken(np.nan)[30:]],
            ValueError,
            "batch 1: X has NaN in row 7, column 1",
        ),
        (lambda: dm.RobustKMeans(2), [sparse.csr_array(X_SMALL)], TypeError, "dense rows are needed"),
        (lambda: dm.RobustKMeans(2), [], ValueError, "there are no rows"),
        (lambda: dm.RobustKMeans(2), [(X_SMALL, None, np.zeros(60))], ValueError, "nothing to fit"),
        (dm.RobustLogisticRegression, [X_SMALL], ValueError, r"name their column in dm.scan"),
        (dm.RobustLogisticRegression, [(X_SMALL, X_SMALL[:, 0])], ValueError, "is no class"),
        (
            dm.RobustLogisticRegression,
            [(X_SMALL, np.ones(60))],
            ValueError,
            "all rows of weight are of one class, 1",
        ),
        (
            lambda: dm.RobustLogisticRegression(30),
            [(X_SMALL, Y_SMALL)],
            ValueError,
            "could set aside the whole class",
        ),
        (lambda: dm.RobustLogisticRegression(C=-1), [(X_SMALL, Y_SMALL)], ValueError, "C=-1"),
        (
            lambda: dm.RobustLinearRegression("poisson"),
            [(X_SMALL, -Y_SMALL)],
            ValueError,
            "PoissonLoss|label",
        ),
        (
            lambda: dm.RobustLinearRegression("cubic"),
            [(X_SMALL, Y_SMALL)],
            ValueError,
            "loss='cubic' is not known",
        ),
        (lambda: dm.RobustLinearRegression("huber", delta=-1), [(X_SMALL, Y_SMALL)], ValueError, "delta"),
        (lambda: dm.RobustBregmanClustering(2, "kl"), [X_SMALL], ValueError, "0 or more|negative"),
        (lambda: dm.TruthDiscovery(scale=0), [X_SMALL], ValueError, "scale=0 must be"),
    ],
)
def test_what_cannot_be_fitted_is_refused_and_nothing_changes(make, batches, error, told):
    model = make()
    with pytest.raises(error, match=told):
        model.fit(dm.scan(batches))
    assert not [name for name in vars(model) if name.endswith("_")]


def test_what_was_given_beside_the_data_is_refused():
    scan, (dX, dy, _) = dm.scan([(X_SMALL, Y_SMALL)]), arrays(X_SMALL, Y_SMALL, None)
    with pytest.raises(TypeError, match=r"y cannot be passed beside .* dm.scan\(..., label=...\)"):
        dm.RobustLogisticRegression().fit(scan, Y_SMALL)
    with pytest.raises(TypeError, match=r"sample_weight cannot be passed beside .* weight=...\)"):
        dm.RobustKMeans(2).fit(scan, sample_weight=Y_SMALL)
    with pytest.raises(TypeError, match="y must be a Dask array or Series"):
        dm.RobustLogisticRegression().fit(dX, Y_SMALL)
    with pytest.raises(ValueError, match="labels are needed"):
        dm.RobustLogisticRegression().fit(dX)
    with pytest.raises(ValueError, match="values for 60 rows"):
        dm.RobustLogisticRegression().fit(dX, dy[:50])


def test_text_is_no_label_of_a_regression(tmp_path):
    with pytest.raises(ValueError, match="labels must be numbers; the scan's are text"):
        dm.RobustLinearRegression().fit(files(X_SMALL, np.where(Y_SMALL, "a", "b"), None, tmp_path))


def test_what_a_look_holds_does_not_grow_with_the_rows():
    rng, z = np.random.default_rng(0), 50
    looking, all_losses = TrimmedPass(dm.KMeansLoss(1), np.zeros((1, 1)), z), []
    for number in range(40):
        X = rng.integers(30, size=(500, 1)).astype(float)  # with ties
        looking.add(dm.points(X, ids=500 * number + np.arange(500)))
        all_losses.append((X**2).ravel())
        assert looking._n_waiting + len(looking._held.ids) <= 2 * (z + 1) + 500
    losses = np.concatenate(all_losses)
    look, order = looking.summary().look(z), np.lexsort((np.arange(20_000), losses))[::-1]
    np.testing.assert_array_equal(look.outliers, order[:z])
    assert look.trimmed_loss == losses[order[z:]].sum()
    assert look.threshold == losses[order[z - 1]]
