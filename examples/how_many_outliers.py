"""Set too little aside, enough, and too much: how the fit changes, and how the losses show it.

In 2% of the rows the age column holds a year of birth, and the label is wrong. Options repeat it over
seeds, with no such rows (``--planted 0``), or with an age that says less about the label (``--effect 0.05``).
"""

from __future__ import annotations

import argparse

import numpy as np

import duramen as dm

SHARES = (0.0, 0.01, 0.018, 0.02, 0.03, 0.04, 0.08)


def customers(n: int, effect: float, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Make honest rows (age, visits, spend) and whether each customer left."""
    X = np.column_stack([rng.normal(45, 12, n), rng.poisson(6.0, n), rng.gamma(2.0, 40.0, n)])
    leaning = effect * (45 - X[:, 0]) - 0.3 * (X[:, 1] - 6) + 0.01 * (80 - X[:, 2])
    return X, leaning + rng.logistic(size=n) > 0


def trial(seed: int, asked: argparse.Namespace) -> list[list[float]]:
    """Fit with each share; return one line of the table for each."""
    rng = np.random.default_rng(seed)
    (X, y), (T, u) = customers(10_000, asked.effect, rng), customers(10_000, asked.effect, rng)
    ideal = dm.RobustLogisticRegression(0, coreset_size=None).fit(X, y)
    planted = rng.permutation(len(X))[: round(asked.planted * len(X))]
    X[planted, 0], y[planted] = 2026 - X[planted, 0], True

    rows = []
    for share in SHARES:
        model = dm.RobustLogisticRegression(share, n_init=asked.starts, random_state=seed).fit(X, y)
        found = np.isin(planted, model.outliers_).mean() if len(planted) else 0.0
        losses = np.sort(model.losses(X, y))[::-1]
        fall = losses[99 : len(X) // 10] / losses[100 : len(X) // 10 + 1]
        clean = model.losses(T, u).mean() / ideal.losses(T, u).mean()
        right = 100 * (model.score(T, u) - ideal.score(T, u))
        rows.append([found, model.coef_[0, 0] / -asked.effect, clean, right, fall.max(), 100 + fall.argmax()])
    return rows


def main(asked: argparse.Namespace) -> None:
    """Print one line for each share: means over the seeds."""
    means = np.mean([trial(seed, asked) for seed in range(asked.seeds)], axis=0)
    print(
        f"{asked.planted:.1%} of the rows are planted; loss and accuracy: on clean rows, against a clean fit"
    )
    print("set aside   found   coefficient / truth    loss   accuracy   steepest fall of the sorted losses")
    for share, (found, ratio, clean, right, fall, place) in zip(SHARES, means, strict=True):
        print(f"{share:9.1%} {found:7.0%} {ratio:21.2f} {clean:7.3f} {right:+10.1f}", end="   ")
        print(f"{fall:.1f} times, after row {place:,.0f}" if fall > 3 else "none")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seeds", type=int, default=1, help="number of data sets to average over")
    parser.add_argument("--planted", type=float, default=0.02, help="the share of wrong rows")
    parser.add_argument("--effect", type=float, default=0.1, help="change of the log-odds per year of age")
    parser.add_argument("--starts", type=int, default=1, help="number of starts")
    main(parser.parse_args())
