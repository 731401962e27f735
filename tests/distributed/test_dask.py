"""Laws of the coreset of a Dask collection: that of one machine, however the rows are cut; on local schedulers."""

import re
import sys
import threading

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse

import duramen as dm
from duramen import chunks
from duramen.distributed import dask as dmd
from duramen.distributed import plan, summarize
from duramen.distributed.dask.collections import parts_of
from duramen.distributed.dask.parts import constant
from duramen.robust import sample as samples
from duramen.robust.passes import census
from tests.conformance.cases import CASES
from tests.distributed.made import arrays_of, assert_same, at_once, data, frame_of, pandas_of
from tests.dynamic.model import KINDS, PROBLEMS, SAMPLERS, SUITS, Heaviest, quietly

dask = pytest.importorskip("dask", reason="needs duramen[dask]")
da = pytest.importorskip("dask.array", reason="needs duramen[dask]")
dd = pytest.importorskip("dask.dataframe", reason="needs duramen[dask]")
pd = pytest.importorskip("pandas", reason="needs duramen[dask]")

RANKED = ["uniform", "layered", "leverage", "sensitivity"]
LOGISTIC = {"loss": dm.LogisticLoss(), "size": 60, "n_outliers": 0.05, "random_state": 3}


@pytest.fixture
def synchronous():
    with dask.config.set(scheduler="synchronous"):
        yield


@pytest.fixture
def few_sampled(monkeypatch):
    for module in (samples, census):
        monkeypatch.setattr(module, "SAMPLE", 300)


def assert_law(points, collection, **chosen):
    """Build the coreset of a collection, and compare it with that of all points at once."""
    chosen = {"size": 60, "n_outliers": 0.05, "random_state": 3, **chosen}
    rows, columns = collection
    core = quietly(dmd.robust_coreset, rows, **columns, **chosen)
    assert_same(core, at_once(points, **chosen))
    return core


@pytest.mark.parametrize("name, sampler", SUITS, ids=lambda value: value)
def test_it_is_the_coreset_of_one_machine(name, sampler):
    problem, points = PROBLEMS[name], data(name)
    core = assert_law(
        points,
        frame_of(points, (100, 100, 250)),
        loss=problem.loss,
        sampler=SAMPLERS[sampler],
        anchor=problem.anchor(),
    )
    assert core.columns == ("x0", "x1")


@pytest.mark.usefixtures("synchronous")
@pytest.mark.parametrize("sampler", RANKED)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
@pytest.mark.filterwarnings("ignore:the ball of radius")
def test_so_it_is_for_every_loss(case, sampler):
    points = dm.points(*case.data(n=300))
    ball = case.ball(np.random.default_rng(3), 0.01)
    anchor = dm.Anchor(ball.theta, ball.radius)
    assert_law(
        points, arrays_of(points, (50, 70)), loss=case.loss, sampler=sampler, anchor=anchor, n_outliers=20
    )


@pytest.mark.parametrize(
    "name, sampler, make",
    [
        ("logistic", "auto", frame_of),
        ("logistic", "sensitivity", arrays_of),
        ("logistic", "leverage", frame_of),
        ("huber", "uniform", arrays_of),
        ("huber", "auto", frame_of),
        ("k-means", "auto", arrays_of),
        ("k-means", "own", frame_of),
        ("softmax", "auto", arrays_of),
    ],
)
def test_the_anchor_it_finds_is_the_same(name, sampler, make):
    points = data(name, n=3000)
    collection = make(points, range(0, 3000, 271))  # 13 partitions, more than one merge takes
    core = assert_law(points, collection, loss=PROBLEMS[name].loss, sampler=SAMPLERS[sampler])
    expected = at_once(points, **{**LOGISTIC, "loss": PROBLEMS[name].loss, "sampler": SAMPLERS[sampler]})
    np.testing.assert_array_equal(core.anchor.theta, expected.anchor.theta)


