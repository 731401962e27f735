"""What is refused of a Dask collection, and errors on workers, which name the partition."""

import re

import numpy as np
import pytest

import duramen as dm
from duramen.distributed import dask as dmd
from duramen.distributed.dask import DaskSource
from tests.distributed.made import LOGISTIC, at_home, da, dask, dd, frame_of, pandas_of, pd
from tests.support import Heaviest, assert_same_coreset, data

KMEANS = {"loss": dm.KMeansLoss(1), "size": 20, "random_state": 0}
TABLE = pandas_of(data(n=400, heavy="none"))


def unread(*_):
    raise AssertionError("it was read")


def lazily(**types):
    """Make a frame that cannot be read."""
    meta = pd.DataFrame({name: pd.Series(dtype=dtype) for name, dtype in types.items()})
    return dd.from_map(unread, range(3), meta=meta)


NUMBERS = {"a": "float64", "b": "float32", "y": "int64", "k": "int64"}
UNREAD = da.from_array(np.zeros((10, 2)), chunks=3).map_blocks(unread, dtype=float, meta=np.zeros((0, 2)))


@pytest.mark.parametrize(
    "rows, chosen, error, match",
    [
        (np.zeros((3, 2)), {}, TypeError, r"found ndarray; .* dm\.robust_coreset"),
        (pd.DataFrame({"a": [1.0]}), {}, TypeError, r"found DataFrame; .* dm\.robust_coreset"),
        (
            lazily(**NUMBERS)["a"],
            {},
            TypeError,
            r"found .*Series of 1 dimensions; convert a Series by to_frame\(\)",
        ),
        (dask.delayed(unread)(), {}, TypeError, "found Delayed"),
        (
            lazily(a="float64", s="str"),
            {},
            TypeError,
            "features='s' must be numbers; found type .*get_dummies",
        ),
        (
            lazily(a="float64", s="category"),
            {},
            TypeError,
            "features='s' .* found type category.*leave it out",
        ),
        (lazily(a="float64", t="datetime64[ns]"), {}, TypeError, "features='t' .* times to seconds"),
        (lazily(**NUMBERS), {"label": "yy"}, ValueError, "no column 'yy' \\(label\\); did you mean 'y'"),
        (lazily(**NUMBERS), {"features": ["a", "c"]}, ValueError, "no column 'c' \\(features\\)"),
        (lazily(**NUMBERS), {"features": ["a", "a"]}, ValueError, "'a' is given as features and features"),
        (lazily(**NUMBERS), {"features": "a"}, TypeError, "is a string; pass a list"),
        (lazily(**NUMBERS), {"features": ["a", "y"], "label": "y"}, ValueError, "'y' is given as label and"),
        (lazily(**NUMBERS), {"label": "y", "id": "y"}, ValueError, "'y' is given as label and id"),
        (lazily(**NUMBERS), {"id": "a"}, TypeError, "id='a' must be integers; found type float64"),
        (lazily(a="float64", s="str"), {"label": "s"}, TypeError, "label='s' must be numbers; found"),
        (lazily(y="int64"), {"label": "y"}, ValueError, "no column left"),
        (lazily(**NUMBERS), {"label": "y", "y": UNREAD[:, 0]}, TypeError, "label='y' and y mean the same"),
        (lazily(**NUMBERS), {"y": np.zeros(3)}, TypeError, "y must be a Dask Series, or .* found ndarray"),
        (lazily(**NUMBERS), {"y": UNREAD[:, 0]}, ValueError, "y has 4 partitions and the data 3"),
        (lazily(**NUMBERS), {}, ValueError, r"LogisticLoss\(.*\) needs labels; pass label="),
        (UNREAD, {}, ValueError, r"LogisticLoss\(.*\) needs labels"),
        (UNREAD, {"label": "y"}, TypeError, "'y' names a column, but a Dask array"),
        (
            UNREAD,
            {"y": UNREAD[:9, 0]},
            ValueError,
            "y has 3 partitions and the data 4; pass one value for each row",
        ),
        (UNREAD, {"y": UNREAD}, TypeError, "y must be .* found Array of 2 dimensions"),
        (UNREAD, {"ids": UNREAD[:, 0]}, TypeError, "ids must be integers"),
        (UNREAD[:, 0], {}, TypeError, "two-dimensional Dask array; found Array of 1 dimensions"),
        (UNREAD.astype(complex), {}, TypeError, "X must be numbers; found type complex"),
        (UNREAD, {"y": UNREAD[:, 0], "sampler": Heaviest()}, TypeError, "scores each point by itself"),
        (UNREAD, {"y": UNREAD[:, 0], "size": 0}, ValueError, "size=0"),
        (dd.from_pandas(TABLE.rename(columns={"x1": "x0"})), {}, ValueError, "more than one column .* 'x0'"),
        (dd.from_pandas(TABLE.iloc[:0]), {"label": "y"}, ValueError, "there are no points"),
    ],
)
@pytest.mark.usefixtures("synchronous")
def test_bad_arguments_are_refused_before_anything_is_read_and_so_is_data_without_rows(
    rows, chosen, error, match
):
    with pytest.raises(error, match=match):
        dmd.robust_coreset(rows, **{**LOGISTIC, **chosen})


