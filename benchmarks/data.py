"""The data of the benchmarks: the real sets where they are, else made-up ones of the same size."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np

Z = 10_000


def contaminated_rows() -> tuple[str, np.ndarray, np.ndarray]:
    """Return Covertype's training set with 10,000 planted rows: a name, X and y."""
    rng = np.random.default_rng(0)
    path = _folder() / "covertype.parquet"
    if path.exists():
        columns = _columns(path)
        X, y = columns[:, :-1], np.where(columns[:, -1] == 2, 1, -1)
        X = (X - X.mean(axis=0)) / np.maximum(X.std(axis=0), 1e-12)
        keep = rng.permutation(len(X))[10_000:]
        X, y = X[keep], y[keep]
    else:
        X = rng.normal(size=(571_012, 54))
        y = np.where(rng.random(len(X)) < 1 / (1 + np.exp(-X @ rng.normal(size=54) / 4)), 1, -1)
    planted = rng.choice(len(X), Z, replace=False)
    X[planted] += rng.normal(scale=10, size=(Z, X.shape[1]))
    y[planted] = rng.permutation(y[planted])
    return ("Covertype" if path.exists() else "made-up rows"), X, y


def contaminated_survey() -> tuple[str, np.ndarray]:
    """Return britain_magnetic_3d with 10,000 planted points: a name and X."""
    rng = np.random.default_rng(0)
    path = _folder() / "britain_magnetic_3d.parquet"
    if path.exists():
        X = _columns(path, ["longitude", "latitude", "altitude_m", "total_field_anomaly_nt"])
        X = (X - X.mean(axis=0)) / X.std(axis=0)
    else:
        X = rng.normal(size=(541_508, 4)) + 3 * rng.normal(size=(30, 4))[rng.integers(0, 30, 541_508)]
    box = rng.uniform(X.min(axis=0), X.max(axis=0), size=(Z, X.shape[1]))
    planted = box + rng.normal(scale=20, size=box.shape)
    return ("britain_magnetic_3d" if path.exists() else "made-up points"), np.concatenate([X, planted])


def _folder() -> Path:
    beside = Path(__file__).resolve().parents[2] / "shared" / "data"
    return Path(os.environ.get("DURAMEN_DATA", beside))


def _columns(path: Path, names: list[str] | None = None) -> np.ndarray:
    import pyarrow.parquet as pq

    table = pq.read_table(path, columns=names)
    return np.stack([column.to_numpy().astype(np.float64) for column in table.columns], axis=1)