@settings(max_examples=40)
@given(st.data())
def test_neither_partitions_nor_their_order_show(draw):
    name, sampler = draw.draw(st.sampled_from(SUITS))
    n = draw.draw(st.integers(1, 250))
    heavy, seed = draw.draw(st.sampled_from(KINDS)), draw.draw(st.integers(0, 5))
    points = data(name, n=n, heavy=heavy, seed=seed, whole=draw.draw(st.booleans()))
    if not points.total_weight:
        return
    cuts = draw.draw(st.lists(st.integers(0, n), max_size=20))
    order = np.random.default_rng(draw.draw(st.integers(0, 99))).permutation(n)
    make = draw.draw(st.sampled_from([frame_of, arrays_of]))
    with dask.config.set(scheduler="synchronous"):
        assert_law(
            points,
            make(points, cuts, order),
            loss=PROBLEMS[name].loss,
            sampler=SAMPLERS[sampler],
            anchor=PROBLEMS[name].anchor(),
            size=draw.draw(st.integers(6 if sampler == "own" else 2, 80)),  # a row for each stratum
            n_outliers=draw.draw(st.sampled_from([0, 0.02, 0.3])),
            suspects=draw.draw(st.sampled_from(["auto", 0, 4.0])),
            calibrate=draw.draw(st.booleans()),
        )


@pytest.mark.parametrize("sampler", RANKED)
def test_a_skewed_partition_among_empty_ones(sampler):
    points = data(n=2000)
    cuts = (0, 0, 1, 1990, 1990, 1990, 1995, 2000, 2000, 2000)
    assert_law(points, frame_of(points, cuts), loss=dm.LogisticLoss(), sampler=sampler)
    assert_law(points, arrays_of(points, cuts), loss=dm.LogisticLoss(), sampler=sampler)


@pytest.mark.parametrize("scheduler", ["threads", "synchronous", "processes", None])
@pytest.mark.parametrize("make", [frame_of, arrays_of])
def test_every_scheduler(scheduler, make, two_processes):
    points = data(n=2000)
    pool = {"pool": two_processes} if scheduler == "processes" else {}
    chosen = {} if scheduler is None else {"scheduler": scheduler}
    with dask.config.set(**chosen, **pool):
        assert_law(points, make(points, range(0, 2000, 171)), loss=dm.LogisticLoss())


def at_home(table, features, **chosen):
    """Build the coreset of a frame in memory, with the ids that rows have there."""
    return dm.robust_coreset(table[features], table["y"], **{**LOGISTIC, **chosen})


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
def test_rows_are_known_by_their_numbers_and_keep_their_type(types):
    table = pandas_of(data(n=500)).astype(types)
    frame = dd.from_pandas(table.set_index("key"), npartitions=7)
    table = table.set_index("key").sort_index()
    core = dmd.robust_coreset(frame, label="y", features=["x1", "x0"], **LOGISTIC)
    expected = at_home(table, ["x1", "x0"])
    assert_same(core, expected)
    assert core.columns == expected.columns == ("x1", "x0")
    assert core.y.dtype == expected.y.dtype
    assert core.ids.max() < 500


def test_features_are_all_columns_without_another_role():
    table = pandas_of(data(n=300)).rename(columns={"x0": 0})
    frame = dd.from_pandas(table, npartitions=3)
    core = dmd.robust_coreset(frame, label="y", weight="heavy", **LOGISTIC)
    assert core.columns == ("0", "x1", "key")
    expected = at_home(table, [0, "x1", "key"], sample_weight=table["heavy"])
    assert_same(core, expected)


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
    assert_same(core, at_once(dm.points(points.X[kept], points.y[kept], ids=ids), **LOGISTIC))
    assert np.isnan(X.shape[0])  # theirs is left as it was


@pytest.mark.parametrize("sampler", RANKED)
def test_sparse_blocks(sampler):
    points = data(n=500, heavy="none")
    X, columns = arrays_of(points)
    blocks = X.rechunk({1: -1}).map_blocks(sparse.csr_array, dtype=float)
    sparsely = dm.points(sparse.csr_array(points.X), points.y, ids=points.ids)
    assert_law(sparsely, (blocks, columns), loss=dm.LogisticLoss(), sampler=sampler)