def test_a_column_that_was_encoded_is_taken():
    table = pandas_of(data(n=300)).assign(s=np.array(["a", "b", "c"])[np.arange(300) % 3])
    frame = dd.get_dummies(dd.from_pandas(table, npartitions=3).categorize(["s"]))
    features = ["x0", "x1", "s_a", "s_b", "s_c"]
    core = dmd.robust_coreset(frame, label="y", features=features, **LOGISTIC)
    assert_same_coreset(core, at_home(pd.get_dummies(table), features))


@pytest.mark.parametrize(
    "scheduler", ["threads", "synchronous", pytest.param("processes", marks=pytest.mark.slow)]
)
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
def test_an_error_on_a_worker_names_the_partition_and_the_row(column, value, match, scheduler, request):
    table = pandas_of(data(n=400)).astype({"y": float}).drop(columns="key")
    table.loc[117, column] = value
    frame = dd.from_pandas(table, npartitions=4)
    pool = {"pool": request.getfixturevalue("two_processes")} if scheduler == "processes" else {}
    expected = re.escape("partition 1 of 4 (index 100 to 200): ") + ".*" + re.escape(match)
    with dask.config.set(scheduler=scheduler, **pool), pytest.raises(ValueError, match=expected):
        dmd.robust_coreset(frame, label="y", weight="heavy", **LOGISTIC)


@pytest.mark.parametrize(
    "n, row, chunk, where",
    [
        (400, 256, 100, r"partition 2 of 4 \(rows 200 to 299\): X has NaN in row 56, column 1"),
        (200_000, 150_000, 200_000, "partition 0 of 1 .* in row 150000, column 1"),  # several batches
    ],
)
def test_an_error_in_a_block_of_an_array_names_its_rows(n, row, chunk, where):
    X = np.zeros((n, 2))
    X[row, 1] = np.nan
    with pytest.raises(ValueError, match=where):
        dmd.robust_coreset(da.from_array(X, chunks=(chunk, 2)), **KMEANS)


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


def test_partitions_that_do_not_agree_are_named():
    frame, columns = frame_of(data(n=400, heavy="none"), (100, 250))
    del columns["weight"]
    labels = frame.map_partitions(lambda part: part["y"].where(part["y"] > 0, 0 if len(part) == 150 else -1))
    mixed = frame.assign(y=labels)[["x0", "x1", "y", "key"]]
    together = "partitions 0 to 2 of 3: the labels of the batches do not match"
    with pytest.raises(ValueError, match=together):
        dmd.robust_coreset(mixed, **columns, **LOGISTIC)
    half = dd.from_map(_half, [0, 1], meta=frame._meta)
    with pytest.raises(ValueError, match=r"partitions 0 to 1 of 2: .*float32"):
        dmd.robust_coreset(half, features=["x0", "x1"], **columns, **LOGISTIC)


def _half(number):
    table = pandas_of(data(n=200, heavy="none")).assign(key=np.arange(200) + 200 * number)
    return table.astype({"x0": "float32", "x1": "float32"}) if number else table


def test_an_id_in_two_partitions_and_columns_of_other_lengths_are_refused():
    frame, columns = frame_of(data(n=400, heavy="none"), (100, 250))
    with pytest.raises(ValueError, match="ids must be distinct"):
        dmd.robust_coreset(dd.concat([frame, frame]), **columns, **LOGISTIC)
    other, _ = frame_of(data(n=400, heavy="none"), (100, 240))
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
def test_partitions_that_change_are_refused():
    frame = dd.from_map(Changing(), range(3), meta=pandas_of(data("k-means", n=3)).iloc[:0])
    chosen = {**KMEANS, "features": ["x0", "x1"]}
    with pytest.raises(ValueError, match=r"partition \d of 3: it has 104 rows, but had 101 .* persist\(\)"):
        dmd.robust_coreset(frame, **chosen)
    with pytest.raises(ValueError, match="the first pass had 318 rows"):
        dmd.robust_coreset(frame, id="key", **chosen)


def broken(part, error, partition_info=None):
    if partition_info is not None and partition_info["number"] == 19:
        raise error
    return part


ERRORS = [
    (OSError(5, "disk on fire"), OSError),
    (ValueError("disk on fire"), ValueError),
    (KeyError("disk on fire"), KeyError),
    (UnicodeDecodeError("utf-8", b"x", 0, 1, "disk on fire"), UnicodeError),  # its own takes no text
]


@pytest.mark.parametrize(
    "scheduler, error, kind",
    [
        *((scheduler, *error) for scheduler in ("synchronous", "threads") for error in ERRORS),
        pytest.param("cluster", *ERRORS[0], marks=pytest.mark.slow),
    ],
)
def test_a_partition_that_cannot_be_read_is_named(scheduler, error, kind, request):
    whole = dd.from_pandas(TABLE[["x0", "x1"]], npartitions=40)
    collection = whole.map_partitions(broken, error=error, meta=whole._meta)
    if scheduler == "cluster":
        request.getfixturevalue("on_cluster")
    with dask.config.set({} if scheduler == "cluster" else {"scheduler": scheduler}):
        with pytest.raises(kind, match=r"partition 19 of 40.*disk on fire"):
            dmd.robust_coreset(collection, **KMEANS)
        with pytest.raises(kind, match="partition 19 of 40"):
            dm.RobustKMeans(2, coreset_size=50, random_state=0).fit(collection)


def test_many_chunks_are_read_quickly():
    assert list(map(len, DaskSource(da.ones((3000, 1), chunks=(1, 1))).rows)) == [1] * 3000
