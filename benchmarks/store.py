"""The store: bulk inserts from Parquet, opening, single operations beside bare SQLite, a large file.

``python -m benchmarks.store`` runs all but the large file; ``--large`` makes one of 5 GB and inserts it.
"""

from __future__ import annotations

import argparse
import resource
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import duramen as dm
from benchmarks.timing import report
from duramen.io import learn_encoding, open_table

ROWS, COLUMNS = 1_000_000, 54
_ROUNDS, _CALLS = 7, 100


def main() -> None:
    print("\nstore: 1,000,000 x 54 float64, logistic, size 4,000, 1% outliers")
    with tempfile.TemporaryDirectory() as folder:
        source, path = Path(folder) / "rows.parquet", Path(folder) / "rows.duramen"
        write_parquet(source, ROWS, COLUMNS)
        bulk(source, path)
        opening(path)
        single(path, Path(folder) / "bare.db")


def write_parquet(path: Path, n: int, d: int, part: int = 100_000) -> None:
    """Write labelled normal rows, in row groups."""
    rng = np.random.default_rng(0)
    names = [f"x{column}" for column in range(d)]
    schema = pa.schema([(name, pa.float64()) for name in names] + [("y", pa.float64())])
    with pq.ParquetWriter(path, schema, compression="none", use_dictionary=False) as writer:
        for start in range(0, n, part):
            X = rng.standard_normal((min(part, n - start), d))
            y = (X[:, 0] + rng.logistic(size=len(X)) > 0).astype(float)
            columns = [pa.array(X[:, column].copy()) for column in range(d)]
            writer.write_table(pa.table([*columns, pa.array(y)], schema=schema))


def new_store(path: Path) -> dm.Store:
    return dm.open_store(
        path, create=True, loss=dm.LogisticLoss(), size=4000, n_outliers=0.01, random_state=0
    )


def insert_file(source: Path, path: Path) -> int:
    """Insert a Parquet file, as the command line does."""
    table = open_table(source)
    encoding = learn_encoding(table, label="y")
    with new_store(path) as store:
        for _, rows in encoding.read(table):
            store.insert(rows.X, rows.y)
        return len(store)


def bulk(source: Path, path: Path) -> None:
    seconds, read = [], []
    for _ in range(3):
        path.unlink(missing_ok=True)
        read.append(timed(lambda: sum(len(part) for part in pq.ParquetFile(source).iter_batches(65536))))
        seconds.append(timed(lambda: insert_file(source, path)))
    rate = ROWS / min(seconds) / 1000
    say("bulk insert from Parquet, thousand rows a second", rate, 100)
    report("the same over reading the file with pyarrow", min(seconds) / min(read))
    bare = path.with_name("bulk.db")
    ours, theirs = min(seconds), timed(lambda: bare_bulk(source, bare))
    report("the same over bare SQLite, one record a row", ours / theirs)
    report("bytes of the file over those of the rows", path.stat().st_size / (ROWS * (COLUMNS + 1) * 8))


def opening(path: Path) -> None:
    seconds, read = [], []
    for _ in range(5):
        read.append(timed(path.read_bytes))
        seconds.append(timed(lambda: dm.open_store(path).close()))
    say("opening, thousand rows a second", ROWS / min(seconds) / 1000, 500)
    say("  in the median of 5", ROWS / float(np.median(seconds)) / 1000, None)
    report("the same over reading the file's bytes", min(seconds) / min(read))