def test_a_reader_that_joins_partitions_where_few_columns_are_needed(tmp_path):
    """Rows were counted in other partitions than they were read in."""
    rng = np.random.default_rng(0)
    table = pd.DataFrame(rng.normal(size=(2400, 20)), columns=[f"x{column}" for column in range(20)])
    table["y"] = rng.choice([-1, 1], size=2400)
    for part in range(12):
        table.iloc[part * 200 : part * 200 + 200].to_parquet(tmp_path / f"{part:02}.parquet")
    frame = dd.read_parquet(tmp_path).fillna(0)
    assert frame[["x1"]].optimize().npartitions < frame.npartitions  # else there is nothing to see here
    for features in (["x1"], ["x3", "x1", "x5"], list(table.columns[:20])):
        with dmd.Traffic() as traffic:
            core = dmd.robust_coreset(frame, label="y", features=features, **LOGISTIC)
        assert_same(core, at_home(table, features))
        if dask.__version__ >= "2025":  # before, nothing could keep them apart
            assert [len(one.rows) for one in traffic.passes] == [12, 12]  # so that errors name the user's own


def test_a_seed_may_be_a_generator():
    points = data(n=400)
    cores = [assert_law(points, frame_of(points), loss=dm.LogisticLoss(), random_state=3) for _ in range(2)]
    frame, columns = frame_of(points)
    chosen = {**LOGISTIC, "random_state": np.random.default_rng(3)}
    assert_same(cores[0], dmd.robust_coreset(frame, **columns, **chosen))


def unread(*_):
    raise AssertionError("it was read")


def lazily(**types):
    """Make a frame that nobody can read."""
    meta = pd.DataFrame({name: pd.Series(dtype=dtype) for name, dtype in types.items()})
    return dd.from_map(unread, range(3), meta=meta)


NUMBERS = {"a": "float64", "b": "float32", "y": "int64", "k": "int64"}
UNREAD = da.from_array(np.zeros((10, 2)), chunks=3).map_blocks(unread, dtype=float, meta=np.zeros((0, 2)))


@pytest.mark.parametrize(
    "rows, chosen, error, match",
    [
        (np.zeros((3, 2)), {}, TypeError, r"found ndarray; for data in memory there is dm\.robust_coreset"),
        (pd.DataFrame({"a": [1.0]}), {}, TypeError, r"found DataFrame; .* dm\.robust_coreset"),
        (lazily(**NUMBERS)["a"], {}, TypeError, r"data\.to_frame\(\)"),
        (dask.delayed(unread)(), {}, TypeError, "found Delayed"),
        (lazily(a="float64", s="str"), {}, TypeError, r"column 's' .*get_dummies\(data.categorize\(\['s'\]"),
        (lazily(a="float64", s="category"), {}, TypeError, "column 's' has type category.*leave it out"),
        (lazily(a="float64", t="datetime64[ns]"), {}, TypeError, "column 't' .* turn times into numbers"),
        (lazily(**NUMBERS), {"label": "yy"}, ValueError, "no column 'yy' \\(label\\); did you mean 'y'"),
        (lazily(**NUMBERS), {"features": ["a", "c"]}, ValueError, "no column 'c' \\(features\\)"),
        (lazily(**NUMBERS), {"features": ["a", "a"]}, ValueError, "'a' is given as features, twice"),
        (lazily(**NUMBERS), {"features": "a"}, TypeError, "one text; give a list"),
        (lazily(**NUMBERS), {"features": ["a", "y"], "label": "y"}, ValueError, "'y' is given as label and"),
        (lazily(**NUMBERS), {"label": "y", "id": "y"}, ValueError, "'y' is given as label and id"),
        (lazily(**NUMBERS), {"id": "a"}, TypeError, "id='a' must be integers; found type float64"),
        (lazily(a="float64", s="str"), {"label": "s"}, TypeError, "label='s' must be numbers; found"),
        (lazily(y="int64"), {"label": "y"}, ValueError, "no column left"),
        (lazily(**NUMBERS), {"label": "y", "y": UNREAD[:, 0]}, TypeError, "label='y' and y say the same"),
        (
            lazily(**NUMBERS),
            {"y": np.zeros(3)},
            TypeError,
            "y must be a Dask array or Series.* found ndarray",
        ),
        (lazily(**NUMBERS), {"y": UNREAD[:, 0]}, ValueError, "y has 4 partitions and the data 3"),
        (lazily(**NUMBERS), {}, ValueError, r"LogisticLoss\(.*\) needs labels; pass label="),
        (UNREAD, {}, ValueError, r"LogisticLoss\(.*\) needs labels"),
        (UNREAD, {"label": "y"}, TypeError, "label='y' names a column, and a Dask array"),
        (UNREAD, {"y": UNREAD[:9, 0]}, ValueError, "y has 9 values for 10 rows"),
        (UNREAD, {"y": UNREAD}, ValueError, "y must have one value a row"),
        (UNREAD, {"ids": UNREAD[:, 0]}, TypeError, "ids must be integers"),
        (UNREAD[:, 0], {}, ValueError, "two-dimensional, rows by columns; found shape"),
        (UNREAD.astype(complex), {}, TypeError, "X must be numbers; found type complex"),
        (UNREAD, {"y": UNREAD[:, 0], "sampler": Heaviest()}, TypeError, "scores each point by itself"),
        (UNREAD, {"y": UNREAD[:, 0], "size": 0}, ValueError, "size=0"),
    ],
)
@pytest.mark.usefixtures("synchronous")
def test_what_can_be_refused_is_before_anything_is_read(rows, chosen, error, match):
    with pytest.raises(error, match=match):
        dmd.robust_coreset(rows, **{**LOGISTIC, **chosen})


