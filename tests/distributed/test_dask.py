"""Laws of the coreset of a Dask collection: that of one machine, however the rows are cut; on local schedulers."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

import duramen as dm
from duramen.coreset import view
from duramen.distributed import dask as dmd
from duramen.distributed.dask import DaskSource
from tests.distributed.made import LOGISTIC, arrays_of, assert_law, at_home, da, dask, dd, frame_of, pandas_of
from tests.support import PROBLEMS, SAMPLERS, SUITS, any_problem, assert_same_coreset, at_once, data


@pytest.mark.parametrize("name, sampler", SUITS, ids=lambda value: value)
def test_it_is_the_coreset_of_one_machine(name, sampler):
    problem, points = PROBLEMS[name], data(name)
    asked = {"loss": problem.loss, "sampler": SAMPLERS[sampler], "anchor": problem.anchor()}
    core = assert_law(points, frame_of(points, (100, 100, 250)), **asked)
    assert core.columns == ("x0", "x1")


@pytest.mark.parametrize(
    "name, sampler, make",
    [
        ("logistic", "auto", frame_of), ("logistic", "sensitivity", arrays_of), ("logistic", "leverage", frame_of),
        ("huber", "uniform", arrays_of), ("huber", "auto", frame_of), ("k-means", "auto", arrays_of),
        ("k-means", "own", frame_of), ("softmax", "auto", arrays_of),
    ],
)  # fmt: skip
def test_the_anchor_it_finds_is_the_same(name, sampler, make):
    points = data(name, n=3000)
    collection = make(points, range(0, 3000, 271))  # 13 partitions, more than one merge takes
    assert_law(points, collection, loss=PROBLEMS[name].loss, sampler=SAMPLERS[sampler])


@pytest.mark.slow
@settings(max_examples=40)
@given(any_problem(), st.sampled_from([frame_of, arrays_of]))
def test_the_coreset_does_not_depend_on_partitions_or_order(problem, make):
    points, cuts, order, chosen = problem
    with dask.config.set(scheduler="synchronous"):
        assert_law(points, make(points, cuts, order), **chosen)


@pytest.mark.parametrize(
    "scheduler", ["threads", "synchronous", pytest.param("processes", marks=pytest.mark.slow), None]
)
@pytest.mark.parametrize("make", [frame_of, arrays_of])
def test_every_scheduler(scheduler, make, request):
    points = data(n=2000)
    pool = {"pool": request.getfixturevalue("two_processes")} if scheduler == "processes" else {}
    chosen = {} if scheduler is None else {"scheduler": scheduler}
    with dask.config.set(**chosen, **pool):
        assert_law(points, make(points, range(0, 2000, 171)), loss=dm.LogisticLoss())


@pytest.mark.parametrize(
    "types",
    [
        {},
        dict.fromkeys(["x0", "x1"], "float32"),
        {"x0": "float32"},
        {"x0": "float32", "x1": "int8"},
        {"x0": "int64", "x1": "bool"},
        {"x0": "Float32", "x1": "Float32"},
        {"x0": "float16", "x1": "float16"},
        {"y": "int8"},
    ],
    ids=str,
)
def test_rows_are_numbered_and_keep_their_type(types):
    table = pandas_of(data(n=500)).astype(types)
    frame = dd.from_pandas(table.set_index("key"), npartitions=7)
    table = table.set_index("key").sort_index()
    core = dmd.robust_coreset(frame, label="y", features=["x1", "x0"], **LOGISTIC)
    expected = at_home(table, ["x1", "x0"])
    assert_same_coreset(core, expected)
    assert core.columns == expected.columns == ("x1", "x0")
    assert core.y.dtype == expected.y.dtype
    assert core.ids.max() < 500


def test_features_are_all_columns_without_another_role():
    table = pandas_of(data(n=300)).rename(columns={"x0": 0})
    frame = dd.from_pandas(table, npartitions=3)
    core = dmd.robust_coreset(frame, label="y", weight="heavy", **LOGISTIC)
    assert core.columns == ("0", "x1", "key")
    expected = at_home(table, [0, "x1", "key"], sample_weight=table["heavy"])
    assert_same_coreset(core, expected)


def test_labels_weights_and_ids_may_be_series():
    points = data(n=500)
    frame, _ = frame_of(points, (10, 300, 300))
    columns = {"y": frame["y"], "sample_weight": frame["heavy"], "ids": frame["key"]}
    assert_law(points, (frame[["x0", "x1"]], columns), loss=dm.LogisticLoss())
    array = frame[["x0", "x1"]].to_dask_array()  # of unknown length
    assert_law(points, (array, columns), loss=dm.LogisticLoss())


@pytest.mark.parametrize("with_ids", [False, True])
def test_arrays_of_unknown_length(with_ids):
    points = data(n=900, heavy="none")
    keep = points.X[:, 0] > -1
    X, columns = arrays_of(points, range(0, 900, 97))
    kept, there = keep.nonzero()[0], da.from_array(keep, chunks=97)
    X, y, ids = (column.rechunk({0: 97})[there] for column in (X, columns["y"], columns["ids"]))
    core = dmd.robust_coreset(X, y, ids=ids if with_ids else None, **LOGISTIC)
    ids = points.ids[kept] if with_ids else np.arange(len(kept))
    assert_same_coreset(core, at_once(dm.points(points.X[kept], points.y[kept], ids=ids), **LOGISTIC))
    assert np.isnan(X.shape[0])  # theirs is left as it was


@pytest.mark.parametrize("sampler", view.SAMPLERS)
def test_sparse_blocks(sampler):
    points = data(n=500, heavy="none")
    X, columns = arrays_of(points)
    blocks = X.rechunk({1: -1}).map_blocks(sparse.csr_array, dtype=float)
    sparsely = dm.points(sparse.csr_array(points.X), points.y, ids=points.ids)
    assert_law(sparsely, (blocks, columns), loss=dm.LogisticLoss(), sampler=sampler)


def test_a_reader_that_joins_partitions_where_few_columns_are_needed(tmp_path):
    """Rows were counted in other partitions than they were read in."""
    rng = np.random.default_rng(0)
    table = pandas_of(dm.points(rng.normal(size=(2400, 20)), rng.choice([-1, 1], size=2400)))
    for part in range(12):
        table.iloc[part * 200 : part * 200 + 200].to_parquet(tmp_path / f"{part:02}.parquet")
    frame = dd.read_parquet(tmp_path).fillna(0)
    assert frame[["x1"]].optimize().npartitions < frame.npartitions  # else there is nothing to see here
    for features in (["x1"], ["x3", "x1", "x5"], list(table.columns[:20])):
        core = dmd.robust_coreset(frame, label="y", features=features, **LOGISTIC)
        assert_same_coreset(core, at_home(table, features))
        if dask.__version__ >= "2025":  # before, nothing could keep them apart
            assert len(DaskSource(frame, features, label="y")) == 12  # errors name the user's own


def test_a_seed_may_be_a_generator():
    frame, columns = frame_of(data(n=400))
    one, other = (
        dmd.robust_coreset(frame, **columns, **LOGISTIC | {"random_state": seed})
        for seed in (3, np.random.default_rng(3))
    )
    assert_same_coreset(one, other)
