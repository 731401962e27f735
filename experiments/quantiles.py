"""Quantile regression on a coreset, against the optimum on all rows; and against scikit-learn on a subset.

``python -m experiments.quantiles`` prints the table of docs/estimators.md.
"""

from __future__ import annotations

import argparse
from typing import NamedTuple

import numpy as np
from sklearn.linear_model import QuantileRegressor

import duramen as dm

QUANTILES = (0.1, 0.5, 0.9)


class Measured(NamedTuple):
    """Pinball losses, as ratios: coresets' fits on all rows, and the solver's objective on a subset."""

    quantile: float
    ratios: np.ndarray  # one per seed: over the optimum on all rows
    peer: float  # over QuantileRegressor's


def make_data(rows: int, seed: int, planted: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Make ten columns, two of them heavy-tailed, and labels whose heavy-tailed noise grows with one column.

    The ``planted`` rows lie twenty times as far out, all with the same high label.
    """
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(rows, 10))
    X[:, 1], X[:, 2] = np.exp(X[:, 1]), rng.standard_t(3, size=rows)
    y = X @ np.linspace(-2, 2, 10) + 5 + rng.standard_t(2, size=rows) * (1 + np.abs(X[:, 0]))
    out = rng.choice(rows, planted, replace=False)
    X[out] *= 20
    y[out] = 1000
    return X, y


def measure(
    quantile: float, rows: int, size: int, seeds: int, planted: int = 0, subset: int = 5000
) -> Measured:
    """Fit all rows, a coreset for each seed, and a subset twice."""
    X, y = make_data(rows, 0, planted)
    points, loss = dm.points(X, y), dm.QuantileLoss(quantile)
    best = dm.solve(points, loss, n_outliers=planted, random_state=0).objective
    ratios = []
    for seed in range(seeds):
        core = dm.robust_coreset(X, y, loss=loss, size=size, n_outliers=planted, random_state=seed)
        theta = dm.solve(core, random_state=seed).theta
        ratios.append(dm.trimmed_objective(points, theta, loss=loss, n_outliers=planted) / best)
    few, labels = make_data(subset, 1)
    peer = QuantileRegressor(quantile=quantile, alpha=0, solver="highs").fit(few, labels)
    least = loss.values(np.append(peer.coef_, peer.intercept_), few, labels).sum()
    ours = dm.solve(dm.points(few, labels), loss).objective
    return Measured(quantile, np.array(ratios), float(ours / least))


def main(arguments: list[str] | None = None) -> str:
    """Print the table, and return it."""
    parser = argparse.ArgumentParser(description=__doc__)
    for name, value in {"rows": 500_000, "size": 4000, "seeds": 10}.items():
        parser.add_argument(f"--{name}", type=int, default=value)
    given = vars(parser.parse_args(arguments))
    lines = [
        "| quantile | outliers | pinball ratio, mean | worst | solver over `QuantileRegressor` |",
        "| --- | --- | --- | --- | --- |",
    ]
    for planted in (0, given["rows"] // 100):
        for quantile in QUANTILES:
            found = measure(quantile, planted=planted, **given)
            mean, worst, peer = found.ratios.mean(), found.ratios.max(), found.peer - 1
            lines.append(f"| {quantile} | {planted:,} | {mean:.4f} | {worst:.4f} | 1 + {peer:.0e} |")
    print(*lines, sep="\n")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