def test_a_column_that_was_encoded_is_taken():
    table = pandas_of(data(n=300)).assign(s=np.array(["a", "b", "c"])[np.arange(300) % 3])
    frame = dd.get_dummies(dd.from_pandas(table, npartitions=3).categorize(["s"]))
    features = ["x0", "x1", "s_a", "s_b", "s_c"]
    core = dmd.robust_coreset(frame, label="y", features=features, **LOGISTIC)
    assert_same(core, at_home(pd.get_dummies(table), features))


@pytest.mark.parametrize("scheduler", ["threads", "synchronous", "processes"])
@pytest.mark.parametrize(
    "column, value, match",
    [
        ("x1", np.nan, "X has NaN in row 17, column 1 ('x1'); fill"),
        ("x0", np.inf, "X has inf in row 17, column 0 ('x0'); fill"),
        ("y", np.nan, "y has NaN in row 17"),
        ("y", 7.0, "row 17 has 7"),
        ("heavy", -1.0, "weights must not be negative; row 17 has -1"),
    ],
)
def test_an_error_on_a_worker_names_the_partition_and_the_row(column, value, match, scheduler, two_processes):
    table = pandas_of(data(n=400)).astype({"y": float}).drop(columns="key")
    table.loc[117, column] = value
    frame = dd.from_pandas(table, npartitions=4)
    pool = {"pool": two_processes} if scheduler == "processes" else {}
    expected = re.escape("partition 1 of 4 (index 100 to 200): ") + ".*" + re.escape(match)
    with dask.config.set(scheduler=scheduler, **pool), pytest.raises(ValueError, match=expected):
        dmd.robust_coreset(frame, label="y", weight="heavy", **LOGISTIC)


def test_an_error_in_a_block_of_an_array_names_its_rows():
    points = data(n=400, heavy="none")
    X = np.array(points.X)
    X[256, 1] = np.nan
    rows = da.from_array(X, chunks=(100, 2))
    with pytest.raises(
        ValueError, match=r"partition 2 of 4 \(rows 200 to 299\): X has NaN in row 56, column 1"
    ):
        dmd.robust_coreset(rows, da.from_array(points.y, chunks=400), **LOGISTIC)


def test_far_down_a_partition_the_row_is_still_numbered_right():
    X = np.zeros((200_000, 1))  # several batches
    X[150_000] = np.nan
    rows = da.from_array(X, chunks=(200_000, 1))
    with pytest.raises(ValueError, match=r"partition 0 of 1 .* in row 150000, column 0"):
        dmd.robust_coreset(rows, loss=dm.KMeansLoss(1), size=10)


class Moody(dm.Loss):
    """A user's own, which fails by an error that is neither of the two."""

    def values(self, theta, X, y=None):
        if len(X) == 100:
            raise LookupError("not today")
        return np.abs(X - theta).sum(axis=1)


def test_an_error_of_another_type_keeps_it():
    rows = da.from_array(data("k-means", n=410).X, chunks=(100, 2))
    with pytest.raises(LookupError, match=r"partition \d of 5 \(rows .*\): not today"):
        dmd.robust_coreset(rows, loss=Moody(), size=50, anchor=dm.Anchor(np.zeros(2), 0.1))


