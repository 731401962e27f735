"""Laws of the Spark example: the coreset of one machine, however the rows lie in partitions."""

import re
import sys
from contextlib import contextmanager
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import numpy as np
import pytest

import duramen as dm
from tests.distributed.needs_spark import LIGHT_JAVA, skip_without_spark, spark_warnings
from tests.support import PROBLEMS, assert_same_coreset, at_once, data

ROOT = Path(__file__).resolve().parents[2]
SCRIPT, PAGE = ROOT / "examples" / "spark.py", ROOT / "docs" / "other-engines.md"
SETTINGS = {
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.memory": "1g",
    "spark.log.level": "OFF",
    "spark.sql.shuffle.partitions": "3",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not SCRIPT.exists(), reason="not in a checkout"),
    spark_warnings,
]


@pytest.fixture(scope="module")
def spark(tmp_path_factory):
    """A cluster of two slots in this machine, for the tests of this file; no other Spark may run meanwhile."""
    skip_without_spark()
    from pyspark.sql import SparkSession

    local = {"spark.local.dir": str(tmp_path_factory.mktemp("spark"))}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYSPARK_PYTHON", sys.executable)
        patch.setenv(*LIGHT_JAVA)
        builder = SparkSession.builder.master("local[2]")
        with builder.config(map=SETTINGS | local).getOrCreate() as session:
            yield session


@pytest.fixture(scope="module")
def example(spark):
    """The script as a module that no worker could import: what it needs there must travel."""
    found = spec_from_file_location("the_spark_example", SCRIPT)
    module = module_from_spec(found)
    found.loader.exec_module(module)
    return module


def frame_of(spark, points, seed=0):
    """Make a frame of points, with a column of five values: many have the first of them, few the last."""
    import pyarrow as pa

    part = np.random.default_rng(seed).choice(5, size=len(points), p=[0.7, 0.2, 0.06, 0.03, 0.01])
    columns = {f"x{number}": column for number, column in enumerate(points.X.T)}
    columns |= {"heavy": points.weights, "row": points.ids, "part": part}
    return spark.createDataFrame(pa.table(columns if points.y is None else columns | {"y": points.y}))


@contextmanager
def changed(spark, settings, prefix="spark.sql."):
    """Let Spark have other settings for a while."""
    before = {name: spark.conf.get(prefix + name) for name in settings}
    for name, value in settings.items():
        spark.conf.set(prefix + name, value)
    try:
        yield
    finally:
        for name, value in before.items():
            spark.conf.set(prefix + name, value)


CUT_BY_BYTES = {
    "shuffle.partitions": "16",
    "adaptive.advisoryPartitionSizeInBytes": "32kb",
    "adaptive.coalescePartitions.minPartitionSize": "1kb",
    "adaptive.coalescePartitions.parallelismFirst": "false",
}
LAYOUTS = {
    "as they come": lambda frame: frame,
    "all in one": lambda frame: frame.coalesce(1),
    "shuffled": lambda frame: frame.repartition(5),
    "in another order": lambda frame: frame.orderBy("x0"),
    "skewed, with empty ones": lambda frame: frame.repartition(9, "part"),  # four at least
}
CASES = [
    ("logistic", "leverage", "skewed, with empty ones"),
    ("logistic", "layered", "shuffled"),
    ("k-means", "leverage", "in another order"),
    ("k-means", "layered", "skewed, with empty ones"),
]


@pytest.mark.parametrize("name, sampler, layout", CASES)
def test_it_is_the_coreset_of_one_machine(name, sampler, layout, spark, example):
    points = data(name, n=25_000)  # more than the sample for the anchor takes
    asked = {"loss": PROBLEMS[name].loss, "sampler": sampler, "size": 200, "n_outliers": 0.02}
    frame = LAYOUTS[layout](frame_of(spark, points, seed=len(name + sampler)))
    label = None if points.y is None else "y"
    core = example.robust_coreset(frame, ["x0", "x1"], label, "heavy", random_state=3, **asked)
    assert_same_coreset(core, at_once(points, random_state=3, **asked))
    assert core.columns == ("x0", "x1")


