"""Coresets: building one against one product ``X @ theta``; memory, precision, and growth with the rows."""

from __future__ import annotations

import time
import warnings
from functools import partial
from typing import Any

import numpy as np

import duramen as dm
from benchmarks.data import Z, contaminated_rows
from benchmarks.timing import peak_bytes, ratio, report


def main() -> None:
    """Print the ratios."""
    name, X, y = contaminated_rows()
    loss, points = dm.LogisticLoss(), dm.points(X, y)
    anchor = dm.find_anchor(points, loss, Z, random_state=0)
    theta = anchor.theta[:-1].copy()
    product = partial(np.matmul, X, theta)
    print(f"robust_coreset of 4,000 rows after the anchor, {name}, {len(X):,} x {X.shape[1]}, over X @ theta")
    build: Any = partial(
        dm.robust_coreset, X, y, loss=loss, size=4000, n_outliers=Z, anchor=anchor, random_state=0
    )
    for sampler, calibrate, target in (
        ("uniform", False, 3),
        ("layered", False, 3),
        ("uniform", True, None),
        ("layered", True, None),
        ("leverage", False, None),
        ("leverage", True, 5),
    ):
        how = "calibrated" if calibrate else "as drawn"
        call = partial(build, sampler=sampler, calibrate=calibrate)
        report(f"{sampler}, {how}", ratio(call, product), target)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="the ball of radius")
        report("sensitivity, calibrated", ratio(partial(build, sampler="sensitivity"), product, 3))
        start = time.perf_counter()
        dm.SensitivitySampler().sensitivities(points, loss, anchor)
        report("all sensitivities in closed form", time.perf_counter() - start, 10, " s")
    report("find_anchor", ratio(partial(dm.find_anchor, points, loss, Z, random_state=0), product, 5))
    report("memory, bytes a row", peak_bytes(build) / len(X), 64, " B")
    small = X.astype(np.float32)
    single: Any = partial(
        dm.robust_coreset, small, y, loss=loss, size=4000, n_outliers=Z, anchor=anchor, random_state=0
    )
    report("leverage, calibrated, float32 over float64", ratio(single, build), 0.6)
    _growth()


def _growth() -> None:
    """Print the time a row takes with ten columns, from 1e5 to 1e7 rows, over that at 1e6."""
    rng = np.random.default_rng(0)
    anchor, loss = dm.Anchor(np.eye(11)[0], 1.0), dm.LogisticLoss()
    seconds = {}
    for n in (10**5, 10**6, 10**7):
        X = rng.standard_normal(size=(n, 10), dtype=np.float32)
        y = np.where(X[:, 0] + rng.standard_normal(n, dtype=np.float32) > 0, 1, -1)
        best = np.inf
        for _ in range(3):
            start = time.perf_counter()
            dm.robust_coreset(X, y, loss=loss, size=4000, n_outliers=0.02, anchor=anchor, random_state=0)
            best = min(best, time.perf_counter() - start)
        seconds[n] = best / n
    print("leverage, calibrated, ten columns of float32: time a row, over that of 1,000,000 rows")
    for n, each in seconds.items():
        report(f"{n:,} rows", each / seconds[10**6])