def single(path: Path, other: Path) -> None:
    """Time one row at a time, alternating with a bare table of the same settings."""
    rng = np.random.default_rng(1)
    rows = rng.standard_normal((_ROUNDS * _CALLS, COLUMNS))
    bare = bare_table(other)
    with dm.open_store(path) as store:
        ids = store.ids[:: max(1, ROWS // len(rows))]
        what: list[tuple[str, Callable[[int], Any], Callable[[int], Any], float | None]] = [
            ("a durable insert", lambda i: store.insert(rows[i], 1.0), lambda i: put(bare, i, rows[i]), 3),
            (
                "a durable update",
                lambda i: store.update(ids[i], rows[i]),
                lambda i: change(bare, i, rows[-i - 1]),
                None,
            ),
            ("a durable delete", lambda i: store.delete(ids[i]), lambda i: take(bare, i), None),
        ]
        for name, mine, theirs, target in what:
            ours, bares = by_turns(mine, theirs)
            report(f"{name} over a bare one, medians", ours / bares, target)
            print(f"  {'':58}{ours * 1e3:9.2f} ms against {bares * 1e3:.2f} ms")
        with store.transaction():
            start = time.perf_counter()
            for row in rows:
                store.insert(row, 1.0)
            each = (time.perf_counter() - start) / len(rows)
        report("an insert inside a transaction, microseconds", each * 1e6, unit="us")
    bare.close()


def by_turns(mine: Callable[[int], Any], theirs: Callable[[int], Any]) -> tuple[float, float]:
    """Measure both in alternating blocks: the median call of each."""
    times: tuple[list[float], list[float]] = ([], [])
    for block in range(_ROUNDS):
        for side, call in enumerate((mine, theirs)):
            for one in range(block * _CALLS, (block + 1) * _CALLS):
                start = time.perf_counter()
                call(one)
                times[side].append(time.perf_counter() - start)
    return float(np.median(times[0])), float(np.median(times[1]))


def bare_table(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path, isolation_level=None)
    for setting in ("journal_mode = WAL", "synchronous = FULL", "secure_delete = ON"):
        connection.execute(f"PRAGMA {setting}")
    connection.execute("CREATE TABLE points (id INTEGER PRIMARY KEY, x BLOB, y REAL, weight REAL)")
    return connection


def put(bare: sqlite3.Connection, one: int, row: np.ndarray) -> None:
    bare.execute("INSERT INTO points VALUES (?, ?, ?, ?)", (one, row.tobytes(), 1.0, 1.0))


def change(bare: sqlite3.Connection, one: int, row: np.ndarray) -> None:
    bare.execute("UPDATE points SET x = ? WHERE id = ?", (row.tobytes(), one))


def take(bare: sqlite3.Connection, one: int) -> None:
    bare.execute("DELETE FROM points WHERE id = ?", (one,))


def bare_bulk(source: Path, path: Path) -> None:
    connection, first = bare_table(path), 0
    for batch in pq.ParquetFile(source).iter_batches(65536):
        block = np.column_stack([column.to_numpy() for column in batch.columns])
        connection.execute("BEGIN")
        rows = ((first + i, row.tobytes(), row[-1], 1.0) for i, row in enumerate(block))
        connection.executemany("INSERT INTO points VALUES (?, ?, ?, ?)", rows)
        connection.execute("COMMIT")
        first += len(block)
    connection.close()


def timed(call: Callable[[], Any]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def say(what: str, value: float, least: float | None) -> None:
    """Print a figure that should be large."""
    verdict = "" if least is None else f"   target {least:g}: {'met' if value >= least else 'MISSED'}"
    print(f"  {what:<58}{value:>9.1f} {verdict}", flush=True)


def large(gigabytes: float) -> None:
    """Insert a file of so many GB in a separate process, and measure how much memory that takes."""
    n = int(gigabytes * 1e9 / (8 * (COLUMNS + 1)))
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "large.parquet"
        write_parquet(source, n, COLUMNS)
        print(f"\n{n:,} rows x {COLUMNS}, a Parquet file of {source.stat().st_size / 1e9:.2f} GB", flush=True)
        code = f"from benchmarks.store import measured; measured({str(source)!r})"
        subprocess.run([sys.executable, "-c", code], check=True)


def measured(source: str) -> None:
    """Insert a file, and print the peak of this process beside the points' own size."""
    start = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        n = insert_file(Path(source), Path(folder) / "large.duramen")
    seconds = time.perf_counter() - start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    own = n * (COLUMNS + 2) * 8  # rows, labels and weights
    say("inserted, thousand rows a second", n / seconds / 1000, 100)
    report("peak memory of the process beyond the points, MB", (peak - own) / 1e6, 500, " MB")
    print(
        f"  points {own / 1e9:.2f} GB, peak {peak / 1e9:.2f} GB, {(peak - own) / n:.0f} bytes a point beyond"
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--large", type=float, nargs="?", const=5.0, metavar="GB")
    given = parser.parse_args()
    large(given.large) if given.large else main()
