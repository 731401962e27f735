"""Losses: against one pass over the data, and against scikit-learn's nearest centre."""

from __future__ import annotations

import os
from functools import partial

import numpy as np
from sklearn.metrics import pairwise_distances_argmin_min

import duramen as dm
from benchmarks.timing import peak_bytes, ratio, report

ROWS, COLUMNS = 571_012, 54  # Covertype's training set


def main() -> None:
    """Print the ratios of every loss."""
    rng = np.random.default_rng(0)
    linear(rng)
    centres(rng)
    bregman(rng)


def linear(rng: np.random.Generator) -> None:
    X = rng.normal(size=(ROWS, COLUMNS))
    X32 = X.astype(np.float32)
    theta = rng.normal(size=COLUMNS + 1) / 8
    coefficients = theta[:-1].copy()
    labels = {
        "sign": rng.choice([-1, 1], size=ROWS),
        "real": rng.normal(size=ROWS),
        "count": rng.poisson(2.0, size=ROWS),
    }
    print(f"linear losses, {ROWS:,} x {COLUMNS} float64, against one X @ theta")
    table = (
        (dm.LogisticLoss(), "sign"),
        (dm.SmoothHingeLoss(), "sign"),
        (dm.SquaredLoss(), "real"),
        (dm.HuberLoss(1.0), "real"),
        (dm.PoissonLoss(), "count"),
    )
    one_pass = partial(np.matmul, X, coefficients)
    for loss, kind in table:
        values = partial(loss.values, theta, X, labels[kind])
        half = partial(loss.values, theta, X32, labels[kind])
        name = type(loss).__name__
        report(f"{name}.values", ratio(values, one_pass), 2)
        report(f"{name}.values, float32 over float64", ratio(half, values), 0.6)
    logistic = dm.LogisticLoss()
    ball = dm.Ball(theta, 0.1)
    sign = labels["sign"]
    report("LogisticLoss.gradient_sum", ratio(partial(logistic.gradient_sum, theta, X, sign), one_pass, 7))
    report("LogisticLoss.deviation", ratio(partial(logistic.deviation, ball, X, sign), one_pass, 7))
    report("dm.points, checked", ratio(partial(dm.points, X, sign), one_pass, 7))
    spare = peak_bytes(partial(logistic.values, theta, X, sign)) - 8 * ROWS
    report("LogisticLoss.values, memory beyond the result", spare / ROWS, None, " B a row")
    both_cores("LogisticLoss.values", partial(logistic.values, theta, X, sign))


def centres(rng: np.random.Generator) -> None:
    print("centres, against scikit-learn's pairwise_distances_argmin_min")
    for n, d, k, target in (
        (541_508, 4, 10, 1.0),
        (541_508, 4, 50, None),
        (200_000, 54, 10, None),
        (100_000, 54, 100, None),
    ):
        X, C = rng.normal(size=(n, d)), rng.normal(size=(k, d))
        loss = dm.KMeansLoss(k)
        values, peer = partial(loss.values, C, X), partial(pairwise_distances_argmin_min, X, C)
        report(f"KMeansLoss({k}).values, {n:,} x {d}", ratio(values, peer, 9), target)
        if target is not None:
            report(
                "  float32 over float64", ratio(partial(loss.values, C, X.astype(np.float32)), values, 9), 0.6
            )
            both_cores("  values", values)
        spare = peak_bytes(values) - 8 * n
        report("  memory beyond the result", spare / n, None, " B a row")


def bregman(rng: np.random.Generator) -> None:
    n, d, k = 200_000, 10, 10
    print(f"Bregman, {n:,} x {d}, k = {k}, against KMeansLoss.values")
    X, C = np.exp(rng.normal(size=(n, d))), np.exp(rng.normal(size=(k, d)))
    means = partial(dm.KMeansLoss(k).values, C, X)
    for name in ("squared", "kl", "itakura-saito"):
        report(f"BregmanLoss, {name}", ratio(partial(dm.BregmanLoss(k, name).values, C, X), means, 5))


def both_cores(what: str, call: partial) -> None:
    def alone() -> None:
        os.environ["DURAMEN_NUM_THREADS"] = "1"
        try:
            call()
        finally:
            del os.environ["DURAMEN_NUM_THREADS"]

    report(f"{what}, all cores over one", ratio(call, alone, 9))