@pytest.mark.parametrize("layout", LAYOUTS)
def test_rows_are_numbered_through_all_partitions(layout, spark, example):
    frame = LAYOUTS[layout](frame_of(spark, data(n=1000))).persist()
    numbered = example.with_row_numbers(frame, "number").select("row", "number").collect()
    assert [row.number for row in numbered] == list(range(1000))
    assert [row.row for row in numbered] == [row.row for row in frame.select("row").collect()]
    frame.unpersist()


def test_rows_of_files_are_numbered_with_no_column_read_to_count_them(spark, example, tmp_path):
    """Files are cut into partitions by their bytes, of which counting takes none: the partitions must agree."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    for number, n in enumerate((4000, 1, 900)):
        table = pa.table({"x0": np.random.default_rng(number).normal(size=n)})
        pq.write_table(table, tmp_path / f"{number}.parquet", row_group_size=500)
    with changed(spark, {"maxPartitionBytes": "9kb", "openCostInBytes": "0"}, "spark.sql.files."):
        frame = spark.read.parquet(str(tmp_path))
        assert frame.rdd.getNumPartitions() > 3
        numbered = example.with_row_numbers(frame).toArrow()
    assert numbered["row"].to_pylist() == list(range(4901))


def test_numbers_name_the_rows(spark, example):
    points = data(n=2000, heavy="none")
    asked = {"loss": PROBLEMS["logistic"].loss, "size": 100, "n_outliers": 0.05, "random_state": 3}
    frame = example.with_row_numbers(frame_of(spark, points).drop("row"))
    core = example.robust_coreset(frame, ["x0", "x1"], "y", **asked)
    assert_same_coreset(core, at_once(dm.points(points.X, points.y), **asked))


def test_no_rows_at_all(spark, example):
    none = frame_of(spark, data(n=50)).where("x0 > 1e9")
    assert not example.with_row_numbers(none, "number").collect()
    with pytest.raises(ValueError, match="there are no points"):
        example.robust_coreset(none, ["x0"], loss=dm.KMeansLoss(2), size=10)


def test_partitions_that_are_not_those_that_were_counted_are_refused(spark, example):
    """To count, fewer columns are read: fewer bytes, and so other partitions."""
    from pyspark.errors import PySparkException

    frame = frame_of(spark, data(n=20_000)).repartition("row")
    with changed(spark, CUT_BY_BYTES):  # as Spark does by itself where there are more
        with pytest.raises(PySparkException, match=r"not as they were counted; persist\(\) the frame"):
            example.with_row_numbers(frame, "number").toArrow()
        kept = example.with_row_numbers(frame.persist(), "number")
        assert kept.toArrow()["number"].to_pylist() == list(range(20_000))
    frame.unpersist()


@pytest.mark.parametrize(
    "column, message",
    [
        (
            "if(row = (select max(row) from rows), double('nan'), x0)",
            r"X has NaN in row \d+, column 0 \('x0'\)",
        ),
        ("cast(x0 as string)", "X, column 'x0', holds .* encode it as numbers"),
    ],
    ids=["NaN", "text"],
)
def test_what_is_wrong_in_a_partition_reaches_the_driver(column, message, spark, example):
    from pyspark.errors import PythonException

    frame_of(spark, data(n=50)).createOrReplaceTempView("rows")
    wrong = spark.sql(f"select {column} as x0, row from rows").coalesce(1)
    with pytest.raises(PythonException, match=f"ValueError: partition 0: {message}"):
        example.robust_coreset(wrong, ["x0"], loss=dm.KMeansLoss(2), size=10)


def test_the_page_shows_the_functions_that_are_tested():
    blocks = re.findall(r"^```\{code-block\} python\n(.*?)^```$", PAGE.read_text(), re.DOTALL | re.MULTILINE)
    [shown] = [block for block in blocks if "mapInArrow" in block]
    imports, _, functions = shown.partition("\n\n\n")
    script = SCRIPT.read_text()
    assert functions.strip() == script[script.index("\ndef ") : script.index("\ndef main")].strip()
    assert set(imports.splitlines()) < set(script.splitlines())
