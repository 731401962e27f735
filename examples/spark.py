"""The robust coreset of a Spark DataFrame: that of one machine. Needs Java 17; see docs/other-engines.md."""

import os
import sys
from functools import reduce

import numpy as np
import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import SparkSession
from pyspark.sql import functions as sql

import duramen as dm
from duramen.distributed import Summary, finish, merge, plan, summarize


def robust_coreset(frame, features, label=None, weight=None, row="row", **asked) -> dm.Coreset:
    """Choose weighted rows of a frame, in two passes; the column ``row`` holds distinct whole numbers."""

    def points(batch):
        y, weights = (None if name is None else batch[name] for name in (label, weight))
        return dm.points(batch.select(features), y, weights, batch[row])

    frame = frame.select(*features, *(name for name in (label, weight, row) if name is not None))
    step = plan(columns=features, **asked)
    while not isinstance(step, dm.Coreset):
        step = finish(one_pass(frame, points, step))
    return step


def one_pass(frame, points, step) -> Summary:
    """Summarize each partition, as bytes in a binary column; eight tasks merge them, and then the driver."""

    def merged(parts):
        return reduce(merge, (Summary.from_bytes(part, step) for part in parts), summarize([], step))

    def first(batches):
        try:
            made = summarize((points(batch) for batch in batches if batch.num_rows), step)
        except (TypeError, ValueError) as error:
            raise ValueError(f"partition {TaskContext.get().partitionId()}: {error}") from error
        yield pa.RecordBatch.from_pydict({"summary": [made.to_bytes()]})

    def then(batches):
        made = merged(part for batch in batches for part in batch["summary"].to_pylist())
        yield pa.RecordBatch.from_pydict({"summary": [made.to_bytes()]})

    few = frame.mapInArrow(first, "summary binary").repartition(8).mapInArrow(then, "summary binary")
    return merged(bytes(row.summary) for row in few.collect())


def with_row_numbers(frame, name="row"):
    """Count the rows of every partition, and number them 0, 1, ... from the first partition to the last."""
    part, below = sql.spark_partition_id(), sql.monotonically_increasing_id().bitwiseAND((1 << 33) - 1)
    counts = dict(frame.groupBy(part).count().collect())
    edges = np.cumsum([0, *(counts.get(number, 0) for number in range(max(counts, default=-1) + 1))])
    starts = sql.array(*map(sql.lit, edges.tolist())).cast("array<bigint>")
    number = sql.get(starts, part) + below
    moved = sql.raise_error(sql.lit("partitions are not as they were counted; persist() the frame first"))
    return frame.withColumn(name, sql.when(number < sql.get(starts, part + 1), number).otherwise(moved))


def main() -> None:
    """Choose 1,000 of 100,000 rows, 2% of them planted, as a cluster would; compare with one machine."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(100_000, 3))
    y = np.where(X[:, 0] - X[:, 1] + rng.logistic(size=100_000) > 0, 1, -1)
    X[::50, :2], y[::50] = [20.0, -20.0], -1
    asked = {"loss": dm.LogisticLoss(), "size": 1000, "n_outliers": 0.02, "random_state": 0}
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # else workers run the first python3 on the PATH
    with SparkSession.builder.master("local[2]").config("spark.log.level", "ERROR").getOrCreate() as spark:
        frame = spark.createDataFrame(pa.table([*X.T, y], names=["a", "b", "c", "y"]))
        core = robust_coreset(with_row_numbers(frame), ["a", "b", "c"], "y", **asked)
    same = np.array_equal(core.ids, dm.robust_coreset(X, y, **asked).ids)
    print(f"{len(core):,} of {core.n_points:,} rows; those that one machine chooses: {same}")


if __name__ == "__main__":
    main()