def test_partitions_that_do_not_go_together_are_named():
    points = data(n=400, heavy="none")
    frame, columns = frame_of(points, (100, 250))
    del columns["weight"]
    labels = frame.map_partitions(lambda part: part["y"].where(part["y"] > 0, 0 if len(part) == 150 else -1))
    mixed = frame.assign(y=labels)[["x0", "x1", "y", "key"]]
    with pytest.raises(
        ValueError, match="partitions 0 to 2 of 3: the labels of the batches do not go together"
    ):
        dmd.robust_coreset(mixed, **columns, **LOGISTIC)
    half = dd.from_map(_half, [0, 1], meta=frame._meta)
    with pytest.raises(ValueError, match=r"partitions 0 to 1 of 2: .*float32"):
        dmd.robust_coreset(half, features=["x0", "x1"], **columns, **LOGISTIC)


def _half(number):
    table = pandas_of(data(n=200, heavy="none")).assign(key=np.arange(200) + 200 * number)
    return table.astype({"x0": "float32", "x1": "float32"}) if number else table


def test_an_id_that_stands_in_two_partitions_is_refused():
    points = data(n=200, heavy="none")
    table = pandas_of(points)
    frame = dd.concat([dd.from_pandas(table, npartitions=2), dd.from_pandas(table, npartitions=2)])
    with pytest.raises(ValueError, match="ids must be distinct"):
        dmd.robust_coreset(frame, label="y", id="key", weight="heavy", **LOGISTIC)


def test_columns_of_other_lengths_are_refused():
    points = data(n=400, heavy="none")
    frame, _ = frame_of(points, (100, 250))
    other, _ = frame_of(points, (100, 240))
    with pytest.raises(ValueError, match=r"partition [12] of 3: y has 1[46]0 values for 150 rows"):
        dmd.robust_coreset(frame[["x0", "x1"]], other["y"], ids=frame["key"], **LOGISTIC)


class Changing:
    """Partitions of other rows each time they are made."""

    def __init__(self):
        self.times = 0

    def __call__(self, number):
        self.times += 1
        table = pandas_of(data("k-means", n=100 + self.times, heavy="none"))
        return table.assign(key=1000 * self.times + np.arange(len(table)))

    def __dask_tokenize__(self):
        return id(self)


@pytest.mark.usefixtures("synchronous")
def test_partitions_that_change_are_missed():
    frame = dd.from_map(Changing(), range(3), meta=pandas_of(data("k-means", n=3)).iloc[:0])
    chosen = {"loss": dm.KMeansLoss(1), "size": 20, "features": ["x0", "x1"]}
    with pytest.raises(ValueError, match=r"partition \d of 3: it has 104 rows, and had 101 .* persist\(\)"):
        dmd.robust_coreset(frame, **chosen)
    with pytest.raises(ValueError, match="rows in the first pass"):
        dmd.robust_coreset(frame, id="key", **chosen)


@pytest.mark.usefixtures("synchronous")
def test_no_rows_at_all():
    frame = dd.from_pandas(pandas_of(data("k-means", n=3)).iloc[:0], npartitions=1)
    with pytest.raises(ValueError, match="there are no points"):
        dmd.robust_coreset(frame, loss=dm.KMeansLoss(1), size=20)


@pytest.mark.usefixtures("few_sampled")
@pytest.mark.parametrize("sampler", RANKED)
def test_what_travels_does_not_grow_with_the_partitions(sampler):
    """Every partition has more rows than are sampled, and the number of outliers is a count."""

    def sizes(n):
        points = data(n=10 * n, heavy="none")
        with dmd.Traffic() as traffic:
            chosen = {**LOGISTIC, "n_outliers": 30, "sampler": sampler, "size": 50}
            X, columns = arrays_of(points, range(n, 10 * n, n))
            dmd.robust_coreset(X, anchor=PROBLEMS["logistic"].anchor(), **columns, **chosen)
        assert [one.number for one in traffic.passes] == [1, 2]
        for one in traffic.passes:
            assert one.rows.tolist() == [n] * 10
            assert one.total == one.partitions.sum() + one.merged > one.received > 0
        assert traffic.total == sum(one.total for one in traffic.passes)
        return np.array([one.partitions.max() for one in traffic.passes])

    few, many = sizes(1000), sizes(8000)
    growth = 2.0 if sampler == "layered" else 1.05  # its layers are full one after the other
    assert (many < growth * few).all()
    assert many.max() < 8000 * 3 * 8 / 4  # a quarter of the partition


