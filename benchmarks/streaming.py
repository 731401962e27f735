"""Streaming: a coreset of a Parquet file that is never in memory, over merely reading the file.

``python -m benchmarks.streaming`` makes a file of 5 million rows; ``--large`` one of 100 million (4 GB).
Every figure is measured in a separate process, and so is its peak of memory.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq

import duramen as dm
from benchmarks.timing import report

ROWS, LARGE = 5_000_000, 100_000_000
_GROUP = 1 << 20
_MOST_MEMORY = 1.5  # GB
_MOST_TIME = 2.5  # times reading

READERS = {
    "iter_batches": lambda path: sum(len(part) for part in pq.ParquetFile(path).iter_batches()),
    "iter_batches, pre_buffer=False": lambda path: sum(
        len(part) for part in pq.ParquetFile(path, pre_buffer=False).iter_batches()
    ),
    "dataset.to_batches": lambda path: sum(len(part) for part in ds.dataset(path).to_batches()),
}
PROBLEMS = {
    "logistic, leverage": ("y", dm.LogisticLoss(), "leverage"),
    "k-means of 5, layered": (None, dm.KMeansLoss(5), "layered"),
    "k-means of 5, uniform": (None, dm.KMeansLoss(5), "uniform"),
}


def main(n: int = ROWS, rounds: int = 2) -> None:
    print(f"\nstreaming: {n:,} x 10 float32 in Parquet, size 4,000, 1% outliers")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rows.parquet"
        write(path, n)
        print(f"  the file has {path.stat().st_size / 1e9:.2f} GB", flush=True)
        best: dict[str, dict[str, float]] = {}
        for _ in range(rounds):
            for what in (*READERS, *PROBLEMS):
                found = alone(what, path)
                if what not in best or found["seconds"] < best[what]["seconds"]:
                    best[what] = found
        show(best, n)


def show(best: dict[str, dict[str, float]], n: int) -> None:
    plain, lean, _ = (best[name]["seconds"] for name in READERS)
    for name in READERS:
        found = best[name]
        print(f"  pyarrow, {name:<48}{found['seconds']:>9.2f} s {found['gigabytes']:>9.2f} GB at most")
    for name in PROBLEMS:
        found = best[name]
        print(f"  {name}: {n / found['seconds'] / 1e6:.1f} million rows a second, two passes")
        report("    over reading it once (iter_batches)", found["seconds"] / plain, _MOST_TIME)
        report("    over reading it once, pre_buffer=False", found["seconds"] / lean, _MOST_TIME)
        report("    peak of memory, GB", found["gigabytes"], _MOST_MEMORY, " GB")


def write(path: Path, n: int) -> None:
    """Write labelled normal rows, with pyarrow's defaults; one in a hundred is far out."""
    rng = np.random.default_rng(0)
    schema = pa.schema([(f"x{column}", pa.float32()) for column in range(9)] + [("y", pa.float32())])
    with pq.ParquetWriter(path, schema) as writer:
        for start in range(0, n, _GROUP):
            X = rng.standard_normal((min(_GROUP, n - start), 9), dtype=np.float32)
            X[::100] *= 20
            y = (X[:, 0] + rng.logistic(size=len(X)) > 0).astype(np.float32)
            writer.write_table(pa.table([*X.T.copy(), y], schema=schema))


def alone(what: str, path: Path) -> dict[str, float]:
    """Measure something in a separate process."""
    process = subprocess.run(
        [sys.executable, "-m", "benchmarks.streaming", "--one", what, str(path)],
        check=True,
        capture_output=True,
        text=True,
    )
    return dict(json.loads(process.stdout))


def one(what: str, path: str) -> None:
    start = time.perf_counter()
    if what in READERS:
        READERS[what](path)
    else:
        label, loss, sampler = PROBLEMS[what]
        data = dm.scan(path, label=label)
        core = dm.robust_coreset(data, loss=loss, size=4000, n_outliers=0.01, sampler=sampler, random_state=0)
        assert len(core) == 4000
    seconds = time.perf_counter() - start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9
    print(json.dumps({"seconds": seconds, "gigabytes": peak}))


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--large", action="store_true")
    parser.add_argument("--one", nargs=2)
    options = parser.parse_args()
    if options.one:
        one(*options.one)
    else:
        main(LARGE if options.large else ROWS, rounds=1 if options.large else 2)
