"""Dask: two workers against one, beside a sum of the same rows, and the size of summaries.

``python -m benchmarks.distributed``. Workers are processes of one thread, and talk over TCP on the loopback.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import reduce
from typing import Any

import dask
import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
from dask.distributed import Client, LocalCluster, wait

import duramen as dm
from benchmarks.timing import report
from duramen.distributed import Plan, finish, merge, plan, summarize
from duramen.distributed import dask as dmd

ROWS, COLUMNS, PARTITIONS = 8_000_000, 10, 32
NAMES = [f"x{column}" for column in range(COLUMNS)]
_ROUNDS = 3
_KEEPING = dict.fromkeys(("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_"), str(1 << 29))
_SMALL = dict.fromkeys(NAMES, np.float32) | {"y": np.int8}


def main() -> None:
    print(f"\nDask: {ROWS:,} x {COLUMNS} float32 in {PARTITIONS} partitions, size 2,000, 5,000 outliers")
    alone, both = measured(1), measured(2)
    os.environ.update(_KEEPING)  # last, as Dask leaves such settings in the environment
    kept = measured(2)
    for kind in alone:
        one, two, fast = (np.array(seconds[kind]) for seconds in (alone, both, kept))
        print(f"  {kind}: the coreset {one[0]:.2f} s by one worker, {two[0]:.2f} s by two", flush=True)
        report("  two workers against one, times as fast", one[0] / two[0])
        report("  a sum of all columns, two against one, times as fast", one[1] / two[1])
        report("  the coreset over the sum, one worker", one[0] / one[1])
        report("  the coreset over the sum, two workers", two[0] / two[1])
        report("  two workers that keep memory, times as fast as those", two[0] / fast[0])
    summary_sizes()


@contextmanager
def workers(n_workers: int) -> Iterator[Client]:
    """Start a cluster, and compute there."""
    with (
        LocalCluster(n_workers=n_workers, threads_per_worker=1, dashboard_address="127.0.0.1:0") as cluster,
        Client(cluster) as client,
    ):
        yield client


def measured(n_workers: int) -> dict[str, tuple[float, float]]:
    """Time the coreset and the sum, of rows in the workers' memory: the best of some alternating rounds."""
    found = {}
    with workers(n_workers):
        for kind, make in {"array, k-means, layered": rows, "frame, logistic, leverage": frame}.items():
            data = make(ROWS, PARTITIONS).persist()
            wait(data)
            calls = (lambda data=data: coreset(data), lambda data=data: dask.compute(data.sum(axis=0)))
            best = [np.inf, np.inf]
            for _ in range(_ROUNDS):
                best = [min(before, timed(call)) for before, call in zip(best, calls, strict=True)]
            found[kind] = (best[0], best[1])
            del data
    return found


def rows(n: int, n_partitions: int) -> Any:
    """Make an array on the workers: three blobs."""
    rng = da.random.default_rng(0)
    X = rng.standard_normal((n, COLUMNS), chunks=(n // n_partitions, COLUMNS), dtype=np.float32)
    return X + 5 * (rng.integers(0, 3, size=(n, 1), chunks=(n // n_partitions, 1), dtype=np.int8))


def frame(n: int, n_partitions: int) -> Any:
    """Make a frame on the workers, with a label."""
    meta = pd.DataFrame(columns=[*NAMES, "y"]).astype(_SMALL)
    return dd.from_map(piece, range(n_partitions), n=n // n_partitions, meta=meta)


def piece(number: int, n: int) -> pd.DataFrame:
    rng = np.random.default_rng(number)
    table = pd.DataFrame(rng.standard_normal((n, COLUMNS), dtype=np.float32), columns=NAMES)
    return table.assign(y=np.where(table["x0"] + rng.standard_normal(n) > 0, 1, -1).astype(np.int8))


def coreset(data: Any) -> dm.Coreset:
    label = {} if hasattr(data, "chunks") else {"label": "y"}
    return dmd.robust_coreset(data, **label, **problem(data))


def problem(data: Any) -> dict[str, Any]:
    chosen = {"size": 2000, "n_outliers": 5000, "random_state": 0}
    if hasattr(data, "chunks"):
        return chosen | {"loss": dm.KMeansLoss(3), "sampler": "layered"}
    return chosen | {"loss": dm.LogisticLoss(), "sampler": "leverage"}


def summary_sizes() -> None:
    """Print how large a partition's summary is, for partitions of several sizes."""
    print("  bytes that leave a partition: in the first pass, in the second, and of its rows")
    for n in (25_000, 100_000, 400_000, 1_600_000):
        for kind, make in (("array, layered", rows), ("frame, leverage", frame)):
            first, second = passes(make(4 * n, 4))
            print(
                f"    {kind:<18}{n:>10,} rows {first:>12,} {second:>12,} {n * COLUMNS * 4:>14,}", flush=True
            )


def passes(data: Any) -> Iterator[int]:
    """Summarize all partitions here, pass after pass, and give the size of the largest summary of each."""
    step: Any = plan(**problem(data)).expecting(len(data))  # as the coreset of a Dask collection does
    is_array = hasattr(data, "chunks")
    blocks = data.to_delayed().ravel() if is_array else data.to_delayed()
    starts = range(0, 2**62, 2**40)  # ids that no other partition has
    while isinstance(step, Plan):
        summaries = []
        for start, block in zip(starts, dask.compute(*blocks), strict=False):
            X, y = (block, None) if is_array else (block[NAMES], block["y"])
            summaries.append(summarize(dm.points(X, y, ids=start + np.arange(len(X))), step))
        yield max(len(summary.to_bytes()) for summary in summaries)
        step = finish(reduce(merge, summaries))


def timed(call: Callable[[], Any]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


if __name__ == "__main__":
    main()