def test_traffic_is_heard_by_all_who_listen_and_by_nobody_else():
    frame, columns = frame_of(data(n=300))
    with dmd.Traffic() as outer:
        with dmd.Traffic() as inner:
            dmd.robust_coreset(frame, **columns, **LOGISTIC)
        dmd.robust_coreset(frame, **columns, **LOGISTIC)
    dmd.robust_coreset(frame, **columns, **LOGISTIC)
    assert len(inner.passes) == 2
    assert len(outer.passes) == 4
    assert repr(dmd.Traffic()) == "Traffic: nothing yet"
    assert re.match(r"pass 1: 3 partitions sent [\d,]+ bytes at most, .*\npass 2: ", repr(inner))


class Watch(dask.callbacks.Callback):
    """Note the tasks that run."""

    def __init__(self):
        self.keys = []
        super().__init__(pretask=lambda key, *_: self.keys.append(key))

    def count(self, name):
        return sum(dask.utils.key_split(key) == name for key in self.keys)


def test_one_task_a_partition_and_a_tree_of_merges_under_names_that_the_dashboard_shows():
    points = data(n=2000)
    frame, columns = frame_of(points, range(50, 2000, 50))  # 40 partitions
    with Watch() as watch:
        dmd.robust_coreset(frame, **columns, **LOGISTIC)
    for word in ("first", "second"):
        assert watch.count(f"duramen-{word}-pass-summarize") == 40
        assert watch.count(f"duramen-{word}-pass-merge") == 5 + 1
    assert watch.count("duramen-count-rows") == 0
    with Watch() as watch:
        dmd.robust_coreset(frame, label="y", features=["x0", "x1"], **LOGISTIC)
    assert watch.count("duramen-count-rows") == 40


def test_dasks_progress_bar_shows_it(capsys):
    from dask.diagnostics import ProgressBar

    frame, columns = frame_of(data(n=300))
    with ProgressBar(minimum=0):
        dmd.robust_coreset(frame, **columns, **LOGISTIC)
    assert capsys.readouterr().out.count("100% Completed") == 2  # passes


def test_a_task_keeps_to_its_thread(monkeypatch):
    monkeypatch.setenv("DURAMEN_NUM_THREADS", "4")
    helped, together = [], chunks._work_together

    def watched(*arguments):
        helped.append(threading.current_thread())
        together(*arguments)

    monkeypatch.setattr(chunks, "_work_together", watched)
    points = data("k-means", n=80_000, heavy="none")
    summarize(points, plan(loss=dm.KMeansLoss(1), size=20))
    assert helped  # by itself it takes all cores
    helped.clear()
    rows = da.from_array(points.X, chunks=(80_000, 2))
    for scheduler in ("threads", "synchronous"):
        with dask.config.set(scheduler=scheduler):
            work = parts_of(rows).numbered().each(_kept, constant(None, "nothing"), "duramen-test")
            assert dask.compute(*work) == (80_000,)
    assert not helped
    assert not chunks._inside.get()


def _kept(points, _):
    summarize(points, plan(loss=dm.KMeansLoss(1), size=20))
    return len(points)


def test_parts_tell_their_names_and_numbers():
    table = pandas_of(data(n=10)).drop(columns="key")
    parts = parts_of(dd.from_pandas(table, npartitions=3), label="y").numbered()
    assert [(rows.first, rows.count) for rows in parts.rows] == [(0, 4), (4, 3), (7, 3)]
    assert parts.name(1) == "partition 1 of 3 (index 4 to 7)"
    assert parts.has_labels
    assert not parts.has_ids


def test_without_dask_it_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "dask", None)
    with pytest.raises(ImportError, match=r"needs dask; pip install 'duramen\[dask\]'"):
        dmd.robust_coreset(None, **LOGISTIC)
